// The ranked list: only the rows in sight exist, so twenty thousand images are as quick as twenty.
import { thumbnail } from "./api.js";

const ROW = 72; // css pixels, as in the style sheet
const SPARE = 4; // rows above and below the window

export class List {
  shown = []; // images that pass the filters, worst first
  #nodes = new Map();
  #current = null;

  constructor(rows, spacer, created, open) {
    Object.assign(this, { rows, spacer, created, open });
    rows.addEventListener("scroll", () => requestAnimationFrame(() => this.render()), { passive: true });
    new ResizeObserver(() => this.render()).observe(rows);
  }

  show(images) {
    this.shown = images;
    this.spacer.style.height = `${images.length * ROW}px`;
    this.rows.scrollTop = 0;
    for (const node of this.#nodes.values()) node.remove();
    this.#nodes.clear();
    this.rows.querySelector(".empty")?.remove();
    if (!images.length) {
      const empty = document.createElement("p");
      empty.className = "empty";
      empty.textContent = "No image fits these filters.";
      this.rows.append(empty);
    }
    this.render();
  }

  select(number) {
    this.#current = number;
    const place = this.place(number);
    if (place >= 0) {
      const { scrollTop, clientHeight } = this.rows;
      if (place * ROW < scrollTop) this.rows.scrollTop = place * ROW;
      else if ((place + 1) * ROW > scrollTop + clientHeight) this.rows.scrollTop = (place + 1) * ROW - clientHeight;
    }
    this.render();
  }

  place(number) {
    return this.shown.findIndex((image) => image.number === number);
  }

  // Neighbour in the list; from an image that the filters hide, the first one.
  step(number, by) {
    const place = this.place(number);
    return this.shown[place < 0 ? 0 : place + by]?.number ?? null;
  }

  render() {
    const first = Math.max(Math.floor(this.rows.scrollTop / ROW) - SPARE, 0);
    const last = Math.min(Math.ceil((this.rows.scrollTop + this.rows.clientHeight) / ROW) + SPARE, this.shown.length);
    const wanted = new Map(this.shown.slice(first, last).map((image, i) => [image.number, [image, first + i]]));
    for (const [number, node] of this.#nodes) {
      if (wanted.has(number)) continue;
      node.remove();
      this.#nodes.delete(number);
    }
    for (const [number, [image, place]] of wanted) {
      let node = this.#nodes.get(number);
      if (!node) {
        node = this.#make(image);
        node.style.top = `${place * ROW}px`;
        this.#nodes.set(number, node);
        this.rows.append(node);
      }
      node.setAttribute("aria-current", String(number === this.#current));
      const badge = node.querySelector(".badge");
      badge.className = `badge ${image.status}`;
      badge.setAttribute("aria-label", image.status === "open" ? "to review" : image.status);
      badge.title = image.status;
    }
  }

  #make(image) {
    const node = document.createElement("button");
    node.type = "button";
    node.className = "row";
    node.title = image.id;
    const picture = document.createElement("img");
    picture.alt = "";
    picture.loading = "lazy";
    picture.decoding = "async";
    picture.width = picture.height = 56;
    picture.src = thumbnail(image.number, this.created);
    const name = document.createElement("span");
    name.className = "name";
    name.textContent = image.id;
    const line = document.createElement("span");
    line.className = "line";
    line.textContent = `${image.quality.toFixed(2)} · ${image.issues} ${image.issues === 1 ? "issue" : "issues"}`;
    const badge = document.createElement("span");
    badge.className = "badge";
    badge.setAttribute("role", "img");
    node.append(picture, name, line, badge);
    node.addEventListener("click", () => this.open(image.number));
    return node;
  }
}

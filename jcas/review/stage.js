// One image large: layers, zoom and pan, region outlines, brush. Knows nothing of the server.
import { outlines, pathOf } from "./outline.js";

export const UNPAINTED = 254;
const MARK = { open: "#ffb224", accepted: "#2fd46f", rejected: "#ff6b72" };
const CLICK = 4; // css pixels that a hand may tremble during a click
const MARGIN = 16;

export class Stage {
  tool = "select";
  label = 1; // class of the brush
  size = 12; // diameter of the brush in image pixels
  layer = "result";
  opacity = 0.5;
  #peek = null;
  #view = { scale: 1, left: 0, top: 0, fitted: true };
  #pointer = null; // css pixels, while over the canvas
  #drag = null;
  #space = false;
  #hovered = 0;
  #image = null;
  #drawing = 0;

  // on: { region(number, event), stroke(patch, restore), hover(place), zoom(scale) }
  constructor(canvas, on) {
    this.canvas = canvas;
    this.on = on;
    this.context = canvas.getContext("2d");
    this.overlay = document.createElement("canvas");
    new ResizeObserver(() => this.#resize()).observe(canvas);
    canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.#down(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    canvas.addEventListener("pointerup", (event) => this.#up(event));
    canvas.addEventListener("pointercancel", () => this.#cancel());
    canvas.addEventListener("pointerleave", () => { this.#pointer = null; this.#hover(); });
    canvas.addEventListener("auxclick", (event) => event.preventDefault());
  }

  colour(colours, ignore) {
    this.ignore = ignore;
    this.table = new Uint32Array(256); // little end first: alpha, blue, green, red
    colours.forEach(([red, green, blue], label) => {
      this.table[label] = label ? (255 << 24 | blue << 16 | green << 8 | red) >>> 0 : 0;
    });
  }

  show(image, layers, painted, state) {
    const fresh = this.#image?.number !== image.number;
    const { width, height } = image;
    this.#image = { number: image.number, width, height, ...layers };
    this.#image.edges = outlines(layers.regions, width, height);
    this.#image.painted = painted ?? new Uint8Array(width * height).fill(UNPAINTED);
    this.#image.stroke = new Uint8Array(width * height).fill(UNPAINTED);
    this.#drag = null;
    this.overlay.width = width;
    this.overlay.height = height;
    this.pixels = this.overlay.getContext("2d").createImageData(width, height);
    this.words = new Uint32Array(this.pixels.data.buffer);
    if (fresh) this.fit();
    this.update(state);
  }

  clear() {
    this.#image = null;
    this.draw();
  }

  // A new state of the same image: which regions are accepted.
  update(state) {
    const image = this.#image;
    if (!image) return;
    image.accepted = new Uint8Array(65536);
    const groups = { open: [], accepted: [], rejected: [] };
    for (const region of image.edges.keys()) {
      const answer = state.regions[region] ?? state.verdict;
      image.accepted[region] = answer === true ? 1 : 0;
      groups[answer === true ? "accepted" : answer === false ? "rejected" : "open"].push(region);
    }
    image.paths = Object.entries(groups).map(([name, list]) => [name, pathOf(image.edges, list)]);
    this.compose();
  }

  get busy() { return this.#drag?.kind === "paint"; }

  set peek(layer) {
    if (this.#peek === layer) return;
    this.#peek = layer;
    this.compose();
  }

  set space(held) {
    this.#space = held;
    this.#cursor();
  }

  highlight(region) {
    if (this.#hovered === region) return;
    this.#hovered = region;
    this.draw();
  }

  labelsAt(x, y) {
    const image = this.#image;
    const i = y * image.width + x;
    const region = image.regions[i];
    return {
      given: image.given[i], repaired: image.repaired[i], region, result: this.#result(i),
      wrongness: image.wrongness ? image.wrongness[i] / 255 : null,
    };
  }

  #result(i) {
    const image = this.#image;
    if (image.painted[i] !== UNPAINTED) return image.painted[i];
    return image.accepted[image.regions[i]] ? image.repaired[i] : image.given[i];
  }

  // Colours of the overlay, in a rectangle or everywhere.
  compose(box = null) {
    const image = this.#image;
    if (!image) return;
    const { width, height, given, repaired, wrongness } = image;
    const { left, top, right, bottom } = box ?? { left: 0, top: 0, right: width, bottom: height };
    const layer = this.#peek ?? this.layer;
    const hatch = (x, y, dark, light) => ((x + y) % 6 < 3 ? light : dark);
    const colour = (label, x, y) => (label === this.ignore ? hatch(x, y, 0, 0xffffffff) : this.table[label]);
    for (let y = top; y < bottom; y++) {
      for (let x = left; x < right; x++) {
        const i = y * width + x;
        let word = 0;
        if (layer === "result") word = colour(this.#result(i), x, y);
        else if (layer === "given") word = colour(given[i], x, y);
        else if (layer === "repaired") word = colour(repaired[i], x, y);
        else if (layer === "difference") {
          const wanted = image.painted[i] === UNPAINTED ? repaired[i] : image.painted[i];
          // What should become background has no colour of its own: red and black stripes.
          if (wanted !== given[i]) word = wanted ? colour(wanted, x, y) : hatch(x, y, 0xff000000, 0xff3a30ff);
        } else if (layer === "wrongness" && wrongness) word = heat(wrongness[i]);
        this.words[i] = word;
      }
    }
    this.overlay.getContext("2d").putImageData(this.pixels, 0, 0, left, top, right - left, bottom - top);
    this.draw();
  }

  draw() {
    cancelAnimationFrame(this.#drawing);
    this.#drawing = requestAnimationFrame(() => this.#paintScreen());
  }

  #paintScreen() {
    const { context, canvas } = this;
    const image = this.#image;
    const ratio = devicePixelRatio || 1;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    if (!image) return;
    const { scale, left, top } = this.#view;
    Object.assign(canvas.dataset, { scale, left, top, shown: image.number });
    context.setTransform(scale * ratio, 0, 0, scale * ratio, left * ratio, top * ratio);
    context.imageSmoothingEnabled = scale < 3;
    context.drawImage(image.picture, 0, 0, image.width, image.height);
    if ((this.#peek ?? this.layer) !== "none") {
      context.imageSmoothingEnabled = scale < 1;
      context.globalAlpha = this.opacity;
      context.drawImage(this.overlay, 0, 0);
      context.globalAlpha = 1;
    }
    if ((this.#peek ?? this.layer) !== "none") this.#drawOutlines(image, scale);
    this.#drawBrush(scale);
  }

  #drawOutlines(image, scale) {
    const { context } = this;
    context.lineCap = "square";
    for (const [name, path] of image.paths) {
      context.setLineDash(name === "rejected" ? [4 / scale, 4 / scale] : []);
      context.strokeStyle = "rgb(0 0 0 / .6)";
      context.lineWidth = 3.5 / scale;
      context.stroke(path);
      context.strokeStyle = MARK[name];
      context.lineWidth = 1.6 / scale;
      context.stroke(path);
    }
    context.setLineDash([]);
    if (this.#hovered && image.edges.has(this.#hovered)) {
      context.strokeStyle = "#fff";
      context.lineWidth = 3 / scale;
      context.stroke(pathOf(image.edges, [this.#hovered]));
    }
  }

  #drawBrush(scale) {
    if (!this.#pointer || this.tool === "select" || this.#space) return;
    const { context } = this;
    const [x, y] = this.#toImage(this.#pointer);
    for (const [colour, width] of [["rgb(0 0 0 / .7)", 3], ["#fff", 1.2]]) {
      context.strokeStyle = colour;
      context.lineWidth = width / scale;
      context.beginPath();
      context.arc(x, y, Math.max(this.size / 2, 1 / scale), 0, 2 * Math.PI);
      context.stroke();
    }
  }

  // --- view ---------------------------------------------------------------------------------------------------------

  fit() {
    if (!this.#image) return;
    const { clientWidth, clientHeight } = this.canvas;
    const { width, height } = this.#image;
    const scale = Math.min((clientWidth - 2 * MARGIN) / width, (clientHeight - 2 * MARGIN) / height);
    this.#look({
      scale: Math.max(scale, 0.01), left: (clientWidth - width * scale) / 2, top: (clientHeight - height * scale) / 2,
      fitted: true,
    });
  }

  focus([top, left, bottom, right]) {
    if (!this.#image || bottom <= top || right <= left) return;
    const { clientWidth, clientHeight } = this.canvas;
    const room = Math.min(clientWidth / (right - left), clientHeight / (bottom - top)) * 0.5;
    const scale = Math.min(Math.max(room, 0.05), 16);
    this.#look({
      scale, left: clientWidth / 2 - (left + right) / 2 * scale, top: clientHeight / 2 - (top + bottom) / 2 * scale,
      fitted: false,
    });
  }

  zoom(factor, [x, y] = [this.canvas.clientWidth / 2, this.canvas.clientHeight / 2]) {
    if (!this.#image) return;
    const { scale, left, top } = this.#view;
    const next = Math.min(Math.max(scale * factor, 0.05), 64);
    this.#look({ scale: next, left: x - (x - left) * next / scale, top: y - (y - top) * next / scale, fitted: false });
  }

  #look(view) {
    this.#view = view;
    this.on.zoom(view.scale);
    this.draw();
  }

  #resize() {
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(this.canvas.clientWidth * ratio);
    this.canvas.height = Math.round(this.canvas.clientHeight * ratio);
    if (this.#view.fitted) this.fit();
    this.#paintScreen();
  }

  // --- pointer ------------------------------------------------------------------------------------------------------

  #toImage([x, y]) {
    const { scale, left, top } = this.#view;
    return [(x - left) / scale, (y - top) / scale];
  }

  #place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  #wheel(event) {
    event.preventDefault();
    const step = event.deltaY * (event.deltaMode === 1 ? 16 : 1);
    this.zoom(Math.exp(-Math.min(Math.max(step, -240), 240) * 0.0022), this.#place(event));
  }

  #down(event) {
    if (!this.#image || this.#drag) return;
    const place = this.#place(event);
    const pans = event.button === 1 || (event.button === 0 && (this.#space || this.tool === "select"));
    if (!pans && event.button !== 0) return;
    event.preventDefault();
    this.canvas.setPointerCapture(event.pointerId);
    if (pans) {
      this.#drag = { kind: "pan", from: place, view: this.#view, moved: false, click: event.button === 0 && !this.#space };
    } else {
      const label = this.tool === "eraser" ? 0 : this.label;
      this.#drag = { kind: "paint", label, last: this.#toImage(place), before: this.#image.painted.slice(), box: null };
      this.#stroke(this.#drag.last);
    }
    this.#cursor();
  }

  #move(event) {
    const place = this.#place(event);
    this.#pointer = place;
    const drag = this.#drag;
    if (drag?.kind === "pan") {
      const [x, y] = [place[0] - drag.from[0], place[1] - drag.from[1]];
      drag.moved ||= Math.hypot(x, y) > CLICK;
      if (drag.moved) this.#look({ ...drag.view, left: drag.view.left + x, top: drag.view.top + y, fitted: false });
    } else if (drag?.kind === "paint") {
      for (const part of event.getCoalescedEvents?.() ?? []) this.#stroke(this.#toImage(this.#place(part)));
      this.#stroke(this.#toImage(place));
    }
    this.#hover();
  }

  #up(event) {
    const drag = this.#drag;
    this.#drag = null;
    this.#cursor();
    if (!drag) return;
    if (drag.kind === "pan") {
      if (drag.moved || !drag.click) return;
      const [x, y] = this.#toImage(this.#place(event)).map(Math.floor);
      if (this.#inside(x, y)) this.on.region(this.labelsAt(x, y).region, event);
    } else if (drag.box) {
      this.on.stroke(this.#patch(drag.box), this.#restorer(drag.before));
    }
  }

  #cancel() {
    if (this.#drag?.kind === "paint") this.#restorer(this.#drag.before)();
    this.#image?.stroke.fill(UNPAINTED);
    this.#drag = null;
  }

  #restorer(before) {
    const image = this.#image;
    return () => {
      image.painted = before;
      if (image === this.#image) this.compose();
    };
  }

  #hover() {
    this.#cursor();
    const place = this.#pointer && this.#image ? this.#toImage(this.#pointer).map(Math.floor) : null;
    this.on.hover(place && this.#inside(...place) ? place : null);
    this.draw();
  }

  #inside(x, y) {
    return x >= 0 && y >= 0 && x < this.#image.width && y < this.#image.height;
  }

  #cursor() {
    const panning = this.#drag?.kind === "pan" && (this.#drag.moved || !this.#drag.click);
    let region = false;
    if (this.#pointer && this.#image && this.tool === "select") {
      const [x, y] = this.#toImage(this.#pointer).map(Math.floor);
      region = this.#inside(x, y) && this.#image.regions[y * this.#image.width + x] > 0;
    }
    this.canvas.className = panning ? "panning" : this.#space || (this.tool === "select" && !region) ? "pan"
      : region ? "region" : "";
  }

  // Paint all pixels whose centre lies within half the brush's size of the way from the last place to this one.
  #stroke([x1, y1]) {
    const image = this.#image;
    const drag = this.#drag;
    const [x0, y0] = drag.last;
    const radius = this.size / 2;
    const [dx, dy] = [x1 - x0, y1 - y0];
    const length = dx * dx + dy * dy;
    const box = {
      left: Math.max(Math.floor(Math.min(x0, x1) - radius), 0), top: Math.max(Math.floor(Math.min(y0, y1) - radius), 0),
      right: Math.min(Math.ceil(Math.max(x0, x1) + radius) + 1, image.width),
      bottom: Math.min(Math.ceil(Math.max(y0, y1) + radius) + 1, image.height),
    };
    drag.last = [x1, y1];
    let touched = false;
    for (let y = box.top; y < box.bottom; y++) {
      for (let x = box.left; x < box.right; x++) {
        const [px, py] = [x + 0.5 - x0, y + 0.5 - y0];
        const along = length ? Math.min(Math.max((px * dx + py * dy) / length, 0), 1) : 0;
        const [ex, ey] = [px - along * dx, py - along * dy];
        const under = x === Math.floor(x1) && y === Math.floor(y1); // the finest brush still paints one pixel
        if (ex * ex + ey * ey > radius * radius && !under) continue;
        image.painted[y * image.width + x] = image.stroke[y * image.width + x] = drag.label;
        touched = true;
      }
    }
    if (!touched) return;
    drag.box = drag.box ? {
      left: Math.min(drag.box.left, box.left), top: Math.min(drag.box.top, box.top),
      right: Math.max(drag.box.right, box.right), bottom: Math.max(drag.box.bottom, box.bottom),
    } : box;
    this.compose(box);
  }

  #patch({ left, top, right, bottom }) {
    const { width, stroke } = this.#image;
    const [w, h] = [right - left, bottom - top];
    const labels = new Uint8Array(w * h);
    for (let y = 0; y < h; y++) {
      const start = (top + y) * width + left;
      labels.set(stroke.subarray(start, start + w), y * w);
      stroke.fill(UNPAINTED, start, start + w);
    }
    return { top, left, height: h, width: w, labels };
  }
}

// Nothing, yellow, red, as the label becomes more doubtful.
function heat(value) {
  const green = Math.round(225 * (1 - value / 255));
  return ((Math.min(value * 1.6, 255) << 24) | (40 << 16) | (green << 8) | 255) >>> 0;
}

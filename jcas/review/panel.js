// Facts and issues of the current image.

const KINDS = {
  superfluous: "Should not be there", missing: "Missing", wrong_class: "Wrong class", wrong_outline: "Wrong outline",
  empty_mask: "Empty mask", stray_component: "Stray piece", hole: "Hole", class_absent: "Class absent",
  mismatched_pair: "Image and mask may not belong together", duplicate_conflict: "Same image, different mask",
};
const MOST = 200; // regions in the list; speckled masks have thousands

export const kindTitle = (kind) => KINDS[kind] ?? kind.replaceAll("_", " ");

const byId = (id) => document.getElementById(id);

function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

export function swatch([red, green, blue]) {
  const node = make("span", "swatch");
  node.style.backgroundColor = `rgb(${red} ${green} ${blue})`;
  return node;
}

export class Panel {
  #items = new Map(); // region -> list item

  // on: { judge(region, accept), focus(issue), hover(region) }
  constructor(review, on) {
    this.review = review;
    this.on = on;
  }

  show(image, detail, place, count) {
    byId("title").textContent = image.id;
    byId("about").textContent =
      [image.split, image.group !== image.id && image.group, `${image.width} × ${image.height}`].filter(Boolean).join(" · ");
    byId("quality").textContent = image.quality.toFixed(2);
    const share = 100 * image.expected_wrong / (image.width * image.height);
    byId("wrong").textContent = `${Math.round(image.expected_wrong).toLocaleString("en")} px`;
    byId("wrong").title = `${share.toFixed(1)} % of the image`;
    byId("position").textContent = place < 0 ? `not among the ${count} shown` : `${place + 1} of ${count}`;
    byId("issues-title").textContent = detail.issues.length === 1 ? "1 issue" : `${detail.issues.length} issues`;
    this.#items.clear();
    const items = detail.issues.slice(0, MOST).map((issue) => this.#item(issue));
    if (detail.issues.length > MOST) {
      items.push(make("li", "more", `and ${detail.issues.length - MOST} more: click them in the image`));
    }
    if (!items.length) items.push(make("li", "more", "The audit found nothing here."));
    byId("issues").replaceChildren(...items);
    byId("issues").scrollTop = 0;
    this.update(detail.state);
  }

  update(state) {
    const chip = byId("status");
    chip.className = `chip ${state.status}`;
    chip.textContent = state.status === "open" ? "to review" : state.status;
    byId("untrusted").setAttribute("aria-pressed", String(state.untrusted));
    byId("undo").dataset.here = String(state.can_undo);
    for (const [region, item] of this.#items) {
      const answer = state.regions[region] ?? state.verdict;
      item.className = `issue ${answer === true ? "accepted" : answer === false ? "rejected" : "open"}`;
      item.querySelector(".yes").setAttribute("aria-pressed", String(answer === true));
      item.querySelector(".no").setAttribute("aria-pressed", String(answer === false));
    }
  }

  highlight(region) {
    for (const [number, item] of this.#items) item.classList.toggle("hover", number === region);
  }

  #item(issue) {
    const item = make("li", "issue");
    const what = make("button", "what");
    what.type = "button";
    what.title = "Show it";
    what.append(make("span", "kind", kindTitle(issue.kind)), ...this.#lines(issue));
    what.addEventListener("click", () => this.on.focus(issue));
    item.append(what);
    item.addEventListener("pointerenter", () => this.on.hover(issue.region));
    item.addEventListener("pointerleave", () => this.on.hover(0));
    if (issue.region > 0) {
      const judge = make("span", "judge");
      for (const [name, sign, accept, title] of [
        ["yes", "✓", true, "Accept this region"], ["no", "✕", false, "Reject this region"],
      ]) {
        const button = make("button", name, sign);
        button.type = "button";
        button.title = title;
        button.setAttribute("aria-label", `${title} (${kindTitle(issue.kind)}, region ${issue.region})`);
        button.addEventListener("click", () => this.on.judge(issue.region, accept));
        judge.append(button);
      }
      item.append(judge);
      this.#items.set(issue.region, item);
    }
    return item;
  }

  // From class to class, then size and certainty.
  #lines(issue) {
    const flow = make("span", "flow");
    const classes = [...new Set([issue.given, issue.suggested].filter(Boolean))];
    classes.forEach((name, i) => {
      const label = this.review.classes.indexOf(name);
      if (i) flow.append("→");
      const named = make("span", "named");
      if (label >= 0) named.append(swatch(this.review.colours[label]));
      named.append(name);
      flow.append(named);
    });
    const facts = [];
    if (issue.pixels) facts.push(`${issue.pixels.toLocaleString("en")} px`);
    if (issue.probability !== null) facts.push(`${Math.round(100 * issue.probability)} % sure`);
    const lines = classes.length ? [flow] : [];
    return facts.length ? [...lines, make("span", "facts-line", facts.join(" · "))] : lines;
  }
}

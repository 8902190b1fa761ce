"use strict";

// Text from run folders is only ever set as textContent: nothing here parses HTML.
function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function setUpTheme() {
  const button = document.getElementById("theme");
  const names = ["Auto", "Light", "Dark"];
  // Some browsers refuse storage on file:// pages; the toggle then simply forgets.
  const remembered = () => { try { return localStorage.getItem("jcas-theme"); } catch { return null; } };
  const remember = (name) => { try { localStorage.setItem("jcas-theme", name); } catch { return; } };
  const apply = (name) => {
    if (name === "Auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name.toLowerCase();
    button.textContent = name;
  };
  apply(names.includes(remembered()) ? remembered() : "Auto");
  button.addEventListener("click", () => {
    const next = names[(names.indexOf(button.textContent) + 1) % names.length];
    apply(next);
    remember(next);
  });
}

// Moving over a chart reads all its lines at the nearest epoch into the legend.
function setUpChart(figure) {
  const svg = figure.querySelector("svg");
  const cursor = svg.querySelector(".cursor");
  const outputs = figure.querySelectorAll(".legend output");
  const epoch = figure.querySelector(".epoch");
  const lines = JSON.parse(figure.dataset.series);
  const epochs = [...new Set(lines.flat().map(([x]) => x))].sort((a, b) => a - b);
  const { x0, x1, left, right } = Object.fromEntries(Object.entries(svg.dataset).map(([k, v]) => [k, Number(v)]));
  const format = (value) => Math.abs(value) >= 100 ? value.toFixed(1) : Number(value.toPrecision(4)).toString();
  const show = (x) => {
    epoch.textContent = figure.dataset.x + " " + x;
    lines.forEach((line, i) => {
      const point = line.find(([at]) => at === x);
      outputs[i].textContent = point && point[1] !== null ? format(point[1]) : "–";
    });
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const inside = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    const wanted = x0 + (inside - left) / (right - left) * (x1 - x0);
    const nearest = epochs.reduce((a, b) => Math.abs(b - wanted) < Math.abs(a - wanted) ? b : a);
    const at = left + (nearest - x0) / (x1 - x0) * (right - left);
    cursor.setAttribute("x1", at);
    cursor.setAttribute("x2", at);
    cursor.setAttribute("visibility", "visible");
    show(nearest);
  });
  svg.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    show(epochs[epochs.length - 1]);
  });
  show(epochs[epochs.length - 1]);
}

const LAYERS = {
  image: "Image", given: "Given", clean: "Truth", predicted: "Predicted", difference: "Difference", repaired: "Repaired",
  wrongness: "Wrongness",
};

function setUpGallery() {
  const holder = document.getElementById("gallery");
  if (!holder) return;
  const { runs, entries, together } = JSON.parse(document.getElementById("gallery-data").textContent);
  const blobs = document.getElementById("gallery-blobs").textContent.split("\n");
  const order = document.getElementById("order");
  const find = document.getElementById("find");
  const where = document.getElementById("where");
  const previous = document.getElementById("previous");
  const next = document.getElementById("next");
  const filters = { kind: document.getElementById("kind"), label: document.getElementById("label") };
  const state = { view: "all", page: 0 };
  const perPage = () => state.view === "all" ? 5 : 12;

  // A layer that all runs share is shown once; one that differs is shown once per run.
  const perRun = (entry, layer) => {
    const found = runs.map((run, i) => ({ run, layer, data: entry.runs[i] }));
    const has = found.filter(({ data }) => data && data[layer] !== undefined);
    const same = has.length > 0 && has.every(({ data }) => data[layer] === has[0].data[layer]);
    if (layer === "given" || layer === "clean") return same ? [{ layer, data: has[0].data }] : has;
    return found;
  };
  const panelsOf = (entry) => {
    const image = [{ layer: "image" }];
    if (state.view === "image") return image;
    if (state.view !== "all") return perRun(entry, state.view);
    return [...image, ...together.flatMap((layer) => perRun(entry, layer))];
  };

  const picture = (type, number, className) => {
    const image = make("img", className);
    image.alt = "";
    image.decoding = "async";
    image.src = "data:image/" + type + ";base64," + blobs[number];
    return image;
  };
  const panel = (entry, { layer, run, data }) => {
    const figure = make("figure", "panel");
    const stack = make("div", "stack");
    stack.style.aspectRatio = entry.size[0] + " / " + entry.size[1];
    const missing = layer !== "image" && (!data || data[layer] === undefined);
    if (missing) {
      stack.classList.add("empty");
      stack.textContent = "not there";
    } else {
      if (entry.image !== null) stack.append(picture("webp", entry.image));
      if (layer !== "image") stack.append(picture("png", data[layer], "over"));
    }
    const caption = make("figcaption");
    const title = make("span");
    if (run && runs.length > 1) {
      title.append(make("i", "swatch s" + run.colour), make("span", "", run.name));
    } else {
      title.textContent = LAYERS[layer];
    }
    caption.append(title);
    const score = { given: "givenJac", predicted: "jac", difference: "jac" }[layer];
    const jac = missing || !score ? undefined : data[score];
    if (typeof jac === "number") {
      const shown = make("span", "", "Jac ");
      shown.append(make("b", "", jac.toFixed(1)));
      caption.append(shown);
    }
    figure.append(stack, caption);
    return figure;
  };
  const card = (entry) => {
    const article = make("article", "entry card");
    const heading = make("h3", "", entry.id);
    if (entry.split) heading.append(make("span", "quiet", "  " + entry.split));
    const panels = make("div", "panels");
    const shown = panelsOf(entry);
    panels.style.setProperty("--panels", shown.length);
    panels.append(...shown.map((one) => panel(entry, one)));
    article.append(heading);
    if (entry.facts) article.append(make("p", "facts", entry.facts));
    article.append(panels);
    if (entry.findings && entry.findings.length) {
      const list = make("ul", "findings");
      for (const [kind, about] of entry.findings) {
        const item = make("li");
        item.append(make("b", "", kind), " " + about);
        list.append(item);
      }
      if (entry.more) list.append(make("li", "quiet", "and " + entry.more + " more"));
      article.append(list);
    }
    return { article, panels: shown.length };
  };

  const scores = (entry) => entry.runs.filter((data) => data && typeof data.jac === "number").map((data) => data.jac);
  const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;
  const keys = {
    wrong: (entry) => -entry.wrong,
    worst: (entry) => mean(scores(entry)),
    best: (entry) => -mean(scores(entry)),
    apart: (entry) => Math.min(...scores(entry)) - Math.max(...scores(entry)),
  };
  const chosen = () => {
    const text = find.value.trim().toLowerCase();
    const kind = filters.kind ? filters.kind.value : "";
    const label = filters.label ? filters.label.value : "";
    const found = entries.filter((entry) => (entry.id + "  " + (entry.split || "")).toLowerCase().includes(text)
      && (!kind || entry.kinds.includes(kind)) && (!label || entry.labels.includes(label)));
    const key = keys[order.value];
    if (!key) return found;
    const rank = (entry) => order.value === "wrong" || scores(entry).length ? key(entry) : Infinity; // unscored: last
    return found.map((entry) => [rank(entry), entry]).sort((a, b) => a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0).map(([, entry]) => entry);
  };
  // Only the current page is in the document, however many images the report holds.
  const draw = () => {
    const found = chosen();
    const size = perPage();
    const pages = Math.max(1, Math.ceil(found.length / size));
    state.page = Math.min(Math.max(state.page, 0), pages - 1);
    const start = state.page * size;
    const cards = found.slice(start, start + size).map(card);
    holder.style.setProperty("--panels", Math.max(1, ...cards.map(({ panels }) => panels)));
    holder.replaceChildren(...cards.map(({ article }) => article));
    if (!cards.length) holder.append(make("p", "note", "No such image."));
    where.textContent = found.length ? (start + 1) + "–" + (start + cards.length) + " of " + found.length : "0 images";
    previous.disabled = state.page === 0;
    next.disabled = state.page === pages - 1;
    document.querySelectorAll("[data-views]").forEach((legend) => {
      legend.hidden = !legend.dataset.views.split(" ").includes(state.view);
    });
  };
  const turn = (by) => {
    state.page += by;
    draw();
    document.getElementById("images").scrollIntoView();
  };
  const restart = () => { state.page = 0; draw(); };
  document.getElementById("view").addEventListener("change", (event) => {
    const first = state.page * perPage();
    state.view = event.target.value;
    state.page = Math.floor(first / perPage()); // stay at the same images
    draw();
  });
  document.getElementById("opacity").addEventListener("input", (event) => {
    document.documentElement.style.setProperty("--overlay", event.target.value / 100);
  });
  order.addEventListener("change", restart);
  find.addEventListener("input", restart);
  for (const filter of Object.values(filters)) if (filter) filter.addEventListener("change", restart);
  previous.addEventListener("click", () => turn(-1));
  next.addEventListener("click", () => turn(1));
  draw();
}

setUpTheme();
document.querySelectorAll(".chart").forEach(setUpChart);
setUpGallery();

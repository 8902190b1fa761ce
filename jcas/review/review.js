// The page: what is open, what the keys do, and one queue through which every decision goes to the server.
import * as api from "./api.js";
import { List } from "./list.js";
import { Panel, kindTitle, swatch } from "./panel.js";
import { Stage } from "./stage.js";

const byId = (id) => document.getElementById(id);
const SAID = {
  accept: "Repair accepted", reject: "Repair rejected", accept_region: "Region accepted",
  reject_region: "Region rejected", untrusted: "Marked untrusted", trusted: "Trusted again", undo: "Undone",
};

history.replaceState(null, "", location.pathname + location.hash); // the key now is a cookie: keep it off the screen

const review = await api.readReview().catch((error) => {
  say(error.message, true);
  throw error;
});
const images = new Map(review.images.map((image) => [image.number, image]));
const revisions = new Map(); // of each image, as this tab last saw it
let current = null; // number of the open image
let detail = null; // what the server knows of it; null while it loads
let opening = 0;
let lastActed = null;
let queue = Promise.resolve();
let waiting = 0;

const stage = new Stage(byId("canvas"), {
  region: (region, event) => region && judge(region, !event.shiftKey && answerOf(region) !== true),
  stroke: (patch, restore) => stroke(patch, restore),
  hover: (place) => hover(place),
  zoom: (scale) => { byId("zoom").textContent = `${Math.round(100 * scale)} %`; },
});
const list = new List(byId("rows"), byId("spacer"), review.created, (number) => open(number));
const panel = new Panel(review, {
  judge: (region, accept) => judge(region, accept),
  focus: (issue) => { stage.focus(issue.box); stage.highlight(issue.region); },
  hover: (region) => stage.highlight(region),
});

// --- opening and moving ---------------------------------------------------------------------------------------------

async function open(number) {
  if (stage.busy) return;
  const turn = ++opening;
  current = number;
  detail = null;
  list.select(number);
  history.replaceState(null, "", `#${number}`);
  try {
    await queue;
    const [known, layers, painted] = await Promise.all([
      api.readImage(number), api.readLayers(number), api.readPainted(number),
    ]);
    if (turn !== opening) return; // someone has moved on
    detail = known;
    byId("frame").dataset.open = String(number);
    stage.show(images.get(number), layers, painted, known.state);
    panel.show(images.get(number), known, list.place(number), list.shown.length);
    document.querySelector('[data-layer="wrongness"]').disabled = !known.wrongness;
    if (!known.wrongness && stage.layer === "wrongness") chooseLayer("result");
    learn(number, known.state);
    const next = list.step(number, 1);
    if (next !== null) api.readLayers(next).catch(() => {}); // only a head start; opening it reports errors
  } catch (error) {
    if (turn !== opening) return;
    stage.clear();
    say(error.message, true);
  }
}

function step(by) {
  const next = list.step(current, by);
  if (next !== null) open(next);
  else say(by > 0 ? "This is the last image." : "This is the first image.");
}

// --- deciding -------------------------------------------------------------------------------------------------------

const answerOf = (region) => detail?.state.regions[region] ?? detail?.state.verdict;

// Every change waits for the one before it, so that each knows the revision that it builds on.
function change(number, send, { restore, then } = {}) {
  waiting += 1;
  showSaved();
  queue = queue.then(async () => {
    const state = await send(revisions.get(number));
    if (number === current && detail) {
      detail.state = state;
      panel.update(state);
      stage.update(state);
    }
    learn(number, state);
    lastActed = number;
    await then?.(state);
  }).then(() => showSaved(-1), async (error) => {
    restore?.();
    if (error instanceof api.Stale) {
      showSaved(-1);
      say("Not saved: this image was changed in another tab. Its newest state is shown now.", true);
      if (number === current) await refresh();
    } else {
      showSaved(-1, true);
      say(`Not saved. ${error.message}`, true);
    }
  });
  return queue;
}

async function refresh() {
  const [known, layers, painted] = await Promise.all([
    api.readImage(current), api.readLayers(current), api.readPainted(current),
  ]);
  detail = known;
  stage.show(images.get(current), layers, painted, known.state);
  panel.update(known.state);
  learn(current, known.state);
}

function act(action, region) {
  const number = current;
  if (!detail) say("Still loading: nothing decided."); // nobody can judge what is not on the screen yet
  if (!detail || stage.busy) return;
  change(number, (revision) => api.decide(number, action, revision, region), {
    then: () => {
      say(SAID[action]);
      if (byId("advance").checked && (action === "accept" || action === "reject") && number === current) {
        setTimeout(() => number === current && list.step(number, 1) !== null && step(1));
      }
    },
  });
}

const judge = (region, accept) => act(accept ? "accept_region" : "reject_region", region);

function undo() {
  if (!detail || stage.busy) return;
  // After going on to the next image, undo means the decision just made.
  const number = !detail.state.can_undo && lastActed !== null ? lastActed : current;
  change(number, (revision) => api.decide(number, "undo", revision), {
    then: async () => {
      say(SAID.undo);
      if (number === current) await refresh();
      else setTimeout(() => open(number));
    },
  });
}

function stroke(patch, restore) {
  const number = current;
  change(number, (revision) => api.paint(number, revision, patch), { restore });
}

// The list and the progress follow a new state.
function learn(number, state) {
  revisions.set(number, state.revision);
  images.get(number).status = state.status;
  list.render();
  showProgress();
}

const isDone = (image) => image.status !== "open" && image.status !== "partly";

function showProgress() {
  const done = review.images.filter(isDone).length;
  byId("progress").textContent = `${done} of ${review.images.length} reviewed`;
  byId("progress-bar").max = review.images.length;
  byId("progress-bar").value = done;
}

function showSaved(by = 0, failed = false) {
  waiting += by;
  byId("saved").className = failed ? "failed" : "quiet";
  byId("saved").textContent = failed ? "Not saved" : waiting ? "Saving…" : "All saved";
}

let fading = 0;
function say(text, failed = false) {
  const notice = byId("notice");
  notice.textContent = text;
  notice.className = failed ? "notice failed" : "notice";
  notice.hidden = false;
  clearTimeout(fading);
  fading = setTimeout(() => { notice.hidden = true; }, failed ? 8000 : 1400);
}

// --- what lies under the pointer ------------------------------------------------------------------------------------

const nameOf = (label) => (label === review.ignore ? "ignored" : review.classes[label] ?? String(label));

function hover(place) {
  if (!place) {
    byId("pointer").textContent = "";
    panel.highlight(0);
    stage.highlight(0);
    return;
  }
  const [x, y] = place;
  const at = stage.labelsAt(x, y);
  const parts = [`${x}, ${y}`, `given ${nameOf(at.given)}`];
  if (at.region) parts.push(`suggested ${nameOf(at.repaired)}`);
  if (at.result !== at.given) parts.push(`result ${nameOf(at.result)}`);
  if (at.wrongness !== null) parts.push(`wrong ${Math.round(100 * at.wrongness)} %`);
  byId("pointer").textContent = parts.join("  ·  ");
  panel.highlight(stage.tool === "select" ? at.region : 0);
  stage.highlight(stage.tool === "select" ? at.region : 0);
}

// --- tools and layers -----------------------------------------------------------------------------------------------

function press(attribute, value) {
  for (const button of document.querySelectorAll(`[data-${attribute}]`)) {
    button.setAttribute("aria-pressed", String(button.dataset[attribute] === String(value)));
  }
}

function chooseTool(tool) {
  stage.tool = tool;
  press("tool", tool);
  stage.space = false;
  stage.draw();
}

function chooseClass(label) {
  stage.label = label;
  press("class", label);
  chooseTool("brush");
}

function chooseLayer(layer) {
  stage.layer = layer;
  press("layer", layer);
  byId("stripes").hidden = layer !== "difference";
  stage.compose();
}

function nextLayer() {
  const names = [...document.querySelectorAll("[data-layer]:enabled")].map((button) => button.dataset.layer);
  chooseLayer(names[(names.indexOf(stage.layer) + 1) % names.length]);
}

let hidden = null;
function toggleMask() {
  if (stage.layer === "none") chooseLayer(hidden ?? "result");
  else {
    hidden = stage.layer;
    chooseLayer("none");
  }
}

function chooseSize(size) {
  stage.size = Math.min(Math.max(Math.round(size), 1), 100);
  byId("size").value = stage.size;
  byId("size-value").textContent = stage.size;
  stage.draw();
}

function setUpTools() {
  stage.colour(review.colours, review.ignore);
  const labels = [...review.classes.keys()].slice(1).concat(0, review.ignore);
  byId("classes").append(...labels.map((label) => {
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.class = label;
    button.setAttribute("aria-pressed", String(label === stage.label));
    button.append(swatch(review.colours[label] ?? [255, 255, 255]), nameOf(label));
    if (label < 10) {
      const key = document.createElement("kbd");
      key.textContent = label;
      button.append(key);
    } else if (label === review.ignore) button.title = "Nobody can tell: these pixels take no part in training";
    button.addEventListener("click", () => chooseClass(label));
    return button;
  }));
  for (const button of document.querySelectorAll("[data-tool]")) {
    button.addEventListener("click", () => chooseTool(button.dataset.tool));
  }
  for (const button of document.querySelectorAll("[data-layer]")) {
    button.addEventListener("click", () => chooseLayer(button.dataset.layer));
  }
  byId("size").addEventListener("input", () => chooseSize(Number(byId("size").value)));
  byId("opacity").addEventListener("input", () => {
    stage.opacity = Number(byId("opacity").value) / 100;
    stage.draw();
  });
  byId("zoom-in").addEventListener("click", () => stage.zoom(1.4));
  byId("zoom-out").addEventListener("click", () => stage.zoom(1 / 1.4));
  byId("zoom-fit").addEventListener("click", () => stage.fit());
  byId("accept").addEventListener("click", () => act("accept"));
  byId("reject").addEventListener("click", () => act("reject"));
  byId("untrusted").addEventListener("click", () => act(detail?.state.untrusted ? "trusted" : "untrusted"));
  byId("undo").addEventListener("click", undo);
  byId("previous").addEventListener("click", () => step(-1));
  byId("next").addEventListener("click", () => step(1));
  byId("help-open").addEventListener("click", () => byId("help").showModal());
  byId("export-command").textContent = `jcas review ${shellQuoted(review.folder)} --export DIR`;
  // A clicked control must not keep the keys: Space would press it again, arrows would move its slider.
  document.addEventListener("click", (event) => event.detail && event.target.closest("button")?.blur());
  document.addEventListener("change", (event) => event.target.matches("select, input[type=range]") && event.target.blur());
}

const shellQuoted = (text) => (/^[\w./:@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

// --- filters --------------------------------------------------------------------------------------------------------

function filter() {
  const text = byId("search").value.trim().toLowerCase();
  const [name, kind, status] = ["filter-class", "filter-kind", "filter-status"].map((id) => byId(id).value);
  const shown = review.images.filter((image) =>
    (!text || image.id.toLowerCase().includes(text)) && (!name || image.classes.includes(name))
    && (!kind || image.kinds.includes(kind))
    && (!status || (status === "todo" ? !isDone(image) : status === "done" ? isDone(image) : image.status === status)));
  list.show(shown);
  byId("shown").textContent = `${shown.length} of ${review.images.length}`;
  if (shown.length && list.place(current) < 0) open(shown[0].number);
  else {
    list.select(current);
    const place = list.place(current);
    byId("position").textContent = place < 0 ? `not among the ${shown.length} shown` : `${place + 1} of ${shown.length}`;
  }
}

function setUpFilters() {
  const options = (id, values, title) => byId(id).append(...values.map((value) => new Option(title(value), value)));
  const counted = (key, value) => review.images.filter((image) => image[key].includes(value)).length;
  options("filter-class", review.classes.filter((name) => counted("classes", name)), (v) => `${v} (${counted("classes", v)})`);
  const kinds = [...new Set(review.images.flatMap((image) => image.kinds))].sort();
  options("filter-kind", kinds, (v) => `${kindTitle(v)} (${counted("kinds", v)})`);
  for (const id of ["filter-class", "filter-kind", "filter-status"]) byId(id).addEventListener("change", filter);
  byId("search").addEventListener("input", filter);
}

// --- keys -----------------------------------------------------------------------------------------------------------

const KEYS = {
  arrowright: () => step(1), arrowdown: () => step(1), arrowleft: () => step(-1), arrowup: () => step(-1),
  a: () => act("accept"), r: () => act("reject"), u: undo,
  i: () => act(detail?.state.untrusted ? "trusted" : "untrusted"),
  v: () => chooseTool("select"), b: () => chooseTool("brush"), e: () => chooseTool("eraser"),
  l: nextLayer, h: toggleMask, f: () => stage.fit(), c: () => { stage.peek = "repaired"; },
  "[": () => chooseSize(stage.size / 1.25 - 0.5), "]": () => chooseSize(stage.size * 1.25 + 0.5),
  "+": () => stage.zoom(1.4), "=": () => stage.zoom(1.4), "-": () => stage.zoom(1 / 1.4),
  "?": () => byId("help").showModal(),
};
const REPEATS = new Set(["arrowright", "arrowdown", "arrowleft", "arrowup", "[", "]", "+", "=", "-"]);

function setUpKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
    if (event.target.matches("input[type=search], select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.key === " ") {
      if (event.target.matches("button, input")) return;
      stage.space = true;
      event.preventDefault();
      return;
    }
    const key = event.key.toLowerCase();
    const isClass = /^[0-9]$/.test(key) && Number(key) < review.classes.length;
    if (!KEYS[key] && !isClass) return;
    event.preventDefault();
    if (event.repeat && !REPEATS.has(key)) return; // a key held too long must not decide twice
    if (isClass) chooseClass(Number(key));
    else KEYS[key]();
  });
  document.addEventListener("keyup", (event) => {
    if (event.key === " ") stage.space = false;
    if (event.key.toLowerCase() === "c") stage.peek = null;
  });
  addEventListener("blur", () => { stage.space = false; stage.peek = null; });
  addEventListener("beforeunload", (event) => { if (waiting || stage.busy) event.preventDefault(); });
}

// --- small settings that this browser remembers ---------------------------------------------------------------------

function setUpMemory() {
  const names = ["Auto", "Light", "Dark"];
  const theme = (name) => {
    if (name === "Auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name.toLowerCase();
    byId("theme").textContent = name;
    localStorage.setItem("jcas-theme", name);
  };
  theme(names.includes(localStorage.getItem("jcas-theme")) ? localStorage.getItem("jcas-theme") : "Auto");
  byId("theme").addEventListener("click", () => theme(names[(names.indexOf(byId("theme").textContent) + 1) % 3]));
  byId("advance").checked = localStorage.getItem("jcas-advance") === "yes";
  byId("advance").addEventListener("change", () => {
    localStorage.setItem("jcas-advance", byId("advance").checked ? "yes" : "no");
    byId("advance").blur();
  });
}

document.title = `${review.dataset} · jcas review`;
byId("dataset").textContent = review.dataset;
setUpMemory();
setUpTools();
setUpFilters();
setUpKeys();
showProgress();
showSaved();
const remembered = Number(location.hash.slice(1));
current = location.hash && images.has(remembered) ? remembered : review.images[0].number;
const first = current;
filter();
await open(first);
document.documentElement.dataset.ready = "yes";

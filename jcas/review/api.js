// Talks to the server. Layers that never change are kept for the images around the current one.

export class Stale extends Error {}

async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw new Error("The server does not answer. Is `jcas review` still running?");
  }
  if (answer.ok) return answer;
  let reason = `${answer.status} ${answer.statusText}`;
  try {
    const { detail } = await answer.json();
    if (typeof detail === "string") reason = detail;
  } catch { /* a refusal in plain text: the status line says enough */ }
  throw answer.status === 409 ? new Stale(reason) : new Error(reason);
}

const json = async (path, options) => (await ask(path, options)).json();

export const readReview = () => json("/api/review");
export const readImage = (number) => json(`/api/images/${number}`);
export const thumbnail = (number, created) =>
  `/api/images/${number}/thumbnail?${new URLSearchParams({ created })}`;

export function decide(number, action, revision, region) {
  const body = JSON.stringify(region === undefined ? { action, revision } : { action, revision, region });
  return json(`/api/images/${number}/decision`, {
    method: "POST", body, headers: { "content-type": "application/json" },
  });
}

export function paint(number, revision, { top, left, height, width, labels }) {
  const query = new URLSearchParams({ revision, top, left, height, width });
  return json(`/api/images/${number}/paint?${query}`, {
    method: "POST", body: labels, headers: { "content-type": "application/octet-stream" },
  });
}

async function bytes(number, layer) {
  const answer = await ask(`/api/images/${number}/${layer}`);
  return answer.status === 204 ? null : answer.arrayBuffer();
}

export async function readPainted(number) {
  const content = await bytes(number, "painted");
  return content && new Uint8Array(content);
}

const kept = new Map();
const MOST_KEPT = 6;

export function readLayers(number) {
  if (!kept.has(number)) {
    const reading = Promise.all([
      ask(`/api/images/${number}/picture`).then((answer) => answer.blob()).then((blob) => createImageBitmap(blob)),
      bytes(number, "given"), bytes(number, "repaired"), bytes(number, "regions"), bytes(number, "wrongness"),
    ]).then(([picture, given, repaired, regions, wrongness]) => ({
      picture,
      given: new Uint8Array(given),
      repaired: new Uint8Array(repaired),
      regions: new Uint16Array(regions), // little end first, as all machines with browsers are
      wrongness: wrongness && new Uint8Array(wrongness),
    }));
    reading.catch(() => kept.delete(number));
    kept.set(number, reading);
    for (const old of kept.keys()) {
      if (kept.size <= MOST_KEPT) break;
      kept.delete(old);
    }
  }
  return kept.get(number);
}

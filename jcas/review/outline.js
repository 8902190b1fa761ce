// Outlines of regions: the pixel edges between different region numbers, joined to runs, as paths in image units.

export function outlines(regions, width, height) {
  const edges = new Map(); // region -> flat list of x0, y0, x1, y1
  const add = (region, x0, y0, x1, y1) => {
    let list = edges.get(region);
    if (!list) edges.set(region, list = []);
    list.push(x0, y0, x1, y1);
  };
  const at = (x, y) => (x < 0 || y < 0 || x >= width || y >= height ? 0 : regions[y * width + x]);
  for (let y = 0; y <= height; y++) { // horizontal edges: above the pixels of row y
    for (const side of [0, -1]) {
      let run = 0, start = 0;
      for (let x = 0; x <= width; x++) {
        const here = x < width ? at(x, y + side) : 0;
        const region = here && here !== at(x, y - 1 - side) ? here : 0;
        if (region !== run) {
          if (run) add(run, start, y, x, y);
          run = region;
          start = x;
        }
      }
    }
  }
  for (let x = 0; x <= width; x++) { // vertical edges: left of the pixels of column x
    for (const side of [0, -1]) {
      let run = 0, start = 0;
      for (let y = 0; y <= height; y++) {
        const here = y < height ? at(x + side, y) : 0;
        const region = here && here !== at(x - 1 - side, y) ? here : 0;
        if (region !== run) {
          if (run) add(run, x, start, x, y);
          run = region;
          start = y;
        }
      }
    }
  }
  return edges;
}

export function pathOf(edges, chosen) {
  const path = new Path2D();
  for (const region of chosen) {
    const list = edges.get(region) ?? [];
    for (let i = 0; i < list.length; i += 4) {
      path.moveTo(list[i], list[i + 1]);
      path.lineTo(list[i + 2], list[i + 3]);
    }
  }
  return path;
}

// A sliding log: a dot for each unit at its age, from now on the right to the instant at which it
// leaves on the left.

import { svg } from "../dom.js";
import { duration, number } from "../format.js";

const [LEFT, RIGHT] = [16, 260];
const [TOP, BOTTOM] = [10, 62];
const RADIUS = 3.4;

export function draw(cell) {
  const x = (age) => RIGHT - (age / cell.window_ms) * (RIGHT - LEFT);
  return [
    svg("line", { class: "axis", x1: LEFT, x2: RIGHT, y1: BOTTOM, y2: BOTTOM }),
    svg("line", { class: "bound", x1: LEFT, x2: LEFT, y1: TOP, y2: BOTTOM + 5 }),
    svg("line", { class: "now", x1: RIGHT, x2: RIGHT, y1: TOP, y2: BOTTOM + 5 }),
    ...stack(cell.ages_ms.map(x)).map(([cx, cy]) => svg("circle", { class: "used", cx, cy, r: RADIUS })),
    svg("text", { x: LEFT, y: BOTTOM + 16, "text-anchor": "start" }, "leaves"),
    svg("text", { x: RIGHT, y: BOTTOM + 16, "text-anchor": "middle" }, "now"),
  ];
}

export function caption(cell) {
  const main = `${number(cell.used_units)} of ${number(cell.limit_units)} in the last ${duration(cell.window_ms)}`;
  const oldest = cell.ages_ms.at(-1);
  // Only the newest units have instants here.
  const knowsOldest = oldest !== undefined && cell.ages_ms.length === cell.used_units;
  return [main, knowsOldest ? `the oldest leaves in ${duration(cell.window_ms - oldest)}` : ""];
}

/** Places of dots: those that would overlap stand on one another. */
function stack(columns) {
  const heights = new Map();
  return columns.map((x) => {
    const column = Math.round(x / (2 * RADIUS));
    const height = heights.get(column) ?? 0;
    heights.set(column, height + 1);
    const y = BOTTOM - RADIUS - 1 - height * 2 * RADIUS;
    return [x, Math.max(TOP - 4, y)];
  });
}

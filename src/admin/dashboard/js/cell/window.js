// A fixed window: its count as a level, and the instant within it.

import { svg } from "../dom.js";
import { duration, number } from "../format.js";

const [TOP, BOTTOM] = [14, 66];
const [LEFT, RIGHT] = [62, 218];

export function draw(cell) {
  const share = cell.limit_units > 0 ? Math.min(1, cell.used_units / cell.limit_units) : 1;
  const level = BOTTOM - share * (BOTTOM - TOP);
  const runs = cell.window_ends_in_ms !== null;
  return [
    neighbour(LEFT - 46, LEFT),
    neighbour(RIGHT, RIGHT + 46),
    svg("rect", { class: "liquid", x: LEFT, y: level, width: RIGHT - LEFT, height: BOTTOM - level }),
    svg("rect", { class: runs ? "frame" : "empty", x: LEFT, y: TOP, width: RIGHT - LEFT, height: BOTTOM - TOP }),
    svg("line", { class: "bound", x1: LEFT, x2: RIGHT, y1: TOP, y2: TOP }),
    ...(runs ? now(cell) : []),
  ];
}

export function caption(cell) {
  const main = `${number(cell.used_units)} of ${number(cell.limit_units)} used`;
  return cell.window_ends_in_ms === null
    ? [main, "the next request starts a window"]
    : [main, `all return in ${duration(cell.window_ends_in_ms)}`];
}

function neighbour(from, to) {
  return svg("line", { class: "axis", x1: from, x2: to, y1: BOTTOM, y2: BOTTOM });
}

function now(cell) {
  const passed = 1 - Math.min(1, Math.max(0, cell.window_ends_in_ms / cell.window_ms));
  const x = LEFT + passed * (RIGHT - LEFT);
  return [
    svg("line", { class: "now", x1: x, x2: x, y1: TOP - 6, y2: BOTTOM + 5 }),
    svg("text", { x, y: BOTTOM + 15, "text-anchor": "middle" }, "now"),
  ];
}

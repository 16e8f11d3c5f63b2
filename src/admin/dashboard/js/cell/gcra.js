// GCRA: time from now to the theoretical arrival time (TAT), a block for each unit. The outlined
// block is the next request: it is refused if it would end beyond the bound.

import { svg } from "../dom.js";
import { duration, number } from "../format.js";

const [LEFT, RIGHT] = [20, 262];
const [TOP, BOTTOM] = [34, 62];
const MOST_BLOCKS = 60;

export function draw(cell) {
  const longest = Math.max(cell.tau_ms + cell.interval_ms, 1);
  const x = (ms) => LEFT + (Math.min(ms, longest) / longest) * (RIGHT - LEFT);
  const tat = cell.tat_in_ms;
  const fits = tat + cell.interval_ms <= cell.tau_ms + 0.01;
  return [
    ...blocks(cell, x),
    rectangle(fits ? "empty" : "bound", x(tat), x(tat + cell.interval_ms)),
    svg("line", { class: "axis", x1: LEFT, x2: RIGHT, y1: BOTTOM, y2: BOTTOM }),
    svg("line", { class: "now", x1: LEFT, x2: LEFT, y1: TOP - 8, y2: BOTTOM + 5 }),
    svg("line", { class: "bound", x1: x(cell.tau_ms), x2: x(cell.tau_ms), y1: TOP - 3, y2: BOTTOM + 5 }),
    svg("text", { x: LEFT, y: BOTTOM + 16, "text-anchor": "middle" }, "now"),
    svg("text", { x: x(cell.tau_ms), y: BOTTOM + 16, "text-anchor": "middle" }, "bound"),
    tat > 0 ? svg("text", { class: "strong", x: x(tat), y: TOP - 6, "text-anchor": "middle" }, "TAT") : null,
  ];
}

export function caption(cell) {
  const main = `TAT ${duration(cell.tat_in_ms)} ahead`;
  const bound = `refused beyond ${duration(cell.tau_ms)}`;
  return [main, `a unit adds ${duration(cell.interval_ms)}, time takes it back; ${bound} (burst ${number(cell.burst_units)})`];
}

function blocks(cell, x) {
  const units = cell.interval_ms > 0 ? cell.tat_in_ms / cell.interval_ms : 0;
  if (units > MOST_BLOCKS) {
    return [rectangle("used", x(0), x(cell.tat_in_ms))];
  }
  return Array.from({ length: Math.ceil(units - 1e-9) }, (_, place) => {
    const end = cell.tat_in_ms - place * cell.interval_ms;
    return rectangle("used", x(Math.max(0, end - cell.interval_ms)), x(end));
  });
}

function rectangle(name, from, to) {
  const gap = to - from > 4 ? 0.75 : 0;
  const width = Math.max(0.5, to - from - 2 * gap);
  return svg("rect", { class: name, x: from + gap, y: TOP, width, height: BOTTOM - TOP });
}

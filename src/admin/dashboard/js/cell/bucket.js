// A token bucket: tokens as a liquid, the next refill as a drop that falls.

import { svg } from "../dom.js";
import { duration, number } from "../format.js";

const TOP = 14;
const BOTTOM = 78;
const [LEFT, RIGHT, SLANT] = [30, 250, 14];
/** More marks than these would touch. */
const MOST_MARKS = 20;

export function draw(cell) {
  const share = cell.capacity > 0 ? Math.min(1, Math.max(0, cell.tokens / cell.capacity)) : 0;
  const surface = height(share);
  return [
    svg("path", { class: "liquid", d: outline(surface) }),
    ...marks(cell.capacity),
    svg("path", { class: "outline", d: walls() }),
    drop(cell, surface),
  ];
}

export function caption(cell) {
  const main = `${number(cell.tokens, cell.capacity < 100 ? 1 : 0)} of ${number(cell.capacity)} tokens`;
  if (cell.next_refill_in_ms === null) {
    return [main, "full"];
  }
  const units = cell.refill === "stepped" ? `${number(cell.refill_units)} more` : "the next";
  return [main, `${units} in ${duration(cell.next_refill_in_ms)}`];
}

function height(share) {
  return BOTTOM - share * (BOTTOM - TOP);
}

function inset(y) {
  return (SLANT * (y - TOP)) / (BOTTOM - TOP);
}

function outline(surface) {
  const [left, right] = [LEFT + inset(surface), RIGHT - inset(surface)];
  return `M${left} ${surface}L${LEFT + SLANT} ${BOTTOM}H${RIGHT - SLANT}L${right} ${surface}Z`;
}

function walls() {
  return `M${LEFT} ${TOP}L${LEFT + SLANT} ${BOTTOM}H${RIGHT - SLANT}L${RIGHT} ${TOP}`;
}

function marks(capacity) {
  if (capacity > MOST_MARKS) {
    return [];
  }
  return Array.from({ length: Math.max(0, capacity - 1) }, (_, place) => {
    const y = height((place + 1) / capacity);
    const x = LEFT + inset(y);
    return svg("line", { class: "axis", x1: x, x2: x + 8, y1: y, y2: y });
  });
}

function drop(cell, surface) {
  if (cell.next_refill_in_ms === null || !cell.refill_every_ms) {
    return null;
  }
  const fallen = 1 - Math.min(1, cell.next_refill_in_ms / cell.refill_every_ms);
  const size = cell.refill === "stepped" && cell.refill_units > 1 ? 5 : 3.5;
  return svg("circle", { class: "used", cx: 140, cy: 4 + fallen * (surface - 8), r: size });
}

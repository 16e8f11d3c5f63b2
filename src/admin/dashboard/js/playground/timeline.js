// The timelines and their axis. A lane's requests are squares above the middle line if they go on, and
// crosses below it if they are limited; under them is the used share of the quota.

import { usedShare } from "../cell/advance.js";
import { svg } from "../dom.js";
import { number } from "../format.js";
import { cellAt, isForwarded } from "./moment.js";

/** The shown time in milliseconds. */
const SPAN = 30_000;
/** The share of the width behind which the playhead does not go. */
const AHEAD = 0.9;
/** The least distance of labels, in CSS pixels as all others. */
const LABEL = 56;

/** Heights from the top. */
const MIDDLE = 52;
const BELOW = 88;
const LEVEL_TOP = 96;
const BOTTOM = 125.5;

/** The size of a request, the place that it takes, and its shapes. */
const SIZE = 5;
const PLACE = SIZE + 1;
const SQUARE = "h5v5h-5Z";
const CROSS = "l5 5m-5 0l5 -5";
/** The distance at which the level is sampled. */
const SAMPLE = 2;

/** The shown part of time in a picture of this width: places of instants, and instants to label. */
export function viewAt(playhead, width) {
  const start = Math.max(0, playhead - SPAN * AHEAD);
  const scale = width / SPAN;
  const step = [1_000, 2_000, 5_000].find((one) => one * scale >= LABEL) ?? 10_000;
  const labels = [];
  for (let at = Math.ceil(start / step) * step; at <= start + SPAN; at += step) {
    labels.push(at);
  }
  return { width, labels, x: (at) => (at - start) * scale, at: (x) => start + x / scale };
}

/** Draws the axis above all lanes. */
export function drawAxis(node, { width, labels, x }) {
  const anchor = (place) => (place < 12 ? "start" : place > width - 12 ? "end" : "middle");
  const text = (at) => svg("text", { x: x(at), y: 13, "text-anchor": anchor(x(at)) }, `${number(at / 1_000)}\u00a0s`);
  node.replaceChildren(...labels.map(text));
}

/** Draws a lane until the playhead. It may lack while nothing is decided. */
export function drawTimeline(node, lane, view, { playhead, client }) {
  const { width, labels, x } = view;
  const across = (name, y) => svg("line", { class: name, x1: 0, x2: width, y1: y, y2: y });
  const down = (name, place) => svg("line", { class: name, x1: place, x2: place, y1: 0, y2: BOTTOM });
  const now = x(playhead);
  node.replaceChildren(
    ...labels.map((at) => down("line", Math.round(x(at)) + 0.5)),
    across("axis", MIDDLE + 0.5),
    across("axis full", LEVEL_TOP + 0.5),
    across("axis", BOTTOM),
    ...(lane ? [level(lane, client, view, Math.min(width, now)), ...requests(lane, client, view, playhead)] : []),
    down("now", Math.round(now) + 0.5),
  );
}

function level(lane, client, { at }, until) {
  let outline = `M0 ${BOTTOM}`;
  for (let x = 0; x < until; x += SAMPLE) {
    const cell = cellAt(lane, client, at(x + SAMPLE));
    const height = cell ? usedShare(cell) * (BOTTOM - LEVEL_TOP) : 0;
    outline += `V${(BOTTOM - height).toFixed(1)}H${Math.min(until, x + SAMPLE)}`;
  }
  return svg("path", { class: "pale", d: `${outline}V${BOTTOM}Z` });
}

/** A path for each decision, paler for other clients. */
function requests(lane, client, { width, x }, playhead) {
  const [heights, paths] = [new Map(), new Map()];
  for (const decision of lane.decisions) {
    const { at_ms: at, delay_ms: delay = null, key } = decision;
    const column = Math.round(x(at) / PLACE);
    if (at > playhead || x(at) < -SIZE || x(at) > width) {
      continue;
    }
    const word = !isForwarded(decision) ? "limited" : delay === null ? "allowed" : "delayed";
    const stack = `${column} ${word === "limited"}`;
    const height = heights.get(stack) ?? 0;
    heights.set(stack, height + 1);
    const name = key === client ? word : `${word} other`;
    const goesOn = word === "delayed" && at + delay <= playhead ? triangle(x(at + delay)) : "";
    paths.set(name, (paths.get(name) ?? "") + mark(word, column * PLACE, height) + goesOn);
  }
  return Array.from(paths, ([name, d]) => svg("path", { class: name, d }));
}

/** A square, or a cross, so that colour is not all that tells a refusal. */
function mark(word, x, height) {
  return word === "limited"
    ? `M${x} ${Math.min(BELOW - SIZE, MIDDLE + 2 + height * PLACE)}${CROSS}`
    : `M${x} ${Math.max(0, MIDDLE - (height + 1) * PLACE)}${SQUARE}`;
}

/** A mark at the middle line when a delayed request goes on. */
function triangle(x) {
  return `M${(x - 3.5).toFixed(1)} ${MIDDLE + 8}h7l-3.5 -7Z`;
}

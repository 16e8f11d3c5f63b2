// The timeline of one lane, on a canvas: above the middle line requests that go on, below it those
// that are limited, a square for each; under them the used share of the quota.

import { usedShare } from "../cell/advance.js";
import { cellAt, isForwarded } from "./moment.js";
import { instantOf, labels, placeOf } from "./view.js";

/** Heights in CSS pixels, from the top. */
const MIDDLE = 52;
const BELOW = 88;
const LEVEL_TOP = 96;
export const HEIGHT = 126;

const SQUARE = 5;
/** The distance at which the level is sampled, in CSS pixels. */
const SAMPLE = 2;

/** Draws a lane. `colours` are those of the page, `lane` may lack while nothing is decided. */
export function drawTimeline(canvas, lane, { span, playhead, client, colours }) {
  const { context, width } = prepare(canvas);
  drawGrid(context, span, width, colours);
  if (lane) {
    drawLevel(context, lane, { span, playhead, client, colours, width });
    drawRequests(context, lane, { span, playhead, client, colours, width });
  }
  drawPlayhead(context, placeOf(playhead, span, width), colours);
}

/** A cleared context in CSS pixels, at the resolution of the screen. */
function prepare(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const [wide, high] = [Math.round(width * ratio), Math.round(HEIGHT * ratio)];
  if (canvas.width !== wide || canvas.height !== high) {
    Object.assign(canvas, { width: wide, height: high });
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, HEIGHT);
  return { context, width };
}

function drawGrid(context, span, width, colours) {
  context.fillStyle = colours.rule;
  for (const at of labels(span, width)) {
    context.fillRect(Math.round(placeOf(at, span, width)), 0, 1, HEIGHT);
  }
  context.fillStyle = colours["rule-strong"];
  context.fillRect(0, MIDDLE, width, 1);
  // The level of a used up quota.
  for (let x = 0; x < width; x += 6) {
    context.fillRect(x, LEVEL_TOP, 3, 1);
  }
  context.fillRect(0, HEIGHT - 1, width, 1);
}

function drawLevel(context, lane, { span, playhead, client, colours, width }) {
  const until = Math.min(width, placeOf(playhead, span, width));
  const height = HEIGHT - 1 - LEVEL_TOP;
  context.fillStyle = colours["allowed-tint"];
  for (let x = 0; x < until; x += SAMPLE) {
    const cell = cellAt(lane, client, instantOf(x + SAMPLE, span, width));
    const level = cell ? usedShare(cell) * height : 0;
    context.fillRect(x, HEIGHT - 1 - level, Math.min(SAMPLE, until - x), level);
  }
}

function drawRequests(context, lane, { span, playhead, client, colours, width }) {
  const columns = new Map();
  for (const decision of lane.decisions) {
    const x = placeOf(decision.at_ms, span, width);
    if (decision.at_ms > playhead || x < -SQUARE || x > width) {
      continue;
    }
    const column = Math.round(x / (SQUARE + 1));
    const heights = columns.get(column) ?? { above: 0, below: 0 };
    columns.set(column, heights);
    context.globalAlpha = decision.key === client ? 1 : 0.35;
    drawDecision(context, decision, column * (SQUARE + 1), heights, colours);
    if (decision.decision === "delayed") {
      drawDeparture(context, decision, { span, playhead, width, colours });
    }
  }
  context.globalAlpha = 1;
}

function drawDecision(context, decision, x, heights, colours) {
  if (isForwarded(decision)) {
    const y = Math.max(0, MIDDLE - (heights.above + 1) * (SQUARE + 1));
    heights.above += 1;
    context.fillStyle = decision.decision === "delayed" ? colours.delayed : colours.allowed;
    context.fillRect(x, y, SQUARE, SQUARE);
    return;
  }
  const y = Math.min(BELOW - SQUARE, MIDDLE + 2 + heights.below * (SQUARE + 1));
  heights.below += 1;
  cross(context, x, y, colours.limited);
}

/** A cross, so that colour is not all that tells a refusal. */
function cross(context, x, y, colour) {
  context.strokeStyle = colour;
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x + SQUARE, y + SQUARE);
  context.moveTo(x + SQUARE, y);
  context.lineTo(x, y + SQUARE);
  context.stroke();
}

/** A mark at the middle line when a delayed request goes on. */
function drawDeparture(context, decision, { span, playhead, width, colours }) {
  const at = decision.at_ms + decision.delay_ms;
  if (at > playhead) {
    return;
  }
  const x = placeOf(at, span, width);
  context.fillStyle = colours.delayed;
  context.beginPath();
  context.moveTo(x - 3.5, MIDDLE + 8);
  context.lineTo(x + 3.5, MIDDLE + 8);
  context.lineTo(x, MIDDLE + 1);
  context.fill();
}

function drawPlayhead(context, x, colours) {
  context.fillStyle = colours.ink;
  context.fillRect(Math.round(x), 0, 1, HEIGHT);
}

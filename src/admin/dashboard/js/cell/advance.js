// A cell later on: what becomes of a bucket by time alone. The server decides; this lets a drawing
// run on until the next decision shows the real cell again.

/** The cell `ms` milliseconds later, if no request comes. `fresh` is the cell of a new client. */
export function advance(cell, ms, fresh = null) {
  const rule = RULES[cell.algorithm];
  return rule && ms > 0 ? rule(cell, ms, fresh) : cell;
}

/** The used share of the quota, from 0 to 1. */
export function usedShare(cell) {
  const [used, limit] = USE[cell.algorithm](cell);
  return limit > 0 ? Math.min(1, Math.max(0, used / limit)) : 1;
}

const USE = {
  gcra: (cell) => [cell.tat_in_ms, cell.tau_ms],
  token_bucket: (cell) => [cell.capacity - cell.tokens, cell.capacity],
  leaky_bucket: (cell) => [cell.queue_units, cell.capacity_units],
  fixed_window: (cell) => [cell.used_units, cell.limit_units],
  sliding_window: (cell) => [weighted(cell), cell.limit_units],
  sliding_log: (cell) => [cell.used_units, cell.limit_units],
  concurrency: (cell) => [cell.in_use_units, cell.max_units],
};

const RULES = {
  gcra: (cell, ms) => ({ ...cell, tat_in_ms: Math.max(0, cell.tat_in_ms - ms) }),
  token_bucket: (cell, ms) => (cell.refill === "stepped" ? refillInSteps(cell, ms) : refill(cell, ms)),
  leaky_bucket: leak,
  fixed_window: endWindow,
  sliding_window: slide,
  sliding_log: forget,
  // Requests in flight end by themselves: time tells nothing.
  concurrency: (cell) => cell,
};

function refill(cell, ms) {
  const every = cell.refill_every_ms;
  if (!every) {
    return cell;
  }
  const tokens = Math.min(cell.capacity, cell.tokens + ms / every);
  const missing = (cell.capacity - tokens) * every;
  return { ...cell, tokens, next_refill_in_ms: missing > 0 ? missing % every || every : null };
}

function refillInSteps(cell, ms) {
  const next = cell.next_refill_in_ms;
  if (next === null) {
    return cell;
  }
  const steps = ms < next ? 0 : 1 + Math.floor((ms - next) / cell.refill_every_ms);
  const tokens = Math.min(cell.capacity, cell.tokens + steps * cell.refill_units);
  const left = next + steps * cell.refill_every_ms - ms;
  return { ...cell, tokens, next_refill_in_ms: tokens < cell.capacity ? left : null };
}

function leak(cell, ms) {
  const empty = Math.max(0, cell.empty_in_ms - ms);
  const units = cell.interval_ms ? empty / cell.interval_ms : 0;
  return { ...cell, empty_in_ms: empty, queue_units: units };
}

function endWindow(cell, ms, fresh) {
  if (cell.window_ends_in_ms === null) {
    return cell;
  }
  const left = cell.window_ends_in_ms - ms;
  if (left > 0) {
    return { ...cell, window_ends_in_ms: left };
  }
  // Windows that start with a request do not follow one another.
  const follows = fresh !== null && fresh.window_ends_in_ms !== null;
  const next = cell.window_ms - (-left % cell.window_ms);
  return { ...cell, used_units: 0, window_ends_in_ms: follows ? next : null };
}

function slide(cell, ms) {
  const elapsed = cell.part_elapsed_ms + ms;
  const passed = Math.floor(elapsed / cell.part_ms);
  const kept = cell.counts.slice(passed);
  const counts = [...kept, ...new Array(cell.counts.length - kept.length).fill(0)];
  const later = { ...cell, counts, part_elapsed_ms: elapsed - passed * cell.part_ms };
  // A speck of a unit is an error of floating point.
  return { ...later, used_units: Math.min(cell.limit_units, Math.ceil(weighted(later) - 1e-6)) };
}

/** The units that count: the oldest part by its weight, the others whole. */
function weighted(cell) {
  const [oldest, ...others] = cell.counts;
  return oldest * oldestWeight(cell) + others.reduce((sum, units) => sum + units, 0);
}

/** The weight of the oldest part, from 0 to 1. */
export function oldestWeight(cell) {
  switch (cell.oldest) {
    case "whole":
      return 1;
    case "ignored":
      return 0;
    default:
      return 1 - cell.part_elapsed_ms / cell.part_ms;
  }
}

function forget(cell, ms) {
  const ages = cell.ages_ms.map((age) => age + ms).filter((age) => age < cell.window_ms);
  const left = cell.ages_ms.length - ages.length;
  return { ...cell, ages_ms: ages, used_units: Math.max(0, cell.used_units - left) };
}

/** The time that a leaky bucket's next request waits, and the number of units in line before it. */
export function lineOf({ empty_in_ms: empty, interval_ms: interval, delay_after_units: passing }) {
  const next = Math.max(0, empty - passing * interval);
  return { next, waiting: interval > 0 ? Math.max(0, Math.ceil((next - 0.01) / interval) - 1) : 0 };
}

// What a bucket holds in a few words, and what becomes of it.

import { duration, number } from "../format.js";
import { lineOf, oldestWeight } from "./advance.js";

/** By algorithm, from a cell to two texts: the number that matters, and more. */
export const CAPTIONS = {
  token_bucket({ tokens, capacity, refill, refill_units: units, next_refill_in_ms: next }) {
    const main = `${number(tokens, capacity < 100 ? 1 : 0)} of ${number(capacity)} tokens`;
    const what = refill === "stepped" ? `${number(units)} more` : "the next";
    return [main, next === null ? "full" : `${what} in ${duration(next)}`];
  },
  gcra({ tat_in_ms: tat, tau_ms: tau, interval_ms: interval, burst_units: burst }) {
    const bound = `refused beyond ${duration(tau)} (burst ${number(burst)})`;
    return [`TAT ${duration(tat)} ahead`, `a unit adds ${duration(interval)}, time takes it back; ${bound}`];
  },
  leaky_bucket(cell) {
    const { waiting, next } = lineOf(cell);
    const wait = next > 0 ? `the next waits ${duration(next)}` : "the next goes on at once";
    return [`${number(waiting)} in line`, `${wait}, one leaves every ${duration(cell.interval_ms)}`];
  },
  fixed_window(cell) {
    const ends = cell.window_ends_in_ms;
    return [used(cell), ends === null ? "the next request starts a window" : `all return in ${duration(ends)}`];
  },
  sliding_window(cell) {
    const parts = cell.counts.length - 1;
    const what = parts > 1 ? `${number(parts)} parts of ${duration(cell.part_ms)}` : "two counters";
    return [used(cell), `${what}, the oldest counts ${Math.round(oldestWeight(cell) * 100)}\u00a0%`];
  },
  sliding_log({ used_units: units, limit_units: limit, window_ms: window, ages_ms: ages }) {
    const main = `${number(units)} of ${number(limit)} in the last ${duration(window)}`;
    // Only the newest units have instants here.
    const knowsOldest = ages.length > 0 && ages.length === units;
    return [main, knowsOldest ? `the oldest leaves in ${duration(window - ages.at(-1))}` : ""];
  },
  concurrency({ in_use_units: units, max_units: most, waiting_requests: waiting, queue_requests: queue }) {
    const line = `${number(waiting)} of ${number(queue)} waiting`;
    const more = queue > 0 ? line : "each returns when its response has ended";
    return [`${number(units)} of ${number(most)} in flight`, more];
  },
};

function used({ used_units: units, limit_units: limit }) {
  return `${number(units)} of ${number(limit)} used`;
}

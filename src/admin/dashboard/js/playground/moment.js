// A lane at one instant: the cell of a client, and figures of its decisions.

import { advance } from "../cell/advance.js";

/** The decisions about each client, in order; made once for each answer of the server. */
const BY_CLIENT = new WeakMap();

function decisionsAbout(lane, client) {
  if (!BY_CLIENT.has(lane)) {
    BY_CLIENT.set(lane, Map.groupBy(lane.decisions, (decision) => decision.key));
  }
  return BY_CLIENT.get(lane).get(client) ?? [];
}

/** The last decision about `client` at or before `now`. */
export function lastDecision(lane, client, now) {
  const decisions = decisionsAbout(lane, client);
  let [low, high] = [0, decisions.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    [low, high] = decisions[middle].at_ms <= now ? [middle + 1, high] : [low, middle];
  }
  return low > 0 ? decisions[low - 1] : null;
}

/** The cell of `client` at `now`; null if the server no longer tells it. */
export function cellAt(lane, client, now) {
  const last = lastDecision(lane, client, now);
  if (!last) {
    return advance(lane.new_cell, now, lane.new_cell);
  }
  if (!last.cell) {
    return null;
  }
  const cell = advance(last.cell, now - last.at_ms, lane.new_cell);
  return cell.algorithm === "concurrency" ? withEnded(lane, client, now, last, cell) : cell;
}

/** Units of requests that have ended since the cell was told. */
function withEnded(lane, client, now, last, cell) {
  const ended = decisionsAbout(lane, client).filter((decision) => {
    const end = decision.at_ms + decision.for_ms;
    const wasInFlight = decision.at_ms <= last.at_ms && end > last.at_ms;
    return isForwarded(decision) && wasInFlight && end <= now;
  });
  const units = ended.reduce((sum, decision) => sum + decision.cost, 0);
  return { ...cell, in_use_units: Math.max(0, cell.in_use_units - units) };
}

/** True for a decision that lets its request go on, at once or later. */
export function isForwarded(decision) {
  return decision.decision !== "limited";
}

/** How often each decision was made until `now`. */
export function tally(lane, now) {
  const counts = { allowed: 0, delayed: 0, limited: 0 };
  for (const decision of lane.decisions) {
    if (decision.at_ms <= now) {
      counts[decision.decision === "overflowed" ? "allowed" : decision.decision] += 1;
    }
  }
  return counts;
}

/** The most units of one client that went on within any span of `window` milliseconds. */
export function mostWithin(lane, window, now) {
  const forwarded = lane.decisions.filter(isForwarded);
  const passed = forwarded.map(({ key, cost, at_ms: at, delay_ms: delay = 0 }) => ({ key, cost, at: at + delay }));
  const clients = Map.groupBy(passed.filter(({ at }) => at <= now), ({ key }) => key);
  return Math.max(0, ...[...clients.values()].map((units) => mostOf(units, window)));
}

function mostOf(passed, window) {
  passed.sort((left, right) => left.at - right.at);
  let [most, sum, first] = [0, 0, 0];
  for (const { at, cost } of passed) {
    sum += cost;
    while (passed[first].at <= at - window) {
      sum -= passed[first].cost;
      first += 1;
    }
    most = Math.max(most, sum);
  }
  return most;
}

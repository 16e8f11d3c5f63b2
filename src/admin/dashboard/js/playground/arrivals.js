// Arrivals in the form of the API: runs of equal gaps are one entry.

/** The time in milliseconds for which a request is in flight; as the server has it. */
export const DURATION = 1_000;

/** The longest time in milliseconds, 366 days; as the server has it. */
export const MOST_TIME = 31_622_400_000;

/** The most arrivals that a page keeps. */
export const MOST_ARRIVALS = 2_000;

/** Entries for these arrivals, which are in the order of their times. */
export function compact(arrivals) {
  const runs = [];
  for (const arrival of arrivals) {
    const run = runs.at(-1);
    if (run && continues(run, arrival)) {
      run.every_ms = arrival.at - run.last;
      run.last = arrival.at;
      run.count += 1;
    } else {
      runs.push(newRun(arrival));
    }
  }
  return runs.map(withoutDefaults);
}

/** What the server takes for granted is left out: bodies are bounded. */
function withoutDefaults({ at_ms, count, every_ms, key, cost, for_ms }) {
  const entry = { at_ms, key };
  if (count > 1) {
    Object.assign(entry, { count, every_ms });
  }
  if (cost !== 1) {
    entry.cost = cost;
  }
  if (for_ms !== DURATION) {
    entry.for_ms = for_ms;
  }
  return entry;
}

function newRun({ at, key, cost, lasts }) {
  return { at_ms: at, count: 1, every_ms: 0, key, cost, for_ms: lasts, last: at };
}

function continues(run, arrival) {
  const isSame = run.key === arrival.key && run.cost === arrival.cost && run.for_ms === arrival.lasts;
  return isSame && (run.count === 1 || arrival.at - run.last === run.every_ms);
}

/** The arrivals of such entries. Entries that are none are left out. */
export function expand(entries) {
  const arrivals = [];
  for (const entry of entries) {
    const at = Math.round(Number(entry.at_ms));
    const count = Math.min(Number(entry.count ?? 1), MOST_ARRIVALS - arrivals.length);
    const gap = Math.round(Number(entry.every_ms ?? 0));
    for (let place = 0; at >= 0 && gap >= 0 && place < count; place += 1) {
      const { key = "a", cost = 1, for_ms: lasts = DURATION } = entry;
      arrivals.push({ at: at + place * gap, key: String(key), cost: Number(cost), lasts: Number(lasts) });
    }
  }
  return arrivals.sort((left, right) => left.at - right.at);
}

/** Inserts an arrival behind those of the same instant; its place. */
export function insert(arrivals, arrival) {
  let place = arrivals.length;
  while (place > 0 && arrivals[place - 1].at > arrival.at) {
    place -= 1;
  }
  arrivals.splice(place, 0, arrival);
  return place;
}

// Arrivals in the form of the API: an entry for one request, or for several at equal distances.

/** The most arrivals that a page keeps. */
export const MOST_ARRIVALS = 2_000;

/** The longest time in milliseconds, 366 days; as the server has it. */
export const MOST_TIME = 31_622_400_000;

/** The number of arrivals. */
export function countOf(entries) {
  return entries.reduce((sum, { count = 1 }) => sum + count, 0);
}

/** The instant of an entry's last arrival. */
export function lastOf({ at_ms: first, count = 1, every_ms: gap = 0 }) {
  return first + (count - 1) * gap;
}

/** The entries with an arrival more. As bodies are bounded, it prolongs the last entry if it continues it. */
export function withArrival(entries, at, client) {
  const last = entries.at(-1);
  const { at_ms: first, count = 1, every_ms: gap = at - first, ...others } = last ?? {};
  const continues = others.key === client && Object.keys(others).length === 1 && at === first + count * gap;
  return continues && gap >= 0
    ? entries.with(-1, { at_ms: first, key: client, count: count + 1, every_ms: gap })
    : [...entries, { at_ms: at, key: client }];
}

/** True for entries that a page can show, and the server takes. */
export function areArrivals(entries) {
  const isWhole = (value) => Number.isInteger(value) && value >= 0;
  const isEntry = (entry) => {
    const { at_ms: first, count = 1, every_ms: gap = 0 } = entry;
    return [first, count, gap].every(isWhole) && lastOf(entry) <= MOST_TIME;
  };
  return entries.every(isEntry) && countOf(entries) <= MOST_ARRIVALS;
}

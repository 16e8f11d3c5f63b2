// The span of time that the lanes show, and the place of instants in it.

/** The shown time in milliseconds. */
const SPAN = 30_000;
/** The share of the width behind which the playhead does not go. */
const AHEAD = 0.9;

/** The shown part of time for a playhead. */
export function spanAt(playhead) {
  const start = Math.max(0, playhead - SPAN * AHEAD);
  return { start, end: start + SPAN };
}

/** The place of an instant in a picture of this width. */
export function placeOf(at, { start, end }, width) {
  return ((at - start) / (end - start)) * width;
}

/** The instant at a place. */
export function instantOf(x, { start, end }, width) {
  return start + (x / width) * (end - start);
}

/** Instants to label, at a pleasant distance. */
export function labels({ start, end }, width) {
  const fewest = ((end - start) / width) * 56;
  const step = [1_000, 2_000, 5_000, 10_000].find((one) => one >= fewest) ?? 10_000;
  const first = Math.ceil(start / step) * step;
  const instants = [];
  for (let at = first; at <= end; at += step) {
    instants.push(at);
  }
  return instants;
}

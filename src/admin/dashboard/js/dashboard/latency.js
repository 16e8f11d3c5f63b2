// Requests and their times, from the histogram in /metrics: what was answered between two scrapes.

const BUCKET = /^sluicegate_http_request_duration_seconds_bucket\{(.*)\} (\S+)$/;

export class Latency {
  /** Requests a second, and quantiles in milliseconds, over `seconds`; null before two scrapes. */
  figures = null;

  #before = null;

  async ask() {
    try {
      const response = await fetch("/metrics", { cache: "no-store", credentials: "omit" });
      const now = { at: performance.now(), buckets: read(await response.text()) };
      if (this.#before) {
        this.figures = compare(this.#before, now);
      }
      this.#before = now;
    } catch {
      this.figures = null;
    }
  }
}

/** Cumulative counts by upper bound in seconds, of all routes. */
function read(text) {
  const buckets = new Map();
  for (const line of text.split("\n")) {
    const [, labels, value] = BUCKET.exec(line) ?? [];
    const bound = labels && /le="([^"]*)"/.exec(labels)?.[1];
    if (bound) {
      const limit = bound === "+Inf" ? Infinity : Number(bound);
      buckets.set(limit, (buckets.get(limit) ?? 0) + Number(value));
    }
  }
  return [...buckets].sort(([left], [right]) => left - right);
}

function compare(before, now) {
  const earlier = new Map(before.buckets);
  const counts = now.buckets.map(([bound, count]) => [bound, Math.max(0, count - (earlier.get(bound) ?? 0))]);
  const seconds = (now.at - before.at) / 1_000;
  const total = counts.at(-1)?.[1] ?? 0;
  return { seconds, perSecond: total / seconds, p50: quantile(counts, 0.5), p99: quantile(counts, 0.99) };
}

/** A quantile in milliseconds, by a straight line within its bucket; null without requests. */
function quantile(counts, share) {
  const wanted = (counts.at(-1)?.[1] ?? 0) * share;
  if (wanted === 0) {
    return null;
  }
  let [lower, below] = [0, 0];
  for (const [bound, count] of counts) {
    if (count >= wanted) {
      const within = count > below ? (wanted - below) / (count - below) : 1;
      return (bound === Infinity ? lower : lower + (bound - lower) * within) * 1_000;
    }
    [lower, below] = [bound, count];
  }
  return lower * 1_000;
}

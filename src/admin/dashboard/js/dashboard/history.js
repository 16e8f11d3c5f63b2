// Counts of decisions over the last minutes, and the rates between them.

/** Samples that are kept: five minutes of one a second, and one to begin with. */
const MOST = 301;

/** The decisions that charts show, from below upwards. */
export const SHOWN = ["allowed", "delayed", "limited", "shadowed"];

export class History {
  #samples = [];

  /** Adds the counts of all policies at an instant in milliseconds. */
  add(at, policies) {
    const counts = new Map(policies.map((policy) => [policy.name, shownCounts(policy.decisions)]));
    this.#samples.push({ at, counts });
    if (this.#samples.length > MOST) {
      this.#samples.shift();
    }
  }

  /** Rates a second of a policy, or of all together: one for each pair of samples, oldest first. */
  rates(policy = null) {
    const pairs = this.#samples.slice(1).map((sample, place) => [this.#samples[place], sample]);
    return pairs.map(([before, after]) => ({ at: after.at, ...between(before, after, policy) }));
  }

  /** Mean rates a second over the last `span` milliseconds. */
  recent(span, policy = null) {
    const last = this.#samples.at(-1);
    const first = this.#samples.find((sample) => sample.at >= last.at - span);
    return last && first !== last ? between(first, last, policy) : zero();
  }
}

/** Overflowed and tagged requests went on: they count as allowed. */
function shownCounts({ allowed, overflowed, tagged, delayed, limited, shadowed }) {
  return { allowed: allowed + overflowed + tagged, delayed, limited, shadowed };
}

function zero() {
  return Object.fromEntries(SHOWN.map((decision) => [decision, 0]));
}

function between(before, after, policy) {
  const seconds = Math.max(0.001, (after.at - before.at) / 1_000);
  const rates = zero();
  const names = policy === null ? [...after.counts.keys()] : [policy];
  for (const name of names) {
    const [from, to] = [before.counts.get(name), after.counts.get(name)];
    for (const decision of from && to ? SHOWN : []) {
      // A count that falls began anew with a reload.
      rates[decision] += Math.max(0, to[decision] - from[decision]) / seconds;
    }
  }
  return rates;
}

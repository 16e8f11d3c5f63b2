// Rates of decisions over the last minutes, one sample a second.

/** The time of the samples that are kept, in milliseconds. */
const KEPT = 300_000;
/** The longest time over which counts tell what the rate is now, in milliseconds. */
const LONGEST = 30_000;

/** The decisions that charts show, from below upwards. */
export const SHOWN = ["allowed", "delayed", "limited", "shadowed"];

export class History {
  #samples = [];
  /** The counts of policies since the start, and the rates between the last two answers that have them. */
  #counts = null;
  #counted = new Map();

  /** Adds a message of /v1/live, which came at an instant in milliseconds. */
  add(at, { requests_per_s: requests, decisions, policies, policies_omitted: omitted }) {
    const named = new Map(policies.map((policy) => [policy.name, shownRates(policy)]));
    this.#samples.push({ at, requests, all: shownRates(decisions), named, others: omitted > 0 ? this.#counted : null });
    this.#samples = this.#samples.filter((sample) => sample.at > at - KEPT);
  }

  /** Adds an answer of /v1/policies: messages have the busiest policies only. */
  addCounts(at, policies) {
    const counts = new Map(policies.map(({ name, decisions }) => [name, shownRates(decisions)]));
    const before = at - (this.#counts?.at ?? -Infinity) <= LONGEST ? this.#counts.counts : new Map();
    const seconds = (at - this.#counts?.at) / 1_000;
    this.#counted = new Map();
    for (const [name, now] of counts) {
      const rates = SHOWN.map((decision) => [decision, (now[decision] - before.get(name)?.[decision]) / seconds]);
      // Counts that fall began anew with a reload.
      if (rates.every(([, rate]) => rate >= 0)) {
        this.#counted.set(name, Object.fromEntries(rates));
      }
    }
    this.#counts = { at, counts };
  }

  /** Rates a second of a policy, or of all together, oldest first; null where they are unknown. */
  rates(policy = null) {
    return this.#samples.map((sample) => ({ at: sample.at, ...ratesOf(sample, policy) }));
  }

  /** Mean rates a second over the last `span` milliseconds; null if they are unknown. */
  recent(span, policy = null) {
    const samples = this.#recent(span);
    return Object.fromEntries(SHOWN.map((decision) => [decision, mean(samples.map((sample) => ratesOf(sample, policy)[decision]))]));
  }

  /** Mean requests a second over the last `span` milliseconds. */
  requests(span) {
    return mean(this.#recent(span).map(({ requests }) => requests));
  }

  #recent(span) {
    const last = this.#samples.at(-1);
    return this.#samples.filter(({ at }) => at > last.at - span);
  }
}

/** A policy that decided nothing is not in the message, nor one of many that decide less than others. */
function ratesOf({ all, named, others }, policy) {
  if (policy === null) {
    return all;
  }
  return named.get(policy) ?? (others ? (others.get(policy) ?? alike(null)) : alike(0));
}

/** Overflowed and tagged requests went on: they count as allowed. */
function shownRates({ allowed, overflowed, tagged, delayed, limited, shadowed }) {
  return { allowed: allowed + overflowed + tagged, delayed, limited, shadowed };
}

function alike(rate) {
  return Object.fromEntries(SHOWN.map((decision) => [decision, rate]));
}

function mean(numbers) {
  const known = numbers.filter((number) => number !== null);
  return known.length ? known.reduce((sum, number) => sum + number, 0) / known.length : null;
}

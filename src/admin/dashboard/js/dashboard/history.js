// Rates of decisions over the last minutes, one sample a second.

/** The time of the samples that are kept, in milliseconds. */
const KEPT = 300_000;
/** The longest time over which counts tell what the rate is now, in milliseconds. */
const LONGEST = 30_000;

/** All decisions, as charts stack them from below upwards: first what passes, then what is refused. */
export const SHOWN = ["exempt", "allowed", "overflowed", "tagged", "routed", "shadowed", "delayed", "limited", "error"];

export class History {
  #samples = [];
  /** The counts of policies since the start, and the rates between the last two answers that have them. */
  #counts = null;
  #counted = new Map();

  /** Adds a message of /v1/live, which came at an instant in milliseconds. */
  add(at, { requests_per_s: requests, errors_per_s: errors, decisions, policies, policies_omitted: omitted }) {
    const named = new Map(policies.map((policy) => [policy.name, policy]));
    this.#push({ at, requests, errors, all: decisions, named, others: omitted > 0 ? this.#counted : null });
  }

  /** Adds an answer of /v1/policies: messages have the busiest policies only. Without messages its rates are a sample. */
  addCounts(at, policies, isSample = false) {
    const counts = new Map(policies.map(({ name, decisions }) => [name, decisions]));
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
    if (isSample && this.#counted.size > 0) {
      const rates = [...this.#counted.values()];
      const all = perDecision((decision) => rates.reduce((sum, rate) => sum + rate[decision], 0));
      this.#push({ at, requests: null, errors: null, all, named: this.#counted, others: this.#counted });
    }
  }

  /** Rates a second of a policy, or of all together, oldest first; null where they are unknown. */
  rates(policy = null) {
    return this.#samples.map((sample) => ({ ...ratesOf(sample, policy), at: sample.at }));
  }

  /** Mean rates a second over the last `span` milliseconds; null if they are unknown. */
  recent(span, policy = null) {
    const samples = this.#recent(span);
    return perDecision((decision) => mean(samples.map((sample) => ratesOf(sample, policy)[decision])));
  }

  /** Mean requests a second over the last `span` milliseconds. */
  requests(span) {
    return mean(this.#recent(span).map(({ requests }) => requests));
  }

  /** Mean responses with a status of 500 and above a second over the last `span` milliseconds. */
  errors(span) {
    return mean(this.#recent(span).map(({ errors }) => errors));
  }

  #push(sample) {
    this.#samples = [...this.#samples.filter(({ at }) => at > sample.at - KEPT), sample];
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
  return named.get(policy) ?? (others ? (others.get(policy) ?? perDecision(() => null)) : perDecision(() => 0));
}

/** A number for each decision. */
export function perDecision(number) {
  return Object.fromEntries(SHOWN.map((decision) => [decision, number(decision)]));
}

function mean(numbers) {
  const known = numbers.filter((number) => number !== null);
  return known.length ? known.reduce((sum, number) => sum + number, 0) / known.length : null;
}

// Rates of decisions over the last minutes, one sample a second.

/** Samples that are kept: five minutes. */
const MOST = 300;

/** The decisions that charts show, from below upwards. */
export const SHOWN = ["allowed", "delayed", "limited", "shadowed"];

export class History {
  #samples = [];

  /** Adds a message of /v1/live, which came at an instant in milliseconds. */
  add(at, { requests_per_s: requests, decisions, policies }) {
    const named = new Map(policies.map((policy) => [policy.name, shownRates(policy)]));
    this.#samples.push({ at, requests, all: shownRates(decisions), named });
    if (this.#samples.length > MOST) {
      this.#samples.shift();
    }
  }

  /** Rates a second of a policy, or of all together, oldest first. */
  rates(policy = null) {
    return this.#samples.map((sample) => ({ at: sample.at, ...ratesOf(sample, policy) }));
  }

  /** Mean rates a second over the last `span` milliseconds. */
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

/** A policy that decided nothing is not in the message. */
function ratesOf({ all, named }, policy) {
  return policy === null ? all : (named.get(policy) ?? zero());
}

/** Overflowed and tagged requests went on: they count as allowed. */
function shownRates({ allowed, overflowed, tagged, delayed, limited, shadowed }) {
  return { allowed: allowed + overflowed + tagged, delayed, limited, shadowed };
}

function zero() {
  return Object.fromEntries(SHOWN.map((decision) => [decision, 0]));
}

function mean(numbers) {
  return numbers.length ? numbers.reduce((sum, number) => sum + number, 0) / numbers.length : 0;
}

// The algorithms: what they are good for, and the settings that a lane offers.

/** The most policies that the server compares at once. */
export const MOST_POLICIES = 8;

/** The quota that all lanes start with. */
const QUOTA = "10/10s";

/** Settings by their keys: the label, and the width of an input or the choices. */
export const SETTINGS = {
  quota: { label: "Quota", width: 9 },
  burst: { label: "Burst", width: 6, isOptional: true },
  queue: { label: "Queue", width: 6 },
  delay_after: { label: "Delay after", width: 6, isOptional: true },
  start: { label: "Starts", isOptional: true, choices: ["clock", "first_request"] },
  precision: { label: "Parts", width: 6, isOptional: true },
  oldest: { label: "Oldest part", isOptional: true, choices: ["weighted", "whole", "ignored"] },
  max: { label: "At most", width: 6 },
};

/** Each algorithm with its trade-off in a line, its settings, and the values it starts with beside a quota. */
export const ALGORITHMS = {
  token_bucket: {
    title: "Token bucket",
    tradeoff: "A burst up to the bucket’s size passes at once, then one request for each token that comes back.",
    settings: ["quota", "burst"],
  },
  gcra: {
    title: "GCRA",
    tradeoff: "The token bucket as one instant: no window edges, and waits that are exact. The default.",
    settings: ["quota", "burst"],
  },
  leaky_bucket: {
    title: "Leaky bucket",
    tradeoff: "Delays instead of refusing: the upstream sees an even stream, and clients wait in line.",
    settings: ["quota", "queue", "delay_after"],
    start: { queue: 5 },
  },
  fixed_window: {
    title: "Fixed window",
    tradeoff: "Easy to explain, but twice the limit can pass around an edge, and everyone returns at one instant.",
    settings: ["quota", "start"],
  },
  sliding_window: {
    title: "Sliding window",
    tradeoff: "Nearly exact with a few counters: assumes that the oldest part’s requests came evenly.",
    settings: ["quota", "precision", "oldest"],
  },
  sliding_log: {
    title: "Sliding log",
    tradeoff: "Exact in every window, and never early. Remembers each request: memory grows with the limit.",
    settings: ["quota"],
  },
  concurrency: {
    title: "Concurrency",
    tradeoff: "No rate: counts requests in flight. Nobody can know when a place comes free.",
    settings: ["max"],
    start: { max: 3 },
  },
};

/** The algorithm of a policy, which may be the default. */
export function algorithmOf({ algorithm = "gcra" }) {
  return algorithm;
}

/** A policy with this algorithm. It has the name of `other`, and the settings that both understand. */
export function newPolicy(algorithm, other = {}) {
  const { settings, start } = ALGORITHMS[algorithm];
  const kept = Object.entries({ quota: QUOTA, ...start, ...other }).filter(([key]) => settings.includes(key));
  return { name: other.name ?? algorithm.replaceAll("_", "-"), algorithm, ...Object.fromEntries(kept) };
}

/** The policies of a first visit: all algorithms that limit a rate. */
export function startPolicies() {
  const algorithms = Object.keys(ALGORITHMS).filter((algorithm) => algorithm !== "concurrency");
  return algorithms.map((algorithm) => newPolicy(algorithm));
}

/** The policy under a name that no other has. */
export function withFreeName(policy, policies) {
  const isTaken = (name) => policies.some((other) => other.name === name);
  let { name } = policy;
  for (let number = 2; isTaken(name); number += 1) {
    name = `${policy.name}-${number}`;
  }
  return { ...policy, name };
}

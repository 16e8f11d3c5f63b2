// The algorithms: what they are good for, and the settings that a lane offers.

/** The most policies that the server compares at once. */
export const MOST_POLICIES = 8;

const quota = { key: "quota", label: "Quota", hint: "units / window", width: 9 };

/** Each algorithm with its trade-off in a line, its settings, and the values it starts with. */
export const ALGORITHMS = {
  token_bucket: {
    title: "Token bucket",
    tradeoff: "A burst up to the bucket’s size passes at once, then one request for each token that comes back.",
    settings: [quota, { key: "burst", label: "Burst", hint: "units", width: 6, optional: true }],
    start: {},
  },
  gcra: {
    title: "GCRA",
    tradeoff: "The token bucket as one instant: no window edges, and waits that are exact. The default.",
    settings: [quota, { key: "burst", label: "Burst", hint: "units", width: 6, optional: true }],
    start: {},
  },
  leaky_bucket: {
    title: "Leaky bucket",
    tradeoff: "Delays instead of refusing: the upstream sees an even stream, and clients wait in line.",
    settings: [
      quota,
      { key: "queue", label: "Queue", hint: "places", width: 6 },
      { key: "delay_after", label: "Delay after", hint: "units", width: 6, optional: true },
    ],
    start: { queue: 5 },
  },
  fixed_window: {
    title: "Fixed window",
    tradeoff: "Easy to explain, but twice the limit can pass around an edge, and everyone returns at one instant.",
    settings: [
      quota,
      { key: "start", label: "Starts", optional: true, choices: ["clock", "first_request"] },
    ],
    start: {},
  },
  sliding_window: {
    title: "Sliding window",
    tradeoff: "Nearly exact with a few counters: assumes that the oldest part’s requests came evenly.",
    settings: [
      quota,
      { key: "precision", label: "Parts", hint: "1 to 3600", width: 6, optional: true },
      { key: "oldest", label: "Oldest part", optional: true, choices: ["weighted", "whole", "ignored"] },
    ],
    start: {},
  },
  sliding_log: {
    title: "Sliding log",
    tradeoff: "Exact in every window, and never early. Remembers each request: memory grows with the limit.",
    settings: [quota],
    start: {},
  },
  concurrency: {
    title: "Concurrency",
    tradeoff: "No rate: counts requests in flight. Nobody can know when a place comes free.",
    settings: [{ key: "max", label: "At most", hint: "in flight", width: 6 }],
    start: { max: 3 },
  },
};

/** The quota that all lanes start with. */
export const QUOTA = "10/10s";

/** The settings of a new policy. */
export function newPolicy(algorithm, name = algorithm.replaceAll("_", "-")) {
  const takesQuota = ALGORITHMS[algorithm].settings.some((setting) => setting.key === "quota");
  return { name, algorithm, ...(takesQuota ? { quota: QUOTA } : {}), ...ALGORITHMS[algorithm].start };
}

/** The policies of a first visit: all algorithms that limit a rate. */
export function startPolicies() {
  return Object.keys(ALGORITHMS)
    .filter((algorithm) => algorithm !== "concurrency")
    .map((algorithm) => newPolicy(algorithm));
}

/** The same policy under another algorithm; what both understand is kept. */
export function withAlgorithm(policy, algorithm) {
  const fresh = newPolicy(algorithm, policy.name);
  const known = ALGORITHMS[algorithm].settings.map((setting) => setting.key);
  const kept = Object.entries(policy).filter(([key]) => known.includes(key));
  return { ...fresh, ...Object.fromEntries(kept) };
}

/** A name that no other policy has. */
export function freeName(policies, wanted) {
  const taken = new Set(policies.map((policy) => policy.name));
  let name = wanted;
  for (let number = 2; taken.has(name); number += 1) {
    name = `${wanted}-${number}`;
  }
  return name;
}

/** The window of a quota such as `10/10s`, in milliseconds; null if it is not one. */
export function windowOf(text) {
  const match = /^\d+\s*\/\s*(?:(\d+)\s*)?(ms|s|m|h|d)$/.exec(String(text ?? "").trim());
  const units = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
  return match ? Number(match[1] ?? 1) * units[match[2]] : null;
}

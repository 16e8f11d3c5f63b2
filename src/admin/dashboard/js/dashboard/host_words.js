// The states of an upstream's address, in words.

const REASONS = {
  connect_failure: "it accepts no connections",
  consecutive_failures: "too many requests in a row failed",
  failure_rate: "too large a part of its requests failed",
  stalled: "it answered no request, while others did",
  probation: "its first request after an ejection failed",
};

/** Each state as the rest of a sentence, and by itself. */
const STATES = {
  available: ["answers again", "available"],
  ejected: ["is ejected: *", "ejected: *"],
  unhealthy: ["fails its health checks and gets no requests", "unhealthy: it fails its health checks"],
  failing: ["fails and stays in use: *", "failing, and in use: *"],
  probation: ["is tried again on probation: its first failure ejects it again", "on probation: back from an ejection, no good answer so far"],
  draining: ["drains: it gets no new requests", "draining"],
};

/** What the address does now, as the rest of a sentence. */
export function hostWords(state, reason) {
  return (STATES[state]?.[0] ?? `is ${state}`).replace("*", REASONS[reason] ?? reason);
}

/** The state, and what it means. */
export function stateWords(state, reason) {
  return (STATES[state]?.[1] ?? state).replace("*", REASONS[reason] ?? reason);
}

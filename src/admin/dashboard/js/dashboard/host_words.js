// The states of an upstream's address, in words.

const REASONS = {
  connect_failure: "it accepts no connections",
  consecutive_failures: "too many requests in a row failed",
  failure_rate: "too large a part of its requests failed",
  stalled: "it answered no request, while others did",
  probation: "its first request after an ejection failed",
};

/** What the address does now, as the rest of a sentence. */
export function hostWords(state, reason) {
  switch (state) {
    case "available":
      return "answers again";
    case "ejected":
      return `is ejected: ${REASONS[reason] ?? reason}`;
    case "unhealthy":
      return "fails its health checks and gets no requests";
    case "failing":
      return `fails and stays in use: ${REASONS[reason] ?? reason}`;
    case "probation":
      return "is tried again on probation: its first failure ejects it again";
    case "draining":
      return "drains: it gets no new requests";
    default:
      return `is ${state}`;
  }
}

/** The state in a word, and what it means. */
export function stateWords(state, reason) {
  switch (state) {
    case "ejected":
      return `ejected: ${REASONS[reason] ?? reason}`;
    case "unhealthy":
      return "unhealthy: it fails its health checks";
    case "failing":
      return `failing, and in use: ${REASONS[reason] ?? reason}`;
    case "probation":
      return "on probation: back from an ejection, no good answer so far";
    default:
      return state;
  }
}

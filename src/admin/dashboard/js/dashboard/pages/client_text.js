// The state of a key in words. The explanation for a support ticket does not hold the key.

import { amount, duration, quotaText, units } from "../../format.js";
import { visible } from "../../visible.js";

/** The state of a key in plain sentences. */
export function explain(state, { parts }) {
  const lines = [
    `Policy ${state.policy} allows ${quotaText(state.quota, state.unit)} ${bucketText(parts)} (${state.algorithm.replaceAll("_", " ")}).`,
    `The client ${state.key_id} has used ${amount(state.used, state.unit)} of ${units(state.limit, state.unit)}: ${verdict(state)}.`,
    state.reset_s > 0 && state.algorithm !== "concurrency" && `Without further requests, all is available again in ${duration(state.reset_s * 1_000)}.`,
    state.override && `Its own quota applies: ${state.override}.`,
    state.debt > 0 && `It owes ${units(state.debt, state.unit)} beyond the limit.`,
    state.granted && `An operator has granted ${units(state.granted.of_units, state.unit)}, of which ${amount(state.granted.units, state.unit)} are left, until ${state.granted.until}.`,
    state.ban && `It is banned until ${state.ban.until}${state.ban.reason && `: ${state.ban.reason}`}.`,
    `As of ${new Date().toISOString().replace(/\.\d+Z$/, "Z")}.`,
  ];
  return lines.filter(Boolean).join("\n").replaceAll("\u00a0", " ").replaceAll("\u202f", "");
}

/** A key as the API writes it. Parts that clients lack are in parentheses. */
export function keyText(key) {
  return [key].flat().map(shownPart).join(", ") || "every client";
}

/** Whose a key is: the name or else the address of its client, or its id in logs. The key is a secret. */
export function ownerText({ key_id: id, client, address }) {
  const who = client ?? address;
  return who ? visible(who) : (id ?? "a client");
}

/** The clients that share a bucket, by the parts of their key. */
export function bucketText(parts) {
  const named = parts.filter((part) => part !== "constant");
  return named.length ? `for each ${named.join(" and ")}` : "for all clients together";
}

/** A part of a key, a text, another part that replaces it, or null, as people should see it. */
export function shownPart(part) {
  if (part === null) {
    return "(missing)";
  }
  return typeof part === "string" ? visible(part) : Object.entries(part).map(([name, value]) => `(${name}) ${visible(value)}`).join(" ");
}

/** True if the next request is refused, or would be in the mode given. */
export function isRefused(state, mode = state.mode) {
  return !state.allowed && !mayWait(state) && mode === "enforce";
}

/** True if the next request waits until one in flight ends. */
function mayWait({ algorithm, ban, cell }) {
  return algorithm === "concurrency" && !ban && cell.waiting_requests < cell.queue_requests;
}

/** Only a bucket in which time returns units knows how long. */
function waitText({ algorithm, ban }, wait) {
  return algorithm === "concurrency" && !ban ? ` until a request ends; clients are told to wait ${wait}` : `, for ${wait} more`;
}

/** What becomes of the next request. */
export function verdict(state) {
  if (state.exempt) {
    return "exempt: this policy does not limit it";
  }
  if (state.allowed) {
    return "a request of one unit is allowed";
  }
  if (mayWait(state)) {
    return "a request waits until another ends";
  }
  const retry = state.retry_after_s;
  const limited = retry === null ? "limited" : `limited${waitText(state, duration(retry * 1_000))}`;
  return state.mode === "enforce" ? limited : `allowed, since the mode is ${state.mode}; else ${limited}`;
}

/** The operator of a ban or a grant, and the reason. */
export function byText({ actor, reason }) {
  return `${actor ? ` by ${actor}` : ""}${reason && `: ${reason}`}`;
}

// The state of a key in words. The explanation for a support ticket does not hold the key.

import { amount, count, duration, minuteAgo, number, quotaText, units } from "../../format.js";
import { visible } from "../../visible.js";

/** The state of a key in plain sentences. */
export function explain(state, { parts }, changes) {
  const lines = [
    `Policy ${state.policy} allows ${quotaText(state.quota, state.unit)} ${bucketText(parts)} (${state.algorithm.replaceAll("_", " ")}).`,
    `Refused requests of the client ${state.key_id}: ${refusedText(state, (seconds) => `${new Date(Date.now() - seconds * 1_000).toISOString().slice(0, 16)}Z`)}.`,
    `It has used ${amount(state.used, state.unit)} of ${units(state.limit, state.unit)} at this instant; its next request: ${verdict(state)}.`,
    state.reset_s > 0 && state.algorithm !== "concurrency" && `Without further requests, all is available again in ${duration(state.reset_s * 1_000)}.`,
    state.override && `Its own quota applies: ${state.override}.`,
    ...changes.map(([, text]) => `The quota was changed: ${text}.`),
    state.debt > 0 && `It owes ${units(state.debt, state.unit)} beyond the limit.`,
    state.granted && `An operator has granted ${units(state.granted.of_units, state.unit)}, of which ${amount(state.granted.units, state.unit)} are left, until ${state.granted.until}.`,
    state.ban && `It is banned until ${state.ban.until}${state.ban.reason && `: ${state.ban.reason}`}.`,
    `As of ${new Date().toISOString().replace(/\.\d+Z$/, "Z")}.`,
  ];
  return lines.filter(Boolean).join("\n").replaceAll("\u00a0", " ").replaceAll("\u202f", "");
}

/** The refused requests of the last minutes, since when, and what the quota allows in that time. */
export function refusedText({ limited, unit, limit, quota_per_s: perSecond }, ago = minuteAgo) {
  const { requests, error_bound: error, first_s: first, counted_s: seconds } = limited;
  if (requests === 0) {
    return `none in the last ${counted(limited)}`;
  }
  const allowed = perSecond === null ? "" : `; the quota allows about ${units(Math.max(limit, Math.round(perSecond * seconds)), unit)} in that time`;
  return `${count(requests, "request")}${error > 0 ? ` ± ${number(error)}` : ""} in the last ${counted(limited)}, since ${ago(first)}${allowed}`;
}

/** The time over which refusals were counted. */
export function counted({ counted_s: seconds }) {
  const step = seconds < 60 ? 1 : seconds < 300 ? 10 : 60;
  return duration(Math.floor(seconds / step) * step * 1_000);
}

/** A key as the API writes it. Parts that clients lack are in parentheses. */
export function keyText(key) {
  return [key].flat().map(shownPart).join(", ") || "every client";
}

/** The owner of a key: the name or else the address of its client, or its id in logs. The key is a secret. */
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
  return typeof part === "string" ? visible(part) : Object.entries(part).map(([name, value]) => (name === "client" ? "" : `(${name}) `) + visible(value)).join(" ");
}

/** True if anything is known of the key: a bucket, a ban, a grant, or refusals. */
export function isStored({ stored, others = [], limited }) {
  return stored || others.length > 0 || limited.requests > 0;
}

/** The seconds for which a quota is used up, or since the last refusal, that are not momentary. */
const [LASTING, RECENT] = [10, 60];

/** True if the policy limits the key, or did lately: not just at this instant. */
export function isLimited(state) {
  return state.limited.requests > 0 || isLasting(state);
}

/** True if requests are refused from now on for longer than an instant. */
export function isLasting(state) {
  return state.mode === "enforce" && !state.allowed && !mayWait(state) && state.retry_after_s > LASTING;
}

/** True if refusals have ended. */
export function isOver({ limited: { last_s: last }, ...state }) {
  return last !== null && (last > RECENT || state.mode !== "enforce") && !isLasting(state);
}

/** Orders states that limit: bans, then the most refusals, then those that have ended. */
export function limitRank(state) {
  const { requests } = state.limited;
  return (state.ban ? 2 : 0) + requests / (requests + 1) - (isOver(state) ? 1 : 0);
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
    return "allowed";
  }
  if (mayWait(state)) {
    return "waits until another request ends";
  }
  const retry = state.retry_after_s;
  const word = state.ban ? "banned" : "limited";
  const limited = retry === null ? word : `${word}${waitText(state, duration(retry * 1_000))}`;
  return state.mode === "enforce" ? limited : `allowed, since the mode is ${state.mode}; else ${limited}`;
}

/** The operator of a ban or a grant, and the reason. */
export function byText({ actor, reason }) {
  return `${actor ? ` by ${actor}` : ""}${reason && `: ${reason}`}`;
}

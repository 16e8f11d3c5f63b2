// Keys and their states in words.

import { count, duration, minuteAgo, number, units } from "../../format.js";
import { visible } from "../../visible.js";

/** The refused requests of the last minutes, since when, and what the quota allows in that time. */
export function refusedText({ limited, unit, limit, quota_per_s: perSecond }) {
  const { requests, error_bound: error, first_s: first, counted_s: seconds } = limited;
  if (requests === 0) {
    return `none in the last ${counted(limited)}`;
  }
  const allowed = perSecond === null ? "" : `; the quota allows about ${units(Math.max(limit, Math.round(perSecond * seconds)), unit)} in that time`;
  return `${count(requests, "request")}${error > 0 ? ` ± ${number(error)}` : ""} in the last ${counted(limited)}, since ${minuteAgo(first)}${allowed}`;
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
  const named = partsOf(parts);
  return named.length ? `for each ${named.join(" and ")}` : "for all clients together";
}

/** The parts of a key that have a value. */
export function partsOf(key) {
  return key.filter((part) => part !== "constant");
}

/** A part of a key, a text, another part that replaces it, or null, as people should see it. */
export function shownPart(part) {
  if (part === null) {
    return "(missing)";
  }
  if (typeof part === "string") {
    return visible(part);
  }
  const texts = Object.entries(part).map(([name, value]) => (["any", "client"].includes(name) ? "" : `(${name}) `) + visible(value));
  return texts.join(" ");
}

/** True if a policy knows something of the key of an item of /v1/keys/find, or may. */
export function isKnown({ state }) {
  return state === null || state.stored || (state.others ?? []).length > 0 || state.limited.requests > 0;
}

/** The seconds for which a quota is used up, or since the last refusal, that are not momentary. */
const [LASTING, RECENT] = [10, 60];

/** True if requests are refused from now on for longer than an instant. */
export function isUsedUp({ mode, retry_after_s: retry }) {
  return mode === "enforce" && retry > LASTING;
}

/** True if the policy limits the key, or did lately: not just at this instant. */
export function isLimited(state) {
  return state.limited.requests > 0 || isUsedUp(state);
}

/** True if refusals have ended. */
export function isOver(state) {
  const { last_s: last } = state.limited;
  return last !== null && (last > RECENT || state.mode !== "enforce") && !isUsedUp(state);
}

/** The operator of a ban or a grant, and the reason. */
export function byText({ actor, reason }) {
  return `${actor ? ` by ${actor}` : ""}${reason && `: ${reason}`}`;
}

// The state in the address: everything behind `#` stays in the browser.

import { compact, expand, MOST_TIME } from "./arrivals.js";

/** The fragment for a state. */
export function encode({ policies, arrivals, playhead, end }) {
  const state = { v: 1, p: policies, a: compact(arrivals), t: Math.round(playhead), e: Math.round(end) };
  const bytes = new TextEncoder().encode(JSON.stringify(state));
  const text = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** The state of a fragment; null if it has none, or times that the server does not take. */
export function decode(fragment) {
  try {
    const text = atob(fragment.replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(text, (letter) => letter.charCodeAt(0));
    const state = JSON.parse(new TextDecoder().decode(bytes));
    const isState = state.v === 1 && Array.isArray(state.p) && Array.isArray(state.a);
    return isState ? read(state) : null;
  } catch {
    return null;
  }
}

function read(state) {
  const arrivals = expand(state.a);
  const last = arrivals.at(-1)?.at ?? 0;
  const end = Math.max(Number(state.e) || 0, last);
  const playhead = Math.min(Math.max(Number(state.t) || 0, 0), end);
  const policies = state.p.filter((policy) => policy && typeof policy === "object");
  return end <= MOST_TIME ? { policies, arrivals, playhead, end } : null;
}

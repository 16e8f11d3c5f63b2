// The state in the address: everything behind `#` stays in the browser.

import { areArrivals, lastOf, MOST_TIME } from "./arrivals.js";

/** The fragment for a state. */
export function encode({ policies, arrivals, playhead, end }) {
  const state = { v: 1, p: policies, a: arrivals, t: Math.round(playhead), e: Math.round(end) };
  const bytes = new TextEncoder().encode(JSON.stringify(state));
  const text = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** The state of a fragment; null if it has none, or times that the server does not take. */
export function decode(fragment) {
  try {
    const text = atob(fragment.replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(text, (letter) => letter.charCodeAt(0));
    const { v, p, a: arrivals, t, e } = JSON.parse(new TextDecoder().decode(bytes));
    const policies = p.filter((policy) => policy && typeof policy === "object");
    const end = Math.max(Number(e) || 0, ...arrivals.map(lastOf));
    const playhead = Math.min(Math.max(Number(t) || 0, 0), end);
    return v === 1 && areArrivals(arrivals) && end <= MOST_TIME ? { policies, arrivals, playhead, end } : null;
  } catch {
    return null;
  }
}

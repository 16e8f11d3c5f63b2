// Above the cards of one client: which policies limit it, and since when. Cards do not move while they are
// shown, so this line tells what their order no longer does. It speaks of the last minutes: whether one
// more request passes at this instant is in the cards.

import { element, setText } from "../../dom.js";
import { count, duration, minuteAgo, moment } from "../../format.js";
import { counted, isKnown, isLimited, isOver, isUsedUp } from "./client_text.js";

/** The most policies that are named one by one. */
const MOST = 4;

/** A line about an answer of /v1/keys/find. */
export function createSummary() {
  const [limits, others] = [element("b"), element("span")];
  const node = element("p", { class: "row summary", hidden: true, tabindex: "-1" }, limits, others);
  return {
    node,
    show(who, found) {
      const [text, more] = found.items.some(isKnown) ? summaryOf(who, found) : unknown(who, found);
      setText(limits, text);
      setText(others, more);
      node.hidden = text === "";
    },
    /** Gives it the focus, at the top of a window in which it stands low or isn't seen. */
    focus() {
      node.focus({ preventScroll: true });
      const { top, bottom } = node.getBoundingClientRect();
      if (top < 0 || bottom > innerHeight / 2) {
        node.scrollIntoView();
      }
    },
  };
}

/** What is said of a key of which nothing is known. */
function unknown(who, { is_client: isClient, longer }) {
  const text = isClient
    ? `${who} is a known client, and has no bucket, ban or grant now.`
    : `Nothing is known of ${who}: no bucket, ban or grant. Is it spelled like this?`;
  return [text, longer.length > 0 ? `Not looked for in ${longer.join(", ")}: choose such a key above.` : ""];
}

/** Who limits, the worst first, and who does not. */
function summaryOf(who, { items }) {
  const states = items.map(({ state }) => state).filter(Boolean);
  const limiting = states.filter(isLimited);
  const others = states.filter((state) => state.mode === "enforce" && state.stored && !isLimited(state)).map(({ policy }) => policy);
  const rest = limiting.slice(MOST).map(({ policy }) => policy);
  const said = limiting.slice(0, MOST).map((state) => sentence(who, state));
  if (limiting.length === 0) {
    return [states.length > 0 ? `No policy has limited ${who} in the last ${counted(states[0].limited)} on this machine.` : "", ""];
  }
  const names = others.length > MOST ? `${others.length} other policies` : others.join(", ");
  return [
    [...said, rest.length > 0 && `Also ${rest.join(", ")}.`].filter(Boolean).join(" "),
    names ? `${names} ${others.length > 1 ? "do" : "does"} not limit it.` : "",
  ];
}

/** What a policy does to a client over time. */
function sentence(who, state) {
  const { policy, ban, limited, retry_after_s: retry } = state;
  const refused = limited.requests > 0 && `${count(limited.requests, "request")} refused in the last ${counted(limited)}, since ${minuteAgo(limited.first_s)}`;
  if (ban && state.mode === "enforce") {
    return `${policy} bans ${who} until ${moment(ban.until)}${refused ? `: ${refused}` : ""}.`;
  }
  if (isOver(state)) {
    return `${policy} limited ${who} until ${minuteAgo(limited.last_s)}: ${refused}.`;
  }
  const full = isUsedUp(state) && `its quota is used up for ${duration(retry * 1_000)} more`;
  return `${policy} limits ${who}: ${[refused, full].filter(Boolean).join("; ")}.`;
}

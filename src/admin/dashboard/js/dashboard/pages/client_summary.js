// Above the cards of one client: which policies limit it, and since when. Cards do not move while they are
// shown, so this line tells what their order no longer does. It speaks of the last minutes: whether one
// more request passes at this instant is in the cards.

import { element, setText } from "../../dom.js";
import { count, duration, minuteAgo, moment } from "../../format.js";
import { counted, isLasting, isLimited, isOver, isStored, limitRank } from "./client_text.js";

/** The most policies that are named one by one. */
const MOST = 4;

/** A line that `follow` gives cards to, and `show` brings up to date; `tell` says something else. */
export function createSummary() {
  const [limits, others] = [element("b"), element("span")];
  let [who, cards] = ["", []];
  const node = element("p", { class: "row summary", hidden: true, tabindex: "-1" }, limits, others);
  const tell = (text, more = "") => {
    setText(limits, text);
    setText(others, more);
    node.hidden = !text;
  };
  return {
    node,
    tell,
    follow(...followed) {
      [who, cards] = followed;
    },
    show() {
      tell(...summaryOf(who, cards.map((card) => card.state()).filter(Boolean)));
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

/** What is said of a value of which nothing is known. */
export function unknown(who) {
  return `Nothing is known of ${who}: no bucket, ban or grant. Is it spelled like this?`;
}

/** Who limits, the worst first, and who does not. */
function summaryOf(who, states) {
  if (states.length === 0) {
    return [""];
  }
  if (!states.some(isStored)) {
    return [unknown(who)];
  }
  const limiting = states.filter(isLimited).sort((left, right) => limitRank(right) - limitRank(left));
  const others = states.filter((state) => state.mode === "enforce" && state.stored && !isLimited(state)).map(({ policy }) => policy);
  const rest = limiting.slice(MOST).map(({ policy }) => policy);
  const said = limiting.slice(0, MOST).map((state) => sentence(who, state));
  const limits = limiting.length ? [...said, rest.length && `Also ${rest.join(", ")}.`].filter(Boolean).join(" ") : `No policy has limited ${who} in the last ${counted(states[0].limited)} on this machine.`;
  const names = others.length > MOST ? `${others.length} other policies` : others.join(", ");
  return [limits, limiting.length && names ? `${names} ${others.length > 1 ? "do" : "does"} not limit it.` : ""];
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
  const full = isLasting(state) && `its quota is used up for ${duration(retry * 1_000)} more`;
  return `${policy} limits ${who}: ${[refused, full].filter(Boolean).join("; ")}.`;
}

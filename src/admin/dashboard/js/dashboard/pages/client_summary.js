// Above the cards of one client: which policies refuse it now, and a button that sorts the cards.
// Cards do not move by themselves, so this line tells what their order no longer does.

import { button, element, setText } from "../../dom.js";
import { isRefused, keyText } from "./client_text.js";

/** A line that `follow` gives cards to, and `show` brings up to date. */
export function createSummary() {
  const text = element("b");
  let [cards, sort] = [[], () => {}];
  const again = button("Sort again", () => sort());
  const node = element("p", { class: "row summary", hidden: true }, text, again);
  return {
    node,
    follow(followed, sorts) {
      [cards, sort] = [followed, sorts];
      node.hidden = true;
    },
    show() {
      const states = cards.map((card) => ({ card, state: card.state() })).filter(({ state }) => state);
      node.hidden = states.length === 0;
      setText(text, summaryOf(states));
      again.hidden = cards.length < 2;
    },
  };
}

function summaryOf(states) {
  if (states.length === 0) {
    return "";
  }
  const key = keyText(states[0].card.subject.key);
  const refusing = states.filter(({ state }) => isRefused(state, "enforce"));
  const isEnforced = ({ state }) => isRefused(state);
  const enforced = refusing.filter(isEnforced).map(nameOf);
  const others = refusing.filter((one) => !isEnforced(one)).map(nameOf);
  const limited = enforced.length ? `${key} is limited now by ${enforced.join(", ")}` : `No policy limits ${key} now`;
  return others.length ? `${limited}; ${others.join(", ")} would if enforced.` : `${limited}.`;
}

function nameOf({ card: { subject }, state }) {
  return state.ban ? `${subject.policy} (banned)` : subject.policy;
}

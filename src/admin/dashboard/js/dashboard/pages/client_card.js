// The bucket of one key of one policy: its drawing, its numbers, and changes.

import { advance } from "../../cell/advance.js";
import { cellFigure } from "../../cell/figure.js";
import { element, setText } from "../../dom.js";
import { count, duration, instant, number } from "../../format.js";
import { copyButton } from "../parts.js";
import { ban, grant, reset, unban } from "./client_changes.js";
import { explain, keyText, verdict } from "./client_text.js";

/** The time between two frames of a drawing, in milliseconds. */
const FRAME = 100;

/** Algorithms whose buckets have nothing to reset, or no room for granted units. */
const NO_RESET = ["concurrency"];
const NO_GRANT = ["concurrency", "leaky_bucket"];

/**
 * A card; `look` asks for the state, `state` is the last one, and `end` stops the drawing. `changed`
 * is called after a change by the operator.
 */
export function createCard(session, subject, changed) {
  const figure = cellFigure();
  const facts = element("dl", { class: "facts" });
  const said = element("span", { class: "small soft", role: "status" });
  const buttons = element("div", { class: "row" });
  const heading = element("h2", {}, subject.policy);
  const node = element("article", { class: "card", tabindex: "-1" }, heading, figure.node, facts, buttons, said);
  let seen = null;
  const look = async () => {
    const state = await session.post("/v1/keys/lookup", { policy: subject.policy, key: subject.key });
    seen = { state, at: performance.now() };
    showFacts(facts, state, subject.mode());
    lift.hidden = !state.ban;
    setText(heading, `${state.policy}, ${state.quota}`);
  };
  const change = (label, make, name = "") => {
    const ask = async () => {
      if (await make(session, subject)) {
        await look();
        changed();
      }
    };
    const spoken = `${label} ${keyText(subject.key)} on ${subject.policy}`;
    return element("button", { type: "button", class: name, "aria-label": spoken, onclick: ask }, `${label} …`);
  };
  const lift = change("Unban", unban);
  lift.hidden = true;
  const copy = copyButton("Copy explanation for support", () => explain(seen.state, subject), said, "Copied, without the key.");
  const offered = [!NO_RESET.includes(subject.algorithm) && change("Reset", reset), !NO_GRANT.includes(subject.algorithm) && change("Grant", grant)];
  buttons.append(...offered.filter(Boolean), change("Ban", ban, "danger"), lift, copy);
  const timer = setInterval(() => {
    if (seen && !document.hidden) {
      figure.show(advance(seen.state.cell, performance.now() - seen.at));
    }
  }, FRAME);
  return { node, look, state: () => seen?.state, end: () => clearInterval(timer) };
}

function showFacts(list, state, mode) {
  const rows = facts(state, mode).flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]);
  list.replaceChildren(...rows);
}

/** Why a button is not there. */
function missingButtons(algorithm) {
  if (NO_RESET.includes(algorithm)) {
    return "requests in flight return their units when they end: there is nothing to reset or grant";
  }
  return NO_GRANT.includes(algorithm) && "no grant: the bucket spaces requests out, which granted units would undo";
}

/** What is known of a key, in the order in which an operator asks. */
function facts(state, mode) {
  const unit = (value) => count(value, state.unit.replace(/s$/, ""));
  return [
    ["Now", verdict(state, mode)],
    ["Used", `${number(state.used)} of ${unit(state.limit)}, ${number(state.remaining)} left`],
    ["Whole in", state.reset_s > 0 ? duration(state.reset_s * 1_000) : "it is whole"],
    state.debt > 0 && ["Debt", unit(state.debt)],
    state.in_flight > 0 && ["In flight", `${unit(state.in_flight)} on this machine`],
    state.override && ["Override", state.override],
    state.granted && ["Granted", `${number(state.granted.units)} of ${unit(state.granted.of_units)} left, until ${instant(state.granted.until)}`],
    state.ban && ["Banned", `${duration(state.ban.for_s * 1_000)} more, until ${instant(state.ban.until)}${state.ban.reason && `: ${state.ban.reason}`}`],
    ["Bucket in", state.sync_s ? `memory, synchronised every ${number(state.sync_s * 1_000)}\u00a0ms` : state.store],
    ["Name in logs", state.key_id],
    missingButtons(state.algorithm) && ["Note", missingButtons(state.algorithm)],
  ].filter(Boolean);
}

// The bucket of one key of one policy: its drawing, its numbers, and changes.

import { advance, usedShare } from "../../cell/advance.js";
import { cellFigure } from "../../cell/figure.js";
import { button, copy, element, hide, setText } from "../../dom.js";
import { amount, count, duration, instant, minuteAgo, number, quotaText, units } from "../../format.js";
import { actButton, ban, grant, reset, takeBack, unban } from "../acts.js";
import { NO_COPY, policyLink } from "../parts.js";
import { byText, explain, isRefused, keyText, verdict } from "./client_text.js";

/** The time between two frames of a drawing, in milliseconds. */
const FRAME = 100;

/** Algorithms whose buckets have nothing to reset, or no room for granted units. */
const NO_RESET = ["concurrency"];
const NO_GRANT = ["concurrency", "leaky_bucket"];

/**
 * A card; `look` asks for the state, `state` is the last one, and `end` stops the drawing. A store
 * that does not answer leaves the card without a state.
 */
export function createCard(session, subject) {
  const figure = cellFigure();
  const problem = element("p", { class: "problem" });
  const facts = factList();
  const said = element("span", { class: "small soft", role: "status" });
  const quota = element("span");
  const heading = element("h2", {}, policyLink(subject.policy), quota);
  let seen = null;
  const look = async () => {
    try {
      const state = await session.post("/v1/keys/lookup", { policy: subject.policy, key: subject.key });
      seen = { state, at: performance.now() };
      setText(quota, `, ${quotaText(state.quota, state.unit)}`);
      setText(problem, "");
    } catch (error) {
      seen = null;
      setText(problem, error.message);
      throw error;
    } finally {
      draw();
    }
  };
  const { node: buttons, show: showButtons } = createButtons(session, subject, said, look, () => seen?.state);
  const shown = element("div", { class: "stack" }, figure.node, facts.node);
  const node = element("article", { class: "card", tabindex: "-1" }, heading, problem, shown, buttons, said);
  const draw = () => {
    shown.hidden = seen === null;
    showButtons(seen?.state ?? null);
    if (seen) {
      const state = later(seen.state, performance.now() - seen.at);
      node.classList.toggle("refused", isRefused(state));
      figure.show(state.cell);
      facts.show(factsOf(state, subject));
    }
  };
  const timer = setInterval(() => !document.hidden && draw(), FRAME);
  return { node, subject, look, state: () => seen?.state, end: () => clearInterval(timer) };
}

/** The buttons of a card: those that its algorithm offers. */
function createButtons(session, subject, said, look, state) {
  const made = () => look().catch(() => {});
  const add = (text, change, attributes = {}) => actButton(session, text, change(subject), made, { "aria-label": `${text} ${keyText(subject.key)} on ${subject.policy}`, ...attributes });
  const [lift, back] = [add("Unban", unban), add("Take back", takeBack)];
  const explained = button("Copy explanation for support", () => copy(explain(state(), subject), said, "Copied, without the key.", NO_COPY), { "aria-label": `Copy explanation for support of ${keyText(subject.key)} on ${subject.policy}` });
  const offered = [!NO_RESET.includes(subject.algorithm) && add("Reset", reset), !NO_GRANT.includes(subject.algorithm) && add("Grant", grant)];
  const node = element("div", { class: "row" }, ...offered.filter(Boolean), back, add("Ban", ban, { class: "danger" }), lift, explained);
  return {
    node,
    show(seen) {
      hide(lift, !seen?.ban, node.closest(".card"));
      hide(back, !seen?.granted, node.closest(".card"));
      explained.disabled = seen === null;
    },
  };
}

/** A list of facts that changes in place, so that a selected text stays selected. */
function factList() {
  const node = element("dl", { class: "facts" });
  return {
    node,
    show(facts) {
      while (node.children.length > 2 * facts.length) {
        node.lastChild.remove();
      }
      facts.forEach(([name, text], place) => {
        if (node.children.length <= 2 * place) {
          node.append(element("dt"), element("dd"));
        }
        setText(node.children[2 * place], name);
        setText(node.children[2 * place + 1], text);
      });
    },
  };
}

/** The state `ms` milliseconds later, as far as time alone changes it. */
function later(state, ms) {
  // Requests in flight end by themselves: time tells nothing.
  if (state.algorithm === "concurrency" && !state.ban) {
    return state;
  }
  const left = (seconds) => (seconds === null ? null : Math.max(0, seconds - ms / 1_000));
  const cell = advance(state.cell, ms);
  // A speck of a unit is an error of floating point.
  const used = Math.min(state.used, Math.ceil(usedShare(cell) * state.limit - 1e-6));
  return {
    ...state,
    cell,
    used,
    remaining: state.limit - used,
    reset_s: left(state.reset_s),
    retry_after_s: left(state.retry_after_s),
    allowed: state.allowed || left(state.retry_after_s) === 0,
    ban: state.ban && { ...state.ban, for_s: left(state.ban.for_s) },
  };
}

/** Why a button is not there. */
function missingButtons(algorithm) {
  if (NO_RESET.includes(algorithm)) {
    return "requests in flight return their units when they end: there is nothing to reset or grant";
  }
  return NO_GRANT.includes(algorithm) && "no grant: the bucket spaces requests out, which granted units would undo";
}

function fullIn({ algorithm, used, reset_s: seconds }) {
  if (algorithm === "concurrency" && used > 0) {
    return "as requests end";
  }
  return seconds > 0 ? duration(seconds * 1_000) : "it is full";
}

/** The refused requests of the last minutes, since when, and what the quota allows in that time. */
function limitedText({ limited: { requests, first_s: first, counted_s: counted }, unit, override }, { quota: [limit, window] }) {
  const span = duration(Math.round(counted) * 1_000);
  const allowed = window === null || override ? "" : `; the quota allows about ${units(Math.max(limit, Math.round((limit * counted) / window)), unit)} in that time`;
  return `${count(requests, "request")} in the last ${span}${allowed}. The first was at ${minuteAgo(first)}`;
}

/** What is known of a key, in the order in which an operator asks. */
function factsOf(state, subject) {
  const unit = (value) => units(value, state.unit);
  return [
    ["Now", verdict(state)],
    state.waiting > 0 && ["Waiting", count(state.waiting, "request")],
    state.limited?.requests > 0 && ["Limited", limitedText(state, subject)],
    ["Used", `${amount(state.used, state.unit)} of ${unit(state.limit)}, ${amount(state.remaining, state.unit)} left`],
    ["Full in", fullIn(state)],
    state.debt > 0 && ["Debt", unit(state.debt)],
    state.in_flight > 0 && ["In flight", `${unit(state.in_flight)} on this machine`],
    state.override && ["Override", state.override],
    state.granted && ["Granted", `${amount(state.granted.units, state.unit)} of ${unit(state.granted.of_units)} left, until ${instant(state.granted.until)}${byText(state.granted)}`],
    state.ban && ["Banned", `${duration(state.ban.for_s * 1_000)} more, until ${instant(state.ban.until)}${byText(state.ban)}`],
    ["Bucket in", state.sync_s ? `memory, synchronised every ${number(state.sync_s * 1_000)}\u00a0ms` : state.store],
    ["Name in logs", state.key_id],
    missingButtons(state.algorithm) && ["Note", missingButtons(state.algorithm)],
  ].filter(Boolean);
}

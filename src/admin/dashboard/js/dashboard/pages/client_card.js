// The bucket of one key of one policy: its drawing, its numbers, and changes.

import { advance, usedShare } from "../../cell/advance.js";
import { cellFigure } from "../../cell/figure.js";
import { button, copy, element, hide, setText } from "../../dom.js";
import { amount, count, duration, moment, number, quotaText, timeOfDay, units } from "../../format.js";
import { actButton, ban, grant, reset, takeBack, unban } from "../acts.js";
import { NO_COPY, policyLink } from "../parts.js";
import { bucketText, byText, explain, isLimited, isOver, keyText, refusedText, verdict } from "./client_text.js";

/** The time between two frames of a drawing, in milliseconds. */
const FRAME = 100;

/** Algorithms whose buckets have nothing to reset, or no room for granted units. */
const NO_RESET = ["concurrency"];
const NO_GRANT = ["concurrency", "leaky_bucket"];

/** Whether the next card shows how its bucket counts: as the last that was opened or closed. */
let isOpen = false;

/**
 * A card; `look` asks for the state, `state` is the last one, and `end` stops the drawing. A store
 * that does not answer leaves the card without a state.
 */
export function createCard({ session, figures }, subject) {
  const figure = cellFigure();
  const problem = element("p", { class: "problem" });
  const [facts, details] = [factList(), factList()];
  const fold = element("details", { open: isOpen }, element("summary", {}, "How it counts"), figure.node, details.node);
  fold.addEventListener("toggle", () => {
    isOpen = fold.open;
    draw();
  });
  const said = element("span", { class: "small soft", role: "status" });
  const quota = element("span");
  const heading = element("h2", {}, policyLink(subject.policy), quota);
  let seen = null;
  const look = async () => {
    try {
      const state = await session.post("/v1/keys/lookup", { policy: subject.policy, key: subject.key });
      seen = { state, at: performance.now() };
      setText(quota, `, ${quotaText(state.quota, state.unit)} ${bucketText(subject.parts)}${state.mode === "enforce" ? "" : `, ${state.mode}`}`);
      setText(problem, "");
    } catch (error) {
      seen = null;
      setText(problem, error.message);
      throw error;
    } finally {
      draw();
    }
  };
  const { node: buttons, show: showButtons } = createButtons(session, subject, said, look, () => seen?.state, () => figures.events.changesOf(subject.policy));
  const node = element("article", { class: "card", tabindex: "-1" }, heading, problem, facts.node, buttons, said, fold);
  const draw = () => {
    facts.node.hidden = fold.hidden = seen === null;
    showButtons(seen?.state ?? null);
    if (seen) {
      const state = later(seen.state, performance.now() - seen.at);
      node.classList.toggle("refused", isLimited(state) && !isOver(state));
      facts.show(factsOf(state, figures.events.changesOf(subject.policy)));
      if (fold.open) {
        figure.show(state.cell);
        details.show(detailsOf(state));
      }
    }
  };
  const timer = setInterval(() => !document.hidden && draw(), FRAME);
  return { node, subject, look, state: () => seen?.state, end: () => clearInterval(timer) };
}

/** The buttons of a card: those that its algorithm offers. */
function createButtons(session, subject, said, look, state, changes) {
  const made = () => look().catch(() => {});
  const add = (text, change, attributes = {}) => actButton(session, text, change(subject), made, { "aria-label": `${text} ${keyText(subject.key)} on ${subject.policy}`, ...attributes });
  const [lift, back] = [add("Unban", unban), add("Take back", takeBack)];
  const explained = button("Copy explanation for support", () => copy(explain(state(), subject, changesFor(state(), changes())), said, "Copied, without the key.", NO_COPY), { "aria-label": `Copy explanation for support of ${keyText(subject.key)} on ${subject.policy}` });
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

/** What is used, and when it is back. */
function usedText({ algorithm, used, limit, remaining, reset_s: seconds, unit }) {
  const back = algorithm === "concurrency" ? "they return as requests end" : seconds > 0 && `full again in ${duration(seconds * 1_000)}`;
  return `${amount(used, unit)} of ${units(limit, unit)}, ${amount(remaining, unit)} left${used > 0 && back ? `; ${back}` : ""}`;
}

/** What is known of a key, in the order in which an operator asks. */
function factsOf(state, changes) {
  const unit = (value) => units(value, state.unit);
  return [
    ["Refused", refusedText(state)],
    state.ban && ["Banned", `${duration(state.ban.for_s * 1_000)} more, until ${moment(state.ban.until)}${byText(state.ban)}`],
    !(state.ban && state.mode === "enforce") && ["Next request", verdict(state)],
    !state.ban && ["Used", usedText(state)],
    state.waiting > 0 && ["Waiting", count(state.waiting, "request")],
    state.debt > 0 && ["Debt", unit(state.debt)],
    state.in_flight > 0 && ["In flight", `${unit(state.in_flight)} on this machine`],
    state.override && ["Override", state.override],
    state.granted && ["Granted", `${amount(state.granted.units, state.unit)} of ${unit(state.granted.of_units)} left, until ${moment(state.granted.until)}${byText(state.granted)}`],
    ...changesFor(state, changes),
  ].filter(Boolean);
}

/** Changes of the policy, except those of overrides that the key doesn't have. */
function changesFor({ override }, changes) {
  const own = changes.filter((change) => [null, override].includes(change.override));
  return own.map(({ at, text }) => ["Changed", `${text} at ${timeOfDay(at)}`]);
}

/** Where and how a key is counted. */
function detailsOf(state) {
  const note = missingButtons(state.algorithm);
  return [
    ["Algorithm", state.algorithm.replaceAll("_", " ")],
    ["Bucket in", state.sync_s ? `memory, synchronised every ${number(state.sync_s * 1_000)}\u00a0ms` : state.store],
    ["Name in logs", state.key_id],
    note && ["Note", note],
  ].filter(Boolean);
}

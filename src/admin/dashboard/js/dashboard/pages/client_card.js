// The bucket of one key of one policy: its drawing, its numbers, and changes.

import { cellFigure } from "../../cell/figure.js";
import { button, copy, element, hide, setText } from "../../dom.js";
import { amount, count, duration, moment, number, quotaText, timeOfDay, units } from "../../format.js";
import { actButton, ban, grant, reset, takeBack, unban } from "../acts.js";
import { NO_COPY, policyLink } from "../parts.js";
import { bucketText, byText, isLimited, isOver, keyText, refusedText } from "./client_text.js";

/** Why cards of an algorithm have no button to grant units, or none to reset either. */
const MISSING = {
  concurrency: "requests in flight return their units when they end: there is nothing to reset or grant",
  leaky_bucket: "no grant: the bucket spaces requests out, which granted units would undo",
};

/** Whether the next card shows how its bucket counts: as the last that was opened or closed. */
let isOpen = false;

/** A card; `again` looks at the key again. A store that does not answer leaves the card without a state. */
export function createCard(session, figures, subject, again) {
  const figure = cellFigure();
  const problem = element("p", { class: "problem" });
  const [facts, details] = [factList(), factList()];
  const fold = element("details", { open: isOpen }, element("summary", {}, "How it counts"), figure.node, details.node);
  fold.addEventListener("toggle", () => {
    isOpen = fold.open;
  });
  const quota = element("span");
  const heading = element("h2", {}, policyLink(subject.policy), quota);
  let state = null;
  const changes = () => figures.events.changesOf(subject.policy);
  const buttons = createButtons(session, subject, again, () => supportText(state, subject, changes()));
  const node = element("article", { class: "card", tabindex: "-1" }, heading, problem, facts.node, buttons.node, fold);
  return {
    node,
    /** Shows its state among these of /v1/keys/find. */
    show(items) {
      const item = items.find(({ policy }) => policy === subject.policy);
      state = item?.state ?? null;
      setText(problem, item ? (item.problem ?? "") : "The policy has no such key any more.");
      facts.node.hidden = fold.hidden = state === null;
      buttons.show(state, node);
      if (state) {
        setText(quota, `, ${headingText(state, subject)}`);
        node.classList.toggle("refused", isLimited(state) && !isOver(state));
        facts.show(factsOf(state, changes()));
        figure.show(state.cell);
        details.show(detailsOf(state));
      }
    },
  };
}

/** The buttons of a card: those that its algorithm offers. `text` explains the state. */
function createButtons(session, subject, made, text) {
  const whose = `${keyText(subject.key)} on ${subject.policy}`;
  const add = (name, change, attributes = {}) => actButton(session, name, change(subject), made, { "aria-label": `${name} ${whose}`, ...attributes });
  const [lift, back] = [add("Unban", unban), add("Take back", takeBack)];
  const said = element("span", { class: "small soft", role: "status" });
  const copyText = () => copy(text(), said, "Copied, without the key.", NO_COPY);
  const explained = button("Copy explanation for support", copyText, { "aria-label": `Copy explanation for support of ${whose}` });
  const { algorithm } = subject;
  const offered = [algorithm !== "concurrency" && add("Reset", reset), !(algorithm in MISSING) && add("Grant", grant)];
  return {
    node: element("div", { class: "row" }, ...offered.filter(Boolean), back, add("Ban", ban, { class: "danger" }), lift, explained, said),
    show(state, heir) {
      hide(lift, !state?.ban, heir);
      hide(back, !state?.granted, heir);
      explained.disabled = state === null;
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
    !(state.ban && state.mode === "enforce") && ["Next request", state.verdict],
    !state.ban && ["Used", usedText(state)],
    state.waiting > 0 && ["Waiting", count(state.waiting, "request")],
    state.debt > 0 && ["Debt", unit(state.debt)],
    state.in_flight > 0 && ["In flight", `${unit(state.in_flight)} on this machine`],
    state.override && ["Override", state.override],
    state.granted && ["Granted", `${amount(state.granted.units, state.unit)} of ${unit(state.granted.of_units)} left, until ${moment(state.granted.until)}${byText(state.granted)}`],
    ...changesFor(state, changes),
  ].filter(Boolean);
}

/** The quota, its buckets, and the mode unless the policy enforces it. */
function headingText({ quota, unit, mode }, { parts }) {
  return `${quotaText(quota, unit)} ${bucketText(parts)}${mode === "enforce" ? "" : `, ${mode}`}`;
}

/** All facts in lines for a support ticket. It does not hold the key. */
function supportText(state, subject, changes) {
  const { timeZone } = new Intl.DateTimeFormat().resolvedOptions();
  const policy = ["Policy", `${state.policy}, ${headingText(state, subject)}`];
  const now = ["As of", `${new Date().toISOString()}; times of day are in ${timeZone}`];
  const lines = [policy, ...factsOf(state, changes), ...detailsOf(state), now].map(([name, text]) => `${name}: ${text}.`);
  return lines.join("\n").replaceAll("\u00a0", " ").replaceAll("\u202f", "");
}

/** Changes of the policy, except those of overrides that the key doesn't have. */
function changesFor({ override }, changes) {
  const own = changes.filter((change) => [null, override].includes(change.override));
  return own.map(({ at, text }) => ["Changed", `${text} at ${timeOfDay(at)}`]);
}

/** Where and how a key is counted. */
function detailsOf(state) {
  const note = MISSING[state.algorithm];
  return [
    ["Algorithm", state.algorithm.replaceAll("_", " ")],
    ["Bucket in", state.sync_s ? `memory, synchronised every ${number(state.sync_s * 1_000)}\u00a0ms` : state.store],
    ["Name in logs", state.key_id],
    note && ["Note", note],
  ].filter(Boolean);
}

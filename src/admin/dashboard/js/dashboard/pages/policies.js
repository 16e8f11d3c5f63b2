// The policies: all of them, or one.

import { element } from "../../dom.js";
import { capital, number, percent, quotaText, rate } from "../../format.js";
import { changeText } from "../events.js";
import { finder, policyLink, table, twoLines } from "../parts.js";
import { keysText, modeButton, modeText, showOne, totalOf, undecided } from "./policy.js";

export const TITLE = "Policies";

export function show(main, context) {
  const [name] = context.names;
  return name === undefined ? showAll(main, context) : showOne(main, context, name);
}

function showAll(main, context) {
  const all = policyTable(context, "All policies");
  const texts = ({ name, key, routes }) => [name, ...key, ...routes];
  const fill = (wanted, _, { by }) => all.fill(wanted, Infinity, by);
  const find = finder("policies", "Name, key or route", texts, { Show: STATES, "Order by": ORDERS }, fill);
  main.append(element("h1", {}, TITLE), find.node, all.node);
  return context.figures.listen(({ policies }) => find.show(policies));
}

const STATES = {
  all: { title: "all" },
  limiting: { title: "those that limit now", is: ({ recent }) => recent?.limited > 0 },
  undecided: { title: "those that can’t decide now", is: ({ recent }) => recent?.error > 0 },
  near: { title: "those with keys near the quota", is: ({ buckets }) => buckets.near > 0 },
  enforce: { title: "enforced", is: ({ mode }) => mode.current === "enforce" },
  shadow: { title: "in shadow", is: ({ mode }) => mode.current === "shadow" },
  disabled: { title: "disabled", is: ({ mode }) => mode.current === "disabled" },
  set: { title: "with bans, grants or a set mode", is: ({ mode, granted_keys: grants, banned_keys: bans }) => mode.set_at !== null || grants > 0 || bans > 0 },
};

const limitedNow = ({ recent }) => recent?.limited + recent?.error || 0;
const ORDERS = {
  limited: { title: "what is limited now", by: limitedNow },
  decisions: { title: "decisions now", by: ({ recent }) => totalOf(recent) || 0 },
  total: { title: "what was limited since the start", by: ({ decisions }) => decisions.limited },
  keys: { title: "keys now", by: ({ buckets }) => buckets.in_use },
  name: { title: "name", by: () => 0 },
};

/** A table of policies. Rows keep their order while a pointer or the focus is on them. */
export function policyTable(context, caption) {
  const { figures } = context;
  const shown = table(caption, [
    ["Policy", ({ name }) => policyLink(name)],
    ["Quota", (policy) => quotaCell(policy, figures.events.changesOf(policy.name))],
    ["Mode", (policy) => modeCell(context, policy)],
    ["Decisions", ({ recent }) => `${rate(totalOf(recent))}/s`, "number"],
    ["Limited", (policy) => limitedText(policy, policy.recent, (one) => `${rate(one)}/s`, undecided(policy)), "number"],
    ["Share limited", shareText, "number"],
    ["Limited since the start", (policy) => limitedText(policy, policy.decisions, number), "number"],
    ["Banned now", ({ banned_keys: bans }) => number(bans), "number"],
    ["Keys now", keysText, "number"],
  ], ({ name }) => name);
  let order = [];
  return {
    node: shown.node,
    /** Shows the first `most` of the wanted policies, the largest `by` first. */
    fill(wanted, most = Infinity, by = limitedNow) {
      const isHeld = shown.node.matches(":hover, :focus-within");
      const place = ({ name }) => (isHeld && order.includes(name) ? order.indexOf(name) : Infinity);
      const ordered = wanted.toSorted((left, right) => place(left) - place(right) || by(right) - by(left) || left.name.localeCompare(right.name));
      const first = ordered.slice(0, most);
      order = first.map(({ name }) => name);
      shown.fill(first, figures.policies.length ? "No policy is like that." : "The configuration has no policy.");
    },
  };
}

/** The quota and the algorithm, and what changed them last. */
function quotaCell({ quota, unit, algorithm }, [changed]) {
  const text = `${quotaText(quota, unit)} · ${algorithm.replaceAll("_", " ")}`;
  return changed ? twoLines(text, capital(changeText(changed))) : text;
}

/** The mode, which opens the dialog that changes it. The configuration alone enables a disabled policy. */
function modeCell(context, policy) {
  const text = modeText(policy.mode);
  const label = `${text}: set the mode of ${policy.name}`;
  return policy.mode.configured === "disabled" ? text : modeButton(context, policy, text, undefined, { class: "plain", "aria-label": label });
}

function shareText(policy) {
  const all = totalOf(policy.recent);
  return all > 0 ? limitedText(policy, policy.recent, (one) => percent(one / all)) : "–";
}

/** Limited requests, those that only would have been, as a policy may be in shadow for some keys, and undecided ones. */
function limitedText({ mode }, decisions, words, undecidedWord = "undecided") {
  const { limited, shadowed, error } = decisions ?? {};
  const isShadow = mode.current === "shadow";
  const parts = [(!isShadow || limited > 0) && words(limited), (isShadow || shadowed > 0) && `${words(shadowed)} in shadow`, error > 0 && `${words(error)} ${undecidedWord}`];
  return parts.filter(Boolean).join(", ");
}

// One client: all its buckets as they are now, and what an operator can do for it.

import { usedShare } from "../../cell/advance.js";
import { arrange, element, field, setText } from "../../dom.js";
import { problemLine, repeat } from "../parts.js";
import { createCard } from "./client_card.js";
import { createExplain } from "./client_explain.js";
import { createSummary } from "./client_summary.js";
import { shownPart } from "./client_text.js";

export const TITLE = "Client";

/** The time between two looks at the buckets, in milliseconds. */
const PERIOD = 1_000;
/** The rounds after which a bucket that the client hasn't used is looked at again. */
const IDLE = 10;

/** Key texts stay in this tab's memory: they are secrets, and no part of an address. */
let last = { kind: 0, values: [] };
/** The client that another page has chosen, until this page shows it. */
let chosen = null;

/** Chooses the client that this page shows next: a key as the API writes it. */
export function chooseClient(policy, key) {
  chosen = { policy, values: [key].flat() };
}

export function show(main, { figures, session }) {
  const fields = element("fieldset");
  const kind = element("select", { id: "kind" });
  const problem = problemLine();
  const cards = element("div", { class: "cards" });
  const summary = createSummary();
  const explain = createExplain(session);
  let kinds = [];
  let stop = () => {};
  const search = (event, policy = null) => {
    event?.preventDefault();
    stop();
    last = { kind: Number(kind.value), values: readValues(fields) };
    explain.suggest(kinds[last.kind]?.parts ?? [], last.values);
    stop = watch({ session, figures, summary, policy }, kinds[last.kind], last.values, cards, problem);
  };
  const choose = () => {
    const place = Number(kind.value);
    fields.replaceChildren(...inputs(kinds[place], place === last.kind ? last.values : []));
  };
  kind.addEventListener("change", choose);
  main.append(
    element("h1", {}, TITLE),
    element("form", { class: "row search", onsubmit: search }, field("Key", kind), fields, element("button", { class: "primary" }, "Show buckets")),
    element("p", { class: "small soft" }, "Buckets are looked at once a second; in between, they run on as if no request came. Those that refuse come first; the order then stays. Keys are secrets: they are neither logged nor kept in the address."),
    problem.node,
    summary.node,
    cards,
    explain.node,
  );
  const forget = figures.listen(({ policies }) => {
    const found = keyKinds(policies);
    if (JSON.stringify(found) === JSON.stringify(kinds)) {
      return;
    }
    kinds = found;
    const { policy = null, values } = chosen ?? {};
    const place = kinds.findIndex(({ policies: names }) => names.includes(policy));
    if (place >= 0) {
      last = { kind: place, values };
    }
    kind.replaceChildren(...kinds.map(({ parts }, number) => element("option", { value: number, selected: number === last.kind }, parts.join(" + ") || "constant: one bucket for all clients")));
    choose();
    if (place >= 0) {
      chosen = null;
      search(null, policy);
    }
  });
  return () => {
    stop();
    forget();
  };
}

/**
 * The different keys of all policies, with the policies that have each. A constant has no value. The
 * name of a client also names its keys by columns (`byName`).
 */
function keyKinds(policies) {
  const kinds = new Map();
  const add = (parts, list, name) => {
    const kind = kinds.get(parts.join("\n")) ?? { parts, policies: [], byName: [] };
    kind[list].push(name);
    kinds.set(parts.join("\n"), kind);
  };
  for (const { name, key } of policies) {
    const parts = key.filter((part) => part !== "constant");
    add(parts, "policies", name);
    if (parts.length > 0 && parts.join() !== "client" && parts.every((part) => /^client(:|$)/.test(part))) {
      add(["client"], "byName", name);
    }
  }
  return [...kinds.values()];
}

/** Parts of a key that their inputs show escaped, or that are no texts, by these. */
const parts = new WeakMap();

function inputs(kind, values) {
  return (kind?.parts ?? []).map((part, place) => {
    const value = values[place] ?? (place in values ? null : "");
    const input = element("input", { value: shownPart(value), required: true, autocomplete: "off", spellcheck: "false", placeholder: example(part) });
    parts.set(input, value);
    const hint = element("span", { class: "small soft", role: "status" });
    input.addEventListener("input", () => setText(hint, hintOf(readPart(input))));
    return field(part, input, hint);
  });
}

/** What a typed text is, unless it is what it looks like. */
function hintOf(part) {
  return typeof part === "string" && shownPart(part) !== part ? `is ${shownPart(part)}` : "";
}

function example(part) {
  return part.startsWith("client_ip") ? "192.0.2.7 or 2001:db8::7" : "";
}

function readValues(fields) {
  return [...fields.querySelectorAll("input")].map(readPart);
}

/** The part that an input was filled with, or the text that was typed instead, to the byte. */
function readPart(input) {
  const part = parts.get(input);
  return input.value === shownPart(part) ? part : input.value;
}

/** Shows the buckets of a key, and looks again every second. The focus goes to a policy's card. */
function watch({ session, figures, summary, policy }, kind, values, container, problem) {
  container.replaceChildren();
  const key = values.length === 1 && typeof values[0] === "string" ? values[0] : values;
  const known = (name) => figures.policies.find((one) => one.name === name);
  const keys = [...(kind?.policies ?? []).map((name) => [name, key]), ...(kind?.byName ?? []).map((name) => [name, { client: values[0] }])];
  const subjects = keys.map(([name, key]) => ({
    policy: name,
    key,
    parts: kind.parts,
    algorithm: known(name)?.algorithm,
    quota: [known(name)?.limit_units, known(name)?.window_s ?? null],
  }));
  const cards = subjects.map((subject) => createCard(session, subject));
  // Cards keep their order while time passes: a button must not move from under the pointer.
  const sort = () => arrange(container, [...cards].sort((left, right) => urgency(right.state()) - urgency(left.state())).map(({ node }) => node));
  summary.follow(cards, sort);
  let round = 0;
  const look = async () => {
    const due = cards.filter((card) => round % IDLE === 0 || card.state()?.stored !== false);
    const looks = await Promise.allSettled(due.map((card) => card.look()));
    problem.show(problemOf(looks, due, cards.length));
    summary.show();
    round += 1;
    if (round === 1) {
      sort();
      cards.find((_, place) => subjects[place].policy === policy)?.node.focus();
    }
  };
  container.append(...cards.map(({ node }) => node));
  const end = repeat(look, PERIOD);
  return () => {
    end();
    cards.forEach((card) => card.end());
  };
}

/** What is read out; the cards say it, too. A store that does not answer fails its own cards only. */
function problemOf(looks, cards, all) {
  const failed = cards.filter((_, place) => looks[place].status === "rejected");
  if (failed.length === 0) {
    return null;
  }
  const { message } = looks.find(({ status }) => status === "rejected").reason;
  const names = failed.map(({ subject }) => subject.policy).join(", ");
  return { message: failed.length < all ? `${names}: ${message}` : message };
}

/** Orders cards: bans, then refusals, then the used share. */
function urgency(state) {
  if (!state) {
    return -1;
  }
  if (state.ban) {
    return 3;
  }
  return usedShare(state.cell) + (state.allowed ? 0 : 1);
}

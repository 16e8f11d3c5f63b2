// One client: all its buckets as they are now, and what an operator can do for it.

import { usedShare } from "../../cell/advance.js";
import { element, field, setText } from "../../dom.js";
import { problemLine, repeat } from "../parts.js";
import { createCard } from "./client_card.js";
import { createExplain } from "./client_explain.js";
import { createSummary, unknown } from "./client_summary.js";
import { isLimited, isStored, keyText, limitRank, shownPart } from "./client_text.js";

export const TITLE = "Client";

/** The time between two looks at the buckets, in milliseconds. */
const PERIOD = 1_000;
/** The rounds after which a bucket that the client hasn't used is looked at again. */
const IDLE = 10;
/** The lookups of a search that are under way at once. */
const AT_ONCE = 4;
/** An id that logs have in place of a key: it leads to none, and the API says where keys are. */
const ID = /^k_[\da-f]{16}$/;

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
    stop = watch({ session, figures, summary, explain, problem, container: cards }, kinds[last.kind], last.values, policy);
  };
  const choose = () => {
    const place = Number(kind.value);
    fields.replaceChildren(...inputs(kinds[place], place === last.kind ? last.values : []));
  };
  kind.addEventListener("change", choose);
  main.append(
    element("h1", {}, TITLE),
    element("form", { class: "row search", onsubmit: search }, field("Key", kind), fields, element("button", { class: "primary" }, "Show buckets")),
    element("p", { class: "small soft" }, "Keys are secrets: they are neither logged nor kept in the address."),
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
 * The different keys of all policies, with the policies that have each, after a search among all that a
 * single value can be. A constant has no value. The name of a client also names its keys by columns (`byName`).
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
    if (isOfClients(parts) && parts.join() !== "client") {
      add(["client"], "byName", name);
    }
  }
  const all = [...kinds.values()];
  const any = { parts: ["any key"], policies: [], byName: [], isAny: true, hasOthers: all.some(({ parts }) => parts.length > 1) };
  return all.some(({ parts }) => parts.length === 1) ? [any, ...all] : all;
}

/** True if the name of a client tells all parts of its key. */
function isOfClients(parts) {
  return parts.length > 0 && parts.every((part) => /^client(:|$)/.test(part));
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
  return part === "any key" ? "client, key or address" : part.startsWith("client_ip") ? "192.0.2.7 or 2001:db8::7" : "";
}

function readValues(fields) {
  return [...fields.querySelectorAll("input")].map(readPart);
}

/** The part that an input was filled with, or the text that was typed instead, to the byte. */
function readPart(input) {
  const part = parts.get(input);
  return input.value === shownPart(part) ? part : input.value;
}

/** A key of a policy, for its card. */
function subject({ name: policy, key, algorithm }, of) {
  return { policy, key: of, parts: key.filter((part) => part !== "constant"), algorithm };
}

/** The keys that a kind has with these values. */
function subjectsOf(kind, values, policies) {
  const key = values.length === 1 && typeof values[0] === "string" ? values[0] : values;
  const of = (names, some) => policies.filter(({ name }) => names.includes(name)).map((policy) => subject(policy, some));
  return [...of(kind.policies, key), ...of(kind.byName, { client: values[0] })];
}

/** All keys that a text can be: a client's name, the only part, or the address of a client without a key. */
function candidates(policies, text) {
  const isAddress = /^[\da-f.:]*[.:][\da-f.:]*$/i.test(text);
  return policies.flatMap((policy) => {
    const [part, ...more] = policy.key.filter((one) => one !== "constant");
    const isAlone = part !== undefined && more.length === 0;
    const isOfAddress = isAlone && part.startsWith("client_ip");
    const keys = [isOfClients(policy.key) && { client: text }, isAlone && part !== "client" && (isAddress || !isOfAddress) && text, isAlone && isAddress && !isOfAddress && [{ client_ip: text }]];
    return keys.filter(Boolean).map((key) => subject(policy, key));
  });
}

/**
 * Looks once at each key that a text can be, a few at a time, and answers with those of which something is
 * known and those whose store does not answer. A text that can't be a key of a policy is no error.
 */
async function find(session, policies, text, isWanted) {
  const look = ({ policy, key }) => session.post("/v1/keys/lookup", { policy, key });
  const all = candidates(policies.filter(({ routes }) => routes.length > 0), text);
  const named = all.find(({ key }) => key.client);
  const isClient = named !== undefined && (await look(named).then(() => true, ({ status }) => status !== 422));
  const subjects = all.filter(({ key }) => isClient || !key.client);
  const found = new Map();
  let hint = null;
  for (let place = 0; place < subjects.length && isWanted(); place += AT_ONCE) {
    const some = subjects.slice(place, place + AT_ONCE);
    const looks = await Promise.allSettled(some.map(look));
    looks.forEach(({ value: state, reason }, number) => {
      const one = some[number];
      if (state ? isStored(state) : reason.status !== 422) {
        found.set(`${one.policy} ${state?.key_id}`, one);
      } else if (reason && ID.test(one.key)) {
        hint = reason;
      }
    });
  }
  return { subjects: [...found.values()], isClient, hint };
}

/** Shows the buckets of a key, and looks again every second. `policy` is the one that another page showed. */
function watch(page, kind, values, policy) {
  const { figures, summary, container, problem, session, explain } = page;
  const who = keyText(values);
  let [cards, round, end, isEnded] = [[], 0, () => {}, false];
  const look = async () => {
    const due = cards.filter((card) => round % IDLE === 0 || card.state()?.stored !== false);
    const looks = await Promise.allSettled(due.map((card) => card.look()));
    problem.show(problemOf(looks, due, cards.length));
    summary.show();
    round += 1;
    // Cards then keep their order: a button must not move from under the pointer.
    if (round === 1) {
      cards.sort((left, right) => urgency(right, policy) - urgency(left, policy));
      container.append(...cards.map(({ node }) => node));
      if (policy !== null) {
        summary.focus();
      }
    }
  };
  const begin = async () => {
    const { subjects, isClient, hint } = kind.isAny ? await find(session, figures.policies, values[0], () => !isEnded) : { subjects: subjectsOf(kind, values, figures.policies) };
    if (isEnded) {
      return;
    }
    explain.suggest(isClient ? [{ key: { client: values[0] } }] : subjects);
    if (subjects.length === 0) {
      summary.tell(isClient ? `${who} is a known client, and has no bucket, ban or grant now.` : unknown(who), kind.hasOthers ? "Keys with several parts are found if you choose them." : "");
      problem.show(hint);
      return;
    }
    cards = subjects.map((one) => createCard(page, one));
    container.append(...cards.map(({ node }) => node));
    summary.follow(who, cards);
    end = repeat(look, PERIOD);
  };
  container.replaceChildren();
  problem.show(null);
  summary.tell(kind.isAny ? `Looking for ${who}\u00a0…` : "");
  begin();
  return () => {
    isEnded = true;
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

/** Orders cards: policies that limit, the one that was chosen, others by the used share, and last those that can't limit. */
function urgency(card, policy) {
  const state = card.state();
  if (!state) {
    return -3;
  }
  if (state.mode !== "enforce") {
    return usedShare(state.cell) - 2;
  }
  if (isLimited(state)) {
    return 3 + limitRank(state);
  }
  return card.subject.policy === policy ? 2 : state.stored ? usedShare(state.cell) : -0.5;
}

// One client: all its buckets as they are now, and what an operator can do for it.

import { element, field, setText } from "../../dom.js";
import { problemLine, repeat } from "../parts.js";
import { createCard } from "./client_card.js";
import { createExplain } from "./client_explain.js";
import { createSummary } from "./client_summary.js";
import { isKnown, keyText, partsOf, shownPart } from "./client_text.js";

export const TITLE = "Client";

/** The time between two looks at the buckets, in milliseconds. */
const PERIOD = 1_000;
/** A search in all policies for what a text can be. */
const ANY = { parts: ["any key"] };
/** Texts that explanations of requests take as the address they come from. */
const ADDRESS = /^[\da-f.:]*[.:][\da-f.:]*$/i;

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
  const search = (event) => {
    event?.preventDefault();
    stop();
    last = { kind: Number(kind.value), values: Array.from(fields.querySelectorAll("input"), readPart) };
    stop = watch({ session, figures, summary, explain, problem, cards }, kinds[last.kind], last.values, !event);
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
    const place = kinds.findIndex(({ policies: names }) => names?.includes(policy));
    if (place >= 0) {
      last = { kind: place, values };
    }
    kind.replaceChildren(...kinds.map(({ parts }, number) => element("option", { value: number, selected: number === last.kind }, parts.join(" + ") || "constant: one bucket for all clients")));
    choose();
    if (place >= 0) {
      chosen = null;
      search();
    }
  });
  return () => {
    stop();
    forget();
  };
}

/** The different keys of all policies, with the policies that have each, after a search among all. */
function keyKinds(policies) {
  const groups = Map.groupBy(policies, ({ key }) => partsOf(key).join("\n"));
  const kinds = Array.from(groups.values(), (some) => ({ parts: partsOf(some[0].key), policies: some.map(({ name }) => name) }));
  return kinds.some(({ parts }) => parts.length === 1) ? [ANY, ...kinds] : kinds;
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

/** The part that an input was filled with, or the text that was typed instead, to the byte. */
function readPart(input) {
  const part = parts.get(input);
  return input.value === shownPart(part) ? part : input.value;
}

/** Shows the buckets of a key, and looks again every second. With `isChosen`, the headline gets the focus. */
function watch({ figures, summary, cards: container, problem, session, explain }, kind, values, isChosen) {
  const who = keyText(values);
  const [text, isAny] = [values.length === 1 ? values[0] : null, kind === ANY];
  // A change of a key by any text or a client's name has that in its event.
  const isWhole = typeof text === "string" || ["any", "client"].some((name) => name in (text ?? {}));
  const key = isAny ? { any: text } : isWhole ? text : values;
  const find = (policies) => session.post("/v1/keys/find", { key, policies });
  let [end, isEnded] = [() => {}, false];
  const begin = async () => {
    const found = await find(kind?.policies);
    if (isEnded) {
      return;
    }
    const items = found.items.filter((item) => !isAny || isKnown(item));
    const subjects = items.map(({ policy }) => {
      const { key: parts = [], algorithm } = figures.policies.find(({ name }) => name === policy) ?? {};
      return { policy, key, parts: partsOf(parts), algorithm };
    });
    const cards = subjects.map((subject) => createCard(session, figures, subject, () => end.again()));
    cards.forEach((card) => card.show(found.items));
    container.append(...cards.map(({ node }) => node));
    const told = subjects.flatMap(({ parts }) => parts.map((part, place) => [part, values[place]]));
    const meaning = found.is_client ? "client" : ADDRESS.test(text) && "client_ip";
    explain.suggest(isAny && meaning ? [[meaning, text]] : told);
    summary.show(who, found);
    if (isChosen) {
      summary.focus();
    }
    // Cards keep their order: a button must not move from under the pointer. Stores that don't answer are
    // read out here, and shown by their cards.
    const look = async () => {
      const next = await find(subjects.map(({ policy }) => policy));
      if (isEnded) {
        return;
      }
      cards.forEach((card) => card.show(next.items));
      summary.show(who, next);
      const failed = next.items.filter((item) => item.problem !== null);
      if (failed.length > 0) {
        throw new Error(`${failed.map(({ policy }) => policy).join(", ")}: ${failed[0].problem}`);
      }
    };
    end = cards.length > 0 ? repeat(look, PERIOD, problem.show) : end;
  };
  container.replaceChildren();
  problem.show(null);
  summary.node.hidden = true;
  begin().catch((failure) => isEnded || problem.show(failure));
  return () => {
    isEnded = true;
    end();
  };
}

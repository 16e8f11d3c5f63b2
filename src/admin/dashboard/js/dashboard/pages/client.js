// One client: all its buckets as they are now, and what an operator can do for it.

import { element, setText } from "../../dom.js";
import { problemLine, repeat } from "../parts.js";
import { createCard } from "./client_card.js";

export const TITLE = "Client";

/** The time between two looks at the buckets, in milliseconds. */
const PERIOD = 1_000;

/** Key texts stay in this tab's memory: they are secrets, and no part of an address. */
let last = { kind: 0, values: [] };

export function show(main, { figures, session }) {
  const fields = element("fieldset");
  const kind = element("select", { id: "kind" });
  const problem = problemLine();
  const cards = element("div", { class: "cards" });
  let kinds = [];
  let stop = () => {};
  const search = (event) => {
    event?.preventDefault();
    stop();
    last = { kind: Number(kind.value), values: readValues(fields) };
    stop = watch({ session, figures }, kinds[last.kind], last.values, cards, problem);
  };
  const choose = () => fields.replaceChildren(...inputs(kinds[Number(kind.value)], last));
  kind.addEventListener("change", choose);
  main.append(
    element("h1", {}, TITLE),
    element("form", { class: "search", onsubmit: search }, element("label", { class: "field" }, "Key", kind), fields, element("button", { class: "primary" }, "Show buckets")),
    element("p", { class: "small soft" }, "Buckets are looked at once a second; in between, drawings run on as if no request came. Keys are secrets: they are neither logged nor kept in the address."),
    problem.node,
    cards,
  );
  const forget = figures.listen(({ policies }) => {
    const found = keyKinds(policies);
    if (JSON.stringify(found) !== JSON.stringify(kinds)) {
      kinds = found;
      kind.replaceChildren(...kinds.map(({ parts }, place) => element("option", { value: place, selected: place === last.kind }, parts.join(" + "))));
      choose();
    }
  });
  return () => {
    stop();
    forget();
  };
}

/** The different keys of all policies, with the policies that have each. */
function keyKinds(policies) {
  const kinds = new Map();
  for (const { name, key } of policies) {
    const text = key.join("\n");
    kinds.set(text, { parts: key, policies: [...(kinds.get(text)?.policies ?? []), name] });
  }
  return [...kinds.values()];
}

function inputs(kind, { values }) {
  return (kind?.parts ?? []).map((part, place) =>
    element("label", { class: "field" }, part, element("input", { value: values[place] ?? "", required: true, autocomplete: "off", spellcheck: "false", placeholder: example(part) })),
  );
}

function example(part) {
  return part.startsWith("client_ip") ? "192.0.2.7 or 2001:db8::7" : "";
}

function readValues(fields) {
  return [...fields.querySelectorAll("input")].map((input) => input.value.trim());
}

/** Shows the buckets of a key, and looks again every second. */
function watch({ session, figures }, kind, values, container, problem) {
  container.replaceChildren();
  const key = values.length === 1 ? values[0] : values;
  const modeOf = (policy) => () => figures.policies.find(({ name }) => name === policy)?.mode.current;
  const subjects = (kind?.policies ?? []).map((policy) => ({ policy, key, parts: kind.parts, mode: modeOf(policy) }));
  const cards = subjects.map((subject) => createCard(session, subject));
  container.append(...cards.map(({ node }) => node));
  const look = async () => {
    await Promise.all(cards.map((card) => card.look()));
    problem.show(null);
  };
  const end = repeat(look, PERIOD, (error) => problem.show(error));
  return () => {
    end();
    cards.forEach((card) => card.end());
  };
}

// What happened in the last hour: bans, changes by operators, reloads, ejections.

import { element } from "../../dom.js";
import { instant, number, timeOfDay } from "../../format.js";
import { table } from "../parts.js";
import { href } from "../router.js";

export const TITLE = "Events";

const KINDS = { all: "all", change: "changes by operators", ban: "bans by penalties", reload: "reloads", ejection: "ejections" };

export function show(main, { figures }) {
  const search = element("input", { type: "search", "aria-label": "Search events", placeholder: "Policy, key id, operator, reason" });
  const kind = element("select", {}, ...Object.entries(KINDS).map(([value, text]) => element("option", { value }, text)));
  const all = table("Events of the last hour, the newest first", [["When"], ["What"], ["Policy or upstream"], ["Key"], ["Units", "number"], ["Until"], ["Operator"], ["Reason"]]);
  const fill = () => {
    const text = search.value.trim().toLowerCase();
    const wanted = figures.events.all.filter(({ name, id }) => (kind.value === "all" || name === kind.value) && id.toLowerCase().includes(text));
    all.fill(wanted.map(row), "No event is like that.");
  };
  [search, kind].forEach((one) => one.addEventListener("input", fill));
  main.append(element("h1", {}, TITLE), element("div", { class: "row" }, search, element("label", { class: "inline" }, "Show", kind)), all.node);
  return figures.listen(fill);
}

function row({ id, event, text }) {
  const { at, policy, upstream, key_id: key, units = null, until, actor, reason } = event;
  const place = policy ? element("a", { href: href("policies", policy) }, policy) : (upstream ?? "");
  const cells = [timeOfDay(at), text, place, key ?? "", units === null ? "" : number(units), until ? instant(until) : "", actor ?? "", reason ?? ""];
  return { key: id, cells };
}

// What happened in the last hour: problems, bans, changes by operators, reloads, ejections.

import { element, select } from "../../dom.js";
import { moment, number, timeOfDay } from "../../format.js";
import { finder, policyLink, table } from "../parts.js";
import { clientCell } from "./offenders.js";

export const TITLE = "Events";

const KINDS = { all: "all", problem: "problems", change: "changes by operators", ban: "bans by penalties", reload: "reloads", upgrade: "upgrades", ejection: "ejections" };

export function show(main, { figures }) {
  const kind = select(KINDS);
  const all = table("Events of the last hour, the newest first", [["When"], ["What"], ["Policy or upstream"], ["Key"], ["Units", "number"], ["Until"], ["Operator"], ["Reason"]]);
  const find = finder("events", "Policy, client, key, operator, reason", (isWanted) => {
    const known = figures.events.all;
    const wanted = known.filter(({ name, id }) => (kind.value === "all" || name === kind.value) && isWanted(id));
    all.fill(wanted.map(row), "No event is like that.");
    return [wanted.length, known.length];
  }, { Show: kind });
  main.append(element("h1", {}, TITLE), find.node, all.node);
  return figures.listen(find.show, false);
}

function row({ id, name, event, text }) {
  const { at, policy, upstream, key_id: key, units = null, until, actor, reason } = event;
  const place = policy ? policyLink(policy) : (upstream ?? "");
  const cells = [timeOfDay(at), text, place, key ? clientCell(event) : "", units === null ? "" : number(units), until ? moment(until) : "", actor ?? "", (name === "change" && reason) || ""];
  return { key: id, cells };
}

// What happened in the last hour: problems, bans, changes by operators, reloads, ejections.

import { eventsOf } from "../../api.js";
import { button, element, select, setText } from "../../dom.js";
import { duration, moment, number, timeOfDay } from "../../format.js";
import { finder, policyLink, table } from "../parts.js";
import { clientCell } from "./offenders.js";

export const TITLE = "Events";

const KINDS = { all: "all", problem: "problems", change: "changes by operators", ban: "bans by penalties", reload: "reloads", upgrade: "upgrades", ejection: "ejections" };

/** The time for which refusals are watched, in seconds. */
const WATCHED = 10;

export function show(main, { figures, session }) {
  const kind = select(KINDS);
  const all = table("Events of the last hour, the newest first", [["When"], ["What"], ["Policy or upstream"], ["Key"], ["Units", "number"], ["Until"], ["Operator"], ["Reason"]]);
  const find = finder("events", "Policy, client, key, operator, reason", (isWanted) => {
    const known = figures.events.all;
    const wanted = known.filter(({ name, id }) => (kind.value === "all" || name === kind.value) && isWanted(id));
    all.fill(wanted.map(row), "No event is like that.");
    return [wanted.length, known.length];
  }, { Show: kind });
  main.append(element("h1", {}, TITLE), refusals(session), find.node, all.node);
  return figures.listen(find.show, false);
}

/** A sample of refused requests, which a stream tells while somebody wants to see them. */
function refusals(session) {
  const shown = table("Refused requests", [["When"], ["Client"], ["Policy"], ["Route"], ["May retry after", "number"]]);
  shown.node.hidden = true;
  const said = element("p", { class: "small soft", role: "status" });
  const watch = async () => {
    start.disabled = true;
    setText(said, "Watching …");
    const answer = await session.get(`/v1/events?seconds=${WATCHED}`).catch((problem) => problem);
    const found = typeof answer === "string" ? eventsOf(answer).filter(([name]) => name === "refusal").map(([, event]) => event) : [];
    const omitted = found.reduce((sum, event) => sum + event.omitted, 0);
    setText(said, answer.message ?? `${number(found.length)} shown, ${number(omitted)} not.`);
    shown.fill(found.reverse().map(refusalRow), "No request was refused.");
    shown.node.hidden = start.disabled = false;
  };
  const start = button(`Watch refusals for ${WATCHED}\u00a0s`, watch);
  return element("div", { class: "stack" }, element("div", { class: "row" }, start, said), shown.node);
}

function refusalRow(event, place) {
  const { at, policy, route, key_id: id, retry_after_s: wait, banned } = event;
  const client = id === null ? "–" : clientCell(event);
  const retry = wait === null ? "never" : duration(wait * 1_000);
  return { key: `${place} ${at}`, cells: [timeOfDay(at), client, policyLink(policy), route, banned ? `${retry}, banned` : retry] };
}

function row({ id, name, event, text }) {
  const { at, policy, upstream, key_id: key, units = null, until, actor, reason } = event;
  const place = policy ? policyLink(policy) : (upstream ?? "");
  const cells = [timeOfDay(at), text, place, key ? clientCell(event) : "", units === null ? "" : number(units), until ? moment(until) : "", actor ?? "", (name === "change" && reason) || ""];
  return { key: id, cells };
}

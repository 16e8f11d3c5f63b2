// What happened in the last hour: problems, bans, changes by operators, reloads, ejections.

import { eventsOf } from "../../api.js";
import { button, element, setText } from "../../dom.js";
import { duration, moment, number, timeOfDay } from "../../format.js";
import { finder, POLICY, policyLink, table } from "../parts.js";
import { clientCell } from "./offenders.js";

export const TITLE = "Events";

const NAMES = { problem: "problems", change: "changes by operators", ban: "bans by penalties", reload: "reloads", upgrade: "upgrades", ejection: "ejections" };
const KINDS = { all: { title: "all" }, ...Object.fromEntries(Object.entries(NAMES).map(([kind, title]) => [kind, { title, is: ({ name }) => name === kind }])) };

/** The time for which refusals are watched, in seconds. */
const WATCHED = 10;

export function show(main, { figures, session }) {
  const all = table("Events of the last hour, the newest first", COLUMNS, ({ id }) => id);
  const fill = (wanted) => all.fill(wanted, "No event is like that.");
  const find = finder("events", "Policy, client, key, operator, reason", ({ id }) => [id], { Show: KINDS }, fill);
  main.append(element("h1", {}, TITLE), refusals(session), find.node, all.node);
  return figures.listen(({ events }) => find.show(events.all), false);
}

const COLUMNS = [
  ["When", ({ event }) => timeOfDay(event.at)],
  ["What", ({ text }) => text],
  ["Policy or upstream", ({ event }) => subjectCell({ ...event.labels, ...event })],
  ["Key", ({ event }) => (event.key_id ? clientCell(event) : "")],
  ["Units", ({ event: { units = null } }) => (units === null ? "" : number(units)), "number"],
  ["Until", ({ event: { until } }) => (until ? moment(until) : "")],
  ["Operator", ({ event: { actor } }) => actor ?? ""],
  ["Reason", ({ name, event: { reason } }) => (name === "change" && reason) || ""],
];

function subjectCell({ policy, upstream = "" }) {
  return policy ? policyLink(policy) : upstream;
}

/** A sample of refused requests, which a stream tells while somebody wants to see them. */
function refusals(session) {
  const shown = table("Refused requests", [
    ["When", ({ at }) => timeOfDay(at)],
    ["Client", (event) => (event.key_id === null ? "–" : clientCell(event))],
    POLICY,
    ["Route", ({ route }) => route],
    ["May retry after", retryText, "number"],
  ], ({ at, place }) => `${place} ${at}`);
  shown.node.hidden = true;
  const said = element("p", { class: "small soft", role: "status" });
  const watch = async () => {
    start.disabled = true;
    setText(said, "Watching …");
    const answer = await session.get(`/v1/events?seconds=${WATCHED}`).catch((problem) => problem);
    const found = typeof answer === "string" ? eventsOf(answer).filter(([name]) => name === "refusal").map(([, event]) => event) : [];
    const omitted = found.reduce((sum, event) => sum + event.omitted, 0);
    setText(said, answer.message ?? `${number(found.length)} shown, ${number(omitted)} not.`);
    shown.fill(found.reverse().map((event, place) => ({ ...event, place })), "No request was refused.");
    shown.node.hidden = start.disabled = false;
  };
  const start = button(`Watch refusals for ${WATCHED}\u00a0s`, watch);
  return element("div", { class: "stack" }, element("div", { class: "row" }, start, said), shown.node);
}

function retryText({ retry_after_s: wait, banned }) {
  const retry = wait === null ? "never" : duration(wait * 1_000);
  return banned ? `${retry}, banned` : retry;
}

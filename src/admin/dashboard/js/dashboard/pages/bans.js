// The bans and grants of operators that are in force, each with a button that ends it.

import { button, element, setText } from "../../dom.js";
import { count, moment, number } from "../../format.js";
import { actButton, revoke, unban } from "../acts.js";
import { policyLink, problemLine, repeat, section, table } from "../parts.js";
import { clientCell } from "./offenders.js";

export const TITLE = "Bans and grants";

const PERIOD = 5_000;
const MOST = 100;

export function show(main, { session, figures }) {
  const problem = problemLine();
  const total = element("span");
  const list = table("Bans and grants of operators", [["Key"], ["Policy"], ["What"], ["Since"], ["Until"], ["By"], ["Reason"], [""]]);
  const penalties = table("Bans by penalties", [["Client"], ["Policy"], ["Since"], ["Until"], [""]]);
  // The places at which the pages up to the shown one begin.
  let places = [null];
  const look = async () => {
    const after = places.at(-1) === null ? "" : `&after=${encodeURIComponent(places.at(-1))}`;
    const page = await session.get(`/v1/keys?limit=${MOST}${after}`);
    const first = (places.length - 1) * MOST;
    setText(total, page.total > MOST ? `${number(first + 1)} to ${number(first + page.items.length)} of ${number(page.total)}` : count(page.total, "entry", "entries"));
    next.hidden = page.next === null;
    newest.hidden = places.length === 1;
    next.value = page.next ?? "";
    list.fill(page.items.map((item) => row(session, item, end.again)), "No ban or grant by an operator is in force.");
  };
  const turn = (to) => {
    places = to;
    end.again();
  };
  const newest = button("Newest", () => turn([null]), { hidden: true });
  const next = button("Older", () => turn([...places, next.value]), { hidden: true });
  main.append(
    element("h1", {}, TITLE),
    element("p", { class: "small soft" }, "What operators have done to single keys, the newest first. Keys are secrets: they are shown as hashes, as in the logs (of policies in memory)."),
    problem.node,
    element("div", { class: "row" }, total, newest, next),
    list.node,
    section("Bans by penalties, of the last hour", penalties.node),
  );
  const ends = [
    repeat(look, PERIOD, problem.show),
    figures.listen(({ events }) => penalties.fill(penaltyBans(events.all).map((event) => penaltyRow(session, event)), "None is in force."), false),
  ];
  const [end] = ends;
  return () => ends.forEach((one) => one());
}

/** The bans that no operator has ended, the newest of each key. */
function penaltyBans(events) {
  const newest = new Map();
  const ofKeys = events.filter(({ name, event: { action } }) => name === "ban" || action === "unban");
  ofKeys.reverse().forEach(({ name, event }) => newest.set(`${event.policy} ${event.key_id}`, name === "ban" ? event : null));
  return [...newest.values()].filter((event) => event && Date.parse(event.until) > Date.now()).reverse();
}

function penaltyRow(session, event) {
  const { policy, key, at, until } = event;
  const lift = key === null ? "key not shown" : actButton(session, "Unban", unban({ policy, key }));
  return { key: `${policy} ${event.key_id} ${at}`, cells: [clientCell(event), policyLink(policy), moment(at), moment(until), lift] };
}

function row(session, item, made) {
  const { policy, id, what, since, until, actor, reason } = item;
  const change = revoke(item);
  const cells = [id, policyLink(policy), whatText(item), moment(since), moment(until), actor || "–", reason || "–", actButton(session, change.action, change, made)];
  return { key: `${policy} ${id} ${what}`, cells };
}

function whatText({ what, units, of_units: all }) {
  if (what === "ban") {
    return "ban";
  }
  return units === null ? `grant of ${count(all, "unit")}` : `grant, ${number(units)} of ${count(all, "unit")} left`;
}

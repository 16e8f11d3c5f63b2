// The bans and grants of operators that are in force, and the bans by penalties of the last hour, each with a
// button that ends it.

import { element } from "../../dom.js";
import { count, moment, number } from "../../format.js";
import { actButton, revoke, unban } from "../acts.js";
import { finder, lookingPage, POLICY, section, table } from "../parts.js";
import { clientCell } from "./offenders.js";

export const TITLE = "Bans and grants";

const PERIOD = 5_000;
const MOST = 1_000;

export function show(main, { session, figures }) {
  // One with another end is another button: it says what it ends.
  const endButton = ({ until }, change) => actButton(session, change.action, change, () => stop.again(), { "data-until": until });
  const list = table("Bans and grants of operators", [
    ["Key", ({ id }) => id],
    POLICY,
    ["What", whatText],
    ["Since", ({ since }) => moment(since)],
    ["Until", ({ until }) => moment(until)],
    ["By", ({ actor }) => actor || "–"],
    ["Reason", ({ reason }) => reason || "–"],
    ["", (item) => endButton(item, revoke(item))],
  ], ({ policy, id, what }) => `${policy} ${id} ${what}`);
  const texts = ({ id, policy, what, actor, reason }) => [id, policy, what, actor ?? "", reason ?? ""];
  let total = 0;
  const fill = (wanted) => list.fill(wanted, total > 0 ? "No entry is like that." : "No ban or grant by an operator is in force.");
  const find = finder("entries", "Key, policy, operator or reason", texts, {}, fill);
  const look = async () => {
    const page = await session.get(`/v1/keys?limit=${MOST}`);
    total = page.total;
    find.show(page.items, total);
  };
  const note = element("p", { class: "small soft" }, `What operators have done to single keys, the newest first, at most ${number(MOST)} of them. Keys are secrets: they are shown as hashes, as in the logs (of policies in memory).`);
  const penalties = table("Bans by penalties", [
    ["Client", clientCell],
    POLICY,
    ["Since", ({ at }) => moment(at)],
    ["Until", ({ until }) => moment(until)],
    ["", ({ policy, key }) => (key === null ? "key not shown" : actButton(session, "Unban", unban({ policy, key })))],
  ], ({ policy, key_id: id, at }) => `${policy} ${id} ${at}`);
  const below = section("Bans by penalties, of the last hour", penalties.node);
  const stop = lookingPage(main, TITLE, look, PERIOD, note, find.node, list.node, below);
  const forget = figures.listen(({ events }) => penalties.fill(penaltyBans(events.all), "None is in force."), false);
  return () => [stop, forget].forEach((one) => one());
}

/** The bans that no operator has ended, the newest of each key. */
function penaltyBans(events) {
  const ofKeys = events.filter(({ name, event: { action } }) => name === "ban" || action === "unban");
  const newest = Map.groupBy(ofKeys, ({ event }) => `${event.policy} ${event.key_id}`);
  return [...newest.values()].flatMap(([{ name, event }]) => (name === "ban" && Date.parse(event.until) > Date.now() ? [event] : []));
}

function whatText({ what, units, of_units: all }) {
  if (what === "ban") {
    return "ban";
  }
  return units === null ? `grant of ${count(all, "unit")}` : `grant, ${number(units)} of ${count(all, "unit")} left`;
}

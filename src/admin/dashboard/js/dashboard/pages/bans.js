// The bans and grants of operators that are in force, each with a button that ends it.

import { button, element, setText } from "../../dom.js";
import { count, moment, number } from "../../format.js";
import { actButton, revoke } from "../acts.js";
import { policyLink, problemLine, repeat, table } from "../parts.js";

export const TITLE = "Bans and grants";

const PERIOD = 5_000;
const MOST = 100;

export function show(main, { session }) {
  const problem = problemLine();
  const total = element("span");
  const list = table("Bans and grants of operators", [["Key"], ["Policy"], ["What"], ["Since"], ["Until"], ["By"], ["Reason"], [""]]);
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
    element("p", { class: "small soft" }, "What operators have done to single keys, the newest first. Keys are secrets: they are shown as hashes, as in the logs (of policies in memory). Bans by penalties aren't listed."),
    problem.node,
    element("div", { class: "row" }, total, newest, next),
    list.node,
  );
  const end = repeat(look, PERIOD, problem.show);
  return end;
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

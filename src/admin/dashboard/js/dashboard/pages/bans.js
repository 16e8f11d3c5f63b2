// The bans and grants of operators that are in force, each with a button that ends it.

import { element, setText } from "../../dom.js";
import { count, instant, number } from "../../format.js";
import { confirmChange, reasonField } from "../dialog.js";
import { problemLine, repeat, table } from "../parts.js";
import { href } from "../router.js";

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
    problem.show(null);
    const first = (places.length - 1) * MOST;
    setText(total, page.total > MOST ? `${number(first + 1)} to ${number(first + page.items.length)} of ${number(page.total)}` : count(page.total, "entry", "entries"));
    next.hidden = page.next === null;
    newest.hidden = places.length === 1;
    next.value = page.next ?? "";
    list.fill(page.items.map((item) => row(session, item, look)), "No ban or grant by an operator is in force.");
  };
  const turn = (to) => {
    places = to;
    look().catch((error) => problem.show(error));
  };
  const newest = element("button", { type: "button", hidden: true, onclick: () => turn([null]) }, "Newest");
  const next = element("button", { type: "button", hidden: true, onclick: () => turn([...places, next.value]) }, "Older");
  main.append(
    element("h1", {}, TITLE),
    element("p", { class: "small soft" }, "What operators have done to single keys, the newest first. Keys are secrets: they are shown as hashes, as in the logs (of policies in memory). Bans by penalties aren't listed."),
    problem.node,
    element("div", { class: "row" }, total, newest, next),
    list.node,
  );
  return repeat(look, PERIOD, (error) => problem.show(error));
}

function row(session, item, look) {
  const { policy, id, what, since, until, actor, reason } = item;
  const cells = [id, element("a", { href: href("policies", policy) }, policy), whatText(item), instant(since), instant(until), actor || "–", reason || "–", revokeButton(session, item, look)];
  return { key: `${policy} ${id} ${what}`, cells };
}

function whatText({ what, units, of_units: all }) {
  if (what === "ban") {
    return "ban";
  }
  return units === null ? `grant of ${count(all, "unit")}` : `grant, ${number(units)} of ${count(all, "unit")} left`;
}

/** A button that lifts a ban or takes a grant back, after a question. */
function revokeButton(session, item, look) {
  const { policy, id, what } = item;
  const [action, text] = what === "ban" ? ["Lift", "The policy's bucket decides about the client again."] : ["Take back", "What is left of the grant can't be spent any more."];
  const title = `${action} the ${what} of ${id} on ${policy}`;
  const ask = async () => {
    const send = (reason, isDry) => session.post("/v1/keys/revoke", { policy, id, what, reason: reason || null, dry_run: isDry });
    const isDone = await confirmChange({
      title,
      text,
      fields: { reason: reasonField() },
      action,
      preview: async ({ reason }) => {
        const { revoked } = await send(reason, true);
        return [element("p", {}, `Ends now instead of ${instant(revoked.until)}.`)];
      },
      apply: ({ reason }) => send(reason, false),
    });
    if (isDone) {
      await look();
    }
  };
  return element("button", { type: "button", "aria-label": title, onclick: ask }, `${action} …`);
}

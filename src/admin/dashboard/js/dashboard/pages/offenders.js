// The clients that are limited most, and a ban from the row.

import { element } from "../../dom.js";
import { number } from "../../format.js";
import { problemLine, repeat, table } from "../parts.js";
import { ban } from "./client_changes.js";

export const TITLE = "Offenders";

const PERIOD = 2_000;
const MOST = 50;
const ORDERS = { limited: "Limited requests", busiest: "All requests", units: "Units" };
const WINDOWS = { "1m": "1 minute", "5m": "5 minutes", "15m": "15 minutes" };

export function show(main, { session }) {
  const [by, window] = [choice(ORDERS), choice(WINDOWS)];
  const problem = problemLine();
  const top = table("Clients, the first by the chosen order first", [
    ["Client"],
    ["Policy"],
    ["Requests", "number"],
    ["Limited", "number"],
    ["Units", "number"],
    ["Error at most", "number"],
    [""],
  ]);
  const counted = element("p", { class: "small soft" });
  let latest = "";
  const look = async () => {
    const answer = await session.get(`/v1/top?by=${by.value}&window=${window.value}&limit=${MOST}`);
    problem.show(null);
    counted.textContent = `Counted for ${number(Math.round(answer.counted_s))} s. Requests and units are counted only while somebody asks for them.`;
    // A row that stays keeps the focus on its button.
    const text = JSON.stringify(answer.items);
    if (text !== latest) {
      latest = text;
      top.fill(answer.items.map((item) => row(session, item)), "No client has been counted.");
    }
  };
  const failed = (error) => problem.show(error);
  main.append(
    element("h1", {}, TITLE),
    element("label", { class: "inline" }, "Order by", by),
    element("label", { class: "inline" }, "Last", window),
    counted,
    element("p", { class: "small soft" }, "Counts are estimates of a bounded sketch: the ordering one is wrong by at most its error. Unless admin.keys is readable, clients have their name of the logs, and are banned by sluicegate keys."),
    problem.node,
    top.node,
  );
  const end = repeat(look, PERIOD, failed);
  const again = () => look().catch(failed);
  by.addEventListener("change", again);
  window.addEventListener("change", again);
  return end;
}

function choice(words) {
  return element("select", {}, ...Object.entries(words).map(([value, text]) => element("option", { value }, text)));
}

function row(session, item) {
  const { key, key_id: id, policy, requests, limited, units, error_bound: error } = item;
  return [key === null ? id : keyText(key), policy, known(requests), known(limited), known(units), `±${number(error)}`, banButton(session, policy, key)];
}

function known(count) {
  return count === null ? "–" : number(count);
}

/** Parts that clients lack are in parentheses. */
function keyText(key) {
  const part = (one) => {
    if (one === null) {
      return "(missing)";
    }
    return typeof one === "string" ? one : Object.entries(one).map(([name, value]) => `(${name}) ${value}`).join(" ");
  };
  return [key].flat().map(part).join(", ");
}

/** A key that the server does not tell cannot be banned from here. */
function banButton(session, policy, key) {
  if (key === null) {
    return element("span", { class: "small soft" }, "key not shown");
  }
  return element("button", { type: "button", class: "danger", onclick: () => ban(session, { policy, key }) }, "Ban …");
}

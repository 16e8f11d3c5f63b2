// The clients that are limited most, and a ban from the row.

import { element } from "../../dom.js";
import { number } from "../../format.js";
import { problemLine, repeat, table } from "../parts.js";
import { ban } from "./client_changes.js";

export const TITLE = "Offenders";

const PERIOD = 2_000;
const MOST = 50;
const ORDERS = { limited: "Limited requests", busiest: "All requests", units: "Units" };

export function show(main, { session }) {
  const options = Object.entries(ORDERS).map(([value, text]) => element("option", { value }, text));
  const by = element("select", {}, ...options);
  const problem = problemLine();
  const top = table("Clients, the most limited first", [
    ["Client"],
    ["Policy"],
    ["Requests", "number"],
    ["Limited", "number"],
    ["Units", "number"],
    ["Error at most", "number"],
    [""],
  ]);
  const look = async () => {
    const { items } = await session.get(`/v1/top?by=${by.value}&limit=${MOST}`);
    problem.show(null);
    top.fill(items.map((item) => row(session, item)), "No client has been counted yet.");
  };
  main.append(
    element("h1", {}, TITLE),
    element("label", { class: "inline" }, "Order by", by),
    element("p", { class: "small soft" }, "Counts are estimates of a bounded sketch: each is too high by at most its error. Without admin.key_text, clients have the name of the logs."),
    problem.node,
    top.node,
  );
  const failed = (error) => problem.show(error.status === 404 ? { message: "This server does not count offenders." } : error);
  const end = repeat(look, PERIOD, failed);
  by.addEventListener("change", look);
  return end;
}

function row(session, item) {
  const { key, key_id: id, policy, requests, limited, units, error_bound: error } = item;
  const name = key === undefined || key === null ? id : [key].flat().join(", ");
  return [name, policy, number(requests), number(limited), number(units), `±${number(error)}`, banButton(session, policy, key)];
}

/** A key that the server does not tell cannot be banned from here. */
function banButton(session, policy, key) {
  if (key === undefined || key === null) {
    return element("span", { class: "small soft" }, "key not shown");
  }
  return element("button", { type: "button", class: "danger", onclick: () => ban(session, { policy, key }) }, "Ban …");
}

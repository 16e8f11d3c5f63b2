// The endpoints of upstreams: their addresses, their health, and draining.

import { element, select } from "../../dom.js";
import { duration, number, timeOfDay } from "../../format.js";
import { actButton, drain, readmit } from "../acts.js";
import { finder, problemLine, recentCells, repeat, table } from "../parts.js";

export const TITLE = "Upstreams";

const PERIOD = 2_000;
/** The addresses that are shown, by their states. */
const SHOWN = {
  all: { title: "all", is: () => true },
  failing: { title: "those that don’t work", is: (host) => !["available", "draining"].includes(host?.state) },
  draining: { title: "those that drain", is: (host) => host?.state === "draining" },
};

export function show(main, { session, figures }) {
  const problem = problemLine();
  const state = select(SHOWN);
  const all = table("Addresses of upstreams", [
    ["Upstream"],
    ["Endpoint"],
    ["State"],
    ["In flight now", "number"],
    ["Failures in a row", "number"],
    ["Weight", "number"],
    ["Requests", "number"],
    ["4xx", "number"],
    ["5xx", "number"],
    ["Median", "number"],
    ["99 % within", "number"],
    [""],
  ]);
  let rows = [];
  const find = finder("addresses", "Upstream, endpoint or state", (isNamed) => {
    const wanted = rows.filter(({ host, texts }) => SHOWN[state.value].is(host) && isNamed(...texts));
    all.fill(wanted, "No address is like that.");
    return [wanted.length, rows.length];
  }, { Show: state });
  const look = async () => {
    const { upstreams } = await session.get("/v1/upstreams");
    rows = upstreams.flatMap((upstream) => rowsOf(session, figures.events, upstream, end.again));
    find.show();
  };
  main.append(
    element("h1", {}, TITLE),
    find.node,
    element("p", { class: "small soft" }, "Requests and times are of all addresses of an upstream, over the last 10 to 20 s."),
    problem.node,
    all.node,
  );
  const end = repeat(look, PERIOD, problem.show);
  return end;
}

/** A row for each address of an upstream; the first has its rates. */
function rowsOf(session, events, { name, protocol, balance, endpoints, recent }, made) {
  const about = protocol === null ? "answers here" : `${protocol}, ${balance?.replaceAll("_", " ")}`;
  const addresses = endpoints.flatMap((endpoint) => (endpoint.hosts.length ? endpoint.hosts : [null]).map((host) => ({ endpoint, host })));
  return (addresses.length ? addresses : [{ endpoint: null, host: null }]).map(({ endpoint, host }, place) => ({
    key: `${name} ${endpoint?.endpoint} ${host?.address}`,
    host: host ?? (endpoint ? null : { state: "available" }),
    texts: [name, endpoint?.endpoint ?? "", host?.address ?? "", host?.state ?? ""],
    cells: [
      place === 0 ? lines(name, about) : name,
      endpoint ? lines(endpoint.endpoint, host?.address === endpoint.endpoint ? "" : (host?.address ?? "not resolved")) : "",
      host ? stateNode(host, events.all.filter(({ event }) => event.upstream === name && event.address === host.address)) : "",
      ...(host ? [number(host.in_flight), failuresCell(endpoint, host), number(endpoint.weight)] : ["", "", ""]),
      ...(place === 0 && protocol ? rates(recent) : ["", "", "", "", ""]),
      endpoint && endpoint.hosts.indexOf(host) <= 0 ? changes(session, name, endpoint, made) : "",
    ],
  }));
}

/** The 5xx stand out from the share on that is a problem. */
function rates(recent) {
  const cells = recentCells(recent);
  const isBad = recent?.["5xx_per_s"] > 0.05 * recent?.requests_per_s;
  return isBad ? cells.with(2, element("span", { class: "result failed" }, cells[2])) : cells;
}

/** Failures in a row; those of all addresses by reason are with the first one. */
function failuresCell({ failures, hosts }, host) {
  const reasons = Object.entries(failures).map(([reason, count]) => `${number(count)} ${reason.replaceAll("_", " ")}`);
  return reasons.length && hosts[0] === host ? lines(number(host.failures), `since the start: ${reasons.join(", ")}`) : number(host.failures);
}

function lines(text, below) {
  return element("div", {}, text, element("div", { class: "small soft" }, below));
}

function changes(session, upstream, { endpoint, draining, hosts }, made) {
  const both = [[draining ? "End draining" : "Drain", drain(upstream, endpoint, !draining)]];
  if (hosts.some(({ state }) => state === "ejected")) {
    both.push(["Readmit", readmit(upstream, endpoint)]);
  }
  return element("div", { class: "row" }, ...both.map(([text, change]) => actButton(session, text, change, made)));
}

/** The state, and since when if that was in the last hour. */
function stateNode({ state, text, for_s: rest }, events) {
  const again = rest === null ? "" : `; tried again in ${duration(Math.ceil(rest) * 1_000)}`;
  // A process that takes over tells the state once more.
  const before = events.findIndex(({ event }) => event.state !== state);
  const [first] = events.slice(0, before < 0 ? undefined : before).slice(-1);
  const since = first ? `, since ${timeOfDay(first.at)}` : "";
  return element("span", { class: `host ${state}` }, text + since + again);
}

// The endpoints of upstreams: their addresses, their health, and draining.

import { element } from "../../dom.js";
import { duration, number, timeOfDay } from "../../format.js";
import { actButton, drain, readmit } from "../acts.js";
import { finder, lookingPage, RECENT, table, twoLines } from "../parts.js";

export const TITLE = "Upstreams";

const PERIOD = 2_000;
/** The addresses that are shown, by their states. */
const SHOWN = {
  all: { title: "all" },
  failing: { title: "those that don’t work", is: ({ state }) => !["available", "draining"].includes(state) },
  draining: { title: "those that drain", is: ({ state }) => state === "draining" },
};

export function show(main, { session, figures }) {
  const all = table("Addresses of upstreams", columns(session, figures.events, () => end.again()), ({ key }) => key);
  const texts = ({ name, endpoint, address, state }) => [name, endpoint?.endpoint ?? "", address, state];
  const find = finder("addresses", "Upstream, endpoint or state", texts, { Show: SHOWN }, (wanted) => all.fill(wanted, "No address is like that."));
  const look = async () => find.show((await session.get("/v1/upstreams")).upstreams.flatMap(addresses));
  const note = element("p", { class: "small soft" }, "Requests and times are of all addresses of an upstream, over the last 10 to 20 s.");
  const end = lookingPage(main, TITLE, look, PERIOD, find.node, note, all.node);
  return end;
}

/** An item for each address of an upstream; the first has its rates. One that answers by itself has no endpoint. */
function addresses({ name, protocol, balance, endpoints, recent }) {
  const all = endpoints.flatMap((endpoint) => (endpoint.hosts.length ? endpoint.hosts : [undefined]).map((host) => ({ endpoint, host })));
  return (all.length ? all : [{}]).map(({ endpoint, host }, place) => ({
    key: `${name} ${endpoint?.endpoint} ${host?.address}`,
    name,
    about: place > 0 ? null : protocol === null ? "answers here" : `${protocol}, ${balance?.replaceAll("_", " ")}`,
    endpoint,
    host,
    address: host?.address ?? "not resolved",
    state: host?.state ?? (endpoint ? "" : "available"),
    isFirst: endpoint && endpoint.hosts.indexOf(host) <= 0,
    recent: place === 0 && protocol ? recent : undefined,
  }));
}

function columns(session, events, made) {
  return [
    ["Upstream", ({ name, about }) => (about ? twoLines(name, about) : name)],
    ["Endpoint", ({ endpoint, address }) => (endpoint ? twoLines(endpoint.endpoint, address === endpoint.endpoint ? "" : address) : "")],
    ["State", ({ name, host }) => (host ? stateNode(host, events.all.filter(({ event }) => event.upstream === name && event.address === host.address)) : "")],
    ["In flight now", ({ host }) => (host ? number(host.in_flight) : ""), "number"],
    ["Failures in a row", failuresCell, "number"],
    ["Weight", ({ host, endpoint }) => (host ? number(endpoint.weight) : ""), "number"],
    ...RECENT.filter(([heading]) => heading !== "Limited"),
    ["", ({ name, endpoint, isFirst }) => (isFirst ? changes(session, name, endpoint, made) : "")],
  ];
}

/** Failures in a row; those of all addresses by reason are with the first one. */
function failuresCell({ endpoint, host, isFirst }) {
  const reasons = Object.entries(endpoint?.failures ?? {}).map(([reason, count]) => `${number(count)} ${reason.replaceAll("_", " ")}`);
  const inRow = host ? number(host.failures) : "";
  return host && isFirst && reasons.length ? twoLines(inRow, `since the start: ${reasons.join(", ")}`) : inRow;
}

function changes(session, upstream, { endpoint, draining, hosts }, made) {
  const isEjected = hosts.some(({ state }) => state === "ejected");
  const both = [drain(upstream, endpoint, !draining), ...(isEjected ? [readmit(upstream, endpoint)] : [])];
  return element("div", { class: "row" }, ...both.map((change) => actButton(session, change.action, change, made)));
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

// The clients that are limited most, each with its keys and policies, a link to their buckets, and a ban
// from the row.

import { element, select, setText } from "../../dom.js";
import { amount, minuteAgo, number } from "../../format.js";
import { actButton, ban, grant } from "../acts.js";
import { lookingPage, policyLink, repeat, section, table, twoLines } from "../parts.js";
import { href } from "../router.js";
import { chooseClient } from "./client.js";
import { keyText } from "./client_text.js";

export const TITLE = "Offenders";

const PERIOD = 2_000;
const MOST = 50;
const ORDERS = { limited: "Limited requests", busiest: "All requests", units: "Units" };
const WINDOWS = { "1m": "1 minute", "5m": "5 minutes", "15m": "15 minutes" };

export function show(main, { session }) {
  const [by, window] = [select(ORDERS), select(WINDOWS)];
  const top = topTable(session, "Clients, the first by the chosen order first");
  const note = element("p", { class: "small soft" });
  const look = async () => {
    const path = (order, most) => `/v1/top?by=${order}&window=${window.value}&limit=${most}`;
    // Requests and units are counted while somebody asks for them: this page does.
    const [answer, asked] = await Promise.all([session.get(path(by.value, MOST)), session.get(path("busiest", 1))]);
    setText(note, noteText(answer, asked.counted_s));
    top.fill(answer);
  };
  const labelled = (text, input) => element("label", { class: "inline" }, text, input);
  const fields = element("div", { class: "row" }, labelled("Order by", by), labelled("Last", window));
  const end = lookingPage(main, TITLE, look, PERIOD, fields, note, top.node);
  [by, window].forEach((choice) => choice.addEventListener("change", end.again));
  return end;
}

/** What the counts are of, why requests and units are unknown, while they are, and why keys are. */
function noteText({ by, counted_s: seconds, items }, asked) {
  const texts = [
    `Counted over the last ${number(seconds)}\u00a0s. The count that orders the rows is exact, or wrong by at most what follows ±.`,
    by === "limited" && Math.round(asked) < Math.round(seconds) && `Requests and units have been counted since this page was opened, so far for ${number(asked)}\u00a0s: until that is as long, you see –.`,
    items.some(({ key }) => key === null) && "Clients appear by their id in the logs. With admin.keys: readable they appear by their keys, which lead to buckets and bans.",
  ];
  return texts.filter(Boolean).join(" ");
}

/** What is counted of a key, or of a client with several: columns of a table. */
const COUNTS = {
  requests: ["Requests", (item) => countText(item, "busiest", number(item.requests)), "number"],
  limited: ["Limited", (item) => countText(item, "limited", number(item.limited)), "number"],
  since: ["Limited since", ({ first_s: first }) => (first === null ? "–" : minuteAgo(first)), "number"],
  units: ["Units", (item) => countText(item, "units", item.units === null ? "–" : amount(item.units, item.unit)), "number"],
};

/** A count, with its error if it orders the rows. */
function countText({ by, error_bound: error, policies }, order, shown) {
  return policies && shown !== "–" ? `≥ ${shown}` : by === order && error > 0 ? `${shown} ± ${number(error)}` : shown;
}

/** A table of items of /v1/top with these counts. The keys of a client, or else of an address, are beneath it. */
export function topTable(session, caption, counts = Object.keys(COUNTS)) {
  const columns = [
    ["Client", (item) => (item.policies ? element("b", {}, item.who) : clientCell(item))],
    ["Policy", ({ policies, policy }) => policies ?? policyLink(policy)],
    ...counts.map((count) => COUNTS[count]),
    ["", ({ policies, policy, key }) => (policies ? "" : keyButtons(session, policy, key)), "number"],
  ];
  const { node, fill } = table(caption, columns, ({ policies, who, policy, key_id: id }) => (policies ? `client ${who}` : `${policy} ${id}`), true);
  return {
    node,
    /** Shows the items of an answer, whose units are all in this one if it is given. */
    fill({ items, by }, unit = "") {
      const groups = Map.groupBy(items.map((item) => ({ ...item, by, unit })), whoText);
      fill([...groups.values()].flatMap(withClient), "No client has been counted.");
    },
  };
}

/** Sections of other pages with the first clients: their titles, minutes and counts. */
const FIRST = {
  limited: ["Who is limited most", 5, ["limited", "since"]],
  units: ["Who spends most", 15, ["units"]],
};
const [FIRST_MOST, FIRST_PERIOD] = [5, 3_500];

/** The first clients, of a policy if it is named. `begin` asks for them again and again, while they are shown. */
export function firstClients(session, by, policy = null, ...below) {
  const [title, minutes, counts] = FIRST[by];
  const heading = `${title}, in the last ${minutes}\u00a0minutes`;
  const top = topTable(session, heading, counts);
  const node = section(heading, top.node, ...below);
  const path = `/v1/top?limit=${FIRST_MOST}&by=${by}&window=${minutes}m${policy === null ? "" : `&policy=${encodeURIComponent(policy)}`}`;
  let unit = "";
  const look = async () => node.hidden || top.fill(await session.get(path), unit);
  const show = ({ mode, decisions, settled_units: spent, unit: spentUnit }) => {
    unit = spentUnit;
    node.hidden = by === "units" ? spent === null : mode.current !== "enforce" && decisions.limited === 0;
  };
  return { node, show, begin: () => repeat(look, FIRST_PERIOD) };
}

/** The name of a key's client, and its address, if known. */
function clientTexts({ client, address }) {
  return [client, address].filter(Boolean).map(keyText);
}

function whoText(item) {
  return clientTexts(item)[0] ?? item.key_id;
}

/** The keys of a client, after an item for all of them if there are several. */
function withClient(items) {
  if (items.length === 1) {
    return items;
  }
  // A request meets several policies: the largest count is the least that there can be.
  const most = (part) => items.reduce((max, item) => (item[part] === null || item[part] < max ? max : item[part]), null);
  const who = clientTexts(items[0]).join(", ") || items[0].key_id;
  const policies = [...new Set(items.map(({ policy }) => policy))].join(", ");
  const client = { who, policies, requests: most("requests"), limited: most("limited"), units: null, first_s: most("first_s") };
  return [client, ...items.map((item) => ({ ...item, isBeneath: true }))];
}

/** A link to the client's buckets. Its address has no key, which is a secret. */
export function clientCell(item) {
  const { policy, key, key_id: id, isBeneath = false } = item;
  const shown = key === null ? id : keyText(key);
  const link = key === null ? shown : element("a", { href: href("client"), onclick: () => chooseClient(policy, key) }, shown);
  const others = isBeneath ? [] : clientTexts(item).filter((one) => one !== shown);
  const cell = twoLines(link, others.join(", "));
  cell.classList.toggle("beneath", isBeneath);
  return cell;
}

/** A key that the server does not tell cannot be changed from here. */
function keyButtons(session, policy, key) {
  if (key === null) {
    return element("span", { class: "small soft" }, "key not shown");
  }
  return element("div", { class: "row" }, actButton(session, "Grant", grant({ policy, key })), actButton(session, "Ban", ban({ policy, key }), () => {}, { class: "danger" }));
}

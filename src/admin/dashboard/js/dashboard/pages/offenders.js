// The clients that are limited most, each with its keys and policies, a link to their buckets, and a ban
// from the row.

import { element, select, setText } from "../../dom.js";
import { amount, minuteAgo, number } from "../../format.js";
import { actButton, ban, grant } from "../acts.js";
import { policyLink, problemLine, repeat, table } from "../parts.js";
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
  const problem = problemLine();
  const top = topTable(session, "Clients, the first by the chosen order first");
  const counted = element("p", { class: "small soft" });
  const hidden = element("p", { class: "small soft", hidden: true }, "Clients appear by their id in the logs. With admin.keys: readable they appear by their keys, which lead to buckets and bans.");
  const look = async () => {
    const path = (order, most) => `/v1/top?by=${order}&window=${window.value}&limit=${most}`;
    // Requests and units are counted while somebody asks for them: this page does.
    const [answer, asked] = await Promise.all([session.get(path(by.value, MOST)), session.get(path("busiest", 1))]);
    setText(counted, countedText(by.value, answer.counted_s, asked.counted_s));
    hidden.hidden = answer.items.every(({ key }) => key !== null);
    top.fill(answer);
  };
  main.append(
    element("h1", {}, TITLE),
    element("div", { class: "row" }, element("label", { class: "inline" }, "Order by", by), element("label", { class: "inline" }, "Last", window)),
    counted,
    element("p", { class: "small soft" }, "The count that orders the rows is exact, or wrong by at most what follows ±."),
    hidden,
    problem.node,
    top.node,
  );
  const end = repeat(look, PERIOD, problem.show);
  [by, window].forEach((choice) => choice.addEventListener("change", end.again));
  return end;
}

/** What is counted of a key: the heading, and the text of an item, or the sum of those of a client. */
const COUNTS = {
  requests: { heading: "Requests", text: ({ requests }) => known(requests) },
  limited: { heading: "Limited", text: ({ limited }) => known(limited) },
  since: { heading: "Limited since", text: ({ first_s: first }) => (first === null ? "–" : minuteAgo(first)), isCount: false },
  units: { heading: "Units", text: ({ units }, unit) => (units === null ? "–" : amount(units, unit)) },
};
/** The count that orders the items. */
const ORDERED = { limited: "limited", busiest: "requests", units: "units" };

/** A table of items of /v1/top with these counts. The keys of a client, or else of an address, are beneath it. */
export function topTable(session, caption, counts = Object.keys(COUNTS)) {
  const columns = counts.map((count) => [COUNTS[count].heading, "number"]);
  const { node, fill } = table(caption, [["Client"], ["Policy"], ...columns, ["", "number"]], true);
  return {
    node,
    /** Shows the items of an answer, whose units are all in this one if it is given. */
    fill: ({ items, by }, unit = "") => {
      const cells = (item) => counts.map((count) => countText(item, COUNTS[count], unit, count === ORDERED[by]));
      fill([...Map.groupBy(items, whoText).values()].flatMap((group) => rows(session, group, cells)), "No client has been counted.");
    },
  };
}

/** Says why requests and units are unknown, while they are. */
function countedText(by, seconds, asked) {
  const text = `Counted over the last ${number(Math.round(seconds))}\u00a0s.`;
  const isShort = by === "limited" && Math.round(asked) < Math.round(seconds);
  return isShort ? `${text} Requests and units are counted since this page is open, so far for ${number(Math.round(asked))}\u00a0s; until that covers the same time, they are –.` : text;
}

/** The name of a key's client, and its address, if known. */
function clientTexts({ client, address }) {
  return [client, address].filter(Boolean).map(keyText);
}

function whoText(item) {
  return clientTexts(item)[0] ?? item.key_id;
}

function rows(session, items, cells) {
  const own = items.map((item) => row(session, item, cells, items.length > 1));
  if (own.length === 1) {
    return own;
  }
  const who = clientTexts(items[0]).join(", ") || items[0].key_id;
  const policies = [...new Set(items.map(({ policy }) => policy))].join(", ");
  // A request meets several policies: the largest count is the least that there can be.
  const most = (part) => items.reduce((max, item) => (item[part] === null || item[part] < max ? max : item[part]), null);
  const whole = { requests: most("requests"), limited: most("limited"), units: null, first_s: most("first_s"), error_bound: 0, isLeast: true };
  return [{ key: `client ${who}`, cells: [element("b", {}, who), policies, ...cells(whole), ""] }, ...own];
}

/** A count, with its error if it orders the rows. */
function countText(item, { text, isCount = true }, unit, isOrdered) {
  const shown = text(item, unit);
  const error = isOrdered && item.error_bound > 0 ? ` ± ${number(item.error_bound)}` : "";
  return isCount && item.isLeast && shown !== "–" ? `≥ ${shown}` : shown + error;
}

function row(session, item, cells, isBeneath) {
  const { key, key_id: id, policy } = item;
  return { key: `${policy} ${id}`, cells: [clientCell(item, isBeneath), policyLink(policy), ...cells(item), keyButtons(session, policy, key)] };
}

function known(count) {
  return count === null ? "–" : number(count);
}

/** A link to the client's buckets. Its address has no key, which is a secret. */
export function clientCell(item, isBeneath = false) {
  const { policy, key, key_id: id } = item;
  const shown = key === null ? id : keyText(key);
  const link = key === null ? shown : element("a", { href: href("client"), onclick: () => chooseClient(policy, key) }, shown);
  const others = isBeneath ? [] : clientTexts(item).filter((one) => one !== shown);
  return element("div", { class: isBeneath ? "beneath" : null }, link, element("div", { class: "small soft" }, others.join(", ")));
}

/** A key that the server does not tell cannot be changed from here. */
function keyButtons(session, policy, key) {
  if (key === null) {
    return element("span", { class: "small soft" }, "key not shown");
  }
  return element("div", { class: "row" }, actButton(session, "Grant", grant({ policy, key })), actButton(session, "Ban", ban({ policy, key }), () => {}, { class: "danger" }));
}

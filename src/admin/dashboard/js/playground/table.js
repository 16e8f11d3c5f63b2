// The decisions as a table: the same as the drawings, for reading.

import { element } from "../dom.js";
import { duration, number } from "../format.js";

const MOST_ROWS = 40;

/** Fills the table with the last decisions before the playhead, newest first. */
export function fillTable(table, model) {
  const head = element("tr", {}, ...["Time", "Client", ...model.lanes.map((lane) => lane.name)].map(heading));
  const rows = lastArrivals(model).map((place) => row(model, place));
  table.replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
}

function heading(text) {
  return element("th", { scope: "col" }, text);
}

/** Places of arrivals, which are those of decisions in each lane. */
function lastArrivals(model) {
  const decisions = model.lanes[0]?.decisions ?? [];
  const places = [...decisions.keys()].filter((place) => decisions[place].at_ms <= model.playhead);
  return places.slice(-MOST_ROWS).reverse();
}

function row(model, place) {
  const first = model.lanes[0].decisions[place];
  const cells = model.lanes.map((lane) => {
    const decision = lane.decisions[place];
    return element("td", { class: `word ${decision?.decision ?? ""}` }, decision ? words(decision) : "");
  });
  const time = element("th", { scope: "row", class: "number" }, `${number(first.at_ms / 1_000, 3)} s`);
  return element("tr", {}, time, element("td", {}, first.key.toUpperCase()), ...cells);
}

/** A decision with the number that matters. */
export function words(decision) {
  if (decision.decision === "limited") {
    const { retry_after_ms: retry } = decision;
    return retry === undefined ? "limited for ever" : `limited, retry in ${duration(retry)}`;
  }
  if (decision.decision === "delayed") {
    return `delayed ${duration(decision.delay_ms)}`;
  }
  return `${decision.decision}, ${number(decision.remaining)} left`;
}

// The running configuration, a comparison with a pasted one, and the last reloads.

import { button, element, field, setText } from "../../dom.js";
import { findingItems } from "../../findings.js";
import { instant } from "../../format.js";
import { compareLines } from "../diff.js";
import { bucketsText, problemLine, section, table } from "../parts.js";

export const TITLE = "Configuration";

export function show(main, { figures, session }) {
  const problem = problemLine();
  const about = element("p", { class: "soft" });
  const failed = element("div", { class: "failure" });
  const text = element("pre", { class: "code text", tabindex: "0", "aria-label": "Running configuration" });
  const pasted = element("textarea", { id: "pasted", class: "code", rows: 10, spellcheck: "false" });
  const result = element("div", { class: "stack" });
  const reloads = table("The last reloads, newest first", COLUMNS, ({ at }) => at);
  let running = "";
  const compare = async () => {
    try {
      const found = await session.post("/v1/check", { text: pasted.value });
      result.replaceChildren(...checked(found), difference(running, withoutGaps(found.masked_text)));
    } catch (error) {
      result.replaceChildren(element("p", { class: "problem" }, error.message));
    }
  };
  main.append(
    element("h1", {}, TITLE),
    about,
    problem.node,
    failed,
    section("Running", text),
    section(
      "Compare with another",
      field("Paste a configuration: it is checked, and nothing changes. Secrets are not compared", pasted),
      button("Check and compare", compare),
      result,
    ),
    section("Reloads", reloads.node),
  );
  let seen = "";
  return figures.listen(async ({ status }) => {
    const reload = JSON.stringify([status.ruleset, status.last_reload]);
    if (reload === seen) {
      return;
    }
    seen = reload;
    try {
      running = await load({ session, figures }, { about, failed, text, reloads });
      problem.show(null);
    } catch (error) {
      seen = "";
      problem.show(error);
    }
  }, false);
}

async function load({ session, figures }, { about, failed, text, reloads }) {
  const [config, history] = await Promise.all([session.get("/v1/config"), session.get("/v1/reloads")]);
  setText(about, aboutText(config));
  const shown = withoutGaps(config.text);
  setText(text, shown);
  failed.replaceChildren(...failure(config.last_error));
  // Events are also of the process before an upgrade.
  const past = figures.events.all.filter(({ name }) => name === "reload").map(({ event }) => event);
  const all = [...new Map([...past, ...history.reloads].map((one) => [one.at, one])).values()].sort((left, right) => right.at.localeCompare(left.at));
  reloads.fill(all.map((reload) => ({ ...reload, above: config.last_error })), "None since the start.");
  return shown;
}

/** The text with one empty line where masked comments leave several. */
function withoutGaps(text) {
  return text.replace(/\n([ \t]*\n){2,}/g, "\n\n");
}

function aboutText({ source, hash, loaded_at: at, last_error: error, reset }) {
  const base = `${source}, loaded ${instant(at)}, hash ${hash}. Secrets are masked.`;
  const changed = reset.length ? ` The last reload changed buckets of ${reset.map(({ policy }) => policy).join(", ")}.` : "";
  return error ? base : base + changed;
}

/** The error of the last reload, which draws at what it points. */
function failure(error) {
  if (!error) {
    return [];
  }
  return [
    element("p", { class: "problem" }, "The last reload failed. The configuration below goes on running."),
    element("pre", { class: "code text", tabindex: "0", "aria-label": "Error of the last reload" }, error),
  ];
}

/** What reloads show; `above` is the error that the page shows already. */
const COLUMNS = [
  ["At", ({ at }) => instant(at)],
  ["Result", ({ result }) => element("span", { class: `result ${result}` }, result)],
  ["Hash", ({ hash }) => hash ?? "–"],
  ["Error or warnings", detailNode, "wide"],
  ["Buckets", ({ result, buckets }) => (result === "failed" ? "unchanged" : buckets.map(bucketsText).join(", ") || "all survive")],
];

function detailNode({ error, warnings, above }) {
  if (error && error === above) {
    return "see above";
  }
  return error ? element("pre", { class: "code text", tabindex: "0" }, error) : warnings.join("; ") || "–";
}

function checked({ findings, buckets = [] }) {
  const changes = (buckets ?? []).map(({ policy, outcome, reason }) => element("li", {}, element("b", {}, `${policy}: `), outcome, reason ? `, ${reason}` : ""));
  return [
    element("h3", {}, findings.length ? "Findings" : "No findings: the text is sound"),
    element("ul", { class: "plain findings" }, ...findingItems(findings)),
    changes.length ? element("h3", {}, "Buckets after a reload") : null,
    changes.length ? element("ul", { class: "plain" }, ...changes) : null,
  ].filter(Boolean);
}

function difference(running, pasted) {
  const lines = compareLines(running, pasted);
  if (lines === null) {
    return element("p", { class: "soft" }, "The texts are too long to compare here.");
  }
  const changed = lines.filter(({ sign }) => sign !== " ").length;
  const rows = lines.map(({ sign, line }) => element("span", { class: { "+": "added", "-": "removed", " ": "soft" }[sign] }, `${sign} ${line}\n`));
  return element("div", {}, element("h3", {}, changed ? "Difference from the running text" : "No difference"), changed ? element("pre", { class: "code text", tabindex: "0" }, ...rows) : null);
}

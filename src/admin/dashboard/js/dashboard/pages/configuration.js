// The running configuration, a comparison with a pasted one, and the last reloads.

import { button, element, field, setText } from "../../dom.js";
import { findingItems } from "../../findings.js";
import { instant } from "../../format.js";
import { bucketsText, problemLine, section, table } from "../parts.js";

export const TITLE = "Configuration";

export function show(main, { figures, session }) {
  const problem = problemLine();
  const about = element("p", { class: "soft" });
  const failed = element("div", { class: "failure" });
  const text = code("Running configuration");
  const pasted = element("textarea", { id: "pasted", class: "code", rows: 10, spellcheck: "false" });
  const result = element("div", { class: "stack" });
  const reloads = table("The last reloads, newest first", COLUMNS, ({ at }) => at);
  const compare = async () => {
    try {
      const found = await session.post("/v1/check", { text: pasted.value, against: text.textContent });
      result.replaceChildren(...checked(found), difference(found));
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
      await load({ session, figures }, { about, failed, text, reloads });
      problem.show(null);
    } catch (error) {
      seen = "";
      problem.show(error);
    }
  }, false);
}

async function load({ session, figures }, { about, failed, text, reloads }) {
  const [config, history] = await Promise.all([session.get("/v1/config"), session.get("/v1/reloads")]);
  const { source, hash, loaded_at: at, last_error: error } = config;
  setText(about, `${source}, loaded ${instant(at)}, hash ${hash}. Secrets are masked.`);
  // Comments, which may hold secrets, leave empty lines.
  setText(text, config.text.replace(/\n([ \t]*\n){2,}/g, "\n\n"));
  failed.replaceChildren(...(error ? failure(error) : []));
  // Events are also of the process before an upgrade.
  const past = figures.events.all.filter(({ name }) => name === "reload").map(({ event }) => event);
  const all = [...new Map([...past, ...history.reloads].map((one) => [one.at, one])).values()].sort((left, right) => right.at.localeCompare(left.at));
  reloads.fill(all, "None since the start.");
}

function code(label, ...lines) {
  return element("pre", { class: "code text", tabindex: "0", "aria-label": label }, ...lines);
}

/** The error of the last reload, which has a drawing of the place. */
function failure(error) {
  return [
    element("p", { class: "problem" }, "The last reload failed. The configuration below goes on running."),
    code("Error of the last reload", error),
  ];
}

/** What reloads show. */
const COLUMNS = [
  ["At", ({ at }) => instant(at)],
  ["Result", ({ result }) => element("span", { class: `result ${result}` }, result)],
  ["Hash", ({ hash }) => hash ?? "–"],
  ["Error or warnings", ({ cause, warnings }) => cause ?? (warnings.join("; ") || "–"), "wide"],
  ["Buckets", ({ result, buckets }) => (result === "failed" ? "unchanged" : buckets.map(bucketsText).join(", ") || "all survive")],
];

function checked({ findings }) {
  return [
    element("h3", {}, findings.length ? "Findings" : "No findings: the text is sound"),
    element("ul", { class: "plain findings" }, ...findingItems(findings)),
  ];
}

/** Lines with a sign, as `diff -u` has them. */
function difference({ difference: text }) {
  const change = (line) => ({ "+": "added", "-": "removed" })[line[0]] ?? "soft";
  const rows = text.trimEnd().split("\n").map((line) => element("span", { class: change(line) }, `${line}\n`));
  const title = element("h3", {}, text ? "Difference from the running text" : "No difference");
  return element("div", {}, title, text ? code("Difference", ...rows) : null);
}

// One policy: what it is good for, its settings, its bucket and its timeline.

import { cellFigure } from "../cell/figure.js";
import { button, element, field, select, setText } from "../dom.js";
import { count, duration, number, quotaText } from "../format.js";
import { cellAt, mostWithin, tally } from "./moment.js";
import { ALGORITHMS, windowOf, withAlgorithm } from "./settings.js";
import { drawTimeline } from "./timeline.js";

/** The lane of the policy at `place`. `remove` is null if the last lane has to stay. */
export function createLane(model, place, remove) {
  const title = element("h2");
  const tradeoff = element("p", { class: "small soft tradeoff" });
  const counts = element("p", { class: "small row counts" });
  const most = element("p", { class: "small" });
  const figure = cellFigure();
  const canvas = element("canvas", { class: "timeline", role: "img", "aria-label": "No decisions yet" });
  const form = settingsForm(model, place, remove);
  const about = element("div", { class: "about" }, title, tradeoff, counts, most, form.node);
  const node = element("article", { class: "lane" }, about, figure.node, canvas);
  return {
    node,
    /** Shows names and settings. */
    configure() {
      const policy = model.policies[place];
      const known = ALGORITHMS[policy.algorithm ?? "gcra"];
      setText(title, known?.title ?? policy.name);
      title.append(element("span", { class: "soft quota" }, ` ${quotaText(String(policy.quota ?? ""), "requests")}`));
      setText(tradeoff, known?.tradeoff ?? "");
      form.show();
    },
    /** Shows the instant of the playhead. */
    show(span, colours) {
      const { playhead, client } = model;
      const lane = model.lanes[place];
      if (lane) {
        figure.show(cellAt(lane, client, playhead));
      } else {
        figure.show(null, ["No decisions yet", ""]);
      }
      drawTimeline(canvas, lane, { span, playhead, client, colours });
      if (lane) {
        showCounts(counts, most, model, lane);
        canvas.setAttribute("aria-label", `Timeline until ${duration(playhead)}: ${spokenCounts(counts)}`);
      }
    },
  };
}

function spokenCounts({ children }) {
  return `requests ${Array.from(children, (word) => word.textContent).join(", ")}`;
}

function showCounts(counts, most, model, lane) {
  const { allowed, delayed, limited } = tally(lane, model.playhead);
  const words = [
    ["allowed", allowed],
    ["delayed", delayed],
    ["limited", limited],
  ].filter(([word, value]) => value > 0 || word !== "delayed");
  const parts = words.map(([word, value]) => element("span", { class: `word ${word}` }, `${number(value)} ${word}`));
  counts.replaceChildren(...parts.flatMap((part) => [part, " "]));
  showMost(most, model, lane);
}

/** The most units that went on in a span as long as the window, beside the quota. */
function showMost(node, model, lane) {
  const window = windowOf(lane.quota);
  if (window === null) {
    return setText(node, "");
  }
  const units = mostWithin(lane, window, model.playhead);
  const quota = Number.parseInt(lane.quota, 10);
  node.classList.toggle("beyond", units > quota);
  setText(node, `At most ${count(units, "request")} in any ${duration(window)}`);
}

function settingsForm(model, place, remove) {
  const problem = element("p", { class: "small problem", role: "alert" });
  const fields = element("fieldset", { class: "settings" });
  const summary = element("summary", { class: "small soft" }, "Settings");
  const node = element("details", {}, summary, fields, problem);
  let shown = null;
  return {
    node,
    show() {
      const policy = model.policies[place];
      if (shown !== policy.algorithm) {
        shown = policy.algorithm;
        fields.replaceChildren(...controls(model, place, remove));
      }
      showProblem(model, policy, fields, problem, node);
    },
  };
}

function controls(model, place, remove) {
  const policy = model.policies[place];
  const known = ALGORITHMS[policy.algorithm]?.settings ?? [];
  return [
    algorithmSelect(model, place),
    ...known.map((setting) => settingField(model, place, setting)),
    remove && button("Remove", remove, { class: "quiet" }),
  ].filter(Boolean);
}

function algorithmSelect(model, place) {
  const onchange = (event) => model.setPolicy(place, withAlgorithm(model.policies[place], event.target.value));
  return field("Algorithm", select(ALGORITHMS, model.policies[place].algorithm, { onchange }));
}

function settingField(model, place, setting) {
  const value = model.policies[place][setting.key] ?? "";
  const onchange = (event) => model.setPolicy(place, changed(model.policies[place], setting, event.target.value));
  const attributes = { "data-key": setting.key, onchange };
  const control = setting.choices
    ? select(Object.fromEntries(setting.choices.map((choice) => [choice, choice])), value, attributes)
    : element("input", { ...attributes, value, size: setting.width, placeholder: setting.optional ? "default" : "" });
  return field(setting.label, control);
}

function changed(policy, setting, text) {
  const { [setting.key]: _, ...others } = policy;
  const trimmed = text.trim();
  if (trimmed === "" && setting.optional) {
    return others;
  }
  const value = /^\d+$/.test(trimmed) ? Number(trimmed) : trimmed;
  return { ...others, [setting.key]: value };
}

/** Marks the settings that the server refuses. */
function showProblem(model, policy, fields, problem, node) {
  const own = (model.problem?.findings ?? []).filter((finding) => isAbout(finding.path, policy.name));
  setText(problem, own.map(({ message, help }) => [message, help].filter(Boolean).join(": ")).join("; "));
  node.open = node.open || own.length > 0;
  for (const input of fields.querySelectorAll("[data-key]")) {
    const isWrong = own.some((finding) => finding.path.endsWith(`.${input.dataset.key}`));
    input.setAttribute("aria-invalid", String(isWrong));
  }
}

function isAbout(path, name) {
  return path === `policies.${name}` || path.startsWith(`policies.${name}.`);
}

// One policy: what it is good for, its settings, its bucket and its timeline.

import { cellFigure } from "../cell/figure.js";
import { button, element, field, select, setText, svg } from "../dom.js";
import { findingText } from "../findings.js";
import { count, duration, number, quotaText } from "../format.js";
import { cellAt, mostWithin, tally } from "./moment.js";
import { ALGORITHMS, algorithmOf, newPolicy, SETTINGS } from "./settings.js";
import { drawTimeline } from "./timeline.js";

/** The lane of the policy at `place`. */
export function createLane(model, place) {
  const [title, quota] = [element("span"), element("span", { class: "soft quota" })];
  const tradeoff = element("p", { class: "small soft tradeoff" });
  const counts = element("p", { class: "small row counts" });
  const most = element("p", { class: "small" });
  const figure = cellFigure();
  const timeline = svg("svg", { class: "drawing timeline", role: "img", "aria-label": "No decisions yet" });
  const form = settingsForm(model, place);
  const heading = element("h2", {}, title, " ", quota);
  const about = element("div", { class: "about" }, heading, tradeoff, counts, most, form.node);
  return {
    node: element("article", { class: "lane" }, about, figure.node, timeline),
    /** Shows names and settings. */
    configure() {
      const policy = model.policies[place];
      const known = ALGORITHMS[algorithmOf(policy)];
      setText(title, known?.title ?? policy.name);
      setText(quota, quotaText(String(policy.quota ?? ""), "requests"));
      setText(tradeoff, known?.tradeoff ?? "");
      form.show();
    },
    /** Shows the instant of the playhead. */
    show(view) {
      const { playhead, client } = model;
      const lane = model.lanes.find(({ name }) => name === model.policies[place].name);
      drawTimeline(timeline, lane, view, model);
      if (lane) {
        figure.show(cellAt(lane, client, playhead));
        const told = showCounts(counts, lane, playhead);
        showMost(most, lane, playhead);
        timeline.setAttribute("aria-label", `Timeline until ${duration(playhead)}: requests ${told.join(", ")}`);
      } else {
        figure.show(null, ["No decisions yet", ""]);
      }
    },
  };
}

/** Shows how often each decision was made; answers with the words. */
function showCounts(node, lane, playhead) {
  const counts = Object.entries(tally(lane, playhead)).filter(([word, value]) => value > 0 || word !== "delayed");
  const told = counts.map(([word, value]) => [word, `${number(value)} ${word}`]);
  node.replaceChildren(...told.flatMap(([word, text]) => [element("span", { class: `word ${word}` }, text), " "]));
  return told.map(([, text]) => text);
}

/** The most units that went on in a span as long as the window, beside the quota. */
function showMost(node, lane, playhead) {
  const { window_ms: window, limit_units: limit } = lane;
  const units = window === null ? 0 : mostWithin(lane, window, playhead);
  node.classList.toggle("beyond", units > limit);
  setText(node, window === null ? "" : `At most ${count(units, "request")} in any ${duration(window)}`);
}

/** The settings of a policy, below a fold. */
function settingsForm(model, place) {
  const problem = element("p", { class: "small problem", role: "alert" });
  const fields = element("fieldset", { class: "settings" });
  const node = element("details", {}, element("summary", { class: "small soft" }, "Settings"), fields, problem);
  const change = (policy) => model.set({ policies: model.policies.with(place, policy) });
  const choose = ({ target }) => change(newPolicy(target.value, model.policies[place]));
  const enter = ({ target }) => change(withSetting(model.policies[place], target.dataset.key, target.value.trim()));
  const removeIt = () => model.set({ policies: model.policies.toSpliced(place, 1) });
  const remove = button("Remove", removeIt, { class: "quiet" });
  let shown = null;
  return {
    node,
    show() {
      const policy = model.policies[place];
      const algorithm = algorithmOf(policy);
      if (!shown || algorithm !== algorithmOf(shown)) {
        const keys = ALGORITHMS[algorithm]?.settings ?? [];
        const choice = field("Algorithm", select(ALGORITHMS, algorithm, { onchange: choose }));
        fields.replaceChildren(choice, ...keys.map((key) => settingField(key, enter)), remove);
      }
      remove.hidden = model.policies.length === 1;
      const isAbout = ({ path }) => `${path}.`.startsWith(`policies.${policy.name}.`);
      const found = model.problem?.findings.filter(isAbout) ?? [];
      setText(problem, found.map(findingText).join("; "));
      node.open ||= found.length > 0;
      for (const input of fields.querySelectorAll("[data-key]")) {
        const { key } = input.dataset;
        input.setAttribute("aria-invalid", String(found.some(({ path }) => path.endsWith(`.${key}`))));
        if (policy !== shown) {
          input.value = policy[key] ?? SETTINGS[key].choices?.[0] ?? "";
        }
      }
      shown = policy;
    },
  };
}

function settingField(key, onchange) {
  const { label, width, choices, isOptional } = SETTINGS[key];
  const attributes = { "data-key": key, onchange };
  const input = choices
    ? select(Object.fromEntries(choices.map((choice) => [choice, choice])), null, attributes)
    : element("input", { ...attributes, size: width, placeholder: isOptional ? "default" : "" });
  return field(label, input);
}

/** The policy with another setting; an optional one goes if it is empty. */
function withSetting(policy, key, text) {
  const { [key]: _, ...others } = policy;
  const value = /^\d+$/.test(text) ? Number(text) : text;
  return text === "" && SETTINGS[key].isOptional ? others : { ...others, [key]: value };
}

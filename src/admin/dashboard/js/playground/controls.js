// The controls above the lanes.

import { byId, copy, element, setText } from "../dom.js";
import { number } from "../format.js";
import { MOST_ARRIVALS } from "./arrivals.js";
import { scenarioOf, SCENARIOS, stateOf } from "./scenarios.js";
import { ALGORITHMS, MOST_POLICIES, newPolicy, withFreeName } from "./settings.js";

/** The time between the requests of a burst, in milliseconds. */
const BURST_GAP = 20;
/** The value of requests that no scenario has. */
const OWN = "own";

/**
 * Wires the controls. `hearNext` has the next decisions told, `saveNow` puts the state into the
 * address.
 */
export function wireControls(model, { hearNext, saveNow }) {
  wirePolicies(model);
  wireTime(model);
  wireRequests(model, hearNext);
  on("share", "click", () => {
    saveNow();
    const done = "Link copied: it holds the requests and the settings.";
    copy(location.href, byId("shared"), done, "The address of this page is the link.");
  });
}

function on(id, event, act) {
  byId(id).addEventListener(event, ({ target }) => act(target));
}

function options(titled) {
  return Object.entries(titled).map(([value, { title }]) => element("option", { value }, title));
}

function wirePolicies(model) {
  // Shown once requests are added; there is nothing to choose.
  byId("scenario").append(...options(SCENARIOS), element("option", { value: OWN, hidden: true }, "Your own"));
  byId("add").append(...options(ALGORITHMS));
  const quotaOfAll = () => byId("quota").value.trim();
  on("scenario", "change", ({ value }) => model.set(stateOf(SCENARIOS[value])));
  on("quota", "change", () => {
    const quota = quotaOfAll();
    model.set({ policies: model.policies.map((policy) => ("quota" in policy ? { ...policy, quota } : policy)) });
  });
  on("add", "change", (select) => {
    const added = newPolicy(select.value, { quota: quotaOfAll() });
    model.set({ policies: [...model.policies, withFreeName(added, model.policies)] });
    select.value = "";
  });
}

function wireTime(model) {
  on("play", "click", () => model.set({ isPlaying: !model.isPlaying }));
  on("rewind", "click", () => model.seek(0));
  on("time", "input", ({ value }) => model.seek(Number(value)));
  on("speed", "change", ({ value }) => model.set({ speed: Number(value) }));
}

function wireRequests(model, hearNext) {
  const send = (times) => {
    hearNext();
    model.send(times);
  };
  const stream = (isOn) => model.stream(isOn ? numberOf("stream-rate", "A stream has", " a second") : null);
  on("client", "change", ({ value }) => model.set({ client: value }));
  on("one", "click", () => send([model.playhead]));
  on("burst", "click", () => {
    const size = numberOf("burst-size", "A burst has");
    const times = Array.from({ length: size ?? 0 }, (_, place) => model.playhead + place * BURST_GAP);
    if (size !== null) {
      send(times);
      model.seek(model.isPlaying ? model.playhead : times.at(-1));
    }
  });
  on("stream", "click", () => stream(!model.isStreaming));
  // A stream ends, too, if it would have a rate that isn't allowed.
  on("stream-rate", "change", () => model.isStreaming && stream(true));
}

/** The number of an input; null if it is out of the input's bounds, which is said. */
function numberOf(id, begin, per = "") {
  const input = byId(id);
  const isRight = input.value !== "" && input.checkValidity();
  input.setAttribute("aria-invalid", String(!isRight));
  setText(byId("wrong"), isRight ? "" : `${begin} ${input.min} to ${input.max} requests${per}.`);
  return isRight ? Number(input.value) : null;
}

/** Shows the state in the controls. */
export function showControls(model) {
  const time = byId("time");
  const seconds = `${(model.playhead / 1_000).toFixed(1)} s`;
  time.max = String(Math.max(30_000, Math.ceil(model.end)));
  time.value = String(Math.round(model.playhead));
  time.setAttribute("aria-valuetext", seconds);
  setText(byId("clock"), seconds);
  setText(byId("play"), model.isPlaying ? "Pause" : "Play");
  byId("stream").setAttribute("aria-pressed", String(model.isStreaming));
  byId("scenario").value = scenarioOf(model.arrivals) ?? OWN;
  for (const id of ["one", "burst", "stream"]) {
    byId(id).disabled = model.isFull;
  }
  byId("add").disabled = model.policies.length >= MOST_POLICIES;
  if (model.isFull) {
    setText(byId("shared"), `${number(MOST_ARRIVALS)} requests are the most: choose others above.`);
  }
}

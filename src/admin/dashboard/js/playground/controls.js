// The controls above the lanes.

import { byId, copy, element, setText } from "../dom.js";
import { number } from "../format.js";
import { DURATION } from "./arrivals.js";
import { scenarioOf, SCENARIOS } from "./scenarios.js";
import { ALGORITHMS, freeName, MOST_POLICIES, newPolicy } from "./settings.js";

/** The time between the requests of a burst, in milliseconds. */
const BURST_GAP = 20;
/** The value of requests that no scenario has. */
const OWN = "own";

/**
 * Wires the controls. `hearNext` has the next decisions told, `saveNow` puts the state into the
 * address.
 */
export function wireControls(model, transport, { hearNext, saveNow }) {
  wirePolicies(model);
  wireTime(model, transport);
  wireRequests(model, transport, hearNext);
  wireShare(saveNow);
  model.listen(() => showControls(model));
}

function wirePolicies(model) {
  const scenarios = Object.entries(SCENARIOS).map(([value, { title }]) => element("option", { value }, title));
  // Shown once requests are added; there is nothing to choose.
  byId("scenario").append(...scenarios, element("option", { value: OWN, hidden: true }, "Your own"));
  model.listen((kind) => {
    if (kind === "decisions") {
      byId("scenario").value = scenarioOf(model.arrivals) ?? OWN;
    }
  });
  byId("scenario").addEventListener("change", (event) => {
    const { arrivals, shown, ends } = SCENARIOS[event.target.value];
    model.setArrivals({ arrivals: arrivals(), playhead: shown, end: ends });
  });
  byId("quota").addEventListener("change", (event) => {
    const quota = event.target.value.trim();
    model.setPolicies(model.policies.map((policy) => ("quota" in policy ? { ...policy, quota } : policy)));
  });
  const algorithms = Object.entries(ALGORITHMS).map(([value, { title }]) => element("option", { value }, title));
  byId("add").append(...algorithms);
  byId("add").addEventListener("change", (event) => add(model, event.target));
}

function add(model, select) {
  const algorithm = select.value;
  select.value = "";
  if (!algorithm || model.policies.length >= MOST_POLICIES) {
    return;
  }
  const policy = newPolicy(algorithm);
  const quota = byId("quota").value.trim();
  const name = freeName(model.policies, policy.name);
  model.setPolicies([...model.policies, { ...policy, name, ...("quota" in policy ? { quota } : {}) }]);
}

function wireTime(model, transport) {
  byId("play").addEventListener("click", () => {
    model.play(!model.isPlaying);
    if (!model.isPlaying) {
      setStream(transport, false);
    }
  });
  byId("rewind").addEventListener("click", () => model.seek(0));
  byId("time").addEventListener("input", (event) => model.seek(Number(event.target.value)));
  byId("speed").addEventListener("change", (event) => model.set({ speed: Number(event.target.value) }));
}

function wireRequests(model, transport, hearNext) {
  byId("client").addEventListener("change", (event) => model.set({ client: event.target.value }));
  byId("one").addEventListener("click", () => {
    hearNext();
    model.send([model.playhead], { lasts: DURATION });
  });
  byId("burst").addEventListener("click", () => {
    const size = numberOf("burst-size", "A burst has");
    if (size === null) {
      return;
    }
    hearNext();
    const times = Array.from({ length: size }, (_, place) => model.playhead + place * BURST_GAP);
    model.send(times, { lasts: DURATION });
    if (!model.isPlaying) {
      model.seek(times.at(-1));
    }
  });
  byId("stream").addEventListener("click", () => setStream(transport, !isStreaming()));
  byId("stream-rate").addEventListener("change", () => isStreaming() && setStream(transport, true));
}

function isStreaming() {
  return byId("stream").getAttribute("aria-pressed") === "true";
}

/** Ends the stream, too, if it would have a rate that isn't allowed. */
function setStream(transport, isOn) {
  const rate = isOn ? numberOf("stream-rate", "A stream has", " a second") : null;
  byId("stream").setAttribute("aria-pressed", String(rate !== null));
  transport.stream(rate);
}

/** The number of an input; null if it is out of the input's bounds, which is said. */
function numberOf(id, begin, per = "") {
  const input = byId(id);
  const isRight = input.value !== "" && input.checkValidity();
  input.setAttribute("aria-invalid", String(!isRight));
  setText(byId("wrong"), isRight ? "" : `${begin} ${input.min} to ${input.max} requests${per}.`);
  return isRight ? Number(input.value) : null;
}

function wireShare(saveNow) {
  byId("share").addEventListener("click", () => {
    saveNow();
    copy(location.href, byId("shared"), "Link copied: it holds the requests and the settings.", "The address of this page is the link.");
  });
}

function showControls(model) {
  const time = byId("time");
  const seconds = `${(model.playhead / 1_000).toFixed(1)} s`;
  time.max = String(Math.max(30_000, Math.ceil(model.end)));
  time.value = String(Math.round(model.playhead));
  time.setAttribute("aria-valuetext", seconds);
  setText(byId("clock"), seconds);
  setText(byId("play"), model.isPlaying ? "Pause" : "Play");
  for (const id of ["one", "burst", "stream"]) {
    byId(id).disabled = model.isFull;
  }
  byId("add").disabled = model.policies.length >= MOST_POLICIES;
  if (model.isFull) {
    setText(byId("shared"), `${number(model.arrivals.length)} requests are the most: choose others above.`);
  }
}

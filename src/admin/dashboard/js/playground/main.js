// The playground: wires the model, the lanes and the controls.

import { post } from "../api.js";
import { comeBackTo } from "../come_back.js";
import { byId, element, setText } from "../dom.js";
import { capital, duration } from "../format.js";
import { watchColours } from "../theme.js";
import { drawAxis } from "./axis.js";
import { wireControls } from "./controls.js";
import { wireEditor } from "./editor.js";
import { createLane } from "./lane.js";
import { Model } from "./model.js";
import { lastDecision } from "./moment.js";
import { SCENARIOS } from "./scenarios.js";
import { startPolicies } from "./settings.js";
import { decode, encode } from "./share.js";
import { fillTable, words } from "./table.js";
import { Transport } from "./transport.js";
import { spanAt } from "./view.js";

// The dashboard has a token, the playground's own server needs none.
const token = sessionStorage.getItem("token");
const send = (path, body) => post(path, body, token);

byId("home").hidden = token === null;

const model = new Model(send);
const transport = new Transport(model);
let lanes = [];
let colours = watchColours((changed) => {
  colours = changed;
  schedule();
});

/** Draws once before the next frame, however much changes until then. */
let isScheduled = false;
function schedule() {
  if (!isScheduled) {
    isScheduled = true;
    requestAnimationFrame(() => {
      isScheduled = false;
      show();
    });
  }
}

function show() {
  const span = spanAt(model.playhead);
  drawAxis(byId("axis"), span);
  lanes.forEach((lane) => lane.show(span, colours));
  if (byId("decisions").open) {
    fillTable(byId("table"), model);
  }
  const { problem } = model;
  byId("problem").hidden = !problem;
  setText(byId("problem"), problem ? problemText(problem) : "");
  if (problem?.status === 401) {
    const link = element("a", { href: "/", onclick: () => comeBackTo(location.pathname + location.hash) }, "Sign in on the dashboard");
    byId("problem").append(link, ": this page comes back then, with its requests.");
  }
}

function problemText(problem) {
  if (problem.status === 401) {
    return "";
  }
  const whys = [...new Set(problem.findings.map(({ message, help }) => [message, help].filter(Boolean).join(": ")))];
  return `${capital(problem.message)}${whys.map((why) => `; ${why}`).join("")}. The drawings show the last valid settings.`;
}

function rebuild() {
  const isOnly = model.policies.length === 1;
  const remove = (place) => () => model.setPolicies(model.policies.filter((_, number) => number !== place));
  lanes = model.policies.map((_, place) => createLane(model, place, isOnly ? null : remove(place)));
  byId("lanes").replaceChildren(...lanes.map((lane) => lane.node));
}

/** Says what the lanes decided about a request that was sent by hand. */
let hears = false;
function hearNext() {
  hears = true;
}

function tellDecisions() {
  const decided = model.lanes.map((lane) => [lane.name, lastDecision(lane, model.client, model.playhead)]);
  const told = decided.filter(([, decision]) => decision).map(([name, decision]) => `${name}: ${words(decision)}`);
  setText(byId("heard"), `At ${duration(model.playhead)}: ${told.join("; ")}`);
}

let saving = null;
function save() {
  clearTimeout(saving);
  saving = setTimeout(saveNow, 400);
}

/** Puts the state into the address, also while time runs. */
function saveNow() {
  clearTimeout(saving);
  history.replaceState(null, "", `#${encode(model)}`);
}

model.listen((kind) => {
  if (kind === "policies") {
    rebuild();
  }
  if (kind !== "time") {
    lanes.forEach((lane) => lane.configure());
  }
  if (kind === "decisions" && hears) {
    hears = false;
    tellDecisions();
  }
  if (!model.isPlaying) {
    save();
  }
  schedule();
});

wireControls(model, transport, { hearNext, saveNow });
wireEditor(model, send, {
  text: byId("text"),
  findings: byId("findings"),
  apply: byId("apply"),
  status: byId("checked"),
});
byId("decisions").addEventListener("toggle", schedule);
window.addEventListener("resize", schedule);
window.addEventListener("hashchange", () => {
  const state = shared();
  if (state) {
    model.load(state);
  }
});

/** The state of the address; null without one, or if it can't be read, which is said. */
function shared() {
  const fragment = location.hash.slice(1);
  const state = decode(fragment);
  setText(byId("shared"), fragment && !state ? "This link can't be read: it is damaged, or has times beyond 366 days." : "");
  return state;
}

const first = SCENARIOS.edge;
model.load(shared() ?? {
  policies: startPolicies(),
  arrivals: first.arrivals(),
  playhead: first.shown,
  end: first.ends,
});

// The playground: wires the model, the lanes and the controls.

import { compute } from "../api.js";
import { comeBackTo } from "../come_back.js";
import { byId, element, setText } from "../dom.js";
import { findingText } from "../findings.js";
import { capital, duration } from "../format.js";
import { showControls, wireControls } from "./controls.js";
import { wireEditor } from "./editor.js";
import { createLane } from "./lane.js";
import { Model } from "./model.js";
import { lastDecision } from "./moment.js";
import { SCENARIOS, stateOf } from "./scenarios.js";
import { startPolicies } from "./settings.js";
import { decode, encode } from "./share.js";
import { fillTable, words } from "./table.js";
import { drawAxis, viewAt } from "./timeline.js";
import { runTime } from "./transport.js";

// The dashboard has a token, the playground's own server needs none.
const token = sessionStorage.getItem("token");
const send = (path, body) => compute(path, body, token);

byId("home").hidden = token === null;

const model = new Model(send);
let lanes = [];

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

let shown = {};
function show() {
  const { policies, problem } = model;
  if (policies !== shown.policies || problem !== shown.problem) {
    configure(policies, problem);
  }
  const view = viewAt(model.playhead, byId("axis").clientWidth);
  drawAxis(byId("axis"), view);
  lanes.forEach((lane) => lane.show(view));
  byId("lanes").setAttribute("aria-busy", String(model.isAsking));
  showControls(model);
  if (byId("decisions").open) {
    fillTable(byId("table"), model);
  }
  if (hears && !model.isAsking && !problem) {
    hears = false;
    tellDecisions();
  }
}

/** Shows the policies, each in its lane, and why the server refuses them. */
function configure(policies, problem) {
  const names = policies.map(({ name }) => name).join("\n");
  if (names !== shown.names) {
    lanes = policies.map((_, place) => createLane(model, place));
    byId("lanes").replaceChildren(...lanes.map((lane) => lane.node));
  }
  shown = { policies, problem, names };
  lanes.forEach((lane) => lane.configure());
  byId("problem").hidden = !problem;
  setText(byId("problem"), problem ? problemText(problem) : "");
  if (problem?.status === 401) {
    const onclick = () => comeBackTo(location.pathname + location.hash);
    const link = element("a", { href: "/", onclick }, "Sign in on the dashboard");
    byId("problem").append(link, ": this page comes back then, with its requests.");
  }
}

function problemText(problem) {
  if (problem.status === 401) {
    return "";
  }
  const whys = new Set([capital(problem.message), ...problem.findings.map(findingText)]);
  return `${[...whys].join("; ").replace(/\.$/, "")}. The drawings show the last valid settings.`;
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

model.listen(() => {
  if (!model.isPlaying) {
    save();
  }
  schedule();
});
runTime(model);
wireControls(model, { hearNext, saveNow });
wireEditor(model, send);
byId("decisions").addEventListener("toggle", schedule);
window.addEventListener("resize", schedule);

/** The state of the address; null without one, or if it can't be read, which is said. */
function shared() {
  const fragment = location.hash.slice(1);
  const state = decode(fragment);
  const damage = "This link can't be read: it is damaged, or has times beyond 366 days.";
  setText(byId("shared"), fragment && !state ? damage : "");
  return state && { ...state, isPlaying: false };
}

window.addEventListener("hashchange", () => model.set(shared() ?? {}));
model.set(shared() ?? { policies: startPolicies(), ...stateOf(SCENARIOS.edge) });

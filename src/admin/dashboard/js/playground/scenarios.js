// Requests to begin with. The quota of all lanes is 10 in 10 s at first.

/** Requests of a client from one instant to another, with a gap in milliseconds. */
function every(at_ms, until, every_ms, key = "a") {
  return { at_ms, key, count: 1 + Math.floor((until - at_ms) / every_ms), every_ms };
}

function burst(at_ms, count) {
  return { at_ms, key: "a", count, every_ms: 40 };
}

/** Named arrivals, and the instant at which the picture says most. */
export const SCENARIOS = {
  edge: {
    title: "Around a window’s edge",
    shown: 21_500,
    arrivals: [burst(8_600, 10), burst(10_300, 10), every(14_000, 28_000, 1_000)],
  },
  steady: {
    title: "Steady, a little too fast",
    shown: 21_500,
    arrivals: [every(500, 29_000, 700)],
  },
  bursts: {
    title: "Burst, silence, burst",
    shown: 16_500,
    arrivals: [burst(1_000, 16), burst(15_500, 16), burst(26_000, 6)],
  },
  hammer: {
    title: "A client that hammers",
    shown: 17_000,
    arrivals: [every(2_000, 28_000, 250)],
  },
  two: {
    title: "Two clients, one greedy",
    shown: 17_000,
    arrivals: [every(1_000, 28_000, 300), every(1_500, 28_500, 2_000, "b")],
  },
  none: {
    title: "None: send your own",
    shown: 0,
    arrivals: [],
  },
};

/** The state of the page for a scenario. */
export function stateOf({ arrivals, shown }) {
  return { arrivals, playhead: shown, end: 30_000, isPlaying: false };
}

/** The name of the scenario that has these arrivals; undefined if none has. */
export function scenarioOf(arrivals) {
  const text = JSON.stringify(arrivals);
  return Object.keys(SCENARIOS).find((name) => JSON.stringify(SCENARIOS[name].arrivals) === text);
}

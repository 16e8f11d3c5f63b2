// Arrivals to begin with. Times are in milliseconds; the quota of all lanes is 10 in 10 s at first.

import { DURATION } from "./arrivals.js";

const A = "a";
const B = "b";

function every(from, to, gap, key = A) {
  const times = [];
  for (let at = from; at <= to; at += gap) {
    times.push({ at, key, cost: 1, lasts: DURATION });
  }
  return times;
}

function burst(at, count, key = A) {
  return Array.from({ length: count }, (_, place) => ({ at: at + place * 40, key, cost: 1, lasts: DURATION }));
}

function inOrder(arrivals) {
  return arrivals.sort((left, right) => left.at - right.at);
}

/** Named arrivals, and the instant at which the picture says most. */
export const SCENARIOS = {
  edge: {
    title: "Around a window’s edge",
    ends: 30_000,
    shown: 21_500,
    arrivals: () => inOrder([...burst(8_600, 10), ...burst(10_300, 10), ...every(14_000, 28_000, 1_000)]),
  },
  steady: {
    title: "Steady, a little too fast",
    ends: 30_000,
    shown: 21_500,
    arrivals: () => every(500, 29_000, 700),
  },
  bursts: {
    title: "Burst, silence, burst",
    ends: 30_000,
    shown: 16_500,
    arrivals: () => inOrder([...burst(1_000, 16), ...burst(15_500, 16), ...burst(26_000, 6)]),
  },
  hammer: {
    title: "A client that hammers",
    ends: 30_000,
    shown: 17_000,
    arrivals: () => every(2_000, 28_000, 250),
  },
  two: {
    title: "Two clients, one greedy",
    ends: 30_000,
    shown: 17_000,
    arrivals: () => inOrder([...every(1_000, 28_000, 300, A), ...every(1_500, 28_500, 2_000, B)]),
  },
  none: {
    title: "None: send your own",
    ends: 30_000,
    shown: 0,
    arrivals: () => [],
  },
};

/** The name of the scenario that has these arrivals; null if none has. */
export function scenarioOf(arrivals) {
  const isSame = (one, place) => one.at === arrivals[place].at && one.key === arrivals[place].key;
  const names = Object.keys(SCENARIOS);
  return names.find((name) => {
    const own = SCENARIOS[name].arrivals();
    return own.length === arrivals.length && own.every(isSame);
  }) ?? null;
}

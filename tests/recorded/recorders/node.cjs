// The limiters in JavaScript: reads {subject, options, arrivals} as JSON, and writes the answers as JSON (see subjects.py).
"use strict";

const FakeTimers = require("@sinonjs/fake-timers");

/** Keeps what `make` makes for each key. */
function perKey(make) {
  const made = new Map();
  return (key) => made.get(key) ?? made.set(key, make(key)).get(key);
}

async function expressRateLimit({ limit, windowMs }) {
  const { MemoryStore } = require("express-rate-limit");
  const store = new MemoryStore();
  store.init({ windowMs });
  return async (key) => {
    const { totalHits, resetTime } = await store.increment(key);
    return [totalHits <= limit ? "admit" : "refuse", Math.max(limit - totalHits, 0), resetTime.getTime() - Date.now()];
  };
}

async function rateLimiterFlexible({ limit, windowMs }) {
  const { RateLimiterMemory } = require("rate-limiter-flexible");
  const limiter = new RateLimiterMemory({ points: limit, duration: windowMs / 1000 });
  return (key, units) =>
    limiter.consume(key, units).then(
      ({ remainingPoints }) => ["admit", remainingPoints, null],
      ({ remainingPoints, msBeforeNext }) => ["refuse", remainingPoints, msBeforeNext],
    );
}

async function rollingRateLimiter({ limit, windowMs }) {
  // Its clock is a native addon, which has microseconds.
  const clock = require.resolve("microtime", { paths: [require.resolve("rolling-rate-limiter")] });
  require.cache[clock] = { id: clock, filename: clock, loaded: true, exports: { now: () => Date.now() * 1000 } };
  const { InMemoryRateLimiter } = require("rolling-rate-limiter");
  const limiter = new InMemoryRateLimiter({ interval: windowMs, maxInInterval: limit });
  return async (key) => {
    const { blocked, actionsRemaining, millisecondsUntilAllowed } = await limiter.limitWithInfo(key);
    return [blocked ? "refuse" : "admit", actionsRemaining, millisecondsUntilAllowed];
  };
}

async function limiter({ limit, windowMs, burst }) {
  const { TokenBucket } = require("limiter");
  const bucket = perKey(() => {
    const made = new TokenBucket({ bucketSize: burst, tokensPerInterval: limit, interval: windowMs });
    made.content = burst;
    return made;
  });
  return async (key, units) => {
    const isAdmitted = bucket(key).tryRemoveTokens(units);
    return [isAdmitted ? "admit" : "refuse", Math.floor(bucket(key).content), bucket(key).getWaitTime(units)];
  };
}

async function bottleneck({ minTime }) {
  // It yields by timers of 0 ms, which fake-timers runs a millisecond later.
  const { setTimeout } = globalThis;
  globalThis.setTimeout = (run, delay, ...told) => (delay ? setTimeout(run, delay, ...told) : Promise.resolve().then(run));
  const Bottleneck = require("bottleneck");
  const line = perKey(() => new Bottleneck({ minTime }));
  return async (key) => {
    const arrived = Date.now();
    const waited = await line(key).schedule(async () => Date.now() - arrived);
    return [waited ? "delay" : "admit", null, waited];
  };
}

/** Has its counters in Redis, whose clock it does not read; a second of its clock is a millisecond. */
async function rateLimitJs({ limit, windowMs, partMs, port }, arrivals) {
  const { RateLimit } = require("ratelimit.js");
  const client = require("redis").createClient(port, "127.0.0.1");
  const limiter = new RateLimit(client, [{ interval: windowMs, limit, precision: partMs }]);
  const answers = [];
  for (const [micros, key, units] of arrivals) {
    Date.now = () => micros;
    const refused = await new Promise((resolve, reject) =>
      limiter.incr([key], units, (error, result) => (error ? reject(error) : resolve(result))),
    );
    answers.push([refused ? "refuse" : "admit", null, null]);
  }
  client.end();
  return answers;
}

const timed = { expressRateLimit, rateLimiterFlexible, rollingRateLimiter, limiter, bottleneck };

async function onVirtualTime(make, options, arrivals) {
  const start = arrivals[0][0] / 1000;
  const clock = FakeTimers.install({ now: start });
  const decide = await make(options);
  const pending = [];
  for (const [micros, key, units] of arrivals) {
    await clock.tickAsync(micros / 1000 - Date.now());
    pending.push(decide(key, units));
    await clock.tickAsync(0);
  }
  await clock.tickAsync(3_600_000);
  const answers = await Promise.all(pending);
  clock.uninstall();
  const inMicros = (wait) => (wait === null ? null : Math.round(wait * 1000));
  return answers.map(([verdict, left, wait]) => [verdict, left, verdict === "admit" ? null : inMicros(wait)]);
}

async function main() {
  const { subject, options, arrivals } = JSON.parse(require("fs").readFileSync(0, "utf8"));
  const answers = await (subject === "rateLimitJs"
    ? rateLimitJs(options, arrivals)
    : onVirtualTime(timed[subject], options, arrivals));
  process.stdout.write(JSON.stringify(answers), () => process.exit());
}

main();

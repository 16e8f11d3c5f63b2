"""What is recorded: a file for each limiter and algorithm, of sections with a policy, arrivals and decisions (README.md)."""

import contextlib
import json
import pathlib
import socket
import subprocess
import sys
import time

import nginx
import subjects
from histories import history

HERE = pathlib.Path(__file__).resolve().parent
SEEDS = (1, 2)


@contextlib.contextmanager
def redis():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--loglevel", "warning"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        for _ in range(500):
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.01)
        yield port
    finally:
        server.terminate()
        server.wait()


def asked(command, question):
    answered = subprocess.run(command, input=json.dumps(question), text=True, stdout=subprocess.PIPE, check=True)
    return json.loads(answered.stdout)


def node(subject):
    def recorded(options, arrivals):
        return asked(["node", HERE / "node.cjs"], {"subject": subject, "options": options, "arrivals": arrivals})

    return recorded


def in_redis(options, arrivals):
    with redis() as port:
        return node("rateLimitJs")(options | {"port": port}, arrivals)


def time_rate(options, arrivals):
    command = ["env", "GO111MODULE=off", "GOPATH=/usr/share/gocode", "go", "run", HERE / "time_rate.go"]
    return asked(command, {"options": options, "arrivals": arrivals})


def section(options, policy, window_ms, limit, grid=1000, units=1, keys=2):
    return {"options": options, "policy": policy, "window": window_ms * 1000, "limit": limit, "grid": grid, "units": units, "keys": keys}


def windows(policy, more=None, units=1, of=((20, 30_000), (3, 12_000)), **what):
    """A section for each quota, for libraries that take a limit and the length of a window."""
    sections = []
    for limit, window in of:
        told = {"limit": limit, "window_ms": window, "windowMs": window} | (more or {})
        sections.append(section(told, policy.format(limit=limit, window=window, next=window + 1), window, limit, units=min(units, limit), **what))
    return sections


def tokens(policy, more=None, of=((1, 8, 20), (1, 512, 5)), grid=None, units=3, **what):
    """A section for each bucket: as many tokens each so many milliseconds, and room for so many. Where no grid is given,
    requests come when whole tokens do."""
    sections = []
    for limit, window, burst in of:
        told = {"limit": limit, "window_ms": window, "windowMs": window, "burst": burst} | (more or {})
        told |= {"Limit": limit, "WindowMs": window, "Burst": burst}
        written = policy.format(limit=limit, window=window, burst=burst, places=burst - 1)
        whole = window * burst // limit
        sections.append(section(told, written, whole, burst, grid=grid or window * 1000 // limit, units=units, **what))
    return sections


def line(sections):
    """Sections of nginx: requests a second, burst, delay."""
    made = []
    for rate, burst, delay in sections:
        policy = f"quota: {rate}/1s, algorithm: leaky_bucket, queue: {burst}, max_wait: 1h, delay_after: {delay}"
        made.append(section({"rate": rate, "burst": burst, "delay": delay}, policy, 1000 * (burst + 1) // rate, burst + 1))
    return made


FIRST = "quota: {limit}/{window}ms, algorithm: fixed_window, start: first_request"
CLOCK = "quota: {limit}/{window}ms, algorithm: fixed_window"
LOG = "quota: {limit}/{window}ms, algorithm: sliding_log"
LONGER_LOG = "quota: {limit}/{next}ms, algorithm: sliding_log"
WEIGHTED = "quota: {limit}/{window}ms, algorithm: sliding_window"
GCRA = "quota: {limit}/{window}ms, burst: {burst}"
BUCKET = "quota: {limit}/{window}ms, algorithm: token_bucket, burst: {burst}"
METER = "quota: {limit}/{window}ms, algorithm: leaky_bucket, queue: {places}, max_wait: 1h, delay_after: {places}"
LINE = "quota: {limit}/{window}ms, algorithm: leaky_bucket, queue: 1000, max_wait: 1h, delay_after: {places}"
CHARGED = ", charge_refused: true"

QUARTERS = 250
CELLS = ((10, 60_000, 10), (1, 432, 200), (4, 1000, 3), (1, 4, 20))

RECORDINGS = {
    "limits-fixed-window": ("limits 5.8.0 (MIT), FixedWindowRateLimiter", subjects.limits, [
        *windows(FIRST, {"strategy": "fixed-window"}, grid=QUARTERS),
        *windows(FIRST + CHARGED, {"strategy": "fixed-window"}, units=4),
    ]),
    "limits-moving-window": ("limits 5.8.0 (MIT), MovingWindowRateLimiter", subjects.limits,
        windows(LONGER_LOG, {"strategy": "moving-window"}, units=3, of=((20, 30_000), (3, 5_000)))),
    "limits-sliding-window": ("limits 5.8.0 (MIT), SlidingWindowCounterRateLimiter", subjects.limits,
        windows(WEIGHTED, {"strategy": "sliding-window-counter"}, units=3, of=((20, 32_768), (4, 4_096)), grid=QUARTERS)),
    "throttled-fixed-window": ("throttled-py 3.5.0 (MIT), fixed_window", subjects.throttled, [
        *windows(CLOCK, {"using": "fixed_window"}),
        *windows(CLOCK + CHARGED, {"using": "fixed_window"}, units=4),
    ]),
    "throttled-gcra": ("throttled-py 3.5.0 (MIT), gcra", subjects.throttled,
        tokens(GCRA, {"using": "gcra"}, of=CELLS, grid=QUARTERS)),
    "throttled-token-bucket": ("throttled-py 3.5.0 (MIT), token_bucket", subjects.throttled,
        tokens(BUCKET, {"using": "token_bucket"}, of=((1, 10, 500), (1, 8, 20), (3, 3, 7)))),
    "throttled-leaking-bucket": ("throttled-py 3.5.0 (MIT), leaking_bucket", subjects.throttled,
        tokens(METER, {"using": "leaking_bucket"})),
    "pyrate-log": ("pyrate-limiter 4.5.1 (MIT), SlidingWindowLog", subjects.pyrate,
        windows(LONGER_LOG, {"algorithm": "SlidingWindowLog"}, units=3, of=((20, 30_000), (15, 1_000), (3, 5_000)))),
    "pyrate-fixed-window": ("pyrate-limiter 4.5.1 (MIT), FixedWindow", subjects.pyrate,
        windows(CLOCK, {"algorithm": "FixedWindow"}, units=3)),
    "pyrate-gcra": ("pyrate-limiter 4.5.1 (MIT), GCRA", subjects.pyrate,
        tokens(GCRA, {"algorithm": "GCRA"}, of=CELLS, grid=1000)),
    "aiolimiter": ("aiolimiter 1.3.0 (MIT), AsyncLimiter", subjects.aiolimiter, [
        section({"limit": 4, "window_ms": 256}, LINE.format(limit=4, window=256, places=3), 256, 4),
        section({"limit": 1, "window_ms": 32}, LINE.format(limit=1, window=32, places=0), 64, 2),
    ]),
    "express-rate-limit": ("express-rate-limit 8.7.4 (MIT), MemoryStore", node("expressRateLimit"), windows(FIRST)),
    "rate-limiter-flexible": ("rate-limiter-flexible 11.4.0 (ISC), RateLimiterMemory", node("rateLimiterFlexible"), [
        *windows(FIRST),
        *windows(FIRST + CHARGED, units=4),
    ]),
    "rolling-rate-limiter": ("rolling-rate-limiter 0.4.2 (MIT), InMemoryRateLimiter", node("rollingRateLimiter"),
        windows(LOG + CHARGED, of=((20, 30_000), (5, 2_000)))),
    "limiter": ("limiter 4.1.0 (MIT), TokenBucket", node("limiter"),
        tokens(BUCKET, of=((1, 8, 20), (4, 1024, 9)), grid=1000)),
    "bottleneck": ("bottleneck 2.19.5 (MIT), minTime", node("bottleneck"), [
        section({"minTime": 100}, LINE.format(limit=1, window=100, places=0), 1000, 10),
        section({"minTime": 7}, LINE.format(limit=1, window=7, places=0), 14, 2),
    ]),
    "ratelimit.js": ("ratelimit.js 1.8.0 (MIT), counters of parts of the window in Redis", in_redis, [
        section({"limit": 60, "windowMs": 3_600_000, "partMs": 60_000},
            "quota: 60/1h, algorithm: sliding_window, precision: 60, oldest: ignored", 3_600_000, 60, units=5),
        section({"limit": 10, "windowMs": 6_000, "partMs": 1_000},
            "quota: 10/6s, algorithm: sliding_window, precision: 6, oldest: ignored", 6_000, 10, units=3),
    ]),
    "go-time-rate": ("golang.org/x/time/rate 0.3.0 (BSD-3-Clause), Limiter", time_rate, [
        *tokens(BUCKET, of=((1, 8, 20), (4, 1024, 9)), grid=QUARTERS),
        *tokens(LINE.replace("1h", "16384ms"), {"MaxDelayMs": 16_384 - 512 * 4}, of=((1, 512, 5),), grid=QUARTERS),
    ]),
    "nginx-limit-req": ("nginx 1.22.1 (BSD-2-Clause), limit_req", nginx.limit_req,
        line(((10, 20, 0), (10, 20, 8), (5, 12, 12), (1, 5, 0), (100, 0, 0)))),
}


def recorded(implementation, subject, sections):
    for described in sections:
        for seed in SEEDS:
            arrivals = history(seed, described["window"], described["limit"], described["grid"], described["keys"], described["units"])
            header = {"implementation": implementation, "options": described["options"], "policy": described["policy"], "seed": seed}
            yield json.dumps(header)
            last = 0
            for (time, key, units), answer in zip(arrivals, subject(described["options"], arrivals), strict=True):
                if answer is not None:
                    verdict, left, wait = ("-" if part is None else part for part in answer)
                    yield f"{time - last} {key} {units} {verdict} {left} {wait}"
                    last = time


def main():
    directory, *names = sys.argv[1:]
    for name in names or RECORDINGS:
        lines = list(recorded(*RECORDINGS[name]))
        (pathlib.Path(directory) / f"{name}.txt").write_text("\n".join(lines) + "\n")
        print(name, len(lines), flush=True)


main()

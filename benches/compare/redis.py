"""Runs sluicegate with its buckets in memory and in Redis side by side, and prints what each costs.

As in compare.py, the proxy has core 0; the load generator, the origin and the redis-server share core 1, which is the
bottleneck: requests/s are those of this machine, and say how the cases compare. Everything is on 127.0.0.1.
"""

import argparse
import contextlib
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from bench import LOAD_CORE, PROXY_CORE, Bench, column, cpu_model, cpu_seconds, free_port, load, measure, stop

MANY = {"quota": "1000000/1s", "limits": "[per-key]", "cache": "0s", "sync": ""}
FEW = {**MANY, "quota": "1/300d"}
CASES = {
    "memory, admit": {**MANY, "store": "memory"},
    "synchronised every 100 ms, admit": {**MANY, "store": "redis", "sync": ", sync: 100ms"},
    "synchronised every 1 s, admit": {**MANY, "store": "redis", "sync": ", sync: 1s"},
    "Redis exact, admit": {**MANY, "store": "redis"},
    "Redis exact, two policies": {**MANY, "store": "redis", "limits": "[per-key, all]"},
    "memory, refuse": {**FEW, "store": "memory"},
    "synchronised every 100 ms, refuse": {**FEW, "store": "redis", "sync": ", sync: 100ms"},
    "Redis exact, refuse": {**FEW, "store": "redis"},
    "Redis cached, refuse": {**FEW, "store": "redis", "cache": "1m"},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sluicegate", required=True, help="the binary to measure")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default 5)")
    parser.add_argument("--seconds", type=int, default=3, help="of load for a case in a round (default 3)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as processes:
        bench = RedisBench(pathlib.Path(folder), processes, options.sluicegate)
        for case, values in CASES.items():
            bench.start(case, values)
        results = bench.measure(options.rounds, options.seconds)
        bare = bench.bare_evalsha()
        print(report(results, bare, bench, options))


@contextlib.contextmanager
def awake():
    """Keeps the cores from sleeping, by processes that run only where nothing else would. With one request at a time each
    hop finds its core asleep, and to wake that takes a virtual machine longer than what is measured."""
    with contextlib.ExitStack() as processes:
        for core in (PROXY_CORE, LOAD_CORE):
            idler = subprocess.Popen(["taskset", "-c", core, "chrt", "-i", "0", "sh", "-c", "while :; do :; done"])
            processes.callback(stop, idler)
        yield


class RedisBench(Bench):
    """The running origin, redis-server and proxies."""

    def __init__(self, folder, processes, sluicegate):
        super().__init__(folder, processes, sluicegate)
        self.redis = free_port()
        command = ["redis-server", "--port", str(self.redis), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
        process = subprocess.Popen(["taskset", "-c", LOAD_CORE, *command], stdout=subprocess.DEVNULL)
        processes.callback(stop, process)
        deadline = time.monotonic() + 20
        while not self.redis_answers():
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit("redis-server does not answer")
            time.sleep(0.05)

    def redis_answers(self):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.redis), 1):
            return True
        return False

    def start(self, case, values):
        port = free_port()
        values = {**values, "port": port, "admin": free_port(), "redis": self.redis}
        config = self.write("redis.yaml", re.sub(r"\W+", "-", case), values)
        command = [self.sluicegate, "run", "--config", config]
        self.running[case] = (self.spawn(PROXY_CORE, command, port), port)

    def measure(self, rounds, seconds):
        results = {case: [] for case in self.running}
        for number in range(rounds):
            for case, (pid, port) in self.running.items():
                self.alone(pid)
                load(port, 1)
                self.command("CONFIG", "RESETSTAT")
                result = measure(pid, lambda: load(port, seconds))
                result["calls"] = self.calls() / result["requests"]
                with awake():
                    result["alone"] = load(port, 1, connections=1)
                results[case].append(result)
            self.alone(None)
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
        return results

    def alone(self, only):
        """Has one proxy run, or all where it is None: those that are synchronised work also while nobody asks them."""
        for pid, _ in self.running.values():
            os.kill(pid, signal.SIGCONT if only in (None, pid) else signal.SIGSTOP)

    def command(self, *words):
        command = ["redis-cli", "-p", str(self.redis), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def calls(self):
        """Scripts that were run since the counters were reset; keeps the microseconds of one of the last case."""
        found = re.search(r"cmdstat_evalsha:calls=(\d+),usec=\d+,usec_per_call=([\d.]+)", self.command("INFO", "commandstats"))
        if found:
            self.script = float(found[2])
        return int(found[1]) if found else 0

    def bare_evalsha(self):
        """The times of a script that does nothing, over one connection, in microseconds: the median, and that of one in a hundred."""
        sha = self.command("SCRIPT", "LOAD", "return 1").strip()
        command = ["redis-benchmark", "-p", str(self.redis), "-c", "1", "-n", "20000", "--csv", "EVALSHA", sha, "0"]
        with awake():
            output = subprocess.run(["taskset", "-c", PROXY_CORE, *command], capture_output=True, text=True, check=True).stdout
        header, values = (line.replace('"', "").split(",") for line in output.splitlines()[-2:])
        times = dict(zip(header, values))
        return [1000 * float(times[f"{name}_latency_ms"]) for name in ("p50", "p99")]

    def key_bytes(self):
        """The median size of a bucket."""
        keys = self.command("--scan", "--pattern", "*per-key").split()[:100]
        return statistics.median(int(self.command("MEMORY", "USAGE", key)) for key in keys)


def report(results, bare, bench, options):
    lines = [
        f"{options.rounds} interleaved rounds of {options.seconds} s, 64 keep-alive connections, 10,000 keys; one worker on one "
        f"core of {cpu_model()}. A bare EVALSHA takes {bare[0]:.0f} us (p50, one connection; p99 {bare[1]:.0f}); the script, as "
        f"the server counts it, {bench.script:.0f} us; a gcra bucket {bench.key_bytes():.0f} bytes.",
        "",
        "| case | CPU us a request | to memory | calls a request | requests/s | calls/s | p50 us | p99 us | one connection: p50 us | p99 us |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for case, rounds in results.items():
        memory = results[f"memory, {'refuse' if 'refuse' in case else 'admit'}"]
        ratios = [a / b for a, b in zip(column(rounds, "cpu"), column(memory, "cpu"))]
        median = lambda name: statistics.median(column(rounds, name))
        alone = lambda name: statistics.median(result["alone"][name] for result in rounds)
        cells = [
            case,
            f"{median('cpu'):.1f}",
            f"{statistics.median(ratios):.2f}",
            f"{median('calls'):.2f}",
            f"{median('rate'):,.0f}",
            f"{median('calls') * median('rate'):,.0f}",
            f"{median('p50'):.0f}",
            f"{median('p99'):.0f}",
            f"{alone('p50'):.0f}",
            f"{alone('p99'):.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()

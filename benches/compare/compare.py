"""Runs proxies side by side and prints the CPU time that each takes a request.

Every proxy has one worker on core 0; the load generator and the origin share core 1. In each round every
proxy gets every workload in turn, so that a change of the machine's pace meets all of them, and is started anew, so
that the pages which a process happens to get do not decide: they make up to 5 % for as long as it lives. What is
reported are medians over the rounds, and medians of the ratios inside a round. The figure is user and system time of the
proxy's own processes from /proc, over the requests that the load generator counted. Everything is on 127.0.0.1.
"""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).parent
PROXY_CORE, LOAD_CORE = "0", "1"
# Runs until one is whole.
TRIES = 5
TICKS = os.sysconf("SC_CLK_TCK")


def haproxy_limit(most):
    return (
        "http-request track-sc0 req.hdr(x-api-key) table keys\n"
        f"    http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt {most} }}"
    )


# What each workload puts into each proxy's configuration. `admit` decides and never refuses; `refuse` admits each
# of the 10,000 keys about once.
WORKLOADS = {
    "no limit": {
        "nginx": {"rate": "1r/s", "limit": ""},
        "haproxy": {"limit": ""},
        "sluicegate": {"quota": "1/1h", "limits": "[]"},
    },
    "admit": {
        "nginx": {"rate": "1000000r/s", "limit": "limit_req zone=keys burst=1000000 nodelay;"},
        "haproxy": {"limit": haproxy_limit(1000000000)},
        "sluicegate": {"quota": "1000000/1s", "limits": "[per-key]"},
    },
    "refuse": {
        "nginx": {"rate": "1r/m", "limit": "limit_req zone=keys;"},
        "haproxy": {"limit": haproxy_limit(1)},
        "sluicegate": {"quota": "1/1h", "limits": "[per-key]"},
    },
}
# nginx buffers its log as sluicegate does; HAProxy has none but to syslog.
PROXIES = ["nginx", "nginx, access log", "haproxy", "sluicegate", "sluicegate, access log"]
ACCESS_LOG = {
    "nginx": {True: "@dir@/logs/@name@.log combined buffer=64k flush=1s", False: "off"},
    "haproxy": {False: ""},
    "sluicegate": {True: "{ format: combined, path: @dir@/logs/@name@.log }", False: "{ format: disabled }"},
}


def main():
    options = arguments()
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("compare needs two cores: one for the proxy, one for the load")
    results = {(workload, proxy): [] for workload in WORKLOADS for proxy in PROXIES}
    for number in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as processes:
            bench = Bench(pathlib.Path(folder), processes, options.sluicegate)
            for case in results:
                bench.start(*case)
            for case, result in bench.run(options.seconds).items():
                results[case].append(result)
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
    print(report(results, options))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sluicegate", required=True, help="the binary to measure")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default 7)")
    parser.add_argument("--seconds", type=int, default=3, help="of load for a proxy in a round (default 3)")
    return parser.parse_args()


class Bench:
    """The running origin and proxies."""

    def __init__(self, folder, processes, sluicegate):
        self.folder = folder
        # Apart from the configurations: sluicegate looks at what changes beside its own, and so would all that are measured.
        (folder / "logs").mkdir()
        self.processes = processes
        self.sluicegate = sluicegate
        self.origin = free_port()
        self.running = {}
        config = self.write("origin.conf", "origin.conf", {})
        self.spawn(LOAD_CORE, ["nginx", "-p", str(folder), "-c", config], self.origin)

    def start(self, workload, proxy):
        """Starts a proxy with the configuration of a workload."""
        kind, _, access_log = proxy.partition(", ")
        name = f"{proxy}-{workload}".replace(" ", "-").replace(",", "")
        port = free_port()
        values = {
            "access_log": ACCESS_LOG[kind][bool(access_log)],
            **WORKLOADS[workload][kind],
            "name": name,
            "port": port,
            "admin": free_port(),
        }
        template = {"nginx": "nginx.conf", "haproxy": "haproxy.cfg", "sluicegate": "sluicegate.yaml"}[kind]
        config = self.write(template, name, values)
        command = {
            "nginx": ["nginx", "-p", str(self.folder), "-c", config],
            "haproxy": ["haproxy", "-db", "-q", "-f", config],
            "sluicegate": [self.sluicegate, "run", "--config", config],
        }[kind]
        self.running[workload, proxy] = (self.spawn(PROXY_CORE, command, port), port)

    def run(self, seconds):
        """The result of each that runs: {(workload, proxy): Result}."""
        results = {}
        for case, (pid, port) in self.running.items():
            # Fills caches and pools.
            load(port, 1)
            results[case] = measure_well(case, pid, port, seconds)
        return results

    def write(self, template, name, values):
        text = (HERE / template).read_text()
        for key, value in {**values, "origin": self.origin, "dir": self.folder}.items():
            text = text.replace(f"@{key}@", str(value))
        path = self.folder / f"{name}.conf"
        path.write_text(text)
        return str(path)

    def spawn(self, core, command, port):
        """Starts a process on a core and waits until it answers on a port."""
        errors = open(self.folder / f"{port}.stderr", "w+")
        process = subprocess.Popen(["taskset", "-c", core, *command], stdout=errors, stderr=errors)
        self.processes.callback(stop, process)
        deadline = time.monotonic() + 20
        while not answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                errors.seek(0)
                sys.exit(f"{' '.join(command)} does not answer:\n{errors.read()}")
            time.sleep(0.05)
        return process.pid


def stop(process):
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def answers(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/item", timeout=2) as response:
            return response.status == 200
    except urllib.error.HTTPError as error:
        return error.code == 429
    except OSError:
        return False


def measure_well(case, pid, port, seconds):
    """A run in which the proxy did the work that is compared: a machine that stands still for a moment makes
    requests time out, and such a run is made again."""
    for _ in range(TRIES):
        result = measure(pid, port, seconds)
        refused = result["refused"] / result["requests"]
        right = refused > 0.9 if case[0] == "refuse" else refused == 0
        if right and not result["broken"]:
            return result
    sys.exit(f"{case}: {refused:.1%} refused, {result['broken']} broken: {result}")


def measure(pid, port, seconds):
    """One run of load against a proxy, with the CPU time that the proxy took."""
    before = cpu_seconds(pid)
    result = load(port, seconds)
    used = cpu_seconds(pid) - before
    result["cpu"] = 1e6 * used / result["requests"]
    result["rate"] = 1e6 * result["requests"] / result["microseconds"]
    return result


def load(port, seconds, connections=64):
    """Runs the load generator; what it counted."""
    command = ["taskset", "-c", LOAD_CORE, "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(HERE / "keys.lua")]
    output = subprocess.run(
        [*command, f"http://127.0.0.1:{port}"], capture_output=True, text=True, timeout=seconds + 30, check=True
    )
    return json.loads(output.stdout.splitlines()[-1])


def cpu_seconds(pid):
    """User and system time of a process and its descendants."""
    ticks = sum(int(field) for field in stat(pid)[11:13])
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return ticks / TICKS + sum(cpu_seconds(int(child)) for child in children)


def stat(pid):
    """The fields of /proc/PID/stat after the name, which may hold anything."""
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def report(results, options):
    lines = [
        f"{options.rounds} interleaved rounds of {options.seconds} s, 64 keep-alive connections, 10,000 keys; "
        f"one worker on one core of {cpu_model()}, Linux {platform.release()}.",
        f"{version('nginx', '-v')}; {version('haproxy', '-v')}; {version(options.sluicegate, '--version')}.",
        "",
        "| workload | proxy | CPU us a request | to nginx | to the better of nginx and haproxy | requests/s | p50 us | p99 us |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (workload, proxy), rounds in results.items():
        nginx = column(results[workload, "nginx, access log" if "log" in proxy else "nginx"], "cpu")
        haproxy = column(results[workload, "haproxy"], "cpu")
        better = [min(pair) for pair in zip(nginx, haproxy)]
        own = column(rounds, "cpu")
        cells = [
            workload,
            proxy,
            f"{statistics.median(own):.1f}",
            f"{ratio(own, nginx):.2f}",
            f"{ratio(own, better):.2f}",
            f"{statistics.median(column(rounds, 'rate')):,.0f}",
            f"{statistics.median(column(rounds, 'p50')):.0f}",
            f"{statistics.median(column(rounds, 'p99')):.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def column(rounds, name):
    return [result[name] for result in rounds]


def ratio(own, other):
    """The median of the ratios inside each round."""
    return statistics.median(a / b for a, b in zip(own, other))


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(": ")[2]
    return platform.machine()


def version(command, option):
    output = subprocess.run([command, option], capture_output=True, text=True)
    return (output.stdout + output.stderr).splitlines()[0].split(" http")[0]


if __name__ == "__main__":
    main()

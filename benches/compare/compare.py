"""Runs proxies side by side and prints the CPU time that each takes a request.

Every proxy has one worker. In each round every proxy gets every workload in turn, so that a change of the machine's pace
meets all of them. Each is started anew, so that the pages which a process happens to get do not decide: they make up to
5 % for as long as it lives. What is reported are medians over the rounds, and medians of the ratios inside a round. The
figure is user and system time of the proxy's own processes from /proc, over the requests that the load generator counted.
"""

import argparse
import contextlib
import dataclasses
import os
import pathlib
import platform
import statistics
import sys
import tempfile
import threading
import urllib.request

from bench import KEYS, PROXY_CORE, Bench, column, cpu_model, free_port, load, load_h2, measure, ratio, version

TOKEN = "the-token-of-the-comparison"
ASKED_EACH_SECOND = ("/v1/status", "/v1/policies", "/metrics")
# Runs until one is whole.
TRIES = 5
TEMPLATES = {"nginx": "nginx.conf", "haproxy": "haproxy.cfg", "sluicegate": "sluicegate.yaml"}
# nginx buffers its log as sluicegate does; HAProxy has none but to syslog.
ACCESS_LOG = {
    "nginx": {True: "@dir@/logs/@name@.log combined buffer=64k flush=1s", False: "off"},
    "haproxy": {False: ""},
    "sluicegate": {True: "{ format: combined, path: @dir@/logs/@name@.log }", False: "{ format: disabled }"},
}


def haproxy_limit(most):
    return (
        "http-request track-sc0 @key@ table keys\n"
        f"    http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt {most} }}"
    )


# What a limit puts into each proxy's configuration. `admit` decides and never refuses; `refuse` admits each key about once.
NO_LIMIT = {
    "nginx": {"rate": "1r/s", "limit": ""},
    "haproxy": {"limit": ""},
    "sluicegate": {"quota": "1/1h", "limits": "[]"},
}
ADMIT = {
    "nginx": {"rate": "1000000r/s", "limit": "limit_req zone=keys burst=1000000 nodelay;"},
    "haproxy": {"limit": haproxy_limit(1000000000)},
    "sluicegate": {"quota": "1000000/1s", "limits": "[per-key]"},
}
REFUSE = {
    "nginx": {"rate": "1r/m", "limit": "limit_req zone=keys;"},
    "haproxy": {"limit": haproxy_limit(1)},
    "sluicegate": {"quota": "1/1h", "limits": "[per-key]"},
}
# The transport of clients: where their key is, and what a listener says.
CLEARTEXT = {
    "nginx": {"key": "http_x_api_key", "listen": "", "tls": ""},
    "haproxy": {"key": "req.hdr(x-api-key)", "listen": ""},
    "sluicegate": {"key": "header:x-api-key", "tls": ""},
}
TLS_H2 = {
    "nginx": {
        "key": "arg_key",
        "listen": "ssl http2",
        "tls": "ssl_certificate @dir@/certificate.pem; ssl_certificate_key @dir@/key.pem; http2_max_requests 1000000000;",
    },
    "haproxy": {"key": "url_param(key)", "listen": "ssl crt @dir@/both.pem alpn h2,http/1.1"},
    "sluicegate": {
        "key": "query:key",
        "tls": "tls: { certificates: [{ certificate: @dir@/certificate.pem, key: @dir@/key.pem }] }",
    },
}


@dataclasses.dataclass
class Workload:
    """Requests of one kind, and what they need of the proxies."""

    limit: dict
    transport: dict = dataclasses.field(default_factory=lambda: CLEARTEXT)
    path: str = "/item"
    connections: int = 64
    has_h2_upstream: bool = False
    proxies: tuple = ("nginx", "haproxy", "sluicegate")

    def load(self, port, seconds, folder):
        if self.transport is TLS_H2:
            return load_h2(port, seconds, folder)
        return load(port, seconds, self.connections, self.path)


DASHBOARD = "sluicegate, dashboard open"
WITH_LOGS = ("nginx", "nginx, access log", "haproxy", "sluicegate", "sluicegate, access log", DASHBOARD)
WORKLOADS = {
    "no limit": Workload(NO_LIMIT, proxies=WITH_LOGS),
    "admit": Workload(ADMIT, proxies=WITH_LOGS),
    "refuse": Workload(REFUSE, proxies=WITH_LOGS),
    "TLS and HTTP/2, admit": Workload(ADMIT, TLS_H2),
    "TLS and HTTP/2, refuse": Workload(REFUSE, TLS_H2),
    # nginx speaks HTTP/2 with no upstream but one of gRPC.
    "HTTP/2 upstream, admit": Workload(ADMIT, has_h2_upstream=True, proxies=("haproxy", "sluicegate")),
    "bodies of 1 MiB": Workload(NO_LIMIT, path="/body", connections=16),
}


def main():
    options = arguments()
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("compare needs two cores: one for the proxy, one for the load")
    chosen = {name: workload for name, workload in WORKLOADS.items() if options.only in name}
    results = {(name, proxy): [] for name, workload in chosen.items() for proxy in workload.proxies}
    for number in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as processes:
            bench = Proxies(pathlib.Path(folder), processes, options.sluicegate)
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
    parser.add_argument("--only", default="", help="run the workloads whose names contain this")
    return parser.parse_args()


class Proxies(Bench):
    """The running proxies, one for each workload."""

    def __init__(self, *args):
        super().__init__(*args)
        self.admin = {}

    def start(self, name, proxy):
        """Starts a proxy with the configuration of a workload."""
        workload = WORKLOADS[name]
        kind, _, addition = proxy.partition(", ")
        is_tls = workload.transport is TLS_H2
        if is_tls:
            self.certify()
        file_name = "".join(c if c.isalnum() else "-" for c in f"{proxy}-{name}")
        port, admin = free_port(), free_port()
        values = {
            "access_log": ACCESS_LOG[kind][addition == "access log"],
            **workload.limit[kind],
            **workload.transport[kind],
            "name": file_name,
            "port": port,
            "admin": admin,
            "token": TOKEN,
            "proto": "proto h2" if workload.has_h2_upstream else "",
            "protocol": ", protocol: h2" if workload.has_h2_upstream else "",
            "upstream": self.origin_h2 if workload.has_h2_upstream else self.origin,
        }
        config = self.write(TEMPLATES[kind], file_name, values)
        command = {
            "nginx": ["nginx", "-p", str(self.folder), "-c", config],
            "haproxy": ["haproxy", "-db", "-q", "-f", config],
            "sluicegate": [self.sluicegate, "run", "--config", config],
        }[kind]
        self.running[name, proxy] = (self.spawn(PROXY_CORE, command, port, is_tls), port)
        self.admin[name, proxy] = admin

    def run(self, seconds):
        """The result of each that runs: {(workload, proxy): result}."""
        results = {}
        for case, (pid, port) in self.running.items():
            # Fills caches and pools.
            WORKLOADS[case[0]].load(port, 1, self.folder)
            results[case] = self.measure_well(case, pid, port, seconds)
        return results

    def measure_well(self, case, pid, port, seconds):
        """A run in which the proxy did the work that is compared. A machine that stands still for a moment makes requests
        time out, and such a run is made again."""
        workload = WORKLOADS[case[0]]
        for _ in range(TRIES):
            with dashboard(self.admin[case]) if case[1] == DASHBOARD else contextlib.nullcontext():
                result = measure(pid, lambda: workload.load(port, seconds, self.folder))
            refused = result["refused"] / result["requests"]
            right = refused > 0.9 if workload.limit is REFUSE else refused == 0
            if right and not result["broken"]:
                return result
        sys.exit(f"{case}: {refused:.1%} refused, {result['broken']} broken: {result}")


@contextlib.contextmanager
def dashboard(admin):
    """Asks what an open page of the dashboard asks, as often as the page does."""
    closed = threading.Event()
    failures = []

    def ask():
        try:
            while not closed.is_set():
                for path in ASKED_EACH_SECOND:
                    request = urllib.request.Request(f"http://127.0.0.1:{admin}{path}", headers={"Authorization": f"Bearer {TOKEN}"})
                    urllib.request.urlopen(request, timeout=5).read()
                closed.wait(1)
        except OSError as error:
            failures.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        closed.set()
        asking.join()
    if failures:
        sys.exit(f"the admin API does not answer a dashboard: {failures[0]}")


def report(results, options):
    lines = [
        f"{options.rounds} interleaved rounds of {options.seconds} s, {KEYS:,} keys; 64 keep-alive connections, 16 for bodies, "
        f"8 of 8 streams in HTTP/2; one worker on one core of {cpu_model()}, Linux {platform.release()}.",
        f"{version('nginx', '-v')}; {version('haproxy', '-v')}; {version(options.sluicegate, '--version')}.",
        "",
        "| workload | proxy | CPU us a request | to nginx | to haproxy | to the better | requests/s | p50 us | p99 us |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (workload, proxy), rounds in results.items():
        nginx = results.get((workload, "nginx, access log" if "log" in proxy else "nginx"))
        peers = [column(peer, "cpu") for peer in (nginx, results[workload, "haproxy"]) if peer]
        own = column(rounds, "cpu")
        cells = [
            workload,
            proxy,
            f"{statistics.median(own):.1f}",
            f"{ratio(own, peers[0]):.2f}" if nginx else "",
            f"{ratio(own, peers[-1]):.2f}",
            f"{ratio(own, [min(each) for each in zip(*peers)]):.2f}",
            f"{statistics.median(column(rounds, 'rate')):,.0f}",
            *(f"{statistics.median(column(rounds, name)):.0f}" if name in rounds[0] else "" for name in ("p50", "p99")),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()

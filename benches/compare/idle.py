"""Prints the memory that each proxy takes for an idle connection, in clear text and over TLS.

Each connection has had one response and stays open. The figure is the growth of the proxy's own memory (PSS of its
processes), divided by the connections. 100 others have come and gone before.
"""

import argparse
import contextlib
import pathlib
import resource
import socket
import sys
import tempfile
import time

from bench import ANY_CERTIFICATE, memory
from compare import CLEARTEXT, NO_LIMIT, TLS_H2, WORKLOADS, Proxies, Workload

CASES = {"clear text": Workload(NO_LIMIT, CLEARTEXT), "TLS": Workload(NO_LIMIT, TLS_H2)}
REQUEST = b"GET /item HTTP/1.1\r\nHost: localhost\r\nUser-Agent: idle\r\n\r\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sluicegate", required=True, help="the binary to measure")
    parser.add_argument("--connections", type=int, default=10_000, help="idle connections (default 10,000)")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < options.connections + 200:
        sys.exit(f"the limit of open files is {hard}: choose fewer --connections")
    WORKLOADS.update(CASES)
    print(f"{options.connections:,} idle connections after one request, one worker.\n")
    print("| | proxy | bytes a connection |\n| --- | --- | --- |")
    for case, workload in CASES.items():
        for proxy in workload.proxies:
            with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as processes:
                proxies = Proxies(pathlib.Path(folder), processes, options.sluicegate)
                proxies.start(case, proxy)
                pid, port = proxies.running[case, proxy]
                grown = growth(pid, port, case == "TLS", options.connections)
            print(f"| {case} | {proxy} | {grown:,.0f} |", flush=True)


def growth(pid, port, is_tls, count):
    """The bytes that a proxy takes more for each of `count` connections."""
    for connection in [connect(port, is_tls) for _ in range(100)]:
        connection.close()
    time.sleep(1)
    before = memory(pid)
    connections = [connect(port, is_tls) for _ in range(count)]
    time.sleep(1)
    after = memory(pid)
    for connection in connections:
        connection.close()
    return (after - before) / count


def connect(port, is_tls):
    """A connection that has had one response."""
    connection = socket.create_connection(("127.0.0.1", port), 10)
    if is_tls:
        connection = ANY_CERTIFICATE.wrap_socket(connection)
    connection.sendall(REQUEST)
    response = b""
    while not response.endswith(b"a small body\n"):
        part = connection.recv(4096)
        if not part:
            sys.exit(f"the proxy closed a connection after {response!r}")
        response += part
    return connection


if __name__ == "__main__":
    main()

"""Counts the instructions that a proxy executes for a request, on one connection that is kept.

Callgrind counts from one request to another, both well after the start: a start gathers entropy, whose
instructions vary by more than a million. Everything is on 127.0.0.1.
"""

import contextlib
import itertools
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

KEYS = 1_000
# Requests before the first that counts (one for each key first), and those that count.
WARM_UP, COUNTED = KEYS + 500, 5_000
# For each step: a process under valgrind is slow, all the more on a busy machine.
DEADLINE_SECONDS = 300
# Streams of HTTP/2 at a time.
STREAMS = 8

SLUICEGATE = """workers: 1
listeners: [{ address: "127.0.0.1:@port@" }]
admin: { address: "127.0.0.1:0" }
@log@
policies:
  per-key: { key: "@key@", quota: @quota@ }
routes:
  - { upstream: "@upstream@", limits: @limits@ }
"""
NGINX = """daemon off;
master_process off;
pid @folder@/pid;
error_log stderr crit;
events { worker_connections 64; }
http {
    access_log off;
    client_body_temp_path @folder@;
    proxy_temp_path @folder@;
    keepalive_requests 1000000;
    limit_req_zone $http_x_api_key zone=keys:10m rate=@rate@;
    limit_req_status 429;
    upstream origin { server @origin@; keepalive 1; keepalive_requests 1000000; }
    server {
        listen 127.0.0.1:@port@;
        location / {
            @limit@
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_pass http://origin;
        }
    }
}
"""
WIDE, NARROW = {"quota": "1000000/1s"}, {"quota": "1/300d"}
LIMITED = {"limits": "[per-key]", "log": "", "key": "header:x-api-key"}
FORWARDED = {**LIMITED, "upstream": "http://@origin@"}
ECHO = {**LIMITED, "upstream": "echo"}
# h2load takes requests in turn whose targets differ, but no fields.
HTTP2 = {**ECHO, "key": "query:key"}

# The workload's name, the configuration, its values, and the status of all but the first requests. Names say
# HTTP/2 where it is not HTTP/1.1.
WORKLOADS = {
    "echo, no limit": (SLUICEGATE, {**WIDE, **ECHO, "limits": "[]"}, 200),
    "echo, admit": (SLUICEGATE, {**WIDE, **ECHO}, 200),
    "forward, no limit": (SLUICEGATE, {**WIDE, **FORWARDED, "limits": "[]"}, 200),
    "forward, admit": (SLUICEGATE, {**WIDE, **FORWARDED}, 200),
    "refuse": (SLUICEGATE, {**NARROW, **ECHO}, 429),
    "refuse, access log": (SLUICEGATE, {**NARROW, **ECHO, "log": "access_log: { path: '@folder@/log' }"}, 429),
    "HTTP/2, echo, admit": (SLUICEGATE, {**WIDE, **HTTP2}, 200),
    "HTTP/2, refuse": (SLUICEGATE, {**NARROW, **HTTP2}, 429),
    "nginx, forward, no limit": (NGINX, {"rate": "1r/m", "limit": ""}, 200),
    "nginx, forward, admit": (NGINX, {"rate": "1000000r/s", "limit": "limit_req zone=keys burst=1000000 nodelay;"}, 200),
    "nginx, refuse": (NGINX, {"rate": "1r/m", "limit": "limit_req zone=keys;"}, 429),
}


def main():
    binary, *names = sys.argv[1:]
    unknown = set(names) - set(WORKLOADS)
    if unknown:
        sys.exit(f"no such workload: {', '.join(unknown)}; there are {', '.join(WORKLOADS)}")
    print("| workload | instructions a request |\n| --- | --- |")
    for name, counted in count(binary, names or WORKLOADS):
        print(f"| {name} | {counted:,.0f} |", flush=True)


def count(binary, names):
    """Each of these workloads with its instructions a request."""
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.create_server(("127.0.0.1", 0)) as listener,
        ThreadPoolExecutor(2) as pool,
    ):
        threading.Thread(target=serve_origin, args=[listener], daemon=True).start()
        origin = "127.0.0.1:%d" % listener.getsockname()[1]

        def run(place, name, port):
            template, values, status = WORKLOADS[name]
            values = {**values, "origin": origin, "port": port}
            ask = ask_http2 if name.startswith("HTTP/2") else ask_http1
            return instructions(pathlib.Path(folder) / str(place), binary, template, values, status, ask)

        yield from zip(names, pool.map(run, itertools.count(), names, free_ports(len(names))))


def instructions(folder, binary, template, values, status, ask):
    """The instructions of a request, on average. `ask` sends requests whose answers have this status."""
    folder.mkdir()
    config = folder / "config.yaml"
    text = template
    for _ in range(2):
        for key, value in {**values, "folder": folder}.items():
            text = text.replace(f"@{key}@", str(value))
    config.write_text(text)
    command = ["nginx", "-p", folder, "-c", config] if template is NGINX else [binary, "run", "--config", config]
    output = folder / "output"
    with open(output, "w") as errors:
        process = subprocess.Popen(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/profile", *command],
            stdout=errors, stderr=errors,
        )
    try:
        with connect(values["port"], process) as connection:
            ask(connection, range(WARM_UP), status)
            control(process, "--zero")
            ask(connection, range(WARM_UP, WARM_UP + COUNTED), status)
            control(process, "--dump")
    except OSError as error:
        sys.exit(f"{error}:\n{output.read_text()}")
    finally:
        process.terminate()
        process.wait(DEADLINE_SECONDS)
    [total] = re.findall(r"^totals: (\d+)", (folder / "profile.1").read_text(), re.M)
    return int(total) / COUNTED


def control(process, command):
    """Has callgrind carry out a command before the process's next instruction."""
    done = subprocess.run(["callgrind_control", command, str(process.pid)], capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    if "OK." not in done.stdout:
        sys.exit(f"callgrind_control {command}: {done.stdout}{done.stderr}")


def ask_http1(connection, numbers, status):
    """Sends the requests with these numbers one after another, with keys in turn."""
    for number in numbers:
        connection.sendall(
            b"GET /item HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: count\r\nAccept: */*\r\nX-Api-Key: %06d\r\n\r\n"
            % (number % KEYS)
        )
        got = read_response(connection)
        if number >= KEYS and got != status:
            sys.exit(f"a request is answered {got}, not {status}")


def ask_http2(connection, numbers, status):
    """Sends as many requests as there are numbers to the same address, over a connection of their own."""
    address = "%s:%d" % connection.getpeername()
    targets = "".join(f"http://{address}/item?key={number % KEYS:06}\n" for number in numbers)
    command = ["h2load", "--input-file=-", f"--requests={len(numbers)}", "--clients=1", f"--max-concurrent-streams={STREAMS}"]
    done = subprocess.run(command, input=targets, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    statuses = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", done.stdout)
    answered = dict(zip("2345", map(int, statuses.groups()))) if statuses else {}
    # Each key is admitted at first.
    right = answered.get(str(status)[0], 0)
    if right + min(answered.get("2", 0), KEYS) * (status != 200) != len(numbers):
        sys.exit(f"requests are not answered {status}: {done.stdout}{done.stderr}")


def connect(port, process):
    """Connects as soon as the process listens.

    Raises OSError if it ends before, or does not listen in time.
    """
    deadline = time.monotonic() + DEADLINE_SECONDS
    while process.poll() is None:
        try:
            connection = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    raise OSError("the proxy has ended")


def read_response(connection):
    """Reads a response whose length is stated; its status."""
    received = b""
    while True:
        head, found, body = received.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        if found and length and len(body) >= int(length[1]):
            return int(head.split()[1])
        more = connection.recv(65536)
        if not more:
            sys.exit(f"a response ends early: {received!r}")
        received += more


def serve_origin(listener):
    """Answers each request, on any number of connections, with the same few bytes."""
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer_all, args=[connection], daemon=True).start()


def answer_all(connection):
    received = b""
    while more := connection.recv(65536):
        received += more
        *heads, received = received.split(b"\r\n\r\n")
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" * len(heads))


def free_ports(count):
    """This many ports, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for bound in sockets:
            bound.bind(("127.0.0.1", 0))
        return [bound.getsockname()[1] for bound in sockets]


if __name__ == "__main__":
    main()

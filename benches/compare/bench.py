"""Starts an origin and proxies on cores of their own, puts load on them, and reads what they took.

Everything is on 127.0.0.1. Proxies run on core 0; the load generators and the origin share core 1.
"""

import contextlib
import json
import os
import pathlib
import platform
import re
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).parent
PROXY_CORE, LOAD_CORE = "0", "1"
KEYS = 10_000
TICKS = os.sysconf("SC_CLK_TCK")
# Certificates of a run are its own.
ANY_CERTIFICATE = ssl._create_unverified_context()


class Bench:
    """The running origin and proxies."""

    def __init__(self, folder, processes, sluicegate):
        self.folder = folder
        # The workers of nginx belong to another user.
        folder.chmod(0o755)
        # Apart from the configurations: sluicegate watches the folder of its own file.
        (folder / "logs").mkdir()
        (folder / "files").mkdir()
        (folder / "files" / "body").write_bytes(os.urandom(1 << 20))
        self.processes = processes
        self.sluicegate = sluicegate
        self.origin = free_port()
        self.origin_h2 = free_port()
        self.running = {}
        config = self.write("origin.conf", "origin", {"origin_h2": self.origin_h2})
        self.spawn(LOAD_CORE, ["nginx", "-p", str(folder), "-c", config], self.origin)

    def write(self, template, name, values):
        """Writes a configuration, and returns its path. Values may name others."""
        text = (HERE / template).read_text()
        values = {**values, "origin": self.origin, "dir": self.folder}
        for _ in range(2):
            for key, value in values.items():
                text = text.replace(f"@{key}@", str(value))
        path = self.folder / f"{name}.conf"
        path.write_text(text)
        return str(path)

    def certify(self):
        """Makes a certificate for 127.0.0.1 in files that all proxies read."""
        key, certificate = self.folder / "key.pem", self.folder / "certificate.pem"
        if certificate.exists():
            return
        command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=127.0.0.1"
        names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
        subprocess.run([*command.split(), *names], check=True, capture_output=True)
        # HAProxy reads both from one file.
        (self.folder / "both.pem").write_text(certificate.read_text() + key.read_text())

    def spawn(self, core, command, port, tls=False):
        """Starts a process on a core, and waits until it answers on a port."""
        errors = open(self.folder / f"{port}.stderr", "w+")
        process = subprocess.Popen(["taskset", "-c", core, *command], stdout=errors, stderr=errors)
        self.processes.callback(stop, process)
        deadline = time.monotonic() + 20
        while not answers(port, tls):
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


def answers(port, tls):
    url = f"http{'s' if tls else ''}://127.0.0.1:{port}/item"
    try:
        with urllib.request.urlopen(url, timeout=2, context=ANY_CERTIFICATE if tls else None) as response:
            return response.status == 200
    except urllib.error.HTTPError as error:
        return error.code == 429
    except OSError:
        return False


def load(port, seconds, connections=64, path="/item"):
    """Runs wrk over HTTP/1.1, each request with the next of the keys in a field; what it counted."""
    command = ["taskset", "-c", LOAD_CORE, "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(HERE / "keys.lua")]
    output = subprocess.run(
        [*command, f"http://127.0.0.1:{port}", "--", path, str(KEYS)],
        capture_output=True, text=True, timeout=seconds + 30, check=True,
    )
    return json.loads(output.stdout.splitlines()[-1])


def load_h2(port, seconds, folder, connections=8, streams=8):
    """Runs h2load over TLS and HTTP/2, each request with the next of the keys in its query; what it counted."""
    uris = folder / f"{port}.uris"
    if not uris.exists():
        uris.write_text("".join(f"https://127.0.0.1:{port}/item?key={key:05}\n" for key in range(KEYS)))
    command = ["taskset", "-c", LOAD_CORE, "h2load", "-t1", f"-c{connections}", f"-m{streams}", f"-D{seconds}", "-i", str(uris)]
    began = time.monotonic()
    output = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 30, check=True).stdout
    counted = {name: int(number) for number, name in re.findall(r"(\d+) (\w+)", output)}
    return {
        "requests": counted["done"],
        "microseconds": 1e6 * (time.monotonic() - began),
        "refused": counted["4xx"],
        "broken": counted["errored"] + counted["timeout"] + counted["5xx"],
    }


def measure(pid, load):
    """One run of `load`, a function, with the CPU time that a proxy took for it."""
    before = cpu_seconds(pid)
    result = load()
    used = cpu_seconds(pid) - before
    result["cpu"] = 1e6 * used / result["requests"]
    result["rate"] = 1e6 * result["requests"] / result["microseconds"]
    return result


def cpu_seconds(pid):
    """User and system time of a process and its descendants."""
    ticks = sum(int(field) for field in stat(pid)[11:13])
    return ticks / TICKS + sum(cpu_seconds(child) for child in children(pid))


def memory(pid):
    """The bytes of a process and its descendants, shared pages in proportion (PSS)."""
    rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return 1024 * int(re.search(r"^Pss: +(\d+)", rollup, re.M)[1]) + sum(map(memory, children(pid)))


def children(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def stat(pid):
    """The fields of /proc/PID/stat after the name, which may hold anything."""
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


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

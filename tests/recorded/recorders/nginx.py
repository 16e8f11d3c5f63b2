"""nginx's limit_req, in a real nginx whose clocks are ours (clock.c). `limit_req_dry_run` has it decide and log, but not wait;
how long it would have waited is computed from the excess that it logs as nginx computes it."""

import mmap
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/sbin")

CONFIGURATION = """
daemon off; master_process off; pid {place}/pid; error_log {place}/error.log notice;
events {{}}
http {{
    access_log off; keepalive_timeout 0; root {place};
    client_body_temp_path {place}/1; proxy_temp_path {place}/2; fastcgi_temp_path {place}/3; uwsgi_temp_path {place}/4;
    scgi_temp_path {place}/5;
    limit_req_zone $arg_key zone=one:1m rate={rate}r/s;
    limit_req_dry_run on;
    server {{
        listen unix:{place}/socket;
        location / {{ limit_req zone=one {more}; add_header x-status $limit_req_status always; }}
    }}
}}
"""


def ask(place, key):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"{place}/socket")
        client.sendall(f"GET /?key={key} HTTP/1.0\r\n\r\n".encode())
        told = b""
        while more := client.recv(4096):
            told += more
    return re.search(rb"x-status: (\w+)", told).group(1).decode()


def excess_of(log):
    """The excess in the log's last line, in thousandths of a request."""
    whole, part = re.findall(r"excess: (\d+)\.(\d{3})", log)[-1]
    return int(whole) * 1000 + int(part)


def decide(place, options, key):
    status, rate = ask(place, key), options["rate"]
    if status == "PASSED":
        return "admit", None, None
    if status == "REJECTED_DRY_RUN":
        return "refuse", None, None
    assert status == "DELAYED_DRY_RUN", status
    excess = excess_of((place / "error.log").read_text())
    return "delay", None, (excess - options["delay"] * 1000) * 1000 // (rate * 1000) * 1000


def limit_req(options, arrivals):
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", place / "clock.so", HERE / "clock.c"], check=True)
        (place / "index.html").touch()
        more = " ".join(f"{name}={options[name]}" for name in ("burst", "delay") if options[name])
        written = CONFIGURATION.format(place=place, rate=options["rate"], more=more)
        (place / "nginx.conf").write_text(written)
        (place / "clock").write_bytes(struct.pack("q", arrivals[0][0]))
        with open(place / "clock", "r+b") as file, mmap.mmap(file.fileno(), 8) as clock:
            environment = {"LD_PRELOAD": str(place / "clock.so"), "VIRTUAL_CLOCK": str(place / "clock")}
            command = [NGINX, "-p", place, "-e", f"{place}/error.log", "-c", place / "nginx.conf"]
            server = subprocess.Popen(command, env=environment)
            try:
                while not (place / "socket").exists():
                    assert server.poll() is None, "nginx does not start"
                    time.sleep(0.01)
                answers = []
                for micros, key, _ in arrivals:
                    clock[:] = struct.pack("q", micros)
                    answers.append(decide(place, options, key))
                return answers
            finally:
                server.terminate()
                server.wait()

"""Opens the built site in headless Chromium, from the file system and from a server in a folder of its own.

    scripts/site/browse.py SITE AXE

Fails unless search finds known words, nothing is requested from elsewhere, pages fit a phone, axe-core (the script
AXE) finds no serious barrier, copy buttons copy commands, and a server's page for 404 leads home.
"""

import contextlib
import functools
import http.server
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

PATIENCE = 90  # seconds, far above the time in which a browser starts on a busy machine
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             # A mouse, because the theme lets a keyboard scroll blocks of code only beside one.
             "--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4",
             # Nothing but this machine can be reached.
             "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
# A search, and a page that has to be among the results that it shows at once.
SEARCHES = [("Retry-After", "limits.html"), ("burst", "limits.html"), ("on_missing_key", "configuration.html")]
PAGES = ["index.html", "docs/tutorial.html", "docs/configuration.html", "docs/cookbook.html"]
FOLDER = "some/folder"


class Browser:
    """A window of Chromium, driven by chromedriver."""

    def __init__(self, port, profile):
        self.base = f"http://127.0.0.1:{port}"
        session = self.post("/session", {"capabilities": {"alwaysMatch": {
            "goog:loggingPrefs": {"performance": "ALL"},
            "timeouts": {"script": 1000 * PATIENCE, "pageLoad": 1000 * PATIENCE},
            "goog:chromeOptions": {"args": [*ARGUMENTS, f"--user-data-dir={profile}"]}}}})
        self.base += f"/session/{session['sessionId']}"

    def post(self, path, body):
        request = urllib.request.Request(self.base + path, json.dumps(body).encode(), {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=2 * PATIENCE) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            sys.exit(f"chromedriver: {json.load(error)['value']['message']}")

    def devtools(self, command, parameters):
        return self.post("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def window(self, width, height, is_dark=False):
        self.devtools("Emulation.setDeviceMetricsOverride",
                      {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", {"features": [scheme]})

    def open(self, url):
        self.post("/url", {"url": "about:blank"})
        self.post("/url", {"url": url})

    def run(self, script):
        return self.post("/execute/sync", {"script": script, "args": []})

    def wait(self, expression):
        """The value of an expression in the page, as soon as it is true."""
        end = time.monotonic() + PATIENCE
        while not (value := self.run(f"return {expression};")):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.05)
        return value

    def requested(self):
        """The addresses requested since the last call."""
        events = (json.loads(entry["message"])["message"] for entry in self.post("/se/log", {"type": "performance"}))
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]


@contextlib.contextmanager
def browser():
    with tempfile.TemporaryDirectory() as profile:
        driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            port = next(found[1] for line in driver.stdout if (found := re.search(r"successfully on port (\d+)", line)))
            threading.Thread(target=driver.stdout.read, daemon=True).start()
            window = Browser(port, profile)
            yield window
            urllib.request.urlopen(urllib.request.Request(window.base, method="DELETE"), timeout=PATIENCE).close()
        finally:
            driver.terminate()
            driver.wait()


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the site below FOLDER, with its page for 404."""

    def translate_path(self, path):
        return super().translate_path(path.removeprefix(f"/{FOLDER}"))

    def send_error(self, code, message=None, explain=None):
        page = (pathlib.Path(self.directory) / "404.html").read_bytes()
        self.send_response(code)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def server(site):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(site))) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}/{FOLDER}/"
        running.shutdown()


RESULTS = "[...document.querySelectorAll('body > div')].map(it => it.shadowRoot).find(it => it?.querySelector('dialog'))"


def search(window, words, page):
    """Searches as a visitor does, and looks for a page among the results."""
    window.run("document.querySelector('.md-search__button').click();")
    window.wait(f"{RESULTS}?.querySelector('dialog[open] input') && true")
    window.run(f"{RESULTS}.querySelector('input').focus();")
    window.devtools("Input.insertText", {"text": words})
    found = window.wait(f"(it => it.length && it)([...({RESULTS}).querySelectorAll('[role=option]')].map(a => a.href))")
    assert any(page in address for address in found), f"{words}: {found}"


def fits(window):
    """Fails if the open page is wider than its window."""
    widths = window.run("const it = document.documentElement; return [it.scrollWidth, it.clientWidth];")
    assert widths[0] <= widths[1], f"{window.run('return location.pathname;')} is wider than the window: {widths}"


def accessible(window, axe):
    """Fails if axe-core finds a serious barrier in the open page."""
    barriers = window.run(f"""{axe}; return axe.run().then(({{ violations }}) => violations
        .filter(({{ impact }}) => ["serious", "critical"].includes(impact))
        .map(({{ id, nodes }}) => id + ": " + nodes.map(({{ html }}) => html).join(", ")));""")
    assert not barriers, f"{window.run('return location.pathname;')}: {barriers}"


def main(site, axe):
    site, axe = pathlib.Path(site).resolve(), pathlib.Path(axe).read_text()
    with browser() as window, server(site) as url:
        window.requested()
        for root in (site.as_uri() + "/", url):
            for words, page in SEARCHES:
                window.open(f"{root}docs/index.html")
                search(window, words, page)
        for is_dark, pages in ((False, PAGES), (True, PAGES[:2])):
            window.window(1400, 1000, is_dark)
            for page in pages:
                window.open(url + page)
                accessible(window, axe)
        window.window(390, 800)
        for page in PAGES:
            window.open(url + page)
            fits(window)
        accessible(window, axe)
        window.open(f"{url}index.html")
        copied = window.run("return document.querySelector('.language-console pre').dataset.copy;")
        assert "curl" in copied and "HTTP/" not in copied and "$ " not in copied, copied
        window.open(f"{url}docs/no-such-page.html")
        home = window.run("return document.getElementById('home').href;")
        assert home == f"{url}index.html", home
        own = (url, site.as_uri(), "data:", "blob:", "about:", "chrome:")
        elsewhere = [address for address in window.requested() if not address.startswith(own)]
        assert not elsewhere, elsewhere
    print(f"search, {len(PAGES)} pages and the page for 404 work, and nothing is requested from elsewhere")


if __name__ == "__main__":
    main(*sys.argv[1:])

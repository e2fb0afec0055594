"""The live page of --metrics in a real browser: it loads, draws and updates without an error of a script."""

import base64
import json
import os
import select
import shutil
import socket
import socketserver
import struct
import subprocess
import threading
import urllib.request

import pytest

import batchd
from daemons import until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed"),
    pytest.mark.skipif(
        subprocess.run(["sh", "-c", "ldconfig -p | grep -q libmicrohttpd.so.12"]).returncode != 0,
        reason="libmicrohttpd.so.12 is not installed",
    ),
]


class Tab:
    """A tab of a browser, by the DevTools protocol over its WebSocket (RFC 6455)."""

    def __init__(self, folder):
        argv = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        argv += [f"--user-data-dir={folder}", "--remote-debugging-port=0", "--window-size=1000,1400", "about:blank"]
        self.process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        file = folder / "DevToolsActivePort"
        port = int(until("the browser listens", lambda: file.exists() and file.read_text().split("\n")[0]))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list") as answer:
            path = next(t for t in json.load(answer) if t["type"] == "page")["webSocketDebuggerUrl"].split("/", 3)[3]
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.sendall(
            f"GET /{path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        self.file = self.socket.makefile("rb")
        while self.file.readline().strip():
            pass
        self.n = 0
        self.events = []
        self.call("Runtime.enable")
        self.call("Log.enable")
        self.call("Page.enable")

    def send(self, text):
        mask = os.urandom(4)
        payload = bytes(b ^ mask[i % 4] for i, b in enumerate(text.encode()))
        n = len(payload)
        size = struct.pack("!B", 0x80 | n) if n < 126 else struct.pack("!BH", 0x80 | 126, n)
        self.socket.sendall(b"\x81" + size + mask + payload)

    def receive(self):
        text = b""
        while True:
            first, n = self.file.read(2)
            n = {126: lambda: struct.unpack("!H", self.file.read(2))[0],
                 127: lambda: struct.unpack("!Q", self.file.read(8))[0]}.get(n, lambda: n)()  # fmt: skip
            text += self.file.read(n)
            if first & 0x80:
                return json.loads(text)

    def call(self, method, **params):
        self.n += 1
        self.send(json.dumps({"id": self.n, "method": method, "params": params}))
        while (message := self.receive()).get("id") != self.n:
            self.events.append(message)
        assert "error" not in message, message
        return message["result"]

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def open(self, url):
        self.call("Page.navigate", url=url)
        until("the page is there", lambda: self.value("location.href + document.readyState") == url + "complete")

    def errors(self):
        """What the console would show in red."""
        bad = [e for e in self.events if e["method"] == "Runtime.exceptionThrown"]
        bad += [e for e in self.events if e["method"] == "Runtime.consoleAPICalled" and e["params"]["type"] == "error"]
        return bad + [
            e
            for e in self.events
            if e["method"] == "Log.entryAdded"
            and e["params"]["entry"]["level"] == "error"
            and "favicon" not in e["params"]["entry"].get("url", "")
        ]

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def end(self):
        self.socket.close()
        self.process.terminate()
        self.process.wait()


class Forwarder(socketserver.ThreadingTCPServer):
    """As ssh -L: from a port of this machine to a Unix socket."""

    daemon_threads = True

    def __init__(self, path):
        outer = self
        self.n = {}

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                with socket.socket(socket.AF_UNIX) as there:
                    there.connect(str(path))
                    asked = self.request.recv(65536)
                    what = asked.split(b" ")[1].decode() if asked else ""
                    outer.n[what] = outer.n.get(what, 0) + 1
                    there.sendall(asked)
                    while select.select([there], [], []) and (data := there.recv(65536)):
                        self.request.sendall(data)

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


@pytest.fixture
def tab(tmp_path_factory):
    tab = Tab(tmp_path_factory.mktemp("browser"))
    yield tab
    tab.end()


@pytest.fixture
def forwarder(make_daemon, tmp_path):
    make_daemon("--metrics", f"unix:{tmp_path / 'page'}", config="bad_data: 10%\n")
    with Forwarder(tmp_path / "page") as server:
        yield server
        server.shutdown()


def shows(tab, what, expression):
    return until(what, lambda: tab.value(expression))


def test_the_page_in_a_browser(forwarder, tab, samples, tmp_path):
    """It updates, shows pictures of the last batch once they are asked for, and asks for none before."""
    loader = batchd.DataLoader(f"imagefolder:{samples}", batch_size=8, job="a-run", arrays="numpy")
    it = iter(loader)
    batch = next(it)
    tab.open(f"http://127.0.0.1:{forwarder.server_address[1]}/")
    shows(tab, "the job", "document.getElementById('loaders').innerText.includes('a-run')")
    axis = tab.value("document.querySelector('#trainers .axis').innerText")
    assert axis.split("\n") == [*(f"{m} min ago" for m in (5, 4, 3, 2, 1)), "now"], axis
    looks = forwarder.n["/status.json"]
    until("it updates", lambda: forwarder.n["/status.json"] >= looks + 2)
    assert not any(path.startswith("/batch/") for path in forwarder.n), forwarder.n
    tab.value("document.querySelector('#pictures summary').click()")
    shows(tab, "eight pictures", "document.querySelectorAll('figure canvas').length === 8")
    drawn = "(c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((v, i) => i % 4 < 3 && v))"
    assert tab.value(f"[...document.querySelectorAll('figure canvas')].every({drawn})")
    assert tab.value("document.querySelector('figure canvas').width") == 75
    assert "a-run rank 0: epoch 0" in tab.value("document.getElementById('batches').innerText")
    tab.screenshot(tmp_path / "page.png")
    loader.close()
    del batch, it
    assert not tab.errors(), tab.errors()


def test_errors_on_the_page(forwarder, tab, samples, tmp_path):
    """A refusal, and a bad file by its name; texts of peers are shown as texts."""
    folder = tmp_path / "data"
    shutil.copytree(samples, folder)
    bad = sorted(folder.glob("*/*.jpg"))[5]
    bad.write_bytes(b"no picture")
    with pytest.raises(batchd.Error):
        batchd.DataLoader(f"imagefolder:{folder}", 4, transform=[["<img src=x onerror=alert(1)>"]], job="<b>odd</b>")
    loader = batchd.DataLoader(f"imagefolder:{folder}", 8, arrays="numpy", job="a-run")
    assert sum(1 for _ in loader) == 12
    tab.open(f"http://127.0.0.1:{forwarder.server_address[1]}/")
    text = shows(
        tab,
        "both errors",
        f"(t => t.includes({json.dumps(bad.name)}) && t.includes('<b>odd</b>') && t)"
        "(document.getElementById('errors').innerText)",
    )
    assert "<img src=x" in text and not tab.value("document.querySelector('#errors img, #errors b')"), text
    tab.screenshot(tmp_path / "page.png")
    loader.close()
    assert not tab.errors(), tab.errors()

"""What the Python tests share: the build, a daemon of the test's own, data.

    build         folder of the programs under test (BATCHD_BUILD, default build/)
    daemon        a running batchd with a private socket; $BATCHD_SOCKET points to it; must stop cleanly afterwards
    make_daemon   the same with options: make_daemon("--workers", "2", config="...yaml text...")
    batchctl      runs batchctl against that daemon: batchctl("status", "--json")
    samples       a small folder of labelled JPEGs, the same for the whole run
    data, photos, odd   the test data beside the repository; tests skip where it is missing
"""
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BATCHD_BUILD", REPO / "build")).resolve()
DATA = pathlib.Path(os.environ.get("BATCHD_TEST_DATA", REPO.parent / "shared" / "data"))

# The tree's own package and library, also in the processes that tests start.
os.environ["BATCHD_BUILD"] = str(BUILD)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(REPO / "client" / "python"), os.environ.get("PYTHONPATH")]))
os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [str(BUILD), os.environ.get("LD_LIBRARY_PATH")]))
os.environ["PATH"] = os.pathsep.join([str(BUILD), os.environ["PATH"]])
sys.path.insert(0, str(REPO / "client" / "python"))

# A shell that starts the tests in the background makes them, and all they start, deaf to Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

START_S = 20
STOP_S = 20


class Daemon:
    """A batchd in the foreground with its own socket and log."""

    def __init__(self, folder, args=(), config=None, env=None):
        self.folder = folder
        self.env = env
        self.socket = folder / "batchd.sock"
        self.log = folder / "batchd.log"
        self.argv = [str(BUILD / "batchd"), "--foreground", "--socket", str(self.socket), *map(str, args)]
        if config is not None:
            (folder / "batchd.yaml").write_text(config)
            self.argv += ["--config", str(folder / "batchd.yaml")]
        self.process = None
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env)
        deadline = time.monotonic() + START_S
        while not self.answers():
            assert self.process.poll() is None, f"batchd exited with {self.process.returncode}:\n{self.output()}"
            assert time.monotonic() < deadline, f"batchd did not listen within {START_S} s:\n{self.output()}"
            time.sleep(0.01)

    def answers(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            try:
                s.connect(str(self.socket))
                return True
            except OSError:
                return False

    def output(self):
        return self.log.read_text(errors="replace")

    @property
    def pid(self):
        return self.process.pid

    def kill(self):
        """As a crash: no clean-up."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        """As systemd: SIGTERM, a clean exit in time, no sanitizer's report."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()
                pytest.fail(f"batchd did not stop within {STOP_S} s of SIGTERM:\n{self.output()}")
        if self.process.returncode != -signal.SIGKILL:
            assert self.process.returncode == 0, f"batchd exited with {self.process.returncode}:\n{self.output()}"
        assert "Sanitizer" not in self.output() and "runtime error" not in self.output(), self.output()

    def restart(self):
        self.stop()
        self.start()


@pytest.fixture(scope="session")
def build():
    if not (BUILD / "batchd").exists():
        pytest.exit(f"{BUILD} has no batchd: run `make` first, or `make check`, which does both", 2)
    return BUILD


@pytest.fixture
def make_daemon(build, tmp_path_factory, monkeypatch):
    daemons = []

    def make(*args, config=None):
        d = Daemon(tmp_path_factory.mktemp("d"), args, config)
        daemons.append(d)
        monkeypatch.setenv("BATCHD_SOCKET", str(d.socket))
        return d

    yield make
    for d in daemons:
        d.stop()


@pytest.fixture
def daemon(make_daemon):
    return make_daemon()


@pytest.fixture
def batchctl(build):
    """The command line against $BATCHD_SOCKET; returns the finished process with text output, whatever its exit code."""

    def run(*args, timeout=120):
        return subprocess.run([str(build / "batchctl"), *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=timeout)

    return run


@pytest.fixture(scope="session")
def samples(build, tmp_path_factory):
    folder = tmp_path_factory.mktemp("samples") / "data"
    subprocess.run([str(build / "batchctl"), "sample-data", str(folder), "--classes", "4", "--per-class", "24"],
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    return folder


@pytest.fixture(scope="session")
def data():
    if not DATA.is_dir():
        pytest.skip(f"the test data is not at {DATA}")
    return DATA


@pytest.fixture(scope="session")
def photos(data):
    return data / "photos"


@pytest.fixture(scope="session")
def odd(data):
    return data / "odd"

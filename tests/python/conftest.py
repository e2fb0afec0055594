"""What the Python tests share: the build, a daemon of the test's own, data.

    build         folder of the programs under test (BATCHD_BUILD, default build/)
    daemon        a running batchd with a private socket; $BATCHD_SOCKET points to it; must stop cleanly afterwards
    make_daemon   the same with options: make_daemon("--workers", "2", config="...yaml text...")
    batchctl      runs batchctl against that daemon: batchctl("status", "--json")
    samples       a small folder of labelled JPEGs, the same for the whole run
    data, photos, odd   pictures: those of $BATCHD_TEST_DATA, else those beside the repository, else some that tests/pictures.py makes

What was skipped is summed up by reason at the end.
"""

import collections
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

from daemons import BUILD, REPO, Daemon

BESIDE = REPO.parent / "shared" / "data"
MADE = BUILD / "tests" / "pictures"
DATA = pathlib.Path(os.environ.get("BATCHD_TEST_DATA") or (BESIDE if BESIDE.is_dir() else MADE))

# The tree's own package and library, also in the processes that tests start.
os.environ["BATCHD_BUILD"] = str(BUILD)
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(REPO / "client" / "python"), os.environ.get("PYTHONPATH")])
)
os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [str(BUILD), os.environ.get("LD_LIBRARY_PATH")]))
os.environ["PATH"] = os.pathsep.join([str(BUILD), os.environ["PATH"]])
sys.path.insert(0, str(REPO / "client" / "python"))
sys.path.append(str(REPO / "tests"))  # pictures, ptx, vision

# What tested programs leave behind when they are killed, and the indexes that daemons keep, go with the tests: in one folder for all workers of a run.
# Tests become other users, too.
OWNS_SCRATCH = "BATCHD_TEST_SCRATCH" not in os.environ
SCRATCH = os.environ.setdefault("BATCHD_TEST_SCRATCH", tempfile.mkdtemp(prefix="batchd-") if OWNS_SCRATCH else "")
if OWNS_SCRATCH:
    os.chmod(SCRATCH, 0o1777)
os.environ.update(TMPDIR=SCRATCH, XDG_CACHE_HOME=os.path.join(SCRATCH, "cache"))

# A shell that starts the tests in the background makes them, and all they start, deaf to Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
        return subprocess.run(
            [str(build / "batchctl"), *map(str, args)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run


@pytest.fixture(scope="session")
def samples(build, tmp_path_factory):
    folder = tmp_path_factory.mktemp("samples") / "data"
    subprocess.run(
        [str(build / "batchctl"), "sample-data", str(folder), "--classes", "4", "--per-class", "24"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return folder


@pytest.fixture(scope="session")
def data():
    if DATA == MADE:
        import pictures

        pictures.make(MADE)
    if not DATA.is_dir():
        pytest.skip("the pictures that BATCHD_TEST_DATA names are not there")
    return DATA


@pytest.fixture(scope="session")
def photos(data):
    return data / "photos"


@pytest.fixture(scope="session")
def odd(data):
    return data / "odd"


def pytest_unconfigure():
    if OWNS_SCRATCH:
        shutil.rmtree(SCRATCH, ignore_errors=True)


def pytest_terminal_summary(terminalreporter):
    """One line for each reason to skip, the most frequent first."""
    reasons = collections.Counter()
    for report in terminalreporter.stats.get("skipped", []):
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[" ".join(text.removeprefix("Skipped: ").split())[:160]] += 1
    for reason, n in reasons.most_common():
        terminalreporter.write_line(f"{n} skipped: {reason}")

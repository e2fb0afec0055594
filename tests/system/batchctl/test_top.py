"""batchctl top: lines, JSON, and its screen in a real terminal (tmux)."""

import json
import os
import re
import shutil
import subprocess
import time

import pytest

import batchd
from daemons import BUILD, until

STATES = {"read", "decode", "transform", "gpu_copy", "order", "producer", "peer", "memory", "busy", "idle"}


@pytest.fixture
def trainers(daemon, samples):
    """Two jobs; the second has lost time to its input: it slept in no batch, and waited for its first."""
    loaders = []
    for job in ("alpha", "a-job-with-quite-a-long-name-indeed"):
        loader = batchd.DataLoader(f"imagefolder:{samples}", batch_size=8, job=job, arrays="numpy")
        for _ in loader:
            pass
        loaders.append(loader)
    yield loaders
    for loader in loaders:
        loader.close()


def test_json_lines_have_every_trainer(trainers, batchctl):
    made = batchctl("top", "--json", "--n", "2", "--interval", "100ms")
    assert made.returncode == 0, made.stderr
    looks = [json.loads(line) for line in made.stdout.splitlines()]
    assert len(looks) == 2
    for look in looks:
        rows = look["trainers"]
        assert {row["job"] for row in rows} == {"alpha", "a-job-with-quite-a-long-name-indeed"}
        assert [row["lost_s"] for row in rows] == sorted((row["lost_s"] for row in rows), reverse=True)
        for row in rows:
            assert row["pid"] == os.getpid() and row["rank"] == 0
            assert 0 <= row["wait"] <= 1
            if row["shares"]:
                assert set(row["shares"]) == STATES and abs(sum(row["shares"].values()) - 1) < 1e-3


def test_a_pipe_gets_lines_and_no_escape_sequences(trainers, batchctl):
    made = batchctl("top", "--n", "1")
    assert made.returncode == 0 and "\033" not in made.stdout
    lines = made.stdout.splitlines()
    heading = next(i for i, line in enumerate(lines) if line.startswith("JOB"))
    assert len(lines) == heading + 3
    assert re.match(r"(no verdict yet: |not input-bound in the last minute: |input-bound )", lines[0]), lines[0]
    assert not any("verdict" in line or "input-bound" in line for line in lines[1:])
    only = batchctl("top", "--n", "1", "--job", "alpha").stdout
    assert "alpha" in only and "a-job-with" not in only and only.split("[job ")[1].startswith("alpha]")
    other = batchctl("top", "--n", "1", "--job", "a-job-with-quite-a-long-name-indeed").stdout
    assert "alpha" not in other and "[job a-job-with-quite-a-long-name-indeed]" in other.replace("\n  ", " ")
    by_job = batchctl("top", "--n", "1", "--sort", "job").stdout.splitlines()[heading + 1 :]
    assert [line.split()[0] for line in by_job] == ["a-job-with-quite-a-long-name-indeed", "alpha"]


def test_no_daemon(batchctl, monkeypatch, tmp_path):
    monkeypatch.setenv("BATCHD_SOCKET", str(tmp_path / "none"))
    made = batchctl("top", "--n", "1")
    assert made.returncode == 3 and made.stderr.count("\n") == 1


class Terminal:
    """A tmux of the test's own."""

    def __init__(self, folder, columns, lines, command):
        self.server = ["tmux", "-S", str(folder / "tmux")]
        environment = dict(os.environ, TERM="screen-256color", LC_ALL="C.UTF-8")
        environment.pop("TMUX", None)
        self.environment = environment
        self.do("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(lines), command)

    def do(self, *arguments):
        return subprocess.run(
            [*self.server, *arguments], env=self.environment, capture_output=True, text=True, check=True
        ).stdout

    def screen(self):
        return self.do("capture-pane", "-p").rstrip("\n").split("\n")

    def press(self, *keys):
        self.do("send-keys", *keys)

    def shows(self, pattern):
        until(f"the screen shows {pattern}", lambda: re.search(pattern, "\n".join(self.screen()), re.M))
        return self.screen()

    def end(self):
        subprocess.run([*self.server, "kill-server"], env=self.environment, capture_output=True)


@pytest.fixture
def terminal(tmp_path):
    if not shutil.which("tmux"):
        pytest.skip("tmux is not installed")
    opened = []

    def open_one(columns, lines, command=f"{BUILD}/batchctl top --interval 200ms; echo ended with $?; sleep 100"):
        opened.append(Terminal(tmp_path, columns, lines, command))
        return opened[-1]

    yield open_one
    for one in opened:
        one.end()


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (200, 50), (40, 10)])
def test_the_screen_fits(trainers, terminal, columns, lines):
    """Nothing wraps: the table's rows stand one below the other, and the last line has the keys."""
    screen = terminal(columns, lines).shows("^h help")
    heading = next(i for i, line in enumerate(screen) if line.startswith("JOB"))
    assert screen[heading + 1].startswith("a") and screen[heading + 2].startswith("a")
    assert len(screen) == lines and screen[-1].strip() == "h help  q quit"[:columns]
    assert all(len(line) <= columns for line in screen)
    assert ("PROGRAM" in screen[heading]) == (columns == 200)
    assert ("IMG/s" in screen[heading]) == (columns >= 80)
    if columns == 80:
        assert screen[heading].rstrip().endswith("STATE")


def test_keys(trainers, terminal):
    t = terminal(100, 30)
    t.shows("most time lost first")
    t.press("j")
    screen = t.shows("by job")
    heading = next(i for i, line in enumerate(screen) if line.startswith("JOB"))
    assert screen[heading + 2].startswith("alpha")
    t.press("Down")
    time.sleep(0.3)
    t.press("Enter")
    screen = "\n".join(t.shows("^alpha, rank 0"))
    assert "data set  imagefolder:" in screen and "of the last 10 s" in screen
    t.press("Escape")
    t.shows("^JOB")
    t.press("p")
    t.shows("^paused")
    t.press("h")
    t.shows("WAIT is the part")
    t.press("q")
    t.shows("^ended with 0")


def test_the_daemon_goes_and_comes_back(make_daemon, terminal):
    d = make_daemon()
    t = terminal(80, 24)
    t.shows("no trainers")
    d.stop()
    t.shows("no daemon|batchd")
    until("the last line says why", lambda: not t.screen()[-1].startswith("h help"))
    d.start()
    t.shows("^h help")
    t.press("C-c")
    t.shows("^ended with 0")


def test_gpus_come_from_the_drivers_library(daemon, batchctl, tmp_path, monkeypatch):
    """A library of the test's own in its place."""
    source = tmp_path / "nvml.c"
    source.write_text(
        """#include <string.h>
        int nvmlInit_v2(void) { return 0; }
        int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
        int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)(long)(i + 1); return 0; }
        int nvmlDeviceGetName(void *d, char *t, unsigned n) { strncpy(t, d == (void *)1 ? "One" : "T\\033wo", n); return 0; }
        int nvmlDeviceGetUtilizationRates(void *d, unsigned *u) { u[0] = 37; u[1] = 12; return 0; }
        """
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "libnvidia-ml.so.1", source], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path), prepend=os.pathsep)
    text = batchctl("top", "--n", "1").stdout
    assert "GPU 0 One: busy 37 %, memory 12 %\n" in text and "GPU 1 T?wo" in text

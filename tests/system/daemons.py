"""A private batchd for tests and endurance runs, and a way to wait for a state without an event."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BATCHD_BUILD", REPO / "build")).resolve()
# What lingers is not closed because other programs of the machine wait for memory.
os.environ.setdefault("MEMORY_PRESSURE_WATCH", "/dev/null")
START_S = STOP_S = 300  # only a daemon that hangs takes so long

# Of the wire, for messages that tests write themselves.
WIRE_VERSION = int(re.search(r"WIRE_VERSION = (\d+)", (REPO / "proto/wire.h").read_text())[1])


class TooLate(AssertionError):
    """A state did not come within its limit. A test marked `timing` runs again for that (repeats.py)."""


def skip_unless_others_reach_the_build():
    """For tests in which an ordinary user runs a program of the build."""
    import pytest  # not for the endurance runs, which use this file as well

    if any(not os.stat(folder).st_mode & 0o001 for folder in (BUILD, *BUILD.parents)):
        pytest.skip(f"ordinary users cannot reach {BUILD}")


def in_time(condition, *what):
    """An assertion on measured time; a test that has one is marked `timing`."""
    if not condition:
        raise TooLate(" ".join(map(str, what)) or "took longer than it may")


def until(what, condition, seconds=300):
    """Waits for another process's state; returns the condition's value. The limit only turns a hang into a failure."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() >= deadline:
            raise TooLate(f"not within {seconds} s: {what}")
        time.sleep(0.005)
    return result


def runs(pid):
    """Whether the process exists and is no zombie; it may end at any moment."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def footprint(pid):
    """Descriptors, threads and shared slabs of a process."""
    maps = pathlib.Path(f"/proc/{pid}/maps").read_text()
    return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task")), maps.count("/memfd:")


def settled_footprint(pid):
    seen = []

    def settled():
        seen.append(footprint(pid))
        time.sleep(0.02)
        return len(seen) > 5 and len(set(seen[-5:])) == 1

    until("the daemon rests", settled)
    return seen[-1]


class Daemon:
    """A batchd in the foreground with its own socket and log."""

    def __init__(self, folder, args=(), config=None, env=None, build=BUILD):
        self.folder = folder
        self.env = env
        self.socket = folder / "batchd.sock"
        self.log = folder / "batchd.log"
        self.argv = [str(build / "batchd"), "--foreground", "--socket", str(self.socket), *map(str, args)]
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
        """Like a crash: no clean-up."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        """As systemd does: SIGTERM, a clean exit in time, no sanitizer's report."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"batchd did not stop within {STOP_S} s of SIGTERM:\n{self.output()}") from None
        if self.process.returncode != -signal.SIGKILL:
            assert self.process.returncode == 0, f"batchd exited with {self.process.returncode}:\n{self.output()}"
        assert "Sanitizer" not in self.output() and "runtime error" not in self.output(), self.output()

    def restart(self):
        self.stop()
        self.start()

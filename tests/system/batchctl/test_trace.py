"""batchctl trace: the format, the events of known batches, and one clock with torch.profiler."""

import collections
import ctypes
import json
import os
import signal
import subprocess
import threading
import time

import pytest

import batchd
from daemons import skip_unless_others_reach_the_build, until


class Recording:
    """batchctl trace in the background."""

    def __init__(self, build, d, folder, *arguments, seconds="600s"):
        self.file = folder / "trace.json"
        self.process = subprocess.Popen(
            [build / "batchctl", "trace", "--time", seconds, "--out", self.file, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        until("it records", lambda: self.process.poll() is not None or "batchd-trace" in links(self.process.pid))

    def end(self):
        self.process.send_signal(signal.SIGINT)  # ends the recording, not the program
        out, err = self.process.communicate(timeout=300)
        assert self.process.returncode == 0, err
        assert out
        return json.loads(self.file.read_text())


def links(pid):
    found = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except FileNotFoundError:
            pass
    return " ".join(found)


def by_phase(trace):
    found = collections.defaultdict(list)
    for e in trace["traceEvents"]:
        found[e["ph"], e["name"]].append(e)
    return found


def epoch(samples, n=None):
    loader = batchd.DataLoader(f"imagefolder:{samples}", batch_size=8, num_workers=2, arrays="numpy")
    loader_n = sum(1 for _ in loader)
    loader.close()
    return loader_n


def test_each_batch_has_its_rows_its_life_and_its_arrow(build, daemon, samples, tmp_path):
    recording = Recording(build, daemon, tmp_path)
    began = time.time()
    n = epoch(samples)
    ended = time.time()
    trace = recording.end()
    found = by_phase(trace)
    base = trace["baseTimeNanoseconds"] / 1e9
    for e in trace["traceEvents"]:
        assert {"ph", "name", "pid", "tid", "ts"} <= set(e)
    rows = found["X", "rows"]
    assert sum(e["args"]["rows"] for e in rows) >= 96
    for e in rows:
        assert e["dur"] > 0 and began <= base + e["ts"] / 1e6 <= base + (e["ts"] + e["dur"]) / 1e6 <= ended + 0.5
    spans = collections.defaultdict(list)
    for e in rows:
        spans[e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    for one in spans.values():  # a thread does one thing at a time
        one.sort()
        assert all(a[1] <= b[0] + 1 for a, b in zip(one, one[1:]))
    given = found["X", "given a batch"]
    assert len(given) >= n
    arrows = {e["id"]: e for e in found["s", "row to trainer"]}
    heads = {e["id"]: e for e in found["f", "row to trainer"]}
    assert len(arrows) >= n and set(arrows) == set(heads)
    assert all(arrows[i]["ts"] < heads[i]["ts"] for i in arrows)
    lives = {e["id"]: e["ts"] for e in found["b", "batch"]}
    ends = {e["id"]: e["ts"] for e in found["e", "batch"]}
    assert len(ends) >= n and all(lives[i] < ends[i] for i in ends)
    counts = [e["args"]["ready"] for e in found["C", "batches ready"]]
    assert counts and min(counts) >= 0 and max(counts) <= 64


def test_rows_have_their_stages(build, daemon, samples, tmp_path):
    """Of one row in four: they fill the row's time, in the row's thread."""
    recording = Recording(build, daemon, tmp_path)
    epoch(samples)
    found = by_phase(recording.end())
    rows = collections.defaultdict(list)
    for e in found["X", "rows"]:
        rows[e["tid"], e["args"]["batch"], e["args"]["row"]].append((e["ts"], e["ts"] + e["dur"]))
    stages = collections.defaultdict(list)
    for name in ("read", "decode", "transform"):
        for e in found["X", name]:
            if e["tid"] in {tid for tid, _, _ in rows}:
                stages[e["tid"], e["args"]["batch"], e["args"]["row"]].append((e["ts"], e["ts"] + e["dur"], name))
    # a slot serves several batches
    assert sum(len(spans) for spans in stages.values()) >= 3 * (96 // 4 - 2)
    for key, spans in stages.items():
        spans.sort()
        for read, decode, transform in zip(spans[::3], spans[1::3], spans[2::3]):
            assert (read[2], decode[2], transform[2]) == ("read", "decode", "transform")
            assert read[1] == pytest.approx(decode[0], abs=1) and decode[1] == pytest.approx(transform[0], abs=1)
            assert any(a - 1 <= read[0] and transform[1] <= b + 1 for a, b in rows[key])
    assert sum(b - a for spans in stages.values() for a, b, name in spans if name == "decode") > 0


def test_it_lies_on_the_profilers_clock(build, daemon, samples, tmp_path):
    torch = pytest.importorskip("torch")
    recording = Recording(build, daemon, tmp_path, "--merge", tmp_path / "torch.json")
    loader = batchd.DataLoader(f"imagefolder:{samples}", batch_size=8)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as p:
        for _ in loader:
            pass
    p.export_chrome_trace(str(tmp_path / "torch.json"))
    loader.close()
    found = by_phase(recording.end())
    calls = [e for (_, name), es in found.items() if name == "enumerate(DataLoader)#batchd.__next__" for e in es]
    given = found["X", "given a batch"]
    assert len(calls) >= 13 and given
    first, last = min(e["ts"] for e in calls), max(e["ts"] + e["dur"] for e in calls)
    # Batches are made while the loop runs; the daemon may have begun before its first call, and goes on with the next
    # epoch behind the last.
    inside = [e for e in given if first - 2e6 < e["ts"] < last]
    assert len(inside) >= len(calls) - 1


def test_without_a_recording_there_is_no_memory_for_it(daemon, samples):
    epoch(samples)
    assert "batchd-trace" not in links(daemon.pid)


def test_one_at_a_time_and_it_ends_with_its_client(build, daemon, samples, tmp_path, batchctl):
    first = Recording(build, daemon, tmp_path, seconds="60s")
    second = batchctl("trace", "--time", "1s", "--out", tmp_path / "b.json")
    assert second.returncode == 1 and "another recording" in second.stderr
    first.process.kill()
    first.process.wait()

    def free():
        return batchctl("trace", "--time", "10ms", "--out", tmp_path / "b.json").returncode == 0

    until("the recording has ended", free)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_other_users_may_not_record(build, make_daemon, tmp_path):
    skip_unless_others_reach_the_build()
    d = make_daemon(config="socket_mode: 0666\n")
    for folder in [d.folder, *d.folder.parents][:-1]:
        if not os.stat(folder).st_mode & 1:
            os.chmod(folder, 0o755)
    made = subprocess.run(
        [build / "batchctl", "trace", "--time", "1s", "--out", "/dev/null", "--socket", d.socket],
        user=65534,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 4 and "only root and the daemon's own user" in made.stderr


def test_a_client_that_spoils_the_memory_spoils_only_its_recording(build, daemon, samples):
    """The daemon's counters are its own: rings full of ones change nothing for trainers."""
    lib = ctypes.CDLL(str(build / "libbatchd.so.0"))
    assert lib.batchd_trace
    done = threading.Event()

    def spoil():
        while not done.is_set():
            for fd in os.listdir("/proc/self/fd"):
                try:
                    if "batchd-trace" in os.readlink(f"/proc/self/fd/{fd}"):
                        os.pwrite(int(fd), b"\xff" * (1 << 20), 0)
                except OSError:
                    pass
            time.sleep(0.01)

    memory, n = ctypes.c_void_p(), ctypes.c_size_t()
    spoiler = threading.Thread(target=spoil)
    recorder = threading.Thread(
        target=lambda: lib.batchd_trace(None, 800, ctypes.byref(memory), ctypes.byref(n), None, 0)
    )
    spoiler.start()
    recorder.start()
    assert epoch(samples) == 12 and epoch(samples) == 12
    recorder.join()
    done.set()
    spoiler.join()
    assert epoch(samples) == 12


@pytest.mark.parametrize("content", [None, "{}", "no trace"])
def test_a_recording_that_cannot_be_merged_is_written_alone(daemon, samples, tmp_path, batchctl, content):
    """It may have been long, and the profiler's file is only read behind it."""
    if content is not None:
        (tmp_path / "torch.json").write_text(content)
    made = batchctl("trace", "--time", "100ms", "--merge", tmp_path / "torch.json", "--out", tmp_path / "alone.json")
    assert made.returncode == 1 and "torch.json' is no trace" in made.stderr
    assert isinstance(json.loads((tmp_path / "alone.json").read_text())["traceEvents"], list)


def test_a_file_that_cannot_be_written_is_known_before_the_recording(daemon, tmp_path, batchctl):
    result = batchctl("trace", "--time", "600s", "--out", tmp_path / "none" / "trace.json", timeout=300)
    assert result.returncode == 1 and "cannot write" in result.stderr


def test_a_recording_that_fails_leaves_no_file_and_harms_none(tmp_path, batchctl):
    old = tmp_path / "old.json"
    old.write_text("{}")
    for out in (tmp_path / "new.json", old):
        assert batchctl("trace", "--socket", tmp_path / "no-daemon", "--out", out).returncode == 3
    assert [p.name for p in tmp_path.iterdir()] == ["old.json"] and old.read_text() == "{}"


def test_its_memory_is_there_before_it_begins(build, daemon, tmp_path):
    """A page that has to be made while memory is short would end the daemon with a signal."""
    recording = Recording(build, daemon, tmp_path)
    for fd in os.listdir(f"/proc/{daemon.pid}/fd"):
        path = f"/proc/{daemon.pid}/fd/{fd}"
        if "batchd-trace" in os.readlink(path):
            found = os.stat(path)
    assert found.st_blocks * 512 >= found.st_size > 0
    recording.end()


def test_ctrl_c_ends_it_early(build, daemon, samples, tmp_path):
    recording = Recording(build, daemon, tmp_path, seconds="600s")
    epoch(samples)
    assert by_phase(recording.end())["X", "rows"]


def test_a_second_ctrl_c_ends_the_program(build, daemon, tmp_path):
    daemon.process.send_signal(signal.SIGSTOP)  # it answers nothing
    try:
        with subprocess.Popen(
            [build / "batchctl", "trace", "--time", "20s", "--out", tmp_path / "trace.json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as asks:
            catches = f"{1 << signal.SIGINT - 1:016x}"
            until("it catches Ctrl-C", lambda: f"SigCgt:\t{catches}" in status(asks.pid))
            asks.send_signal(signal.SIGINT)
            until("it has heard", lambda: f"SigCgt:\t{catches}" not in status(asks.pid))
            asks.send_signal(signal.SIGINT)
            assert asks.wait(10) == -signal.SIGINT
    finally:
        daemon.process.send_signal(signal.SIGCONT)


def status(pid):
    with open(f"/proc/{pid}/status") as f:
        return f.read()

"""The log at debug level: every change of state with names, so that a session and its batches can be followed from the
first line to the last."""

import re
import shutil
import subprocess

import pytest

import batchd
from daemons import until


def matches(pattern, text):
    return [m.groups() for m in re.finditer(pattern, text)]


def test_a_session_can_be_followed_from_hello_to_its_end(make_daemon):
    """The moves of one session, its job and its slots appear in the only possible order."""
    d = make_daemon("--log-level", "debug", config="linger: 0s\n")
    with batchd.DataLoader(
        "random:length=40,shape=4,dtype=float32", batch_size=4, n_slots=2, job="traced", shuffle=False
    ) as loader:
        assert sum(1 for batch in loader) == 10
    until("the job is closed", lambda: "ready -> closing" in d.output())
    until("the session has ended", lambda: "attached -> ended" in d.output() or "opening -> ended" in d.output())
    log = d.output()
    number = matches(r"session (\d+) \(pid \d+\): greeted -> opening, job traced", log)[0][0]
    session = [to for frm, to in matches(rf"session {number} \(pid \d+\): (\w+) -> (\w+)", log)]
    assert session == ["opening", "attached", "ended"]
    assert [m for m in matches(r"job \d+ \(traced\): (\w+) -> (\w+)", log)] == [
        ("opening", "ready"),
        ("ready", "closing"),
    ]
    # Each batch: its slot is filled, then it is ready, then the session gets it, then gives it back.
    given = matches(rf"session {number} gets epoch 0, step (\d+) in slot (\d+), generation (\d+)", log)
    assert [step for step, slot, generation in given] == [str(step) for step in range(10)]
    for step, slot, generation in given[:8]:  # Close ends the leases of the last batches
        where = [
            log.index(text)
            for text in (
                f"slot {slot}, generation {generation}: free -> filling",
                f"slot {slot}, generation {generation}: filling -> ready",
                f"session {number} gets epoch 0, step {step} in slot {slot}, generation {generation}",
                f"session {number} gives back slot {slot}, generation {generation}",
                f"slot {slot}, generation {generation}: ready -> free",
            )
        ]
        assert where == sorted(where)


def test_a_healthy_daemon_says_nothing_of_states_at_its_usual_level(make_daemon):
    """Without a request the trace costs nothing: no line of it is written."""
    d = make_daemon()
    with batchd.DataLoader("random:length=12,shape=4,dtype=float32", batch_size=4, shuffle=False) as loader:
        assert len(list(loader)) == 3
    assert "->" not in d.output()


def test_probes_are_there_where_the_header_was(build):
    """A build with <sys/sdt.h> has the probes that tracers look for, a build without it has none."""
    if not shutil.which("readelf"):
        pytest.skip("readelf is missing (binutils)")
    has_header = (
        subprocess.run(
            ["cc", "-include", "sys/sdt.h", "-x", "c", "-fsyntax-only", "/dev/null"], capture_output=True
        ).returncode
        == 0
    )
    notes = subprocess.run(["readelf", "-n", build / "batchd"], check=True, capture_output=True, text=True).stdout
    found = set(re.findall(r"Provider: batchd\s+Name: (\w+)", notes))
    all_of_them = {
        "slot_begin",
        "slot_ready",
        "slot_publish",
        "slot_release",
        "session_move",
        "job_move",
        "producer_move",
    }
    assert found == (all_of_them if has_header else set())

"""The state clock of trainers in `batchctl status --json`."""

import json
import signal
import time

import batchd
import pytest

from daemons import in_time, until

STATES = "busy read decode transform gpu_copy order producer peer memory idle".split()


def clock(batchctl, rank=0):
    sessions = json.loads(batchctl("status", "--json").stdout)["sessions"]
    return next(s["clock"] for s in sessions if s["state"] == "attached" and s["rank"] == rank)


def check_sums(c):
    assert sorted(c["seconds"]) == sorted(STATES)
    for shares in c["shares"].values():
        assert sorted(shares) == sorted(STATES)
        assert sum(shares.values()) == pytest.approx(1)
        assert all(0 <= share <= 1 for share in shares.values())


@pytest.mark.timing
def test_shares_sum_to_one_and_seconds_to_the_time_that_passed(daemon, batchctl):
    """Of a trainer that works for a while, stops between epochs, and works again."""
    before = time.monotonic()
    with batchd.DataLoader("random:length=640,shape=3x32x32,dtype=uint8", batch_size=32) as loader:
        began = time.monotonic()
        for _ in loader:
            time.sleep(0.02)
            check_sums(clock(batchctl))
        first = clock(batchctl)
        time.sleep(0.6)
        idle = clock(batchctl)
        for _ in loader:
            time.sleep(0.02)
        ended = time.monotonic()
        last = clock(batchctl)
        check_sums(last)
        in_time(ended - began - 0.2 < sum(last["seconds"].values()) < time.monotonic() - before + 0.2)
    assert idle["state"] == "idle"
    assert idle["seconds"]["idle"] - first["seconds"]["idle"] > 0.55
    in_time(idle["seconds"]["busy"] - first["seconds"]["busy"] < 0.05)
    assert last["seconds"]["busy"] > 20 * 2 * 0.02


def test_a_stalled_daemon_counts_the_time_that_passed(daemon, batchctl):
    """A daemon that is stopped for a while, while its trainer has a batch: the clock has all of the time, once, as busy."""
    with batchd.DataLoader("random:length=640,shape=3x32x32,dtype=uint8", batch_size=32) as loader:
        batches = iter(loader)
        next(batches)
        first = time.monotonic()
        before = clock(batchctl)["seconds"]
        began = time.monotonic()
        daemon.process.send_signal(signal.SIGSTOP)
        time.sleep(1.5)
        daemon.process.send_signal(signal.SIGCONT)
        stalled = time.monotonic() - began

        def counted():
            now = clock(batchctl)["seconds"]
            passed = sum(now.values()) - sum(before.values())
            return passed >= stalled and (now["busy"] - before["busy"], passed)

        busy, passed = until("the time is counted", counted)
        assert passed <= time.monotonic() - first + 0.2
        assert busy == pytest.approx(passed, abs=0.01)


@pytest.mark.timing
def test_a_trainer_that_keeps_its_batch_is_busy(daemon, batchctl):
    with batchd.DataLoader("random:length=640,shape=3x32x32,dtype=uint8", batch_size=32) as loader:
        iterator = iter(loader)
        next(iterator)
        before = clock(batchctl)
        time.sleep(0.5)
        after = clock(batchctl)
    assert after["state"] == "busy"
    assert after["seconds"]["busy"] - before["seconds"]["busy"] > 0.45
    in_time(sum(after["seconds"][s] - before["seconds"][s] for s in STATES if s != "busy") < 0.01)

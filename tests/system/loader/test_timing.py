"""loader.timing() and the ranges that torch.profiler shows."""

import time

import pytest

import batchd

RANDOM = "random:shape=3x8x8,length=96"


def make(**options):
    return batchd.DataLoader(RANDOM, batch_size=8, **options)


def test_timing_counts_what_the_loop_got(daemon):
    loader = make(arrays="numpy")
    empty = loader.timing()
    assert empty["batches"] == 0 and empty["wait_share"] == 0 and empty["data_time"] == 0
    waits = []
    for _ in loader:
        waits.append(loader.last_batch.wait_s)
        assert loader.timing()["data_time"] == waits[-1]
    seen = loader.timing()
    assert seen["batches"] == len(waits) == 12 and seen["rows"] == 96
    assert seen["wait_s"] == pytest.approx(sum(waits))
    assert seen["wait_p50_s"] == sorted(waits)[6] and seen["wait_p99_s"] == max(waits)
    assert 0 <= seen["wait_share"] <= 1 and seen["rows_per_s"] > 0
    loader.close()


def test_a_slow_loop_waits_for_nothing(daemon):
    loader = make(arrays="numpy")
    for _ in loader:
        time.sleep(0.02)
    seen = loader.timing()
    assert seen["step_time"] >= 0.02
    assert (
        seen["wait_share"] <= seen["wait_s"] / (seen["wait_s"] + 11 * 0.02)
        and 0 < seen["rows_per_s"] <= 8 / 0.02 * 12 / 11
    )
    loader.close()


def test_a_profiler_sees_the_wait_and_the_finish_inside_the_call(daemon):
    torch = pytest.importorskip("torch")
    loader = make()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as p:
        for _ in loader:
            pass
    counts = {e.key: e.count for e in p.key_averages()}
    assert counts["enumerate(DataLoader)#batchd.__next__"] == 13  # and the end
    assert counts["batchd.wait"] == 13 and counts["batchd.finish"] == 12
    inside = [e for e in p.events() if e.name in ("batchd.wait", "batchd.finish")]
    assert all(e.cpu_parent.name == "enumerate(DataLoader)#batchd.__next__" for e in inside)
    loader.close()


def test_without_a_profiler_there_are_no_ranges(daemon, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.autograd.profiler, "record_function", None)  # would raise
    loader = make()
    assert sum(1 for _ in loader) == 12
    loader.close()

"""A loader's batches in memory: writing in place, keeping them, dropping them."""

import collections
import ctypes
import functools
import gc
import signal
import sys
import threading
import time
import warnings

import numpy
import pytest

import batchd
from plain_loops import content_of, make, plain, run_python, same


def test_writing_in_place_harms_no_other_trainer(daemon):
    """A trainer that normalises in place sees its own values, and the next time the daemon's; another trainer of the
    same job sees none of the changes."""
    expected = content_of(make())
    loader = make(mode="share", job="shared")
    for epoch in range(3):
        loader.set_epoch(0)
        for (images, labels), (x, y) in zip(loader, expected):
            assert (plain(images) == x).all()
            images *= 0
            images -= 7
            labels += 100
            assert (plain(images) == -7).all()
    assert same(content_of(make(mode="share", job="shared-2")), expected)


@pytest.mark.parametrize("when", ["before", "after"])
def test_faulthandler_and_in_place_writes_get_along(daemon, when):
    """Python's own handler below ours or, enabled in mid-epoch, on top of it: no write is lost, and a real crash is
    reported once."""
    done = run_python(
        """
        import batchd, ctypes, faulthandler
        if WHEN == "before":
            faulthandler.enable()
        loader = batchd.DataLoader("random:length=100,shape=3", 8)
        it = iter(loader)
        images, _ = next(it)
        if WHEN == "after":
            faulthandler.enable()    # its one report is used up by the write
        images[0] = 5
        assert images[0, 0] == 5
        images, _ = next(it)
        images[1] = 6
        for images, _ in loader:     # a new epoch: ours is on top again
            images += 1
        print("all written", flush=True)
        ctypes.string_at(8)
    """.replace("WHEN", repr(when))
    )
    assert done.stdout == "all written\n"
    assert done.returncode == -signal.SIGSEGV and done.stderr.count("Fatal Python error: Segmentation fault") == 1
    assert ("string_at" in done.stderr) == (when == "before")


def test_writable_mapping_allows_readinto(daemon, tmp_path):
    """System calls cannot handle a fault: writable=True is for them."""
    (tmp_path / "bytes").write_bytes(b"\1" * 240)
    expected = content_of(make(arrays="numpy"))
    loader = make(arrays="numpy", writable=True)
    for epoch in range(2):
        loader.set_epoch(0)
        for (images, _), (x, _) in zip(loader, expected):
            assert (images == x).all()
            with open(tmp_path / "bytes", "rb", buffering=0) as f:
                assert f.readinto(memoryview(images).cast("B")[:240]) == 240
            assert images.view(numpy.uint8).reshape(-1)[:240].tolist() == [1] * 240


def test_keeping_every_batch_gets_copies_instead_of_a_standstill(daemon):
    """list(loader) works, reports once why it copies, and all of the batches stay right."""
    expected = content_of(make())
    loader = make(n_slots=4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kept = list(loader)
    assert [w.category for w in caught] == [RuntimeWarning] and "n_slots" in str(caught[0].message)
    assert same([(plain(x), plain(y)) for x, y in kept], expected)


def test_two_slots_are_enough_for_a_plain_loop_and_say_so_when_kept(daemon):
    """The smallest window: no copies in a plain loop, copies for a loop that keeps batches, an error instead of an
    endless wait for a loop that starts to keep them in its middle."""
    loader = make(n_slots=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sum(len(x) for x, _ in loader) == 100
    with pytest.warns(RuntimeWarning, match="1 batch is held while only 2 slots exist"):
        assert sum(len(x) for x, _ in list(loader)) == 100
    kept = []
    with pytest.raises(batchd.Error, match="slots"):
        for k, batch in enumerate(loader):
            if k > 4:
                kept.append(batch)


def test_batches_outlive_the_loader_and_the_daemon(make_daemon):
    """Held batches stay unchanged, readable and writable."""
    daemon = make_daemon()
    loader = make()
    expected = content_of(make())
    it = iter(loader)
    kept = [next(it), next(it)]
    loader.close()
    assert same([(plain(x), plain(y)) for x, y in kept], expected[:2])
    daemon.stop()
    kept[0][0][:] = 1
    del loader, it
    gc.collect()
    assert same([(plain(x), plain(y)) for x, y in kept[1:]], expected[1:2])
    del kept
    gc.collect()


def test_dropped_loader_leaves_without_a_collector(daemon):
    """No reference cycle: the session ends with the last reference, not at a later garbage collection."""
    gc.disable()
    try:
        for images, labels in make(job="gone"):
            assert "gone" in jobs()
        del images, labels
        deadline = time.monotonic() + 300
        while "gone" in jobs() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert "gone" not in jobs()
    finally:
        gc.enable()


def jobs():
    """The number of batches delivered to all sessions of the daemon."""
    return [s["job"] for s in batchd.status()["sessions"]]


def test_threads_may_share_an_iteration(daemon):
    """Each thread gets the next batch in order; every sample comes once."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        it, seen, failures = iter(make("random:length=4000,shape=3,classes=1000000", arrays="numpy")), [], []

        def take():
            try:
                for _, labels in it:
                    seen.extend(labels.tolist())
            except Exception as e:
                failures.append(e)

        threads = [threading.Thread(target=take) for _ in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures and sorted(seen) == sorted(
        i for _, labels in make("random:length=4000,shape=3,classes=1000000", arrays="numpy") for i in labels.tolist()
    )


def test_dropping_tensors_returns_their_slots(daemon):
    """Views of views hold the slot, the last one gives it back."""
    loader = make(n_slots=8)
    it = iter(loader)
    images, labels = next(it)
    row = images[3, 1]
    from batchd import _lib

    assert _lib.n_leased(loader._handle) == 1
    del images
    assert _lib.n_leased(loader._handle) == 1
    del row
    assert _lib.n_leased(loader._handle) == 0
    assert len(labels) == 8


def test_a_batch_that_comes_with_ctrl_c_is_not_lost(daemon, monkeypatch):
    """A signal handler that raises when a batch has just come: the next call gets that batch; a new iteration gives it
    back."""
    from batchd import _lib

    loader, take = make(timeout=20), _lib.next
    expected, it, found = content_of(make()), iter(loader), []

    def take_and_raise(*arguments):
        take(*arguments)
        raise KeyboardInterrupt

    for _ in range(len(expected)):
        monkeypatch.setattr(_lib, "next", take_and_raise)
        with pytest.raises(KeyboardInterrupt):
            next(it)
        monkeypatch.setattr(_lib, "next", take)
        found.append([plain(part) for part in next(it)])
    assert same(found, expected) and next(it, None) is None
    monkeypatch.setattr(_lib, "next", take_and_raise)
    with pytest.raises(KeyboardInterrupt):
        next(iter(loader))
    assert _lib.n_leased(loader._handle) == 1
    iter(loader)
    assert _lib.n_leased(loader._handle) == 0


def test_ctrl_c_while_a_batch_is_dropped_is_neither_lost_nor_loses_the_slot(daemon):
    """A destructor in Python would start with the signal handler, drop its exception, and never reach the release."""
    from batchd import _lib

    loader = make()
    held = [next(iter(loader))]
    assert _lib.n_leased(loader._handle) == 1
    calls = functools.partial(getattr(ctypes.CDLL(None), "raise"), signal.SIGINT), functools.partial(held.clear)
    with pytest.raises(KeyboardInterrupt):
        collections.deque(
            map(functools.partial.__call__, calls), 0
        )  # one after the other, all in C: Python handles the signal afterwards
    assert not held and _lib.n_leased(loader._handle) == 0

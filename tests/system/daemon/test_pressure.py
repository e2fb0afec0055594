"""What a daemon gives back: while other programs wait for memory, and what no loader has used for long. A FIFO stands for
the kernel's pressure file, as systemd's protocol allows."""

import os

import batchd
import daemons
import pytest

CONFIG = "memory: 1GiB\nlinger: {linger}\ncache: {{decoded: 400MiB, jpeg: off, filling: always, unused: {unused}}}\n"


@pytest.fixture
def fifo(tmp_path, monkeypatch):
    path = tmp_path / "pressure"
    os.mkfifo(path)
    monkeypatch.setenv("MEMORY_PRESSURE_WATCH", str(path))
    return path


def press_until(what, condition, fifo):
    """While memory is scarce the kernel tells so again and again."""

    def pressed():
        with open(fifo, "w") as f:
            f.write("now")
        return condition()

    daemons.until(what, pressed, seconds=60)


def decoded():
    return next(tier for tier in batchd.status()["cache"] if tier["tier"] == "decoded")


def fill(samples, **options):
    loader = batchd.DataLoader(
        f"imagefolder:{samples}",
        batch_size=16,
        shuffle=True,
        arrays="numpy",
        dtype="uint8",
        transform="train224",
        **options,
    )
    batches = [images.tobytes() for images, _ in loader]
    daemons.until("a full cache", lambda: decoded()["entries"] == 96 or not [0 for _ in loader], seconds=60)
    return loader, batches


def test_pressure_ends_what_lingers_and_what_no_loader_uses(make_daemon, samples, fifo):
    make_daemon(config=CONFIG.format(linger="10min", unused="never"))
    fill(samples, job="mine")[0].close()
    daemons.until("a loader that lingers", lambda: [x["state"] for x in batchd.status()["loaders"]] == ["lingering"])
    press_until("its end", lambda: not batchd.status()["loaders"], fifo)
    press_until("an empty cache", lambda: decoded()["bytes"] == 0, fifo)


def test_a_cache_in_use_shrinks_and_batches_stay_the_same(make_daemon, samples, fifo):
    make_daemon(config=CONFIG.format(linger="0s", unused="never"))
    loader, batches = fill(samples)
    before = decoded()
    press_until("fewer entries", lambda: decoded()["entries"] < before["entries"], fifo)
    assert decoded()["budget_bytes"] < before["budget_bytes"]
    loader.set_epoch(0)
    assert [images.tobytes() for images, _ in loader] == batches
    assert decoded()["bytes"] < before["bytes"]  # it does not grow again at once
    loader.close()


def test_what_no_loader_uses_goes_with_age(make_daemon, samples):
    make_daemon(config=CONFIG.format(linger="0s", unused="1s"))
    loader, _ = fill(samples)
    loader.close()
    daemons.until("an empty cache", lambda: decoded()["bytes"] == 0, seconds=60)

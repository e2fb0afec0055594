"""Bottlenecks that a test makes, each far worse than anything else: the verdict names it."""

import io
import json
import os
import subprocess
import threading
import time

import numpy as np
import pytest
from PIL import Image

import batchd
from daemons import REPO, until
from fake_driver import Place, make_rows

CROP = ["RandomHorizontalFlip", ["CenterCrop", 32]]
OPTIONS = {"batch_size": 16, "dtype": "uint8", "n_slots": 4, "shuffle": True}


def pictures(folder, n, kind, size):
    """n copies of a picture that does not compress, so that decoding it takes long for its size."""
    (folder / "class").mkdir(parents=True)
    pixels = np.random.default_rng(1).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind, **({"quality": 90} if kind == "JPEG" else {"compress_level": 1}))
    for i in range(n):
        (folder / "class" / f"{i}.{kind.lower()}").write_bytes(out.getvalue())
    return folder


def train(seconds=2.5, step=0.0, **options):
    """A trainer of so many seconds; its verdict, which must name every part of its time."""
    with batchd.DataLoader(**OPTIONS | options) as loader:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for _ in loader:
                time.sleep(step)
                if time.monotonic() > deadline:
                    break
        return checked(loader.verdict("since_start"))


def checked(verdict):
    assert sum(verdict.shares.values()) == pytest.approx(1)
    assert verdict.known, verdict
    return verdict


def named(verdict, cause, least=0.5):
    """cause is the one that is named, and it takes most of the trainer's time."""
    assert verdict.input_bound and verdict.cause == cause, f"{verdict} {verdict.shares}"
    assert verdict.shares[cause] > least, f"{verdict} {verdict.shares}"
    assert "estimate" in verdict
    return verdict


@pytest.fixture(scope="module")
def slow_reads(build, tmp_path_factory):
    if "asan" in build.name or "tsan" in build.name:
        pytest.skip("a sanitizer wants to be loaded first")
    library = tmp_path_factory.mktemp("shim") / "slow-reads.so"
    source = REPO / "tests/bench/preload/slow-reads.c"
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)
    return library


def test_a_slow_disk(slow_reads, tmp_path, make_daemon, monkeypatch):
    """Each file takes 400 ms, and workers have nothing to do meanwhile."""
    folder = pictures(tmp_path / "small", 400, "JPEG", (48, 48))
    with monkeypatch.context() as m:
        m.setenv("LD_PRELOAD", str(slow_reads))
        m.setenv("SLOW_READS", str(folder))
        m.setenv("SLOW_READS_MS", "400")
        make_daemon("--workers", "2", config="cache:\n  decoded: off\n")
    verdict = named(train(dataset=f"imagefolder:{folder}", transform=CROP), "read")
    assert "reading the files" in verdict


def test_one_worker_that_decodes(tmp_path, make_daemon):
    folder = pictures(tmp_path / "large", 48, "PNG", (800, 800))
    make_daemon("--workers", "1", config="cache:\n  decoded: off\n")
    verdict = named(train(4, dataset=f"imagefolder:{folder}", transform=CROP, batch_size=4), "decode")
    assert "of 1 workers busy" in verdict and verdict.twice_the_cpu == pytest.approx(1, abs=0.3)
    assert verdict.decoded_cache > 0.5  # nothing but a crop is left


def test_a_slow_transform(tmp_path, make_daemon):
    folder = pictures(tmp_path / "small", 64, "JPEG", (64, 64))
    make_daemon("--workers", "1")
    heavy = ["RandomHorizontalFlip", ["Resize", [1000, 1000]], ["GaussianBlur", 31, [9.0, 9.0]], ["CenterCrop", 32]]
    verdict = named(train(4, dataset=f"imagefolder:{folder}", transform=heavy, batch_size=4), "transform")
    assert verdict.shares["decode"] < 0.1


def test_a_slow_trainer(daemon):
    verdict = train(1.5, 0.05, dataset="random:length=3200,shape=3x32x32,dtype=uint8")
    assert not verdict.input_bound and verdict.share < 0.05, f"{verdict} {verdict.shares}"
    assert verdict.shares["busy"] > 0.8
    assert verdict.startswith("not input-bound: p99 wait ")


def test_a_rank_that_stalls(daemon):
    """In a share group that keeps step, one trainer keeps its first batch, and so all slots."""
    options = OPTIONS | {"dataset": "random:length=3200,shape=3x32x32,dtype=uint8", "job": "group", "mode": "share"}
    options |= {"world_size": 2, "policy": "wait"}
    with batchd.DataLoader(rank=0, **options) as keen, batchd.DataLoader(rank=1, **options) as stuck:
        keeps = iter(stuck)

        def take():
            try:
                for _ in keen:
                    pass
            except batchd.Error:
                pass  # closed

        taking = threading.Thread(target=take)
        taking.start()
        held = next(keeps)
        until("the first waits", lambda: keen.verdict("since_start").known, 20)
        time.sleep(1.5)
        verdict, other = keen.verdict("since_start"), stuck.verdict("since_start")
        named(verdict, "peer")
        assert "other trainers of the job" in verdict
        assert not other.input_bound
        del held
        keen.close()
        taking.join()


def test_too_little_memory(tmp_path, make_daemon):
    """Eight workers, and working memory for one of these pictures at a time."""
    folder = pictures(tmp_path / "large", 32, "JPEG", (2200, 2200))
    make_daemon("--workers", "8", "--memory", "64MiB", config="cache:\n  decoded: off\n")
    transform = [["Resize", [32, 32]]]
    verdict = train(6, dataset=f"imagefolder:{folder}", transform=transform, batch_size=4)
    named(verdict, "memory", 0.25)  # the one worker with memory decodes, and large files are read meanwhile


def slow_batches():
    while True:
        time.sleep(0.1)
        yield np.zeros((4, 4), dtype=np.float32)


class Slow:
    def __iter__(self):
        return slow_batches()


def test_a_slow_producer(daemon):
    producer = batchd.serve(Slow(), "slow", background=True)
    try:
        with batchd.DataLoader("serve:slow") as loader:
            batches = iter(loader)
            deadline = time.monotonic() + 2.5
            while time.monotonic() < deadline:
                next(batches)
            named(checked(loader.verdict("since_start")), "producer")
    finally:
        producer.stop()


def test_a_slow_copy_to_the_gpu(build, tmp_path):
    """The copies of the driver's double take up to 300 ms."""
    if not (build / "libfakecuda.so").exists() or not (build / "tests/gpu/trainer").exists():
        pytest.skip("the driver's double is not built")
    with Place(tmp_path / "place", daemon_env={"FAKECUDA_DELAY_US": "300000"}) as place:
        trainer = place.start(
            "--dataset", make_rows(tmp_path), "--batch", 8, "--epochs", 1000, "--check", "none", "--slots", 3
        )
        try:

            def session():
                found = [s for s in batchd.status(str(place.folder / "batchd.sock"))["sessions"] if s.get("gpu")]
                return found and found[0].get("verdict_since_start", {}).get("known") and found[0]

            until("there is a verdict", session, 60)
            time.sleep(2)
            found = session()
        finally:
            trainer.kill()
            trainer.communicate()
    verdict, shares = found["verdict_since_start"], found["clock"]["shares"]["since_start"]
    assert verdict["cause"] == "gpu_copy" and shares["gpu_copy"] > 0.5, (verdict["text"], shares)


# ---- where the verdict is said ----


def test_status_begins_with_the_verdict(daemon, batchctl):
    with batchd.DataLoader(**OPTIONS | {"dataset": "random:length=3200,shape=3x32x32,dtype=uint8"}) as loader:
        batches = iter(loader)
        deadline = time.monotonic() + 1.2
        while time.monotonic() < deadline:
            next(batches, None)
            time.sleep(0.05)
        text = batchctl("status").stdout.splitlines()[0]
        parts = json.loads(batchctl("status", "--json").stdout)["verdict"]
    assert text.startswith("verdict") and "not input-bound: p99 wait" in text
    assert parts["job"] == loader.job and parts["rank"] == 0 and parts["input_bound"] is False


def test_a_closed_loader_says_its_verdict_when_asked(daemon, capfd, monkeypatch):
    options = OPTIONS | {"dataset": "random:length=320,shape=3x32x32,dtype=uint8"}
    for wish, lines in (("1", 1), ("0", 0), ("", 0)):  # short runs say nothing by themselves
        monkeypatch.setenv("BATCHD_VERDICT", wish)
        with batchd.DataLoader(**options) as loader:
            for _ in loader:
                pass
            with pytest.raises(ValueError, match="last_minute, since_start, not 'ever'"):
                loader.verdict("ever")
        assert capfd.readouterr().err.count("verdict") == lines
    with pytest.raises(batchd.Error, match="closed"):
        loader.verdict()

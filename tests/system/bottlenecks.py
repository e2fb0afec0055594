"""Bottlenecks that are made on purpose, for test_bottlenecks.py and tests/soak/soak_verdicts.py. Each is far worse than
everything else that the trainer could wait for, so the verdict has one right answer, on a busy machine too.

Each function takes a place (see Place) and a number of seconds, and returns what the daemon says of the trainer."""

import io
import os
import subprocess
import threading
import time

import numpy as np
from PIL import Image

import batchd
import fake_driver
from daemons import BUILD, REPO, until

CROP = ["RandomHorizontalFlip", ["CenterCrop", 32]]
OPTIONS = {"batch_size": 16, "dtype": "uint8", "n_slots": 4, "shuffle": True}
ROWS = OPTIONS | {"dataset": "random:length=3200,shape=3x32x32,dtype=uint8"}
NO_CACHE = "cache:\n  decoded: off\n  jpeg: off\n"


class Missing(Exception):
    """A part of the build that a bottleneck needs is not there."""


class Place:
    """Where bottlenecks are made: `folder` keeps pictures between runs, `start` starts the daemon of one run."""

    def __init__(self, folder, start):
        self.folder, self.start = folder, start

    def pictures(self, name, n, kind, size, levels=256):
        """n copies of a picture of noise, so that decoding it takes long."""
        folder = self.folder / name
        if not folder.exists():
            pixels = np.random.default_rng(1).integers(0, levels, (size[1], size[0], 3), dtype=np.uint8)
            out = io.BytesIO()
            Image.fromarray(pixels).save(out, kind, **({"quality": 90} if kind == "JPEG" else {"compress_level": 1}))
            (folder / "class").mkdir(parents=True)
            for i in range(n):
                (folder / "class" / f"{i}.{kind.lower()}").write_bytes(out.getvalue())
        return f"imagefolder:{folder}"

    def slow_reads(self):
        """The library that makes files slow (tests/bench/preload)."""
        if "asan" in BUILD.name or "tsan" in BUILD.name:
            raise Missing("a sanitizer wants to be loaded first")
        library = self.folder / "slow-reads.so"
        if not library.exists():
            source = REPO / "tests/bench/preload/slow-reads.c"
            cc = os.environ.get("CC", "cc")
            subprocess.run([cc, "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)
        return library


def train(seconds, step=0.0, **options):
    """A trainer of so many seconds."""
    with batchd.DataLoader(**OPTIONS | options) as loader:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for _ in loader:
                time.sleep(step)
                if time.monotonic() > deadline:
                    break
        return loader.verdict("since_start")


def slow_disk(place, seconds=2.0):
    """Each file takes 400 ms, and workers have nothing to do meanwhile."""
    data = place.pictures("small", 400, "JPEG", (48, 48))
    slow = {"LD_PRELOAD": str(place.slow_reads()), "SLOW_READS": data.partition(":")[2], "SLOW_READS_MS": "400"}
    place.start("--workers", "2", config=NO_CACHE, env=os.environ | slow)
    return train(seconds, dataset=data, transform=CROP)


def one_processor(place, seconds=2.0):
    """The daemon may use one processor, and large pictures are decoded for a small crop."""
    data = place.pictures("large", 48, "PNG", (800, 800), levels=8)  # of all 256, PNG would just store the bytes
    place.start("--workers", "1", config=NO_CACHE)
    return train(seconds, dataset=data, transform=CROP, batch_size=4)


def slow_transform(place, seconds=2.0):
    data = place.pictures("tiny", 64, "JPEG", (64, 64))
    place.start("--workers", "1")
    heavy = ["RandomHorizontalFlip", ["Resize", [1000, 1000]], ["GaussianBlur", 31, [9.0, 9.0]], ["CenterCrop", 32]]
    return train(seconds, dataset=data, transform=heavy, batch_size=4)


def slow_copy(place, seconds=2.0):
    """The copies of the driver's double take up to 300 ms."""
    if not (BUILD / "libfakecuda.so").exists() or not (BUILD / "tests/gpu/trainer").exists():
        raise Missing("the driver's double is not built")
    folder = place.folder / f"gpu-{time.monotonic_ns()}"
    with fake_driver.Place(folder, daemon_env={"FAKECUDA_DELAY_US": "300000"}) as driver:
        args = ("--batch", 8, "--epochs", 1000, "--check", "none", "--slots", 3)
        trainer = driver.start("--dataset", fake_driver.make_rows(folder), *args)
        try:

            def session():
                found = [s for s in batchd.status(str(folder / "batchd.sock"))["sessions"] if s.get("gpu")]
                return found and found[0].get("verdict_since_start", {}).get("known") and found[0]

            until("there is a verdict", session)
            time.sleep(seconds)
            found = session()
        finally:
            trainer.kill()
            trainer.communicate()
    return batchd._verdict.Verdict(found["verdict_since_start"], found["clock"]["shares"]["since_start"])


def slow_trainer(place, seconds=1.5):
    place.start()
    return train(seconds, 0.05, **ROWS)


def stalled_rank(place, seconds=1.5):
    """In a share group that keeps step, one trainer keeps its first batch, and so all slots."""
    place.start()
    options = ROWS | {"job": "group", "mode": "share", "world_size": 2, "policy": "wait"}
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
        until("the first waits", lambda: keen.verdict("since_start").known)
        time.sleep(seconds)
        verdict, other = keen.verdict("since_start"), stuck.verdict("since_start")
        assert not other.input_bound, other
        del held
        keen.close()
        taking.join()
    return verdict


def small_budget(place, seconds=3.0):
    """Eight workers, and working memory for one of these pictures at a time."""
    data = place.pictures("huge", 32, "JPEG", (2200, 2200))
    place.start("--workers", "8", "--memory", "64MiB", config=NO_CACHE)
    return train(seconds, dataset=data, transform=[["Resize", [32, 32]]], batch_size=4)


class Slow:
    def __iter__(self):
        while True:
            time.sleep(0.1)
            yield np.zeros((4, 4), dtype=np.float32)


def slow_producer(place, seconds=2.0):
    place.start()
    producer = batchd.serve(Slow(), "slow", background=True)
    try:
        with batchd.DataLoader("serve:slow") as loader:
            batches = iter(loader)
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                next(batches)
            return loader.verdict("since_start")
    finally:
        producer.stop()


class Hesitant:
    """A sampler that takes 0.05 s for each list of indices."""

    def __len__(self):
        return 200

    def __iter__(self):
        for i in range(200):
            time.sleep(0.05)
            yield list(range(16 * i, 16 * i + 16))


def slow_order(place, seconds=2.0):
    place.start()
    options = {k: v for k, v in ROWS.items() if k not in ("shuffle", "batch_size")}
    with batchd.DataLoader(**options, batch_size=16, batch_sampler=Hesitant()) as loader:
        deadline = time.monotonic() + seconds
        for _ in loader:
            if time.monotonic() > deadline:
                break
        return loader.verdict("since_start")


# How each is made, the cause to be named, and the least part of the trainer's time that has to be given to it.
ALL = {
    "slow disk": (slow_disk, "read", 0.8),
    "one processor": (one_processor, "decode", 0.8),
    "slow transform": (slow_transform, "transform", 0.8),
    "slow copy to the GPU": (slow_copy, "gpu_copy", 0.6),
    "slow trainer": (slow_trainer, "busy", 0.8),
    "stalled rank": (stalled_rank, "peer", 0.8),
    "small budget": (small_budget, "memory", 0.5),
    "slow producer": (slow_producer, "producer", 0.8),
    "slow order": (slow_order, "order", 0.8),
}


def wrong(name, verdict):
    """What is wrong about the verdict on this bottleneck; None: nothing."""
    _, cause, least = ALL[name]
    shares = verdict.shares
    if abs(sum(shares.values()) - 1) > 1e-9:
        return f"the shares sum to {sum(shares.values())}"
    if not verdict.known:
        return "there is no verdict"
    if verdict.input_bound != (cause != "busy") or (verdict.input_bound and verdict.cause != cause):
        return f"{cause} is not named"
    worked = 1 - shares["idle"]
    if shares[cause] < least * worked:
        return f"{cause} has {shares[cause] / worked:.2f} of the trainer's time, less than {least}"
    return None

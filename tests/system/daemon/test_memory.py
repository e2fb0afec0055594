"""The daemon's memory: within its budget whatever the caches hold, and freed when the work is done."""

import itertools
import json

import batchd
import pytest
from daemons import until

MIB = 1 << 20


def status(batchctl):
    return json.loads(batchctl("status", "--json").stdout)


@pytest.mark.parametrize(
    "cache", ["{decoded: auto, jpeg: auto}", "{decoded: 1GiB, jpeg: 1GiB}", "{decoded: off, jpeg: off}"]
)
def test_resident_memory_stays_within_the_budget(make_daemon, batchctl, photos, cache):
    # 400 photographs are about 200 MiB of pixels: more than the caches may have. Two jobs with windows of their own.
    make_daemon(config=f"memory: 192MiB\ncache: {cache}\n")
    loaders = [
        batchd.DataLoader(f"imagefolder:{photos}", batch_size=32, transform=t, shuffle=True, arrays="numpy")
        for t in ("train224", "val224")
    ]
    for epoch in range(3):
        for batches in zip(*loaders):
            pass
        s = status(batchctl)
        assert s["memory"]["slots_bytes"] + s["memory"]["cache_bytes"] <= 192 * MIB
        assert s["memory"]["rss_bytes"] <= (192 + 64) * MIB


def test_slots_are_given_back_after_the_last_trainer(make_daemon, batchctl, samples):
    # The account returns to zero, not just to a smaller number.
    make_daemon(config="linger: 0s\n")
    for _ in range(3):
        with batchd.DataLoader(f"imagefolder:{samples}", batch_size=32, transform="val224", arrays="numpy") as loader:
            images, _ = next(iter(loader))
            assert status(batchctl)["memory"]["slots_bytes"] > 0
            del images
    until("the loaders are gone", lambda: not status(batchctl)["loaders"])
    s = status(batchctl)
    assert s["loaders"] == [] and s["memory"]["slots_bytes"] == 0


@pytest.mark.parametrize(
    "config, options, mib, first, n, why",
    [
        ("memory: 1GiB\n", {}, 5, 4, 12, "plentiful"),  # 64 MiB
        ("memory: 1GiB\n", {}, 2, 4, 16, "plentiful"),
        ("memory: 1GiB\n", {"length": 96}, 2, 4, 7, "an epoch's batches and one"),  # six, and one
        ("memory: 1GiB\n", {"length": 32}, 2, 3, 3, "an epoch's batches and one"),
        ("memory: 1GiB\n", {}, 65, 3, 3, "takes 64 MiB or more"),
        ("memory: 96MiB\n", {}, 5, 4, 5, "an eighth of the free memory"),  # of 96 MiB less four slots of 5
        ("memory: 64MiB\n", {"n_slots": 40}, 5, 10, 10, "memory_per_user"),
        ("memory: 1GiB\nslots: 5\n", {}, 5, 5, 5, "slots in the daemon's configuration"),
        ("memory: 1GiB\n", {"n_slots": 3}, 5, 3, 3, "n_slots asks"),
    ],
)
def test_where_memory_is_plentiful_more_batches_are_made_ahead(make_daemon, config, options, mib, first, n, why):
    # The first ones exist soon. The others come when the trainer takes batches and the workers have nothing left to do;
    # before that it gains nothing from them. They are charged, and each is used.
    make_daemon(config="cache: {decoded: off, jpeg: off}\n" + config)
    slot, length = mib * MIB, options.pop("length", 6400)
    with batchd.DataLoader(
        f"random:length={length},shape={slot // 256 - 32}x4", 16, arrays="numpy", **options
    ) as loader:
        epoch = iter(loader)
        batches = itertools.chain(epoch, (batch for _ in range(1000) for batch in loader))

        def full():  # of how many batches, when the workers have nothing left to do
            stream = batchd.status()["loaders"][0]["streams"][0]
            return stream["making"] == 0 and stream["ready"] + stream["held"] == stream["window"] and stream["window"]

        def told():
            return batchd.status()["loaders"][0]["streams"][0]["slots_why"]

        assert until("the first batches", lambda: (full() or 0) >= first and full()) == first
        assert told().startswith(f"{first} of ") and (f"; {n} as soon as" in told()) == (n > first)
        while until("a full window", full) < n:
            next(batches)
        assert n * (slot - MIB) <= batchd.status()["memory"]["slots_bytes"] <= n * slot + MIB
        assert told().startswith(f"{n} of ") and why in told() and "as soon as" not in told()
    with batchd.DataLoader("random:length=64,shape=4", 16, arrays="numpy"):
        pass


def test_a_decoded_cache_serves_later_epochs_with_the_same_pixels(make_daemon, batchctl, samples):
    # Hits instead of decodes, and the same bits as from a daemon without caches; the same for the entropy index.
    def epochs(config, tier=None):
        make_daemon(config=config)
        loader = batchd.DataLoader(f"imagefolder:{samples}", batch_size=16, shuffle=True, arrays="numpy", dtype="uint8")
        batches = [images.tobytes() for _ in range(3) for images, _ in loader]
        for _ in range(40):  # a worker fills the decoded cache as fast as trainers that wait allow
            if tier is None or cached(tier)["entries"] == 96:
                break
            for _batch in loader:
                pass
        loader.set_epoch(2)
        assert [images.tobytes() for images, _ in loader] == batches[-6:]
        return batches

    def cached(tier):
        return next(c for c in status(batchctl)["cache"] if c["tier"] == tier)

    plain = epochs("cache: {decoded: off, jpeg: off}\n")
    for config, tier in (
        ("cache: {decoded: 500MiB, jpeg: off, filling: always}\n", "decoded"),
        ("cache: {decoded: off, jpeg: auto}\n", "index"),
    ):
        assert epochs(config, tier) == plain
        assert cached(tier)["hits"] >= 96 and cached(tier)["entries"] == 96


def test_a_changed_file_is_never_served_from_a_cache(make_daemon, batchctl, samples, tmp_path):
    # Another picture under the same name, between two epochs.
    import shutil

    folder = tmp_path / "tree"
    shutil.copytree(samples, folder)
    files = sorted(folder.glob("*/*"))
    for config in (
        "cache: {decoded: 500MiB, jpeg: off, filling: always}\n",
        "cache: {decoded: off, jpeg: auto}\n",
    ):
        make_daemon(config=config)
        loader = batchd.DataLoader(
            f"imagefolder:{folder}", batch_size=8, transform="val224", arrays="numpy", dtype="uint8", n_slots=2
        )
        first = {}
        for _ in range(2):
            for images, _ in loader:
                for i, row in zip(loader.last_batch.indices, images):
                    first[int(i)] = row.copy()
        shutil.copy(files[-1], files[40])
        loader.set_epoch(7)
        for images, _ in loader:
            for i, row in zip(loader.last_batch.indices, images):
                assert (row == first[95 if i == 40 else int(i)]).all(), i
        loader.close()
        shutil.copy(sorted(samples.glob("*/*"))[40], files[40])


def test_kept_indexes_survive_a_restart_and_damage(make_daemon, batchctl, samples, tmp_path):
    # A second daemon finds them; a damaged file is ignored, pixels are the same throughout.
    kept = tmp_path / "kept"
    kept.mkdir()
    d = make_daemon(config=f"cache: {{decoded: off, jpeg: auto, directory: {kept}}}\n")

    def epochs(n):
        with batchd.DataLoader(
            f"imagefolder:{samples}", batch_size=16, shuffle=True, arrays="numpy", dtype="uint8"
        ) as loader:
            return [images.tobytes() for _ in range(n) for images, _ in loader]

    golden = epochs(2)
    d.restart()
    assert len(list(kept.iterdir())) == 1
    assert epochs(1) == golden[:6]
    index = {c["tier"]: c for c in status(batchctl)["cache"]}["index"]
    assert index["hits"] >= 90
    d.stop()
    file = next(kept.iterdir())
    data = bytearray(file.read_bytes())
    for at in range(100, len(data), 97):
        data[at] ^= 0x5A
    file.write_bytes(data)
    d.start()
    assert epochs(2) == golden

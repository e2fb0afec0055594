"""Packs of baseline pictures' blocks: from the second epoch on, in the room that the index cache has."""

import json

import numpy as np
import pytest
from PIL import Image

import batchd

MIB = 1 << 20
N = 64


@pytest.fixture
def pictures(tmp_path):
    random = np.random.default_rng(5)
    (tmp_path / "set/a").mkdir(parents=True)
    for i in range(N):
        coarse = Image.fromarray(random.integers(0, 256, (30, 40, 3), dtype=np.uint8)).resize((320, 240))
        coarse.save(tmp_path / f"set/a/{i:02}.jpg", quality=95, subsampling=i % 3)
    return tmp_path / "set"


@pytest.fixture
def index(batchctl):
    def of_the_daemon():
        done = batchctl("status", "--json")
        return next(c for c in json.loads(done.stdout)["cache"] if c["tier"] == "index")

    return of_the_daemon


def epochs(make_daemon, pictures, config, at_most, enough=lambda: False):
    """The rows of each epoch, until there have been enough."""
    make_daemon(config=config)
    loader = batchd.DataLoader(
        f"imagefolder:{pictures}", batch_size=16, shuffle=True, seed=3, arrays="numpy", dtype="uint8"
    )
    done = []
    with loader:
        while len(done) < at_most and not enough():
            done.append([images.tobytes() for images, _ in loader])
    return done


def test_packs_are_made_and_change_no_row(make_daemon, pictures, index):
    file_bytes = sum(p.stat().st_size for p in pictures.glob("a/*"))
    grown = epochs(
        make_daemon,
        pictures,
        "memory: 1GiB\ncache: {decoded: off, jpeg: auto, filling: always}\n",
        20,
        lambda: index()["entry_bytes"] > file_bytes,
    )
    assert file_bytes < index()["entry_bytes"] < 3 * file_bytes
    assert index()["entries"] == N
    after = epochs(make_daemon, pictures, "cache: {decoded: off, jpeg: off}\n", len(grown))
    assert grown == after


def test_packs_leave_room_for_the_states_of_others(make_daemon, pictures, index):
    # Of the index cache a quarter stays free of packs; every picture has its states.
    epochs(make_daemon, pictures, "memory: 64MiB\ncache: {decoded: off, jpeg: auto}\n", 12)
    found = index()
    assert found["entries"] == N and found["refused"] == 0
    assert found["bytes"] <= found["budget_bytes"]


def test_a_decoded_cache_is_filled_instead(make_daemon, pictures, index):
    file_bytes = sum(p.stat().st_size for p in pictures.glob("a/*"))
    epochs(make_daemon, pictures, "memory: 1GiB\ncache: {decoded: auto, jpeg: auto, filling: always}\n", 8)
    assert index()["entry_bytes"] < file_bytes / 5

"""Many workers: the locks that a row takes, and its pixels."""

import json
import subprocess
import sys

from daemons import BUILD, REPO

import batchd

import pytest

pytestmark = pytest.mark.long("counts locks over many rows")

MANY = 32

# Of a picture's row: the pool's lock, once for the last row and the next one; the cache's, of which there are 64, for
# looking it up and for putting it there; and a part of one for the working memory and for what the loop does for a batch.
AT_MOST = {"no cache": 3, "index": 5.5, "decoded": 5.5}


def test_a_row_takes_few_locks(build):
    """Counted over additional epochs with more workers than processors; one lock more a row would be too many."""
    argv = [sys.executable, REPO / "tests/bench/contention.py", "--build", BUILD]
    done = subprocess.run(
        [*argv, "--workers", str(MANY), "--batch-size", "32", "--json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found) == set(AT_MOST)
    for config, most in AT_MOST.items():
        assert 1 <= found[config]["taken"] <= most, found
        assert found[config]["hottest"] <= 2.5, found


def test_many_workers_make_the_same_rows_as_one(make_daemon, samples):
    """With all caches on, three epochs."""

    def epochs(workers):
        make_daemon("--workers", str(workers), config="cache: {decoded: auto, jpeg: auto, filling: always}\n")
        loader = batchd.DataLoader(
            f"imagefolder:{samples}", batch_size=8, shuffle=True, seed=3, arrays="numpy", dtype="uint8"
        )
        with loader:
            return [images.tobytes() + labels.tobytes() for _ in range(3) for images, labels in loader]

    assert epochs(MANY) == epochs(1)

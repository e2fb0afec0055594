"""What the daemon's refusals tell: the values that differ, the number that is the limit, and what fits."""

import re
import subprocess

import pytest

import batchd
from daemons import until

BIG = "random:length=100000,shape=3x224x224"
SMALL = "random:length=1000,shape=3"


def test_a_batch_that_does_not_fit_says_which_would(make_daemon):
    """Proves that the batch size of the text opens, and that one somewhat larger does not."""
    make_daemon(config="memory: 64MiB\nlinger: 0s\n")
    with pytest.raises(batchd.LimitError, match="no memory for this trainer's batches") as refused:
        batchd.DataLoader(BIG, 64, arrays="numpy")
    fits = int(re.search(r"use a batch_size of at most (\d+), or raise it", str(refused.value))[1])
    assert 1 <= fits < 64
    with batchd.DataLoader(BIG, fits, arrays="numpy") as loader:
        assert len(next(iter(loader))[0]) == fits
    until("its memory is free", lambda: not batchd.status()["memory"]["slots_bytes"])
    with pytest.raises(batchd.LimitError, match=f"use a batch_size of at most {fits}, or raise it"):
        batchd.DataLoader(BIG, fits + 1 + fits // 50, arrays="numpy")


@pytest.mark.parametrize(
    "first, second, said",
    (
        ({"world_size": 2}, {"world_size": 3}, "another world_size .it has 2, and this one asks for 3."),
        ({"batch_size": 4}, {"batch_size": 8}, "another batch_size .it has 4, and this one asks for 8."),
        ({"seed": 1}, {"seed": 2}, "another seed .it has 1, and this one asks for 2."),
        ({"drop_last": True}, {"drop_last": False}, "another drop_last .it has True, and this one asks for False."),
        ({"shuffle": True}, {"shuffle": False}, "another shuffle .it has True, and this one asks for False."),
        (
            {"shuffle": "window:500"},
            {"shuffle": "resampled:7"},
            "another shuffle .it has window:500, and this one asks for resampled:7.",
        ),
        (
            {
                "dataset": "random:length=1000,shape=3x40x40,dtype=uint8",
                "transform": [["CenterCrop", 32]],
                "dtype": "uint8",
            },
            {
                "dataset": "random:length=1000,shape=3x40x40,dtype=uint8",
                "transform": [["CenterCrop", 24]],
                "dtype": "uint8",
            },
            r"another transform .it has .*32.*, and this one asks for .*24",
        ),
        ({}, {"dataset": "random:length=999,shape=3"}, "another dataset .it has .*1000.*, and this one asks for .*999"),
    ),
)
def test_a_job_with_other_options_tells_both_values(daemon, first, second, said):
    """One job, two scripts that differ in one option."""

    def make(rank, dataset=SMALL, batch_size=4, world_size=2, **options):
        return batchd.DataLoader(
            dataset, batch_size, rank=rank, world_size=world_size, job="one", arrays="numpy", **options
        )

    with make(0, **first), pytest.raises(batchd.MismatchError, match=said):
        make(1, **second)


def test_too_many_loaders_are_numbered(make_daemon):
    """The user's limit and that of the daemon: how many there are, and what to do."""
    make_daemon(config="limits: {loaders_per_user: 2, loaders: 3}\n")
    kept = [batchd.DataLoader(SMALL, 4, arrays="numpy") for _ in range(2)]
    with pytest.raises(batchd.LimitError, match=r"this user has 2 loaders, all that .*loaders_per_user.*close some"):
        batchd.DataLoader(SMALL, 4, arrays="numpy")
    del kept


@pytest.mark.parametrize("n", (65537, 10**6, 2**31, 2**32 - 1))
def test_there_is_one_limit_of_the_batch_size(daemon, n):
    """Whatever the size: the configuration's."""
    with pytest.raises(batchd.Error, match=f"batch_size is {n}; expected 1 to 65536 .limits.batch_size"):
        batchd.DataLoader(SMALL, n, arrays="numpy")


def test_a_status_without_a_daemon_says_that_none_has_to_be_started(build, tmp_path, monkeypatch):
    """None runs for this user: the first script starts one."""
    monkeypatch.delenv("BATCHD_SOCKET", raising=False)
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    done = subprocess.run([build / "batchctl", "status"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 3 and "the first script that opens a loader starts one" in done.stderr, done
    assert str(tmp_path / "run") in done.stderr

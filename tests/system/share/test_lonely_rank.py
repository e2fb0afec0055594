"""A loader that only one rank of a run makes has that rank's part of the data: it warns at the end of its first epoch."""

import warnings

import pytest
from test_ranks import VARIABLES

import batchd

torch = pytest.importorskip("torch")
from torch.utils.data import DistributedSampler  # noqa: E402

DATA = "random:length=99,shape=1"


@pytest.fixture
def rank(monkeypatch):
    """Makes this process a rank of torchrun's, for the loaders that are made next."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def be(rank, world=2, local=2):
        for name, value in (
            ("RANK", rank),
            ("WORLD_SIZE", world),
            ("LOCAL_RANK", rank % local),
            ("LOCAL_WORLD_SIZE", local),
        ):
            monkeypatch.setenv(name, str(value))

    return be


def warned(loader, epochs=2):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(epochs):
            for _ in loader:
                pass
    return [str(w.message) for w in found]


def test_a_rank_that_is_alone_is_told_once(daemon, rank):
    """With the number of its samples, which is DistributedSampler's."""
    rank(0)
    (text,) = warned(batchd.DataLoader(DATA, 10, shuffle=True, job="evaluation"))
    part = len(DistributedSampler(range(99), 2, 0))
    assert f"rank 0 of 2 has had its part of '{DATA}', {part} of 99 samples, and no other rank" in text
    assert "rank=0, world_size=1" in text


def test_ranks_that_are_together_are_told_nothing(daemon, rank):
    """Also where one of them has ended before the other: it was there in the middle of the epoch."""
    loaders = []
    for r in range(2):
        rank(r)
        loaders.append(batchd.DataLoader(DATA, 10, job="training"))
    first, second = loaders
    assert warned(first) == []
    iterator = iter(second)
    for _ in range(4):
        next(iterator)
    first.close()
    assert list(iterator) and warned(second, 1) == []


@pytest.mark.parametrize("options", [{"rank": 0, "world_size": 2}, {"sampler": range(0, 99, 2)}, {"mode": "share"}])
def test_what_was_asked_for_is_no_surprise(daemon, rank, options):
    """Ranks that were given, an order of the caller's, and trainers that each have all."""
    rank(0, world=1 if "mode" in options else 2)
    assert warned(batchd.DataLoader(DATA, 10, **options)) == []


def test_one_rank_a_machine_knows_nothing_of_the_others(daemon, rank):
    rank(0, local=1)
    assert warned(batchd.DataLoader(DATA, 10)) == []

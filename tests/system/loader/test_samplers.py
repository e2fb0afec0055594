"""batchd.WeightedSampler against torch's WeightedRandomSampler dealt out by torch's DistributedSampler."""

import collections

import numpy
import pytest
from test_draws import all_draws_differ, make, pictures, rows, same

import batchd

torch = pytest.importorskip("torch")
from torch.utils import data  # noqa: E402

N = 40
assert pictures  # the fixture
WEIGHTS = [i % 5 for i in range(N)]


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("num_samples, replacement", [(None, True), (101, True), (19, False)])
def test_ranks_have_torchs_draws_dealt_out(daemon, pictures, world, num_samples, replacement):
    """Two epochs, the padding of a length that does not divide included; all rows of an index differ."""
    for epoch in (0, 3):
        generator = torch.Generator().manual_seed(9 + epoch)
        drawn = list(
            data.WeightedRandomSampler(WEIGHTS, num_samples or N, replacement=replacement, generator=generator)
        )
        assert min(WEIGHTS[i] for i in drawn) > 0
        found = []
        for rank in range(world):
            sampler = batchd.WeightedSampler(
                WEIGHTS, num_samples=num_samples, replacement=replacement, seed=9, rank=rank, world_size=world
            )
            loader = make(pictures, sampler=sampler, rank=rank, world_size=world)
            loader.set_epoch(epoch)
            mine = rows(loader)
            dealt = data.DistributedSampler(drawn, world, rank, shuffle=False)
            assert [r[2] for r in mine] == [drawn[i] for i in dealt] and len(mine) == len(sampler)
            found += mine
        if replacement:
            assert all_draws_differ(found)


def test_a_mask_of_weights_is_not_dropped():
    """What lies below the mask is no weight; filled(0) is never drawn."""
    weights = numpy.ma.masked_array([1.0, 1e20, 2.0], [0, 1, 0])
    for given in ({"weights": weights}, {"labels": weights}):
        with pytest.raises(TypeError, match=r"mask .*filled\(0\)"):
            batchd.WeightedSampler(**given)
    assert 1 not in list(batchd.WeightedSampler(weights.filled(0), num_samples=50))


def test_an_epoch_goes_on_in_its_middle_on_every_rank(daemon, pictures):
    def ranks():
        for rank in range(2):
            sampler = batchd.WeightedSampler(WEIGHTS, num_samples=64, rank=rank, world_size=2)
            loader = make(pictures, sampler=sampler, rank=rank, world_size=2)
            loader.set_epoch(2)
            yield loader

    for whole, first, again in zip(ranks(), ranks(), ranks()):
        wanted, begun = rows(whole), rows(first, most=2)
        again.load_state_dict(first.state_dict())
        assert same(begun + rows(again), wanted)


def test_classes_of_any_size_come_equally_often():
    """3 classes of 1, 10 and 100 samples in 10^5 draws: each within 5 standard deviations of a third."""
    labels = ["a"] + ["b"] * 10 + ["c"] * 100
    sampler = batchd.WeightedSampler(labels=labels, num_samples=100_000, seed=1, rank=0, world_size=1)
    counts = collections.Counter(labels[i] for i in sampler)
    assert sorted(counts) == ["a", "b", "c"]
    assert all(abs(n - 1e5 / 3) < 5 * (1e5 * 2 / 9) ** 0.5 for n in counts.values())


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({}, "either weights"),
        ({"weights": [1], "labels": [1]}, "either weights"),
        ({"weights": [1, -1]}, r"weights\[1\] is -1"),
        ({"weights": [1, float("nan")]}, r"weights\[1\] is nan"),
        ({"weights": [0, 0]}, "no sample to draw"),
        ({"weights": [[1]]}, "shape"),
        ({"labels": []}, "shape"),
        ({"weights": [1, 0], "replacement": False}, "num_samples is 2.*at most the 1"),
        ({"weights": [1], "num_samples": 0}, "num_samples is 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(arguments, text):
    with pytest.raises((TypeError, ValueError), match=text):
        batchd.WeightedSampler(**arguments)


def test_ranks_come_from_the_launcher(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    mine = list(batchd.WeightedSampler(numpy.ones(8), seed=2))
    monkeypatch.setenv("RANK", "0")
    other = list(batchd.WeightedSampler(numpy.ones(8), seed=2))
    generator = torch.Generator().manual_seed(2)
    drawn = torch.multinomial(torch.ones(8, dtype=torch.float64), 8, True, generator=generator).tolist()
    assert mine == drawn[1::2] and other == drawn[::2]

"""The order of samples equals torch's DistributedSampler, sample for sample, for every rank."""

import os
import pathlib
import subprocess

import pytest

torch = pytest.importorskip("torch")
import numpy  # noqa: E402
from torch.utils.data import DistributedSampler  # noqa: E402

REPO = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("BATCHD_BUILD", REPO / "build"))
PLAN = BUILD / "tests" / "tools" / "plan"

# Seeds beyond 32 bits count only by their low 32 bits; the sum with the epoch may carry into bit 32.
SEEDS_AND_EPOCHS = [(0, 0), (0, 3), (42, 1), (2**32 - 1, 1), (2**32 + 5, 7), (2**63 + 11, 2)]


class Sized:
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n


def plan(n, world, shuffle, drop_last, seed, epoch, base=0):
    """Index sequences of all ranks, shape (world, n_per_rank)."""
    argv = [PLAN, n, world, -1, int(shuffle), int(drop_last), seed, epoch, base]
    out = subprocess.run([str(a) for a in argv], check=True, stdout=subprocess.PIPE).stdout
    return numpy.frombuffer(out, dtype=numpy.int64).reshape(world, -1)


def torch_order(n, shuffle, seed, epoch):
    if not shuffle:
        return numpy.arange(n)
    g = torch.Generator()
    g.manual_seed(seed + epoch)
    return torch.randperm(n, generator=g).numpy()


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("world", [1, 2, 3, 8])
@pytest.mark.parametrize("n", [1, 7, 400, 1281167])
def test_every_rank_reads_what_torch_would_read(n, world, shuffle, drop_last):
    """Proves the order contract against torch itself: all ranks, several seeds and epochs."""
    pairs = SEEDS_AND_EPOCHS if n <= 400 else SEEDS_AND_EPOCHS[3:5] if shuffle else SEEDS_AND_EPOCHS[:1]
    for seed, epoch in pairs:
        ours = plan(n, world, shuffle, drop_last, seed, epoch)
        for rank in range(world):
            sampler = DistributedSampler(Sized(n), world, rank, shuffle=shuffle, seed=seed, drop_last=drop_last)
            sampler.set_epoch(epoch)
            expected = numpy.fromiter(sampler, dtype=numpy.int64)
            numpy.testing.assert_array_equal(ours[rank], expected, err_msg=f"seed {seed} epoch {epoch} rank {rank}")


@pytest.mark.parametrize("base", [0, 1, 96, 399, 400, 500])
@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_a_resumed_epoch_reads_the_rest_of_torchs_order(world, base):
    """Proves that base continues the same order with any world size and pads from the epoch's start."""
    n, seed, epoch = 400, 9, 4
    order = torch_order(n, True, seed, epoch)
    rest = order[base:]
    per_rank = -(-len(rest) // world)
    padded = numpy.concatenate([rest, order[: per_rank * world - len(rest)]])
    numpy.testing.assert_array_equal(plan(n, world, True, False, seed, epoch, base), padded.reshape(-1, world).T)
    dropped = rest[: len(rest) // world * world]
    numpy.testing.assert_array_equal(plan(n, world, True, True, seed, epoch, base), dropped.reshape(-1, world).T)


@pytest.mark.skipif("BATCHD_SLOW" not in os.environ, reason="2 GB and half a minute; set BATCHD_SLOW=1")
@pytest.mark.parametrize("n", [2**32 // 20 - 1, 2**32 // 20, 2**32 // 20 + 1])
def test_very_large_data_sets_use_torchs_wide_draws(n):
    """Proves the switch to 64-bit draws at exactly torch's n, over the whole order."""
    numpy.testing.assert_array_equal(plan(n, 1, True, False, 5, 0)[0], torch_order(n, True, 5, 0))

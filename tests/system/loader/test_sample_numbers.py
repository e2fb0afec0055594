"""What a sampler of the caller's may choose: whole numbers. Anything else is an error that names it, never the end of the
epoch."""

import numpy
import pytest

import batchd

torch = pytest.importorskip("torch")
from torch.utils import data  # noqa: E402

LABELS = numpy.array([3, 1, 3, 0, 3, 1, 1, 1])
X = torch.arange(8)


def chosen(sampler, batch_size=2):
    return [
        int(i) for (batch,) in batchd.DataLoader((X,), batch_size, sampler=sampler, fields=("data",)) for i in batch
    ]


def late(n):
    """A wrong element behind n right ones."""
    return [i % 8 for i in range(n)] + [numpy.array([1])] + [i % 8 for i in range(n)]


@pytest.mark.parametrize(
    "sampler, position",
    [
        (numpy.where(LABELS == 3), 0),
        (numpy.nonzero(LABELS == 3), 0),
        (numpy.argwhere(LABELS == 3), 0),
        (torch.nonzero(torch.from_numpy(LABELS) == 3).numpy(), 0),
        (numpy.ma.masked_array([0, 1, 2], [0, 1, 0]), 1),
        ([torch.tensor([0, 1])], 0),
        (late(4), 4),
        (late(300), 300),
        (late(3600), 3600),
    ],
)
def test_an_array_is_no_sample_number(daemon, sampler, position):
    """The epoch neither ends nor gets shorter: the loop gets an error that names the place."""
    with pytest.raises(TypeError, match=f"sampler, at position {position}, chose .*, which is no sample number"):
        chosen(sampler)


@pytest.mark.parametrize("mask", [[False, True], numpy.array([False, True]), torch.tensor([False, True])])
def test_a_mask_is_no_list_of_sample_numbers(daemon, mask):
    """torch refuses a tensor's bools as numbers of a TensorDataset's samples, too."""
    sampler = data.SubsetRandomSampler(mask) if torch.is_tensor(mask) else mask
    if torch.is_tensor(mask):
        with pytest.raises((IndexError, RuntimeError, TypeError)):
            list(data.DataLoader(data.TensorDataset(X), sampler=sampler, batch_size=2, collate_fn=torch.stack))
    with pytest.raises(TypeError, match="sampler, at position 0, chose .*, which is no sample number"):
        chosen(sampler)


@pytest.mark.parametrize(
    "sampler",
    [
        [5, 0, 5],
        numpy.flatnonzero(LABELS == 3),
        numpy.flatnonzero(LABELS == 3).astype("uint8"),
        torch.tensor([4, 2, 2]),
        [numpy.int32(7), torch.tensor(1), 3],
    ],
)
def test_whole_numbers_of_any_type_choose_torchs_samples(daemon, sampler):
    wanted = [int(x) for (x,) in data.DataLoader(data.TensorDataset(X), sampler=sampler, batch_size=None)]
    assert chosen(sampler) == wanted


def empty(*_):
    return next(iter(()))


class Stops:
    """A batch_sampler that fails by a bare next() when it is iterated."""

    batch_size = 2
    __iter__ = empty


class StopsInIndex:
    __index__ = empty


@pytest.mark.parametrize(
    "options", [{"collate_fn": empty}, {"sampler": [0, StopsInIndex(), 1]}, {"batch_sampler": Stops()}], ids=list
)
def test_only_the_end_of_the_epoch_ends_a_loop(daemon, options):
    """A StopIteration of the caller's functions is an error, as Python makes it one in a generator (PEP 479)."""
    with pytest.raises(RuntimeError, match="StopIteration, which is not the epoch's end"):
        list(batchd.DataLoader((X,), 2, **options))


def test_next_into_ends_with_the_epoch_alone(daemon):
    loader = batchd.DataLoader((X.float(),), 2, sampler=[0, 1, StopsInIndex()], fields=("data",))
    target = torch.empty(2)
    with pytest.raises(RuntimeError, match="StopIteration, which is not the epoch's end"):
        while loader.next_into((target,)):
            pass

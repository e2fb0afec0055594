"""torch's own samplers as sampler= and inside batch_sampler=: the indices that torch's DataLoader gives with the same
generator, every row augmented differently, and the rest of an epoch after a checkpoint."""

import itertools

import numpy
import pytest
from test_draws import all_draws_differ, make, pictures, rows, same

import batchd

torch = pytest.importorskip("torch")
from torch.utils import data  # noqa: E402

N = 40
assert pictures  # the fixture
WEIGHTS = [1.0 + i % 4 * 3 for i in range(N)]
SAMPLERS = {
    "weighted": lambda g: data.WeightedRandomSampler(WEIGHTS, 50, generator=g),
    "weighted without replacement": lambda g: data.WeightedRandomSampler(WEIGHTS, 30, False, generator=g),
    "random": lambda g: data.RandomSampler(range(N), generator=g),
    "random with replacement": lambda g: data.RandomSampler(range(N), True, 90, generator=g),
    "random, more than there are": lambda g: data.RandomSampler(range(N), num_samples=100, generator=g),
    "subset": lambda g: data.SubsetRandomSampler(range(3, 33), generator=g),
}


def new(name, own_generator, seed):
    generator = torch.Generator().manual_seed(seed) if own_generator else None
    torch.manual_seed(seed + 1)
    return SAMPLERS[name](generator)


def torchs(name, own_generator, seed, epochs):
    """Indices of torch's loader over range(N)."""
    loader = data.DataLoader(range(N), sampler=new(name, own_generator, seed), batch_size=None)
    if own_generator:
        return [[int(i) for i in loader] for _ in range(epochs)]
    return [[int(i) for i in loader.sampler] for _ in range(epochs)]  # its loader draws a number before the sampler


@pytest.mark.parametrize("own_generator", [True, False])
@pytest.mark.parametrize("name", SAMPLERS)
def test_the_indices_are_torchs(daemon, pictures, name, own_generator):
    wanted = torchs(name, own_generator, 3, 2)
    loader = make(pictures, sampler=new(name, own_generator, 3))
    found = [rows(loader) for _ in range(2)]
    assert [[r[2] for r in f] for f in found] == wanted
    assert all_draws_differ(found[0] + found[1])


@pytest.mark.parametrize("own_generator", [True, False])
@pytest.mark.parametrize("name", SAMPLERS)
def test_an_epoch_goes_on_in_its_middle(daemon, pictures, name, own_generator):
    """A state from the second batch of the second epoch, in a loader with another generator: the epoch's other rows, and
    from the sampler's own generator the third epoch's, too. The script's global generator is not touched."""
    loader = make(pictures, sampler=new(name, own_generator, 3))
    rows(loader)
    first = rows(loader, most=2)
    state = loader.state_dict()
    iterator = make(pictures, sampler=new(name, own_generator, 3))
    whole = [rows(iterator) for _ in range(3)]
    assert same(first, whole[1][:16])

    again = make(pictures, sampler=new(name, own_generator, 77))
    again.load_state_dict(state)
    assert again.state_dict()["sampler"] == state["sampler"]
    before = torch.get_rng_state()
    rest = rows(again)
    assert same(first + rest, whole[1])
    assert torch.equal(torch.get_rng_state(), before)
    if own_generator:
        assert same(rows(again), whole[2])


def test_a_state_behind_an_epoch_gives_the_next_one(daemon, pictures):
    """With a generator of the sampler's own; also where the next iteration has begun and has given nothing."""
    whole = make(pictures, sampler=new("weighted", True, 5))
    wanted = [rows(whole) for _ in range(2)]
    loader = make(pictures, sampler=new("weighted", True, 5))
    rows(loader)
    states = [loader.state_dict()]
    iterator = iter(loader)
    iterator._at = iterator._begin()
    states.append(loader.state_dict())
    for state in states:
        again = make(pictures, sampler=new("weighted", True, 6))
        again.load_state_dict(state)
        assert same(rows(again), wanted[1])


def test_a_batch_sampler_of_torchs_goes_on_as_well(daemon, pictures):
    def batches(seed):
        return data.BatchSampler(new("weighted", True, seed), 8, drop_last=True)

    wanted = rows(make(pictures, batch_sampler=batches(1)))
    loader = make(pictures, batch_sampler=batches(1))
    first = rows(loader, most=3)
    again = make(pictures, batch_sampler=batches(2))
    again.load_state_dict(loader.state_dict())
    assert len(wanted) == 48 and same(first + rows(again), wanted)


def test_a_state_that_is_no_generators_is_refused(daemon, pictures):
    loader = make(pictures, sampler=new("weighted", True, 1))
    rows(loader, most=1)
    for text in ("AAAA", "?", 7):
        state = {**loader.state_dict(), "sampler": text}
        again = make(pictures, sampler=new("weighted", True, 1))
        again.load_state_dict(state)
        with pytest.raises(ValueError, match="field 'sampler'"):
            rows(again)


def test_a_sampler_may_never_end(daemon, pictures):
    """As DINOv2's infinite sampler: a rank's part of one shuffle behind the other. Every row is new, a checkpoint goes on
    in the middle."""

    class Infinite(data.Sampler):
        def __iter__(self):
            generator = torch.Generator().manual_seed(4)
            endless = (i for _ in itertools.count() for i in torch.randperm(N, generator=generator).tolist())
            return itertools.islice(endless, 1, None, 2)

    loader = make(pictures, sampler=Infinite(), rank=1, world_size=2)
    first = rows(loader, most=9)
    assert [r[2] for r in first] == list(itertools.islice(Infinite(), 72)) and all_draws_differ(first)
    again = make(pictures, sampler=Infinite(), rank=1, world_size=2)
    again.load_state_dict(loader.state_dict())
    assert [r[2] for r in rows(again, most=12)] == list(itertools.islice(Infinite(), 96))[72:]


@pytest.mark.parametrize(
    "batches",
    [
        [[0, 1], [2, 3, 4]],
        ([5], [1, 1, 1, 1], [0]),
        [numpy.array([3, 2]), torch.tensor([1])],
        numpy.arange(12).reshape(3, 4),
        torch.arange(12).reshape(6, 2),
    ],
    ids=["lists", "tuple", "arrays", "numpy", "torch"],
)
def test_a_list_of_batches_says_how_large_they_get(daemon, batches):
    """torch's loader takes a list as batch_sampler without a batch_size; batches are its own, in two epochs."""
    x = torch.arange(20) * 3
    theirs = [b.tolist() for (b,) in data.DataLoader(data.TensorDataset(x), batch_sampler=batches)]
    with batchd.DataLoader((x,), batch_sampler=batches) as loader:
        assert loader.batch_size == max(map(len, batches)) and len(loader) == len(batches)
        for _ in range(2):
            assert [b.tolist() for (b,) in loader] == theirs


@pytest.mark.parametrize("batches", [[3, 1, 2], numpy.arange(3), torch.arange(3), [[1], 2]], ids=str)
def test_single_numbers_are_no_batches(daemon, batches):
    """torch fails at the first of them with a text of its own; here the option that takes them is named."""
    with pytest.raises(TypeError):
        list(data.DataLoader(data.TensorDataset(torch.arange(20)), batch_sampler=batches))
    with pytest.raises(TypeError, match="batch_sampler has .* for a batch.*sampler= takes single ones"):
        batchd.DataLoader((torch.arange(20),), batch_sampler=batches)


def test_batches_that_are_made_as_they_are_read_need_a_batch_size(daemon):
    """Reading them to learn the longest would use up what they draw from."""
    with pytest.raises(ValueError, match="does not say how large its batches get: give batch_size"):
        batchd.DataLoader((torch.arange(20),), batch_sampler=([i] for i in range(3)))


@pytest.mark.parametrize("own_generator", [True, False])
@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("moment", ["begun", "new", "ended"])
def test_a_state_from_either_end_of_an_epoch_repeats_what_follows(daemon, pictures, name, own_generator, moment):
    """As torchdata's StatefulDataLoader: before the first batch and behind the last one, too, also where a sampler draws
    from the script's generator, which is not touched."""
    loader = make(pictures, sampler=new(name, own_generator, 3))
    if moment != "new":
        iterator = iter(loader)
    if moment == "ended":
        rows(loader)
        iterator = iter(loader)
    state = loader.state_dict()
    iterator = iter(loader) if moment == "new" else iterator
    followed = [loader.last_batch.indices.tolist() for _ in iterator]

    again = make(pictures, sampler=new(name, own_generator, 77))
    before = torch.get_rng_state()
    again.load_state_dict(state)
    assert again.state_dict()["sampler"] == state["sampler"]
    assert [again.last_batch.indices.tolist() for _ in again] == followed
    assert torch.equal(torch.get_rng_state(), before)

"""The life of an iteration, as torch's own samplers and frameworks expect it: when it takes its epoch, what state_dict
returns meanwhile, and which sampler gets set_epoch."""

import json

import pytest

import batchd

torch = pytest.importorskip("torch")
from torch.utils.data import BatchSampler, DistributedSampler  # noqa: E402

N = 24  # samples; 6 batches


def make(**options):
    options = {"shuffle": True, "seed": 3, "arrays": "numpy", "n_slots": 4, **options}
    return batchd.DataLoader(f"random:length={N},shape=2", options.pop("batch_size", 4), **options)


def order(epoch, n=N):
    sampler = DistributedSampler(range(n), 1, 0, shuffle=True, seed=3)
    sampler.set_epoch(epoch)
    return list(sampler)


def rows(loader, iterator, n=None):
    """Sample numbers of the next n batches, or of all that are left."""
    found = []
    while n is None or n:
        if next(iterator, None) is None:
            break
        found += loader.last_batch.indices.tolist()
        n = n and n - 1
    return found


def again(loader):
    """Another process's loader, resumed from this one's state."""
    other = make()
    other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    return other


@pytest.mark.parametrize("arrays", ["torch", "numpy"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_size": 7},  # the last batch is shorter
        {"n_slots": 2},
        {"mode": "share", "group_batch_size": 12, "job": "slices"},
    ],
    ids=str,
)
def test_what_a_loop_keeps_of_a_batch_stays_as_it_is(daemon, arrays, options):
    """Labels and sample numbers of all batches and the images of some, while the slots are used again many times, and while
    the loop writes into what it has got of others."""
    x, y = torch.arange(3.0 * N).view(N, 3), torch.arange(N) * 10
    loader = batchd.DataLoader((x, y), **{"batch_size": 4, "shuffle": True, "arrays": arrays, **options})
    kept = []
    for epoch in range(20):
        for step, (images, labels) in enumerate(loader):
            indices = loader.last_batch.indices
            assert (torch.as_tensor(images) == x[indices]).all() and (torch.as_tensor(labels) == y[indices]).all()
            if step % 3 == 1:
                labels[:], indices[:] = -1, -1
            else:
                kept.append((images if epoch % 10 == 0 and step == 0 else None, labels, indices))
    for images, labels, indices in kept:
        assert (torch.as_tensor(labels) == y[indices]).all()
        assert images is None or (torch.as_tensor(images) == x[indices]).all()


# ---- when an iteration takes its epoch ----


def test_an_iterator_that_gave_nothing_counts_no_epoch(daemon):
    """Frameworks call iter() to see whether it can be called."""
    loader = make()
    iter(loader)
    iter(loader)
    assert rows(loader, iter(loader)) == order(0)
    iter(loader)
    assert rows(loader, iter(loader)) == order(1) and loader.last_batch.epoch == 1


def test_set_epoch_holds_for_an_iterator_that_was_not_asked_for_a_batch_yet(daemon):
    """Lightning's order of calls: iter, iter, set_epoch, next. Batches made too early are not delivered."""
    loader = make()
    iter(loader)
    for epoch in (0, 1, 5):
        iterator = iter(loader)
        loader.sampler.set_epoch(epoch)
        assert rows(loader, iterator) == order(epoch) and loader.last_batch.epoch == epoch
    iterator = iter(loader)
    assert rows(loader, iterator, 1) == order(6)[:4]
    loader.set_epoch(9)
    assert rows(loader, iterator) == order(6)[4:]  # its epoch is decided
    assert rows(loader, iter(loader)) == order(9)


def test_a_restored_position_is_not_lost_to_an_iterator_that_gives_nothing(daemon):
    """The position holds until a batch from there was delivered, and for its own epoch only."""
    loader = make()
    loader.set_epoch(2)
    rows(loader, iter(loader), 2)
    for epoch, expected in ((None, order(2)[8:]), (2, order(2)[8:]), (3, order(3))):
        other = again(loader)
        iter(other)
        iterator = iter(other)
        if epoch is not None:
            other.set_epoch(epoch)
        assert rows(other, iterator) == expected
        assert rows(other, iter(other)) == order(3 if epoch != 3 else 4)


def test_an_epoch_without_batches_is_an_epoch(daemon):
    """drop_last leaves no batch of 24 samples with batch size 25; the next iteration is the next epoch all the same."""
    loader = make(batch_size=25, drop_last=True)
    for _ in range(3):
        assert list(loader) == []
    assert loader.state_dict()["epoch"] == 2 and loader.state_dict()["finished"]


# ---- what state_dict says ----


@pytest.mark.parametrize("late", [False, True])
def test_state_follows_the_batches_wherever_set_epoch_is_called(daemon, late):
    """Between iter and set_epoch, after every batch, and while set_epoch names the running epoch."""
    loader = make()
    iterator = iter(loader)
    if late:
        other = again(loader)
        assert rows(other, iter(other)) == order(0)
    loader.set_epoch(0)
    for k in range(6):
        assert loader.state_dict()["global_batch"] == k
        other = again(loader)
        assert rows(other, iter(other)) == order(0)[4 * k :]
        rows(loader, iterator, 1)
        loader.set_epoch(0)
    assert rows(loader, iterator) == []
    other = again(loader)
    assert rows(other, iter(other)) == order(1)


def test_state_after_set_epoch_of_another_epoch_is_that_ones_begin(daemon):
    """Until the running iteration delivers one more batch: then the position is after that batch."""
    loader = make()
    iterator = iter(loader)
    rows(loader, iterator, 2)
    loader.set_epoch(7)
    other = again(loader)
    assert rows(other, iter(other)) == order(7)
    rows(loader, iterator, 1)
    other = again(loader)
    assert rows(other, iter(other)) == order(0)[12:]
    assert rows(loader, iter(loader)) == order(7)


def test_the_same_epoch_can_be_begun_again(daemon):
    """`break`, set_epoch of the same epoch, and a new loop: it starts with the epoch's first batch."""
    loader = make()
    for _ in range(2):
        loader.set_epoch(4)
        assert rows(loader, iter(loader), 2) == order(4)[:8]
    loader.set_epoch(4)
    assert rows(loader, iter(loader)) == order(4)
    loader.set_epoch(4)
    assert rows(loader, iter(loader)) == order(4)


def test_a_state_of_an_epochs_last_batch_leaves_the_loop_to_end(daemon):
    """As torchdata's StatefulDataLoader: saved inside the loop, the resumed loop gets nothing more and the next one is
    the next epoch; saved after the loop, the next epoch follows at once. Twice over, and set_epoch decides in both."""
    loader = make()
    iterator = iter(loader)
    rows(loader, iterator, 6)
    inside = again(again(loader))
    explicit = again(loader)
    assert rows(loader, iterator) == []
    behind = again(again(loader))
    assert rows(inside, iter(inside)) == [] and rows(inside, iter(inside)) == order(1)
    assert rows(behind, iter(behind)) == order(1)
    explicit.set_epoch(1)
    assert rows(explicit, iter(explicit)) == order(1)
    explicit = again(loader)
    explicit.set_epoch(0)
    assert rows(explicit, iter(explicit)) == []


# ---- the caller's own sampler ----


def own(kind, **options):
    """A loader with DistributedSampler given as to torch's loader, and the sampler."""
    sampler = DistributedSampler(range(N), 1, 0, shuffle=True, seed=3)
    if kind == "sampler":
        return make(sampler=sampler, shuffle=False, seed=0, **options), sampler
    return make(
        batch_sampler=BatchSampler(sampler, 4, False), shuffle=False, seed=0, batch_size=None, **options
    ), sampler


@pytest.mark.parametrize("kind", ["sampler", "batch_sampler"])
@pytest.mark.parametrize("whom", ["loader", "loader.sampler", "sampler"])
def test_set_epoch_is_heard_from_either_side(daemon, kind, whom):
    """By the loader, by loader.sampler, and by the object that the script has kept: all show the same order and
    epoch."""
    loader, sampler = own(kind)
    target = {"loader": loader, "loader.sampler": loader.sampler, "sampler": sampler}[whom]
    for epoch in (3, 4, 0, 8):
        target.set_epoch(epoch)
        assert rows(loader, iter(loader)) == order(epoch)
        assert loader.last_batch.epoch == loader.state_dict()["epoch"] == sampler.epoch == epoch
    assert rows(loader, iter(loader)) == order(9)  # and the epoch counts up for both
    assert isinstance(loader.sampler, DistributedSampler) == (kind == "sampler") and len(loader.sampler) == N


@pytest.mark.parametrize("kind", ["sampler", "batch_sampler"])
def test_a_restored_epoch_reaches_the_sampler(daemon, kind):
    """Without a set_epoch after load_state_dict the order is the restored epoch's."""
    loader, sampler = own(kind)
    sampler.set_epoch(2)
    rows(loader, iter(loader), 2)
    other, its_sampler = own(kind)
    other.load_state_dict(loader.state_dict())
    assert rows(other, iter(other)) == order(2)[8:] and its_sampler.epoch == 2


def test_a_sampler_is_read_once_and_for_the_right_epoch(daemon):
    """An iterator that delivers nothing must not draw: a sampler that draws from torch's generator would give other
    values afterwards."""
    reads = []

    class Counted(DistributedSampler):
        def __iter__(self):
            reads.append(self.epoch)
            return super().__iter__()

    loader = make(sampler=Counted(range(N), 1, 0, seed=3), shuffle=False, seed=0)
    iter(loader)
    iterator = iter(loader)
    loader.sampler.set_epoch(5)
    assert rows(loader, iterator) == order(5) and reads == [5]


def test_a_sampler_that_counts_by_itself_and_the_loader_agree(daemon):
    """A sampler whose __iter__ advances to the next epoch; a state saved in the middle belongs to the running epoch."""

    class Counting:
        epoch = 0

        def set_epoch(self, epoch):
            self.epoch = epoch

        def __iter__(self):
            self.epoch += 1
            return iter(order(self.epoch - 1))

        def __len__(self):
            return N

    loader = make(sampler=Counting(), shuffle=False, seed=0)
    for epoch in range(3):
        iterator = iter(loader)
        assert rows(loader, iterator, 2) == order(epoch)[:8] and loader.state_dict()["epoch"] == epoch
        other = make(sampler=Counting(), shuffle=False, seed=0)
        other.load_state_dict(loader.state_dict())
        assert rows(other, iter(other)) == rows(loader, iterator) == order(epoch)[8:]

"""States of a loader whose order is the caller's: which of the ranks saved one, and where it may go on. What must come is
computed by torch's DistributedSampler and WeightedRandomSampler."""

import itertools

import pytest

import batchd

torch = pytest.importorskip("torch")
from torch.utils import data  # noqa: E402

N = 48
WEIGHTS = [1 + i % 3 for i in range(N)]
SEED = 7
JOBS = itertools.count()  # a job has one batch size


def draw(epoch, n=N):
    generator = torch.Generator().manual_seed(SEED + epoch)
    return list(data.WeightedRandomSampler(WEIGHTS, n, generator=generator))


def weighted(rank, world, batch=4, n=N, **options):
    """The ranks are the loader's alone."""
    sampler = batchd.WeightedSampler(WEIGHTS, num_samples=n, seed=SEED)
    return batchd.DataLoader(
        f"random:length={N},shape=1",
        batch,
        sampler=sampler,
        rank=rank,
        world_size=world,
        job=f"job {next(JOBS)}",
        **options,
    )


def distributed(rank, world, batch=4, whole=False):
    sampler = data.DistributedSampler(range(N), world, rank, seed=SEED)
    order = {"batch_sampler": data.BatchSampler(sampler, batch, False)} if whole else {"sampler": sampler}
    return batchd.DataLoader(
        f"random:length={N},shape=1", batch, rank=rank, world_size=world, job=f"job {next(JOBS)}", **order
    )


def rows(loader, most=None):
    """Sample numbers of the batches, of at most so many."""
    found = []
    for _ in loader:
        found.append(loader.last_batch.indices.tolist())
        if len(found) == most:
            break
    return found


def flat(batches):
    return [i for batch in batches for i in batch]


@pytest.mark.parametrize("world", [2, 3])
def test_a_weighted_sampler_has_the_loaders_ranks(daemon, world):
    """Also where rank and world size are given to the loader alone: together the ranks have one draw."""
    for rank in range(world):
        dealt = [draw(0)[i] for i in data.DistributedSampler(range(N), world, rank, shuffle=False)]
        loader = weighted(rank, world)
        assert flat(rows(loader)) == dealt and len(loader) == -(-len(dealt) // 4)
        sampler = batchd.WeightedSampler(WEIGHTS, seed=SEED)
        within = batchd.DataLoader(
            f"random:length={N},shape=1",
            batch_sampler=data.BatchSampler(sampler, 4, False),
            rank=rank,
            world_size=world,
            job="within",
        )
        assert flat(rows(within)) == dealt


def test_a_weighted_sampler_is_not_dealt_out_for_two_ranks_at_once(daemon):
    sampler = batchd.WeightedSampler(WEIGHTS)

    def make(rank):
        return batchd.DataLoader("random:length=48,shape=1", 4, sampler=sampler, rank=rank, world_size=2, job=str(rank))

    first = make(0)
    with pytest.raises(ValueError, match="has the part of rank 0 of 2 in another loader.*make one for each"):
        make(1)
    first.close()
    assert make(1).rank == 1


def test_one_ranks_state_of_a_weighted_sampler_is_every_ranks(daemon):
    """The states of all ranks are equal, and the rest of the epoch follows on each."""
    loaders = [weighted(rank, 2) for rank in range(2)]
    whole = [rows(loader) for loader in loaders]
    for loader in loaders:
        loader.set_epoch(0)
        assert rows(loader, most=2) == whole[loader.rank][:2]
    first, second = (loader.state_dict() for loader in loaders)
    assert first == second
    for rank in range(2):
        again = weighted(rank, 2)
        again.load_state_dict(first)
        assert again.state_dict() == first
        assert rows(again) == whole[rank][2:]
        assert flat(rows(again)) == [draw(1)[i] for i in range(rank, N, 2)]


@pytest.mark.parametrize("n", [N, 50, 101])
@pytest.mark.parametrize("world, batch", [(1, 4), (3, 4), (4, 2), (2, 5), (1, 7)])
def test_a_weighted_samplers_epoch_goes_on_with_other_ranks_and_batches(daemon, n, world, batch):
    """What is left of the draw is dealt out again, and once more from a state that is saved there."""
    saver = weighted(1, 2, n=n)
    rows(saver, most=3)
    state, had = saver.state_dict(), 3 * 4 * 2
    ranks = []
    for rank in range(world):
        loader = weighted(rank, world, batch, n)
        loader.load_state_dict(state)
        ranks.append((loader, rows(loader, most=1)))
    dealt = [draw(0, n)[had:][i] for rank in range(world) for i in range(rank, n - had, world)]
    then = [loader.state_dict() for loader, _ in ranks]
    assert all(s == then[0] for s in then)
    found = []
    for rank, (loader, begun) in enumerate(ranks):
        other = weighted(rank, world, batch, n)
        other.load_state_dict(then[0])
        mine = flat(begun + rows(other))
        found += mine[: len(range(rank, n - had, world))]
    assert found == dealt


@pytest.mark.parametrize("whole", [False, True])
def test_one_ranks_state_is_right_on_another(daemon, whole):
    """torch's DistributedSampler, as sampler= and in a BatchSampler; also a state that was saved there afterwards."""
    saver = distributed(0, 2, whole=whole)
    rows(saver, most=2)
    for rank in range(2):
        wanted = rows(distributed(rank, 2, whole=whole))
        loader = distributed(rank, 2, whole=whole)
        loader.load_state_dict(saver.state_dict())
        assert loader.state_dict() == saver.state_dict()
        assert rows(loader, most=1) == wanted[2:3]
        later = distributed(rank, 2, whole=whole)
        later.load_state_dict(loader.state_dict())
        assert rows(later) == wanted[3:]


@pytest.mark.parametrize("world, batch", [(3, 4), (1, 4), (2, 2)])
def test_all_ranks_refuse_a_state_that_an_own_order_cannot_go_on_from(daemon, world, batch):
    """On every rank, so that none trains on and waits for the others; a state from an epoch's end is taken."""
    saver = distributed(0, 2)
    rows(saver, most=2)
    middle = saver.state_dict()
    rows(saver)
    end = saver.state_dict()
    for rank in range(world):
        loader = distributed(rank, world, batch)
        with pytest.raises(
            ValueError, match="saved in the middle of an epoch with batch_size=4 and world_size=2, and this"
        ):
            loader.load_state_dict(middle)
        loader.load_state_dict(end)
        assert rows(loader) and loader.last_batch.epoch == 2


def test_states_of_different_samplers_are_refused(daemon):
    loader = weighted(0, 1)
    rows(loader, most=1)
    other = batchd.DataLoader(
        "random:length=48,shape=1", 4, sampler=batchd.WeightedSampler(WEIGHTS, seed=SEED + 1), rank=0, world_size=1
    )
    with pytest.raises(
        ValueError, match="WeightedSampler that draws other samples: weights, num_samples, replacement and"
    ):
        other.load_state_dict(loader.state_dict())
    with pytest.raises(
        ValueError, match="saved with a batchd.WeightedSampler as sampler=, and this loader has another"
    ):
        distributed(0, 1).load_state_dict(loader.state_dict())


def test_a_random_samplers_state_is_its_own_ranks(daemon):
    """Each rank draws for itself, so another rank's state would give it another rank's order."""

    def make(rank):
        sampler = data.RandomSampler(range(N), generator=torch.Generator().manual_seed(rank))
        return batchd.DataLoader("random:length=48,shape=1", 4, sampler=sampler, rank=rank, world_size=2, job=str(rank))

    saver = make(0)
    rows(saver, most=1)
    with pytest.raises(ValueError, match="the state is rank 0's, .* this is rank 1: .* each rank saves its own"):
        make(1).load_state_dict(saver.state_dict())


def test_drop_last_beside_a_distributed_sampler_is_torchs(daemon):
    """Padded ranks first, as scripts upstream write it; the loader's own drop_last drops before it deals out."""
    rows_of = data.DistributedSampler(range(100), 3, 1, seed=SEED)
    torchs = [batch.tolist() for batch in data.DataLoader(torch.arange(100), 17, sampler=rows_of, drop_last=True)]
    common = dict(batch_size=17, rank=1, world_size=3, drop_last=True)
    own = batchd.DataLoader("random:length=100,shape=1", sampler=rows_of, job="own", **common)
    assert rows(own) == torchs and len(torchs) == 2
    assert len(batchd.DataLoader("random:length=100,shape=1", shuffle=True, job="ours", **common)) == 1


@pytest.mark.parametrize("n_slots", [2, 5])
def test_a_sampler_is_read_ahead_by_the_slots_and_three_batches(daemon, n_slots):
    """What the guide says to those whose sampler learns from the training."""
    drawn = []

    class Counting:
        def __len__(self):
            return N

        def __iter__(self):
            for i in range(N):
                drawn.append(i)
                yield i

    loader = batchd.DataLoader(
        f"random:length={N},shape=1", 1, sampler=Counting(), n_slots=n_slots, rank=0, world_size=1
    )
    for k, _ in enumerate(loader):
        assert k < len(drawn) <= k + loader._info.window + 3

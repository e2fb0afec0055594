"""Repeated augmentation: the built-in order with repeats has the indices of torchvision's RASampler and timm's
RepeatAugSampler; each time that a sample comes it is augmented differently, by (seed, repeat, epoch, sample) alone."""

import warnings

import numpy
import pytest
from test_draws import SEED, all_draws_differ, drawn, halves, make, philox4x32, pictures, rows, same
from vision import import_torchvision

import batchd

torch = pytest.importorskip("torch")

N = 40  # of `pictures`
assert pictures  # the fixture


def timms():
    """The module of timm's samplers, whose package imports torchvision."""
    try:
        import_torchvision()
    except ImportError as e:
        pytest.skip(f"torchvision cannot be imported: {e}")
    return pytest.importorskip("timm.data.distributed_sampler", reason="needs timm")


class Sized:
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n


def seed_again(seed, repeat):
    low, high = philox4x32([repeat, 0, 0x72657065, 0], halves(seed))[:2]
    return high << 32 | low if repeat else seed


def expected(pictures, found, *, repeats, base=0, world=1, rank=0, batch_size=8, epoch=0):
    """Their pixels, from Pillow and another implementation of Philox."""
    made = []
    for step, row, i, _ in found:
        repeat = (base + (step * batch_size + row) * world + rank) % (N * repeats) % repeats
        made.append((step, row, i, drawn(pictures[1][i], seed_again(SEED, repeat), epoch, i)))
    return made


def by_torchvision(n, world, rank, seed, epoch, repeats, selected):
    """The order that references/classification/sampler.py describes: DistributedSampler's permutation, each index
    `repeats` times, dealt out to the ranks, of which `selected` are taken."""
    generator = torch.Generator()
    generator.manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator).repeat_interleave(repeats)
    short = -len(order) % world
    return torch.cat([order, order[:short]])[rank::world][:selected].tolist()


def crew(pictures, world, **options):
    return [make(pictures, rank=rank, world_size=world, **options) for rank in range(world)]


@pytest.mark.parametrize("world", [1, 2, 4])
def test_ranks_have_torchvisions_indices_and_no_row_twice(daemon, pictures, world):
    """Two epochs of 3 repeats: every rank has RASampler's indices. The 3 rows of an index differ, in whatever ranks they
    are, and are those of the other world sizes."""
    loaders = crew(pictures, world, shuffle=True, repeats=3)
    for epoch in range(2):
        found = []
        for rank, loader in enumerate(loaders):
            loader.set_epoch(epoch)
            mine = rows(loader)
            assert [r[2] for r in mine] == by_torchvision(N, world, rank, SEED, epoch, 3, None)
            assert len(mine) == 3 * N // world and len(loader) == 3 * N // world // 8 + bool(3 * N // world % 8)
            assert same(mine, expected(pictures, mine, repeats=3, world=world, rank=rank, epoch=epoch))
            found += mine
        assert all_draws_differ(found) and sorted(r[2] for r in found) == sorted(3 * list(range(N)))


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("shuffle", [False, True])
def test_an_epoch_cut_short_is_that_of_timms_sampler(daemon, pictures, world, shuffle):
    """timm's RepeatAugSampler (whose seed is 0) with selected_round=16: its epochs have 32 of the 120 rows. It draws
    like torchvision's, which rounds to 256."""
    distributed = timms()
    loaders = crew(pictures, world, shuffle=shuffle, repeats=3, epoch_rows=N // 16 * 16, seed=0, batch_size=4)
    for epoch in (0, 5):
        for rank, loader in enumerate(loaders):
            sampler = distributed.RepeatAugSampler(
                Sized(N), world, rank, shuffle=shuffle, num_repeats=3, selected_round=16
            )
            sampler.set_epoch(epoch)
            loader.set_epoch(epoch)
            found = [r[2] for r in rows(loader)]
            assert found == [int(i) for i in sampler] and len(found) == 32 // world == len(loader) * 4


def test_an_uneven_epoch_is_padded_from_its_beginning(daemon, pictures):
    """3 ranks and 50 rows of 80: the last rank repeats the epoch's first row, draws included, and counts it."""
    loaders = crew(pictures, 3, shuffle=True, repeats=2, epoch_rows=50)
    found = [rows(loader) for loader in loaders]
    assert [len(f) for f in found] == [17, 17, 17]
    assert [loader.last_batch.n_padding for loader in loaders] == [0, 0, 1]
    assert found[2][-1][2] == found[0][0][2] and (found[2][-1][3] == found[0][0][3]).all()
    dropped = crew(pictures, 3, shuffle=True, repeats=2, epoch_rows=50, drop_last=True)
    assert [len(rows(loader)) for loader in dropped] == [16, 16, 16]


def test_the_first_time_is_as_without_repeats(daemon, pictures):
    once, twice = rows(make(pictures)), rows(make(pictures, repeats=2))
    assert all((a[3] == b[3]).all() for a, b in zip(once, twice[::2]))


@pytest.mark.parametrize("then, now", [((4, 4), (4, 4)), ((4, 4), (1, 8)), ((2, 4), (4, 2)), ((1, 8), (3, 7))])
def test_a_resume_in_mid_epoch_goes_on_with_the_same_rows(daemon, pictures, then, now):
    """(world size, batch size) before and after; some resumed positions lie between the repeats of a sample."""
    options = {"shuffle": True, "repeats": 3, "epoch_rows": 100}
    whole = rows(make(pictures, **options, batch_size=1))
    position = {(r[2], r[3].tobytes()): p for p, r in enumerate(whole)}
    seen, state = [], None
    for loader in crew(pictures, then[0], batch_size=then[1], **options):
        seen += rows(loader, most=2)
        state = loader.state_dict()
    loaders = crew(pictures, now[0], batch_size=now[1], **options)
    for loader in loaders:
        loader.load_state_dict(state)
        mine = rows(loader)
        seen += mine[: len(mine) - loader.last_batch.n_padding]
    assert sorted(position[r[2], r[3].tobytes()] for r in seen) == list(range(100))


def test_a_killed_daemon_changes_no_repeat(daemon, pictures):
    wanted = rows(make(pictures, shuffle=True, repeats=4))
    found = []
    loader = make(pictures, shuffle=True, repeats=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for images, _ in loader:
            b = loader.last_batch
            found += [(b.step, i, int(n), images[i].copy()) for i, n in enumerate(b.indices)]
            if b.step == 7:
                daemon.kill()
                daemon.start()
    assert same(found, wanted)


def test_trials_share_repeats(daemon, pictures):
    """A share group's rows are those of a loader alone, in slices of any size."""
    alone = [(r[2], r[3].tobytes()) for r in rows(make(pictures, repeats=3))]
    trial = make(pictures, repeats=3, mode="share", batch_size=4, group_batch_size=8)
    assert [(r[2], r[3].tobytes()) for r in rows(trial)] == alone


def test_samplers_with_repeats_of_their_own_still_draw_each_row_anew(daemon, pictures):
    """timm's sampler as sampler=, on 2 ranks, with a ratio that is no whole number: its rows, all different, the same
    after a resume."""
    distributed = timms()

    def ranks():
        for rank in range(2):
            sampler = distributed.RepeatAugSampler(
                Sized(N), 2, rank, num_repeats=1.5, selected_round=0, selected_ratio=1.5
            )
            yield make(pictures, sampler=sampler, rank=rank, world_size=2, batch_size=4), sampler

    found, rest = [], []
    for loader, sampler in ranks():
        mine = rows(loader)
        assert [r[2] for r in mine] == [int(i) for i in sampler]
        found += mine
    for (loader, _), (again, _) in zip(ranks(), ranks()):
        rows(loader, most=3)
        again.load_state_dict(loader.state_dict())
        rest += rows(again)
    assert all_draws_differ(found)
    kept = {(r[0], r[1], r[2], r[3].tobytes()) for r in found if r[0] >= 3}
    assert {(r[0], r[1], r[2], r[3].tobytes()) for r in rest} == kept


def test_what_does_not_go_together_is_refused_by_name(daemon, pictures):
    for options, text in (
        ({"repeats": 0}, "repeats"),
        ({"repeats": 2**17}, r"not 131072$"),
        ({"repeats": 0.5}, r"not 0.5$"),
        ({"repeats": 1.5}, r"1.5.*sampler=timm.*RepeatAugSampler\(range\(n\), world_size, rank, num_repeats=1.5\)"),
        ({"repeats": 2, "epoch_rows": 81}, "epoch_rows is 81.*80 rows: each sample 2 times"),
        ({"repeats": 2, "sampler": range(8)}, "leave repeats out"),
        ({"epoch_rows": 8, "batch_sampler": [[1, 2]]}, "leave epoch_rows out"),
    ):
        with pytest.raises(ValueError, match=text):
            make(pictures, **options)
    loader = make(pictures, repeats=2)
    state = loader.state_dict()
    for options, text in (
        ({}, "repeats=2.*repeats=1"),
        ({"repeats": 2, "epoch_rows": 32}, "epoch_rows=0.*epoch_rows=32"),
    ):
        with pytest.raises(batchd.InvalidError, match=text):
            make(pictures, **options).load_state_dict(state)
    other = make(pictures, repeats=2, job="one", rank=0, world_size=2)
    with pytest.raises(batchd.MismatchError, match="repeats"):
        make(pictures, repeats=3, job="one", rank=1, world_size=2)
    assert len(other) == N // 8 and len(other.sampler) == N and numpy.ndim(other.rank) == 0

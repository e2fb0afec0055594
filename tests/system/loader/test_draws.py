"""Random draws for the rows of the caller's own order: by (seed, position in the epoch, epoch, sample), so that a
sample that an order names twice is augmented twice. The oracle is a new implementation of Philox, with Pillow for the
pixels."""

import importlib
import math
import warnings

import numpy
import pytest
from PIL import Image
from vision import import_torchvision

import batchd

torch = pytest.importorskip("torch")

SIDE = 24
CROP_AND_FLIP = [["RandomCrop", SIDE], ["RandomHorizontalFlip", 0.5]]
SEED = 11


# ---- the oracle ----


def philox4x32(counter, key):
    """Salmon et al., 2011: ten rounds."""
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(b >> 32) ^ counter[1] ^ key[0], b & 0xFFFFFFFF, (a >> 32) ^ counter[3] ^ key[1], a & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


def halves(n):
    return [n & 0xFFFFFFFF, n >> 32]


def seed_at(seed, position):
    low, high = philox4x32([*halves(position), 0, 0], halves(seed))[:2]
    return high << 32 | low


def numbers(seed, epoch, index, op):
    """The first four draws of an op."""
    return philox4x32([*halves(index), epoch & 0xFFFFFFFF, (epoch >> 32) << 20 | op << 12], halves(seed))


def drawn(picture, seed, epoch, index):
    """The choices of CROP_AND_FLIP. A rejection in random_below would need a number below its range, about 2^-26 of
    all."""
    top_bits, left_bits = numbers(seed, epoch, index, 0)[:2]
    top, left = top_bits * (picture.height - SIDE + 1) >> 32, left_bits * (picture.width - SIDE + 1) >> 32
    out = picture.crop((left, top, left + SIDE, top + SIDE))
    if (numbers(seed, epoch, index, 1)[0] >> 8) * 2.0**-24 < 0.5:
        out = out.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return numpy.asarray(out)


def test_the_oracle_gives_the_published_numbers():
    """Random123's known answers, so that both sides are Philox and do not share a mistake."""
    assert philox4x32([0, 0, 0, 0], [0, 0]) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox4x32([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0]) == [
        0xD16CFE09,
        0x94FDCCEB,
        0x5001E420,
        0x24126EA1,
    ]


# ---- data and loaders ----


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A folder of 40 noisy PNGs, and their pixels: no two crops are alike, and there are so many that chance does not
    draw one twice."""
    folder = tmp_path_factory.mktemp("noise")
    random, found = numpy.random.default_rng(5), []
    for i in range(40):
        path = folder / f"c{i // 10}" / f"{i:02}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(random.integers(0, 256, (SIDE + 260 + i, SIDE + 280, 3), dtype=numpy.uint8)).save(path)
        found.append(Image.open(path).convert("RGB"))
    return folder, found


def make(pictures, **options):
    options = {
        "batch_size": 8,
        "seed": SEED,
        "transform": CROP_AND_FLIP,
        "dtype": "uint8",
        "layout": "NHWC",
        "arrays": "numpy",
        "n_slots": 3,
        **options,
    }
    return batchd.DataLoader(f"imagefolder:{pictures[0]}", **options)


def rows(loader, most=None, into=None):
    """The rows of an iteration: (step, row, index, pixels)."""
    found = [] if into is None else into
    for images, _ in loader:
        b = loader.last_batch
        found += [(b.step, i, int(n), images[i].copy()) for i, n in enumerate(b.indices)]
        if most is not None and b.step + 1 == most:
            break
    return found


def same(a, b):
    return len(a) == len(b) and all(x[:3] == y[:3] and (x[3] == y[3]).all() for x, y in zip(a, b))


def expected(pictures, found, *, epoch=0, base=0, world=1, rank=0, batch_size=8, seed=SEED):
    return [
        (step, row, i, drawn(pictures[1][i], seed_at(seed, base + (step * world + rank) * batch_size + row), epoch, i))
        for step, row, i, _ in found
    ]


def all_draws_differ(found):
    views = {}
    for *_, i, pixels in found:
        views.setdefault(i, []).append(pixels.tobytes())
    assert max(map(len, views.values())) > 1
    return all(len(set(v)) == len(v) for v in views.values())


# ---- the draws ----


def test_a_sample_that_an_order_names_eight_times_is_augmented_eight_times(daemon, pictures):
    """All eight views differ, each is the one of its position, and the next epoch has eight others."""
    loader = make(pictures, sampler=[5] * 8)
    first, second = rows(loader), rows(loader)
    assert all_draws_differ(first + second)
    assert same(first, expected(pictures, first)) and same(second, expected(pictures, second, epoch=1))


def test_batches_of_any_size_are_counted_from_the_largest(daemon, pictures):
    """A batch_sampler's short batches leave gaps in the positions, so that no two rows ever share one."""
    batches = [[1, 1, 1], [1], [1, 2, 1, 2, 1], [2], [1, 1]]
    found = rows(make(pictures, batch_size=5, batch_sampler=batches))
    assert [r[2] for r in found] == sum(batches, []) and all_draws_differ(found)
    assert same(found, expected(pictures, found, batch_size=5))


@pytest.mark.parametrize("cache", ["off", "64MiB"])
def test_the_built_in_order_draws_by_sample_alone(make_daemon, pictures, cache):
    """Golden: a sample's pixels in an epoch never change, at any place of any rank, from the file and from the cache;
    padding rows repeat it."""
    make_daemon(config=f"cache:\n  decoded: {cache}\n")
    for shuffle, world in ((False, 1), (True, 1), (True, 3)):
        crew = [
            make(pictures, shuffle=shuffle, rank=rank, world_size=world, job=f"golden-{world}-{shuffle}")
            for rank in range(world)
        ]
        for epoch in (0, 1):
            found = [row for loader in crew for row in rows(loader)]
            assert {row[2] for row in found} == set(range(40))
            assert same(found, [(s, r, i, drawn(pictures[1][i], SEED, epoch, i)) for s, r, i, _ in found])


# ---- repeated augmentation and weights, as other projects do them ----


class RASampler:
    """torchvision's references/classification/sampler.py: the repeats of a sample go to different ranks."""

    def __init__(self, n, world, rank, seed=0, repetitions=3):
        self.n, self.world, self.rank, self.seed, self.repetitions, self.epoch = n, world, rank, seed, repetitions, 0
        self.num_samples = math.ceil(n * repetitions / world)
        self.total_size = self.num_samples * world
        self.num_selected_samples = (
            math.floor(n // 256 * 256 / world) or self.num_samples
        )  # fewer than 256 select none there

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        g = torch.Generator()
        g.manual_seed(self.seed + self.epoch)
        indices = [i for i in torch.randperm(self.n, generator=g).tolist() for _ in range(self.repetitions)]
        indices += indices[: self.total_size - len(indices)]
        return iter(indices[self.rank : self.total_size : self.world][: self.num_selected_samples])

    def __len__(self):
        return self.num_selected_samples


class RepeatAugSampler:
    """timm's (timm/data/distributed_sampler.py): float ratios, the selected part rounded to selected_round."""

    def __init__(self, n, world, rank, num_repeats=3, selected_round=8, selected_ratio=0):
        self.n, self.world, self.rank, self.num_repeats, self.epoch = n, world, rank, num_repeats, 0
        self.num_samples = math.ceil(n * num_repeats / world)
        self.total_size = self.num_samples * world
        ratio = selected_ratio or world
        self.num_selected_samples = (
            math.floor(n // selected_round * selected_round / ratio) if selected_round else math.ceil(n / ratio)
        )

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        g = torch.Generator()
        g.manual_seed(self.epoch)
        indices = torch.randperm(self.n, generator=g)
        if isinstance(self.num_repeats, float) and not self.num_repeats.is_integer():
            indices = indices[
                torch.tensor([int(i // self.num_repeats) for i in range(math.ceil(self.n * self.num_repeats))])
            ]
        else:
            indices = torch.repeat_interleave(indices, repeats=int(self.num_repeats), dim=0)
        indices = indices.tolist()
        padding = self.total_size - len(indices)
        indices += indices[:padding]
        return iter(indices[self.rank : self.total_size : self.world][: self.num_selected_samples])

    def __len__(self):
        return self.num_selected_samples


def timms(n, world, rank):
    """timm's own class where timm is installed, otherwise the copy here."""
    try:
        import_torchvision()
        kind = importlib.import_module("timm.data.distributed_sampler").RepeatAugSampler
    except ImportError:
        return RepeatAugSampler(n, world, rank)
    return kind(range(n), num_replicas=world, rank=rank, selected_round=8)


SAMPLERS = {
    "RASampler": RASampler,
    "RepeatAugSampler": timms,
    "RepeatAugSampler of 2.5": lambda n, world, rank: RepeatAugSampler(
        n, world, rank, num_repeats=2.5, selected_round=0
    ),
}


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("name", SAMPLERS)
def test_repeats_of_a_sample_differ_within_and_across_ranks(daemon, pictures, name, world):
    """No two rows of one sample are equal, on any number of ranks, in the same and in the next epoch; and each is the
    one of its position."""
    crew = [
        make(pictures, sampler=SAMPLERS[name](40, world, rank), rank=rank, world_size=world, job="repeats")
        for rank in range(world)
    ]
    everything = []
    for epoch in (0, 1):
        for rank, loader in enumerate(crew):
            loader.set_epoch(epoch)
            found = rows(loader)
            assert [row[2] for row in found] == list(loader.sampler) and found
            assert same(found, expected(pictures, found, epoch=epoch, world=world, rank=rank))
            everything += found
    assert all_draws_differ(everything)


def test_draws_of_a_weighted_sampler_all_differ(daemon, pictures):
    """torch's WeightedRandomSampler with replacement, where a few samples make up most of an epoch."""
    weights = [50.0 if i < 3 else 1.0 for i in range(40)]
    sampler = torch.utils.data.WeightedRandomSampler(weights, 120, generator=torch.Generator().manual_seed(1))
    found = rows(make(pictures, sampler=sampler))
    assert len(found) == 120 and all_draws_differ(found)


# ---- the same again ----


def test_the_same_rows_come_after_a_resume_in_mid_epoch(daemon, pictures):
    """Two ranks, stopped after step 2 of epoch 1 and made again: they get exactly the rest, byte for byte."""

    def crew(job):
        return [make(pictures, sampler=RASampler(40, 2, rank), rank=rank, world_size=2, job=job) for rank in range(2)]

    whole = crew("whole")
    part = crew("part")
    for loader in whole + part:
        loader.set_epoch(1)
    wanted = [rows(loader) for loader in whole]
    before = [rows(loader, most=2) for loader in part]
    states = [loader.state_dict() for loader in part]
    for rank, loader in enumerate(crew("rest")):
        loader.load_state_dict(states[rank])
        loader.set_epoch(1)
        assert same(before[rank] + rows(loader), wanted[rank])


def test_the_same_rows_come_from_a_daemon_that_was_killed(make_daemon, pictures):
    """A new daemon continues in mid-epoch with the same draws."""
    daemon = make_daemon()
    wanted, found = rows(make(pictures, sampler=[7] * 64)), []
    loader = make(pictures, sampler=[7] * 64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for images, _ in loader:
            b = loader.last_batch
            found += [(b.step, i, int(n), images[i].copy()) for i, n in enumerate(b.indices)]
            if b.step == 2:
                daemon.kill()
                daemon.start()
    assert same(found, wanted) and all_draws_differ(found)


@pytest.mark.parametrize("then, now", [((4, 6), (4, 6)), ((1, 6), (1, 6))])
def test_no_draw_comes_twice_after_a_resume(daemon, pictures, then, now):
    """(world size, batch_size) before and after, with a batch_sampler that names one sample only: no row after the
    resume equals an earlier row, nor does any after a second resume. So no position is used twice. An order of one's own
    goes on with the same sizes only (test_own_order_states.py)."""
    batches = [[9, 9, 9, 9, 9, 9]] * 6

    def crew(size, state, most):
        found, token = [], None
        loaders = [
            make(pictures, batch_size=size[1], batch_sampler=batches, rank=rank, world_size=size[0])
            for rank in range(size[0])
        ]
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(state)
            found += rows(loader, most=most)
            token = loader.state_dict()
        for loader in loaders:
            loader.close()
        return found, token

    first, state = crew(then, None, 2)
    second, state = crew(now, state, 4)
    third, _ = crew(then, state, None)
    assert len(first) == then[0] * 12 and len(second) == now[0] * 12 and len(third) == then[0] * 12
    assert all_draws_differ(first + second + third)


def test_slices_of_a_shared_batch_draw_by_sample_alone(daemon, pictures):
    """A share group has the built-in order: trainers of any batch size see the same pixels of a sample, the same as
    without a group."""
    sizes = [4, 8]
    crew = [
        make(
            pictures,
            shuffle=True,
            batch_size=size,
            group_batch_size=8,
            mode="share",
            job="slices",
            rank=i,
            world_size=2,
        )
        for i, size in enumerate(sizes)
    ]
    iterators = [iter(loader) for loader in crew]
    found = [[], []]
    for step in range(5):
        for loader, iterator, size, into in zip(crew, iterators, sizes, found):
            for _ in range(8 // size):
                images, _ = next(iterator)
                into += [(0, 0, int(n), images[i].copy()) for i, n in enumerate(loader.last_batch.indices)]
    assert same(*found) and same(found[0], [(0, 0, i, drawn(pictures[1][i], SEED, 0, i)) for _, _, i, _ in found[0]])


def test_what_replaces_a_bad_sample_is_drawn_anew_each_time(make_daemon, pictures, tmp_path):
    """A broken file that an order names eight times is replaced by one and the same sample, augmented eight times."""
    make_daemon(config="bad_data: 50%\n")
    listed = tmp_path / "list.txt"
    paths = sorted(str(p) for p in pictures[0].rglob("*.png"))[:8]
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\n nothing")
    listed.write_text("".join(f"{path}\t0\n" for path in [str(broken)] + paths))
    loader = batchd.DataLoader(
        f"files:{listed}",
        batch_size=8,
        sampler=[0] * 8,
        transform=CROP_AND_FLIP,
        dtype="uint8",
        layout="NHWC",
        arrays="numpy",
        seed=SEED,
    )
    found = rows(loader)
    assert (
        loader.last_batch.n_replaced == 8
        and len({row[2] for row in found}) == 1
        and found[0][2] != 0
        and all_draws_differ(found)
    )


def test_a_state_of_an_earlier_version_is_refused_by_name(daemon, pictures):
    """batchd-token-1 drew an own order by sample alone: the continuation would differ from the order of that token."""
    loader = make(pictures, sampler=[5] * 16)
    state = loader.state_dict()
    state["token"] = state["token"].replace("batchd-token-2", "batchd-token-1", 1)
    with pytest.raises(batchd.InvalidError, match="batchd-token-1.*another version.*batchd-token-2.*order of your own"):
        loader.load_state_dict(state)


def test_what_is_made_of_a_sample_is_another_thing_in_an_order_of_ones_own(daemon, pictures):
    """The token records it: `pipeline` of an own order is not that of the built-in one."""

    def pipeline(**options):
        return next(
            word for word in make(pictures, **options).state_dict()["token"].split() if word.startswith("pipeline=")
        )

    assert pipeline() == pipeline(shuffle=True) != pipeline(sampler=[1, 2]) == pipeline(batch_sampler=[[3]])

"""MixUp and CutMix of a batch's rows, against torchvision and timm: numbers bit for bit where the drawn parameters are
the same, the draws themselves by distribution."""

import subprocess

import numpy as np
import pytest

import batchd
from batchd import _mix
from conftest import BUILD
from test_random_ops import same_distribution
from vision import import_torchvision

torch = pytest.importorskip("torch")
try:
    import_torchvision()
    from torchvision.transforms import v2
except Exception as e:  # absent, or built for another torch
    pytest.skip(f"torchvision cannot be imported: {e}", allow_module_level=True)
TOOL = BUILD / "tests" / "tools" / "mix"
CLASSES = 20
BOTH = v2.RandomChoice([v2.MixUp(alpha=0.2, num_classes=CLASSES), v2.CutMix(alpha=1.0, num_classes=CLASSES)])
NONE, BLEND, BOX = 0, 1, 2


@pytest.fixture(scope="module")
def timm():
    return pytest.importorskip("timm.data.mixup", reason="timm is not installed")


def pairs(photos, mix, n=4, batch_size=16, **options):
    """(mixed images, targets, table, clean images, labels) of the first n batches."""
    options = {"shuffle": True, "seed": 3, "transform": "train224", **options}
    with batchd.DataLoader(f"imagefolder:{photos}", batch_size, mix=mix, **options) as loader:
        with batchd.DataLoader(f"imagefolder:{photos}", batch_size, job="clean", **options) as clean:
            assert len(loader) == len(clean)
            for k, ((images, targets), (x, y)) in enumerate(zip(loader, clean)):
                if k == n:
                    return
                yield images, targets, loader.last_batch.mix, x.clone(), y


def by_torchvision(table, x, y):
    """torchvision's own code, with our draws."""
    row = {name: table[0][name].item() for name in table.dtype.names}
    if row["kind"] == NONE:
        return x, torch.nn.functional.one_hot(y, CLASSES).float()
    mix = (v2.MixUp if row["kind"] == BLEND else v2.CutMix)(num_classes=CLASSES)
    box = row["left"], row["top"], row["right"], row["bottom"]
    height, width = x.shape[-2:]
    if row["kind"] == BLEND:
        lam = row["weight"]
        assert np.float32(1 - lam) == pytest.approx(row["partner_weight"], abs=1e-7)
    else:
        lam = 1 - (box[2] - box[0]) * (box[3] - box[1]) / (width * height)
    # Weights were rounded from one double; a double between both float32 gives the same two.
    mix.make_params = lambda _: {"lam": _Lam(row), "lam_adjusted": _Lam(row) if row["kind"] == BOX else lam, "box": box}
    if row["kind"] == BOX:
        assert np.float32(lam) == np.float32(row["weight"])
    return mix(x, y)


class _Lam(float):
    """lambda whose 1 - lambda is known, too."""

    def __new__(cls, row):
        self = super().__new__(cls, row["weight"])
        self.other = row["partner_weight"]
        return self

    def __rsub__(self, one):
        assert one == 1.0
        return self.other


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("shape", ["train224", [["RandomResizedCrop", 37], "ToTensor"]], ids=["224", "37"])
def test_numbers_are_torchvisions(daemon, photos, layout, shape):
    """MixUp and CutMix of torchvision on the finished rows: images and soft targets, bit for bit, at sizes that a
    register divides and does not."""
    kinds = set()
    for images, targets, table, x, y in pairs(photos, BOTH, 12, layout=layout, transform=shape):
        if layout == "NHWC":
            x = x.permute(0, 3, 1, 2)
            images = images.permute(0, 3, 1, 2)
        wanted, labels = by_torchvision(table, x, y)
        assert torch.equal(images, wanted)
        assert torch.equal(targets, labels)
        kinds.add(int(table[0]["kind"]))
    assert kinds == {BLEND, BOX}


def by_timm(timm, monkeypatch, mix, table, x, y):
    """timm's own code, with our draws."""
    # Of a pair the second row's record is the first one's.
    rows = [dict(zip(table.dtype.names, row)) for row in table.tolist()]
    drawn = rows[: len(rows) // 2] if mix.mode == "pair" else rows
    boxes = iter([(r["top"], r["bottom"], r["left"], r["right"], r["weight"]) for r in drawn if r["kind"] == BOX])

    def box(shape, lam, **_):
        *edges, weight = next(boxes)
        area = (edges[1] - edges[0]) * (edges[3] - edges[2])
        exact = 1.0 - area / float(shape[-2] * shape[-1])
        assert np.float32(exact) == np.float32(weight)
        return tuple(edges), exact

    monkeypatch.setattr(timm, "cutmix_bbox_and_lam", box)
    # A box of no area leaves lambda at 1, which timm would take for nothing to mix.
    lam = [0.5 if r["kind"] == BOX else r["weight"] for r in drawn]
    cutmix = [r["kind"] == BOX for r in drawn]
    mix._params_per_elem = lambda n: (np.array(lam, np.float32), np.array(cutmix))
    first = _Lam(rows[0]) if rows[0]["kind"] == BLEND else lam[0]
    mix._params_per_batch = lambda: (first, cutmix[0])
    return mix(x.clone(), y)


@pytest.mark.parametrize("mode", ["batch", "pair", "elem"])
def test_numbers_are_timms(daemon, photos, monkeypatch, timm, mode):
    """timm's Mixup in each mode, with label smoothing: images and targets, bit for bit."""
    mix = timm.Mixup(0.8, 1.0, prob=0.9, switch_prob=0.5, mode=mode, label_smoothing=0.1, num_classes=CLASSES)
    kinds = set()
    for images, targets, table, x, y in pairs(
        photos, mix, 12, 10, drop_last=True, transform=[["CenterCrop", 50], "ToTensor"]
    ):
        wanted, labels = by_timm(timm, monkeypatch, mix, table, x, y)
        assert torch.equal(images, wanted)
        assert torch.equal(targets, labels)
        kinds |= set(table["kind"].tolist())
        assert (table["partner"] == np.arange(10)[::-1]).all()
        if mode == "pair":
            assert (table["weight"] == table["weight"][::-1]).all()
    assert kinds == {NONE, BLEND, BOX}


def test_half_precision_is_rounded_once(daemon, photos):
    """float16 is torchvision's float32, rounded."""
    options = {"shuffle": True, "seed": 3, "transform": "train224"}
    halves = batchd.DataLoader(f"imagefolder:{photos}", 16, mix=BOTH, dtype="float16", job="half", **options)
    singles = batchd.DataLoader(f"imagefolder:{photos}", 16, mix=BOTH, job="single", **options)
    for _, (x, _), (y, _) in zip(range(4), halves, singles):
        assert x.dtype == torch.float16 and torch.equal(x, y.half())


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_erased_rows_are_mixed(daemon, photos, layout):
    """RandomErasing writes numbers that no pixel has, so slots hold floats; they are mixed like any others."""
    erasing = [
        ["RandomResizedCrop", 51],
        "ToTensor",
        ["Normalize", [0.4] * 3, [0.2] * 3],
        ["RandomErasing", 1.0, [0.1, 0.2], [1, 1], "random"],
    ]
    kinds = set()
    for images, targets, table, x, y in pairs(photos, BOTH, 8, transform=erasing, layout=layout):
        if layout == "NHWC":
            x, images = x.permute(0, 3, 1, 2), images.permute(0, 3, 1, 2)
        wanted, labels = by_torchvision(table, x, y)
        assert torch.equal(images, wanted) and torch.equal(targets, labels)
        kinds.add(int(table[0]["kind"]))
    assert kinds == {BLEND, BOX}


def test_grey_pictures(daemon, photos):
    """One channel, both layouts."""
    for layout in ("NCHW", "NHWC"):
        transform = [["CenterCrop", 33], ["Grayscale", 1], "ToTensor"]
        for images, _, table, x, y in pairs(photos, BOTH, 4, transform=transform, layout=layout):
            if layout == "NHWC":
                x, images = x.permute(0, 3, 1, 2), images.permute(0, 3, 1, 2)
            assert torch.equal(images, by_torchvision(table, x, y)[0])


# ---- draws ----


def draws(text, n_batches, n_rows=2, size=(50, 40), seed=1, epoch=0):
    """The tables of this many batches, [n_batches, n_rows]."""
    if not TOOL.exists():
        pytest.skip(f"{TOOL} is not built")
    out = subprocess.run(
        [TOOL, text, *map(str, (seed, epoch, n_rows, *size, n_batches))], check=True, stdout=subprocess.PIPE
    ).stdout
    return np.frombuffer(out, _mix.TABLE).reshape(n_batches, n_rows)


N = 100_000


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.8, 1.0, 3.0])
def test_lambda_is_betas(alpha):
    """10^5 lambdas against torch's Beta distribution."""
    ours = draws(f"mixup:alpha={alpha}", N)["weight"][:, 0]
    theirs = (
        torch.distributions.Beta(torch.tensor(alpha, dtype=torch.float64), torch.tensor(alpha, dtype=torch.float64))
        .sample((N,))
        .numpy()
        .astype("f4")
    )
    # float32 has 1.0 where theirs is nearly 1: compared where both resolve.
    same_distribution(np.clip(ours, 1e-6, 1 - 1e-6), np.clip(theirs, 1e-6, 1 - 1e-6))
    assert abs(ours.mean() - 0.5) < 0.005


def test_small_and_large_alpha_are_sound():
    """Where a Gamma number is less than a double can hold, and where lambda is 0.5 for every purpose."""
    tiny = draws("mixup:alpha=1e-300", 1000)["weight"][:, 0]
    assert set(tiny.tolist()) == {0.0, 1.0} and 400 < tiny.sum() < 600
    assert abs(draws("mixup:alpha=1e6", 1000)["weight"][:, 0] - 0.5).max() < 0.01


def columns(table):
    return np.stack([table[name].astype("f8") for name in ("top", "bottom", "left", "right", "weight")], 1)


def test_cutmix_boxes_are_torchvisions():
    """Edges and corrected lambda of 10^5 boxes."""
    torch.manual_seed(0)
    mix = v2.CutMix(alpha=1.0, num_classes=2)
    image = torch.empty(2, 3, 50, 40)
    theirs = []
    for _ in range(20_000):
        p = mix.make_params([image])
        x1, y1, x2, y2 = p["box"]
        theirs.append((y1, y2, x1, x2, p["lam_adjusted"]))
    ours = columns(draws("cutmix:alpha=1", N)[:, 0])
    for mine, other in zip(ours.T, np.array(theirs).T):
        same_distribution(mine, other.astype("f4"))


@pytest.mark.parametrize("minmax", [None, (0.2, 0.8)])
def test_cutmix_boxes_are_timms(timm, minmax):
    np.random.seed(0)
    theirs = []
    for _ in range(N):
        lam = np.random.beta(0.7, 0.7) if minmax is None else np.random.beta(1, 1)
        (top, bottom, left, right), lam = timm.cutmix_bbox_and_lam((2, 3, 50, 40), lam, minmax)
        theirs.append((top, bottom, left, right, lam))
    text = (
        "timm:mixup_alpha=0,cutmix_alpha=0.7" if minmax is None else "timm:mixup_alpha=0,cutmix_min=0.2,cutmix_max=0.8"
    )
    ours = columns(draws(text, N)[:, 0])
    for mine, other in zip(ours.T, np.array(theirs).T):
        same_distribution(mine, other.astype("f4"))


@pytest.mark.parametrize("mode", ["batch", "elem"])
def test_timms_probabilities(timm, mode):
    """Nothing, MixUp or CutMix as often as timm says, per batch or per row."""
    table = draws(f"timm:mixup_alpha=0.8,cutmix_alpha=1,prob=0.7,switch_prob=0.4,mode={mode}", 25_000, 4)
    rows = table.reshape(-1) if mode == "elem" else table[:, 0]
    counts = np.bincount(rows["kind"], minlength=3) / len(rows)
    assert np.allclose(counts, [0.3, 0.7 * 0.6, 0.7 * 0.4], atol=0.01)
    same = (table["weight"] == table["weight"][:, :1]).all(1)
    assert same.all() if mode == "batch" else same.mean() < 0.05


def test_weights_of_a_choice():
    kinds = draws("mixup:alpha=1,p=1;cutmix:alpha=1,p=2;none:p=1", N)["kind"][:, 0]
    assert np.allclose(np.bincount(kinds, minlength=3) / N, [0.25, 0.25, 0.5], atol=0.01)


def test_draws_depend_on_seed_epoch_and_place_only():
    text = "mixup:alpha=1"
    one = draws(text, 100)
    assert (one == draws(text, 100)).all()
    assert len(np.unique(one["weight"][:, 0])) == 100
    for other in (draws(text, 100, seed=2), draws(text, 100, epoch=1), draws(text, 100, epoch=1 << 33)):
        assert not (one["weight"] == other["weight"]).any()


# ---- loaders ----


def test_the_same_after_a_resume(daemon, photos):
    """A run that is resumed in the middle of an epoch gets the same rows, targets and table."""
    options = dict(shuffle=True, transform=[["RandomResizedCrop", 32], "ToTensor"], mix=BOTH, seed=5)
    whole = batchd.DataLoader(f"imagefolder:{photos}", 32, job="whole", **options)
    seen, state = [], None
    for k, (x, t) in enumerate(whole):
        seen.append((x.clone(), t))
        if k == 3:
            state = whole.state_dict()
    resumed = batchd.DataLoader(f"imagefolder:{photos}", 32, job="resumed", **options)
    resumed.load_state_dict(state)
    rest = [(x.clone(), t) for x, t in resumed]
    assert len(rest) == len(seen) - 4
    for (x, t), (y, u) in zip(rest, seen[4:]):
        assert torch.equal(x, y) and torch.equal(t, u)


def test_ranks_draw_for_themselves(daemon, photos):
    """Two ranks of a step have different tables, as upstream's ranks have."""
    tables = []
    for rank in range(2):
        with batchd.DataLoader(
            f"imagefolder:{photos}",
            32,
            rank=rank,
            world_size=2,
            job="two",
            mix=batchd.MixUp(1.0, 20),
            transform="val224",
        ) as l:
            next(iter(l))
            tables.append(l.last_batch.mix["weight"][0])
    assert tables[0] != tables[1]


def test_others_of_a_group_see_clean_rows(daemon, photos):
    """share: one trainer mixes, the others do not, in either order of opening; slots stay clean."""
    options = dict(mode="share", transform=[["CenterCrop", 40], "ToTensor"], shuffle=True)
    source = f"imagefolder:{photos}"
    for first, second in ((BOTH, None), (None, BOTH)):
        job = f"group-{first is None}"
        a = batchd.DataLoader(source, 20, mix=first, job=job, **options)
        b = batchd.DataLoader(source, 20, mix=second, job=job, **options)
        mixing, clean = (a, b) if first is BOTH else (b, a)
        for _, (x, t), (y, labels) in zip(range(5), mixing, clean):
            assert labels.dtype == torch.int64
            wanted, targets = by_torchvision(mixing.last_batch.mix, y.clone(), labels)
            assert torch.equal(x, wanted) and torch.equal(t, targets)
        a.close(), b.close()


def test_pairs_of_labels(daemon, photos):
    """Without num_classes: both labels and the weight of the first."""
    for _, (a, b, weight), table, _, y in pairs(photos, batchd.CutMix(1.0), 3, transform="val224"):
        assert torch.equal(a, y) and torch.equal(b, y.roll(1))
        assert weight.dtype == torch.float32 and weight.tolist() == table["weight"].tolist()


def test_last_batch_and_batches_of_one(daemon, photos):
    """An incomplete last batch mixes within itself; a single row with itself, as roll does."""
    for images, targets, table, x, y in pairs(photos, BOTH, 99, 399, transform=[["CenterCrop", 16], "ToTensor"]):
        wanted, labels = by_torchvision(table, x, y)
        assert torch.equal(images, wanted) and torch.equal(targets, labels)
    assert len(images) == 1


def test_off_from_an_epoch_on(daemon, photos):
    """From mixup_off_epoch on rows are clean; targets stay soft, with timm's smoothing."""
    loader = batchd.DataLoader(
        f"imagefolder:{photos}", 50, mix=BOTH, mixup_off_epoch=2, transform=[["CenterCrop", 16], "ToTensor"]
    )
    for epoch in range(4):
        loader.set_epoch(epoch)
        for _, targets in loader:
            assert (loader.last_batch.mix["kind"] == NONE).all() == (epoch >= 2)
            assert targets.dtype == torch.float32 and torch.allclose(targets.sum(1), torch.ones(50))
            assert epoch < 2 or set(targets.unique().tolist()) == {0.0, 1.0}


PLAIN = dict(transform=[["CenterCrop", 16], "ToTensor"])


def by_timm_when_off(mix, x, y):
    """What timm's own object makes of the clean batch."""
    assert not mix.mixup_enabled
    return mix(x.clone(), y)


def test_a_switch_on_timms_object_is_heard_at_once(daemon, photos, timm):
    """DeiT, ConvNeXt and MAE turn mixup_enabled off and on at their object, timm's train.py at the loader: from the next batch
    on rows and targets are what timm's object makes when it is off."""
    mix = timm.Mixup(mixup_alpha=0.8, num_classes=CLASSES, label_smoothing=0.1)
    # Off at the making, on, and off again, in the middle of an epoch and from one to the next.
    mix.mixup_enabled = False
    source = f"imagefolder:{photos}"
    with batchd.DataLoader(source, 20, mix=mix, **PLAIN) as loader, batchd.DataLoader(source, 20, **PLAIN) as clean:
        for switches in ([False, True, False], [True, False, True]):
            for at, ((images, targets), (x, y)) in enumerate(zip(loader, clean)):
                if at < len(switches):
                    is_on = switches[at - 1] if at else loader.mixup_enabled
                assert loader.mixup_enabled == is_on
                assert (loader.last_batch.mix["kind"] == NONE).all() == (not is_on)
                if not is_on:
                    wanted = by_timm_when_off(mix, x, y)
                    assert torch.equal(images, wanted[0]) and torch.allclose(targets, wanted[1], atol=1e-7)
                else:
                    assert not torch.equal(images, x) and targets.dtype == torch.float32
                if at < len(switches):
                    target = mix if at % 2 else loader
                    target.mixup_enabled = is_on = switches[at]


def test_the_loader_has_the_switch_for_any_mix(daemon, photos):
    """timm's train.py reads and assigns loader.mixup_enabled. Without a mix there is nothing to turn on."""
    source = f"imagefolder:{photos}"
    with batchd.DataLoader(source, 20, mix=batchd.MixUp(1.0, CLASSES), **PLAIN) as loader:
        assert loader.mixup_enabled
        kinds, images = [], torch.empty(20, 3, 16, 16)
        for on in (True, False, True):
            loader.mixup_enabled = on
            loader.next_into(images, torch.empty(20, CLASSES))
            kinds.append((loader.last_batch.mix["kind"] == NONE).all())
        assert kinds == [False, True, False]
    with batchd.DataLoader(source, 20, **PLAIN) as loader:
        loader.mixup_enabled = False
        assert loader.mixup_enabled is False
        with pytest.raises(ValueError, match="without mix="):
            loader.mixup_enabled = True


def test_a_switch_of_a_field_and_of_views(daemon, photos, timm):
    """Dictionaries, pairs of labels and several views listen as well."""
    mix = timm.Mixup(mixup_alpha=0.8, num_classes=CLASSES, label_smoothing=0)
    views = [PLAIN["transform"], [["CenterCrop", 16], ["RandomHorizontalFlip", 1.0], "ToTensor"]]
    source = f"imagefolder:{photos}"
    with batchd.DataLoader(source, 20, mix=mix, transform=views, job="mixed") as loader:
        with batchd.DataLoader(source, 20, transform=views, job="clean") as clean:
            mix.mixup_enabled = False
            (images, targets), (x, y) = next(iter(loader)), next(iter(clean))
    assert all(map(torch.equal, images, x)) and torch.equal(targets, torch.nn.functional.one_hot(y, CLASSES).float())


def test_timm_before_1_0_31_has_no_multi_label(daemon, photos, timm):
    """Its Mixup lacks the attribute; a subclass of today's without it has what 0.9.16 has."""
    mix = timm.Mixup(mixup_alpha=0.8, num_classes=CLASSES)
    vars(mix).pop("multi_label", None)
    with batchd.DataLoader(f"imagefolder:{photos}", 20, mix=mix, **PLAIN) as loader:
        assert next(iter(loader))[1].shape == (20, CLASSES)


def test_fields_and_next_into(daemon, photos):
    """Dictionaries carry the mixed image and its targets; next_into writes both."""
    options = dict(transform=[["CenterCrop", 24], "ToTensor"], mix=BOTH)
    plain = batchd.DataLoader(f"imagefolder:{photos}", 50, job="plain", **options)
    named = batchd.DataLoader(
        f"imagefolder:{photos}", 50, job="named", fields={"pixel_values": "image", "labels": "label"}, **options
    )
    into = batchd.DataLoader(f"imagefolder:{photos}", 50, job="into", **options)
    images, targets = torch.empty(50, 3, 24, 24), torch.empty(50, CLASSES)
    for (x, t), batch in zip(plain, named):
        assert into.next_into(images, targets) == 50
        assert torch.equal(batch["pixel_values"], x) and torch.equal(batch["labels"], t)
        assert torch.equal(images, x) and torch.equal(targets, t)
    with pytest.raises(ValueError, match="labels has shape"):
        into.next_into(images, torch.empty(50, 3))


def test_memory_is_used_again_but_never_while_it_is_held(daemon, photos):
    """Batches that the loop keeps stay as they are, and so do their parts."""
    loader = batchd.DataLoader(
        f"imagefolder:{photos}", 20, mix=batchd.MixUp(1.0, 20), transform=[["CenterCrop", 16], "ToTensor"]
    )
    kept = [(x, x[3], x.clone()) for x, _ in loader]
    parts = [(row, copy[3]) for _, row, copy in kept]
    assert all(torch.equal(x, copy) for x, _, copy in kept)
    assert len({x.data_ptr() for x, _, _ in kept}) == len(kept)
    del kept
    for _ in loader:
        pass
    assert all(torch.equal(row, copy) for row, copy in parts)


def test_objects_as_collate_fn(daemon, photos):
    """A mix that is given as collate_fn is read; a function that calls one runs in this process, as any other."""
    loader = batchd.DataLoader(
        f"imagefolder:{photos}", 20, collate_fn=v2.CutMix(num_classes=CLASSES), transform="val224"
    )
    x, t = next(iter(loader))
    assert t.shape == (20, CLASSES) and loader.last_batch.mix["kind"][0] == BOX
    mix = v2.MixUp(num_classes=CLASSES)
    loader = batchd.DataLoader(
        f"imagefolder:{photos}", 20, collate_fn=lambda batch: mix(*batch), transform="val224", job="own"
    )
    x, t = next(iter(loader))
    assert t.shape == (20, CLASSES) and loader.last_batch.mix is None


def test_descriptions_of_objects(timm):
    def read(mix, off=0):
        return _mix.text(mix, off)

    assert read(v2.MixUp(alpha=0.2, num_classes=10)) == "targets:classes=10;mixup:alpha=0.2,p=1.0"
    assert read(batchd.MixUp(0.5)) == "mixup:alpha=0.5,p=1.0"
    assert read(BOTH, 7) == f"targets:classes={CLASSES},off_epoch=7;mixup:alpha=0.2,p=0.5;cutmix:alpha=1.0,p=0.5"
    assert "none:p=0.25" in read(v2.RandomChoice([v2.MixUp(num_classes=3), v2.Identity()], p=[3, 1]))
    minmax = timm.Mixup(cutmix_minmax=(0.2, 0.8), mode="pair", correct_lam=False, label_smoothing=0.1)
    assert read(minmax) == (
        "targets:classes=1000,smoothing=0.1;timm:mixup_alpha=1.0,cutmix_alpha=1.0,cutmix_min=0.2,cutmix_max=0.8,prob=1.0,"
        "switch_prob=0.5,mode=pair,correct_lam=0,p=1.0"
    )

    class Renamed(v2.MixUp):
        """Overrides nothing that mixes."""

        def __init__(self, n):
            super().__init__(alpha=0.3, num_classes=n)

    class OfTimm(timm.Mixup):
        pass

    assert read(Renamed(3)) == "targets:classes=3;mixup:alpha=0.3,p=1.0"
    assert read(OfTimm(num_classes=3)) == read(timm.Mixup(num_classes=3))

    class Changed(Renamed):
        def transform(self, inpt, params):
            return inpt

    class ChangedOfTimm(timm.Mixup):
        def _params_per_batch(self):
            return 0.5, False

    for wrong, why in (
        (Changed(3), "Changed overrides transform of MixUp"),
        (ChangedOfTimm(), "ChangedOfTimm overrides _params_per_batch of Mixup"),
        (v2.MixUp(), "without num_classes"),
        (timm.FastCollateMixup(), "FastCollateMixup mixes bytes"),
        (lambda x, y: (x, y), "nothing that can be read"),
        (v2.RandomChoice([v2.MixUp(num_classes=3), v2.CutMix(num_classes=4)]), "the same num_classes, not 3 and 4"),
        (v2.RandomHorizontalFlip(), "nothing that can be read"),
        (batchd.MixUp(num_classes=2.5), "num_classes must be a whole number"),
        (timm.Mixup(multi_label=True), "multi_label"),
    ):
        with pytest.raises((TypeError, ValueError), match=why):
            read(wrong)


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "no step"),
        ("mixup:alpha=nan", "alpha must be a number from 0"),
        ("mixup:alpha=-1", "alpha must be a number from 0"),
        ("mixup:alpha=0", "alpha must be above 0"),
        ("mixup:alpha=1e300", "alpha must be a number from 0 to 1e\\+06"),
        ("mixup:alpha=inf", "alpha must be"),
        ("mixup:alpha=", "alpha must be"),
        ("mixup:alpha", "no setting"),
        ("cutmix:beta=1", "'beta' is not known: mixup and cutmix have alpha and p"),
        ("targets:classes=2147483648;mixup", "classes must be a whole number from 0 to 16777216"),
        ("targets:classes=99999999999999999999;mixup", "classes must be"),
        ("targets:classes=0;mixup", "classes must be at least 1"),
        ("targets:smoothing=1.5;mixup", "smoothing must be"),
        ("targets:classes=-1;mixup", "classes must be"),
        ("mixup:p=0", "p is 0 for every step"),
        ("mixup;" * 17, "more than 16 steps"),
        ("mixup:alpha=1," * 300, "more than 2048 bytes"),
        ("timm:mixup_alpha=0", "as timm asserts"),
        ("timm:cutmix_min=0.8,cutmix_max=0.2", "cutmix_minmax"),
        ("timm:mode=row", "mode must be batch, pair or elem"),
        ("blend:alpha=1", "none of mixup, cutmix"),
        ("targets:classes=16777216;mixup", "more than 1 GiB"),
        ("targets:classes=19;mixup", "20 classes, and the soft targets only 19"),
    ],
)
def test_wrong_descriptions_are_refused_at_open(daemon, photos, text, why):
    with pytest.raises(batchd.Error, match=why):
        batchd.DataLoader(f"imagefolder:{photos}", 32, mix=text)


def test_refused_where_upstream_would_fail(daemon, photos, timm):
    """Odd numbers of rows for timm, bytes, arrays, labels that are none of the classes."""
    even = timm.Mixup(num_classes=20)
    source = f"imagefolder:{photos}"  # 400 of them
    with pytest.raises(batchd.InvalidError, match="even batch size"):
        batchd.DataLoader(source, 25, mix=even)
    with pytest.raises(batchd.InvalidError, match="last batch of an epoch has 7"):  # 25 rows for each rank
        batchd.DataLoader(source, 18, mix=even, rank=0, world_size=16, transform="val224")
    batchd.DataLoader(source, 18, mix=even, rank=0, world_size=16, transform="val224", drop_last=True)
    own = batchd.DataLoader(source, batch_sampler=[[1, 2], [3, 4, 5]], batch_size=4, mix=even, transform="val224")
    batches = iter(own)
    assert len(next(batches)[0]) == 2
    with pytest.raises(batchd.InvalidError, match="this batch has 3"):
        next(batches)
    with pytest.raises(ValueError, match="mix makes floats"):
        batchd.DataLoader(source, mix=BOTH, dtype="uint8")
    with pytest.raises(batchd.InvalidError, match="arrays come as they are stored"):
        batchd.DataLoader("random:length=100,shape=3x8x8,dtype=float32,classes=3", mix=BOTH)
    with pytest.raises(ValueError, match="goes with mix="):
        batchd.DataLoader(source, mixup_off_epoch=3)

"""A mix of several views: every view of a row gets the same partner, weight and box, as torchvision's MixUp and CutMix
give all images of a sample, and as timm's Mixup would with the same draws for each view."""

import numpy as np
import pytest
from vision import import_torchvision

import batchd

torch = pytest.importorskip("torch")
v2 = import_torchvision().transforms.v2
from torchvision import tv_tensors  # noqa: E402

NUMBERS = ["ToTensor", ["Normalize", [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]]
GLOBAL = [["RandomResizedCrop", 48], "RandomHorizontalFlip", *NUMBERS]
LOCAL = [["RandomResizedCrop", 20], ["RandomSolarize", 100], *NUMBERS]
CLASSES = 7


def pair(samples, transform, mix, n=4, **more):
    """Mixed and clean batches of the same loader's options: (views, targets, table, clean views, labels)."""
    options = {"shuffle": True, "seed": 5, "transform": transform, "arrays": "torch", **more}
    with batchd.DataLoader(f"imagefolder:{samples}", 16, mix=mix, **options) as loader:
        with batchd.DataLoader(f"imagefolder:{samples}", 16, job="clean", **options) as clean:
            for k, ((views, targets), (x, y)) in enumerate(zip(loader, clean)):
                yield views, targets, loader.last_batch.mix, x, y
                if k == n - 1:
                    return


def flat(views):
    found = views.values() if isinstance(views, dict) else views
    return [t for v in found for t in ([v] if torch.is_tensor(v) else v)]


def with_draws(monkeypatch, mix, row, size):
    """torchvision's transform that draws what the table says."""
    lam = float(row["weight"])
    if row["kind"] == 1:
        monkeypatch.setattr(mix, "make_params", lambda _: {"lam": lam})
    else:
        box = tuple(int(row[n]) for n in ("left", "top", "right", "bottom"))
        assert abs(lam - (1 - (box[2] - box[0]) * (box[3] - box[1]) / size**2)) < 1e-6
        monkeypatch.setattr(mix, "make_params", lambda _: {"box": box, "lam_adjusted": lam})
    return mix


@pytest.mark.parametrize("kind", ["MixUp", "CutMix"])
def test_all_views_are_torchvisions(daemon, samples, monkeypatch, kind):
    """torchvision's transform over the list of clean views, as images, with the table's draw."""
    made = getattr(batchd, kind)(alpha=1.0, num_classes=CLASSES)
    transform = batchd.views(GLOBAL, [*GLOBAL[:2], ["RandomGrayscale", 0.5], *NUMBERS])
    seen = 0
    for views, targets, table, clean, labels in pair(samples, transform, made):
        row = table[0]
        if row["kind"] == 0:
            continue
        theirs = with_draws(monkeypatch, getattr(v2, kind)(num_classes=CLASSES), row, 48)
        want, soft = theirs([tv_tensors.Image(x.clone()) for x in clean], labels)
        for got, x in zip(views, want, strict=True):
            assert torch.allclose(got, torch.as_tensor(x), atol=2e-6)
        assert torch.allclose(targets, soft, atol=1e-6)
        seen += 1
    assert seen


def by_hand(x, table):
    """float32 rows, each operation rounded, as the table says."""
    x = x.numpy()
    made = x.copy()
    for i, (partner, kind, weight, other, top, bottom, left, right) in enumerate(table.tolist()):
        if kind == 1:
            made[i] = x[i] * np.float32(weight) + x[partner] * np.float32(other)
        elif kind == 2:
            made[i, :, top:bottom, left:right] = x[partner, :, top:bottom, left:right]
    return made


FORMS = [
    [GLOBAL, LOCAL],
    batchd.views(GLOBAL, LOCAL, n=2),
    {"global": batchd.views(GLOBAL, n=2, stack=True), "local": batchd.views(LOCAL, n=3), "alone": LOCAL},
]


@pytest.mark.parametrize("transform", FORMS, ids=["list", "views", "dict"])
def test_views_of_several_sizes_are_mixed_up_alike(daemon, samples, transform):
    """Bit for bit, in every form that views have."""
    mix, kinds = batchd.MixUp(alpha=0.8, num_classes=CLASSES), set()
    for views, targets, table, clean, _ in pair(samples, transform, mix, 3):
        kinds |= set(table["kind"].tolist())
        for got, x in zip(flat(views), flat(clean), strict=True):
            if x.ndim == 5:
                want = np.stack([by_hand(v, table) for v in x])
            else:
                want = by_hand(x, table)
            assert got.numpy().tobytes() == want.tobytes()
        assert targets.shape == (16, CLASSES)
    assert 1 in kinds


def test_timms_mixup_of_each_view_with_the_same_draws(daemon, samples):
    """timm's own code over each view, from the same state of numpy's generator, has one table for all of them."""
    timm = pytest.importorskip("timm.data.mixup", reason="needs timm")
    mix = timm.Mixup(0.8, 1.0, mode="elem", num_classes=CLASSES)
    for views, _, table, clean, labels in pair(samples, [GLOBAL, GLOBAL], mix, 2):
        for got, x in zip(views, clean, strict=True):
            assert got.numpy().tobytes() == by_hand(x, table).tobytes()
        assert (table["partner"] == np.arange(16)[::-1]).all()
        outs = []
        for x in clean:
            np.random.seed(4)
            outs.append(mix(x.clone(), labels)[1])
        assert torch.equal(*outs)


def test_boxes_need_views_of_one_size(daemon, samples):
    with pytest.raises(ValueError, match="CutMix cuts one box in all views.*'image' and 'image.1'"):
        next(pair(samples, [GLOBAL, LOCAL], batchd.CutMix(num_classes=CLASSES)))
    with pytest.raises(ValueError, match="CutMix cuts one box"):
        next(pair(samples, [GLOBAL, LOCAL], "timm:mixup_alpha=0.8,cutmix_alpha=1"))
    assert next(pair(samples, [GLOBAL, LOCAL], "timm:mixup_alpha=0.8,cutmix_alpha=0"))


def test_half_precision_and_the_other_layout(daemon, samples):
    for more in ({"dtype": "float16"}, {"layout": "NHWC"}):
        for views, _, table, clean, _ in pair(samples, [GLOBAL, LOCAL], batchd.MixUp(num_classes=CLASSES), 2, **more):
            for got, x in zip(views, clean):
                assert got.shape == x.shape and got.dtype == x.dtype
                mixed = by_hand(x.float(), table)
                assert np.abs(got.float().numpy() - mixed).max() <= (0.01 if "dtype" in more else 0)


ERASED = [["CenterCrop", 32], *NUMBERS, ["RandomErasing", 1.0]]


@pytest.mark.parametrize("transform", [[GLOBAL, LOCAL], [ERASED, ERASED]], ids=["pixels", "floats"])
def test_next_into_mixes_every_view(daemon, samples, transform):
    """What a loop gives, whether the slot has pixels or finished floats; stacked views as well."""
    mix = batchd.MixUp(alpha=1.0, num_classes=CLASSES)
    options = {"shuffle": True, "seed": 5, "mix": mix, "arrays": "torch"}
    forms = {"two": batchd.views(*transform), "stack": batchd.views(transform[0], n=2, stack=True)}
    with batchd.DataLoader(f"imagefolder:{samples}", 16, transform=forms, **options) as loop:
        with batchd.DataLoader(f"imagefolder:{samples}", 16, transform=forms, job="into", **options) as loader:
            views, targets = next(iter(loop))
            assert views["two"][1].dtype == torch.float32
            into = {"two": [torch.empty_like(v) for v in views["two"]], "stack": torch.empty_like(views["stack"])}
            soft = torch.empty_like(targets)
            assert loader.next_into(into, soft) == 16
            for got, want in zip(flat(into), flat(views), strict=True):
                assert torch.equal(got, want)
            assert torch.equal(soft, targets)

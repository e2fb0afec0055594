"""Several views of each image: their pixels against Pillow and torchvision, their random numbers, and the forms in which
they come."""

import json
import pathlib

import numpy as np
import pytest
from PIL import Image

import batchd
from batchd import _views
from vision import import_torchvision

torch = pytest.importorskip("torch")

SEEN = 24  # pictures of `photos` that the tests look at
FIXED = {  # one deterministic pipeline for each view, none of which shows the same part of a picture
    "whole": [["Resize", [64, 80]]],
    "middle": [["CenterCrop", 48]],
    "small": [["Resize", 40], ["CenterCrop", [24, 32]], "Grayscale"],
}
LARGE = [["RandomResizedCrop", 32, {"scale": [0.4, 1.0], "interpolation": "bicubic"}], "RandomHorizontalFlip"]
SMALL = [["RandomResizedCrop", 16, {"scale": [0.05, 0.4], "interpolation": "bicubic"}], ["RandomGrayscale", 0.5]]


@pytest.fixture(scope="module")
def listed(photos, tmp_path_factory):
    """A list of some pictures, and their paths in order."""
    paths = sorted(photos.glob("*/*.jp*g"))
    paths = paths[:: len(paths) // SEEN][:SEEN]
    assert len(paths) == SEEN
    place = tmp_path_factory.mktemp("views") / "list"
    place.write_text("".join(f"{p}\t{i % 5}\n" for i, p in enumerate(paths)))
    return f"files:{place}", paths


def batches(spec, *, batch_size=5, epochs=1, **options):
    """Every batch with copies of its arrays."""
    options = {"dtype": "uint8", "layout": "NHWC", **options}
    made = []
    with batchd.DataLoader(spec, batch_size, **options) as loader:
        for _ in range(epochs):
            for batch in loader:
                made.append((copied(batch), loader.last_batch.indices.copy()))
                batch = None
    return made


def copied(thing):
    if isinstance(thing, dict):
        return {k: copied(v) for k, v in thing.items()}
    if isinstance(thing, (list, tuple)):
        return type(thing)(copied(v) for v in thing)
    return thing.numpy().copy() if hasattr(thing, "numpy") else thing


def rows(made, which=lambda images: images):
    """{index: row} of one view."""
    return {int(i): row for (images, _), indices in made for i, row in zip(indices, which(images))}


def expected(view, path):
    image = Image.open(path).convert("RGB")
    if view == "whole":
        return image.resize((80, 64), Image.Resampling.BILINEAR)
    tv = import_torchvision().transforms
    if view == "middle":
        return tv.CenterCrop(48)(image)
    return tv.Compose([tv.Resize(40), tv.CenterCrop((24, 32)), tv.Grayscale(3)])(image)


@pytest.mark.parametrize("cache", ["off", "200MiB"])
def test_each_view_has_its_libraries_pixels(make_daemon, listed, cache):
    """Proves that views of one decoded picture are those that Pillow and torchvision make of its file each by itself, in
    the first epoch and from what later ones have cached."""
    make_daemon(config=f"cache:\n  decoded: {cache}\n")
    spec, paths = listed
    gray = {**FIXED, "small": [["Resize", 40], ["CenterCrop", [24, 32]], ["Grayscale", 3]]}
    made = batches(spec, transform=gray, epochs=2)
    assert len(made) == 2 * -(-SEEN // 5)
    for (images, labels), indices in made:
        assert list(images) == list(FIXED)
        for k, i in enumerate(indices):
            assert labels[k] == i % 5
            for view, pixels in images.items():
                assert np.array_equal(pixels[k], np.asarray(expected(view, paths[i]))), (view, paths[i])


def test_views_differ_and_stay_the_same_at_other_places(daemon, listed):
    """Proves that equal pipelines draw different numbers, that a view depends on its number and its pipeline alone, and
    that the first view is the pipeline without views."""
    spec, _ = listed
    alone = rows(batches(spec, transform=LARGE))
    three = batches(spec, transform=batchd.views(LARGE, n=3))
    others = batches(spec, transform=[SMALL, SMALL, LARGE], shuffle=True, seed=0)
    assert [type(images) for (images, _), _ in three] == [list] * len(three)
    first, second, third = (rows(three, lambda images, k=k: images[k]) for k in range(3))
    again = rows(others, lambda images: images[2])
    assert len(alone) == SEEN and alone.keys() == third.keys() == again.keys()
    for i in alone:
        assert np.array_equal(alone[i], first[i]) and np.array_equal(third[i], again[i])
        assert not np.array_equal(first[i], second[i]) and not np.array_equal(second[i], third[i])


def test_chances_of_views_are_independent(daemon, listed):
    """Proves that the coins of two views fall together in a quarter of all cases, as those of one coin would not."""
    spec, _ = listed
    flip = [["Resize", [8, 8]], "RandomHorizontalFlip"]
    plain = rows(batches(spec, transform=flip[:1]))
    made = batches(spec, transform=batchd.views(flip, n=2), epochs=40)
    heads = np.array(
        [
            [np.array_equal(view[k], plain[int(i)]) for view in images]
            for (images, _), indices in made
            for k, i in enumerate(indices)
        ]
    )
    n = len(heads)
    assert n == 40 * SEEN
    for share in (heads[:, 0].mean() * 2, heads[:, 1].mean() * 2, (heads[:, 0] & heads[:, 1]).mean() * 4):
        assert abs(share - 1) < 4 * np.sqrt(3 / n)  # the variance of four times a mean of quarters


def test_forms(daemon, listed):
    """Proves that a list, a stack, and a dictionary of both come in the form that the transform has, in the order that
    DINO's training loop indexes, with a last batch that is shorter."""
    spec, _ = listed
    ten = batches(spec, transform=[LARGE, LARGE] + [SMALL] * 8, batch_size=7)
    two = batches(
        spec, transform={"g": batchd.views(LARGE, n=2), "l": batchd.views(SMALL, n=8, stack=True)}, batch_size=7
    )
    stacked = batches(spec, transform=batchd.views(LARGE, n=2, stack=True), batch_size=7, layout="NCHW")
    assert [len(n) for _, n in ten] == [7, 7, 7, 3]
    for ((crops, labels), n), ((both, same), m), ((pair, _), _) in zip(ten, two, stacked, strict=True):
        assert (n == m).all() and (labels == same).all() and list(both) == ["g", "l"]
        assert [c.shape for c in crops] == [(len(n), 32, 32, 3)] * 2 + [(len(n), 16, 16, 3)] * 8
        assert both["l"].shape == (8, len(n), 16, 16, 3) and pair.shape == (2, len(n), 3, 32, 32)
        for a, b in zip(crops, [*both["g"], *both["l"]], strict=True):
            assert np.array_equal(a, b)
        assert np.array_equal(pair.transpose(0, 1, 3, 4, 2), np.stack(both["g"]))


def test_fields_beside_views(daemon, listed):
    """Proves what `fields` gives where the image has views, and that a loader without the image decodes nothing."""
    spec, _ = listed
    whole = batches(spec, transform=[LARGE, SMALL])
    named = batches(spec, transform=[LARGE, SMALL], fields={"pixel_values": "image", "labels": "label"})
    pairs = batches(spec, transform={"a": LARGE, "b": SMALL}, fields=("label", "image"))
    for ((images, labels), _), (d, _), ((second, first), _) in zip(whole, named, pairs, strict=True):
        assert list(d) == ["pixel_values", "labels"] and list(first) == ["a", "b"]
        for a, b, c in zip(images, d["pixel_values"], first.values(), strict=True):
            assert np.array_equal(a, b) and np.array_equal(a, c)
        assert (labels == d["labels"]).all() and (labels == second).all()
    alone = batches(spec, transform=[LARGE, SMALL], fields=("label",), dtype=None, layout=None)
    assert [len(b) for b, _ in alone] == [1] * len(whole)
    with batchd.DataLoader(spec, 4, transform={"a": LARGE + ["ToTensor"], "b": SMALL + ["ToTensor"]}) as loader:
        assert {name: f.shape for name, f in loader.fields.items()} == {"a": (3, 32, 32), "b": (3, 16, 16), "label": ()}
    with pytest.raises(batchd.InvalidError, match="label"):
        batchd.DataLoader(spec, 4, dtype="uint8", transform={"label": LARGE})


def test_normalising_that_is_left_to_the_trainer(daemon, listed):
    """Proves that views of uint8 say which mean and std each of them has left out."""
    one, two = (["ToTensor", ["Normalize", [m] * 3, [s] * 3]] for m, s in ((0.5, 0.25), (0.25, 0.5)))

    def left_out(*pipelines, dtype="uint8"):
        with batchd.DataLoader(listed[0], 4, dtype=dtype, transform=list(pipelines)) as loader:
            return loader.normalize

    assert left_out(LARGE + one, SMALL + one) == ((0.5,) * 3, (0.25,) * 3)
    assert left_out(LARGE + one, SMALL + two) == {
        "image": ((0.5,) * 3, (0.25,) * 3),
        "image.1": ((0.25,) * 3, (0.5,) * 3),
    }
    assert left_out(LARGE, SMALL) is None and left_out(LARGE + one, SMALL + two, dtype="float32") is None


def test_arrays_have_views(daemon):
    """Proves that views of arrays in memory are those of the same pictures, whatever the name of their field."""
    x = np.random.default_rng(1).integers(0, 256, (40, 20, 24, 3), np.uint8)
    transform = [[["CenterCrop", 16]], [["CenterCrop", 8], ["RandomVerticalFlip", 1.0]]]
    for (views, y), indices in batches((x, np.arange(40)), transform=transform, shuffle=True):
        assert (y == indices).all()
        assert np.array_equal(views[0], x[indices][:, 2:18, 4:20]) and np.array_equal(
            views[1], x[indices][:, 6:14, 8:16][:, ::-1]
        )


def test_a_resumed_run_has_the_same_views(daemon, listed):
    """Proves that what comes behind a token is what came before, view for view, and that another number of views is
    told of."""
    spec, _ = listed
    options = dict(batch_size=5, shuffle=True, seed=4, dtype="uint8", layout="NHWC")
    with batchd.DataLoader(spec, transform=batchd.views(LARGE, n=2), **options) as loader:
        whole = [copied(images) for images, _ in loader]
    with batchd.DataLoader(spec, transform=batchd.views(LARGE, n=2), job="first", **options) as loader:
        for _ in zip(range(2), loader):
            pass
        state = loader.state_dict()
    with batchd.DataLoader(spec, transform=batchd.views(LARGE, n=2), job="then", **options) as loader:
        loader.load_state_dict(state)
        rest = [copied(images) for images, _ in loader]
    assert len(rest) == len(whole) - 2
    for a, b in zip(whole[2:], rest, strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    with batchd.DataLoader(spec, transform=batchd.views(LARGE, n=3), job="other", **options) as loader:
        with pytest.warns(RuntimeWarning, match="another transform"):
            loader.load_state_dict(state)


def test_share_groups_and_slices(daemon, listed):
    """Proves that a trainer that takes a group's batch in slices gets its rows of every view, stacked ones included."""
    spec, _ = listed
    views = {"g": LARGE, "l": batchd.views(SMALL, n=3, stack=True)}
    whole = batches(spec, transform=views, batch_size=8)
    parts = batches(spec, transform=views, batch_size=4, mode="share", group_batch_size=8)
    assert len(parts) == 2 * len(whole)
    for k, ((images, _), n) in enumerate(parts):
        of, begin = whole[k // 2], 4 * (k % 2)
        assert (n == of[1][begin : begin + 4]).all()
        assert np.array_equal(images["g"], of[0][0]["g"][begin : begin + 4])
        assert np.array_equal(images["l"], of[0][0]["l"][:, begin : begin + 4])


def test_bad_pictures_are_replaced_in_every_view(make_daemon, photos, tmp_path):
    """Proves that a substitute takes all views of the row, and that its views are those of that sample."""
    make_daemon(config="bad_data: 50%\n")
    bad = tmp_path / "bad.jpg"
    good = sorted(photos.rglob("*.jp*g"))[:3]
    bad.write_bytes(good[0].read_bytes()[:200])
    (tmp_path / "list").write_text("".join(f"{p}\t0\n" for p in [bad, *good]))
    options = {"transform": [[["Resize", [9, 9]]], [["CenterCrop", 8]]], "batch_size": 4}
    with batchd.DataLoader(f"files:{tmp_path}/list", dtype="uint8", **options) as loader, pytest.warns():
        for (a, b), _ in loader:
            assert loader.last_batch.n_replaced == 1
            i = int(loader.last_batch.indices[0])
            assert i in (1, 2, 3) and torch.equal(a[0], a[i]) and torch.equal(b[0], b[i])


# ---- what stands for several pipelines ----


class TwoCropsTransform:  # as MoCo v3's moco/loader.py has it
    def __init__(self, base_transform1, base_transform2):
        self.base_transform1 = base_transform1
        self.base_transform2 = base_transform2

    def __call__(self, x):
        return [self.base_transform1(x), self.base_transform2(x)]


class ContrastiveLearningViewGenerator:
    def __init__(self, base_transform, n_views=2):
        self.base_transform = base_transform
        self.n_views = n_views


class DataAugmentationDINO:
    def __init__(self, one, two, local, n):
        self.global_transfo1, self.global_transfo2, self.local_transfo = one, two, local
        self.local_crops_number = n


def text(transform):
    found, form = _views.read(transform)
    return json.loads(found) if found and found[0] in "[{" else found, form and form.n


def test_what_means_several_views():
    """Proves which objects are views and which are ops of one pipeline."""
    tv = import_torchvision().transforms
    one, two = tv.Compose([tv.CenterCrop(8), tv.ToTensor()]), tv.Compose([tv.Resize((9, 9)), tv.ToTensor()])
    a, b = text(one)[0], text(two)[0]
    assert text([one, two]) == ({"": {"views": [a, b], "n": 1}}, 2)
    assert text(TwoCropsTransform(one, two)) == ({"": {"views": [a, b], "n": 1}}, 2)
    assert text(ContrastiveLearningViewGenerator(one, 4)) == ({"": {"views": [a], "n": 4}}, 4)
    assert text(DataAugmentationDINO(one, two, two, 6)) == ({"": {"views": [a, b] + [b] * 6, "n": 1}}, 8)
    assert text({"x": one, "y": [two, one]}) == ({"x": a, "y": {"views": [b, a], "n": 1}}, 3)
    assert text({"x": "train224", "y": batchd.views("val224")}) == (
        {"x": "train224", "y": {"views": ["val224"], "n": 1}},
        2,
    )
    assert text([[["Resize", 9], "ToTensor"], [["CenterCrop", 9]]])[1] == 2
    # One pipeline:
    for single in ([["Resize", 9], ["CenterCrop", 8]], [one], (one, two), [one, "ToTensor"], "val224", None):
        assert text(single)[1] is None, single
    for wrong in (lambda: batchd.views(), lambda: batchd.views(one, n=0), lambda: batchd.views(one, n=65)):
        with pytest.raises((TypeError, ValueError), match="views"):
            wrong()
    for wrong in (batchd.views(batchd.views(one, n=2), one), [batchd.views(one, n=2), one]):
        with pytest.raises(TypeError, match="name all pipelines in one call"):
            text(wrong)
    for wrong in ({}, {1: one}, {".a": one}, {"a": None}):
        with pytest.raises((TypeError, ValueError), match="transform"):
            _views.read(wrong)


def test_wrong_views_are_named(daemon, listed):
    """Proves that the daemon's answer says which view is wrong."""
    for transform, words in (
        ({"good": LARGE, "bad": [["Resize", 9]]}, "view 'bad'"),
        ([LARGE, [["Resiz", [9, 9]]]], "view '.1'"),
        ({"a": batchd.views(LARGE, n=40), "b": batchd.views(LARGE, n=30)}, "64 views"),
        (batchd.views(LARGE, n=64), "64 fields"),
    ):
        with pytest.raises(batchd.InvalidError, match=words):
            batchd.DataLoader(listed[0], 2, dtype="uint8", transform=transform)
    with pytest.raises(ValueError, match=r"'image' has \(32, 32, 3\), 'image.1' \(16, 16, 3\): leave stack out"):
        batches(listed[0], transform=batchd.views(LARGE, SMALL, stack=True))
    assert pathlib.Path(str(daemon.socket)).exists()
    assert len(batches(listed[0], transform=batchd.views(SMALL, n=63))) == -(-SEEN // 5)


def test_batches_that_are_too_large_are_refused(make_daemon, listed):
    """Proves that all views of a batch count against the limit of a batch, not the first alone."""
    make_daemon(config="limits:\n  batch_bytes: 16MiB\n")
    one = [["Resize", [512, 512]]]
    assert batches(listed[0], transform=[["Resize", [512, 512]]], batch_size=12)
    with pytest.raises(batchd.LimitError):
        batchd.DataLoader(listed[0], 12, dtype="uint8", transform=batchd.views(one, n=8))

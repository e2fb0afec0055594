"""Ops that draw a size, and photometric distortion: what they report, applied by torchvision, gives the same bytes, and
is distributed as torchvision's (its own make_params)."""

import numpy as np
import pytest
from PIL import Image

from batchd import _transform
from test_augment_ops import choices, functional, happened, images, render
from test_pixels import PILLOW, center_crop
from test_random_ops import evenly_spread, is_uniform, same_distribution
from vision import import_torchvision

torch = pytest.importorskip("torch")

__all__ = ["functional", "images", "render"]  # fixtures

SIZES = [
    ("RandomResize", {"min_size": 20, "max_size": 90}),
    ("RandomResize", {"min_size": 33, "max_size": 34, "interpolation": "bicubic"}),
    ("RandomShortestSize", {"min_size": [20, 31, 100]}),
    ("RandomShortestSize", {"min_size": [20, 31, 100], "max_size": 60}),
    ("RandomShortestSize", {"min_size": 40, "max_size": 41, "interpolation": "nearest"}),
    ("ScaleJitter", {"target_size": [100, 70]}),
    ("ScaleJitter", {"target_size": [30, 90], "scale_range": [0.8, 1.25], "interpolation": "lanczos"}),
]


@pytest.mark.parametrize("name,options", SIZES)
def test_drawn_sizes(build, render, images, functional, name, options):
    """Each drawn size; torchvision's resize to it."""
    op = [name, {**options, "pillow": PILLOW}]
    mode = import_torchvision().transforms.InterpolationMode(options.get("interpolation", "bilinear"))
    for n, image in enumerate(images):
        for index in range(n, 25, 4):
            width, height = choices(build, op, image.size, 1, index)[0].astype(int)
            want = functional.resize(image, [height, width], mode)
            got = render([op, ["CenterCrop", 50]], [image], index=index)
            assert got == np.asarray(center_crop(want, 50, 50)).tobytes(), (image.size, width, height)


@pytest.mark.parametrize("size", [(64, 48), (48, 64), (333, 101)])
@pytest.mark.parametrize("name,options", SIZES)
def test_sizes_are_distributed_as_torchvisions(build, name, options, size):
    v2 = import_torchvision().transforms.v2
    ours = choices(build, [name, options], size)
    theirs, image = getattr(v2, name)(**options), Image.new("RGB", size)
    torch.manual_seed(2)
    made = []
    for _ in range(10000):
        drawn = theirs.make_params([image])["size"]
        height, width = drawn if len(drawn) == 2 else v2.functional.resize(image, drawn).size[::-1]
        made.append((width, height))
    for column in range(2):
        same_distribution(ours[:, column], np.array(made)[:, column])
    assert set(map(tuple, made)) <= set(map(tuple, ours.astype(int))) or name == "ScaleJitter"


@pytest.mark.parametrize("size", [(64, 48), (48, 64), (50, 50), (333, 101), (7, 90)])
def test_resize_by_the_longer_edge(render, size):
    """v2's Resize(None, max_size=n), larger and smaller."""
    v2 = import_torchvision().transforms.v2
    image = Image.fromarray(np.random.default_rng(4).integers(0, 256, (size[1], size[0], 3), np.uint8))
    for n in (20, 61, 128):
        transform = v2.Resize(None, max_size=n)
        got = render(_transform.text([v2.RandomHorizontalFlip(0.0), transform, v2.CenterCrop(130)]), [image])
        assert got == np.asarray(center_crop(transform(image), 130, 130)).tobytes(), (size, n)


@pytest.mark.parametrize("options", [{}, {"fill": [3, 200, 9], "side_range": [1.5, 2.0], "p": 0.9}])
def test_zoom_out(build, render, images, functional, options):
    """The image on its canvas, as torchvision pads it; places and sizes as torchvision draws them."""
    op = ["RandomZoomOut", options]
    n_done = 0
    for index in range(20):
        done, left, top, width, height = choices(build, op, images[0].size, 1, index)[0].astype(int)
        w, h = images[0].size
        want = images[0]
        if done:
            want = functional.pad(want, [left, top, width - left - w, height - top - h], options.get("fill", 0))
        assert (
            render([op, ["CenterCrop", 60]], images[:1], index=index) == np.asarray(center_crop(want, 60, 60)).tobytes()
        )
        n_done += done
    assert 0 < n_done < 20
    chosen = choices(build, op, (64, 48))
    happened(chosen, options.get("p", 0.5))
    theirs, image = import_torchvision().transforms.v2.RandomZoomOut(**options), Image.new("RGB", (64, 48))
    torch.manual_seed(2)
    made = np.array([theirs.make_params([image])["padding"] for _ in range(10000)])
    same_distribution(chosen[:, 1], made[:, 0])
    same_distribution(chosen[:, 2], made[:, 1])
    same_distribution(chosen[:, 3], made[:, 0] + made[:, 2] + 64)
    same_distribution(chosen[:, 4], made[:, 1] + made[:, 3] + 48)


def test_channel_permutation(build, render, images, functional):
    """All six orders equally often, as torchvision applies them."""
    op = ["RandomChannelPermutation"]
    orders = choices(build, op).astype(int)
    codes = orders @ (9, 3, 1)
    assert len(set(codes)) == 6 and (np.sort(orders, 1) == (0, 1, 2)).all()
    evenly_spread(np.unique(codes, return_counts=True)[1])
    for index in range(12):
        want = functional.permute_channels(images[0], orders[index].tolist())
        got = render([op, ["CenterCrop", 40]], images[:1], index=index)
        assert got == np.asarray(center_crop(want, 40, 40)).tobytes(), orders[index]


RANGES = {"brightness": (0.875, 1.125), "contrast": (0.5, 1.5), "saturation": (0.5, 1.5), "hue": (-0.05, 0.05)}


@pytest.mark.parametrize("options", [{}, {"brightness": [0.2, 3.0], "hue": [-0.5, 0.5], "p": 0.8}])
def test_photometric_distort(build, render, images, functional, options):
    """The parts that it reports, in torchvision's order; each with probability p, its factor uniform."""
    op = ["RandomPhotometricDistort", options]
    chosen = choices(build, op)
    p = options.get("p", 0.5)
    for k, (name, standard) in enumerate(RANGES.items()):
        happened(chosen[:, k : k + 1], p)
        is_uniform(chosen[:, 4 + k], *np.float32(options.get(name, standard)))
    happened(chosen[:, 8:9], 0.5)
    happened(chosen[:, 9:10], p)
    evenly_spread(np.unique(chosen[:, 10:13] @ (9, 3, 1), return_counts=True)[1])
    v2 = import_torchvision().transforms.v2
    for index in range(24):
        done, factors, order = chosen[index, :4], chosen[index, 4:8], chosen[index, 10:13].astype(int)
        params = {f"{n}_factor": float(factors[k]) if done[k] else None for k, n in enumerate(RANGES)}
        params["contrast_before"] = bool(chosen[index, 8])
        params["channel_permutation"] = order.tolist() if chosen[index, 9] else None
        for image in images:
            want = v2.RandomPhotometricDistort().transform(image, params)
            got = render([op, ["CenterCrop", 40]], [image], index=index)
            assert got == np.asarray(center_crop(want, 40, 40)).tobytes(), params


@pytest.mark.parametrize(
    "op,message",
    [
        (["RandomResize", 20, 20], "argument 'max_size' is 20; expected more than min_size"),
        (["RandomResize"], "argument 'min_size' is missing"),
        (["RandomShortestSize", []], "argument 'min_size'"),
        (["RandomShortestSize", [3, 0]], "argument 'min_size'"),
        (["RandomShortestSize"], "argument 'min_size' is missing"),
        (["ScaleJitter", 30], "argument 'target_size'"),
        (["ScaleJitter", [30, 30], [0, 1]], "argument 'scale_range'"),
        (["RandomZoomOut", 0, [0.5, 2]], "argument 'side_range'"),
        (["RandomPhotometricDistort", 0.5], "argument 'brightness'"),
    ],
)
def test_wrong_arguments_are_named(render, op, message):
    with pytest.raises(AssertionError, match=message):
        render([op, ["CenterCrop", 8]], [Image.new("RGB", (9, 9))])


@pytest.mark.parametrize(
    "op", [["RandomResize", 9, 12], ["RandomShortestSize", 9], ["ScaleJitter", [9, 9]], ["RandomZoomOut"]]
)
def test_a_row_of_drawn_size_is_refused(render, op):
    """Rows of a batch have one size: an op behind must fix it, even where the size before was known."""
    with pytest.raises(AssertionError, match=f"op 2 '{op[0]}'.*size"):
        render([["CenterCrop", 30], op], [Image.new("RGB", (9, 9))])


def test_a_canvas_beyond_all_bounds_is_bad_data(render):
    """A hostile combination of op and image costs an error, not memory."""
    op = ["RandomZoomOut", 0, [1000, 1000], 1]
    with pytest.raises(AssertionError, match="pixels"):
        render([op, ["CenterCrop", 8]], [Image.new("RGB", (500, 500))])

"""timm's ops that place an image in a frame, and its ResizeKeepRatio: byte for byte what timm's own code gives, with the
numbers that the op reports, which are distributed as timm's. GaussianNoise: torchvision's distribution."""

import json
import random
import subprocess

import numpy as np
import pytest
from PIL import Image
from test_augment_ops import choices, functional, images, render
from test_pixels import NO_PREFIX, PILLOW, center_crop, tool
from test_random_ops import evenly_spread, same_distribution
from vision import import_torchvision

torch = pytest.importorskip("torch")
import_torchvision()
timm = pytest.importorskip("timm", reason="needs timm")
from timm.data import transforms as theirs  # noqa: E402

assert functional and images and render  # fixtures
FRAMES = [
    {"size": [60, 60]},
    {"size": [40, 100], "fill": [3, 200, 9]},
    {"size": [99, 33], "fill": 7},
    {"size": [75, 75], "padding_mode": "reflect"},
    {"size": [61, 80], "padding_mode": "edge"},
    {"size": [66, 41], "padding_mode": "symmetric"},
]


def argued(options):
    """Arguments as timm's code takes them."""
    return {name: tuple(v) if isinstance(v, list) and name != "size" else v for name, v in options.items()}


@pytest.mark.parametrize("options", FRAMES)
def test_center_crop_or_pad(render, images, options):
    for image in images:
        want = theirs.CenterCropOrPad(**argued(options))(image)
        assert render([NO_PREFIX, ["CenterCropOrPad", options]], [image]) == np.asarray(want).tobytes(), image.size


@pytest.mark.parametrize("options", FRAMES)
def test_random_crop_or_pad(build, render, images, options):
    """The window that it reports, cut by timm's crop_or_pad."""
    op, (height, width) = ["RandomCropOrPad", options], options["size"]
    rest = {name: v for name, v in argued(options).items() if name != "size"}
    for n, image in enumerate(images):
        for index in range(n, 30, 3):
            left, top = choices(build, op, image.size, 1, index)[0].astype(int)
            want = theirs.crop_or_pad(image, top, left, height, width, **rest)
            assert render([op], [image], index=index) == np.asarray(want).tobytes(), (image.size, left, top)
    for size in ((64, 48), (31, 100)):
        chosen = choices(build, op, size)
        random.seed(4)
        made = [theirs.RandomCropOrPad.get_params(Image.new("RGB", size), (height, width)) for _ in range(20000)]
        for column in range(2):
            same_distribution(chosen[:, column], np.array(made)[:, 1 - column])
            evenly_spread(np.unique(chosen[:, column], return_counts=True)[1])


@pytest.mark.parametrize("size, fill", [((60, 60), 0), ((40, 100), (3, 200, 9)), ((20, 20), 5)])
def test_random_pad(build, render, images, size, fill):
    op = ["RandomPad", list(size), list(fill) if isinstance(fill, tuple) else fill]
    for n, image in enumerate(images):
        for index in range(n, 30, 3):
            left, top = -choices(build, op, image.size, 1, index)[0].astype(int)
            w, h = max(image.width, size[1]), max(image.height, size[0])
            want = Image.new("RGB", (w, h), fill if isinstance(fill, tuple) else (fill,) * 3)
            want.paste(image, (left, top))
            got = render([op, ["CenterCrop", 50]], [image], index=index)
            assert got == np.asarray(center_crop(want, 50, 50)).tobytes()
    chosen = -choices(build, op, (31, 30))
    random.seed(4)
    made = [theirs.RandomPad.get_params(Image.new("RGB", (31, 30)), size)[:2] for _ in range(20000)]
    for column in range(2):
        same_distribution(chosen[:, column], np.array(made)[:, column])


@pytest.mark.parametrize("border", [0, 1, 14])
def test_trim_border(render, images, border):
    for image in images:
        want = theirs.TrimBorder(border)(image)
        got = render([NO_PREFIX, ["TrimBorder", border], ["CenterCrop", 40]], [image])
        assert got == np.asarray(center_crop(want, 40, 40)).tobytes()


KEPT = [
    {"size": 40},
    {"size": [40, 60], "longest": 1.0},
    {"size": [33, 20], "longest": 0.3, "interpolation": "bicubic"},
    {"size": 90, "longest": 1.0, "interpolation": "lanczos"},
]


@pytest.mark.parametrize("options", KEPT)
def test_resize_keep_ratio(render, images, options):
    """Without anything drawn; what it leaves over goes to a frame, as timm's crop mode border has it."""
    for image in images:
        want = theirs.ResizeKeepRatio(**argued(options))(image)
        got = render(
            [NO_PREFIX, ["ResizeKeepRatio", {**options, "pillow": PILLOW}], ["CenterCropOrPad", 50, 9]], [image]
        )
        assert got == np.asarray(theirs.CenterCropOrPad(50, 9)(want)).tobytes(), (image.size, want.size)


DRAWN = [
    {"random_scale_prob": 0.5},
    {"random_scale_prob": 1.0, "random_scale_range": [0.3, 2.0], "random_scale_area": True},
    {"random_aspect_prob": 0.7, "longest": 1.0},
    {"random_scale_prob": 0.6, "random_aspect_prob": 0.9, "random_aspect_range": [0.5, 2.0], "longest": 0.5},
]


@pytest.mark.parametrize("options", DRAWN)
def test_random_resize_keep_ratio(build, render, images, functional, options):
    """Sizes and filters as timm draws them; the picture resized to them."""
    modes = {2: "bilinear", 3: "bicubic"}
    op = ["RandomResizeKeepRatio", {"size": [48, 40], "interpolation": "random", **options, "pillow": PILLOW}]
    mode = import_torchvision().transforms.InterpolationMode
    for n, image in enumerate(images):
        for index in range(n, 24, 3):
            width, height, chosen = choices(build, op, image.size, 1, index)[0].astype(int)
            want = functional.resize(image, [height, width], mode(modes[chosen]))
            got = render([op, ["CenterCrop", 30]], [image], index=index)
            assert got == np.asarray(center_crop(want, 30, 30)).tobytes(), (image.size, width, height, chosen)
    chosen = choices(build, op, (333, 101))
    evenly_spread(np.unique(chosen[:, 2], return_counts=True)[1])
    resize = theirs.ResizeKeepRatio((48, 40), **argued(options))
    names = ("scale_prob", "scale_range", "scale_area", "aspect_prob", "aspect_range")
    drawn = [getattr(resize, f"random_{name}") for name in names]
    random.seed(4)
    made = [resize.get_params(Image.new("RGB", (333, 101)), resize.size, resize.longest, *drawn) for _ in range(20000)]
    for column in range(2):
        same_distribution(chosen[:, column], np.array(made)[:, 1 - column])


# ---- noise ----


@pytest.mark.parametrize("options", [{}, {"mean": 0.2, "sigma": 0.3}, {"mean": -0.1, "sigma": 0.02, "clip": False}])
def test_gaussian_noise_is_distributed_as_torchvisions(render, options):
    """120000 bytes of one value: torchvision's distribution in each channel, which do not depend on each other."""
    image = Image.new("RGB", (200, 200), (30, 128, 240))
    got = (
        np.frombuffer(render([["GaussianNoise", options], ["CenterCrop", 200]], [image]), np.uint8)
        .reshape(-1, 3)
        .astype(int)
    )
    v2 = import_torchvision().transforms.v2
    torch.manual_seed(3)
    want = v2.GaussianNoise(**options)(torch.from_numpy(np.array(image))).numpy().reshape(-1, 3).astype(int)
    for channel in range(3):
        same_distribution(got[:, channel], want[:, channel])
    middle = got[:, 1] - got[:, 1].mean()
    for other in (got[:, 0], np.roll(got[:, 1], 1), np.roll(got[:, 1], 200)):
        assert abs(np.corrcoef(middle, other)[0, 1]) < 5 / 200
    assert render([["GaussianNoise", {"sigma": 0}], ["CenterCrop", 200]], [image]) == np.asarray(image).tobytes()


@pytest.mark.parametrize(
    "op,message",
    [
        (["CenterCropOrPad"], "argument 'size' is missing"),
        (["RandomCropOrPad", 9, 300], "argument 'fill'"),
        (["RandomCropOrPad", 9, 0, "wrap"], "argument 'padding_mode'"),
        (["TrimBorder"], "argument 'border_size'"),
        (["TrimBorder", 5], "of which TrimBorder with border_size 5 leaves none"),
        (["ResizeKeepRatio", 9, 2], "argument 'longest'"),
        (["RandomResizeKeepRatio", {"size": 9, "random_scale_range": [0, 1]}], "argument 'random_scale_range'"),
        (["GaussianNoise", 0, -1], "argument 'sigma'"),
    ],
)
def test_wrong_arguments_are_named(render, op, message):
    with pytest.raises(AssertionError, match=message):
        render([NO_PREFIX, op, ["CenterCrop", 8]], [Image.new("RGB", (9, 9))])


def test_rgb_and_noise_of_grey_pictures(render):
    """RGB makes three channels of one; noise of one channel is refused with that remedy."""
    grey = [["Grayscale"], ["GaussianNoise"]]
    with pytest.raises(AssertionError, match="one channel.*put RGB before it"):
        render(grey, [Image.new("RGB", (9, 9))])
    made = render([NO_PREFIX, ["Grayscale"], "RGB", ["CenterCrop", 9]], [Image.new("RGB", (9, 9), (9, 90, 200))])
    assert made == np.asarray(Image.new("RGB", (9, 9), (9, 90, 200)).convert("L").convert("RGB")).tobytes()


def floats(build, tmp_path, ops, picture, dtype="float32", layout="NCHW", count=1):
    """Rows of floats of the same raw picture."""
    file = tmp_path / "picture.rgb"
    file.write_bytes(np.asarray(picture).tobytes())
    args = [tool(build, "render"), json.dumps([NO_PREFIX, *ops]), dtype, layout, "0", "0", "0"]
    done = subprocess.run(
        [*args, *[f"{picture.width}x{picture.height}:{file}"] * count], capture_output=True, check=True
    )
    shape = (3, picture.height, picture.width) if layout == "NCHW" else (picture.height, picture.width, 3)
    return np.frombuffer(done.stdout, dtype).reshape(count, *shape)


@pytest.mark.parametrize("options", [{}, {"mean": 0.2, "sigma": 0.3}, {"mean": -0.1, "sigma": 0.02, "clip": False}])
def test_noise_of_floats_is_torchvisions(build, tmp_path, options):
    """Behind ToTensor: torchvision's formula and its distribution; layouts have the same noise, halves are rounded."""
    picture = Image.new("RGB", (120, 100), (30, 128, 240))
    ops = [["CenterCrop", [100, 120]], "ToTensor", ["GaussianNoise", options]]
    made = floats(build, tmp_path, ops, picture)[0]
    torch.manual_seed(3)
    v2 = import_torchvision().transforms.v2
    x = torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1).float() / 255
    want = v2.GaussianNoise(**options)(x).numpy()
    for channel in range(3):
        same_distribution(made[channel].ravel(), want[channel].ravel())
    other = floats(build, tmp_path, ops, picture, layout="NHWC")[0]
    assert (other.transpose(2, 0, 1) == made).all()
    half = floats(build, tmp_path, ops, picture, dtype="float16")[0]
    assert np.abs(half.astype("f4") - made).max() < 2e-3
    first, second = floats(build, tmp_path, ops, picture, count=2)
    assert (first != second).any() and not options.get("clip", True) or made.min() >= 0 and made.max() <= 1


def test_normalize_behind_noise_and_erasing(build, tmp_path):
    """As torchvision's own Normalize over the same numbers, bit for bit."""
    picture = Image.fromarray(np.random.default_rng(1).integers(0, 256, (40, 50, 3), np.uint8))
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    v2 = import_torchvision().transforms.v2
    for change in (["GaussianNoise", 0.0, 0.2], ["RandomErasing", {"p": 1, "value": [0.1, 0.2, 0.3]}]):
        ops = [["CenterCrop", [40, 50]], "ToTensor", change]
        plain = floats(build, tmp_path, ops, picture)[0]
        made = floats(build, tmp_path, [*ops, ["Normalize", mean, std]], picture)[0]
        want = v2.functional.normalize(torch.from_numpy(plain.copy()), mean, std).numpy()
        assert made.tobytes() == want.tobytes()
    with pytest.raises(subprocess.CalledProcessError) as refused:
        floats(build, tmp_path, [["CenterCrop", 8], "ToTensor", ["GaussianNoise"]], picture, dtype="uint8")
    assert b"GaussianNoise' after ToTensor" in refused.value.stderr

"""Augmentations as pipelines run them: for every random op the parameters that it reports, applied by torchvision or
Pillow, give the same bytes; and the parameters have torchvision's distributions (100000 draws, p = 1e-4)."""

import json
import math
import subprocess

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from test_pixels import NO_PREFIX, PILLOW, Render, center_crop, compare, tool
from batchd import _transform
from test_random_ops import evenly_spread, is_uniform, same_distribution
from vision import import_torchvision

torch = pytest.importorskip("torch")
torch.set_num_threads(1)
N = 100_000


def choices(build, op, size=(64, 48), count=N, index=0):
    args = [
        tool(build, "render"),
        "--choices",
        json.dumps([op, ["CenterCrop", 8]]),
        *map(str, (0, 0, index, count, *size)),
    ]
    done = subprocess.run(args, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return np.loadtxt(done.stdout.splitlines(), ndmin=2)


@pytest.fixture
def render(build, tmp_path):
    return Render(tool(build, "render"), tmp_path)


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(5)
    ramp = np.stack([*np.meshgrid(np.arange(90), np.arange(70)), np.full((70, 90), 77)], -1).astype(np.uint8)
    return [Image.fromarray(rng.integers(20, 200, (h, w, 3), np.uint8)) for w, h in ((64, 48), (31, 57))] + [
        Image.fromarray(ramp)
    ]


@pytest.fixture(scope="module")
def functional():
    return import_torchvision().transforms.v2.functional


def happened(chosen, p):
    """Column 0 is 1 with probability p, within four standard deviations."""
    assert abs(chosen[:, 0].sum() - len(chosen) * p) <= 4 * math.sqrt(len(chosen) * p * (1 - p))


# Deterministic ops by Pillow's names, and each random op at p 1 and p 0.

PLAIN = [
    (["Invert"], ImageOps.invert),
    (["Posterize", 3], lambda i: ImageOps.posterize(i, 3)),
    (["Solarize"], ImageOps.solarize),
    (["Solarize", 64.5], lambda i: ImageOps.solarize(i, 64.5)),
    (["SolarizeAdd", 40], lambda i: i.point([min(255, v + 40) if v < 128 else v for v in range(256)] * 3)),
    (
        ["SolarizeAdd", {"add": 40, "threshold": 90}],
        lambda i: i.point([min(255, v + 40) if v < 90 else v for v in range(256)] * 3),
    ),
    (["AutoContrast"], ImageOps.autocontrast),
    (["Equalize"], ImageOps.equalize),
    (["Brightness", 1.4], lambda i: ImageEnhance.Brightness(i).enhance(1.4)),
    (["Color", 0.3], lambda i: ImageEnhance.Color(i).enhance(0.3)),
    (["Contrast", 1.9], lambda i: ImageEnhance.Contrast(i).enhance(1.9)),
    (["Sharpness", 1.9], lambda i: ImageEnhance.Sharpness(i).enhance(1.9)),
    (["PillowGaussianBlur", 1.3], lambda i: i.filter(ImageFilter.GaussianBlur(1.3))),
    (["PillowGaussianBlur"], lambda i: i.filter(ImageFilter.GaussianBlur())),
]


@pytest.mark.parametrize("op,reference", PLAIN, ids=[str(op) for op, _ in PLAIN])
def test_plain_ops(render, images, op, reference):
    ops = [["RandomHorizontalFlip", 1], op, ["CenterCrop", 40]]
    want = b"".join(np.asarray(center_crop(reference(ImageOps.mirror(i)), 40, 40)).tobytes() for i in images)
    assert render(ops, images) == want


CHANCES = [
    (["RandomInvert"], 0.5, lambda f, i: f.invert(i)),
    (["RandomPosterize", 2], 0.5, lambda f, i: f.posterize(i, 2)),
    (["RandomSolarize", 100.5], 0.5, lambda f, i: f.solarize(i, 100.5)),
    (["RandomAutocontrast"], 0.5, lambda f, i: f.autocontrast(i)),
    (["RandomEqualize"], 0.5, lambda f, i: f.equalize(i)),
    (["RandomAdjustSharpness", 1.7], 0.5, lambda f, i: f.adjust_sharpness(i, 1.7)),
    (["RandomAdjustSharpness", {"sharpness_factor": 0, "p": 0.8}], 0.8, lambda f, i: f.adjust_sharpness(i, 0)),
    (["RandomSolarize", {"threshold": 128, "p": 0.2}], 0.2, lambda f, i: f.solarize(i, 128)),
]


@pytest.mark.parametrize("op,p,reference", CHANCES, ids=[str(c[0]) for c in CHANCES])
def test_random_levels(build, render, images, functional, op, p, reference):
    """Sixteen samples: changed, as torchvision does it, exactly where the op says so."""
    chosen = choices(build, op)
    happened(chosen, p)
    got = np.frombuffer(render([op, ["CenterCrop", 40]], images[:1] * 16), np.uint8).reshape(16, 40, 40, 3)
    for index in range(16):
        want = reference(functional, images[0]) if chosen[index, 0] else images[0]
        assert np.array_equal(got[index], np.asarray(center_crop(want, 40, 40))), index
    assert 0 < chosen[:16, 0].sum() < 16


def test_pillow_blur_draws_its_radius(build, render, images):
    """As MoCo and DINO use it: uniform between two radii, with probability p."""
    op = ["PillowGaussianBlur", [0.1, 2.0], 0.5]
    chosen = choices(build, op)
    happened(chosen, 0.5)
    is_uniform(chosen[:, 1], np.float32(0.1), np.float32(2.0))
    got = np.frombuffer(render([op, ["CenterCrop", 40]], images[:1] * 12), np.uint8).reshape(12, 40, 40, 3)
    for index in range(12):
        want = images[0].filter(ImageFilter.GaussianBlur(float(chosen[index, 1]))) if chosen[index, 0] else images[0]
        assert np.array_equal(got[index], np.asarray(center_crop(want, 40, 40)))


@pytest.mark.parametrize(
    "op,sizes,low,high",
    [
        (["GaussianBlur", 9], [9, 9], 0.1, 2.0),
        (["GaussianBlur", [5, 23], [0.3, 4]], [5, 23], 0.3, 4.0),
        (["GaussianBlur", {"kernel_size": 3, "sigma": 1.5}], [3, 3], 1.5, 1.5),
    ],
)
def test_torchvision_blur_draws_its_sigma(build, render, images, functional, op, sizes, low, high):
    chosen = choices(build, op)
    if low < high:
        is_uniform(chosen[:, 0], np.float32(low), np.float32(high))
    got = np.frombuffer(render([op, ["CenterCrop", 40]], images[:1] * 6), np.uint8).reshape(6, 40, 40, 3)
    for index in range(6):
        sigma = chosen[index, 0]
        want = np.asarray(center_crop(functional.gaussian_blur(images[0], sizes, [sigma, sigma]), 40, 40)).astype(int)
        assert np.abs(got[index] - want).max() <= 1


def test_an_image_smaller_than_the_kernels_border_is_bad_data(render):
    """torchvision raises; here the sample is refused with a reason. One pixel more, and both make it."""
    ops = [["GaussianBlur", 23], ["CenterCrop", 8]]
    render(ops, [Image.new("RGB", (12, 12))])
    with pytest.raises(AssertionError, match="11 x 12 pixels where GaussianBlur .* needs at least 12 x 12"):
        render(ops, [Image.new("RGB", (11, 12))])


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize(
    "options",
    [
        {"degrees": 30},
        {"degrees": [90, 90.0]},
        {"degrees": [-180, 180], "expand": True, "fill": [9, 200, 77]},
        {"degrees": 10, "center": [3.5, 40], "fill": 12},
        {"degrees": [180, 180], "fill": None},
    ],
)
def test_random_rotation(build, render, images, functional, mode, options):
    """Drawn angles; torchvision's rotate with them."""
    op = ["RandomRotation", {"interpolation": mode, **options}]
    low, high = (
        options["degrees"] if isinstance(options["degrees"], list) else (-options["degrees"], options["degrees"])
    )
    if low < high and mode == "nearest":
        is_uniform(choices(build, op)[:, 0], np.float32(low), np.float32(high))
    for n, image in enumerate(images):
        for index in range(n, 30, 7):
            angle = choices(build, op, image.size, 1, index)[0, 0]
            want = functional.rotate(
                image,
                angle,
                import_torchvision().transforms.InterpolationMode(mode),
                options.get("expand", False),
                options.get("center"),
                options.get("fill", 0),
            )
            got = render([op, ["CenterCrop", 70]], [image], index=index)
            assert got == np.asarray(center_crop(want, 70, 70)).tobytes(), (image.size, angle)


AFFINE = [
    {"degrees": 0},
    {"degrees": 15, "translate": [0.1, 0.3], "scale": [0.5, 2], "shear": 10, "fill": 5},
    {"degrees": [10, 40], "shear": [-5, 20, 3, 9], "center": [1, 2.5], "fill": [1, 2, 3]},
    {"degrees": 0, "translate": [0, 0.5], "shear": [5, 20]},
    {"degrees": 0, "scale": [0.8, 0.9]},
]


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("options", AFFINE)
def test_random_affine(build, render, images, functional, mode, options):
    """Drawn angle, translation, scale and shears; torchvision's affine with them."""
    op = ["RandomAffine", {"interpolation": mode, **options}]
    for n, image in enumerate(images):
        for index in range(n, 30, 7):
            angle, tx, ty, scale, *shear = choices(build, op, image.size, 1, index)[0]
            want = functional.affine(
                image,
                angle,
                [int(tx), int(ty)],
                scale,
                shear,
                import_torchvision().transforms.InterpolationMode(mode),
                options.get("fill", 0),
                options.get("center"),
            )
            got = render([op, ["CenterCrop", 50]], [image], index=index)
            assert got == np.asarray(center_crop(want, 50, 50)).tobytes(), (image.size, angle, tx, ty, scale, shear)


def test_affine_of_both_generations(render, images):
    """Where a place falls on the middle of a pixel, the last bit of the matrix decides, and torchvision's two generations
    round it in different ways. The object says which one it is of."""
    vision = import_torchvision().transforms
    differ = 0
    for options in ({"degrees": (180, 180)}, {"degrees": (45, 45), "fill": 9}, {"degrees": 0, "shear": (45, 45)}):
        made = []
        for m in (vision, vision.v2):
            transform = m.RandomAffine(**options, interpolation=vision.InterpolationMode.BILINEAR)
            for image in images:
                got = render(_transform.text([transform, m.CenterCrop(70)]), [image])
                made.append(np.asarray(center_crop(transform(image), 70, 70)).tobytes())
                assert got == made[-1], (transform, image.size)
        differ += sum(one != two for one, two in zip(made, made[len(images) :]))
    assert differ > 0


@pytest.mark.parametrize("options", AFFINE)
def test_random_affine_draws_as_torchvision(build, options):
    """Every parameter against 20000 of torchvision's own."""
    v2 = import_torchvision().transforms.v2
    ours = choices(build, ["RandomAffine", options])
    theirs, image = v2.RandomAffine(**options), Image.new("RGB", (64, 48))
    torch.manual_seed(4)
    made = []
    for _ in range(20000):
        p = theirs.make_params([image])
        made.append([p["angle"], *p["translate"], p["scale"], *p["shear"]])
    made = np.array(made)
    for column in range(6):
        same_distribution(ours[:, column], made[:, column])


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize(
    "options", [{}, {"distortion_scale": 0.2, "p": 0.9, "fill": [7, 8, 9]}, {"distortion_scale": 1, "p": 1, "fill": 3}]
)
def test_random_perspective(build, render, images, functional, mode, options):
    """Drawn corners; torchvision's perspective with them."""
    op = ["RandomPerspective", {"interpolation": mode, **options}]
    n_done = 0
    for n, image in enumerate(images):
        w, h = image.size
        for index in range(n, 30, 5):
            done, *corners = choices(build, op, image.size, 1, index)[0].astype(int)
            want = image
            if done:
                want = functional.perspective(
                    image,
                    [[0, 0], [w - 1, 0], [w - 1, h - 1], [0, h - 1]],
                    np.reshape(corners, (4, 2)).tolist(),
                    import_torchvision().transforms.InterpolationMode(mode),
                    options.get("fill", 0),
                )
            assert (
                render([op, ["CenterCrop", 50]], [image], index=index)
                == np.asarray(center_crop(want, 50, 50)).tobytes()
            )
            n_done += done
    assert n_done


def test_random_perspective_draws_as_torchvision(build):
    """Each corner uniform over its box, as torchvision's randint; none leaves the image."""
    chosen = choices(build, ["RandomPerspective", 0.6, 0.3], (64, 48)).astype(int)
    happened(chosen, 0.3)
    x, y = int(0.6 * 32) + 1, int(0.6 * 24) + 1
    lows = [(0, 0), (64 - x, 0), (64 - x, 48 - y), (0, 48 - y)]
    for corner, (left, top) in enumerate(lows):
        for column, (low, n) in enumerate(((left, x), (top, y))):
            values = chosen[:, 1 + 2 * corner + column] - low
            assert values.min() == 0 and values.max() == n - 1
            evenly_spread(np.bincount(values, minlength=n))


def test_perspective_of_one_row_changes_nothing(render):
    image = Image.fromarray(np.arange(60, dtype=np.uint8).reshape(1, 20, 3))
    assert render([["RandomPerspective", 0.5, 1], ["CenterCrop", [1, 20]]], [image]) == image.tobytes()


@pytest.mark.parametrize(
    "ops,message",
    [
        ([["RandomRotation", {"degrees": 30, "expand": True}]], "'RandomRotation'.*size"),
        ([["RandomRotation"]], "argument 'degrees' is missing"),
        ([["RandomRotation", 10, "lanczos"]], "interpolation.*nearest"),
        ([["RandomAffine", 10, [0.5, 1.5]]], "argument 'translate'"),
        ([["RandomAffine", 10, None, [0, 2]]], "argument 'scale'"),
        ([["RandomAffine", {"degrees": 1, "shear": [3, 1]}]], "argument 'shear'"),
        ([["RandomPerspective", 1.5]], "argument 'distortion_scale'"),
        ([["Pad", -1.5]], "argument 'padding'.*-8192 to 8192 pixels"),
        ([["RandomCrop", 4, -1]], "argument 'padding'.* 0 to 8192 pixels"),
        ([["Pad", [-4, 0]]], "'Pad' leaves nothing of the 8 x 8 pixels"),
        ([["RandomPosterize", 9]], "argument 'bits'"),
        ([["RandomPosterize"]], "argument 'bits' is missing"),
        ([["RandomSolarize"]], "argument 'threshold' is missing"),
        ([["GaussianBlur", 4]], "argument 'kernel_size' is 4"),
        ([["GaussianBlur"]], "argument 'kernel_size' is missing"),
        ([["GaussianBlur", 3, 0]], "argument 'sigma'"),
        ([["GaussianBlur", 3, [2, 1]]], "argument 'sigma'"),
        ([["PillowGaussianBlur", -1]], "argument 'radius'"),
        ([["Sharpness"]], "argument 'factor' is missing"),
        (["Grayscale", ["RandomRotation", {"degrees": 3, "fill": [1, 2, 3]}]], "fill must be one number"),
    ],
)
def test_wrong_arguments_are_named(render, ops, message):
    with pytest.raises(AssertionError, match=message):
        before = [] if "expand" in str(ops) else [["CenterCrop", 8]]
        render([*before, *ops], [Image.new("RGB", (9, 9))])


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
@pytest.mark.parametrize("padding", [-1, [-3], [-5, 8], [-2, 3, 1, -4], [-2, 90, 300, -4], [-49, 0, 0, -39]])
def test_negative_padding_crops(render, images, functional, mode, padding):
    """As torchvision's on Pillow's images: a side that is cropped is not reflected. Behind a resize and flips, which are still to be made, too."""
    fill = [9, 250, 3]
    before = [
        ["RandomHorizontalFlip", 1.0],
        ["Resize", {"size": [40, 50], "pillow": PILLOW}],
        ["RandomVerticalFlip", 1.0],
    ]
    ops = [*before, ["Pad", padding, fill, mode], ["CenterCrop", [30, 40]]]

    def reference(image):
        image = ImageOps.flip(ImageOps.mirror(image).resize((50, 40), Image.Resampling.BILINEAR))
        return center_crop(functional.pad(image, padding, tuple(fill), mode), 30, 40)

    compare(render, images, ops, reference)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
def test_padding_that_leaves_nothing_is_refused(render, functional, mode):
    """With the pipeline where it knows the size, else with the picture. torchvision pads what is left of nothing only
    with a constant, and then there is but the fill."""
    image = Image.new("RGB", (9, 7), (50, 60, 70))
    for padding in (-4, [0, 4, 0, -12], [-5, -1, -4, 0]):
        with pytest.raises(AssertionError, match="9 x 7 pixels, of which Pad with negative padding leaves none"):
            render([NO_PREFIX, ["Pad", padding, 3, mode], ["CenterCrop", 8]], [image])
    ops = [["Pad", [-9, 2, 4, 0], 3, mode], ["CenterCrop", 8]]
    if mode == "constant":
        compare(render, [image], ops, lambda i: center_crop(functional.pad(i, [-9, 2, 4, 0], 3), 8, 8))
    else:
        with pytest.raises(AssertionError, match="leaves none"):
            render([NO_PREFIX, *ops], [image])


@pytest.mark.parametrize("name", ["lanczos", "box", "hamming", "nearest-exact"])
def test_resize_by_pillows_other_filters(render, images, name):
    """Resize and RandomResizedCrop by every name of torchvision's InterpolationMode."""
    f = Image.Resampling.NEAREST if name == "nearest-exact" else Image.Resampling[name.upper()]
    for size in ((20, 33), (100, 130)):
        want = b"".join(np.asarray(ImageOps.mirror(i).resize(size[::-1], f)).tobytes() for i in images)
        assert render([["RandomHorizontalFlip", 1], ["Resize", size, name]], images) == want
    op = ["RandomResizedCrop", {"size": 32, "scale": [1, 1], "ratio": [64 / 48, 64 / 48], "interpolation": name}]
    assert render([op], images[:1]) == images[0].resize((32, 32), f).tobytes()


@pytest.mark.parametrize("options", [{"size": [20, 33]}, {"size": 40, "max_size": 50}, {"size": None, "max_size": 45}])
def test_resize_draws_its_filter(build, render, images, functional, options):
    """As RandomResizedCrop does: bilinear or bicubic, each for half of the images. Beginning a pipeline it is none of the
    ops whose pixels are kept for all epochs."""
    op = ["Resize", {**options, "interpolation": "random", "pillow": PILLOW}]
    chosen = choices(build, op).astype(int)
    assert set(chosen[:, 0]) == {2, 3}
    evenly_spread(np.bincount(chosen[:, 0])[2:])
    modes = {2: "bilinear", 3: "bicubic"}
    mode = import_torchvision().transforms.InterpolationMode
    for index in range(24):
        image = images[index % len(images)]
        want = functional.resize(image, options["size"], mode(modes[chosen[index, 0]]), options.get("max_size"))
        got = render([op, ["CenterCrop", 30]], [image], index=index)
        assert got == np.asarray(center_crop(want, 30, 30)).tobytes(), (image.size, index)

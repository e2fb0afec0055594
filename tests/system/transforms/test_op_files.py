"""Each deterministic op over a grid of its arguments, from the file on: photographs and odd files, decoded and changed, byte
for byte what Pillow and torchvision make of the opened file."""

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from test_pixels import NO_PREFIX, PILLOW, center_crop, pillow_opens, render, resize_shorter  # noqa: F401
from vision import import_torchvision

pytest.importorskip("torch")
PX = 72


def functional():
    return import_torchvision().transforms.v2.functional


def mode(name):
    return import_torchvision().transforms.InterpolationMode(name)


def enhanced(kind):
    return lambda i, factor: kind(i).enhance(factor)


def added(image, add, threshold=128):
    return image.point([min(255, v + add) if v < threshold else v for v in range(256)] * 3)


def rotated(image, angle, name, fill):
    return functional().rotate(image, angle, mode(name), fill=fill)


def affine(image, angle, shear, name, fill):
    return functional().affine(image, angle, [0, 0], 1.0, [shear, 0.0], mode(name), fill)


# op: (how it stands in a pipeline for an argument, the same by Pillow or torchvision, arguments)
GRID = {
    "Invert": (lambda: ["Invert"], ImageOps.invert, [()]),
    "Posterize": (lambda n: ["Posterize", n], ImageOps.posterize, [(n,) for n in range(1, 9)]),
    "Solarize": (lambda t: ["Solarize", t], ImageOps.solarize, [(0,), (1,), (77.5,), (128,), (255,), (256,)]),
    "SolarizeAdd": (lambda *a: ["SolarizeAdd", *a], added, [(0,), (40,), (110, 90), (128, 256)]),
    "AutoContrast": (lambda: ["AutoContrast"], ImageOps.autocontrast, [()]),
    "Equalize": (lambda: ["Equalize"], ImageOps.equalize, [()]),
    **{
        name: (
            lambda f, name=name: [name, f],
            enhanced(getattr(ImageEnhance, name)),
            [(0.0,), (0.1,), (0.7,), (1.9,), (3.5,)],
        )
        for name in ("Brightness", "Color", "Contrast", "Sharpness")
    },
    "PillowGaussianBlur": (
        lambda r: ["PillowGaussianBlur", r],
        lambda i, r: i.filter(ImageFilter.GaussianBlur(r)),
        [(0.1,), (0.7,), (1.3,), (2.0,), (7.5,)],
    ),
    "Grayscale": (lambda: ["Grayscale", 3], lambda i: i.convert("L").convert("RGB"), [()]),
    "Resize": (
        lambda n, f: ["Resize", {"size": n, "interpolation": f, "pillow": PILLOW}],
        lambda i, n, f: resize_shorter(i, n, None, Image.Resampling[f.upper()]),
        [(40, "bilinear"), (90, "bicubic"), (64, "lanczos"), (33, "box"), (64, "hamming"), (50, "nearest")],
    ),
    "Pad": (
        lambda p, how: ["Pad", {"padding": p, "fill": [9, 99, 199], "padding_mode": how}],
        lambda i, p, how: functional().pad(i, p, [9, 99, 199] if how == "constant" else None, how),
        [([3, 5, 7, 9], "constant"), (2, "edge"), (1, "reflect"), (1, "symmetric"), ([-2, 3, 1, -4], "reflect")],
    ),
    "RandomRotation": (
        lambda a, f, fill: ["RandomRotation", {"degrees": [a, a], "interpolation": f, "fill": fill}],
        rotated,
        [(90, "nearest", 0), (-13.5, "bilinear", 7), (30, "bicubic", [1, 2, 3]), (180, "bilinear", 0)],
    ),
    "RandomAffine": (
        lambda a, s, f, fill: ["RandomAffine", {"degrees": [a, a], "shear": [s, s], "interpolation": f, "fill": fill}],
        affine,
        [(0, 16.5, "nearest", 5), (10, 0.0, "bilinear", 0), (-30, 8.25, "bicubic", [200, 1, 90])],
    ),
}


@pytest.fixture(scope="module")
def files(photos, odd):
    """Photographs of several sizes, and every odd file that Pillow opens and that is large enough for each op."""
    found = [(f, pillow_opens(f)) for f in [*sorted(photos.glob("*/*"))[::90], *sorted(odd.iterdir())]]
    found = [(f, i) for f, i in found if i is not None and min(i.size) > 8 and i.width * i.height < 4_000_000]
    assert len(found) > 14
    return found


@pytest.mark.parametrize("op", GRID)
def test_an_op_from_the_file_on(render, files, op):  # noqa: F811
    words, reference, grid = GRID[op]
    for arguments in grid:
        ops = [NO_PREFIX, words(*arguments), ["CenterCrop", PX]]
        got = np.frombuffer(render(ops, [f for f, _ in files]), np.uint8).reshape(len(files), PX, PX, 3)
        for (file, image), row in zip(files, got):
            want = np.asarray(center_crop(reference(image, *arguments), PX, PX))
            assert np.array_equal(row, want), (file.name, arguments, np.abs(row.astype(int) - want).max())

"""The pixel functions of augmentations against Pillow and torchvision: every result byte for byte, on each path of the
processor, for images of every awkward shape. Only torchvision's Gaussian blur may differ by 1."""

import random
import subprocess

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from vision import import_torchvision

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # more would wait for each other

PATHS = ("plain", "avx2", "avx512")
FILTERS = {0: Image.Resampling.NEAREST, 2: Image.Resampling.BILINEAR, 3: Image.Resampling.BICUBIC}


class Pixels:
    """The test tool: one process for many images."""

    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, op, path, image, *args):
        head = [op, path, image.width, image.height, len(args), *(float(a).hex() for a in args)]
        self.process.stdin.write(" ".join(map(str, head)).encode() + b"\n" + image.convert("RGB").tobytes())
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"{op}{args} of {image.size} ended the tool"
        width, height = map(int, line.split())
        return np.frombuffer(self.process.stdout.read(width * height * 3), np.uint8).reshape(height, width, 3)

    def close(self):
        self.process.stdin.close()
        assert self.process.wait() == 0


@pytest.fixture(scope="module")
def pixels(build):
    path = build / "tests" / "tools" / "pixels"
    if not path.exists():
        pytest.skip(f"{path} is not built")
    p = Pixels(path)
    yield p
    p.close()


def noise(rng, width, height):
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8))


@pytest.fixture(scope="module")
def images():
    """Noise of awkward shapes, extreme and constant values, one channel, ramps, and few values of each."""
    rng = np.random.default_rng(3)
    sizes = [(1, 1), (1, 7), (9, 1), (2, 2), (2, 5), (3, 3), (4, 3), (17, 16), (33, 50), (131, 90), (64, 64)]
    made = [noise(rng, *size) for size in sizes]
    made.append(Image.fromarray((rng.integers(0, 2, (40, 45, 3)) * 255).astype(np.uint8)))
    made += [Image.new("RGB", (20, 31), color) for color in ((0, 0, 0), (255, 255, 255), (7, 128, 200))]
    made.append(Image.fromarray(rng.integers(90, 140, (50, 60), np.uint8)))  # mode L
    made.append(
        Image.fromarray(
            np.stack([*np.meshgrid(np.arange(256), np.arange(64)), np.full((64, 256), 9)], -1).astype(np.uint8)
        )
    )
    rare = np.full((61, 59, 3), 100, np.uint8)  # nearly constant: steps of equalize at their limits
    rare[0, 0], rare[5, 5, 1], rare[60, 58] = 3, 250, 101
    made.append(Image.fromarray(rare))
    return made


@pytest.fixture(scope="module")
def pictures(images, photos, odd):
    """The made images, some photographs, and the odd files that Pillow opens."""
    files = sorted(photos.glob("*/*"))[::150] + sorted(odd.iterdir())
    return images + [i for i in map(opened, files) if i]


def opened(file):
    try:
        image = Image.open(file)
        image = image.convert("L" if image.mode == "L" else "RGB")
    except Exception:  # any exception of Pillow
        return None
    return image.crop((0, 0, min(image.width, 300), min(image.height, 200)))


def compare(pixels, images, op, args, reference):
    for image in images:
        want = np.asarray(reference(image).convert("RGB"))
        for path in PATHS:
            got = pixels(op, path, image, *args)
            assert got.shape == want.shape, (op, args, image.size, path)
            differ = np.argwhere((got != want).any(-1))
            assert not len(differ), (
                f"{op}{args} of {image.size} {image.mode}, {path}: {len(differ)} pixels differ, first at {differ[0]}: "
                f"{got[tuple(differ[0])]} instead of {want[tuple(differ[0])]}"
            )


def test_invert(pixels, pictures):
    compare(pixels, pictures, "invert", (), ImageOps.invert)


@pytest.mark.parametrize("bits", range(1, 9))
def test_posterize(pixels, pictures, bits):
    compare(pixels, pictures, "posterize", (bits,), lambda i: ImageOps.posterize(i, bits))


def test_posterize_to_no_bits_is_black(pixels, images):
    """The meaning that Pillow had up to version 12: its table of 8 - 0 masked bits."""
    compare(pixels, images, "posterize", (0,), lambda i: i.point(lambda v: v & ~255))


@pytest.mark.parametrize("threshold", [-3, 0, 0.5, 1, 77.7, 128, 254.5, 255, 255.5, 256, 300])
def test_solarize(pixels, pictures, threshold):
    compare(pixels, pictures, "solarize", (threshold,), lambda i: ImageOps.solarize(i, threshold))


@pytest.mark.parametrize(
    "add,threshold", [(0, 128), (10, 128), (110, 128), (128, 128), (255, 0), (60, 256), (200, 200)]
)
def test_solarize_add(pixels, pictures, add, threshold):
    """timm's function, which is a table of Pillow's point."""
    table = [min(255, v + add) if v < threshold else v for v in range(256)]
    compare(pixels, pictures, "solarize_add", (add, threshold), lambda i: i.point(table * len(i.getbands())))


def test_autocontrast(pixels, pictures):
    compare(pixels, pictures, "autocontrast", (), ImageOps.autocontrast)


def test_equalize(pixels, pictures):
    compare(pixels, pictures, "equalize", (), ImageOps.equalize)


def test_histograms_of_every_kind(pixels):
    """300 images of few pixels or few values: all the roundings of the tables of autocontrast and equalize."""
    rng = np.random.default_rng(8)
    images = []
    for _ in range(300):
        low, high = sorted(rng.integers(0, 256, 2))
        width, height = rng.integers(1, 60, 2)
        images.append(Image.fromarray(rng.integers(low, high + 1, (height, width, 3)).astype(np.uint8)))
    compare(pixels, images, "autocontrast", (), ImageOps.autocontrast)
    compare(pixels, images, "equalize", (), ImageOps.equalize)


FACTORS = [0.0, 0.1, 0.5, 0.9999, 1.0, 1.0001, 1.9, 2.0, 17.5]
ENHANCE = {
    "brightness": ImageEnhance.Brightness,
    "contrast": ImageEnhance.Contrast,
    "color": ImageEnhance.Color,
    "sharpness": ImageEnhance.Sharpness,
}


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("op", ENHANCE)
def test_enhancements(pixels, pictures, op, factor):
    compare(pixels, pictures, op, (np.float32(factor),), lambda i: ENHANCE[op](i).enhance(factor))


def test_gray(pixels, pictures):
    """Every colour's grey as well: all values of two channels with some of the third."""
    cube = np.stack(np.meshgrid(np.arange(256), np.arange(256), np.arange(0, 256, 17)), -1).astype(np.uint8)
    everything = Image.fromarray(cube.reshape(256, -1, 3))
    compare(pixels, [*pictures, everything], "gray", (), lambda i: i.convert("L"))


RADII = [0.0, 0.05, 0.1, 0.5, 0.7, 1.0, 1.3, 2.0, 2.5, 3.7, 8.0, 25.0, 140.0]
UNEVEN_RADII = [(0, 0.6), (0, 2.2), (1.7, 0), (0.3, 9), (0.4, 1.9)]


@pytest.mark.parametrize("radius", RADII + UNEVEN_RADII)
def test_pillow_blur(pixels, pictures, radius):
    """Also radii far larger than the image."""
    x, y = radius if isinstance(radius, tuple) else (radius, radius)
    compare(pixels, pictures, "pillow_blur", (x, y), lambda i: i.filter(ImageFilter.GaussianBlur(radius)))


@pytest.mark.parametrize("seed", range(3))
def test_pillow_blur_of_drawn_radii(pixels, images, seed):
    """Radii as augmentations draw them: each has weights of its own."""
    rng = random.Random(seed)
    for _ in range(40):
        radius = rng.uniform(0.1, 2.0) if rng.random() < 0.7 else rng.uniform(0.01, 12)
        compare(
            pixels,
            [images[8], images[16]],
            "pillow_blur",
            (radius,) * 2,
            lambda i: i.filter(ImageFilter.GaussianBlur(radius)),
        )


def lowest(size):
    return (size // 2) + 1


@pytest.mark.parametrize("size", [(1, 1), (3, 3), (5, 9), (9, 9), (23, 23), (13, 1)])
def test_torchvision_blur_is_within_one(pixels, pictures, size):
    """Every value within 1, and all but a few equal; both paths give the same bytes."""
    vision = import_torchvision()
    for sigma in ((0.1, 0.1), (0.5, 0.5), (1.3, 1.3), (2.0, 0.7), (9.0, 9.0)):
        n_all = n_differ = 0
        for image in pictures:
            if image.width < lowest(size[0]) or image.height < lowest(size[1]):
                continue
            want = np.asarray(
                vision.transforms.v2.functional.gaussian_blur(image, list(size), list(sigma)).convert("RGB")
            ).astype(int)
            plain, *simd = (pixels("torchvision_blur", path, image, *size, *sigma) for path in PATHS)
            assert all(np.array_equal(plain, other) for other in simd), (size, sigma, image.size)
            assert np.abs(plain - want).max() <= 1, (size, sigma, image.size)
            n_all += want.size
            n_differ += (plain != want).sum()
        assert n_differ <= n_all * 1e-3, (size, sigma, n_differ, n_all)


def color(image, fill):
    """fill as Pillow takes it for the image's mode; a grey image has one number."""
    return fill[0] if image.mode == "L" else tuple(fill)


def fills(images):
    for image in images:
        yield image, [11, 11, 11] if image.mode == "L" else [11, 200, 3]


MATRICES = [
    (1, 0, 0, 0, 1, 0),
    (1, 0, 3, 0, 1, -2),
    (1, 0, -9, 0, 1, 4),
    (1, 0, -200, 0, 1, 1),
    (1, 0, 1, 0, 1, 500),
    (1, 0, -1e6, 0, 1, 1e6),
    (1, 0, 2.5, 0, 1, -1.25),
    (0.5, 0, 0, 0, 0.5, 0),
    (1.7, 0, -3, 0, 0.3, 4),
    (-1, 0, 30, 0, 1, 0),
    (1 / 3, 0, 0.1, 0, 1 / 7, 0.1),
    (1, 0.3, 0, 0, 1, 0),  # timm's shear
    (1, 0, 0, -0.99, 1, 0),
    (0.866, 0.5, -5.3, -0.5, 0.866, 7.7),
    (0.1, -2.3, 40, 3.1, 0.2, -20),
    (1, 0.001, 32767.6, 0, 1, 0),  # outside the fixed point's range
    (900.5, 0.25, -3e4, 0.5, 1, 0),
    (1, 1e-9, 0, 1e-9, 1, 0),
    (0, 1, 0, 1, 0, 0),
    (0, 0.5, 3, 0, 0, 4),
]


@pytest.mark.parametrize("f", FILTERS)
@pytest.mark.parametrize("matrix", MATRICES)
def test_affine_transforms(pixels, pictures, f, matrix):
    """Pillow's three ways for nearest neighbour, and its filters, into the same size and into another one."""
    for image, fill in fills(pictures):
        for size in {image.size, (37, 29)}:
            compare(
                pixels,
                [image],
                "transform",
                (*size, 0, f, *fill, *matrix, 0, 0),
                lambda i: i.transform(size, Image.Transform.AFFINE, matrix, FILTERS[f], fillcolor=color(i, fill)),
            )


@pytest.mark.parametrize("f", FILTERS)
@pytest.mark.parametrize("seed", range(3))
def test_random_affine_transforms(pixels, images, f, seed):
    """200 random matrices: steps and offsets of every size."""
    rng = random.Random(seed)
    for _ in range(200):
        image = rng.choice(images)
        scale = 10 ** rng.uniform(-2, 1.5)
        matrix = [rng.uniform(-scale, scale) for _ in range(6)]
        matrix[2] *= image.width
        matrix[5] *= image.height
        size = (rng.randint(1, 60), rng.randint(1, 60))
        fill = [5, 5, 5]
        compare(
            pixels,
            [image],
            "transform",
            (*size, 0, f, *fill, *matrix, 0, 0),
            lambda i: i.transform(size, Image.Transform.AFFINE, matrix, FILTERS[f], fillcolor=color(i, fill)),
        )


@pytest.mark.parametrize("f", FILTERS)
@pytest.mark.parametrize("seed", range(3))
def test_random_perspective_transforms(pixels, images, f, seed):
    """Any eight numbers, horizons inside the image included, where coordinates are infinite."""
    rng = random.Random(seed)
    for k in range(150):
        image = rng.choice(images)
        m = [rng.uniform(-2, 2) for _ in range(6)] + [rng.uniform(-0.05, 0.05) for _ in range(2)]
        if k % 5 == 0:
            m[6:] = [-1 / (rng.randint(0, 9) + 0.5), 0]  # the horizon is a column of pixels
        if k % 10 == 0:
            m[0:3] = [-m[6] * 3, 0, -3]  # and x is not a number there
        compare(
            pixels,
            [image],
            "transform",
            (*image.size, 1, f, 9, 9, 9, *m),
            lambda i: i.transform(i.size, Image.Transform.PERSPECTIVE, m, FILTERS[f], fillcolor=color(i, [9, 9, 9])),
        )


@pytest.mark.parametrize("f,mode", [(0, "nearest"), (2, "bilinear"), (3, "bicubic")])
def test_affine_equals_torchvision(pixels, pictures, f, mode):
    """torchvision v2's affine: angle, translation, scale and shears, about the middle or another centre."""
    vision = import_torchvision().transforms
    rng = random.Random(f)
    for k, (image, fill) in enumerate(fills(pictures)):
        for _ in range(6):
            angle, scale = rng.uniform(-180, 180), rng.uniform(0.3, 2.5)
            translate = [rng.randint(-9, 9), rng.randint(-9, 9)]
            shear = [rng.uniform(-50, 50), rng.choice([0.0, rng.uniform(-50, 50)])]
            center = [rng.uniform(0, 50), rng.uniform(0, 50)] if rng.random() < 0.4 else None
            at = center or [image.width * 0.5, image.height * 0.5]
            compare(
                pixels,
                [image],
                "affine",
                (angle, *translate, scale, *shear, *at, f, *fill),
                lambda i: vision.v2.functional.affine(
                    i,
                    angle,
                    translate,
                    scale,
                    shear,
                    vision.InterpolationMode(mode),
                    fill=fill if i.mode == "RGB" else fill[:1],
                    center=center,
                ),
            )


ANGLES = [0, 90, 180, 270, 360, -90, 720, 45, 30, -17.25, 1e-3, 89.999999, 135.5, 359.9]


@pytest.mark.parametrize("f", FILTERS)
def test_rotation(pixels, pictures, f):
    """Pillow's rotate: whole turns, which move pixels, and others; the size kept or expanded; any centre."""
    for image, fill in fills(pictures):
        for angle in ANGLES:
            for expand in (False, True):
                for center in (None, (3.5, 2)):
                    args = (angle, expand, center is not None, *(center or (0, 0)), f, *fill)
                    compare(
                        pixels,
                        [image],
                        "rotate",
                        args,
                        lambda i: i.rotate(angle, FILTERS[f], expand, center, fillcolor=color(i, fill)),
                    )


@pytest.mark.parametrize("f,mode", [(0, "nearest"), (2, "bilinear"), (3, "bicubic")])
def test_perspective_equals_torchvision(pixels, pictures, f, mode):
    """The corners moved as RandomPerspective moves them. torchvision's least squares leave noise around 1e-17 where the
    exact solution is 0, as some do that map pixels of tiny images to pixels; there values may
    be truncated to one less."""
    vision = import_torchvision().transforms
    rng = random.Random(f)
    for image, fill in fills(pictures):
        w, h = image.size
        if w < 3 or h < 3:
            continue
        for _ in range(4):
            bw, bh = int(0.6 * (w // 2)) + 1, int(0.6 * (h // 2)) + 1
            start = [[0, 0], [w - 1, 0], [w - 1, h - 1], [0, h - 1]]
            end = [
                [rng.randrange(bw), rng.randrange(bh)],
                [rng.randrange(w - bw, w), rng.randrange(bh)],
                [rng.randrange(w - bw, w), rng.randrange(h - bh, h)],
                [rng.randrange(bw), rng.randrange(h - bh, h)],
            ]
            corners = [v for corner in start + end for v in corner]
            want = vision.v2.functional.perspective(
                image, start, end, vision.InterpolationMode(mode), fill=fill if image.mode == "RGB" else fill[:1]
            )
            want = np.asarray(want.convert("RGB")).astype(int)
            for path in PATHS:
                got = pixels("perspective", path, image, *corners, f, *fill)
                most = 1 if min(w, h) < 12 and f else 0
                assert np.abs(got - want).max() <= most, (image.size, start, end, path)

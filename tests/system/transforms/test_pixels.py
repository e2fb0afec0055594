"""Pixels against Pillow and torch: resampling, the deterministic ops, colour, and the numbers of finished rows, all byte for byte."""

import json
import random
import subprocess
import warnings

import numpy as np
import PIL
import pytest
from PIL import Image, ImageEnhance, ImageOps

torch = pytest.importorskip("torch")
warnings.simplefilter("ignore")

# Pillow 13 changed the order of its two passes for some shapes; ours implements both. 12.2 and 12.3 have an order of
# their own for images more than a hundred times as tall as wide, which do not occur.
PILLOW = min(13, max(12, int(PIL.__version__.split(".")[0])))
HAS_TOWERS = PIL.__version__.startswith(("12.2.", "12.3."))
FILTERS = {int(f): f for f in list(Image.Resampling) if f < 6}
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
NO_PREFIX = ["RandomHorizontalFlip", 0]  # raw images are prefixes; before this op there is none


def tool(build, name):
    path = build / "tests" / "tools" / name
    if not path.exists():
        pytest.skip(f"{path} is not built")
    return path


class Resampler:
    """The resampler's test tool: one process for many images."""

    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, path, f, pixels, box, size, keep, flip, order=13 - PILLOW):
        height, width = pixels.shape[:2]
        head = [path, f, order, width, height, *box, *size, *keep, int(flip)]
        self.process.stdin.write(" ".join(map(str, head)).encode() + b"\n" + pixels.tobytes())
        self.process.stdin.flush()
        got = self.process.stdout.read(keep[2] * keep[3] * 3)
        return np.frombuffer(got, np.uint8).reshape(keep[3], keep[2], 3)

    def close(self):
        self.process.stdin.close()
        assert self.process.wait() == 0


@pytest.fixture(scope="module")
def resampler(build):
    r = Resampler(tool(build, "resample"))
    yield r
    r.close()


@pytest.fixture(scope="module")
def paths(build):
    return subprocess.run(
        [tool(build, "resample"), "--paths"], capture_output=True, text=True, check=True
    ).stdout.split()


def random_case(rng):
    width, height = (rng.randint(1, rng.choice([4, 20, 100, 500])) for _ in range(2))
    box_w, box_h = rng.randint(1, width), rng.randint(1, height)
    out = [rng.randint(1, rng.choice([4, 40, 230, 400])) for _ in range(2)]
    if rng.random() < 0.1:
        out[0] = box_w
    if rng.random() < 0.1:
        out[1] = box_h
    keep_w, keep_h = out if rng.random() < 0.5 else [rng.randint(1, n) for n in out]
    return dict(
        size=(width, height),
        f=rng.choice(list(FILTERS)),
        out=tuple(out),
        flip=rng.random() < 0.5,
        box=(rng.randint(0, width - box_w), rng.randint(0, height - box_h), box_w, box_h),
        keep=(rng.randint(0, out[0] - keep_w), rng.randint(0, out[1] - keep_h), keep_w, keep_h),
        extreme=rng.random() < 0.3,
    )


def pillow_resized(image, f, box, out, keep, flip):
    x, y, w, h = box
    made = np.asarray(image.crop((x, y, x + w, y + h)).resize(out, FILTERS[f]))
    made = made[keep[1] : keep[1] + keep[3], keep[0] : keep[0] + keep[2]]
    return made[:, ::-1] if flip else made


@pytest.mark.parametrize("seed", range(6))
def test_resampling_equals_pillow_on_every_path(resampler, paths, seed):
    """100 random sizes, boxes, filters and kept parts each; noise, and noise of black and white that makes bicubic overshoot."""
    rng = random.Random(seed)
    for _ in range(100):
        case = random_case(rng)
        if HAS_TOWERS and case["box"][3] > 100 * case["box"][2]:
            continue
        width, height = case["size"]
        pixels = np.frombuffer(rng.randbytes(width * height * 3), np.uint8).reshape(height, width, 3)
        if case["extreme"]:
            pixels = (pixels > 127).astype(np.uint8) * 255
        want = pillow_resized(Image.fromarray(pixels), case["f"], case["box"], case["out"], case["keep"], case["flip"])
        for path in paths:
            got = resampler(path, case["f"], pixels, case["box"], case["out"], case["keep"], case["flip"])
            assert np.array_equal(got, want), (path, case)


@pytest.mark.parametrize("size", [(224, 224), (256, 341), (97, 63), (640, 480)])
def test_photographs_resample_as_pillow_does(resampler, paths, photos, size):
    """Real pictures, shrunk and enlarged, by every path and filter."""
    for file in sorted(photos.glob("*/*"))[::80]:
        image = Image.open(file).convert("RGB")
        box, keep = (0, 0, *image.size), (0, 0, *size)
        for f in FILTERS:
            want = pillow_resized(image, f, box, size, keep, False)
            for path in paths:
                assert np.array_equal(resampler(path, f, np.asarray(image), box, size, keep, False), want), (
                    file,
                    f,
                    path,
                )


class Render:
    def __init__(self, path, folder):
        self.path, self.folder = path, folder

    def __call__(self, ops, inputs, dtype="uint8", layout="NHWC", seed=0, epoch=0, index=0, options=()):
        """inputs: files, or images that are written as raw pixels."""
        names = [self.raw(i, x) if isinstance(x, Image.Image) else str(x) for i, x in enumerate(inputs)]
        text = ops if isinstance(ops, str) else json.dumps(ops)
        done = subprocess.run(
            [self.path, *options, text, dtype, layout, str(seed), str(epoch), str(index), *names], capture_output=True
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    def raw(self, i, image):
        file = self.folder / f"{i}.rgb"
        file.write_bytes(image.convert("RGB").tobytes())
        return f"{image.width}x{image.height}:{file}"


@pytest.fixture
def render(build, tmp_path):
    return Render(tool(build, "render"), tmp_path)


def resize_shorter(image, size, max_size=None, f=Image.Resampling.BILINEAR):
    """torchvision's Resize with one number."""
    short, long = sorted(image.size)
    new_short, new_long = size, int(size * long / short)
    if max_size is not None and new_long > max_size:
        new_short, new_long = int(max_size * new_short / new_long), max_size
    size = (new_short, new_long) if image.width <= image.height else (new_long, new_short)
    return image if size == image.size else image.resize(size, f)


def center_crop(image, height, width):
    """torchvision's CenterCrop: padded with black where the image is smaller."""
    if width > image.width or height > image.height:
        across, down = max(0, width - image.width), max(0, height - image.height)
        image = ImageOps.expand(image, (across // 2, down // 2, (across + 1) // 2, (down + 1) // 2), 0)
    top, left = int(round((image.height - height) / 2.0)), int(round((image.width - width) / 2.0))
    return image.crop((left, top, left + width, top + height))


def val224(image):
    return center_crop(resize_shorter(image, 256), 224, 224)


VAL224 = [["Resize", {"size": 256, "pillow": PILLOW}], ["CenterCrop", 224], "ToTensor", ["Normalize", MEAN, STD]]


def test_val224_equals_pillow_on_every_photograph(render, photos):
    """Decode, Resize(256), CenterCrop(224) of all photographs, by whole runs and by prefix and resume."""
    files = sorted(photos.glob("*/*"))
    assert len(files) >= 400
    want = np.stack([np.asarray(val224(Image.open(f).convert("RGB"))) for f in files])
    for options in (), ("--resume",):
        got = np.frombuffer(render(VAL224, files, options=options), np.uint8).reshape(want.shape)
        assert [str(f) for f, a, b in zip(files, got, want) if not np.array_equal(a, b)] == []


def pillow_opens(file):
    try:
        return Image.open(file).convert("RGB")
    except Exception:  # any exception of Pillow
        return None


def test_val224_equals_pillow_on_odd_files(render, odd):
    """Grey, CMYK, palette, transparent, rotated...: files that Pillow opens have Pillow's pixels; the others are an
    error with a text."""
    n_same = 0
    for file in sorted({*odd.iterdir()} - {odd / "png_decompression_dos.png"}):  # which Pillow refuses for its text
        image = pillow_opens(file)
        if image is None:
            with pytest.raises(AssertionError, match="render: .*: ."):
                render(VAL224, [file])
        else:
            assert render(VAL224, [file]) == val224(image).tobytes(), file.name
            n_same += 1
    assert n_same > 10


@pytest.mark.parametrize(
    "dtype,layout",
    [("float32", "NCHW"), ("float32", "NHWC"), ("float16", "NCHW"), ("float16", "NHWC"), ("uint8", "NCHW")],
)
def test_numbers_equal_torch(render, photos, dtype, layout):
    """ToTensor and Normalize in float32 bit for bit; float16 is that, rounded; uint8 is the pixels."""
    files = sorted(photos.glob("*/*"))[::60]
    pixels = (
        torch.stack([torch.from_numpy(np.array(val224(Image.open(f).convert("RGB")))) for f in files])
        .permute(0, 3, 1, 2)
        .contiguous()
    )
    numbers = pixels.float().div(255).sub(torch.tensor(MEAN).view(3, 1, 1)).div(torch.tensor(STD).view(3, 1, 1))
    want = {"float32": numbers, "float16": numbers.half(), "uint8": pixels}[dtype]
    want = want if layout == "NCHW" else want.permute(0, 2, 3, 1)
    assert render(VAL224, files, dtype, layout) == want.contiguous().numpy().tobytes()


@pytest.fixture(scope="module")
def images():
    """A few pictures with every kind of pixel, without needing the photographs."""
    rng = np.random.default_rng(5)
    noise = Image.fromarray(rng.integers(0, 256, (90, 131, 3), np.uint8))
    ramp = Image.fromarray(
        np.stack([*np.meshgrid(np.arange(256), np.arange(128)), np.full((128, 256), 77)], -1).astype(np.uint8)
    )
    flat = Image.new("RGB", (70, 99), (12, 200, 12))
    gray = Image.fromarray(rng.integers(0, 256, (64, 64), np.uint8)).convert("RGB")
    return [noise, ramp, flat, gray]


def compare(render, images, ops, reference):
    assert render([NO_PREFIX, *ops], images) == b"".join(np.asarray(reference(i)).tobytes() for i in images), ops


@pytest.mark.parametrize("name,f", [("nearest", 0), ("bilinear", 2), ("bicubic", 3)])
def test_resize(render, images, name, f):
    """Both edges, the shorter one, and with a limit to the longer one."""
    args = {"interpolation": name, "pillow": PILLOW}
    compare(render, images, [["Resize", {"size": [50, 73], **args}]], lambda i: i.resize((73, 50), FILTERS[f]))
    compare(
        render,
        images,
        [["Resize", {"size": 45, **args}], ["CenterCrop", 45]],
        lambda i: center_crop(resize_shorter(i, 45, f=FILTERS[f]), 45, 45),
    )
    compare(
        render,
        images,
        [["Resize", {"size": 45, "max_size": 50, **args}], ["CenterCrop", 45]],
        lambda i: center_crop(resize_shorter(i, 45, 50, FILTERS[f]), 45, 45),
    )


@pytest.mark.parametrize("size", [(1, 1), (64, 64), (65, 63), (90, 131), (91, 132), (200, 20), (301, 300)])
def test_center_crop_rounds_and_pads_as_torchvision(render, images, size):
    """Odd and even differences (halves go to the even side), and windows larger than the image."""
    compare(render, images, [["CenterCrop", list(size)]], lambda i: center_crop(i, *size))


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
@pytest.mark.parametrize("padding", [3, [10, 150], [0, 7, 33, 2]])
def test_pad(render, images, mode, padding):
    """All modes, also far more padding than there is image."""
    fill = [9, 250, 3]

    def reference(image):
        image = center_crop(image, 40, 50)
        p = [padding] * 4 if isinstance(padding, int) else (padding * 2)[:4]
        if mode == "constant":
            return ImageOps.expand(image, tuple(p), tuple(fill))
        return np.pad(np.asarray(image), ((p[1], p[3]), (p[0], p[2]), (0, 0)), mode)

    compare(render, images, [["CenterCrop", [40, 50]], ["Pad", padding, fill, mode]], reference)


def adjust_hue(image, factor):
    """Same as torchvision's, on PIL images."""
    h, s, v = image.convert("HSV").split()
    turned = np.array(h) + np.int32(factor * 255).astype(np.uint8)
    return Image.merge("HSV", (Image.fromarray(turned.astype(np.uint8)), s, v)).convert("RGB")


ENHANCE = {"brightness": ImageEnhance.Brightness, "contrast": ImageEnhance.Contrast, "saturation": ImageEnhance.Color}


@pytest.mark.parametrize("name", ENHANCE)
def test_enhancements_equal_pillow(render, images, name):
    """Fixed factors: none, less, the same, more, far too much."""
    for factor in (0.0, 0.1, 0.5, 0.9999, 1.0, 1.0001, 1.37, 2.0, 17.5):
        factor = float(np.float32(factor))
        compare(
            render,
            images,
            [["CenterCrop", 64], ["ColorJitter", {name: [factor, factor]}]],
            lambda i: ENHANCE[name](center_crop(i, 64, 64)).enhance(factor),
        )


def test_hue_equals_pillow(render, images):
    """Turns in both directions, through PIL's 8-bit HSV."""
    for factor in (-0.5, -0.3, -0.123, -0.004, 0.0039, 0.1, 0.25, 0.499, 0.5):
        factor = float(np.float32(factor))
        compare(
            render,
            images,
            [["CenterCrop", 64], ["ColorJitter", {"hue": [factor, factor]}]],
            lambda i: adjust_hue(center_crop(i, 64, 64), factor),
        )


def test_every_colour_survives_hue_as_in_pillow(render):
    """All values of two channels against all of a third's sixteenths: no colour where float and double roundings
    differ."""
    r, g, b = np.meshgrid(np.arange(256), np.arange(256), np.arange(0, 256, 15), indexing="ij")
    cube = Image.fromarray(np.stack([r, g, b], -1).astype(np.uint8).reshape(256, -1, 3))
    for factor in (0.0625, -0.4375):
        assert (
            render(
                [NO_PREFIX, ["CenterCrop", [cube.height, cube.width]], ["ColorJitter", {"hue": [factor, factor]}]],
                [cube],
            )
            == adjust_hue(cube, factor).tobytes()
        )
    for factor in (0.3, 1.7):
        assert (
            render(
                [
                    NO_PREFIX,
                    ["CenterCrop", [cube.height, cube.width]],
                    ["ColorJitter", {"saturation": [factor, factor]}],
                ],
                [cube],
            )
            == ImageEnhance.Color(cube).enhance(float(np.float32(factor))).tobytes()
        )


def test_grayscale(render, images):
    """Three equal channels, or one; later ops on one channel are those on a grey image."""
    compare(
        render,
        images,
        [["CenterCrop", 64], ["Grayscale", 3]],
        lambda i: center_crop(i, 64, 64).convert("L").convert("RGB"),
    )
    compare(render, images, [["CenterCrop", 64], "Grayscale"], lambda i: center_crop(i, 64, 64).convert("L"))
    compare(
        render,
        images,
        [["CenterCrop", 64], "Grayscale", ["ColorJitter", {"contrast": [1.5, 1.5]}], ["Pad", 2, 7]],
        lambda i: ImageOps.expand(ImageEnhance.Contrast(center_crop(i, 64, 64).convert("L")).enhance(1.5), 2, 7),
    )


def test_flips_between_other_ops_keep_their_place(render, images):
    """A flip before a resize differs from one after it, and a crop of a flipped picture is cut from its other side."""
    h, v = ["RandomHorizontalFlip", 1], ["RandomVerticalFlip", 1]

    def reference(image):
        image = ImageOps.mirror(center_crop(image, 60, 63)).resize((41, 37), Image.Resampling.BILINEAR)
        image = center_crop(ImageOps.flip(image), 30, 30)
        return ImageOps.mirror(image).resize((55, 44), Image.Resampling.BICUBIC)

    compare(
        render,
        images,
        [
            ["CenterCrop", [60, 63]],
            h,
            ["Resize", {"size": [37, 41], "pillow": PILLOW}],
            v,
            ["CenterCrop", 30],
            h,
            ["Resize", {"size": [44, 55], "interpolation": "bicubic", "pillow": PILLOW}],
        ],
        reference,
    )


def test_random_crops_are_crops(build, render, images):
    """RandomResizedCrop and RandomCrop give the pixels of the window that they report, for every order of the keys."""
    image = images[0]
    for index in range(40):
        window = choices(build, ["RandomResizedCrop", 32], image.size, 1, index=index)[0]
        x, y, w, h = map(int, window)
        got = render([["RandomResizedCrop", {"size": 32, "pillow": PILLOW}]], [image], index=index)
        assert got == image.crop((x, y, x + w, y + h)).resize((32, 32), Image.Resampling.BILINEAR).tobytes()
        left, top = map(int, choices(build, ["RandomCrop", 50, 9], image.size, 1, index=index)[0])
        got = render([["RandomCrop", 50, 9]], [image], index=index)
        assert got == ImageOps.expand(image, 9, 0).crop((left + 9, top + 9, left + 59, top + 59)).tobytes()


def choices(build, op, size, count, seed=0, epoch=0, index=0):
    """The op's choices for `count` samples: one list of texts each."""
    ops = [op] if op[0] in ("RandomResizedCrop", "RandomCrop") else [["CenterCrop", 8], op]
    out = subprocess.run(
        [
            tool(build, "render"),
            "--choices",
            json.dumps(ops),
            str(seed),
            str(epoch),
            str(index),
            str(count),
            *map(str, size),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [line.split() for line in out.splitlines()]


def test_train224_is_its_choices_applied(build, render, photos):
    """train224 end to end: the reported window and flip, cut by Pillow from the same file, resized, flipped; by prefix
    as well."""
    files = sorted(photos.glob("*/*"))[::25]
    ops = [
        ["RandomResizedCrop", {"size": 224, "pillow": PILLOW}],
        "RandomHorizontalFlip",
        "ToTensor",
        ["Normalize", MEAN, STD],
    ]
    got = np.frombuffer(render(ops, files, seed=3, epoch=5), np.uint8).reshape(-1, 224, 224, 3)
    resumed = render(ops, files, seed=3, epoch=5, options=("--resume",))
    assert resumed == got.tobytes()
    n_flipped = 0
    for index, (file, row) in enumerate(zip(files, got)):
        image = Image.open(file).convert("RGB")
        x, y, w, h = map(int, choices(build, ["RandomResizedCrop", 224], image.size, 1, 3, 5, index)[0])
        want = np.asarray(image.crop((x, y, x + w, y + h)).resize((224, 224), Image.Resampling.BILINEAR))
        flipped = np.array_equal(row, want[:, ::-1])
        assert flipped or np.array_equal(row, want), file
        n_flipped += flipped
    assert 0 < n_flipped < len(files)

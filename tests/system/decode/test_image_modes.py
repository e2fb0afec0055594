"""Images of one number for each pixel (Pillow's modes I;16, I and F), against Pillow and torchvision on the same files."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

import batchd
from pictures import chunk
from tiffs_by_hand import DEFLATE, LZW, PACKBITS, PLAIN, tiff
from vision import import_torchvision

DTYPES = {"I;16": "uint16", "I": "int32", "F": "float32"}
FILTERS = ["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"]  # by Pillow's numbers
SIZES = [(1, 1), (2, 3), (5, 7), (33, 31), (64, 3), (100, 75), (91, 160)]


def numbers(mode, width, height, seed=0):
    """The whole range of the mode, with hard edges, for which resampling overshoots."""
    rng = np.random.default_rng([seed, width, height])
    if mode == "F":
        values = (rng.standard_normal((height, width)) * 3000).astype(np.float32)
    elif mode == "I":
        values = rng.integers(-(2**20), 2**20, (height, width)).astype(np.int32)
    else:
        values = rng.integers(0, 65536, (height, width)).astype(np.uint16)
        values[::3] = values[::3] // 32768 * 65535
    return values


def written(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def opened(data, mode):
    """Upright, as a TIFF is when it is loaded. Pillow has no conversion from big endian I;16B to I;16 but one over 8 bits,
    so there its numbers are taken."""
    image = Image.open(io.BytesIO(data))
    image.load()
    if image.mode == "I;16B":
        image = Image.fromarray(np.asarray(image).astype(np.uint16))
    return image.convert(mode)


def load(data, transform, mode, **options):
    options = {"dtype": DTYPES[mode], "layout": "NHWC", "arrays": "numpy", **options}
    return batchd.load(data, transform, image_mode=mode, **options)


def same(ours, theirs, what):
    theirs = np.asarray(theirs)
    assert ours.shape[:2] == theirs.shape[:2] and ours.dtype == theirs.dtype, what
    assert ours[..., 0].tobytes() == theirs.tobytes(), (what, np.argwhere(ours[..., 0] != theirs)[:4])


def whole(data, mode):
    width, height = opened(data, mode).size
    return load(data, [["CenterCrop", [height, width]]], mode)


# ---- files ----


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"])
@pytest.mark.parametrize("mode", list(DTYPES))
def test_tiffs_that_pillow_writes(mode, compression):
    for size in SIZES:
        data = written(Image.fromarray(numbers(mode, *size)), "tiff", compression=compression)
        same(whole(data, mode), opened(data, mode), size)


@pytest.mark.parametrize("packing", [PLAIN, LZW, DEFLATE, PACKBITS])
@pytest.mark.parametrize("tile", [None, (16, 32)])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("mode", list(DTYPES))
def test_tiffs_of_other_writers(mode, big, order, tile, packing):
    """Strips and tiles, both byte orders and BigTIFF, as Pillow takes them, its quirks with byte orders included."""
    values = numbers(mode, 50, 41)[..., None]
    kind = {"I;16": 1, "I": 2, "F": 3}[mode]
    data = tiff(values, 1, order=order, big=big, tile=tile, rows=7, compression=packing, sample_format=kind)
    try:
        expected = opened(data, mode)
    except Exception:
        with pytest.raises(batchd.BadDataError):
            load(data, [["CenterCrop", [41, 50]]], mode)
    else:
        same(load(data, [["CenterCrop", [41, 50]]], mode), expected, (order, tile, packing))


@pytest.mark.parametrize("predictor", [2, 3])
def test_predictors(predictor):
    """Differences of 16-bit numbers, and of floats' bytes."""
    mode = "I;16" if predictor == 2 else "F"
    kind = 1 if predictor == 2 else 3
    for order in "<>":
        values = numbers(mode, 61, 43)[..., None]
        data = tiff(values, 1, order=order, rows=10, compression=LZW, predictor=predictor, sample_format=kind)
        same(whole(data, mode), opened(data, mode), order)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("mode", list(DTYPES))
def test_a_tiff_is_turned_upright(mode, orientation):
    """As Pillow turns it when it loads it; regions too."""
    kind = {"I;16": 1, "I": 2, "F": 3}[mode]
    data = tiff(numbers(mode, 21, 34)[..., None], 1, sample_format=kind, orientation=orientation)
    image = opened(data, mode)
    same(whole(data, mode), image, orientation)
    ours = load(data, [["CenterCrop", [9, 7]]], mode)
    same(ours, import_torchvision().transforms.v2.functional.center_crop(image, [9, 7]), orientation)


def png16(values, interlaced):
    """Pillow writes no interlaced ones."""
    height, width = values.shape
    passes = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
    passes = passes if interlaced else ((0, 0, 1, 1),)
    parts = [values[y::dy, x::dx].astype(">u2") for x, y, dx, dy in passes]
    rows = b"".join(b"\0" + row.tobytes() for part in parts if part.size for row in part)
    header = struct.pack(">IIBBBBB", width, height, 16, 0, 0, 0, interlaced)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(name, data) for name, data in chunks)


@pytest.mark.parametrize("mode", list(DTYPES))
def test_png_of_16_bits(mode):
    """With and without interlacing; I and F hold 16-bit numbers too."""
    for size in SIZES:
        values = numbers("I;16", *size)
        for data in (written(Image.fromarray(values), "png"), png16(values, 0), png16(values, 1)):
            assert opened(data, "I;16").tobytes() == values.tobytes()
            same(whole(data, mode), opened(data, mode), size)


@pytest.mark.parametrize("depth", [2, 4, 8, 16])
def test_unsigned_png_widened(depth):
    """Mode L files are held by I;16, I and F."""
    values = np.random.default_rng(depth).integers(0, 256, (31, 23)).astype(np.uint8)
    image = Image.fromarray(values)
    files = [written(image, "png"), written(image, "tiff"), written(image, "jpeg"), written(image, "ppm")]
    for data in files:
        for mode in DTYPES:
            same(whole(data, mode), opened(data, mode), mode)


def test_pnm():
    """PGM of more than 8 bits is Pillow's mode I, scaled to 65535; PFM is F."""
    values = numbers("I;16", 20, 11)
    plain = b"P2\n20 11\n1000\n" + b" ".join(b"%d" % (v % 1001) for v in values.ravel())
    for data in (
        b"P5\n20 11\n65535\n" + values.astype(">u2").tobytes(),
        b"P5\n20 11\n4095\n" + (values & 4095).astype(">u2").tobytes(),
        plain,
    ):
        assert Image.open(io.BytesIO(data)).mode == "I"
        for mode in ("I", "F"):
            same(whole(data, mode), opened(data, mode), data[:16])
    floats = numbers("F", 20, 11)
    for scale, order in ((b"-1.0", "<"), (b"1.0", ">")):
        data = b"Pf\n20 11\n" + scale + b"\n" + floats.astype(order + "f4").tobytes()
        same(whole(data, "F"), opened(data, "F"), scale)


@pytest.mark.parametrize("mode", list(DTYPES))
def test_files_of_other_modes_are_bad_data(mode):
    """The reason names what the file is, and the mode."""
    grey = numbers("F", 9, 9)
    files = {
        "RGB": (written(Image.new("RGB", (9, 9)), "png"), "no image of one grey number"),
        "1": (written(Image.new("1", (9, 9)), "png"), "no image of one grey number"),
        "P": (written(Image.new("P", (9, 9)), "png"), "no image of one grey number"),
        "F": (written(Image.fromarray(grey), "tiff"), "floats"),
        "I": (written(Image.fromarray(grey.astype(np.int32)), "tiff"), "32-bit numbers"),
    }
    refused = {"I;16": ("RGB", "1", "P", "F", "I"), "I": ("RGB", "1", "P", "F"), "F": ("RGB", "1", "P")}[mode]
    for name in refused:
        data, text = files[name]
        with pytest.raises(batchd.BadDataError, match=f'{text}.*Convert to "{mode}"'):
            load(data, [["CenterCrop", 9]], mode)


# ---- ops ----


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("mode", list(DTYPES))
def test_resize_equals_pillows(mode, name):
    """To all sorts of sizes, both orders of the passes included; a crop of the result computes the same pixels."""
    for size in [(33, 31), (100, 75), (91, 160), (7, 300)]:
        image = Image.fromarray(numbers(mode, *size))
        data = written(image, "tiff")
        for w, h in [(20, 20), (33, 31), (64, 10), (10, 64), (91, 20), (200, 111), (100, 40)]:
            resized = image.resize((w, h), FILTERS.index(name))
            ops = [["Resize", {"size": [h, w], "interpolation": name}]]
            same(load(data, ops, mode), resized, (size, w, h))
            left, top = round((w - 8) / 2), round((h - 6) / 2)
            part = resized.crop((left, top, left + 8, top + 6))
            same(load(data, [*ops, ["CenterCrop", [6, 8]]], mode), part, (size, w, h, "crop"))
            flipped = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT).transpose(Image.Transpose.FLIP_TOP_BOTTOM)
            flips = [["RandomHorizontalFlip", 1.0], ["RandomVerticalFlip", 1.0]]
            same(load(data, [*ops, ["CenterCrop", [6, 8]], *flips], mode), flipped, (size, w, h, "flips"))


def torchvisions(transform, image):
    return import_torchvision().transforms.v2.Compose(transform)(image)


@pytest.mark.parametrize("mode", list(DTYPES))
def test_ops_equal_torchvisions(mode):
    """Deterministic ones, as objects, on the same image."""
    try:
        v2 = import_torchvision().transforms.v2
    except ImportError:
        pytest.skip("torchvision is not installed")
    data = written(Image.fromarray(numbers(mode, 60, 47)), "tiff")
    fill = {"I;16": 40000, "I": -70000, "F": -0.25}[mode]
    pipelines = [[v2.Pad(3, fill=fill, padding_mode=m)] for m in ("constant", "edge", "reflect", "symmetric")]
    pipelines += [
        [v2.Pad([70, 1, 2, 90], padding_mode="symmetric")],
        [v2.CenterCrop(30), v2.RandomHorizontalFlip(1.0)],
        [v2.CenterCrop(80)],
        [v2.RandomVerticalFlip(1.0), v2.Resize((30, 41))],
        [v2.Resize(32), v2.CenterCrop((32, 30)), v2.Pad(2, fill=7), v2.RandomHorizontalFlip(1.0)],
        [v2.RandomApply([v2.RandomVerticalFlip(1.0)], 1.0), v2.CenterCrop(11)],
        [v2.RandomCrop((47, 60)), v2.RandomCrop((53, 66), padding=3, fill=fill)],
    ]
    for pipeline in pipelines:
        if not pipeline[0].__class__.__name__.startswith(("Center", "Random")) and len(pipeline) == 1:
            height, width = np.asarray(torchvisions(pipeline, opened(data, mode))).shape
            pipeline = [*pipeline, v2.CenterCrop([height, width])]
        same(load(data, pipeline, mode), torchvisions(pipeline, opened(data, mode)), pipeline)


def test_random_resized_crop_is_a_crop_and_a_resize(tmp_path):
    """Some crop of the image gives the result; regions that are decoded for it give the same as the whole."""
    values = numbers("I;16", 90, 70)
    data = written(Image.fromarray(values), "tiff", compression="tiff_lzw")
    for index in range(20):
        ops = [["RandomResizedCrop", 24], ["RandomHorizontalFlip", 0.5]]
        small = batchd.load(data, ops, image_mode="I;16", dtype="uint16", layout="NHWC", arrays="numpy", index=index)
        flipped = batchd.load(
            data,
            [*ops, ["RandomHorizontalFlip", 1.0]],
            image_mode="I;16",
            dtype="uint16",
            layout="NHWC",
            arrays="numpy",
            index=index,
        )
        assert np.array_equal(small[:, ::-1], flipped)
    image = Image.fromarray(values)
    ops = [["RandomResizedCrop", {"size": 24, "scale": [1, 1], "ratio": [9 / 7, 9 / 7]}]]
    same(load(data, ops, "I;16"), image.resize((24, 24), Image.Resampling.BILINEAR), "the whole")


# ---- numbers ----


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("mode", list(DTYPES))
def test_floats_equal_torchvisions(mode, scale):
    """ToImage, ToDtype and Normalize, bit for bit."""
    torch = pytest.importorskip("torch")
    try:
        v2 = import_torchvision().transforms.v2
    except ImportError:
        pytest.skip("torchvision is not installed")
    data = written(Image.fromarray(numbers(mode, 37, 29)), "tiff")
    for normalize in ([], [v2.Normalize([0.45], [0.225])]):
        pipeline = [v2.CenterCrop((29, 37)), v2.ToImage(), v2.ToDtype(torch.float32, scale=scale), *normalize]
        theirs = torchvisions(pipeline, opened(data, mode))
        ours = load(data, pipeline, mode, dtype="float32", layout="NCHW", arrays="torch")
        assert ours.dtype == torch.float32 and ours.shape == theirs.shape and torch.equal(ours, theirs)
        half = load(data, pipeline, mode, dtype="float16", layout="NCHW", arrays="torch")
        assert torch.equal(half, theirs.to(torch.float16))
    stored = load(data, [v2.CenterCrop((29, 37)), v2.ToImage()], mode, layout="NCHW", arrays="torch")
    theirs = v2.ToImage()(opened(data, mode))
    assert stored.dtype == theirs.dtype and stored.numpy().tobytes() == theirs.numpy().tobytes()


def test_to_tensor_of_floats_is_theirs():
    """Of mode F it is the floats."""
    torch = pytest.importorskip("torch")
    v2 = import_torchvision().transforms.v2
    data = written(Image.fromarray(numbers("F", 17, 13)), "tiff")
    pipeline = [v2.CenterCrop(13), v2.ToTensor(), v2.Normalize([3.0], [0.5])]
    ours = load(data, pipeline, "F", layout="NCHW", arrays="torch")
    assert torch.equal(ours, torchvisions(pipeline, opened(data, "F")))


# ---- what the pipeline refuses ----

SMALL = [["CenterCrop", 4]]


@pytest.mark.parametrize(
    "mode, ops, dtype, text",
    [
        ("I;16", [["ColorJitter", 0.4], *SMALL], "uint16", "'ColorJitter' does not work on images of mode I;16"),
        ("F", [*SMALL, ["GaussianBlur", 3]], "float32", "'GaussianBlur' does not work on images of mode F"),
        (
            "I",
            [*SMALL, ["RandomApply", [["RandomInvert", 1.0]], 0.5]],
            "int32",
            "'RandomInvert' does not work on images",
        ),
        ("I;16", [*SMALL, "ToTensor"], "float32", "ToTensor.*mode I;16.*ToDtype"),
        ("I;16", SMALL, "float32", "images of mode I;16 are uint16.*ToDtype"),
        ("I", SMALL, "uint16", "images of mode I are int32"),
        ("I;16", [*SMALL, ["ToDtype", "float32", True]], "uint16", "makes floats"),
        ("I;16", SMALL, "uint8", "mode I;16 are not made as bytes.*as for a GPU.*dtype uint16 in host memory"),
        ("I;16", [["Pad", 1, 70000], *SMALL], "uint16", "fill of 70000"),
        ("I;16", [["Pad", 1, 0.5], *SMALL], "uint16", "fill of 0.5"),
        ("RGB", [["Pad", 1, 300], *SMALL], "uint8", "'fill' is 300"),
        ("I;16", [*SMALL, ["Convert", "F"]], "uint16", "must be the first op"),
        (None, [["Convert", "I;16B"], *SMALL], "uint16", "I;16B.*expected"),
        (None, SMALL, "uint16", "images cannot be made as uint16"),
        ("I;16", [*SMALL, ["ToDtype", "float32", True], ["Normalize", [0, 0, 0], [1, 1, 1]]], "float32", "one channel"),
    ],
)
def test_refused_when_the_pipeline_is_read(mode, ops, dtype, text):
    with pytest.raises(ValueError, match=text):
        batchd.load(b"no image at all", ops, image_mode=mode, dtype=dtype)


def test_image_mode_wants_a_transform_of_its_own():
    for transform in (None, "train224"):
        with pytest.raises(ValueError, match="image_mode='I;16' needs a transform"):
            batchd.load(b"", transform, image_mode="I;16")
    with pytest.raises(ValueError, match="image_mode must be 'L', 'RGB'"):
        batchd.load(b"", SMALL, image_mode="LAB")


def test_mode_l_and_rgb():
    """One channel as Grayscale makes it, three as always."""
    data = written(Image.fromarray(np.random.default_rng(1).integers(0, 256, (9, 9, 3)).astype(np.uint8)), "png")
    for mode, channels in (("L", 1), ("RGB", 3)):
        ours = batchd.load(data, [["CenterCrop", 9]], image_mode=mode, dtype="uint8", layout="NHWC", arrays="numpy")
        assert ours.shape == (9, 9, channels) and ours.tobytes() == opened(data, mode).tobytes()


def test_normalize_and_noise_behind_ops_on_numbers():
    """As torchvision's on the floats; 0 noise and no erasing leave nothing to chance."""
    numbers = np.arange(600, dtype="uint16").reshape(20, 30) * 109
    png = io.BytesIO()
    Image.fromarray(numbers).save(png, "png")
    floats = [["CenterCrop", [20, 30]], ["ToDtype", "float32", True]]
    erased = ["RandomErasing", 0.0]
    options = {"image_mode": "I;16", "arrays": "numpy"}
    plain = batchd.load(png.getvalue(), floats, **options)
    late = batchd.load(png.getvalue(), [*floats, erased, ["Normalize", [0.25], [0.5]]], **options)
    noisy = batchd.load(png.getvalue(), [*floats, ["GaussianNoise", 0.5, 0.0, True]], **options)
    assert np.array_equal(late, (plain - np.float32(0.25)) / np.float32(0.5))
    assert np.array_equal(noisy, np.minimum(plain + np.float32(0.5), 1))

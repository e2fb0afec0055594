"""TIFF against Pillow: kinds of pixels, strips, tiles, planes, byte orders, packing, predictors, orientation."""

import io
import random
import re
import struct

import numpy as np
import pytest
from PIL import Image

import batchd
from test_decode import TOOL, Decoder, check, check_regions, noise, pillow, saved
from tiffs_by_hand import DEFLATE, LZW, PACKBITS, PLAIN, tiff

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built")
SIZES = [(1, 1), (2, 3), (5, 7), (16, 16), (17, 5), (33, 31), (64, 3), (100, 75)]
PACKING = [PLAIN, LZW, DEFLATE, PACKBITS, 32946]


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    d = Decoder(tmp_path_factory.mktemp("tiff"))
    yield d
    d.close()


def read(decoder, data, what):
    """As Pillow, which must be able to read it."""
    assert not isinstance(pillow(io.BytesIO(data)), Exception), f"{what}: {pillow(io.BytesIO(data))!r}"
    check(decoder, data, what)


def of_mode(mode, size):
    color = Image.fromarray(noise(*size))
    if mode in ("1", "L", "CMYK", "RGBX", "RGB"):
        return color.convert(mode)
    if mode == "P":
        return color.quantize(200)
    if mode in ("LA", "RGBA"):
        return Image.fromarray(noise(*size, 4), "RGBA").convert(mode)
    grey = noise(*size, 1).astype(np.float32)
    if mode == "F":
        return Image.fromarray(grey * 1.7 - 60)
    if mode == "I":
        return Image.fromarray((grey * 3 - 100).astype(np.int32))
    return Image.fromarray((grey * 2).astype(np.uint16))


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"])
@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "RGBX", "CMYK", "I", "I;16", "F"])
def test_what_pillow_writes_is_read_whole_and_in_regions(decoder, mode, compression):
    """Pillow's modes, in one strip and in several, with and without a predictor, and as BigTIFF."""
    rng = random.Random(1)
    for size in SIZES:
        picture = of_mode(mode, size)
        cases = [{}, {"tiffinfo": {278: 4}}, {"big_tiff": True}]
        if compression in ("tiff_lzw", "tiff_adobe_deflate") and mode != "1":
            cases.append({"tiffinfo": {317: 2}})
        for options in cases:
            data = saved(picture, "TIFF", compression=compression, **options)
            read(decoder, data, f"{mode} {size} {options}")
            check_regions(decoder, data, f"{mode} {size} {options}", 5, rng)


def kinds(rng):
    """Name, samples, what tiff() takes, and whether they may come in planes."""
    for bits in (1, 2, 4, 8):
        for photometric in (0, 1):
            yield f"grey {bits} {photometric}", 1, dict(photometric=photometric, bits=bits), False
        yield (
            f"palette {bits}",
            1,
            dict(photometric=3, bits=bits, colors=rng.integers(0, 65536, 3 << bits).tolist()),
            False,
        )
    yield "signed 8", 1, dict(photometric=1, bits=8, sample_format=2), False
    yield "grey 16", 1, dict(photometric=1, dtype=np.uint16), False
    yield "grey 16, white is 0", 1, dict(photometric=0, dtype=np.uint16), False
    yield "signed 16", 1, dict(photometric=1, dtype=np.int16, sample_format=2), False
    yield "signed 32", 1, dict(photometric=1, dtype=np.int32, sample_format=2), False
    yield "unsigned 32", 1, dict(photometric=1, dtype=np.uint32), False
    yield "float", 1, dict(photometric=1, dtype=np.float32, sample_format=3), False
    yield "float, white is 0", 1, dict(photometric=0, dtype=np.float32, sample_format=3), False
    for extra in (0, 2):
        yield f"grey and {extra}", 2, dict(photometric=1, extra=(extra,)), True
    yield "RGB", 3, dict(photometric=2), True
    yield "RGB 16", 3, dict(photometric=2, dtype=np.uint16), True
    for extra in ((), (0,), (1,), (2,), (999,)):
        yield f"RGB and {extra}", 4, dict(photometric=2, extra=extra), extra in ((), (0,), (2,))
    for extra in ((), (0,), (2,)):
        yield f"RGB 16 and {extra}", 4, dict(photometric=2, extra=extra, dtype=np.uint16), False
    for extra in ((0, 0), (1, 0), (2, 0), (0, 0, 0), (1, 0, 0), (2, 0, 0)):
        yield f"RGB and {extra}", 3 + len(extra), dict(photometric=2, extra=extra), False
    yield "CMYK", 4, dict(photometric=5), True
    yield "CMYK 16", 4, dict(photometric=5, dtype=np.uint16), False
    yield "CMYK and 1", 5, dict(photometric=5, extra=(0,)), False
    yield "CMYK and 2", 6, dict(photometric=5, extra=(0, 0)), False


def values(rng, size, n_samples, bits=8, dtype=np.uint8):
    shape = (size[1], size[0], n_samples)
    if dtype == np.float32:
        return rng.uniform(-50, 400, shape).astype(dtype)
    if np.dtype(dtype).itemsize > 1:
        return rng.integers(-40 if np.dtype(dtype).kind == "i" else 0, 700, shape).astype(dtype) * rng.choice([1, 70])
    return (rng.integers(0, 256, shape) >> (8 - bits)).astype(np.uint8)


@pytest.mark.parametrize("compression", PACKING)
@pytest.mark.parametrize("order", ["<", ">"])
def test_every_kind_of_pixels(decoder, order, compression):
    """Of each kind that Pillow reads, in strips and tiles, together and in planes: equal, and refused where Pillow
    refuses it, but for planes that Pillow reads from the wrong bytes."""
    rng = np.random.default_rng(5)
    n_read = 0
    for name, n_samples, options, in_planes in kinds(rng):
        dtype = options.pop("dtype", np.uint8)
        bits = options.get("bits", 8)
        for size in SIZES[2:6]:
            pixels = values(rng, size, n_samples, bits, dtype)
            for grid in ({}, {"rows": 3}, {"tile": (16, 16)}, {"tile": (32, 16), "big": True}):
                for planes in (False, True) if in_planes else (False,):
                    if planes and compression == PLAIN:
                        if np.dtype(dtype).itemsize > 1 or ("tile" in grid and name == "RGB and ()"):
                            continue
                    data = tiff(pixels, order=order, compression=compression, planes=planes, **grid, **options)
                    what = f"{name} {size} {grid} {planes} {order} {compression}"
                    check(decoder, data, what)
                    n_read += not isinstance(pillow(io.BytesIO(data)), Exception)
    assert n_read > 400


@pytest.mark.parametrize("compression", [LZW, DEFLATE])
@pytest.mark.parametrize("order", ["<", ">"])
def test_predictors(decoder, order, compression):
    """Differences of 8, 16 and 32 bits, and those of floats, in strips, tiles and planes."""
    rng = np.random.default_rng(6)
    cases = [(1, np.uint8, 1, 1), (1, np.uint16, 1, 1), (1, np.int32, 1, 2), (3, np.uint8, 2, 1), (3, np.uint16, 2, 1)]
    for n_samples, dtype, photometric, sample_format in [*cases, (4, np.uint8, 5, 1), (1, np.float32, 1, 3)]:
        for predictor in (2, 3) if dtype == np.float32 else (2,):
            for size in SIZES:
                pixels = values(rng, size, n_samples, dtype=dtype)
                if dtype == np.float32 and predictor == 2:
                    pixels = pixels.view(np.uint32)
                for grid in ({}, {"rows": 3}, {"tile": (16, 16)}):
                    for planes in (False, True) if n_samples > 1 else (False,):
                        data = tiff(
                            pixels,
                            photometric,
                            order=order,
                            compression=compression,
                            predictor=predictor,
                            sample_format=sample_format,
                            planes=planes,
                            **grid,
                        )
                        check(decoder, data, f"{n_samples} {dtype} {predictor} {size} {grid} {planes}")


def test_bits_in_reverse_order(decoder):
    """FillOrder 2 of each kind that Pillow reads, packed or not."""
    rng = np.random.default_rng(7)
    for compression in (PLAIN, LZW, PACKBITS):
        for bits in (1, 2, 4, 8):
            for photometric in (0, 1, 3):
                colors = rng.integers(0, 65536, 3 << bits).tolist() if photometric == 3 else None
                pixels = values(rng, (21, 9), 1, bits)
                data = tiff(pixels, photometric, bits=bits, fill=2, colors=colors, compression=compression, rows=4)
                check(decoder, data, f"{bits} {photometric} {compression}")
        for pixels, photometric in ((values(rng, (21, 9), 3), 2), (values(rng, (21, 9), 1, dtype=np.uint16), 1)):
            for order in "<>":
                check(decoder, tiff(pixels, photometric, fill=2, compression=compression, order=order), "colours")


@pytest.mark.parametrize("orientation", range(10))
def test_a_tiff_is_turned_upright_as_pillow_does(decoder, orientation):
    """By the tag, or by XMP where there is none; with apply_exif and without."""
    rng = np.random.default_rng(8)
    pixels = values(rng, (13, 7), 3)
    xmp = f'<x:xmpmeta tiff:Orientation="{orientation}"/>'.encode()
    for data in (
        tiff(pixels, 2, orientation=orientation),
        tiff(pixels, 2, tags=[(700, 1, xmp)]),
        tiff(pixels, 2, orientation=3, tags=[(700, 7, xmp)]),
    ):
        check(decoder, data, f"orientation {orientation}")
        check(decoder, data, f"orientation {orientation}", exif=True)
        check_regions(decoder, data, f"orientation {orientation}", 20, random.Random(1))


def test_the_table_of_codes_fills_and_is_cleared(decoder):
    """Noise, of which a strip needs several tables; long runs."""
    rng = np.random.default_rng(9)
    for pixels in (values(rng, (300, 200), 3), np.zeros((300, 300, 3), np.uint8), values(rng, (300, 200), 1) // 128):
        data = tiff(pixels, 2 if pixels.shape[2] == 3 else 1, compression=LZW)
        read(decoder, data, "many codes")
        check_regions(decoder, data, "many codes", 10, random.Random(2))


def test_kinds_that_are_not_read_are_named(decoder):
    """Fax codes inside a TIFF, and YCbCr outside of JPEG."""
    photo = Image.fromarray(noise(32, 32))
    for data, word in (
        (saved(photo.convert("1"), "TIFF", compression="group4"), "fax"),
        (saved(photo.convert("YCbCr"), "TIFF"), "photometric interpretation 6"),
    ):
        outcome = decoder.bytes(data)
        assert isinstance(outcome, tuple) and outcome[0] == 1 and word in outcome[1], outcome


def samples():
    rng = np.random.default_rng(10)
    yield "plain", tiff(values(rng, (13, 9), 3), 2, rows=4)
    yield "tiles", tiff(values(rng, (33, 20), 1), 1, tile=(16, 16), compression=LZW, order=">")
    yield "planes", tiff(values(rng, (13, 9), 3), 2, rows=4, planes=True, compression=DEFLATE, predictor=2)
    yield "bits", tiff(values(rng, (13, 9), 1, 1), 0, bits=1, compression=PACKBITS, big=True)


def test_cut_files_are_refused_as_pillow_refuses_them(decoder):
    """At every length; nor do regions need less."""
    for name, data in samples():
        for n in range(len(data)):
            theirs = pillow(io.BytesIO(data[:n]))
            ours = decoder.bytes(data[:n])
            if isinstance(theirs, Exception):
                assert isinstance(ours, tuple) and ours[0] in (1, 2, 3), f"{name} cut at {n}: {theirs!r}"
                assert isinstance(decoder.bytes(data[:n], region=(0, 0, 1, 1)), tuple), f"{name} cut at {n}"
            else:
                check(decoder, data[:n], f"{name} cut at {n}")


def test_damaged_files_give_pillows_pixels_or_an_error(decoder):
    """One to three bytes changed: where both read it, the same pixels. (libtiff forgives what is refused here.)"""
    rng = random.Random(11)
    n_both = 0
    for name, original in samples():
        for i in range(500):
            data = bytearray(original)
            for _ in range(rng.randint(1, 3)):
                data[rng.randrange(len(data))] = rng.choice([0, 1, 2, 255, rng.randrange(256)])
            ours = decoder.bytes(bytes(data))
            if isinstance(ours, tuple):
                assert ours[0] in (1, 2, 3) and ours[1], ours
                continue
            theirs = pillow(io.BytesIO(bytes(data)))
            if not isinstance(theirs, Exception):
                n_both += 1
                assert ours.shape == theirs.shape and np.array_equal(ours, theirs), f"{name} damage {i}"
    assert n_both > 300


def test_hostile_claims_are_refused_soon(decoder):
    """Huge sizes and tiles, offsets outside, counts that overflow, directories without an end."""
    rng = np.random.default_rng(12)
    pixels = values(rng, (16, 16), 3)
    huge = 2**31 - 1
    for tags in (
        [(256, 4, [huge]), (257, 4, [huge])],
        [(256, 4, [13000]), (257, 4, [13000])],
        [(256, 4, [2**32 - 1])],
        [(322, 4, [huge]), (323, 4, [huge])],
        [(322, 4, [0])],
        [(324, 4, [2**32 - 1])],
        [(325, 4, [2**32 - 1])],
        [(277, 3, [65535])],
        [(258, 3, [65535] * 3)],
    ):
        for compression in (PLAIN, LZW, DEFLATE):
            outcome = decoder.bytes(tiff(pixels, 2, tile=(16, 16), compression=compression, tags=tags))
            if tags[0][0] == 325 and compression == PLAIN:
                continue  # nothing needs it
            assert isinstance(outcome, tuple) and outcome[0] in (1, 2, 3), (tags, compression, outcome)
    for head in (b"II*\0", b"MM\0*", b"II+\0\x08\0\0\0", b"MM\0+\0\x08\0\0"):
        for rest in (b"", b"\0" * 12, b"\xff" * 12, struct.pack("<Q", 16) + b"\xff" * 60):
            assert isinstance(decoder.bytes(head + rest), tuple)


def test_old_jpeg_inside_is_refused_by_name(decoder):
    """Told from today's kind by the number of the compression."""
    data = saved(Image.new("L", (16, 16), 90), "tiff", compression="jpeg")
    entry = struct.pack("<HHIH", 259, 3, 1, 7)
    assert data.count(entry) == 1
    with pytest.raises(batchd.BadDataError, match=re.escape("TIFF with old-style JPEG (compression 6)")):
        batchd.load(data.replace(entry, struct.pack("<HHIH", 259, 3, 1, 6)))

"""BMP and PNM against Pillow: every depth, header and way of packing, small and odd sizes, cut and damaged."""

import io
import random

import numpy as np
import pytest
from PIL import Image

from pictures_by_hand import BMP_HEADERS, bmp, bmp_stride
from test_decode import TOOL, Decoder, check, check_regions, noise, pillow, saved

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built")
SIZES = [(1, 1), (2, 3), (3, 2), (5, 7), (8, 8), (9, 4), (17, 5), (31, 33), (64, 3), (100, 75)]


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    d = Decoder(tmp_path_factory.mktemp("raster"))
    yield d
    d.close()


def read(decoder, data, what):
    """As Pillow, which must be able to read it."""
    assert not isinstance(pillow(io.BytesIO(data)), Exception), f"{what}: {pillow(io.BytesIO(data))!r}"
    check(decoder, data, what)


def of_mode(mode, size, seed=0):
    if mode == "1":
        return Image.fromarray(noise(*size, 1, seed)).convert("1")
    if mode == "P":
        return Image.fromarray(noise(*size, 3, seed)).quantize(200)
    if mode == "I":
        return Image.fromarray(noise(*size, 1, seed).astype(np.int32) * 3 - 100)
    if mode == "F":
        return Image.fromarray(noise(*size, 1, seed).astype(np.float32) * 1.7 - 60)
    channels = {"L": 1, "RGB": 3, "RGBA": 4}[mode]
    return Image.fromarray(noise(*size, channels, seed), mode)


@pytest.mark.parametrize(
    "format,mode",
    [("BMP", m) for m in ("1", "L", "P", "RGB", "RGBA")] + [("PPM", m) for m in ("1", "L", "I", "F", "RGB")],
)
def test_what_pillow_writes_is_read_whole_and_in_regions(decoder, format, mode):
    """Modes of Pillow, in sizes whose rows need padding."""
    rng = random.Random(1)
    for size in SIZES:
        data = saved(of_mode(mode, size), format)
        read(decoder, data, f"{format} {mode} {size}")
        check_regions(decoder, data, f"{format} {mode} {size}", 12, rng)


# ---- BMP ----


@pytest.mark.parametrize("bits", [1, 4, 8, 16, 24, 32])
@pytest.mark.parametrize("header", BMP_HEADERS)
def test_bmp_of_every_depth_and_header(decoder, bits, header):
    """Bottom up and top down; palettes of colours, of greys, of black and white, short ones and ones of odd counts."""
    rng = random.Random(bits * 1000 + header)
    entry = 3 if header == 12 else 4
    counts = [1 << bits, 2, 1, (1 << bits) - 1] if bits <= 8 else [0]
    for size in SIZES[:8]:
        for top_down in (False, True) if header != 12 else (False,):
            for count in counts:
                for grey in (False, True) if bits <= 8 else (False,):
                    if header == 12:
                        count = 1 << bits if bits <= 8 else 0
                    step = 255 if count == 2 else 1
                    palette = b"".join(
                        (bytes([i * step & 255]) * 3 if grey else rng.randbytes(3)) + bytes(entry - 3)
                        for i in range(count)
                    )
                    rows = rng.randbytes(bmp_stride(size[0], bits) * size[1])
                    height = -size[1] if top_down else size[1]
                    data = bmp(size[0], height, bits, rows, header=header, palette=palette, colors=count)
                    check(decoder, data, f"BMP {bits} bits {header} {size} {count} {grey}")
                    gap = bmp(size[0], height, bits, rows, header=header, palette=palette, colors=count, gap=6)
                    check(decoder, gap, f"BMP {bits} bits {header} {size} {count} {grey}, gap")


MASKS_32 = [
    (0xFF0000, 0xFF00, 0xFF, 0x0),
    (0xFF000000, 0xFF0000, 0xFF00, 0x0),
    (0xFF000000, 0xFF00, 0xFF, 0x0),
    (0xFF000000, 0xFF0000, 0xFF00, 0xFF),
    (0xFF, 0xFF00, 0xFF0000, 0xFF000000),
    (0xFF0000, 0xFF00, 0xFF, 0xFF000000),
    (0xFF000000, 0xFF00, 0xFF, 0xFF0000),
    (0x0, 0x0, 0x0, 0x0),
    (0x3FF00000, 0xFFC00, 0x3FF, 0x0),
]
MASKS_16 = [(0xF800, 0x7E0, 0x1F, 0), (0x7C00, 0x3E0, 0x1F, 0), (0xF00, 0xF0, 0xF, 0)]


@pytest.mark.parametrize("header", [40, 52, 56, 64, 108, 124])
def test_bmp_masks_are_those_that_pillow_knows(decoder, header):
    """Each of Pillow's masks in each depth, and some that it refuses."""
    rng = random.Random(header)
    n_read = 0
    for bits, lists in ((32, MASKS_32), (16, MASKS_16), (24, MASKS_32[:1] + MASKS_16), (8, MASKS_32[:1])):
        for masks in lists:
            rows = rng.randbytes(bmp_stride(13, bits) * 6)
            masks = masks[:3] if header == 40 else masks
            data = bmp(13, 6, bits, rows, header=header, compression=3, masks=masks)
            check(decoder, data, f"BMP {bits} bits, header {header}, masks {masks}")
            n_read += not isinstance(pillow(io.BytesIO(data)), Exception)
    assert n_read >= 5


def runs(rng, width, height, nibbles, sloppy):
    """Run lengths of a whole picture; sloppy: with jumps, rows that are too long, and an early end."""
    out = bytearray()
    for _ in range(height):
        x = 0
        while x < width:
            n = rng.randint(1, min(255, width - x + (3 if sloppy else 0)))
            kind = rng.random()
            if sloppy and kind < 0.1:
                out += bytes([0, 2, rng.randint(0, 3), rng.randint(0, 1)])
            elif n >= 3 and kind < 0.5:
                literal = rng.randbytes((n + 1) // 2 if nibbles else n)
                out += bytes([0, n]) + literal + bytes(len(literal) % 2)
            else:
                out += bytes([n, rng.randrange(256)])
            x += n
        out += b"\0\0" if not sloppy or rng.random() < 0.7 else b""
    return bytes(out) + (b"\0\1" if not sloppy or rng.random() < 0.7 else b"")


@pytest.mark.parametrize("bits,compression", [(8, 1), (4, 2), (8, 2), (4, 1), (1, 1), (24, 1)])
def test_bmp_run_lengths(decoder, bits, compression):
    """Runs, literals, ends of lines and jumps: the same pixels, or an error where a picture is not filled."""
    rng = random.Random(bits * 10 + compression)
    n_read = 0
    for i in range(300):
        size = rng.choice(SIZES)
        packed = runs(rng, *size, compression == 2, sloppy=i % 2 == 1)
        count = rng.choice([1 << bits, 3, 2]) if bits <= 8 else 0
        palette = rng.randbytes(4 * count) if i % 3 else b"".join(bytes([k, k, k, 0]) for k in range(count))
        data = bmp(
            size[0],
            -size[1] if rng.random() < 0.3 else size[1],
            bits,
            packed,
            compression=compression,
            palette=palette,
            colors=count,
            gap=rng.randint(0, 1),
        )
        check(decoder, data, f"BMP {bits} bits, runs {i}, {size}")
        n_read += not isinstance(pillow(io.BytesIO(data)), Exception)
    assert n_read >= 100 or bits == 24


# ---- PNM ----


@pytest.mark.parametrize("max_value", [1, 2, 7, 100, 127, 254, 255, 256, 1000, 4095, 65534, 65535])
@pytest.mark.parametrize("kind", ["P2", "P3", "P5", "P6"])
def test_pnm_of_every_greatest_value(decoder, kind, max_value):
    """Scaled to 255 with Python's rounding; graymaps above 255 as 16 bits, clipped; values above the greatest."""
    rng = np.random.default_rng(max_value)
    for size in SIZES[:8]:
        n = size[0] * size[1] * (3 if kind in ("P3", "P6") else 1)
        values = rng.integers(0, max_value + 1, n)
        head = f"{kind}\n{size[0]} {size[1]}\n{max_value}\n".encode()
        if kind in ("P2", "P3"):
            data = head + b" ".join(str(v).encode() for v in values)
        elif max_value > 255:
            data = head + values.astype(">u2").tobytes()
        else:
            data = head + values.astype(np.uint8).tobytes()
        read(decoder, data, f"{kind} {max_value} {size}")
        if kind in ("P5", "P6"):
            wide = 2 if max_value > 255 else 1
            check(decoder, head + rng.bytes(n * wide), f"{kind} {max_value} {size}, any bytes")
            check(decoder, head + rng.bytes(n * wide - 1), f"{kind} {max_value} {size}, cut")


def test_pnm_floats_of_both_byte_orders(decoder):
    """Bottom up; values below 0 and above 255 are clipped, and what is no number becomes as Pillow has it."""
    values = np.linspace(-20, 300, 35, dtype=np.float32)
    for scale, kind in ((b"1.0", ">f4"), (b"-1.0", "<f4"), (b"2_0", ">f4"), (b"-1e-3", "<f4"), (b"+.5", ">f4")):
        read(decoder, b"Pf\n7 5\n" + scale + b"\n" + values.astype(kind).tobytes(), f"Pf {scale}")
    for scale in (b"0", b"-0.0", b"inf", b"nan", b"0x10", b"1e999", b"1__0", b"e", b"", b"12345678901"):
        check(decoder, b"Pf\n7 5\n" + scale + b"\n" + values.tobytes(), f"Pf {scale}")


def test_pnm_headers_as_pillow_reads_them(decoder):
    """Comments, signs, underscores, white space, long and missing numbers."""
    pixels = bytes(range(6))
    heads = [
        b"P5 3 2 255\n",
        b"P5\t3\r2\x0b255\x0c",
        b"P5\n# a comment\n3 2\n# another\r255\n",
        b"P5\n3#joined\n 2 255 ",
        b"P5 1#joined\n2 2 255 ",
        b"P5\n+3 2 255\n",
        b"P5\n0_3 002 2_55\n",
        b"P5\n3_ 2 255\n",
        b"P5\n-3 2 255\n",
        b"P5\n3 2 0\n",
        b"P5\n3 2 65536\n",
        b"P5\n3 2 -1\n",
        b"P5\n0000000003 2 255\n",
        b"P5\n00000000003 2 255\n",
        b"P5\n0 2 255\n",
        b"P5\n99999999 99999999 255\n",
        b"P5\n3 2",
        b"P5\n3 2 #",
        b"P5\n",
        b"P5",
        b"P5x3 2 255\n",
        b"P7 3 2 255\n",
        b"P5\n3 2 255#\n",
        b"P5\n3 a 255\n",
        b"P4 3 2\n",
        b"P4 3 2#x\n",
        b"P1 3 2\n",
        b"P6 1 2 255\n",
    ]
    for head in heads:
        check(decoder, head + pixels, repr(head))


def test_pnm_text_as_pillow_reads_it(decoder):
    """Comments, missing white space, long tokens, and what follows the last pixel."""
    bodies = [
        b"0 1 0 1 1 0",
        b"010110",
        b"0101 10\n",
        b"0101 1#0\n0",
        b"0101 1#0",
        b"01011",
        b"010110 2",
        b"0101102",
        b"0#\n1#\r0#x\r\n110",
        b"1 2 3 4 5 6",
        b"1 2 3 4 5 6 x",
        b"1 2 3 4 5 6 xxxxxxxxxxx",
        b"1 2 3 4 5 6 xxxxxxxxxxx ",
        b"1 2 3 4 5 x",
        b"1 2 3 4 5",
        b"1 2 3 4 5 -0",
        b"1 2 3 4 5 -1",
        b"1 2 3 4 5 +1",
        b"1 2 3 4 5 1_1",
        b"1 2 3 4 5 _1",
        b"1 2 3 4 5 0000000001",
        b"1 2 3 4 5 00000000001",
        b"1 2 3 4 5 201",
        b"1 2 3 4 5 1#\n2",
        b"1 2 3 4#5",
        b"1\n2\t3\x0b4\x0c5\r6",
        b"1 2 3 4 5 6\0",
        b"",
        b"#",
    ]
    for body in bodies:
        for head in (b"P1 3 2\n", b"P2 3 2 200\n", b"P3 1 2 200\n", b"P2 3 2 2000\n"):
            check(decoder, head + body, repr(head + body))


def test_pnm_text_of_several_blocks(decoder):
    """Pillow reads blocks of a mebibyte: numbers and comments across their ends."""
    rng = random.Random(7)
    for i in range(6):
        width, height = 640, 480
        words = [str(rng.randrange(256)).encode() for _ in range(width * height)]
        for _ in range(400):
            words[rng.randrange(len(words))] += rng.choice([b"# a comment\n", b"#\r", b" #" + b"x" * 3000 + b"\r\n"])
        head = b"P2 %d %d 255\n" % (width, height)
        if i == 5:
            head += b"#" + b"y" * (1 << 20) + b"\n"
        read(decoder, head + b" ".join(words), f"P2 in blocks {i}")


# ---- broken files ----


def samples():
    rng = random.Random(9)
    colors = rng.randbytes(1024)
    yield "BMP 24", saved(of_mode("RGB", (13, 9)), "BMP")
    yield "BMP 8", saved(of_mode("P", (13, 9)), "BMP")
    yield "BMP runs", bmp(13, 9, 8, runs(rng, 13, 9, False, False), compression=1, palette=colors, colors=256)
    yield "BMP masks", bmp(13, 9, 32, rng.randbytes(13 * 9 * 4), compression=3, masks=MASKS_32[1][:3])
    yield "PPM", saved(of_mode("RGB", (13, 9)), "PPM")
    yield "PBM", saved(of_mode("1", (13, 9)), "PPM")
    yield "PFM", saved(of_mode("F", (13, 9)), "PPM")
    yield "text", b"P2 13 9 250\n" + b" ".join(b"%d" % rng.randrange(250) for _ in range(117))


def test_cut_files_are_refused_as_pillow_refuses_them(decoder):
    """At every length."""
    for name, data in samples():
        for n in range(len(data)):
            check(decoder, data[:n], f"{name} cut at {n}")


def other_kind_or_huge(data):
    """A kind that only Pillow reads, or a size that Pillow takes long for."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            kind = image.format in ("BMP", "PPM") and data[:2] not in (b"Py", b"P0")
            return not kind or image.width * image.height > 1000000
    except Exception:
        return False


def test_damaged_files_are_judged_as_pillow_judges_them(decoder):
    """One to four bytes changed: the same pixels, or an error on both sides."""
    rng = random.Random(11)
    for name, original in samples():
        for i in range(400):
            data = bytearray(original)
            for _ in range(rng.randint(1, 4)):
                data[rng.randrange(min(len(data), rng.choice([60, 1 << 20])))] = rng.choice(
                    [0, 1, 2, 255, 32, 48, 57, 35, rng.randrange(256)]
                )
            if other_kind_or_huge(bytes(data)):
                continue
            check(decoder, bytes(data), f"{name} damage {i}: {bytes(data[:80])!r}")


def test_claims_of_huge_pictures_cost_nothing(decoder):
    """Sizes beyond the limit, and below it with no pixels behind: an error, soon."""
    for width, height in ((2**31 - 1, 2**31 - 1), (178956970, 1), (65535, 65535), (13000, 13000)):
        rows = b"\1\2" * 100
        for data in (
            bmp(width, height, 24, rows),
            bmp(width, height, 8, rows, compression=1, palette=bytes(1024), colors=256),
            b"P6 %d %d 255\n" % (width, height) + rows,
            b"P2 %d %d 255\n" % (width, height) + b"1 2 " * 100,
            b"P1 %d %d\n" % (width, height) + b"01" * 100,
        ):
            outcome = decoder.bytes(data)
            assert isinstance(outcome, tuple) and outcome[0] in (2, 3), outcome

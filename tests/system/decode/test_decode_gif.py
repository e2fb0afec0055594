"""The first frame of a GIF against Pillow: palettes, interlacing, frames off the canvas, every size of code."""

import io
import random
import struct

import pytest
from PIL import Image

from test_decode import TOOL, Decoder, check, check_regions, noise, pillow, saved

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built")
SIZES = [(1, 1), (2, 3), (3, 2), (5, 7), (8, 8), (9, 4), (17, 5), (31, 33), (64, 3), (100, 75)]


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    d = Decoder(tmp_path_factory.mktemp("gif"))
    yield d
    d.close()


def packed(indices, bits, rng=None, clear_every=0):
    """LZW codes as GIF has them, in blocks. rng: blocks of any length."""
    clear, end = 1 << bits, (1 << bits) + 1
    out, n_out, value = bytearray(), 0, 0

    def put(code, width):
        nonlocal n_out, value
        value |= code << n_out
        n_out += width
        while n_out >= 8:
            out.append(value & 255)
            value >>= 8
            n_out -= 8

    table, width, word = {}, bits + 1, ()
    put(clear, width)
    for k, i in enumerate(indices):
        if clear_every and k % clear_every == clear_every - 1:
            if word:
                put(table[word] if len(word) > 1 else word[0], width)
            put(clear, width)
            table, width, word = {}, bits + 1, ()
        longer = (*word, i)
        if len(longer) == 1 or longer in table:
            word = longer
            continue
        put(table[word] if len(word) > 1 else word[0], width)
        if len(table) + end + 1 < 4096:
            table[longer] = len(table) + end + 1
            if len(table) + end == 1 << width and width < 12:
                width += 1
        word = (i,)
    if word:
        put(table[word] if len(word) > 1 else word[0], width)
    put(end, width)
    if n_out:
        out.append(value & 255)
    blocks, at = bytearray(), 0
    while at < len(out):
        n = rng.randint(1, 255) if rng else 255
        blocks += bytes([len(out[at : at + n])]) + out[at : at + n]
        at += n
    return bytes([bits]) + bytes(blocks) + b"\0"


def gif(screen, frame, indices, bits, *, at=(0, 0), palette=b"", local=b"", interlaced=False, before=b"", **options):
    """palette, local: 2, 4 ... or 256 colours, or none."""

    def flags(colors):
        return 128 | (len(colors) // 3).bit_length() - 2 if colors else 0

    return (
        b"GIF89a"
        + struct.pack("<HHBBB", *screen, flags(palette), 0, 0)
        + palette
        + before
        + struct.pack("<cHHHHB", b",", *at, *frame, flags(local) | (64 if interlaced else 0))
        + local
        + packed(indices, bits, **options)
        + b";"
    )


def control(transparent):
    return b"!\xf9\4" + bytes([1 if transparent is not None else 0, 0, 0, transparent or 0]) + b"\0"


def grey(n):
    return b"".join(bytes([i, i, i]) for i in range(n))


def test_what_pillow_writes_is_read_whole_and_in_regions(decoder):
    """Modes, interlaced or not, transparent, animated: the first frame."""
    rng = random.Random(1)
    for size in SIZES:
        color = Image.fromarray(noise(*size))
        pictures = {
            "L": color.convert("L"),
            "1": color.convert("1"),
            "P": color.quantize(256),
            "P7": color.quantize(7),
            "RGBA": Image.fromarray(noise(*size, 4), "RGBA"),
        }
        for name, picture in pictures.items():
            for interlace in (0, 1):
                data = saved(picture, "GIF", interlace=interlace)
                check(decoder, data, f"GIF {name} {size} {interlace}")
                check_regions(decoder, data, f"GIF {name} {size} {interlace}", 6, rng)
        data = saved(pictures["P"], "GIF", save_all=True, append_images=[pictures["L"], color], transparency=3)
        check(decoder, data, f"animated GIF {size}")


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("bits", [2, 3, 5, 8])
def test_gif_of_every_kind_of_palette(decoder, bits, interlaced):
    """Global, local, both and none; greys, which count as none; a frame that leaves the canvas bare or is larger."""
    rng = random.Random(bits)
    n = 1 << bits
    palettes = [b"", grey(n), rng.randbytes(3 * n), rng.randbytes(6), grey(2)]
    n_read = 0
    for i in range(150):
        frame = rng.choice(SIZES)
        screen, at = rng.choice([(frame, (0, 0)), ((20, 20), (3, 4)), ((120, 90), (10, 0)), ((0, 0), (0, 0))])
        before = rng.choice([b"", control(None), control(1), control(n - 1), b"!\xfe\3abc\2de\0" + control(0), b"xy"])
        data = gif(
            screen,
            frame,
            rng.choices(range(n), k=frame[0] * frame[1]),
            bits,
            at=at,
            palette=rng.choice(palettes),
            local=rng.choice(palettes),
            interlaced=interlaced,
            before=before,
            rng=rng if i % 2 else None,
            clear_every=rng.choice([0, 0, 50]),
        )
        check(decoder, data, f"GIF {bits} {i} {frame} {screen}")
        n_read += not isinstance(pillow(io.BytesIO(data)), Exception)
    assert n_read >= 145


def test_gif_of_several_blocks_of_a_file(decoder):
    """Pillow reads 64 KiB at a time: long pictures, an end code before the last pixel, and bytes behind it."""
    rng = random.Random(5)
    indices = rng.choices(range(256), k=400 * 300)
    data = gif((400, 300), (400, 300), indices, 8, palette=rng.randbytes(768), rng=rng)
    check(decoder, data, "long GIF")
    early = gif((400, 300), (400, 300), indices[:50000], 8, palette=rng.randbytes(768))
    check(decoder, early, "early end")
    check(decoder, early + early[800:], "early end, and more")
    for n in (65536, 65536 * 2 - 100, 65536 * 2 + 800, 100000):
        check(decoder, (early + early[800:])[:n], f"early end, {n} bytes")


def test_code_sizes_that_pillow_reads_and_refuses(decoder):
    """0 to 13 bits, random codes behind."""
    rng = random.Random(6)
    for bits in range(15):
        for i in range(60):
            n = rng.randint(1, 255)
            head = gif((9, 7), (9, 7), [], 2, palette=rng.randbytes(48))[:-6]
            head = head[: head.rindex(b",") + 10] if rng.random() < 0.5 else head[: 13 + 48 + 10]
            data = head + bytes([bits, n]) + rng.randbytes(n) + bytes([n]) + rng.randbytes(n) + b"\0;"
            check(decoder, data, f"{bits} bits, {i}")


def test_extensions_are_passed_over_as_pillow_does(decoder):
    """Empty, short and long extensions, and other bytes between them."""
    rng = random.Random(8)
    pixels = rng.choices(range(4), k=12)
    for before in (
        b"!\xf9\0",
        b"!\xf9\0\4abcd\0",
        b"!\xf9\1\1\0",
        b"!\xf9\3\1ab\0",
        b"!\xf9\3\0ab\0",
        b"!\xf9\2\0a\0",
        b"!\xf9\5\1abcd\3xyz\0",
        b"!\xff\x0bNETSCAPE2.0\3\1\0\0\0",
        b"!\xff\x0bNETSCAPE2.0\0",
        b"!\xff\x0bNETSCAPE2.0\0\0",
        b"!\xff\x0bANIMEXTS1.0\3\1\0\0\0",
        b"!\xfe\0",
        b"!\xfe\3abc\0",
        b"!\1\3abc\0",
        b"\0\0\0",
        b";",
        b"x;",
        b"!",
        b"!\xf9",
    ):
        data = gif((4, 3), (4, 3), pixels, 2, palette=rng.randbytes(12), before=before)
        check(decoder, data, repr(before))


def samples():
    rng = random.Random(9)
    pixels = rng.choices(range(16), k=117)
    yield "plain", gif((13, 9), (13, 9), pixels, 4, palette=rng.randbytes(48))
    yield (
        "part",
        gif((20, 12), (13, 9), pixels, 4, at=(2, 1), local=rng.randbytes(48), interlaced=True, before=control(3)),
    )
    yield "Pillow's", saved(Image.fromarray(noise(13, 9)).quantize(40), "GIF")


def test_cut_and_damaged_files_are_judged_as_pillow_judges_them(decoder):
    """Cut at every length; one to four bytes changed."""
    rng = random.Random(11)
    for name, data in samples():
        for n in range(len(data)):
            check(decoder, data[:n], f"{name} cut at {n}")
        for i in range(500):
            bad = bytearray(data)
            for _ in range(rng.randint(1, 4)):
                bad[rng.randrange(len(bad))] = rng.choice([0, 1, 255, rng.randrange(256)])
            try:
                with Image.open(io.BytesIO(bad)) as image:
                    if image.width * image.height > 1000000:
                        continue
            except Exception:
                pass
            check(decoder, bytes(bad), f"{name} damage {i}: {bytes(bad[:60])!r}")

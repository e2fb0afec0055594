"""JPEG in TIFF against Pillow: colours, sampling, strips, tiles, planes, tables of the file, damage."""

import io
import random

import numpy as np
import pytest
from PIL import Image

from test_decode import TOOL, Decoder, check, check_regions, noise, pillow, saved
from tiffs_by_hand import tiff

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built")
SIZES = [(1, 1), (2, 3), (5, 7), (16, 16), (17, 5), (33, 31), (64, 3), (100, 75)]
JPEG, TABLES = 7, 347
GREY, RGB, CMYK, YCBCR = 1, 2, 5, 6
WHITE_IS_ZERO, REFUSED = 0, (1, 2, 3)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    d = Decoder(tmp_path_factory.mktemp("tiff"))
    yield d
    d.close()


def read(decoder, data, what):
    """As Pillow, which must be able to read it."""
    assert not isinstance(pillow(io.BytesIO(data)), Exception), f"{what}: {pillow(io.BytesIO(data))!r}"
    check(decoder, data, what)


def smooth(width, height, channels):
    """Colours that differ from place to place, so that a wrong conversion shows."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [(x * (3 + c) + y * (5 - c) + 40 * c) % 256 for c in range(channels)]
    rough = noise(width, height, channels).reshape(height, width, channels)
    return (np.stack(planes, 2) * 3 // 4 + rough // 4).astype(np.uint8)


def jpeg(part, **options):
    """A JPEG of a chunk's pixels; three samples are RGB, which becomes YCbCr unless keep_rgb."""
    image = Image.fromarray(part[:, :, 0] if part.shape[2] == 1 else part, {4: "CMYK", 3: "RGB", 1: "L"}[part.shape[2]])
    return saved(image, "jpeg", **{"quality": 80, **options})


def split(data):
    """(tables, rest): the segments with tables as a stream of their own, and a JPEG without them."""
    tables, rest, at = b"", data[:2], 2
    while data[at + 1] != 0xDA:
        n = 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if data[at + 1] in (0xDB, 0xC4):
            tables += data[at : at + n]
        else:
            rest += data[at : at + n]
        at += n
    return b"\xff\xd8" + tables + b"\xff\xd9", rest + data[at:]


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_what_pillow_writes_is_read_whole_and_in_regions(decoder, mode):
    """In one strip and in several, of any size and quality, with the tables in the file."""
    rng = random.Random(1)
    for size in SIZES:
        picture = Image.fromarray(smooth(*size, 3)).convert(mode)
        for options in ({}, {"quality": 30}, {"tiffinfo": {278: 16}}, {"tiffinfo": {278: 8}}, {"big_tiff": True}):
            data = saved(picture, "tiff", compression="jpeg", **options)
            read(decoder, data, f"{mode} {size} {options}")
            check_regions(decoder, data, f"{mode} {size} {options}", 4, rng)


GRIDS = [{}, {"rows": 16}, {"rows": 48}, {"tile": (16, 16)}, {"tile": (48, 32)}]


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"restart_marker_blocks": 2}, {"optimize": True}], ids=str
)
def test_colours_in_strips_and_tiles(decoder, grid, subsampling, options):
    """YCbCr with every sampling that Pillow's writer has; each chunk is upsampled for itself, with tables of its own."""
    rng = random.Random(2)
    for width, height in SIZES[5:]:
        data = tiff(
            smooth(width, height, 3),
            YCBCR,
            compression=JPEG,
            pack=lambda part: jpeg(part, subsampling=subsampling, **options),
            **grid,
        )
        read(decoder, data, f"{width}x{height}")
        check_regions(decoder, data, f"{width}x{height}", 3, rng)


KINDS = {
    "rgb": (RGB, 3, {}, {"keep_rgb": True}),
    "grey": (GREY, 1, {}, {}),
    "inverted": (WHITE_IS_ZERO, 1, {}, {}),
    "cmyk": (CMYK, 4, {}, {}),
    "rgba": (RGB, 4, {"extra": [2]}, {}),
    "planes": (RGB, 3, {"planes": True}, {}),
    "a JPEG that calls itself YCbCr": (RGB, 3, {}, {"subsampling": "4:4:4"}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_the_colours_are_what_the_tiff_says(decoder, kind, order, grid):
    """Whatever the JPEG's own markers say: grey, RGB without a conversion, CMYK, transparency, planes."""
    photometric, n, tiff_options, jpeg_options = KINDS[kind]
    rng = random.Random(3)
    for size in SIZES[5:7]:
        data = tiff(
            smooth(*size, n),
            photometric,
            order=order,
            compression=JPEG,
            pack=lambda part: jpeg(part, **jpeg_options),
            **tiff_options,
            **grid,
        )
        read(decoder, data, f"{kind} {size}")
        check_regions(decoder, data, f"{kind} {size}", 3, rng)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_tables_of_the_file(decoder, grid):
    """In front of each chunk, which has none; and a chunk's own tables count before them."""
    pixels, tables = smooth(100, 75, 3), []

    def without(part):
        found, rest = split(jpeg(part))
        tables.append(found)
        return rest

    tiff(pixels, YCBCR, compression=JPEG, pack=without, **grid)
    assert len(set(tables)) == 1
    for number, pack in enumerate((without, lambda part: jpeg(part, quality=20))):
        for kind in (7, 1):
            data = tiff(pixels, YCBCR, compression=JPEG, pack=pack, tags=[(TABLES, kind, tables[0])], **grid)
            read(decoder, data, f"tables {number} {kind}")
    assert isinstance(decoder.bytes(tiff(pixels, YCBCR, compression=JPEG, pack=without, **grid)), tuple)


@pytest.mark.parametrize("subsampling", [(1, 1), (2, 2)])
@pytest.mark.parametrize("photometric", ["rgb", "minisblack"])
def test_what_tifffile_writes(decoder, subsampling, photometric):
    """Tiles and strips of another writer."""
    tifffile = pytest.importorskip("tifffile", reason="the tifffile package is not installed")
    pytest.importorskip("imagecodecs", reason="the imagecodecs package is not installed")
    rng = random.Random(4)
    for size in ((100, 75), (33, 31)):
        for grid in ({"tile": (32, 48)}, {"rowsperstrip": 16}):
            out = io.BytesIO()
            options = {"subsampling": subsampling} if photometric == "rgb" else {}
            pixels = smooth(*size, 3) if photometric == "rgb" else smooth(*size, 1)[:, :, 0]
            tifffile.imwrite(out, pixels, photometric=photometric, compression="jpeg", **options, **grid)
            read(decoder, out.getvalue(), f"{size} {grid}")
            check_regions(decoder, out.getvalue(), f"{size} {grid}", 4, rng)


def hostile():
    pixels = smooth(40, 40, 3)

    def of(part_to_bytes, **options):
        return tiff(pixels, YCBCR, compression=JPEG, pack=part_to_bytes, **{"tile": (16, 16), **options})

    def other(width, height, n=3):
        return lambda part: jpeg(smooth(width, height, n))

    yield "wider", of(other(32, 16))
    yield "taller", of(other(16, 32))
    yield "narrower", of(other(8, 16))
    yield "huge", of(other(2000, 2000))
    yield "components", of(other(16, 16, 1))
    yield "four", of(other(16, 16, 4))
    yield "no JPEG", of(lambda part: b"nothing at all")
    yield "empty", of(lambda part: b"")
    yield "tables alone", of(lambda part: split(jpeg(part))[0])
    yield "12 bits", of(lambda part: jpeg(part).replace(b"\xff\xc0\x00\x11\x08", b"\xff\xc0\x00\x11\x0c"))
    yield "lossless", of(lambda part: jpeg(part).replace(b"\xff\xc0", b"\xff\xc3"))
    yield "sampling", of(lambda part: jpeg(part, subsampling=part.sum() % 2), tile=(16, 16))
    yield "rgb sampled", tiff(pixels, RGB, compression=JPEG, pack=lambda p: jpeg(p, subsampling="4:2:0"), tile=(16, 16))
    yield "planes of YCbCr", tiff(pixels, YCBCR, compression=JPEG, pack=jpeg, tile=(16, 16), planes=True)
    for tables in (b"x", b"\xff\xd8\xff\xd9", jpeg(pixels), b"\xff\xd8\xff\xdb\xff\xff"):
        yield f"tables of {len(tables)} bytes", of(lambda part: split(jpeg(part))[1], tags=[(TABLES, 7, tables)])


@pytest.mark.long("thousands of hostile files; the fuzz target has more")
def test_hostile_files_are_refused_and_leave_nothing_behind(decoder):
    """By an outcome, never by a crash or with pixels that Pillow does not have; the next file is read."""
    good = tiff(smooth(40, 40, 3), YCBCR, compression=JPEG, pack=jpeg, tile=(16, 16))
    for name, data in hostile():
        ours, theirs = decoder.bytes(data), pillow(io.BytesIO(data))
        if isinstance(ours, tuple):
            assert ours[0] in REFUSED, (name, ours)
        else:
            assert not isinstance(theirs, Exception) and (ours == theirs).all(), name
        read(decoder, good, f"after {name}")


def test_changed_bytes_are_judged_as_pillow_judges_them(decoder):
    """One to three bytes of the JPEGs changed: where both read it, the same pixels. What libtiff forgives may be refused here (a JPEG
    that is smaller than its tile); what it refuses is refused."""
    rng = random.Random(5)
    agreed = 0
    for grid in ({"rows": 16}, {"tile": (16, 16)}):
        data = tiff(smooth(40, 40, 3), YCBCR, compression=JPEG, pack=jpeg, **grid)
        begin, end = data.index(b"\xff\xd8"), data.rindex(b"\xff\xd9") + 2
        for _ in range(300):
            changed = bytearray(data)
            for _ in range(rng.randint(1, 3)):
                changed[rng.randrange(begin, end)] = rng.randrange(256)
            ours, theirs = decoder.bytes(bytes(changed)), pillow(io.BytesIO(bytes(changed)))
            if isinstance(ours, tuple):
                continue
            assert not isinstance(theirs, Exception), theirs
            assert ours.shape == theirs.shape and (ours == theirs).all()
            agreed += 1
    assert agreed > 100


def test_a_strip_that_ends_early_is_filled_as_libtiff_fills_it(decoder):
    """The data of one strip end; libjpeg makes up its rest, and Pillow reads the picture."""
    cut = iter(range(100))

    def shorter(part):
        data = jpeg(part)
        return data[: len(data) * 3 // 4] if next(cut) == 1 else data

    read(decoder, tiff(smooth(64, 48, 3), YCBCR, compression=JPEG, pack=shorter, rows=16), "cut strip")

"""The decoder against Pillow: the same pixels from the same bytes, or an error where Pillow has one."""

import io
import os
import pathlib
import random
import struct
import subprocess
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("BATCHD_BUILD", ROOT / "build"))
TOOL = BUILD / "tests" / "tools" / "decode"

warnings.simplefilter("ignore")
pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built")


class Decoder:
    """One decoder process; as in a worker, one decoder for all images."""

    def __init__(self, scratch):
        self.scratch = scratch / "image"
        self.process = subprocess.Popen([TOOL, "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def file(self, path, region=None, exif=False):
        """The pixels as an array, or (outcome, text)."""
        x, y, width, height = region or (0, 0, 0, 0)
        self.process.stdin.write(f"{int(exif)} {x} {y} {width} {height} {path}\n".encode())
        self.process.stdin.flush()
        outcome, _, rest = self.process.stdout.readline().decode().strip().partition(" ")
        if outcome != "0":
            return int(outcome), rest
        width, height, _ = map(int, rest.split())
        rgb = self.process.stdout.read(width * height * 3)
        return np.frombuffer(rgb, np.uint8).reshape(height, width, 3)

    def bytes(self, data, **options):
        self.scratch.write_bytes(data)
        return self.file(self.scratch, **options)

    def close(self):
        self.process.stdin.close()
        assert self.process.wait() == 0


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    d = Decoder(tmp_path_factory.mktemp("decode"))
    yield d
    d.close()


def pillow(source, exif=False):
    """Pillow's result, or its exception."""
    try:
        image = Image.open(source)
        if exif:
            image = ImageOps.exif_transpose(image)
        return np.asarray(image.convert("RGB"))
    except Exception as e:
        return e


def same(ours, theirs, what):
    if isinstance(theirs, Exception):
        assert isinstance(ours, tuple), f"{what}: Pillow says {theirs!r}, we decode it"
        assert ours[0] in (1, 2, 3) and ours[1], f"{what}: {ours}"
        return
    assert isinstance(ours, np.ndarray), f"{what}: Pillow decodes it, we say {ours}"
    assert ours.shape == theirs.shape, what
    assert np.array_equal(ours, theirs), f"{what}: {np.argwhere(ours != theirs)[:3].tolist()} differ"


def check(decoder, data, what, exif=False):
    same(decoder.bytes(data, exif=exif), pillow(io.BytesIO(data), exif), what)


def regions_of(width, height, n, rng):
    for _ in range(n):
        w, h = rng.randint(1, width), rng.randint(1, height)
        yield rng.randint(0, width - w), rng.randint(0, height - h), w, h


def check_regions(decoder, data, what, n, rng):
    whole = pillow(io.BytesIO(data))
    decoder.scratch.write_bytes(data)
    for x, y, w, h in regions_of(whole.shape[1], whole.shape[0], n, rng):
        same(decoder.file(decoder.scratch, region=(x, y, w, h)), whole[y : y + h, x : x + w], f"{what} {(x, y, w, h)}")


def noise(width, height, channels=3, seed=0):
    """Smooth colours with grain: exercises prediction, chroma upsampling and rounding."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [128 + 90 * np.sin(x / (3 + c) + c) + 60 * np.cos(y / (2 + c)) for c in range(channels)]
    a = np.stack(planes, -1) + rng.normal(0, 12, (height, width, channels))
    a = np.clip(a, 0, 255).astype(np.uint8)
    return a[:, :, 0] if channels == 1 else a


def saved(image, format, **options):
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


# ---- files ----


def test_every_photograph_is_pillows(decoder, photos):
    """All 400 photographs, and two random regions of each, equal Pillow's pixels."""
    rng = random.Random(1)
    paths = sorted(photos.rglob("*.*"))
    assert len(paths) >= 400
    for path in paths:
        whole = pillow(path)
        same(decoder.file(path), whole, path.name)
        for x, y, w, h in regions_of(whole.shape[1], whole.shape[0], 2, rng):
            same(decoder.file(path, region=(x, y, w, h)), whole[y : y + h, x : x + w], f"{path.name} {(x, y, w, h)}")


@pytest.mark.parametrize("exif", [False, True])
def test_every_odd_file_is_pillows_or_an_error(decoder, odd, exif):
    """The odd files give Pillow's pixels, and an error exactly where Pillow raises one for the pixels."""
    for path in sorted(set(odd.iterdir()) - {odd / "png_decompression_dos.png"}):
        same(decoder.file(path, exif=exif), pillow(path, exif), path.name)


def test_a_cut_file_is_refused_wherever_pillow_refuses_it(decoder, odd):
    """Cut at 60 places, a baseline JPEG, a progressive JPEG, a PNG and a WebP fail exactly when Pillow fails; so does a region."""
    names = [
        "hopper.jpg",
        "hopper_gray.jpg",
        "pil168.png",
        "hopper.webp",
        "transparent.webp",
        "p_16.png",
        "pil_sample_cmyk.jpg",
    ]
    rng = random.Random(2)
    for name in names:
        data = (odd / name).read_bytes()
        for n in sorted(rng.sample(range(len(data)), 50)) + [len(data) - k for k in range(1, 16)]:
            check(decoder, data[:n], f"{name} cut at {n}")
            theirs = pillow(io.BytesIO(data[:n]))
            ours = decoder.bytes(data[:n], region=(0, 0, 8, 8))
            same(ours, theirs if isinstance(theirs, Exception) else theirs[:8, :8], f"corner of {name} cut at {n}")


def test_damaged_bytes_are_judged_as_pillow_judges_them(decoder, odd):
    """One to four bytes changed at random: same pixels, or an error on both sides."""
    rng = random.Random(3)
    for name in [
        "hopper.jpg",
        "hopper_gray.jpg",
        "icc-after-SOF.jpg",
        "p_16.png",
        "1_trns.png",
        "hopper.webp",
        "pil_sample_cmyk.jpg",
    ]:
        original = (odd / name).read_bytes()
        for i in range(80):
            data = bytearray(original)
            for _ in range(rng.randint(1, 4)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            theirs = pillow(io.BytesIO(bytes(data)))
            if not isinstance(theirs, Exception) and Image.open(io.BytesIO(bytes(data))).format not in (
                "JPEG",
                "PNG",
                "WEBP",
                "MPO",
            ):
                continue
            check(decoder, bytes(data), f"{name} damage {i}")


# ---- JPEG ----


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0", "4:1:1"])
@pytest.mark.parametrize("progressive", [False, True])
def test_jpeg_of_every_small_size(decoder, subsampling, progressive):
    """1x1 to 40x40: edges of blocks, of MCUs and of the chroma upsampling."""
    for width in list(range(1, 20)) + [31, 32, 33, 40]:
        for height in [1, 2, 3, 7, 8, 9, 15, 16, 17, 18, 31, 33, 40]:
            image = Image.fromarray(noise(width, height))
            data = saved(image, "JPEG", quality=80, subsampling=subsampling, progressive=progressive)
            check(decoder, data, f"{subsampling} {width}x{height}")


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0", "4:1:1"])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("restart", [0, 3])
def test_jpeg_region_equals_the_full_decode(decoder, subsampling, progressive, restart):
    """Random regions of differently sampled pictures: no pixel differs, at the region's edges either."""
    rng = random.Random(4)
    for size in [(161, 97), (64, 48), (333, 40), (30, 200)]:
        options = {"restart_marker_blocks": restart} if restart else {}
        data = saved(
            Image.fromarray(noise(*size)),
            "JPEG",
            quality=85,
            subsampling=subsampling,
            progressive=progressive,
            **options,
        )
        check_regions(decoder, data, f"{subsampling} {size}", 60, rng)


def rewrite_sampling(data, factors):
    """Sets the sampling factors of a 4:4:4 JPEG's components: makes other geometries, with arbitrary pictures."""
    at = data.index(b"\xff\xc0")
    out = bytearray(data)
    for i, f in enumerate(factors):
        out[at + 11 + 3 * i] = f
    return bytes(out)


@pytest.mark.parametrize(
    "factors",
    [
        (0x12, 0x11, 0x11),
        (0x14, 0x11, 0x11),
        (0x41, 0x11, 0x11),
        (0x22, 0x21, 0x11),
        (0x21, 0x12, 0x11),
        (0x11, 0x22, 0x11),
    ],
)
def test_unusual_sampling_factors(decoder, factors):
    """4:4:0 and rarer geometries: as Pillow, whole and in regions. The entropy data are those of another geometry, and
    give noise."""
    rng = random.Random(5)
    for size in [(160, 96), (77, 61)]:
        base = saved(Image.fromarray(noise(*size)), "JPEG", quality=30, subsampling="4:4:4")
        data = rewrite_sampling(base, factors)
        check(decoder, data, f"{factors} {size}")
        if not isinstance(pillow(io.BytesIO(data)), Exception):
            check_regions(decoder, data, f"{factors} {size}", 40, rng)


@pytest.mark.parametrize("mode,channels", [("L", 1), ("CMYK", 4)])
@pytest.mark.parametrize("progressive", [False, True])
def test_grey_and_cmyk_jpeg(decoder, mode, channels, progressive):
    """Grey is copied to all channels, CMYK is inverted as Pillow does."""
    rng = random.Random(6)
    for size in [(1, 1), (7, 9), (16, 16), (100, 75)]:
        image = Image.fromarray(noise(*size, channels), mode)
        data = saved(image, "JPEG", quality=90, progressive=progressive)
        check(decoder, data, f"{mode} {size}")
        check_regions(decoder, data, f"{mode} {size}", 20, rng)


def adobe(transform):
    return b"\xff\xee" + struct.pack(">H5sHHHB", 14, b"Adobe", 100, 0, 0, transform)


@pytest.mark.parametrize("transform", [None, 0, 1, 2])
@pytest.mark.parametrize("mode,channels", [("RGB", 3), ("CMYK", 4)])
def test_adobe_marker_decides_the_colour_space(decoder, transform, mode, channels):
    """YCCK, plain CMYK, RGB stored as such: the Adobe marker's transform, or its absence."""
    data = saved(Image.fromarray(noise(50, 40, channels), mode), "JPEG", quality=90)
    body = data[2:]
    while body[:2] in (b"\xff\xe0", b"\xff\xee"):
        body = body[2 + struct.unpack(">H", body[2:4])[0] :]
    check(
        decoder,
        b"\xff\xd8" + (adobe(transform) if transform is not None else b"") + body,
        f"{mode} transform {transform}",
    )


def test_metadata_that_pillow_refuses_or_forgives(decoder):
    """Segments before the picture, valid and broken, are treated as by Pillow."""
    data = saved(Image.fromarray(noise(24, 24)), "JPEG")

    def with_segment(marker, content, length=None):
        return (
            data[:2]
            + struct.pack(">BBH", 0xFF, marker, (len(content) if length is None else length) + 2)
            + content
            + data[2:]
        )

    photoshop = b"Photoshop 3.0\0"
    cases = {
        "comment": with_segment(0xFE, b"hello"),
        "empty comment": with_segment(0xFE, b""),
        "length zero": with_segment(0xFE, b"", -2),
        "long comment": with_segment(0xFE, b"x" * 65533),
        "short JFIF": with_segment(0xE0, b"JFIF\0"),
        "short Adobe": with_segment(0xEE, b"Adobe"),
        "Photoshop": with_segment(0xED, photoshop + b"8BIM\x03\xed\0\0\0\0\0\x10" + bytes(16)),
        "Photoshop ends in code": with_segment(0xED, photoshop + b"8BIM\x03"),
        "Photoshop ends in name": with_segment(0xED, photoshop + b"8BIM\x03\xed"),
        "Photoshop ends in size": with_segment(0xED, photoshop + b"8BIM\x03\xed\0\0\0\0"),
        "Photoshop promises too much": with_segment(0xED, photoshop + b"8BIM\x03\xed\0\0\xff\xff\xff\xff"),
        "table cut": with_segment(0xDB, b"\0" + bytes(63)),
        "16-bit table": with_segment(0xDB, b"\x11" + bytes([0, 1] * 64)),
        "junk between": data[:2] + b"junk" + data[2:],
        "fill bytes": data[:2] + b"\xff\xff\xff" + data[2:],
        "FF00 between": data[:2] + b"\xff\x00" + data[2:],
        "unknown marker": data[:2] + b"\xff\x02\x00\x02" + data[2:],
        "TEM": data[:2] + b"\xff\x01" + data[2:],
        "RST between": data[:2] + b"\xff\xd3" + data[2:],
        "two SOI": b"\xff\xd8" + data,
        "junk before": b"x" + data,
        "junk behind": data + b"junk" * 100,
        "second picture behind": data + data,
        "no EOI": data[:-2],
        "EOI early": data[: data.index(b"\xff\xda") + 40] + b"\xff\xd9",
        "no scan": data[: data.index(b"\xff\xda")] + b"\xff\xd9",
        "12 bits": data.replace(b"\xff\xc0\x00\x11\x08", b"\xff\xc0\x00\x11\x0c"),
        "no height": data.replace(b"\x08\x00\x18\x00\x18", b"\x08\x00\x00\x00\x18"),
        "lossless": data.replace(b"\xff\xc0\x00\x11", b"\xff\xc3\x00\x11"),
        "DHT behind the scan": data[:-2] + b"\xff\xc4\x00\x03\x00" + b"\xff\xd9",
        "SOI behind the scan": data[:-2] + b"\xff\xd8\xff\xd9",
        "comment behind the scan": data[:-2] + b"\xff\xfe\x00\x04ab" + b"\xff\xd9",
        "only SOI": b"\xff\xd8\xff",
        "empty": b"",
    }
    for name, case in cases.items():
        check(decoder, case, name)
        theirs = pillow(io.BytesIO(case))
        corner = theirs if isinstance(theirs, Exception) else theirs[:3, :3]
        same(decoder.bytes(case, region=(0, 0, 3, 3)), corner, f"corner of {name}")


# ---- PNG ----


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width, height, bits, color, rows, palette=None, interlace=0, extra=b"", behind=b"", raw=None, pieces=1):
    """A PNG of unfiltered rows (bytes of one row each), or of raw zlib data."""
    packed = raw if raw is not None else zlib.compress(b"".join(rows))
    step = -(-len(packed) // pieces)
    data = b"".join(chunk(b"IDAT", packed[i : i + step]) for i in range(0, len(packed), step))
    header = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, interlace)
    plte = chunk(b"PLTE", palette) if palette is not None else b""
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + plte + extra + data + behind + chunk(b"IEND", b"")


CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
KINDS = (
    [(b, 0) for b in (1, 2, 4, 8, 16)] + [(b, 3) for b in (1, 2, 4, 8)] + [(b, c) for b in (8, 16) for c in (2, 4, 6)]
)
PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def random_rows(width, height, bits, color, interlace, rng, filters=True):
    """Rows of random bytes under random filters, in the order of the file format."""
    sizes = [(width, height)]
    if interlace:
        sizes = [(-(-(width - x) // dx), -(-(height - y) // dy)) for x, y, dx, dy in PASSES]
    for w, h in sizes:
        for _ in range(h if w > 0 else 0):
            yield bytes([rng.randrange(5) if filters else 0]) + rng.randbytes((w * CHANNELS[color] * bits + 7) // 8)


@pytest.mark.parametrize("bits,color", KINDS)
@pytest.mark.parametrize("interlace", [0, 1])
def test_png_of_every_kind_and_small_size(decoder, bits, color, interlace):
    """Every bit depth and colour type with random samples and filters, with and without interlace, whole and in regions."""
    rng = random.Random(7)
    for width, height in [(1, 1), (2, 3), (3, 2), (5, 5), (8, 8), (9, 4), (4, 9), (17, 1), (1, 17), (33, 21), (40, 40)]:
        rows = random_rows(width, height, bits, color, interlace, rng)
        palette = rng.randbytes(3 * rng.choice([1, 2, 7, 1 << bits])) if color == 3 else None
        trns = {0: b"\0\1", 2: b"\0\1\0\2\0\3", 3: rng.choice([b"\xff\0", b"\x80\x40", b"\0"])}.get(color)
        extra = chunk(b"tRNS", trns) if trns and rng.random() < 0.5 else b""
        data = png(width, height, bits, color, rows, palette, interlace, extra, pieces=rng.randint(1, 3))
        check(decoder, data, f"{bits} bits, colour {color}, {width}x{height}")
        check_regions(decoder, data, f"{bits} bits, colour {color}, {width}x{height}", 8, rng)


def test_png_from_pillows_own_writer(decoder):
    """Pictures as people save them: every mode, optimized, larger than one read buffer."""
    rng = random.Random(8)
    for mode in ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"]:
        image = Image.fromarray(noise(301, 203))
        image = (
            Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 250)
            if mode == "I;16"
            else image.convert(mode)
        )
        data = saved(image, "PNG", optimize=True)
        check(decoder, data, mode)
        check_regions(decoder, data, mode, 10, rng)


def text_bomb(n):
    return zlib.compress(bytes(n))


def test_chunks_of_pixels_are_judged_as_pillow_judges_them(decoder):
    """Chunks that are valid, short, damaged, packed and missing, before and after the pixels."""
    rng = random.Random(9)
    rows = list(random_rows(6, 5, 8, 2, 0, rng, filters=False))
    raw = b"".join(rows)

    def case(extra=b"", behind=b"", **options):
        return png(6, 5, 8, 2, rows, extra=extra, behind=behind, **options)

    def bad_crc(c):
        return c[:-1] + bytes([c[-1] ^ 1])

    plain = case()
    idat = plain.index(b"IDAT")
    exif = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0"
    both = {
        "gAMA": chunk(b"gAMA", b"\0\0\0\1"),
        "short tRNS": chunk(b"tRNS", bytes(5)),
        "tRNS": chunk(b"tRNS", bytes(6)),
        "late header": chunk(b"IHDR", struct.pack(">IIBBBBB", 6, 5, 8, 2, 0, 0, 0)),
        "short header": chunk(b"IHDR", bytes(12)),
        "header with filter": chunk(b"IHDR", struct.pack(">IIBBBBB", 6, 5, 8, 2, 0, 1, 0)),
        "unknown private": chunk(b"prVt", b"abc"),
        "unknown critical": chunk(b"CRIT", b"abc"),
        "palette in RGB": chunk(b"PLTE", bytes(900)),
        "text": chunk(b"tEXt", b"key\0value"),
        "text without value": chunk(b"tEXt", b"key"),
        "text without key": chunk(b"tEXt", b"\0value"),
        "empty text": chunk(b"tEXt", b""),
        "packed text": chunk(b"zTXt", b"key\0\0" + text_bomb(1000)),
        "packed text, 1 MiB - 1": chunk(b"zTXt", b"key\0\0" + text_bomb((1 << 20) - 1)),
        "packed text, 1 MiB": chunk(b"zTXt", b"key\0\0" + text_bomb(1 << 20)),
        "packed text, damaged": chunk(b"zTXt", b"key\0\0" + b"\x78\x9cjunkjunk"),
        "packed text, cut": chunk(b"zTXt", b"key\0\0" + text_bomb(100000)[:30]),
        "packed text, nothing": chunk(b"zTXt", b"key"),
        "international": chunk(b"iTXt", b"key\0\0\0en\0key\0value"),
        "international, packed": chunk(b"iTXt", b"key\0\1\0en\0key\0" + text_bomb(100)),
        "international, method": chunk(b"iTXt", b"key\0\1\1en\0key\0" + text_bomb(3 << 20)),
        "international, short": chunk(b"iTXt", b"key\0"),
        "international, fields": chunk(b"iTXt", b"key\0\0\0en"),
        "profile": chunk(b"iCCP", b"name\0\0" + text_bomb(500)),
        "profile, damaged": chunk(b"iCCP", b"name\0\0junk"),
        "exif": chunk(b"eXIf", exif),
        "checksum of text": bad_crc(chunk(b"tEXt", b"key\0value")),
        "checksum of unknown": bad_crc(chunk(b"prVt", b"value")),
        "name": chunk(b"a-b!", b""),
        "digits as name": chunk(b"1234", b"x"),
        "acTL short": chunk(b"acTL", bytes(7)),
        "fcTL short": chunk(b"fcTL", bytes(25)),
        "fdAT short": chunk(b"fdAT", bytes(3)),
        "fdAT without fcTL": chunk(b"fdAT", bytes(8)),
        "IDAT apart": chunk(b"IDAT", b"1234"),
    }
    cases = {f"{k} in front": case(extra=v) for k, v in both.items()}
    cases |= {f"{k} behind": case(behind=v) for k, v in both.items()}
    cases |= {f"two {k}": case(extra=v + v) for k, v in both.items() if "bomb" not in k}
    cases |= {
        "checksum of header": plain[:29] + b"\0\0\0\0" + plain[33:],
        "checksum of pixels": bad_crc(plain[: len(plain) - 12]) + plain[-12:],
        "no IEND": plain[:-12],
        "half IEND": plain[:-6],
        "no pixels": plain[: idat - 4] + plain[-12:],
        "no header": plain[:8] + plain[33:],
        "empty IDATs": case(raw=zlib.compress(raw), pieces=len(zlib.compress(raw))),
        "wrong adler": case(raw=zlib.compress(raw)[:-1] + b"\0"),
        "no adler": case(raw=zlib.compress(raw)[:-4]),
        "stored": case(raw=zlib.compress(raw, 0)),
        "too much data": case(raw=zlib.compress(raw + bytes(1000))),
        "data behind the stream": case(raw=zlib.compress(raw) + b"junk"),
        "bad filter": case(raw=zlib.compress(b"\5" + raw[1:])),
        "bad filter in the last row": case(raw=zlib.compress(raw[:-19] + b"\7" + raw[-18:])),
        "bad zlib header": case(raw=b"\0\0" + zlib.compress(raw)[2:]),
        "width 0": plain[:16] + bytes(4) + plain[20:],
        "unknown kind": b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 6, 5, 3, 2, 0, 0, 0))
        + plain[33:],
        "compression method 1": b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 6, 5, 8, 2, 1, 0, 0))
        + plain[33:],
        "interlace 2": b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 6, 5, 8, 2, 0, 0, 2)) + plain[33:],
        "only signature": plain[:8],
    }
    for n in range(0, 6):
        cases[f"only {n} rows"] = case(raw=zlib.compress(raw[: 19 * n]))
        cases[f"{n} rows and a half"] = case(raw=zlib.compress(raw[: 19 * n + 9]))
    for name, data in cases.items():
        check(decoder, data, name)


def test_texts_and_profiles_refuse_no_png(decoder):
    """The contract is pixels: chunks that have none, and for which Pillow refuses a file, are skipped."""
    rng = random.Random(9)
    rows = list(random_rows(6, 5, 8, 2, 0, rng, filters=False))
    expected = pillow(io.BytesIO(png(6, 5, 8, 2, rows)))
    xmp = chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + text_bomb(2 << 20))
    odd = {
        "short gAMA": chunk(b"gAMA", b"\0\0\0"),
        "short cHRM": chunk(b"cHRM", bytes(31)),
        "short sRGB": chunk(b"sRGB", b""),
        "short pHYs": chunk(b"pHYs", bytes(8)),
        "packed text, more": chunk(b"zTXt", b"key\0\0" + text_bomb((1 << 20) + 1)),
        "packed text, method": chunk(b"zTXt", b"key\0\1" + text_bomb(10)),
        "international, bomb": chunk(b"iTXt", b"key\0\1\0en\0key\0" + text_bomb(3 << 20)),
        "profile, bomb": chunk(b"iCCP", b"name\0\0" + text_bomb(2 << 20)),
        "profile, method": chunk(b"iCCP", b"name\0\1junk"),
        "profile, short": chunk(b"iCCP", b"name\0"),
        "profile, nameless": chunk(b"iCCP", b"name"),
        "profile, empty": chunk(b"iCCP", b""),
        "texts of 128 MiB": 128 * chunk(b"zTXt", b"key\0\0" + text_bomb(1 << 20)),
        "XMP of 40 GiB": 20000 * xmp,
        "ImageMagick's EXIF of 3 MiB": chunk(b"zTXt", b"Raw profile type exif\0\0" + text_bomb(3 << 20)),
    }
    for name, extra in odd.items():
        data = png(6, 5, 8, 2, rows, extra=extra)
        assert isinstance(pillow(io.BytesIO(data)), Exception), f"{name}: no longer refused by Pillow"
        for exif in (False, True):
            same(decoder.bytes(data, exif=exif), expected, f"{name} in front")
            same(decoder.bytes(png(6, 5, 8, 2, rows, behind=extra), exif=exif), expected, f"{name} behind")


def test_png_palette_shorter_or_longer_than_its_indices(decoder):
    """Indices without a colour are black; more than 256 colours are an error."""
    rng = random.Random(10)
    rows = list(random_rows(16, 16, 8, 3, 0, rng, filters=False))
    for n in [None, 0, 1, 3, 5, 6, 300, 767, 768, 769, 770, 771, 900]:
        check(decoder, png(16, 16, 8, 3, rows, None if n is None else rng.randbytes(n)), f"palette of {n} bytes")
        short = png(16, 16, 8, 3, rows[:4], None if n is None else rng.randbytes(n))
        check(decoder, short, f"palette of {n} bytes, 4 rows")


def test_interlaced_png_that_ends_early(decoder):
    """A stream that ends between two rows leaves the rest zero; one that ends inside a row is refused."""
    rng = random.Random(11)
    for width, height in [(9, 9), (3, 5), (17, 12)]:
        raw = b"".join(random_rows(width, height, 8, 0, 1, rng))
        for n in range(len(raw)):
            check(
                decoder, png(width, height, 8, 0, [], raw=zlib.compress(raw[:n]), interlace=1), f"{width}x{height} {n}"
            )


def test_animated_png_gives_what_pillow_gives_first(decoder):
    """The default image, or the first frame, which may cover a part of the canvas only."""
    rng = random.Random(12)

    def control(sequence, x, y, w, h):
        return chunk(b"fcTL", struct.pack(">IIIIIHHBB", sequence, w, h, x, y, 1, 10, 0, 0))

    def frame(sequence, w, h):
        return chunk(b"fdAT", struct.pack(">I", sequence) + zlib.compress(b"".join(random_rows(w, h, 8, 2, 0, rng))))

    for frames in (0, 1, 2, 3):
        count = chunk(b"acTL", struct.pack(">II", frames, 0))
        for x, y, w, h in [
            (0, 0, 20, 10),
            (3, 2, 11, 7),
            (0, 0, 5, 10),
            (19, 9, 1, 1),
            (5, 5, 16, 5),
            (0, 0, 0, 0),
            (2, 2, 0, 3),
        ]:
            rows = list(random_rows(w or 20, h or 10, 8, 2, 0, rng))
            for start in (0, 1):
                data = png(
                    20,
                    10,
                    8,
                    2,
                    rows,
                    extra=count + control(start, x, y, w, h),
                    behind=control(1, 0, 0, 4, 4) + frame(2, 4, 4),
                )
                check(decoder, data, f"{frames} frames, first {(x, y, w, h)}, sequence {start}")
        rows = list(random_rows(20, 10, 8, 2, 0, rng))
        check(
            decoder,
            png(20, 10, 8, 2, rows, extra=count, behind=control(0, 1, 1, 4, 4) + frame(1, 4, 4)),
            "default image",
        )
        check(
            decoder,
            png(20, 10, 8, 2, rows, extra=count, behind=control(0, 1, 1, 4, 4) + frame(2, 4, 4)),
            "wrong sequence",
        )
    for save_all in [dict(default_image=True), {}]:
        images = [Image.fromarray(noise(40, 30, 4, seed=s), "RGBA") for s in range(3)]
        check(decoder, saved(images[0], "PNG", save_all=True, append_images=images[1:], **save_all), "Pillow's own")


def test_bombs_are_refused_quickly(decoder):
    """Files that claim far more pixels than they hold are refused with the limit's outcome, where Pillow may try."""
    jpeg = saved(Image.fromarray(noise(24, 24)), "JPEG", progressive=True)
    at = jpeg.index(b"\xff\xc2")
    for width, height in [(65500, 65500), (13000, 13000)]:
        bomb = jpeg[: at + 5] + struct.pack(">HH", height, width) + jpeg[at + 9 :]
        assert decoder.bytes(bomb)[0] == 3
        assert decoder.bytes(png(width, height, 8, 2, [b"\0" * 10]))[0] == 3
    assert decoder.bytes(png(100000, 100000, 1, 0, [b"\0" * 10]))[0] == 3


def test_a_text_bomb_is_not_unpacked(decoder, odd):
    """png_decompression_dos.png unpacks to gigabytes of text, for which Pillow refuses it; its pixels are read."""
    assert isinstance(pillow(odd / "png_decompression_dos.png"), Exception)
    assert isinstance(decoder.file(odd / "png_decompression_dos.png"), np.ndarray)


def test_a_plain_large_png_is_no_bomb(decoder):
    """A white picture of 12 megapixels packs to a few kilobytes and is decoded like any other."""
    data = saved(Image.new("RGB", (4000, 3000), (250, 251, 252)), "PNG")
    ours = decoder.bytes(data, region=(1000, 2000, 500, 600))
    assert ours.shape == (600, 500, 3) and (ours == (250, 251, 252)).all()


def test_too_many_scans_are_refused(decoder):
    """A progressive JPEG whose last scan is repeated: 100 scans are decoded, 101 refused."""
    data = saved(Image.fromarray(noise(24, 24)), "JPEG", progressive=True)
    scans = [i for i in range(len(data) - 1) if data[i : i + 2] == b"\xff\xda"]
    last = data.rindex(b"\xff\xc4", 0, scans[-1])
    body, scan = data[:-2], data[last:-2]

    def repeated(n):
        return body + scan * (n - len(scans)) + b"\xff\xd9"

    check(decoder, repeated(100), "100 scans")
    assert decoder.bytes(repeated(101))[0] == 3


# ---- WebP ----


@pytest.mark.parametrize(
    "options", [dict(lossless=True), dict(quality=80), dict(quality=10, method=6), dict(lossless=True, exact=True)]
)
@pytest.mark.parametrize("channels", [3, 4])
def test_webp_lossy_lossless_and_with_alpha(decoder, options, channels):
    """Whole and in random regions."""
    rng = random.Random(13)
    for width, height in [(1, 1), (2, 2), (3, 5), (16, 16), (17, 33), (40, 39), (200, 150)]:
        data = saved(Image.fromarray(noise(width, height, channels)), "WEBP", **options)
        check(decoder, data, f"{width}x{height} {options}")
        check_regions(decoder, data, f"{width}x{height} {options}", 25, rng)


def test_animated_webp_gives_its_first_frame(decoder):
    """Frames that cover the canvas and frames that do not."""
    rng = random.Random(14)
    images = [Image.fromarray(noise(60, 44, 4, seed=s), "RGBA") for s in range(3)]
    images.append(Image.new("RGBA", (60, 44)))
    small = Image.new("RGBA", (60, 44))
    small.paste(Image.fromarray(noise(20, 10)), (16, 22))
    for first in images + [small]:
        for lossless in (False, True):
            data = saved(first, "WEBP", save_all=True, append_images=images, lossless=lossless, duration=100)
            check(decoder, data, "animation")
            check_regions(decoder, data, "animation", 30, rng)


# ---- orientation ----


def exif_with(orientation, order="<"):
    e = Image.Exif()
    e.endian = order
    e[0x0112] = orientation
    e[0x010F] = "a maker's name that does not fit in four bytes"
    return e.tobytes()


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(0, 10))
def test_orientation_is_applied_as_pillow_does(decoder, format, orientation):
    """All eight orientations and two impossible ones, both byte orders, whole and in regions; not applied unless asked."""
    rng = random.Random(15)
    for order in "<>":
        data = saved(Image.fromarray(noise(37, 22)), format, exif=exif_with(orientation, order))
        check(decoder, data, f"{format} {orientation}")
        check(decoder, data, f"{format} {orientation} upright", exif=True)
        upright = pillow(io.BytesIO(data), exif=True)
        decoder.scratch.write_bytes(data)
        for x, y, w, h in regions_of(upright.shape[1], upright.shape[0], 12, rng):
            ours = decoder.file(decoder.scratch, region=(x, y, w, h), exif=True)
            same(ours, upright[y : y + h, x : x + w], f"{format} {orientation} {(x, y, w, h)}")


XMP = '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description %s</x:xmpmeta>'


@pytest.mark.parametrize(
    "text",
    [
        'tiff:Orientation="6"/>',
        "><tiff:Orientation>8</tiff:Orientation>",
        'tiff:Orientation="0"/>',
        "tiff:Orientation=6/>",
        'tiff:Orientation="x" tiff:Orientation="3"',
    ],
)
def test_orientation_in_xmp(decoder, text):
    """Without EXIF, XMP gives the orientation."""
    xmp = (XMP % text).encode()
    image = Image.fromarray(noise(20, 11))
    check(decoder, saved(image, "JPEG", xmp=xmp), "JPEG", exif=True)
    check(decoder, saved(image, "WEBP", xmp=xmp), "WebP", exif=True)
    rows = [b"\0" + r.tobytes() for r in np.asarray(image)]
    for body in [b"\0\0\0\0" + xmp, b"\1\0\0\0" + zlib.compress(xmp)]:
        check(decoder, png(20, 11, 8, 2, rows, extra=chunk(b"iTXt", b"XML:com.adobe.xmp\0" + body)), "PNG", exif=True)


def test_orientation_in_imagemagicks_text(decoder):
    """ "Raw profile type exif", as ImageMagick writes it, packed or not."""
    image = Image.fromarray(noise(20, 11))
    rows = [b"\0" + r.tobytes() for r in np.asarray(image)]
    exif = exif_with(6)
    text = (
        f"\nexif\n{len(exif):8}\n".encode()
        + b"\n".join(exif.hex().encode()[i : i + 72] for i in range(0, 2 * len(exif), 72))
        + b"\n"
    )
    key = b"Raw profile type exif\0"
    for extra in [chunk(b"tEXt", key + text), chunk(b"zTXt", key + b"\0" + zlib.compress(text))]:
        check(decoder, png(20, 11, 8, 2, rows, extra=extra), "in front", exif=True)
        check(decoder, png(20, 11, 8, 2, rows, behind=extra), "behind", exif=True)


def test_exif_in_several_segments_is_joined(decoder):
    """A record split over two APP1 segments still gives the orientation."""
    data = saved(Image.fromarray(noise(20, 11)), "JPEG")
    body = exif_with(8)[6:]
    for cut in (8, 14, 20, len(body)):
        parts = [b"Exif\0\0" + body[:cut], b"Exif\0\0" + body[cut:]]
        segments = b"".join(struct.pack(">BBH", 0xFF, 0xE1, len(p) + 2) + p for p in parts)
        check(decoder, data[:2] + segments + data[2:], f"cut at {cut}", exif=True)

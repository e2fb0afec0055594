"""Pictures for the tests, made from seeds: pictures.py DIR

    DIR/photos/   400 photograph-like JPEGs in 20 classes of 20, written as cameras and programs write them: any
                  sampling of the colours, baseline and progressive, restart markers, optimized tables, grey, CMYK,
                  EXIF, odd sizes
    DIR/odd/      files that trip loaders: 1, 16 and palette bits, transparency, interlacing, rotation, cut and broken
                  files, a text bomb

They have the names and the layout of the folder of real photographs that BATCHD_TEST_DATA may name instead
(../shared/data, where it exists). Pillow's own result is the expected one for each file, so the bytes need not be
the same for every version of Pillow.
"""

import concurrent.futures
import fcntl
import hashlib
import io
import os
import pathlib
import shutil
import struct
import sys
import zlib

import numpy as np
from PIL import Image, ImageDraw

N_CLASSES, PER_CLASS = 20, 20
SAMPLINGS = ("4:2:0", "4:2:0", "4:4:4", "4:2:2")


# ---- pixels ----


def scene(rng, width, height):
    """Noise of all wavelengths with a photograph's spectrum, edges, and a sensor's grain."""
    canvas = np.full((height, width, 3), rng.uniform(70, 180, 3), np.float32)
    for cells, amplitude in ((2, 45), (5, 30), (11, 22), (25, 16), (60, 12), (150, 9)):
        shape = (max(2, cells * height // max(width, height)), max(2, cells * width // max(width, height)))
        grey, tint = (Image.fromarray(rng.normal(0, a, shape).astype(np.float32)) for a in (amplitude, amplitude / 3))
        grey, tint = (np.asarray(i.resize((width, height), Image.Resampling.BICUBIC))[..., None] for i in (grey, tint))
        canvas += grey + tint * np.array([1, 0, -1], np.float32)
    image = Image.fromarray(np.clip(canvas, 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for _ in range(rng.integers(2, 9)):
        corners = [(int(rng.integers(-20, width + 20)), int(rng.integers(-20, height + 20))) for _ in range(3)]
        colour = tuple(int(v) for v in rng.integers(0, 256, 3))
        if rng.random() < 0.5:
            draw.polygon(corners, fill=colour)
        else:
            (x0, x1), (y0, y1) = sorted((corners[0][0], corners[1][0])), sorted((corners[0][1], corners[1][1]))
            draw.ellipse((x0, y0, x1, y1), fill=colour, outline=(0, 0, 0))
    grained = np.asarray(image, np.float32) + rng.normal(0, rng.uniform(1, 7), (height, width, 1)).astype(np.float32)
    return Image.fromarray(np.clip(grained, 0, 255).astype(np.uint8))


def picture(width, height, seed=0):
    return scene(np.random.default_rng(seed), width, height)


def written(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def orientation(value):
    exif = Image.Exif()
    exif[0x0112] = value
    return exif


# ---- photographs ----


def photograph(number):
    """The bytes of photograph 0..399. Every kind of JPEG comes several times, about as often as in collections."""
    rng = np.random.default_rng(number)
    long, short = int(rng.integers(440, 560)), int(rng.integers(300, 420))
    size = (500, 375) if number % 4 == 0 else (long, short) if number % 5 else (short, long)
    if number % 40 == 7:
        size = (int(rng.integers(60, 200)), int(rng.integers(60, 200)))  # smaller than what is cut out of it
    if number % 100 == 13:
        size = (1501, 1127)
    image = scene(rng, *size)
    options = {"quality": int(rng.integers(70, 97)), "subsampling": SAMPLINGS[rng.integers(len(SAMPLINGS))]}
    if number % 7 == 1:
        options["progressive"] = True
    if number % 5 == 2:
        options["optimize"] = True
    if number % 6 == 3:  # Pillow before 10.2 knows no restart markers and ignores these
        options["restart_marker_rows" if number % 12 == 3 else "restart_marker_blocks"] = int(rng.integers(1, 9))
    if number % 9 == 4:
        options["exif"] = orientation(int(rng.integers(1, 9)))
    if number % 25 == 5:
        image = image.convert("L")
    if number % 50 == 6:
        image = image.convert("CMYK")
    if image.mode != "RGB":
        del options["subsampling"]
    return written(image, "JPEG", **options)


def write_class(folder, label):
    place = folder / f"class{label:02}"
    place.mkdir(parents=True)
    for i in range(PER_CLASS):
        suffix = ".jpg" if i % 2 else ".JPEG"
        (place / f"{label:02}-{i:02}{suffix}").write_bytes(photograph(label * PER_CLASS + i))


# ---- odd files ----


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(image, interlaced=False, before=b""):
    """An 8-bit RGB PNG: interlaced, or with the caller's chunks before the pixels; Pillow writes neither."""
    pixels = np.asarray(image.convert("RGB"))
    passes = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
    if not interlaced:
        passes = ((0, 0, 1, 1),)
    rows = b"".join(b"\0" + row.tobytes() for x, y, dx, dy in passes for row in pixels[y::dy, x::dx])
    header = struct.pack(">IIBBBBB", image.width, image.height, 8, 2, 0, 0, int(interlaced))
    data = before + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + data


def segments(jpeg):
    """A JPEG's segments up to the scan: (offset, marker, whole segment)."""
    at = 2
    while True:
        marker, length = jpeg[at + 1], struct.unpack(">H", jpeg[at + 2 : at + 4])[0]
        yield at, marker, jpeg[at : at + 2 + length]
        if marker == 0xDA:
            return
        at += 2 + length


def with_16_bit_quantizers(jpeg):
    out, end = b"\xff\xd8", 2
    for at, marker, segment in segments(jpeg):
        end = at + len(segment)
        if marker != 0xDB:
            out += segment
            continue
        tables = segment[4:]
        for i in range(0, len(tables), 65):
            wide = b"".join(struct.pack(">H", v) for v in tables[i + 1 : i + 65])
            out += b"\xff\xdb" + struct.pack(">H", 3 + len(wide)) + bytes([0x10 | tables[i]]) + wide
    return out + jpeg[end:]


def with_profile_behind_frame(jpeg):
    """Moves the colour profile after the frame header, as some cameras have it."""
    parts = [(marker, segment) for _, marker, segment in segments(jpeg)]
    end = max(at + len(segment) for at, _, segment in segments(jpeg))
    profile = [segment for marker, segment in parts if marker == 0xE2]
    out = b"\xff\xd8"
    for marker, segment in parts:
        if marker != 0xE2:
            out += segment
        if marker in (0xC0, 0xC2):
            out += b"".join(profile)
    return out + jpeg[end:]


def odd_files():
    """Names and bytes."""
    base, small = picture(128, 128, 1), picture(64, 64, 2)
    jpeg = written(base, "JPEG", quality=80, comment=b"made by a test")
    palette = base.convert("P", palette=Image.Palette.ADAPTIVE, colors=16)
    alpha = Image.fromarray(np.tile(np.arange(200, dtype=np.uint8), (150, 1)))
    seen = picture(200, 150, 3)
    seen.putalpha(alpha)
    yield "1_trns.png", written(small.convert("1"), "PNG", transparency=255)
    yield "l_trns.png", written(small.convert("L"), "PNG", transparency=255)
    yield "rgb_trns.png", written(small, "PNG", transparency=(0, 255, 52))
    wide = np.asarray(small.convert("L"), np.uint16) * 257
    yield "i_trns.png", written(Image.fromarray(wide), "PNG", transparency=255)
    wide = np.asarray(picture(128, 64, 4).convert("L"), np.uint16) * 251
    yield "mode_16bit.png", written(Image.fromarray(wide), "PNG")
    yield "p_16.png", written(palette, "PNG", bits=4)
    yield "pil168.png", png(picture(256, 256, 5), interlaced=True)
    yield "broken.png", written(small, "PNG")[:80]
    bomb = zlib.compress(bytes(64 << 20), 9)
    yield "png_decompression_dos.png", png(small, before=chunk(b"zTXt", b"Comment\0\0" + bomb))
    yield "hopper.jpg", jpeg
    yield "hopper_gray.jpg", written(base.convert("L"), "JPEG", quality=80)
    yield "hopper.webp", written(base, "WEBP", quality=80)
    yield "hopper_16bit_qtables.jpg", with_16_bit_quantizers(written(base, "JPEG", quality=20))
    tiny = written(picture(10, 10, 6).convert("L"), "JPEG", icc_profile=bytes(400))
    yield "icc-after-SOF.jpg", with_profile_behind_frame(tiny)
    yield "pil_sample_cmyk.jpg", written(picture(100, 100, 7).convert("CMYK"), "JPEG", quality=85)
    yield "transparent.webp", written(seen, "WEBP", quality=80)
    for value in (2, 3, 5, 6, 8):
        yield f"hopper_orientation_{value}.jpg", written(base, "JPEG", quality=85, exif=orientation(value))
    yield "hopper_orientation_6.webp", written(base, "WEBP", quality=85, exif=orientation(6))
    for value in (1, 3, 6, 8):
        size = (1800, 1200) if value in (1, 3) else (1200, 1800)
        yield f"exif-landscape-{value}.jpg", written(picture(*size, 8), "JPEG", quality=75, exif=orientation(value))
    exif = orientation(1)
    exif[0x011A] = 72.0  # the resolution, whose value lies beyond the cut
    cut = exif.tobytes()[:-6]
    yield "truncated_exif_dpi.jpg", written(picture(480, 640, 9), "JPEG", quality=30, exif=cut)
    whole = written(picture(100, 100, 10), "JPEG", quality=90, progressive=True)
    yield "truncated_jpeg.jpg", whole[: len(whole) * 2 // 3]


# ---- the folder ----


def stamp():
    """The inputs that determine the files."""
    import PIL

    versions = f"{PIL.__version__} {np.__version__}".encode()
    return hashlib.sha256(pathlib.Path(__file__).read_bytes() + versions).hexdigest()


def make(folder):
    """The folder's path. Makes the folder first, in a few seconds, unless this version of this file has made it before;
    callers take turns."""
    folder = pathlib.Path(folder)
    mark = folder / ".made-from"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / f".{folder.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (mark.is_file() and mark.read_text() == stamp()):
            shutil.rmtree(folder, ignore_errors=True)
            with concurrent.futures.ProcessPoolExecutor(len(os.sched_getaffinity(0))) as crew:
                for done in [crew.submit(write_class, folder / "photos", label) for label in range(N_CLASSES)]:
                    done.result()
            (folder / "odd").mkdir()
            for name, data in odd_files():
                (folder / "odd" / name).write_bytes(data)
            mark.write_text(stamp())
    return folder


if __name__ == "__main__":
    print(make(sys.argv[1]))

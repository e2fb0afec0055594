"""Every kind of file that torchvision's ImageFolder lists, through the daemon: Pillow's pixels, and bounded memory."""

import io
import json
import os
import pathlib
import struct
import zlib

import batchd
import numpy as np
import pytest
from PIL import Image

from pictures_by_hand import bmp
from test_decode import noise
from tiffs_by_hand import LZW, tiff

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # torchvision's IMG_EXTENSIONS
MIB = 1 << 20
BUDGET = 64 * MIB
SANITIZED = any(name in os.environ.get("BATCHD_BUILD", "") for name in ("asan", "tsan"))


def test_every_kind_of_imagefolder_is_served(daemon, batchctl, tmp_path):
    """In the order of ImageFolder, whatever the case of the extension; verify counts the formats."""
    folder = tmp_path / "folder" / "class"
    folder.mkdir(parents=True)
    paths = []
    for i, extension in enumerate((*EXTENSIONS, *(e.upper() for e in EXTENSIONS))):
        picture = Image.fromarray(noise(24 + i, 30, seed=i))
        path = folder / f"{i:02}{extension}"
        kind = {".pgm": "PPM", ".ppm": "PPM"}.get(extension.lower())
        (picture.convert("L") if extension.lower() == ".pgm" else picture).save(path, kind)
        paths.append(path)
    options = dict(arrays="numpy", dtype="uint8", transform=[["CenterCrop", [16, 16]]])
    loader = batchd.DataLoader(f"imagefolder:{tmp_path}/folder", 6, **options)
    rows = np.concatenate([pixels.copy() for pixels, _ in loader])
    assert len(rows) == len(paths) and loader.last_batch.n_replaced == 0
    for row, path in zip(rows, paths):
        whole = np.asarray(Image.open(path).convert("RGB"))
        y, x = round((whole.shape[0] - 16) / 2), round((whole.shape[1] - 16) / 2)
        assert (row.transpose(1, 2, 0) == whole[y : y + 16, x : x + 16]).all(), path.name
    said = json.loads(batchctl("verify", tmp_path / "folder", "--json", "--quiet").stdout)
    assert said["n_bad"] == 0
    assert said["formats"] == {"jpeg": 4, "png": 2, "webp": 2, "bmp": 2, "pnm": 4, "gif": 0, "tiff": 4}


def test_a_list_of_gifs_is_served(daemon, tmp_path):
    """GIF is not among ImageFolder's extensions; a list takes it."""
    pictures = [Image.fromarray(noise(20, 20, seed=i)).quantize(100) for i in range(4)]
    for i, picture in enumerate(pictures):
        picture.save(tmp_path / f"{i}.gif", save_all=True, append_images=[pictures[0]])
    (tmp_path / "list").write_text("".join(f"{i}.gif\t{i}\n" for i in range(4)))
    options = dict(arrays="numpy", dtype="uint8", transform=[["CenterCrop", [20, 20]]])
    for pixels, labels in batchd.DataLoader(f"files:{tmp_path}/list", 4, **options):
        for row, label in zip(pixels, labels):
            expected = np.asarray(Image.open(tmp_path / f"{label}.gif").convert("RGB"))
            assert (row.transpose(1, 2, 0) == expected).all()


def hostile():
    """Small files that claim large pictures, or unpack to them."""
    edge = 13000
    yield "run lengths", bmp(edge, edge, 8, bytes([0, 2, 0, 255]) * 60, compression=1, palette=bytes(1024), colors=256)
    yield (
        "GIF",
        b"GIF89a"
        + struct.pack("<HHBBB", edge, edge, 0, 0, 0)
        + b","
        + struct.pack("<HHHHBB", 0, 0, edge, edge, 0, 8)
        + b"\2\0\1\0;",
    )
    zeros = np.zeros((4, 4, 3), np.uint8)
    one = zlib.compress(bytes(64 * MIB), 9)
    for name, tags in (
        ("one strip", [(256, 4, [edge]), (257, 4, [edge]), (278, 4, [edge])]),
        ("one tile", [(256, 4, [edge]), (257, 4, [edge])]),
    ):
        data = tiff(zeros, 2, compression=8, tags=tags, tile=(4, 4) if name == "one tile" else None)
        yield name, data
    bomb = tiff(
        np.zeros((1, 1, 3), np.uint8), 2, compression=8, tags=[(256, 4, [edge]), (257, 4, [edge]), (278, 4, [edge])]
    )
    packed = zlib.compress(bytes(6))
    at = bomb.index(zlib.compress(bytes(3)))
    yield "bomb", bomb[:at] + one + packed
    pixels = np.zeros((16, 16, 3), np.uint8)
    yield (
        "tile beyond the picture",
        tiff(pixels, 2, compression=LZW, tile=(16, 16), tags=[(322, 4, [edge]), (323, 4, [edge])]),
    )


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's own memory is not the daemon's")
def test_memory_that_small_files_claim_is_bounded(make_daemon, tmp_path):
    """Forged files among good ones: these arrive, those are replaced, and the daemon stays in its budget."""
    daemon = make_daemon("--workers", "4", "--memory", f"{BUDGET}", config="linger: 0s\nbad_data: 100%\n")
    bad = [data for _, data in hostile()]
    out = io.BytesIO()
    Image.fromarray(noise(64, 64)).save(out, "TIFF", compression="tiff_lzw")
    files = [data for one in bad for data in (one, out.getvalue())]
    for i, data in enumerate(files):
        (tmp_path / f"{i}.img").write_bytes(data)
    (tmp_path / "list").write_text("".join(f"{i}.img\t{i}\n" for i in range(len(files))))
    options = dict(arrays="numpy", dtype="uint8", transform=[["CenterCrop", [64, 64]]])
    loader, n_bad = batchd.DataLoader(f"files:{tmp_path}/list", 2, **options), 0
    expected = np.asarray(Image.open(io.BytesIO(out.getvalue())).convert("RGB"))
    for pixels, labels in loader:
        n_bad += loader.last_batch.n_replaced
        for row, label in zip(pixels, labels):
            assert label % 2 == 1 and (row.transpose(1, 2, 0) == expected).all()
    status = pathlib.Path(f"/proc/{daemon.pid}/status").read_text()
    peak = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))
    assert n_bad == len(bad) and peak <= BUDGET + 64 * MIB

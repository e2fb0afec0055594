"""Lossless WebP pictures whose Huffman tables are large: libwebp allocates them by itself, and the daemon counts them."""

import io
import os
import pathlib
import random

import batchd
import numpy as np
import pytest
from PIL import Image

import webps

MIB = 1 << 20
BUDGET = 64 * MIB
EDGE, N_TILES = 1024, 65536
SANITIZED = any(name in os.environ.get("BATCHD_BUILD", "") for name in ("asan", "tsan"))


def peak(daemon):
    for line in pathlib.Path(f"/proc/{daemon.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError


def written(picture, kind, **options):
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def pillow(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def photograph(width, height, seed):
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (height // 16, width // 16, 3), np.uint8))
    smooth = np.asarray(small.resize((width, height), Image.Resampling.BICUBIC), np.int16)
    return Image.fromarray(np.clip(smooth + rng.integers(-4, 5, (height, width, 1)), 0, 255).astype(np.uint8))


def shuffled(n_groups):
    numbers = [i % n_groups for i in range(N_TILES)]
    random.Random(0).shuffle(numbers)
    return numbers


def forged():
    """Pictures of a megapixel, each of which makes libwebp allocate 774 MiB and fill half of that."""
    numbers = shuffled(65536)
    lossy = written(Image.new("RGB", (EDGE, EDGE), (9, 99, 200)), "WEBP")
    return [
        webps.plain(EDGE, numbers),
        webps.animated(EDGE, numbers),
        webps.transparent(lossy, EDGE, numbers),
    ]


def make_list(folder, files):
    for i, data in enumerate(files):
        (folder / f"{i}.webp").write_bytes(data)
    (folder / "list").write_text("".join(f"{i}.webp\t{i}\n" for i in range(len(files))))
    return f"files:{folder}/list"


def load(source, **options):
    return batchd.DataLoader(source, **{"batch_size": 4, "arrays": "numpy", "dtype": "uint8", **options})


def test_pillow_reads_what_the_tests_write():
    # Proves that these are valid pictures: each tile has the colour of its group's number.
    numbers = [(i * 1000003) % 65536 for i in range(256)]
    expected = np.zeros((64, 64, 3), np.uint8)
    for i, number in enumerate(numbers):
        y, x = divmod(i, 16)
        expected[4 * y : 4 * y + 4, 4 * x : 4 * x + 4] = (number >> 8, number & 255, 0)
    lossy = written(Image.new("RGB", (64, 64), (9, 99, 200)), "WEBP")
    assert (pillow(webps.plain(64, numbers)) == expected).all()
    assert (pillow(webps.animated(64, numbers)) == expected).all()
    assert np.asarray(Image.open(io.BytesIO(webps.transparent(lossy, 64, numbers))).convert("RGBA"))[0, 0, 3] == (
        numbers[0] & 255
    )


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's own memory is not the daemon's")
def test_huffman_tables_of_a_webp_are_counted(make_daemon, tmp_path):
    # Four workers decode forged pictures, while they also decode ordinary ones: these all arrive.
    daemon = make_daemon("--workers", "4", "--memory", f"{BUDGET}", config="linger: 0s\nbad_data: 100%\n")
    ordinary = [written(photograph(500, 375, i), "WEBP", lossless=True) for i in range(8)]
    bad_ones = forged()
    files = [data for i, good in enumerate(ordinary) for data in (good, bad_ones[i % 3])]
    with load(make_list(tmp_path, files), transform=[["CenterCrop", [64, 64]]]) as loader:
        rows, bad = [], 0
        for batch in loader:
            bad += loader.last_batch.n_replaced
            rows += [(pixels.copy(), label) for pixels, label in zip(*batch)]
    assert peak(daemon) <= BUDGET + 64 * MIB
    assert bad == 8
    for pixels, label in rows:
        assert label % 2 == 0
        expected = pillow(files[label])[156 : 156 + 64, 218 : 218 + 64]
        assert (pixels.transpose(1, 2, 0) == expected).all()


def test_a_webp_with_large_numbers_of_few_groups_is_read(make_daemon, tmp_path):
    # Only groups in use take memory: 300 of 65536 numbers here, and 1000 in a row.
    make_daemon("--workers", "2", "--memory", f"{BUDGET}")
    few = [(i % 300) * 218 for i in range(N_TILES)]
    files = [webps.plain(EDGE, few), webps.animated(EDGE, few), webps.plain(EDGE, shuffled(1000))]
    with load(make_list(tmp_path, files), batch_size=1, transform=[["CenterCrop", [512, 512]]]) as loader:
        for pixels, label in loader:
            expected = pillow(files[label[0]])[256:768, 256:768]
            assert (pixels[0].transpose(1, 2, 0) == expected).all()
        assert loader.last_batch.n_replaced == 0

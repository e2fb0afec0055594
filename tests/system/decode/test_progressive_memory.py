"""Progressive JPEGs and PNGs of many pixels in few bytes: decoders wait or refuse, and the daemon stays within its
budget."""

import io
import os
import pathlib

import batchd
import numpy as np
import pytest
from PIL import Image

MIB = 1 << 20
BUDGET = 64 * MIB
SANITIZED = any(name in os.environ.get("BATCHD_BUILD", "") for name in ("asan", "tsan"))

pytestmark = pytest.mark.skipif(SANITIZED, reason="a sanitizer's own memory is not the daemon's")


def peak(daemon):
    for line in pathlib.Path(f"/proc/{daemon.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError


@pytest.fixture
def small(make_daemon):
    daemon = make_daemon("--workers", "4", "--memory", f"{BUDGET}", config="linger: 0s\n")
    yield daemon
    assert peak(daemon) <= BUDGET + 64 * MIB


def flat(edge, kind, **options):
    out = io.BytesIO()
    Image.new("RGB", (edge, edge), (200, 100, 50)).save(out, kind, **options)
    return out.getvalue()


def load(folder, data, n):
    for i in range(n):
        (folder / f"{i}").write_bytes(data)
    (folder / "list").write_text("".join(f"{i}\t{i}\n" for i in range(n)))
    return batchd.DataLoader(
        f"files:{folder}/list",
        batch_size=4,
        arrays="numpy",
        dtype="uint8",
        transform=[["CenterCrop", [64, 64]]],
    )


def test_coefficients_of_a_progressive_jpeg_are_counted(small, tmp_path):
    # 64 MB of coefficients for the rows down to the crop's end.
    data = flat(6000, "JPEG", progressive=True)
    with pytest.raises(batchd.BadDataError, match="MiB for one image"), load(tmp_path, data, 8) as loader:
        next(iter(loader))


def test_progressive_jpegs_that_fit_one_at_a_time_take_turns(small, tmp_path):
    # 12 MB of coefficients for each of four workers.
    data = flat(2600, "JPEG", progressive=True)
    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))[:64, :64].transpose(2, 0, 1)
    with load(tmp_path, data, 16) as loader:
        rows = [row.copy() for images, _ in loader for row in images]
        assert loader.last_batch.n_replaced == 0
    assert len(rows) == 16 and all((row == expected).all() for row in rows)


def test_a_large_png_takes_memory_for_its_crop(small, tmp_path):
    # 108 MB of pixels in 316 kB.
    with load(tmp_path, flat(6000, "PNG"), 8) as loader:
        rows = [row.copy() for images, _ in loader for row in images]
        assert loader.last_batch.n_replaced == 0
    assert len(rows) == 8 and all((row == np.array([200, 100, 50])[:, None, None]).all() for row in rows)

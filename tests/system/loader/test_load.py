"""batchd.load: one image through a pipeline, against torchvision on Pillow's pixels and against a loader."""

import contextlib
import os
import pathlib
import threading

import numpy as np
import pytest

import batchd
from batchd import _load
from vision import import_torchvision

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def files(photos, n=4):
    return sorted(p for p in pathlib.Path(photos).rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))[:n]


def torchvisions(path):
    """val224 as torchvision's reference evaluation has it: pixels, and the finished tensor."""
    torch = pytest.importorskip("torch")
    Image = pytest.importorskip("PIL.Image")
    try:
        transforms = import_torchvision().transforms.v2
    except ImportError:
        pytest.skip("torchvision is not installed")
    with Image.open(path) as image:
        pixels = transforms.CenterCrop(224)(transforms.Resize(256)(image.convert("RGB")))
    tensor = transforms.Compose([transforms.ToImage(), transforms.ToDtype(torch.float32, scale=True)])(pixels)
    return np.asarray(pixels), transforms.Normalize(MEAN, STD)(tensor).numpy()


def test_equals_torchvision_on_pillow(photos):
    """Pixels byte for byte; torchvision rounds its floats in another order."""
    for path in files(photos):
        pixels, tensor = torchvisions(path)
        assert np.array_equal(batchd.load(path, dtype="uint8", layout="NHWC", arrays="numpy"), pixels), path
        assert np.abs(batchd.load(path, arrays="numpy") - tensor).max() < 1e-6, path


def test_path_bytes_and_arrays_give_the_same(photos):
    path = files(photos)[0]
    data = path.read_bytes()
    wanted = batchd.load(path, arrays="numpy")
    assert wanted.shape == (3, 224, 224) and wanted.dtype == np.float32
    for source in (str(path), data, bytearray(data), memoryview(data), np.frombuffer(data, np.uint8)):
        assert np.array_equal(batchd.load(source, arrays="numpy"), wanted)


def test_a_list_has_a_row_for_each_image(photos):
    paths = files(photos, 5)
    rows = batchd.load(paths, dtype="uint8", layout="NHWC", arrays="numpy")
    assert rows.shape == (len(paths), 224, 224, 3) and rows.dtype == np.uint8
    for path, row in zip(paths, rows):
        assert np.array_equal(batchd.load(path, dtype="uint8", layout="NHWC", arrays="numpy"), row)
    assert batchd.load([], arrays="numpy").shape == (0, 3, 224, 224)


@pytest.mark.parametrize("transform", ["val224", "train224"])
def test_equals_the_loaders_rows(daemon, samples, transform):
    """Random ops, too: drawn by the seed, the epoch and the sample's index."""
    listed = sorted(p for p in samples.rglob("*.jpg"))
    loader = batchd.DataLoader(
        f"imagefolder:{samples}", batch_size=8, transform=transform, seed=5, shuffle=True, arrays="numpy"
    )
    loader.set_epoch(3)
    for images, _ in loader:
        for row, i in zip(images, loader.last_batch.indices):
            ours = batchd.load(listed[i], transform, seed=5, epoch=3, index=int(i), arrays="numpy")
            assert np.array_equal(ours, row)
        break
    loader.close()


def test_exif_orientation_is_applied_where_asked(odd):
    Image, ImageOps = pytest.importorskip("PIL.Image"), pytest.importorskip("PIL.ImageOps")
    path = odd / "hopper_orientation_6.jpg"
    with Image.open(path) as image:
        turned = ImageOps.exif_transpose(image).convert("RGB")
    same = [["Resize", [turned.height, turned.width]]]
    ours = batchd.load(path, same, dtype="uint8", layout="NHWC", apply_exif=True, arrays="numpy")
    assert np.array_equal(ours, np.asarray(turned))


@pytest.mark.parametrize("data", [b"", b"no image", b"\xff\xd8\xff\xe0" + bytes(64)])
def test_what_is_no_image_is_bad_data(data):
    with pytest.raises(batchd.BadDataError):
        batchd.load(data)


def test_an_error_names_the_image(photos, odd):
    with pytest.raises(batchd.BadDataError, match=r"broken\.png \(number 2 of 2\)"):
        batchd.load([files(photos)[0], odd / "broken.png"])
    with pytest.raises(FileNotFoundError):
        batchd.load("/there/is/no/such.jpg")
    with pytest.raises(batchd.InvalidError, match="Rezise"):
        batchd.load(files(photos)[0], [["Rezise", 3]])
    with pytest.raises(TypeError, match="path"):
        batchd.load(7)
    for views in ({"a": "val224"}, batchd.views("val224", n=2), [[["Resize", [9, 9]]], [["CenterCrop", 9]]]):
        with pytest.raises(TypeError, match="several views"):
            batchd.load(files(photos)[0], views)


def test_a_file_without_end_is_refused_at_the_limit(photos, tmp_path, monkeypatch):
    """A FIFO has no size that could be checked before. What it gives within the limit is an image as any other."""
    photo = files(photos)[0]
    limit = photo.stat().st_size
    monkeypatch.setattr(_load, "_MOST_BYTES", limit)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    taken = []

    def give(data):
        with open(fifo, "wb", buffering=0) as f, contextlib.suppress(BrokenPipeError):
            for at in range(0, len(data), 1 << 16):
                taken.append(f.write(data[at : at + (1 << 16)]))

    for data, fits in ((photo.read_bytes(), True), (bytes(limit + (8 << 20)), False)):
        taken.clear()
        thread = threading.Thread(target=give, args=(data,))
        thread.start()
        if fits:
            assert (batchd.load(fifo) == batchd.load(photo)).all()
        else:
            with pytest.raises(batchd.BadDataError, match=f"at most {limit} are read"):
                batchd.load(fifo)
        thread.join()
    assert sum(taken) < limit + (4 << 20)


def test_a_picture_bomb_is_refused_before_memory_is_spent(tmp_path):
    """The header of a PNG that claims 60000 x 60000 pixels."""
    import struct
    import zlib

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
    bomb = (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")
    )
    with pytest.raises(batchd.BadDataError, match="pixel|Mpx|px"):
        batchd.load(bomb)


def test_threads_load_at_once(photos):
    paths = files(photos, 6)
    wanted = [batchd.load(p, arrays="numpy") for p in paths]
    wrong = []

    def run():
        for _ in range(3):
            wrong.extend(p for p, w in zip(paths, wanted) if not np.array_equal(batchd.load(p, arrays="numpy"), w))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_batchctl_writes_what_python_gets(batchctl, photos, tmp_path):
    path, out = files(photos)[0], tmp_path / "row.npy"
    for dtype in ("uint8", "float16", "float32"):
        made = batchctl("load", path, "--dtype", dtype, "--layout", "NHWC", "--out", out, "--repeat", 3, "--json")
        assert made.returncode == 0, made.stderr
        row = np.load(out)
        assert row.dtype == dtype and np.array_equal(row, batchd.load(path, dtype=dtype, layout="NHWC", arrays="numpy"))
    bad = batchctl("load", "/etc/passwd")
    assert bad.returncode == 1 and "/etc/passwd: " in bad.stderr
    assert batchctl("load", "/no/such").returncode == 4
    assert batchctl("load", path, "--transform", "Nothing").returncode == 2

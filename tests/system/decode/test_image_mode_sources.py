"""image_mode from every kind of source, through caches, views and bad files; what the tools say of it."""

import io
import json
import struct
import subprocess
import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image

import batchd

N, SIZE = 12, (26, 20)
CROP = [["CenterCrop", [SIZE[1], SIZE[0]]]]


def values(i):
    return np.random.default_rng(i).integers(0, 65536, (SIZE[1], SIZE[0])).astype(np.uint16)


def written(i):
    out = io.BytesIO()
    if i % 2:
        Image.fromarray(values(i)).save(out, "png")
    else:
        Image.fromarray(values(i)).save(out, "tiff", compression="tiff_lzw")
    return out.getvalue(), "png" if i % 2 else "tiff"


def folder(path):
    for i in range(N):
        data, kind = written(i)
        place = path / "train" / f"class{i // 6}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{i:03}.{kind}").write_bytes(data)
    return f"imagefolder:{path / 'train'}"


def listed(path):
    folder(path)
    files = sorted((path / "train").rglob("*.*"))
    (path / "list.txt").write_text("".join(f"{f}\t{i}\n" for i, f in enumerate(files)))
    return f"files:{path / 'list.txt'}"


def tar(path):
    with tarfile.open(path / "a.tar", "w") as out:
        for i in range(N):
            data, kind = written(i)
            for name, content in ((f"{i:03}.{kind}", data), (f"{i:03}.cls", b"%d" % i)):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                out.addfile(info, io.BytesIO(content))
    return f"tar:{path / 'a.tar'}"


def zipped(path):
    with zipfile.ZipFile(path / "a.zip", "w", zipfile.ZIP_DEFLATED) as out:
        for i in range(N):
            data, kind = written(i)
            out.writestr(f"c{i // 6}/{i:03}.{kind}", data)
    return f"zip:{path / 'a.zip'}"


def mds(path):
    shard = path / "mds" / "shard.00000.mds"
    shard.parent.mkdir()
    names, encodings = ["image", "label"], ["bytes", "int"]
    samples = []
    for i in range(N):
        data = written(i)[0]
        samples.append(struct.pack("<I", len(data)) + data + struct.pack("<q", i))
    config = {
        "column_encodings": encodings,
        "column_names": names,
        "column_sizes": [None, 8],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "size_limit": None,
        "version": 2,
    }
    text = json.dumps(config).encode()
    offset, offsets = 4 + 4 * (N + 1) + len(text), []
    for s in samples:
        offsets.append(offset)
        offset += len(s)
    offsets.append(offset)
    raw = struct.pack(f"<{N + 2}I", N, *offsets) + text + b"".join(samples)
    shard.write_bytes(raw)
    entry = {**config, "raw_data": {"basename": shard.name, "bytes": len(raw), "hashes": {}}, "zip_data": None}
    entry["samples"] = N
    (shard.parent / "index.json").write_text(json.dumps({"version": 2, "shards": [entry]}))
    return f"mds:{shard.parent}"


def arrow(path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    images = [{"bytes": written(i)[0], "path": None} for i in range(N)]
    made = datasets.Dataset.from_dict({"image": images, "label": list(range(N))}, features=features)
    made.save_to_disk(path / "hf")
    return datasets.load_from_disk(path / "hf")


def rows(spec, **options):
    options = {"image_mode": "I;16", "dtype": "uint16", "transform": CROP, "arrays": "numpy", **options}
    with batchd.DataLoader(spec, batch_size=5, **options) as loader:
        named = options.get("fields") is not None
        got = [(np.array(batch["image" if named else 0]), loader.last_batch.indices.tolist()) for batch in loader]
    return {i: row for images, indices in got for i, row in zip(indices, images)}


@pytest.mark.parametrize("make", [folder, listed, tar, zipped, mds, arrow])
def test_every_source_gives_the_files_numbers(daemon, tmp_path, make):
    fields = {"image": "image", "label": "label"} if make in (mds, arrow) else None
    got = rows(make(tmp_path), fields=fields)
    assert sorted(got) == list(range(N))
    for i, row in got.items():
        assert row.shape == (1, SIZE[1], SIZE[0]) and row.dtype == np.uint16
        assert np.array_equal(row[0], values(i)), i


@pytest.mark.parametrize("mode, dtype", [("I;16", "uint16"), ("I", "int32"), ("F", "float32")])
def test_decoded_cache_keeps_numbers(make_daemon, tmp_path, mode, dtype):
    """Two epochs, the second from pixels behind Resize, equal the first and Pillow."""
    make_daemon(config="cache: {decoded: 64MiB, filling: always}\n")
    spec = folder(tmp_path)
    transform = [["Resize", [11, 13]], ["RandomHorizontalFlip", 1.0]]
    options = {"image_mode": mode, "dtype": dtype, "transform": transform, "arrays": "numpy"}
    with batchd.DataLoader(spec, batch_size=4, **options) as loader:
        for epoch in range(3):
            loader.set_epoch(epoch)
            for images, _ in loader:
                for row, i in zip(images, loader.last_batch.indices):
                    small = Image.fromarray(values(int(i))).convert(mode).resize((13, 11), Image.Resampling.BILINEAR)
                    assert np.array_equal(row[0], np.asarray(small)[:, ::-1]), (epoch, i)


def test_views_share_one_decoded_region(daemon, tmp_path):
    spec = folder(tmp_path)
    views = {"a": [["CenterCrop", 6]], "b": [["CenterCrop", 9], ["RandomVerticalFlip", 1.0]]}
    with batchd.DataLoader(
        spec, batch_size=4, image_mode="I;16", dtype="uint16", transform=views, arrays="numpy"
    ) as loader:
        for images, _ in loader:
            for a, b in zip(images["a"], images["b"]):
                assert np.array_equal(a[0], b[0, ::-1][1:7, 2:8]) or np.array_equal(a[0], b[0, ::-1][2:8, 1:7])
    floats = ["ToDtype", "float32", True]
    other = {"a": [["Convert", "I;16"], *views["a"], floats], "b": [*views["b"], floats]}
    with pytest.raises(ValueError, match="same mode"):
        batchd.DataLoader(spec, batch_size=4, transform=other)


def test_a_file_of_another_mode_is_bad_data_and_named(daemon, tmp_path):
    spec = folder(tmp_path)
    bad = tmp_path / "train" / "class0" / "003.png"
    Image.new("RGB", SIZE).save(bad)
    with batchd.DataLoader(
        spec, batch_size=N, image_mode="I;16", dtype="uint16", transform=CROP, arrays="numpy"
    ) as loader, pytest.raises(batchd.BadDataError, match="1 of 12 .*003.png: no image of one grey number.*I;16"):
        list(loader)


def test_mixed_floats_and_share(daemon, tmp_path):
    """Floats of numbers go through MixUp, as those of pixels do."""
    spec = folder(tmp_path)
    transform = [*CROP, ["ToDtype", "float32", True]]
    mix = batchd.MixUp(alpha=1.0, num_classes=2)
    with batchd.DataLoader(spec, batch_size=4, image_mode="I;16", transform=transform, mix=mix) as loader:
        for images, targets in loader:
            assert images.shape == (4, 1, SIZE[1], SIZE[0]) and 0 <= float(images.min()) <= float(images.max()) <= 1
            assert targets.shape == (4, 2)


def test_status_preview_and_verify(daemon, build, tmp_path):
    spec = folder(tmp_path)
    with batchd.DataLoader(
        spec, batch_size=4, image_mode="I;16", dtype="uint16", transform=CROP, job="deep", arrays="numpy"
    ) as loader:
        next(iter(loader))
        out = subprocess.run([build / "batchctl", "status", "--json"], capture_output=True, text=True, check=True)
        assert '"uint16"' in out.stdout and "Convert" in out.stdout
    pipeline = json.dumps([["Convert", "I;16"], *CROP])
    png = tmp_path / "sheet.png"
    out = subprocess.run(
        [build / "batchctl", "preview", "--transform", pipeline, "--out", png, spec], capture_output=True, text=True
    )
    assert out.returncode == 0 and "mode I;16 is scaled: its least number is black" in out.stdout, out
    sheet = np.asarray(Image.open(png).convert("L"))
    assert sheet.min() == 0 and sheet.max() == 255
    out = subprocess.run([build / "batchctl", "verify", spec], capture_output=True, text=True)
    assert out.returncode == 0, out

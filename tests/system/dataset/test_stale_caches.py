"""Data that is replaced by other data of the same names, sizes and times, as an archive with fixed times is unpacked over
the version before: no cache gives the old pixels. The reference is Pillow's reading of the file as it is."""

import io
import os
import shutil
import subprocess
import tarfile

import numpy
import pytest

torch = pytest.importorskip("torch")
image = pytest.importorskip("PIL.Image")

import batchd  # noqa: E402 (torch may be missing)

N = 12
PIXELS = dict(transform=[["CenterCrop", 32]], dtype="uint8", layout="NHWC", n_slots=2)


def encoded(value, ending):
    held = io.BytesIO()
    # Of one size whatever the picture is: raw formats, and a JPEG that is padded, as camera files are.
    picture = image.fromarray(numpy.full((32, 32, 3), value, "uint8"))
    picture.save(held, {"jpg": "JPEG"}.get(ending, ending))
    return held.getvalue().ljust(8192, b"\0")


def write(folder, first, ending):
    (folder / "a").mkdir(parents=True)
    for i in range(N):
        (folder / "a" / f"{i:02}.{ending}").write_bytes(encoded(first + i, ending))
    fix_times(folder)


def write_shard(folder, first, ending):
    folder.mkdir(parents=True)
    with tarfile.open(folder / "0.tar", "w") as tar:
        for i in range(N):
            info = tarfile.TarInfo(f"{i:02}.{ending}")
            content = encoded(first + i, ending)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    fix_times(folder)


def fix_times(folder):
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (1e9, 1e9))


def unpack(*options):
    def over(new, data):
        archive = new.with_suffix(".tar")
        subprocess.run(["tar", "-cf", archive, "-C", new, "."], check=True)
        subprocess.run(["tar", "-xf", archive, "-C", data, *options], check=True)

    return over


def cp(new, data):
    subprocess.run(["cp", "-rp", f"{new}/.", data], check=True)


def copytree(new, data):
    shutil.copytree(new, data, dirs_exist_ok=True)


WAYS = {"tar": unpack(), "tar-in-place": unpack("--overwrite"), "cp": cp, "copytree": copytree}
TIERS = {
    "decoded": "cache: {decoded: 64MiB}\n",
    "index": "cache: {decoded: off}\n",
}


def by_pillow(folder):
    contents = [path.read_bytes() for path in sorted(folder.glob("a/*"))]
    for shard in sorted(folder.glob("*.tar")):
        with tarfile.open(shard) as tar:
            contents += [tar.extractfile(member).read() for member in tar]
    return [numpy.asarray(image.open(io.BytesIO(c)).convert("RGB")) for c in contents]


def read(dataset, epochs=3, **options):
    with batchd.DataLoader(dataset, 4, **PIXELS, **options) as loader:
        rows = [[row.numpy().copy() for batch in loader for row in pictures(batch)] for _ in range(epochs)]
    return rows


def pictures(batch):
    return batch["image"] if isinstance(batch, dict) else batch[0] if isinstance(batch, (tuple, list)) else batch


def assert_as_pillow(rows, folder):
    expected = by_pillow(folder)
    for epoch in rows:
        values = [int(row[0, 0, 0]) for row in epoch]
        assert values == [int(row[0, 0, 0]) for row in expected]
        assert all((row == want).all() for row, want in zip(epoch, expected))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("ending", ("ppm", "bmp", "jpg"))
def test_a_folder_that_is_unpacked_again_gives_its_new_pixels(make_daemon, tmp_path, ending, tier, way):
    """A loader that is opened after the exchange, and one that has been open since before."""
    make_daemon(config=TIERS[tier])
    data, new = tmp_path / "data", tmp_path / "new"
    write(data, 10, ending)
    write(new, 200, ending)
    dataset = f"imagefolder:{data}"
    with batchd.DataLoader(dataset, 4, job="lives-on", **PIXELS) as alive:
        for _ in range(2):
            list(alive)
        assert_as_pillow(read(dataset), data)
        WAYS[way](new, data)
        assert_as_pillow(read(dataset), data)
        list(alive)  # its first two batches were ready before the exchange
        last = [row.numpy().copy() for images, _ in alive for row in images]
        assert_as_pillow([last], data)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tier", TIERS)
def test_a_shard_that_is_unpacked_again_gives_its_new_pixels(make_daemon, tmp_path, tier, way):
    """The index of the shard is made again, and no cache has its pixels of before."""
    make_daemon(config=TIERS[tier])
    data, new = tmp_path / "data", tmp_path / "new"
    write_shard(data, 10, "ppm")
    write_shard(new, 200, "ppm")
    dataset = f"tar:{data}/0.tar"
    assert_as_pillow(read(dataset, fields=("image",)), data)
    WAYS[way](new, data)
    assert_as_pillow(read(dataset, fields=("image",)), data)


def test_a_shard_whose_mode_changes_does_not_end_its_job(daemon, tmp_path):
    """Only caches ask for the ctime: a running job goes on over chmod and rename, with the right pixels."""
    write_shard(tmp_path / "data", 10, "ppm")
    shard = tmp_path / "data" / "0.tar"
    with batchd.DataLoader(f"tar:{shard}", 4, fields=("image",), **PIXELS) as loader:
        list(loader)
        shard.chmod(0o640)
        os.link(shard, tmp_path / "another-name.tar")
        for _ in range(3):
            rows = [row.numpy().copy() for batch in loader for row in pictures(batch)]
            assert_as_pillow([rows], tmp_path / "data")

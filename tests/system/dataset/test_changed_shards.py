"""A shard that is written while a job reads it: no row comes from the new bytes, and the shard is named; a shard that is
replaced by rename is read to the end."""

import io
import os
import tarfile
import warnings

import numpy
import pytest

torch = pytest.importorskip("torch")
image = pytest.importorskip("PIL.Image")

import batchd  # noqa: E402 (torch may be missing)

N = 30


def pixels(i):
    return numpy.random.default_rng(i).integers(0, 256, (24, 24, 3), "uint8")


def shard(first):
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tar:
        for i in range(first, first + N):
            png = io.BytesIO()
            image.fromarray(pixels(i)).save(png, "PNG")
            for ending, content in (("png", png.getvalue()), ("cls", b"%d" % i)):
                info = tarfile.TarInfo(f"{i % N:03}.{ending}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return held.getvalue()


def epoch(folder, change):
    """[(label, pixels)] of each batch; change is called behind the first."""
    options = dict(transform=[["CenterCrop", 24]], dtype="uint8", layout="NHWC", n_slots=2)
    seen = []
    with batchd.DataLoader(f"tar:{folder}/{{0..1}}.tar", 4, **options) as loader:
        for images, labels in loader:
            seen += [(int(label), picture.numpy().copy()) for picture, label in zip(images, labels)]
            if len(seen) == 4:
                change()
    return seen


@pytest.fixture
def folder(tmp_path):
    for k in range(2):
        (tmp_path / f"{k}.tar").write_bytes(shard(k * N))
    return tmp_path


def write_again(folder):
    with open(folder / "1.tar", "r+b") as f:  # the same file: no reader's descriptor has the old bytes
        f.write(shard(500))


def test_a_shard_that_is_written_ends_the_job_with_its_name(daemon, folder):
    """The default budget: an error, once samples of the shard are due."""
    with pytest.raises(batchd.BadDataError, match=r"1\.tar: changed since it was indexed"):
        epoch(folder, lambda: write_again(folder))


def test_within_the_budget_other_samples_stand_for_its_own(make_daemon, folder):
    """Each row is a sample of the shards as they were indexed, and the warning names the shard."""
    make_daemon(config="bad_data: 100%\n")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        seen = epoch(folder, lambda: write_again(folder))
    assert len(seen) == 2 * N and any("1.tar: changed since it was indexed" in str(w.message) for w in said)
    for label, picture in seen:
        assert label < 2 * N and (picture == pixels(label)).all()
    assert sum(label >= N for label, _ in seen) < N  # read before the change, if any


def test_a_shard_that_is_replaced_by_rename_is_read_to_the_end(daemon, folder):
    """The old file's samples come, all of them."""

    def rename():
        (folder / "new").write_bytes(shard(500))
        os.replace(folder / "new", folder / "1.tar")

    seen = epoch(folder, rename)
    assert [label for label, _ in seen] == list(range(2 * N))
    assert all((picture == pixels(label)).all() for label, picture in seen)

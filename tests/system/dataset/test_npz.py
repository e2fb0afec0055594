"""npz: the arrays of numpy's archives, stored and compressed; and archives that are damaged or lie."""

import io
import zipfile

import numpy
import pytest

import batchd

N = 23


def some():
    rng = numpy.random.default_rng(0)
    return {
        "x": rng.random((N, 3, 4), "float32"),
        "label": rng.integers(-9, 9, N).astype("int16"),
        "mask": rng.random((N, 5)) < 0.5,
        "id": numpy.arange(N, dtype="uint8"),
    }


@pytest.mark.parametrize("save", [numpy.savez, numpy.savez_compressed])
def test_fields_are_numpys_arrays(daemon, tmp_path, save):
    data = some()
    save(tmp_path / "a.npz", **data)
    order = numpy.random.default_rng(1).permutation(N)
    with batchd.DataLoader(
        f"npz:{tmp_path}/a.npz", batch_sampler=[order.tolist()], batch_size=N, arrays="numpy"
    ) as loader:
        (batch,) = loader
    with numpy.load(tmp_path / "a.npz") as archive:
        assert list(batch) == archive.files
        for name in archive.files:
            assert (batch[name] == archive[name][order]).all()
            assert batch[name].dtype == ("int64" if name == "label" else data[name].dtype)


def test_some_arrays_of_an_archive_with_others(daemon, batchctl, tmp_path):
    """As in Keras' mnist.npz: the other arrays may have other lengths and types, and the names are the caller's."""
    rng = numpy.random.default_rng(0)
    data = {"y_train": rng.integers(0, 9, N).astype("uint8"), "x_train": rng.integers(0, 256, (N, 8, 8), "uint8")}
    numpy.savez_compressed(
        tmp_path / "a.npz", x_test=data["x_train"][:3], y_test=data["y_train"][:3], note=numpy.array("x"), **data
    )
    spec, options = f"npz:{tmp_path}/a.npz", dict(batch_size=N, arrays="numpy")
    with pytest.raises(batchd.InvalidError, match="to read only some of its arrays, name them as fields"):
        batchd.DataLoader(spec)
    with pytest.raises(batchd.InvalidError, match="there is no array 'x'; its arrays: x_test, y_test, note, y_train"):
        batchd.DataLoader(spec, fields=("x",))
    for wrong in ("=x_train", "x=", "x=x_train,y"):
        with pytest.raises(batchd.InvalidError, match="expected NAME="):
            batchd.DataLoader(f"{spec}#{wrong}")
    with pytest.raises(batchd.InvalidError, match="field 'x' is there twice"):
        batchd.DataLoader(f"{spec}#x=x_train,x=y_train")
    with batchd.DataLoader(spec, fields={"labels": "y_train", "again": "y_train", "x": "x_train"}, **options) as loader:
        (batch,) = loader
        assert list(batch) == ["labels", "again", "x"] and (batch["x"] == data["x_train"]).all()
        assert (batch["labels"] == data["y_train"]).all() and (batch["again"] == batch["labels"]).all()
    chosen = f"{spec}#image=x_train,label=y_train"
    with batchd.DataLoader(chosen, transform=["ToTensor"], **options) as loader:  # the image comes first
        ((images, labels),) = loader
        assert images.shape == (N, 1, 8, 8) and (labels == data["y_train"]).all() and labels.dtype == "int64"
    assert f"all {N} rows are good" in batchctl("verify", chosen).stdout


def archive(**members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, content in members.items():
            z.writestr(f"{name}.npy", content)
    return out.getvalue()


def npy(array):
    out = io.BytesIO()
    numpy.save(out, array)
    return out.getvalue()


def test_archives_that_lie_are_refused_by_name(daemon, tmp_path):
    good = npy(numpy.zeros((N, 4), "float32"))
    whole = archive(x=good)
    compressed = io.BytesIO()
    numpy.savez_compressed(compressed, x=numpy.random.default_rng(0).random((N, 40)))
    compressed = bytearray(compressed.getvalue())
    directory = whole.rindex(b"PK\1\2")
    end = whole.rindex(b"PK\5\6")

    def changed(at, value, of=whole):
        return of[:at] + value + of[at + len(value) :]

    flipped = bytearray(compressed)
    flipped[200] ^= 0x40
    bomb = bytearray(compressed)
    at = bomb.rindex(b"PK\1\2")
    bomb[at + 24 : at + 28] = (0xFFFFFFF0).to_bytes(4, "little")
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as z:
        z.writestr("readme.txt", "hello")
    many = archive(**{f"f{i}": good for i in range(65)})
    cases = {
        "not an .npz file": whole[:-1],
        "expected one written by": b"",
        "its directory lies outside": changed(end + 16, b"\xf0\xff\xff\x00"),
        "its directory is cut short": changed(end + 12, b"\x10\0\0\0"),
        "at most 64": many,
        "lies outside of it": changed(directory + 42, b"\xf0\xff\xff\x00"),
        "another method": changed(directory + 10, b"\x0c"),
        "encrypted": changed(directory + 8, b"\x01"),
        "two sizes": changed(directory + 20, b"\x10"),
        "zip64": changed(end + 16, b"\xff\xff\xff\xff"),
        "which is no .npy file": other.getvalue(),
        "damaged|checksum|size": bytes(flipped),
        "memory|allocate": bytes(bomb),
        "promises more than it has": archive(x=good[:-1]),
        "equally|expected as many": archive(x=good, y=npy(numpy.zeros(N + 1))),
        "not a .npy file": archive(x=b"hello world, this is no array"),
        "no arrays": archive(),
    }
    for words, content in cases.items():
        (tmp_path / "a.npz").write_bytes(content)
        with pytest.raises((batchd.Error, MemoryError), match=words) as e:
            batchd.DataLoader(f"npz:{tmp_path}/a.npz")
        assert "a.npz" in str(e.value)


def test_pictures_of_an_archive_go_through_a_pipeline(daemon, tmp_path):
    images = numpy.random.default_rng(0).integers(0, 256, (N, 20, 24, 3), "uint8")
    numpy.savez_compressed(tmp_path / "a.npz", image=images, label=numpy.arange(N))
    with batchd.DataLoader(f"npz:{tmp_path}/a.npz", batch_size=N, transform=["ToTensor"], arrays="numpy") as loader:
        ((got, labels),) = loader
    assert (got == images.transpose(0, 3, 1, 2).astype("float32") / numpy.float32(255)).all()
    assert (labels == numpy.arange(N)).all()

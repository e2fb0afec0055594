"""Paths without a kind as data sets, and arguments of torch's loader that ask for nothing."""

import pathlib
import shutil

import numpy
import pytest

import batchd

torch = pytest.importorskip("torch")
X = numpy.arange(12.0).reshape(6, 2)


def made(folder):
    """One of each kind of file that its ending tells."""
    numpy.save(folder / "x.npy", X)
    numpy.savez(folder / "x.npz", x=X)
    return folder


@pytest.mark.parametrize("kind", [str, pathlib.Path, lambda path: str(path).encode()], ids=["text", "Path", "bytes"])
def test_a_path_without_its_kind_is_what_it_is_with_it(daemon, tmp_path, samples, kind, batchctl):
    """Files by their endings, folders by what is in them; the batches are those of the whole name."""
    made(tmp_path)
    for name in ("x.npy", "x.npz"):
        with batchd.DataLoader(kind(tmp_path / name), 6) as loader:
            batch = next(iter(loader))
        got = batch["x"] if isinstance(batch, dict) else batch[0] if isinstance(batch, tuple) else batch
        assert got.tolist() == X.tolist()
    with batchd.DataLoader(kind(samples), 8, transform="val224") as loader:
        with batchd.DataLoader(f"imagefolder:{samples}", 8, transform="val224", job="whole") as whole:
            for ours, wanted in zip(loader, whole, strict=True):
                assert torch.equal(ours[0], wanted[0]) and torch.equal(ours[1], wanted[1])
            assert loader.classes == whole.classes


def test_a_relative_path_and_parts_of_a_list(daemon, tmp_path, monkeypatch):
    """A name that is a file here is no name of the configuration."""
    made(tmp_path)
    monkeypatch.chdir(tmp_path)
    for path in ("x.npy", pathlib.Path("x.npy"), ["x.npy"], batchd.blend({pathlib.Path("x.npy"): 1})):
        with batchd.DataLoader(path, 6) as loader:
            assert next(iter(loader))[0].tolist() == X.tolist()


def test_a_file_of_windows_is_one_of_tokens(daemon, tmp_path):
    """A length leaves that alone; without one the error names it beside the others."""
    numpy.arange(100, dtype="uint16").tofile(tmp_path / "t.bin")
    for path in (tmp_path / "t.bin", str(tmp_path / "t.bin"), [tmp_path / "t.bin"]):
        with batchd.DataLoader(path, 3, length=8) as loader:
            assert next(iter(loader))[0].tolist() == numpy.arange(24).reshape(3, 8).tolist()
    with pytest.raises(batchd.InvalidError, match=r"tokens:.*t.bin,length=T if it is one of tokens"):
        batchd.DataLoader(tmp_path / "t.bin", 3)
    with pytest.raises(TypeError, match="length is for token files"):
        batchd.DataLoader(made(tmp_path) / "x.npy", 3, length=8)


def test_folders_of_shards(daemon, tmp_path):
    """A folder of .npy files is none; one of arrow files and one of shards are; one with two kinds names both."""
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_dict({"x": X.tolist()}).save_to_disk(tmp_path / "saved")
    with batchd.DataLoader(tmp_path / "saved", 6, fields=("x",)) as loader:
        assert loader.dataset._spec.startswith("arrow:")
    (tmp_path / "saved" / "a.tar").write_bytes(b"")
    with pytest.raises(ValueError, match="more than one kind of data: write 'arrow:.*saved' or 'tar:.*saved'"):
        batchd.DataLoader(tmp_path / "saved")


def test_what_cannot_be_told_is_refused_by_name(daemon, tmp_path):
    """A missing path, a file of no known ending, an empty folder: each error names what it is about."""
    (tmp_path / "x.dat").write_bytes(b"1")
    (tmp_path / "empty").mkdir()
    for path, error, words in (
        (tmp_path / "nothing", batchd.NotFoundError, "nothing.*No such file"),
        (pathlib.Path("nothing"), batchd.NotFoundError, r"\./nothing: No such file"),
        (tmp_path / "x.dat", batchd.InvalidError, "is a file without its kind"),
        (tmp_path / "empty", batchd.Error, "any class folder in .*empty"),
    ):
        with pytest.raises(error, match=words):
            batchd.DataLoader(path)
    shutil.rmtree(tmp_path / "empty")


def test_arguments_that_ask_for_nothing_are_taken(daemon):
    """As scripts write them on a machine without a GPU; the same names with a wish are refused."""
    nothing = {
        "pin_memory": False,
        "pin_memory_device": "",
        "prefetch_factor": None,
        "persistent_workers": False,
        "worker_init_fn": None,
        "multiprocessing_context": None,
        "generator": None,
        "in_order": True,
        "collate_fn": torch.utils.data.default_collate,
    }
    theirs = list(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.from_numpy(X)), 4, **nothing))
    with batchd.DataLoader((X,), 4, **nothing) as loader:
        for (ours,), (wanted,) in zip(loader, theirs, strict=True):
            assert torch.equal(ours, wanted)
    for name, wish in (("pin_memory", True), ("prefetch_factor", 2), ("persistent_workers", True), ("in_order", False)):
        with pytest.raises(TypeError, match=f"no argument {name} "):
            batchd.DataLoader((X,), 4, **{name: wish})


def test_load_does_not_ignore_arrays_beside_a_device(samples):
    picture = next(pathlib.Path(samples).rglob("*.jpg"))
    with pytest.raises(TypeError, match="leave arrays='numpy' out"):
        batchd.load(picture, device="cpu", arrays="numpy")

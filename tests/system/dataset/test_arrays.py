"""npy: data sets deliver the arrays that numpy stored, for every type that numpy writes and batchd serves."""

import os
import pathlib
import subprocess

import pytest

numpy = pytest.importorskip("numpy")

REPO = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("BATCHD_BUILD", REPO / "build"))
TOOL = BUILD / "tests" / "tools" / "dataset"


def run(spec):
    return subprocess.run([TOOL, "--rows", spec], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize(
    "dtype",
    [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ],
)
@pytest.mark.parametrize("shape", [(5,), (7, 3), (4, 3, 2, 5), (3, 1), (300, 129)])
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_rows_are_what_numpy_stored(tmp_path, dtype, shape, version):
    """Proves bytes and labels for all types and versions as numpy itself writes them."""
    rng = numpy.random.default_rng(3)
    a = (rng.random(shape) * 200 - 50).astype(dtype)
    labels = rng.integers(-100, 100, shape[0]).astype("int16")
    with open(tmp_path / "a.npy", "wb") as f:
        numpy.lib.format.write_array(f, a, version=version)
    numpy.save(tmp_path / "b.npy", labels)
    assert run(f"npy:{tmp_path}/a.npy").stdout == a.tobytes()
    assert run(f"npy:{tmp_path}/a.npy,{tmp_path}/b.npy").stdout == a.tobytes() + labels.astype("int64").tobytes()


@pytest.mark.parametrize(
    "array, advice",
    [
        (numpy.zeros((3, 2), order="F"), "numpy.ascontiguousarray"),
        (numpy.zeros(3, ">f4"), "astype('float32')"),
        (numpy.zeros(3, ">u4"), "astype('uint32')"),
        (numpy.zeros(3, ">c16"), "astype('complex128')"),
        (numpy.zeros(3, numpy.longdouble), "astype('float64')"),
        (numpy.zeros(3, "datetime64[s]"), "expected bool"),
        (numpy.array(["a", "b"]), "expected bool"),
        (numpy.zeros(3, [("x", "f4"), ("y", "i4")]), "save each field"),
    ],
)
def test_what_is_not_served_is_refused_with_advice(tmp_path, array, advice):
    """Proves the refusals on files that numpy writes."""
    numpy.save(tmp_path / "a.npy", array)
    done = run(f"npy:{tmp_path}/a.npy")
    assert done.returncode == 1
    assert advice in done.stderr.decode()
    assert "a.npy" in done.stderr.decode()


WHOLE = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]


@pytest.mark.parametrize("has_unsigned", [True, False])
def test_torch_gets_its_own_dtypes_as_far_as_it_has_them(daemon, tmp_path, monkeypatch, has_unsigned):
    """Extreme values of every integer dtype; a torch before 2.3, which has no uint16, uint32 and uint64, gets those as
    numpy arrays, copies of kept batches included."""
    torch = pytest.importorskip("torch")
    import batchd

    for name in ("uint16", "uint32", "uint64") if not has_unsigned else ():
        monkeypatch.delattr(torch, name, raising=False)
    if has_unsigned and not hasattr(torch, "uint16"):
        pytest.skip("this torch has no uint16")
    for dtype in WHOLE:
        info = numpy.iinfo(dtype)
        a = numpy.array([[info.min, info.max, i] for i in range(40)], dtype)
        numpy.save(tmp_path / "a.npy", a)
        with batchd.DataLoader(
            f"npy:{tmp_path}/a.npy", batch_size=4, arrays="torch", n_slots=3
        ) as loader, pytest.warns(RuntimeWarning, match="batches are held"):
            kept = [x for (x,) in loader]
        for k, x in enumerate(kept):
            assert isinstance(x, torch.Tensor) == hasattr(torch, dtype) and str(x.dtype).replace("torch.", "") == dtype
            assert (numpy.asarray(x) == a[4 * k : 4 * k + 4]).all()


@pytest.mark.parametrize("dtype", WHOLE)
def test_labels_become_int64_if_that_holds_them(daemon, tmp_path, dtype):
    """Extreme values of one label a row; uint64 stays uint64."""
    import batchd

    info = numpy.iinfo(dtype)
    y = numpy.array([info.min, info.max] * 20, dtype)
    numpy.save(tmp_path / "x.npy", numpy.zeros((40, 2), "float32"))
    numpy.save(tmp_path / "y.npy", y)
    with batchd.DataLoader(f"npy:{tmp_path}/x.npy,{tmp_path}/y.npy", batch_size=40, arrays="numpy") as loader:
        ((_, labels),) = loader
    assert labels.dtype == ("uint64" if dtype == "uint64" else "int64") and (labels == y).all()


def test_a_dtype_that_images_cannot_have_is_refused_by_name(daemon):
    """The option applies to images only; the error says so."""
    import batchd

    with pytest.raises(batchd.InvalidError, match="dtype of images must be uint8, uint16"):
        batchd.DataLoader("random:length=4,shape=2", dtype="int64")

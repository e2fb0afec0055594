"""npy: data sets deliver what numpy stored, for every type numpy writes and batchd serves."""
import os
import pathlib
import subprocess

import pytest

numpy = pytest.importorskip("numpy")

REPO = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BATCHD_BUILD", REPO / "build"))
TOOL = BUILD / "tests" / "tools" / "dataset"


def run(spec):
    return subprocess.run([TOOL, "--rows", spec], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int32", "int64", "float16", "float32", "float64"])
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
    assert run(f"npy:{tmp_path}/a.npy").stdout == a.tobytes() + numpy.arange(shape[0]).tobytes()
    assert run(f"npy:{tmp_path}/a.npy,{tmp_path}/b.npy").stdout == a.tobytes() + labels.astype("int64").tobytes()


@pytest.mark.parametrize("array, advice", [
    (numpy.zeros((3, 2), order="F"), "numpy.ascontiguousarray"),
    (numpy.zeros(3, ">f4"), "astype('float32')"),
    (numpy.zeros(3, "uint32"), "astype('int64')"),
    (numpy.zeros(3, "int8"), "astype('int64')"),
    (numpy.zeros(3, "complex64"), "astype('float32')"),
    (numpy.zeros(3, "datetime64[s]"), "expected bool"),
    (numpy.array(["a", "b"]), "expected bool"),
    (numpy.zeros(3, [("x", "f4"), ("y", "i4")]), "save each field"),
])
def test_what_is_not_served_is_refused_with_advice(tmp_path, array, advice):
    """Proves the refusals on files that numpy writes."""
    numpy.save(tmp_path / "a.npy", array)
    done = run(f"npy:{tmp_path}/a.npy")
    assert done.returncode == 1
    assert advice in done.stderr.decode()
    assert "a.npy" in done.stderr.decode()

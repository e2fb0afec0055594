"""numpy's bfloat16 and float8, which are ml_dtypes' (numpy.asarray of a JAX array has them), in batches of batchd.serve:
they arrive as the type that was given, or not at all."""

import sys

import numpy
import pytest

import batchd

ml_dtypes = pytest.importorskip("ml_dtypes")
NAMES = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def made(name):
    values = numpy.array([1, 2, 3], getattr(ml_dtypes, name))
    return {
        "plain": values,
        "rows": [values, values[:1]],
        "packed": batchd.Ragged(values, numpy.array([0, 1, 3])),
    }


@pytest.mark.parametrize("arrays", ["torch", "numpy"])
@pytest.mark.parametrize("name", NAMES)
def test_the_type_is_what_was_given(daemon, name, arrays):
    """Alone, in lists of arrays and in batchd.Ragged; with torch in the trainer and without."""
    if arrays == "torch":
        pytest.importorskip("torch")
    wanted = made(name)
    with batchd.serve([wanted], "types", background="fork"):
        (batch,) = batchd.DataLoader("serve:types", arrays=arrays)
    arrived = [batch["plain"], *batch["rows"], batch["packed"].values]
    given = [wanted["plain"], *wanted["rows"], wanted["packed"].values]
    for a, g in zip(arrived, given):
        assert a.dtype == g.dtype and a.tolist() == g.tolist()


def test_without_ml_dtypes_it_is_an_error_never_the_bits(daemon, monkeypatch):
    with batchd.serve([made("bfloat16")], "types", background="fork"):
        loader = batchd.DataLoader("serve:types")
        monkeypatch.setitem(sys.modules, "ml_dtypes", None)
        with pytest.raises(
            TypeError, match="numpy arrays of bfloat16, which numpy knows by the package ml_dtypes only"
        ):
            list(loader)


def test_next_into_writes_no_bits_either(daemon):
    with batchd.serve([made("bfloat16")], "types", background="fork"):
        loader = batchd.DataLoader("serve:types")
        for target in ({"plain": numpy.empty(3, "uint16")}, {"rows": []}):
            with pytest.raises(TypeError, match="is bfloat16, which next_into does not write: iterate over the loader"):
                loader.next_into(target)

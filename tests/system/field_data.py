"""A data set of several fields, as an Arrow file and as what its rows are; and texts of any length."""

import random

import numpy
import pytest

N = 203


def write(path, columns):
    """The data set's name."""
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table(columns)
    with pyarrow.ipc.new_stream(str(path), table.schema) as out:
        out.write_table(table)
    return f"arrow:{path}"


def texts(n, longest, seed=5):
    """Of 0 to `longest` bytes, with characters of 1, 2 and 4 bytes."""
    rng = random.Random(seed)
    units = ("word", "and ", "of a", "\u00e9t ", "\N{BIRD}", "x, y")
    return ["".join(rng.choice(units) for _ in range(rng.randint(0, longest // 4))) for _ in range(n)]


def several(path, n=N):
    """(the data set's name, {field: a row for each sample})"""
    pyarrow = pytest.importorskip("pyarrow")
    rng = numpy.random.default_rng(5)
    truth = {
        "data": rng.random((n, 2, 3), "float32"),
        "label": rng.integers(0, 7, n),
        "caption": texts(n, 40),
        "id": numpy.arange(n) * 1_000_003,
        "raw": [rng.bytes(int(k)) for k in rng.integers(0, 34, n)],
        "boxes": [rng.random((int(k), 4), "float32") for k in rng.integers(0, 7, n)],
    }
    rows = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(truth["data"].reshape(-1)), 3)
    columns = {
        "data": pyarrow.FixedSizeListArray.from_arrays(rows, 2),
        "label": truth["label"],
        "caption": truth["caption"],
        "id": truth["id"],
        "raw": pyarrow.array(truth["raw"], pyarrow.binary()),
        "boxes": pyarrow.array(
            [b.tolist() for b in truth["boxes"]], pyarrow.list_(pyarrow.list_(pyarrow.float32(), 4))
        ),
    }
    return write(path, columns) + "#" + ",".join(f"{name}={name}" for name in truth), truth

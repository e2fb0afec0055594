"""Fields of producers' batches: texts, bytes and ragged arrays, described as the daemon's own are."""

import numpy
import pytest

import batchd
from batchd import _lib, _tree
from batchd.loader import DataLoader
from test_serve import serve  # noqa: F401

torch = pytest.importorskip("torch")


def batches(n=3, rows=70):
    """Batches with every kind of field; lengths differ from batch to batch, and some rows are empty."""
    made = []
    for k in range(n):
        rng = numpy.random.default_rng(k)
        lengths = rng.integers(0, 9, rows)
        boxes = [torch.full((int(m), 4), float(k)) for m in lengths]
        made.append(
            {
                "image": torch.full((rows, 3, 2), k, dtype=torch.uint8),
                "caption": [f"{k}:{i}: ü{'x' * int(m)}" for i, m in enumerate(lengths)],
                "raw": [bytes([k]) * int(m) for m in lengths],
                "boxes": boxes,
                "tokens": [numpy.arange(m, dtype="int32") for m in lengths],
                "packed": batchd.Ragged(torch.cat(boxes), torch.tensor([0, *numpy.cumsum(lengths)])),
                "label": torch.arange(rows) + k,
                "step": k,
                "odd": ["\ud800", "a"],
                "both": (["a", b"b"], ["one"]),
            }
        )
    return made


def same(got, expected):
    if isinstance(expected, dict):
        return list(got) == list(expected) and all(same(got[k], expected[k]) for k in expected)
    if isinstance(expected, (list, tuple)):
        return type(got) is type(expected) and len(got) == len(expected) and all(map(same, got, expected))
    if isinstance(expected, torch.Tensor):
        return isinstance(got, torch.Tensor) and got.dtype == expected.dtype and torch.equal(got, expected)
    if isinstance(expected, numpy.ndarray):
        return isinstance(got, numpy.ndarray) and got.dtype == expected.dtype and numpy.array_equal(got, expected)
    return type(got) is type(expected) and got == expected


def test_lists_and_ragged_arrays_arrive_as_they_were_given(serve):  # noqa: F811
    """Proves every kind of field over two epochs, kept batches too; 70 lists of arrays are few arrays on the wire; and what loader.fields
    says of the last batch."""
    expected = batches()
    serve(expected)
    loader = DataLoader("serve:speech")
    assert loader.fields == {}
    for _ in range(2):
        kept = list(loader)
        assert len(kept) == 3 and all(map(same, kept, expected))
    assert loader.fields["caption"] == batchd.Field("uint8", (), True, True)
    assert loader.fields["boxes"] == batchd.Field("float32", (4,), True, False)
    assert loader.fields["image"] == batchd.Field("uint8", (3, 2), False, False)
    assert "step" not in loader.fields and "both" not in loader.fields
    assert loader.last_batch.n_rows == 70
    loader.close()


def test_a_trainer_in_c_finds_them_by_name(serve):  # noqa: F811
    """Proves, through batchd_get_field, that text, bytes and ragged arrays have the daemon's own description: offsets,
    rows and values."""
    import ctypes

    expected = batches()
    serve(expected)
    loader = DataLoader("serve:speech", arrays="numpy")
    find = _lib._function("get_field", ctypes.c_int, _lib.Loader, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    give = loader._served.give
    seen = []

    def look(_):
        s, a = loader._struct, _lib.Array()
        for name in (b"caption", b"raw", b"boxes", b"tokens", b"packed", b"image"):
            assert find(s.handle, loader._struct_at, name, ctypes.byref(a)) == 0, name
            offsets = list((ctypes.c_int64 * (a.n_rows + 1)).from_address(a.offsets)) if a.offsets else None
            seen.append((name, _lib.DTYPES[a.dtype], a.text, a.n_rows, offsets, ctypes.string_at(a.data, a.n_bytes)))
        assert find(s.handle, loader._struct_at, b"step", ctypes.byref(a)) == _lib_invalid()
        return give(loader)

    loader._served.give = look
    next(iter(loader))
    first = expected[0]
    texts = [t.encode() for t in first["caption"]]
    at = [0, *numpy.cumsum([len(t) for t in texts]).tolist()]
    assert seen[0] == (b"caption", "uint8", 1, 70, at, b"".join(texts))
    at = [0, *numpy.cumsum([len(t) for t in first["raw"]]).tolist()]
    assert seen[1] == (b"raw", "uint8", 0, 70, at, b"".join(first["raw"]))
    assert seen[2][1:5] == ("float32", 0, 70, at) and seen[4][1:] == seen[2][1:]
    assert seen[3] == (b"tokens", "int32", 0, 70, at, b"".join(t.tobytes() for t in first["tokens"]))
    assert seen[5][1:5] == ("uint8", 0, 70, None)
    loader.close()


def _lib_invalid():
    return -3


def test_share_groups_and_checkpoints(serve):  # noqa: F811
    """Proves that two trainers of a group get the same fields, and that a resumed one continues with the next batch;
    collate_fn gets the fields."""
    expected = batches(6)
    serve(expected, resumable=True)
    group = {"mode": "share", "job": "g", "world_size": 2}  # no batch before both are there
    first = DataLoader("serve:speech", rank=0, collate_fn=lambda b: b["caption"], **group)
    second = DataLoader("serve:speech", rank=1, **group)
    one, two = iter(first), iter(second)
    for k in range(2):
        assert next(one) == expected[k]["caption"] and same(next(two), expected[k])
    token = second.state_dict()
    first.close()
    second.close()
    loader = DataLoader("serve:speech", job="h")
    loader.load_state_dict(token)
    assert all(map(same, loader, expected[2:])) and loader.last_batch.step == 5
    loader.close()


def test_next_into_takes_them(serve):  # noqa: F811
    """Proves texts into a list, ragged arrays into a batchd.Ragged and into a list, with dense fields beside them."""
    expected = batches()
    serve(expected)
    loader = DataLoader("serve:speech")
    most = max(len(b["packed"].values) for b in expected)
    boxes = batchd.Ragged(torch.empty(most, 4), torch.empty(71, dtype=torch.int64))
    into = {"label": torch.empty(70, dtype=torch.int64), "caption": [], "tokens": [], "packed": boxes}
    for batch in expected:
        assert loader.next_into(into) == 70
        assert torch.equal(into["label"], batch["label"]) and into["caption"] == batch["caption"]
        assert same(into["tokens"], batch["tokens"]) and torch.equal(boxes.offsets, batch["packed"].offsets)
        assert torch.equal(boxes.values[: boxes.offsets[-1]], batch["packed"].values)
    loader.close()


@pytest.mark.parametrize(
    "ragged, text",
    [
        (lambda: batchd.Ragged(torch.zeros(3), torch.tensor([0, 2, 1, 3])), "offsets do not rise"),
        (lambda: batchd.Ragged(torch.zeros(3), torch.tensor([0, 4])), "offsets do not rise from 0 to 3"),
        (lambda: batchd.Ragged(torch.zeros(3), torch.tensor([-1, 3])), "offsets do not rise"),
        (lambda: batchd.Ragged(torch.zeros(3), torch.zeros(2)), "no row of whole numbers"),
    ],
)
def test_a_ragged_array_that_makes_no_sense_is_the_producers_error(ragged, text):
    """Proves the error that names the part of the batch, where the batch is made."""
    with pytest.raises((TypeError, ValueError), match=rf"batch\['x'\] is a batchd.Ragged.*{text}"):
        _tree.flatten({"x": ragged()})


MASKED = numpy.ma.masked_array([1.0, 1e20], [0, 1])


@pytest.mark.parametrize(
    "value",
    [
        MASKED,
        [MASKED, MASKED[:1]],
        [numpy.zeros(2), MASKED[:1]],
        batchd.Ragged(MASKED, numpy.array([0, 2])),
        torch.masked.masked_tensor(torch.zeros(3), torch.ones(3) > 0),
    ],
)
def test_a_mask_is_not_dropped(value):
    """A producer's masked array is an error with its place, not the fill values below the mask."""
    with pytest.raises(TypeError, match=r"batch\['x'\].*mask would be lost"):
        _tree.flatten({"x": value})


def test_lists_that_stay_what_they_are():
    """Proves that views of one shape stay arrays of their own, that texts JSON alone carries stay there, and that more
    lists than there is room for are no error."""
    two = [torch.zeros(4, 3), torch.ones(4, 3)]
    text, leaves, rows = _tree.flatten((two, torch.zeros(4)))
    assert len(leaves) == 3 and rows == 4 and b'"l"' in text
    text, leaves, _ = _tree.flatten({str(i): ["a", "b"] for i in range(300)})
    assert len(leaves) == 64
    made = _tree.builder(text)(lambda number, kind: ["a", "b"])
    assert made == {str(i): ["a", "b"] for i in range(300)}
    _, leaves, rows = _tree.flatten({"names": ["a"] * 9, "x": torch.zeros(5)})
    assert rows == 5 and len(leaves) == 2

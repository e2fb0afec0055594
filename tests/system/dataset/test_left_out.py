"""Samples of shards that cannot be used are bad data: they are counted, named with what is wrong, and never dropped in
silence; and numbers stay what they are."""

import json
import warnings

import numpy
import pytest

batchd = pytest.importorskip("batchd")
pytest.importorskip("PIL.Image")

from test_labels import jpg, tar  # noqa: E402

PLAIN = {"transform": [["Resize", [8, 8]]], "dtype": "uint8"}


def scores(path, values):
    """A shard of pictures, each with a JSON of its score as Python writes it."""
    return tar(
        path,
        [
            member
            for i, value in enumerate(values)
            for member in ((f"{i:03}.jpg", jpg(i)), (f"{i:03}.json", json.dumps({"score": value}).encode()))
        ],
    )


def read(spec, key, **options):
    """All values of a field, and the texts of the warnings."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with batchd.DataLoader(spec, 1000, **PLAIN, **options) as loader:
            batch = next(iter(loader))
    return batch[key], [str(w.message) for w in told]


@pytest.mark.parametrize(
    "values, dtype",
    [
        ([5] + [4 + i / 64 for i in range(1, 100)], "float32"),
        ([5.0] + [4 + i / 64 for i in range(1, 100)], "float32"),
        ([0.5] + list(range(1, 100)), "float32"),
        (list(range(99)) + [0.25], "float32"),
        ([2**60 + i for i in range(100)], "int64"),
    ],
)
def test_whole_and_real_numbers_of_json_are_one_column(daemon, tmp_path, values, dtype):
    """Proves that all samples come whichever number is the first, as whole numbers only where all are."""
    spec = scores(tmp_path / "s.tar", values)
    for _ in range(2):  # the second time from the kept index
        got, told = read(spec, "score", fields={"image": "jpg", "score": "json:score"})
        assert numpy.array_equal(numpy.asarray(got), numpy.asarray(values, dtype)) and told == []
        assert str(got.dtype).endswith(dtype)


def test_numbers_are_those_of_the_shards_that_are_there(make_daemon, tmp_path):
    """Proves that an index that is kept makes no real numbers of whole ones when the shard with real ones has gone."""
    make_daemon()
    scores(tmp_path / "0.tar", [1, 2, 3])
    scores(tmp_path / "1.tar", [0.5, 2, 3])
    fields = {"image": "jpg", "score": "json:score"}
    got, _ = read(f"tar:{tmp_path}/*.tar", "score", fields=fields)
    assert got.tolist() == [1.0, 2.0, 3.0, 0.5, 2.0, 3.0]
    (tmp_path / "1.tar").unlink()
    got, _ = read(f"tar:{tmp_path}/*.tar", "score", fields=fields)
    assert got.tolist() == [1, 2, 3] and "int64" in str(got.dtype)


def wrong(kind):
    """A value that no sample can have, beside good ones."""
    return {
        "null": b'{"score": null}',
        "missing": b'{"other": 1}',
        "no JSON": b'{"score": 1',
        "text": b'{"score": "high"}',
        "too large": b'{"score": 1e300}',
        "behind": b'{"score": 1} {}',
        "beyond int64": b'{"score": 1, "id": 9223372036854775808}',
        "beyond double": b'{"score": 1, "x": -1e400}',
        "zero": rb'{"score": 1, "x": "a\u0000"}',
    }[kind]


@pytest.mark.parametrize(
    "kind, reason",
    [
        ("null", "its json score is null"),
        ("missing", "its json has no score"),
        ("no JSON", "its json is no JSON: "),
        ("text", "score (json:score) is 'high', text, and the first is a number"),
        ("too large", "too large for float32"),
        ("behind", "its json is no JSON: "),
        ("beyond int64", "its json has a number that is too large: too big integer near '9223372036854775808'"),
        ("beyond double", "its json has a number that is too large: real number overflow near '-1e400'"),
        ("zero", r"its json has a text with \u0000"),
    ],
)
def test_a_sample_that_is_left_out_is_named(make_daemon, batchctl, tmp_path, kind, reason):
    """Proves a warning with number, name and reason within bad_data, an error beyond it, and verify's word and exit code."""
    good = [(f"{i:03}.{e}", c) for i in range(200) for e, c in (("jpg", jpg(i)), ("json", b'{"score": 0.5}'))]
    spec = tar(tmp_path / "s.tar", [*good, ("200.jpg", jpg()), ("200.json", wrong(kind))])
    fields = {"image": "jpg", "score": "json:score"}
    make_daemon()
    got, told = read(spec, "score", fields=fields)
    assert len(got) == 200 and len(told) == 1
    assert told[0].startswith("1 of 201 samples are left out; the first, s.tar: 200, ") and reason in told[0]
    done = batchctl("verify", f"{spec}#image=jpg,score=json:score")
    assert done.returncode == 1 and "1 of 201 samples are left out; the first, s.tar: 200, " in done.stdout
    assert reason in done.stdout
    make_daemon(config="bad_data: 0.1%\n")
    with pytest.raises(batchd.BadDataError, match="1 of 201 samples are left out.*bad_data") as said:
        read(spec, "score", fields=fields)
    assert reason in str(said.value)


@pytest.mark.parametrize(
    "values, kind, good, reason",
    [
        ([5, "6", 7], "", [5, 7], "is '6', text, and the first is a number"),
        (["a", 5, "b"], "", ["a", "b"], "is '5', a number, and the first is text"),
        (["a", True, "b"], "", ["a", "b"], "a number, and the first is text"),
        (["n/a", 2, 2.5], ":float", [2.0, 2.5], "is 'n/a', text, and a number is asked for"),
        ([1, 2.5, 3], ":int", [1, 3], "is '2.5', no whole number"),
        ([5, "a", "b"], ":text", ["a", "b"], "is '5', a number, and text is asked for"),
    ],
)
def test_a_value_of_another_kind_is_no_value(make_daemon, tmp_path, values, kind, good, reason):
    """Proves that text and numbers of a JSON are not converted, and that a kind decides in place of the first value."""
    make_daemon(config="bad_data: 50%\n")
    spec = scores(tmp_path / "s.tar", values)
    for _ in range(2):  # the second time from the kept index
        got, told = read(spec, "score", fields={"image": "jpg", "score": f"json:score{kind}"})
        assert list(got) == good and len(told) == 1 and "1 of 3 samples are left out" in told[0] and reason in told[0]
        assert isinstance(got, list) or str(got.dtype) == ("torch.float32" if kind == ":float" else "torch.int64")


def test_another_kind_reads_the_shard_anew(daemon, tmp_path):
    """Proves that an index that is kept for one kind is not taken for another."""
    spec, names = scores(tmp_path / "s.tar", [3, 1, 2]), scores(tmp_path / "n.tar", ["dog", "cat", "dog"])
    for kind, dtype in (("", "int64"), (":float", "float32"), (":int", "int64"), ("", "int64")):
        got, _ = read(spec, "score", fields={"image": "jpg", "score": f"json:score{kind}"})
        assert str(got.dtype) == f"torch.{dtype}" and got.tolist() == [3, 1, 2]
    with pytest.raises(batchd.Error, match="'3', a number, and text is asked for"):
        read(spec, "score", fields={"image": "jpg", "score": "json:score:text"})
    got, _ = read(names, "label", fields={"image": "jpg", "label": "json:score"})
    assert got == ["dog", "cat", "dog"]
    fields = {"image": "jpg", "label": "json:score:class"}
    with batchd.DataLoader(names, 3, fields=fields, **PLAIN) as loader:
        assert next(iter(loader))["label"].tolist() == [1, 0, 1] and loader.dataset.classes == ["cat", "dog"]
    with pytest.raises(batchd.Error, match="class is a kind of the label only"):
        read(names, "name", fields={"image": "jpg", "name": "json:score:class"})


def test_a_kind_of_a_file_that_is_one_value(daemon, tmp_path):
    """Proves names of classes in .cls, which are refused with what to write, numbers in .txt, and that blanks around a value
    are none of it; a key of a JSON that is called as a kind is one."""
    words = ["dog\n", "cat\n", " dog", "Cat"]
    spec = tar(
        tmp_path / "s.tar",
        [
            member
            for i, word in enumerate(words)
            for member in (
                (f"{i}.cls", word.encode()),
                (f"{i}.jpg", jpg(i)),
                (f"{i}.json", json.dumps({"class": i}).encode()),
                (f"{i}.txt", f"{i / 2}\n".encode()),
            )
        ],
    )
    for fields in (None, ("image", "label")):
        with pytest.raises(
            batchd.Error, match=r"label \(cls\) is 'dog', no whole number \(cls:class reads names of classes\)"
        ):
            read(spec, 0, fields=fields)
    fields = {"image": "jpg", "label": "cls:class", "score": "txt:float", "other": "json:class", "text": "txt"}
    for _ in range(2):  # the second time from the kept index
        with batchd.DataLoader(spec, 4, fields=fields, **PLAIN) as loader:
            batch = next(iter(loader))
            assert loader.dataset.classes == ["Cat", "cat", "dog"]
        assert batch["label"].tolist() == [2, 1, 2, 0] and batch["score"].tolist() == [0, 0.5, 1, 1.5]
        assert batch["other"].tolist() == [0, 1, 2, 3] and batch["text"][1] == "0.5\n"


def test_a_json_with_the_mark_of_utf8_is_read(daemon, tmp_path):
    """Proves Python's json.loads of bytes."""
    content = b"\xef\xbb\xbf" + b'{"score": 7}'
    assert json.loads(content) == {"score": 7}
    got, told = read(
        tar(tmp_path / "s.tar", [("0.jpg", jpg()), ("0.json", content)]),
        "score",
        fields={"image": "jpg", "score": "json:score"},
    )
    assert got.tolist() == [7] and told == []


def test_a_value_that_is_too_long_is_one_bad_sample(make_daemon, tmp_path):
    """Proves that the other samples of the shard are there, and that the long one is named."""
    make_daemon(config="bad_data: 50%\n")
    members = [(f"{i}.txt", b"x" * ((1 << 20) + (i == 2))) for i in range(3)]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with batchd.DataLoader(tar(tmp_path / "t.tar", members), 3, fields=("txt",)) as loader:
            (texts,) = next(iter(loader))
    assert [len(t) for t in texts] == [1 << 20] * 2
    assert "the first, t.tar: 2, its txt has 1048577 bytes; a value may have 1 MiB" in str(told[0].message)


@pytest.mark.parametrize("where", ["first", "middle", "last", "no newline"])
def test_a_row_that_is_too_long_is_one_bad_sample(make_daemon, batchctl, tmp_path, where):
    """Proves that it is left out and named with its line, wherever it is among the pieces in which a table is read, and that
    long rows below the limit are read."""
    make_daemon(config="bad_data: 50%\n")
    texts = ["a", "b" * 900_000, "c", "d" * 300_000]
    at = {"first": 0, "middle": 2}.get(where, 4)
    rows = [*texts[:at], "x" * 3_000_000, *texts[at:]]
    lines = "\n".join(["path,text", *(f"{i}.jpg,{text}" for i, text in enumerate(rows))])
    for i in range(5):
        (tmp_path / f"{i}.jpg").write_bytes(jpg(i))
    (tmp_path / "l.csv").write_text(lines + ("" if where == "no newline" else "\n"))
    spec = f"files:{tmp_path}/l.csv#text=text"
    got, told = read(spec, "text", fields={"image": "image", "text": "text"})
    assert got == texts and len(told) == 1
    assert f"1 of 5 samples are left out; the first, {tmp_path}/l.csv:{at + 2}: a line of more than 1 MiB" in told[0]
    verified = batchctl("verify", spec)
    assert verified.returncode == 1 and f"l.csv:{at + 2}: a line of more than 1 MiB" in verified.stdout


def test_more_rows_that_are_too_long_than_bad_data_allows_are_an_error(daemon, tmp_path):
    """Proves it of one of two, of a table that has no others, and of a header."""
    long = "x" * (1 << 20)
    for text, words in (
        (f"path,text\na.jpg,{long}\nb.jpg,b\n", r"1 of 2 samples are left out; the first, .*l.csv:2"),
        (f"path,text\na.jpg,{long}\n", "names no file in a line of at most 1 MiB"),
        (f"path,{long}\na.jpg,b\n", "l.csv:1: a line of more than 1 MiB.* expected a header"),
    ):
        (tmp_path / "l.csv").write_text(text)
        with pytest.raises(batchd.Error, match=words):
            batchd.DataLoader(f"files:{tmp_path}/l.csv#text=text", 2, fields=("text",))

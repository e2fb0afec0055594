"""Lists with columns: what csv and numpy read of the same file, and how mistakes are named."""

import csv
import json
import os
import pathlib
import random
import shutil
import subprocess

import pytest
from vision import import_torchvision

numpy = pytest.importorskip("numpy")

REPO = pathlib.Path(__file__).resolve().parents[3]
TOOLS = pathlib.Path(os.environ.get("BATCHD_BUILD", REPO / "build")) / "tests" / "tools"


def values(spec):
    """Fields as the data set describes them, and the values of its samples."""
    done = subprocess.run([TOOLS / "values", spec], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line.split(" ") for line in done.stdout.splitlines()]
    fields = {line[1]: line[2:] for line in lines if line[0] == "#"}
    rows = [(line[0], bytes.fromhex(line[1])) for line in lines if line[0] != "#"]
    n = len(fields) - 1
    return fields, [dict(rows[i : i + n]) for i in range(0, len(rows), n)]


def listed(spec):
    out = subprocess.run([TOOLS / "dataset", spec], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    classes = [line[2:] for line in out if line.startswith("# ")]
    return classes, [(n, int(v)) for n, v in (line.split("\t") for line in out if not line.startswith("# "))]


def refusal(spec):
    done = subprocess.run([TOOLS / "values", spec], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1, done.stdout
    return done.stderr


@pytest.mark.parametrize("ending, dialect", [("csv", "excel"), ("tsv", "excel-tab"), ("csv", "unix")])
def test_columns_are_what_csv_and_numpy_read(tmp_path, ending, dialect):
    """Proves class names in sorted order, whole numbers, numbers, vectors in one cell and in several columns (multi-hot),
    and text with quotes and separators, for files as Python's csv module writes them."""
    rng = random.Random(1)
    rows = []
    for i in range(200):
        text = rng.choice(['a "red" cat', "one, two", "tab\there", "ü", ""])
        box = " ".join(str(rng.random()) for _ in range(4))
        hot = [rng.randrange(2) for _ in range(3)]
        rows.append([i, f"d/{i % 7}/{i}.jpg", rng.choice(["dog", "Cat", "ant eater"]), text, rng.random(), box, *hot])
    path = tmp_path / f"list.{ending}"
    with open(path, "w", newline="") as f:
        writer = csv.writer(f, dialect)
        writer.writerow(["id", "path", "label", "caption", "score", "box", "x", "y", "z"])
        writer.writerows(rows)
    with open(path, newline="") as f:
        read = list(csv.DictReader(f, dialect=dialect))
    fields, got = values(f"files:{path}#image=path,label=label,number=id,text=caption,score=score,box=box,hot=z;x;y")
    assert list(fields) == ["image", "label", "number", "text", "score", "box", "hot"]
    assert [fields[k][0] for k in fields] == ["dense"] * 3 + ["text"] + ["dense"] * 3
    assert fields["box"][2] == "4" and fields["hot"][2] == "3" and fields["score"][2] == "0"
    names = sorted({r["label"] for r in read})
    classes, samples = listed(f"files:{path}")
    assert [c.replace("\\x20", " ") for c in classes] == names
    assert samples == [(r["path"], names.index(r["label"])) for r in read]
    for row, r in zip(got, read):
        assert int.from_bytes(row["number"], "little") == int(r["id"])
        assert int.from_bytes(row["label"], "little") == names.index(r["label"])
        assert row["text"].decode() == r["caption"]
        assert row["score"] == numpy.float32(r["score"]).tobytes()
        assert row["box"] == numpy.array(r["box"].split(), "float32").tobytes()
        assert row["hot"] == numpy.array([r["z"], r["x"], r["y"]], "float32").tobytes()


def test_labels_that_are_numbers_stay_numbers(tmp_path):
    """Proves that a column of whole numbers gives these, and no classes."""
    (tmp_path / "l.csv").write_text("\ufefffile,label\na.jpg,-5\r\nb.jpg,900\n\nc.jpg,-5\n")
    assert listed(f"files:{tmp_path}/l.csv") == ([], [("a.jpg", -5), ("b.jpg", 900), ("c.jpg", -5)])
    (tmp_path / "n.csv").write_text("image\nb.jpg\na.jpg\n")
    assert listed(f"files:{tmp_path}/n.csv") == ([], [("b.jpg", -1), ("a.jpg", -1)])  # no label


def test_neither_a_sign_nor_a_blank_makes_a_real_number(tmp_path):
    """Proves that +1 is as whole as -1, in tables and in lists, and with blanks around it, as int() has it."""
    (tmp_path / "l.csv").write_text("path,label,n\na.jpg,+1, +5\nb.jpg, -1,-7 \nc.jpg,1, 6 \n")
    fields, got = values(f"files:{tmp_path}/l.csv#image=path,label=label,n=n")
    for name, wanted in (("label", [1, -1, 1]), ("n", [5, -7, 6])):
        assert [int.from_bytes(row[name], "little", signed=True) for row in got] == wanted
    (tmp_path / "l.txt").write_text("a.jpg\t+1\nb.jpg\t-1\n")
    assert listed(f"files:{tmp_path}/l.txt")[1] == [("a.jpg", 1), ("b.jpg", -1)]


@pytest.mark.parametrize("header", ["path, label", " path ,label ", 'path, "label"', "path\t,\tlabel"])
def test_blanks_around_names_do_not_count(tmp_path, header):
    """Proves that the label is found with blanks around its name, and that the cells below a header with blanks before its
    names are read as Python's csv reads them with skipinitialspace."""
    gap = " " if ", " in header else ""
    (tmp_path / "l.csv").write_text(f"{header}\na.jpg,{gap}7\nb.jpg,{gap}-2\n")
    assert listed(f"files:{tmp_path}/l.csv") == ([], [("a.jpg", 7), ("b.jpg", -2)])
    text = f'{header}\na.jpg,{gap}dog\nb.jpg,{gap}"a, b"\n'
    (tmp_path / "l.csv").write_text(text)
    read = list(csv.reader(text.splitlines()[1:], skipinitialspace=True))
    assert listed(f"files:{tmp_path}/l.csv#label= label ") == (["a,\\x20b", "dog"], [("a.jpg", 1), ("b.jpg", 0)])
    assert [row[1] for row in read] == ["dog", "a, b"]


def test_cells_keep_their_blanks_below_a_header_without_them(tmp_path):
    """Proves that texts are as they stand where the header does not say otherwise."""
    (tmp_path / "l.csv").write_text("path,t\na.jpg, x \n")
    assert values(f"files:{tmp_path}/l.csv#t=t")[1][0]["t"] == b" x "
    (tmp_path / "l.csv").write_text("path,x,x\na.jpg,1,2\n")
    assert listed(f"files:{tmp_path}/l.csv") == ([], [("a.jpg", -1)])  # no field is one of them


DTYPES = {"float32": "2", "int64": "4"}  # as tests/tools/values prints them
LABELS = {
    "floats": (["0.5", "-2.25", "1e-3"], "", "float32", lambda c: numpy.float32(c)),
    "floats and whole numbers": (["1", "2.5", "-3"], "", "float32", lambda c: numpy.float32(c)),
    "whole numbers taken for floats": (["1", "2", "-3"], ":float", "float32", lambda c: numpy.float32(c)),
    "multi-hot": (["0 1 1", "1 0 0", "0 0 0"], "", "float32", lambda c: numpy.array(c.split(), "float32")),
    "lists": (["[0, 1.5]", "[1, 0]", "[2, -1]"], "", "float32", lambda c: numpy.array(json.loads(c), "float32")),
    "whole": (["7", "-9", "12"], "", "int64", lambda c: numpy.int64(c)),
    "whole numbers taken for classes": (["7", "10", "-9"], ":class", "int64", None),
    "floats taken for classes": (["0.5", "0.25", "1"], ":class", "int64", None),
    "names with numbers": (["7", "cat", "1.5"], ":class", "int64", None),
    "dates": (["2024-01-05", "2023-01-05", "2024-1-5"], "", "int64", None),
    "not a number": (["nan", "inf", "0x10"], "", "int64", None),
}


@pytest.mark.parametrize("name", LABELS)
def test_labels_are_what_their_cells_are(tmp_path, name):
    """Proves each kind of label of one column, found and named: floats, vectors and whole numbers are what numpy and json
    read of the cell, all others are classes in sorted order."""
    cells, kind, dtype, read = LABELS[name]
    cells = cells * 9
    with open(tmp_path / "l.csv", "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(["path", "y", "other"])
        writer.writerows([[f"{i}.jpg", cell, i] for i, cell in enumerate(cells)])
    classes = sorted(set(cells))
    fields, got = values(f"files:{tmp_path}/l.csv#image=path,label=y{kind},other=other")
    assert fields["label"][1] == DTYPES[dtype]
    for row, cell in zip(got, cells):
        expected = read(cell) if read else numpy.int64(classes.index(cell))
        assert row["label"] == expected.tobytes(), cell
    assert [int.from_bytes(row["other"], "little") for row in got] == list(range(len(cells)))
    assert listed(f"files:{tmp_path}/l.csv#label=y{kind}")[0] == ([] if read else classes)


def test_a_kind_behind_a_column(tmp_path):
    """Proves that fields are of the kind that is asked for, whatever the first row is, and that a column whose own name ends
    like a kind is found."""
    (tmp_path / "l.csv").write_text("path,x,y:float\na.jpg,1,3\nb.jpg,0.5,4\n")
    fields, got = values(f"files:{tmp_path}/l.csv#f=x:float,t=x:text,n=y:float,m=y:float:float")
    dtypes = {name: fields[name][1] for name in "fnm"}
    assert dtypes == {"f": DTYPES["float32"], "n": DTYPES["int64"], "m": DTYPES["float32"]}
    assert fields["t"][0] == "text" and [row["t"] for row in got] == [b"1", b"0.5"]
    assert [numpy.frombuffer(row["f"], "float32")[0] for row in got] == [1, 0.5]


def test_float_labels_arrive_in_batches(daemon, samples, tmp_path):
    """Proves that a float label of one column is the float32 label of a batch, as numpy reads the same table, by default as
    well, and that a kind gives the table's classes."""
    import batchd

    torch = pytest.importorskip("torch")
    samples = shutil.copytree(samples, tmp_path / "data")
    files = sorted(p for p in samples.rglob("*.jpg"))[:20]
    with open(samples / "y.csv", "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(["path", "label"])
        writer.writerows([[p.relative_to(samples), i / 8] for i, p in enumerate(files)])
    read = numpy.genfromtxt(samples / "y.csv", delimiter=",", skip_header=1, usecols=1).astype("float32")
    loader = batchd.DataLoader(f"files:{samples}/y.csv", 8, shuffle=True, transform="val224")
    for images, labels in loader:
        assert labels.dtype == torch.float32
        assert torch.equal(labels, torch.tensor(read[loader.last_batch.indices]))
    loader = batchd.DataLoader(f"files:{samples}/y.csv#image=path,label=label:class", 20, transform="val224")
    ((images, labels),) = loader
    assert loader.classes == sorted(str(i / 8) for i in range(20)) and labels.dtype == torch.int64


@pytest.mark.parametrize(
    "text, fields, words",
    [
        ("path,x\na.jpg,1\nb.jpg,one\n", "#x=x", "l.csv:3: x: 'one' is no whole number"),
        ("path,x\na.jpg,1 2\nb.jpg,1\n", "#x=x", ":3: x: fewer numbers than in the first row"),
        ("path,x\na.jpg,1 2\nb.jpg,1 2 3\n", "#x=x", ":3: x: '1 2 3' is not as many numbers"),
        ("path,x\na.jpg,1\nb.jpg,1,2\n", "", ":3: another number of columns"),
        ('path,x\na.jpg,"open\n', "", ":2: a quotation mark is not closed"),
        ("path,x\na.jpg,1\n", "#x=nothing", ":1: no column nothing"),
        ("path,label\na.jpg,\n", "", ":2: no label"),
        ("path,x\n,1\n", "", ":2: the path ends in '/'"),
        ("path,x\n", "", "names no file"),
        ("a.jpg,1\nb.jpg,2\n", "", ":1: no column path, file, filename, file_name, image or image_path in the first"),
        ("p" * 20 + ("," * 5000) + "\n", "", ":1: more than 4096 columns"),
        ("path,x\na.jpg,1\n", "#x=x,x=x", "twice"),
        ("path,x,y\na.jpg,1,2\n", "#label=x;y,label=x", ":1: field 'label' is there twice"),
        ("path,x,y\na.jpg,1,2\n", "#label=x,label=x;y", ":1: field 'label' is there twice"),
        ("path,x,y\na.jpg,1,2\nb.jpg,1,dog\n", "#label=x;y", ":3: label: 'dog' is not as many numbers"),
        ("path,y\na.jpg,1\nb.jpg,cat\n", "#label=y", ":3: label: 'cat' is no number, and the rows above have numbers"),
        ("path,y\na.jpg,0.5\nb.jpg,1 2\n", "#label=y", ":3: label: '1 2' has 2 numbers, and the rows above have 1"),
        ("path,y\na.jpg,cat\nb.jpg,0.5\n", "#label=y", ":3: label: '0.5' is a number, and the rows above have names"),
        ("path,x,x\na.jpg,1,2\n", "#x=x", ":1: columns 2 and 3 both have the name x: rename one of them"),
        ("path,label, label\na.jpg,1,2\n", "", ":1: columns 2 and 3 both have the name label"),
        ("path,x,path\na.jpg,1,b.jpg\n", "", ":1: columns 1 and 3 both have the name path"),
        (
            "path,y\na.jpg,1.5\nb.jpg,nan\n",
            "#label=y",
            ":3: label: 'nan' is not finite, and the rows above have numbers",
        ),
        (
            "path,y\na.jpg,nan\nb.jpg,1.5\n",
            "#label=y",
            ":3: label: '1.5' is a number, and all rows above have nan or inf",
        ),
        ("path,label\na.jpg,nan\nb.jpg,-inf\n", "", "l.csv: label: every one is nan or inf"),
        ("path,y\na.jpg,1\nb.jpg,nan\n", "#x=y", ":3: x: 'nan' is no whole number"),
        ("path,y\na.jpg,1\nb.jpg,0.5\n", "#label=y:int", ":3: label: '0.5' is no whole number"),
        ("path,y\na.jpg,1\nb.jpg,cat\n", "#label=y:float", ":3: label: 'cat' is no number"),
        ("path,y\na.jpg,1\n", "#label=y:text", ":1: field 'label': a text is no label"),
        ("path,y\na.jpg,1\n", "#x=y:class", ":1: field 'x': only the label is a class"),
        ("path,x,y\na.jpg,1,2\n", "#x=x;y:int", ":1: field 'x': several columns are float"),
        ("path,y\na.jpg,cat\n", "#x=y:float", ":2: x: 'cat' is no number"),
        (
            "path,y\na.jpg,cat\n",
            "#x=y:double",
            ":1: no column y:double, and no kind double of column y: expected class",
        ),
        ("path,y\na.jpg,cat\n", "#x=n:int,z=y", ":1: no column n; the header has path, y"),
        ("path,x,y\na.jpg,cat,2\n", "#label=x;y", ":2: label: 'cat' is not as many numbers"),
        ("path,x\na.jpg,9223372036854775808\n", "#x=x", ":2: x: '9223372036854775808' is too large for int64"),
        (
            "path,x\na.jpg,1\nb.jpg,-9223372036854775809\n",
            "#x=x",
            ":3: x: '-9223372036854775809' is too large for int64",
        ),
        ("path,x\na.jpg,9223372036854775808\n", "#x=x:int", ":2: x: '9223372036854775808' is too large for int64"),
        ("path,x\na.jpg,0.5\nb.jpg,1e39\n", "#x=x", ":3: x: '1e39' is too large for float32"),
        ("path,x\na.jpg,0 1\nb.jpg,1 -1e39\n", "#x=x", ":3: x: '1 -1e39' is too large for float32"),
        (
            "path,label\na.jpg,1\nb.jpg,18446744073709551615\n",
            "",
            ":3: label: '18446744073709551615' is too large for int64",
        ),
        ("path,label\na.jpg,0 1\nb.jpg,1e39 1\n", "", ":3: label: '1e39 1' is too large for float32"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path, text, fields, words):
    """Proves that a damaged or hostile table is refused by name, line and column."""
    (tmp_path / "l.csv").write_text(text)
    assert words in refusal(f"files:{tmp_path}/l.csv{fields}")


def test_batches_have_the_columns_beside_their_pictures(daemon, samples, tmp_path):
    """Proves that rows of a shuffled epoch have the values of their own line."""
    import batchd

    samples = shutil.copytree(samples, tmp_path / "data")  # the folder is other tests' as well
    files = sorted(p for p in samples.rglob("*.jpg"))[:40]
    with open(samples / "columns.csv", "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(["path", "label", "caption", "a", "b"])
        for i, p in enumerate(files):
            writer.writerow([p.relative_to(samples), p.parent.name, f"row {i}", i / 4, -i])
    loader = batchd.DataLoader(
        f"files:{samples}/columns.csv#image=path,label=label,text=caption,pair=a;b",
        fields=("image", "label", "text", "pair"),
        batch_size=8,
        shuffle=True,
        transform="val224",
    )
    classes = sorted({p.parent.name for p in files})
    assert list(loader.dataset.classes) == classes
    for images, labels, texts, pairs in loader:
        rows = [int(i) for i in loader.last_batch.indices]
        assert len(images) == len(rows)
        assert labels.tolist() == [classes.index(files[i].parent.name) for i in rows]
        assert texts == [f"row {i}" for i in rows]
        assert pairs.tolist() == [[i / 4, -i] for i in rows]


def test_fields_choose_columns(daemon, samples, tmp_path):
    """Proves that `fields` makes fields of a table's columns, by name and as a dictionary, and leaves the picture and the
    label where a table without a list has them."""
    import batchd

    samples = shutil.copytree(samples, tmp_path / "data")
    files = sorted(p for p in samples.rglob("*.jpg"))[:8]
    with open(samples / "columns.csv", "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(["file", "class", "score", "a", "b"])
        writer.writerows([[p.relative_to(samples), i, i / 4, i, -i] for i, p in enumerate(files)])
    spec, options = f"files:{samples}/columns.csv", dict(batch_size=8, shuffle=True, transform="val224")

    def rows(loader):
        (batch,) = loader
        return batch, [int(i) for i in loader.last_batch.indices]

    (images, labels, scores), indices = rows(batchd.DataLoader(spec, fields=("image", "label", "score"), **options))
    assert len(images) == 8 and labels.tolist() == indices and scores.tolist() == [i / 4 for i in indices]
    wanted = {"x": "image", "y": "label", "pair": "b;a", "n": "a:float", "again": "label"}
    batch, indices = rows(batchd.DataLoader(spec, fields=wanted, **options))
    assert list(batch) == list(wanted) and batch["x"].shape == (8, 3, 224, 224)
    assert batch["y"].tolist() == batch["again"].tolist() == indices
    assert batch["pair"].tolist() == [[-i, i] for i in indices]
    assert numpy.asarray(batch["n"]).dtype == numpy.float32
    batch, indices = rows(batchd.DataLoader(spec, fields={"x": "image", "y": "label"}, **options))
    assert batch["y"].tolist() == indices
    with pytest.raises(batchd.Error, match="no column nothing; the header has file"):
        batchd.DataLoader(spec, fields=("image", "nothing"), **options)
    with pytest.raises(TypeError, match="columns as texts"):
        batchd.DataLoader(spec, fields={"image": "file", "x": 1}, **options)


def test_labels_of_several_columns(daemon, samples, tmp_path):
    """Proves that a label of several columns (multi-hot, a float vector) is the label of a batch, as numpy reads the same
    table: as a pair, beside other fields whatever their order, on a part of the ranks, and in the caller's memory."""
    import batchd

    torch = pytest.importorskip("torch")
    samples = shutil.copytree(samples, tmp_path / "data")
    files = sorted(p for p in samples.rglob("*.jpg"))[:40]
    rng = numpy.random.default_rng(3)
    table = numpy.concatenate([rng.integers(0, 2, (40, 3)), rng.normal(size=(40, 2))], 1)
    path = samples / "hot.csv"
    with open(path, "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(["path", "cat", "dog", "sky", "x", "y"])
        for p, row in zip(files, table):
            writer.writerow([p.relative_to(samples), *row])
    read = numpy.genfromtxt(path, delimiter=",", skip_header=1, usecols=range(1, 6)).astype("float32")
    options = dict(batch_size=8, shuffle=True, transform="val224")

    seen = []
    loader = batchd.DataLoader(f"files:{path}#label=sky;cat;dog", **options)
    assert list(loader.fields) == ["image", "label"] and loader.fields["label"][:2] == ("float32", (3,))
    for images, labels in loader:
        rows = loader.last_batch.indices
        assert labels.dtype == torch.float32 and torch.equal(labels, torch.tensor(read[rows][:, [2, 0, 1]]))
        seen += rows.tolist()
    assert sorted(seen) == list(range(40))

    loader = batchd.DataLoader(f"files:{path}#one=cat,label=x;y", fields=("label", "image", "one"), **options)
    for labels, images, one in loader:
        rows = loader.last_batch.indices
        assert torch.equal(labels, torch.tensor(read[rows][:, 3:])) and one.tolist() == read[rows][:, 0].tolist()

    parts = []
    for rank in range(2):
        loader = batchd.DataLoader(f"files:{path}#label=x;y", rank=rank, world_size=2, **options)
        images, labels = torch.empty(8, 3, 224, 224), torch.empty(8, 2)
        while n := loader.next_into(images, labels):
            rows = loader.last_batch.indices
            assert torch.equal(labels[:n], torch.tensor(read[rows][:, 3:]))
            parts += rows.tolist()
    assert sorted(parts) == list(range(40))


def test_mixing_needs_a_label_that_is_a_number(daemon, samples, tmp_path):
    """Proves that soft targets of a label with several numbers are refused by name."""
    import batchd

    samples = shutil.copytree(samples, tmp_path / "data")
    file = next(samples.rglob("*.jpg"))
    (samples / "l.csv").write_text(f"path,a,b\n{file.relative_to(samples)},1,0\n")
    pytest.importorskip("torch")
    mix = import_torchvision().transforms.v2.CutMix(alpha=1.0, num_classes=2)
    with pytest.raises(batchd.Error, match="one whole number"):
        batchd.DataLoader(f"files:{samples}/l.csv#label=a;b", batch_size=1, transform="val224", mix=mix)

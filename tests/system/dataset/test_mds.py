"""mds: data sets have the samples that MosaicML streaming's own reader gives for the same shards."""

import importlib
import io
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import types

import pytest

REPO = pathlib.Path(__file__).resolve().parents[3]
TOOLS = pathlib.Path(os.environ.get("BATCHD_BUILD", REPO / "build")) / "tests" / "tools"


def upstream(name):
    """A module of streaming's, without the package's own imports (transformers, clouds' libraries)."""
    pytest.importorskip("numpy")
    for package in ("streaming", "streaming.base", "streaming.base.format", "streaming.base.format.mds"):
        if package not in sys.modules:
            found = next((p for p in sys.path if os.path.isdir(os.path.join(p, package.replace(".", "/")))), None)
            if not found:
                pytest.skip("the mosaicml-streaming package is not installed")
            sys.modules[package] = types.ModuleType(package)
            sys.modules[package].__path__ = [os.path.join(found, package.replace(".", "/"))]
    try:
        return importlib.import_module(name)
    except ImportError as e:
        pytest.skip(f"mosaicml-streaming cannot be imported: {e}")


def values(spec):
    done = subprocess.run([TOOLS / "values", spec], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line.split(" ") for line in done.stdout.splitlines()]
    fields = {line[1]: line[2:] for line in lines if line[0] == "#"}
    rows = [(line[0], bytes.fromhex(line[1])) for line in lines if line[0] != "#"]
    n = len(fields) - 1
    return fields, [dict(rows[i : i + n]) for i in range(0, len(rows), n)]


def listed(spec):
    out = subprocess.run([TOOLS / "dataset", spec], check=True, stdout=subprocess.PIPE, text=True).stdout
    return [(n, int(v)) for n, v in (line.split("\t") for line in out.splitlines())]


def refusal(spec):
    done = subprocess.run([TOOLS / "values", spec], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1, done.stdout
    return done.stderr


def shard(path, columns, samples):
    """A shard as streaming's MDSWriter lays it out. columns: {name: (encoding, size or None)}; samples: lists of bytes."""
    config = {
        "column_names": list(columns),
        "column_encodings": [e for e, _ in columns.values()],
        "column_sizes": [s for _, s in columns.values()],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "size_limit": 1 << 26,
        "version": 2,
    }
    text = json.dumps(config, sort_keys=True).encode()
    bodies = []
    for sample in samples:
        sizes = [len(v) for v, (_, size) in zip(sample, columns.values()) if not size]
        bodies.append(struct.pack(f"<{len(sizes)}I", *sizes) + b"".join(sample))
    at = 4 + 4 * (len(bodies) + 1) + len(text)
    offsets = [at]
    for body in bodies:
        offsets.append(offsets[-1] + len(body))
    path.write_bytes(struct.pack(f"<I{len(offsets)}I", len(bodies), *offsets) + text + b"".join(bodies))
    return config


def some(n, first=0):
    return [
        [
            f"text {i} ü".encode(),
            struct.pack("<q", i * 7 - 20),
            b"\xff\xd8" + bytes(i % 50),
            struct.pack("<b", -i % 100),
            str(i * 10**6).encode(),
        ]
        for i in range(first, first + n)
    ]


COLUMNS = {
    "caption": ("str", None),
    "label": ("int", 8),
    "photo": ("jpeg", None),
    "small": ("int8", 1),
    "long": ("str_int", None),
}


def test_samples_are_those_of_streamings_reader(tmp_path):
    """Proves order, texts, whole numbers of every kind and bytes, over two shards, against MDSReader."""
    reader = upstream("streaming.base.format.mds.reader").MDSReader
    base = upstream("streaming.base.format.base.reader")
    want = []
    for k, n in enumerate((30, 9)):
        path = tmp_path / f"shard.{k:05}.mds"
        config = shard(path, COLUMNS, some(n, 100 * k))
        mds = reader(
            str(tmp_path),
            "",
            config["column_encodings"],
            config["column_names"],
            config["column_sizes"],
            None,
            [],
            base.FileInfo(path.name, path.stat().st_size, {}),
            n,
            None,
            None,
        )
        for i in range(n):
            data = mds.get_sample_data(i)
            names = config["column_names"]
            decode = upstream("streaming.base.format.mds.encodings").mds_decode
            at, sizes = 0, []
            for size in config["column_sizes"]:
                if not size:
                    size, at = struct.unpack_from("<I", data, at)[0], at + 4
                sizes.append(size)
            sample = {}
            for name, encoding, size in zip(names, config["column_encodings"], sizes):
                sample[name] = data[at : at + size] if encoding == "jpeg" else decode(encoding, data[at : at + size])
                at += size
            want.append(sample)
    assert [label for _, label in listed(f"mds:{tmp_path}")] == [w["label"] for w in want]
    fields, got = values(f"mds:{tmp_path}#image=photo,text=caption,label=label,small=small,long=long,raw=photo")
    assert [fields[k][0] for k in fields] == ["dense", "text", "dense", "dense", "dense", "bytes"]
    assert [g["text"].decode() for g in got] == [w["caption"] for w in want]
    assert [g["raw"] for g in got] == [w["photo"] for w in want]
    for name in ("label", "small", "long"):
        assert [int.from_bytes(g[name], "little", signed=True) for g in got] == [int(w[name]) for w in want]


def test_pixels_are_those_of_the_files(daemon, samples, tmp_path):
    """Proves batches byte for byte against a list of the same files."""
    import batchd

    files = sorted(samples.rglob("*.jpg"))[:20]
    shard(
        tmp_path / "shard.00000.mds",
        COLUMNS,
        [[b"", struct.pack("<q", i), p.read_bytes(), b"\0", b"1"] for i, p in enumerate(files)],
    )
    (tmp_path / "l.txt").write_text("".join(f"{p}\t{i}\n" for i, p in enumerate(files)))
    options = dict(batch_size=6, transform="val224", dtype="uint8", shuffle=True)
    packed = batchd.DataLoader(f"mds:{tmp_path}", job="a", **options)
    loose = batchd.DataLoader(f"files:{tmp_path}/l.txt", job="b", **options)
    for (x, y), (u, v) in zip(packed, loose):
        assert (x == u).all() and (y == v).all()


def indexed(folder):
    """Three shards of five samples, and streaming's index of them, whose entries are returned."""
    entries = []
    for k in range(3):
        path = folder / f"shard.{k:05}.mds"
        shard(path, COLUMNS, some(5, 5 * k))
        raw = {"basename": path.name, "bytes": path.stat().st_size, "hashes": {}}
        entries.append({"format": "mds", "raw_data": raw, "samples": 5, "version": 2, "zip_data": None})
    (folder / "index.json").write_text(json.dumps({"shards": entries, "version": 2}))
    return entries


def test_streamings_index_names_a_missing_shard(tmp_path):
    """A shard that is not there is named, and a shorter one too."""
    entries, index = indexed(tmp_path), tmp_path / "index.json"
    assert listed(f"mds:{index}") == listed(f"mds:{tmp_path}") == listed(f"mds:{tmp_path}/*.mds")
    os.truncate(tmp_path / "shard.00002.mds", entries[2]["raw_data"]["bytes"] - 1)
    assert "shard.00002.mds: " in refusal(f"mds:{index}") and "its list says" in refusal(f"mds:{index}")
    os.unlink(tmp_path / "shard.00001.mds")
    assert "shard.00001.mds: No such file" in refusal(f"mds:{index}")
    for entry in entries:
        entry["zip_data"] = {"basename": entry["raw_data"]["basename"] + ".zstd", "bytes": 1, "hashes": {}}
    index.write_text(json.dumps({"shards": entries, "version": 2}))
    assert "shard.00001.mds.zstd: No such file" in refusal(f"mds:{index}")  # 0 has been unpacked


def test_a_folder_with_streamings_index_misses_a_shard(daemon, tmp_path):
    """Proves it for a folder that the daemon's own code lists, and for one that a client opens."""
    import batchd

    indexed(tmp_path)
    fields = "#text=caption,label=label"
    assert len(listed(f"mds:{tmp_path}")) == 15
    with batchd.DataLoader(f"mds:{tmp_path}{fields}", batch_size=5) as loader:
        assert len(loader) == 3
    os.unlink(tmp_path / "shard.00001.mds")
    words = f"{tmp_path}/shard.00001.mds: No such file"
    assert words in refusal(f"mds:{tmp_path}{fields}")
    with pytest.raises(batchd.Error, match=re.escape(words)):
        batchd.DataLoader(f"mds:{tmp_path}{fields}", batch_size=5)
    assert len(listed(f"mds:{tmp_path}/*.mds")) == 10
    with batchd.DataLoader(f"mds:{tmp_path}/*.mds{fields}", batch_size=5) as loader:
        assert len(loader) == 2


def test_a_folder_with_too_long_an_index_is_read_without_it(daemon, tmp_path):
    import batchd

    indexed(tmp_path)
    os.unlink(tmp_path / "shard.00001.mds")
    os.truncate(tmp_path / "index.json", (16 << 20) + 1)
    assert len(listed(f"mds:{tmp_path}")) == 10
    with batchd.DataLoader(f"mds:{tmp_path}#text=caption,label=label", batch_size=5) as loader:
        assert len(loader) == 2


REALS = {"half": ("float16", 2), "single": ("float32", 4), "full": ("float64", 8), "text": ("str_float", None)}


def test_real_numbers_are_streamings(tmp_path):
    """Subnormals, infinities and no number at all included."""
    numpy = pytest.importorskip("numpy")
    decode = upstream("streaming.base.format.mds.encodings").mds_decode
    reals = [
        1e300,
        3.141592653589793,
        0.0,
        -0.0,
        1.5,
        -2 / 3,
        6e-8,
        6.1e-5,
        -65504.0,
        float("inf"),
        float("-inf"),
        float("nan"),
        1 / 3,
    ]
    small = [x if abs(x) < 1e5 or x - x != 0 else 1.0 for x in reals]
    samples = [
        [struct.pack("<e", y), struct.pack("<f", y), struct.pack("<d", x), repr(x).encode()]
        for x, y in zip(reals, small)
    ]
    shard(tmp_path / "shard.00000.mds", {"first": ("int", 8), **REALS}, [[bytes(8), *s] for s in samples])
    fields, got = values(f"mds:{tmp_path}#first=first," + ",".join(f"{name}={name}" for name in REALS))
    for k, (name, (encoding, _)) in enumerate(REALS.items()):
        dtype = "<f4" if name in ("half", "single") else "<f8"
        want = numpy.array([decode(encoding, s[k]) for s in samples], dtype)
        assert numpy.array_equal(numpy.frombuffer(b"".join(g[name] for g in got), dtype), want, equal_nan=True)


def test_a_column_of_pictures_is_the_image_whatever_it_is_called(daemon, samples, tmp_path):
    """Proves it for a first opening, and for one that finds the index of the first."""
    import batchd

    files = sorted(samples.rglob("*.jpg"))[:6]
    shard(
        tmp_path / "shard.00000.mds",
        COLUMNS,
        [[f"{i}".encode(), struct.pack("<q", i), p.read_bytes(), b"\0", b"1"] for i, p in enumerate(files)],
    )
    options = dict(batch_size=6, transform="val224", dtype="uint8", arrays="numpy", sampler=range(6))
    want, labels = next(iter(batchd.DataLoader(f"mds:{tmp_path}", **options)))
    for fields in ({"labels": "label", "pixel_values": "photo"}, {"a": "caption", "pixel_values": "photo"}) * 2:
        with batchd.DataLoader(f"mds:{tmp_path}", fields=fields, **options) as loader:
            batch = next(iter(loader))
            assert list(batch) == list(fields) and (batch["pixel_values"] == want).all()
            assert (batch["labels"] == labels).all() if "labels" in batch else batch["a"] == list("012345")


def at_first(b, size):
    """Another size of the first sample's first value."""
    at = struct.unpack_from("<I", b, 4)[0]
    return b[:at] + struct.pack("<I", size) + b[at + 4 :]


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda b: b[:-3], "does not lie inside the shard: cut short?"),
        (lambda b: b[:3], "the shard ends in the middle"),
        (lambda b: b"\x28\xb5\x2f\xfd" + b[4:], "zstd finds no whole frame"),
        (lambda b: b"\xff\xff\xff\xff" + b[4:], "not an MDS shard"),
        (lambda b: b[:4] + b"\0\0\0\0" + b[8:], "not an MDS shard"),
        (lambda b: b[:4] + b"\xff\xff\xff\xff" + b[8:], "not an MDS shard"),
        (lambda b: b[:8] + b"\x01\0\0\0" + b[12:], "sample 0 does not lie inside"),
        (lambda b: b[:8] + b"\x04\0\0\0" + b[12:], "sample 0 does not lie inside"),  # over the offsets themselves
        (lambda b: b[:12] + b[8:12] + b[16:], "sample 1 does not lie inside"),  # where sample 0 lies, too
        (lambda b: at_first(b, 2**31 - 1), "sample 0: column caption is larger than the sample"),
        (lambda b: at_first(b, 500), "sample 0: column caption is larger than the sample"),
        (lambda b: b.replace(b'"column_names": [', b'"column_names": {'), "no JSON"),
        (lambda b: b.replace(b'"column_sizes": [null', b'"column_sizes": [-100'), "not valid"),
    ],
)
def test_damaged_shards_are_refused_by_name(tmp_path, change, words):
    """Proves that a cut or forged shard is an error with its name."""
    shard(tmp_path / "a.mds", COLUMNS, some(3))
    (tmp_path / "a.mds").write_bytes(change((tmp_path / "a.mds").read_bytes()))
    text = refusal(f"mds:{tmp_path}/a.mds")
    assert re.search(rf"{tmp_path}/a.mds(, byte|:)", text) and words in text


def test_pickled_columns_are_refused_by_name(tmp_path):
    """Proves that a pickled column is an error where it is wanted, and skipped where it is not."""
    columns = {"image": ("jpeg", None), "more": ("pkl", None)}
    shard(tmp_path / "a.mds", columns, [[b"x", b"y"]])
    assert "column more is pickled" in refusal(f"mds:{tmp_path}/a.mds#image=image,more=more")
    assert len(listed(f"mds:{tmp_path}/a.mds")) == 1


def test_whole_numbers_beyond_int64_are_uint64(daemon, tmp_path):
    """Proves that ids of streaming's writer, half of which are above 2^63, all come and are what numpy drew."""
    import batchd

    numpy = pytest.importorskip("numpy")
    encode = upstream("streaming.base.format.mds.encodings").mds_encode
    ids = numpy.random.default_rng(0).integers(0, 2**64, 200, numpy.uint64)
    columns = {"id": ("uint64", 8), "label": ("int", 8)}
    samples = [[encode("uint64", x), encode("int", i)] for i, x in enumerate(ids)]
    shard(tmp_path / "shard.00000.mds", columns, samples)
    with batchd.DataLoader(f"mds:{tmp_path}", 200, fields={"id": "id", "label": "label"}, arrays="numpy") as loader:
        batch = next(iter(loader))
    assert batch["id"].dtype == numpy.uint64 and (batch["id"] == ids).all() and len(batch["label"]) == 200


def test_a_number_that_does_not_fit_is_bad_data(daemon, tmp_path):
    """Proves that a str_int beyond int64 is named."""
    import batchd

    encode = upstream("streaming.base.format.mds.encodings").mds_encode
    samples = [[encode("str_int", 10**30 if i == 7 else i)] for i in range(200)]
    shard(tmp_path / "shard.00000.mds", {"x": ("str_int", None)}, samples)
    with pytest.warns(RuntimeWarning, match="1 of 200 samples are left out; the first.*too large for int64"):
        with batchd.DataLoader(f"mds:{tmp_path}", 200, fields=("x",)) as loader:
            assert len(next(iter(loader))[0]) == 199


def picture():
    out = io.BytesIO()
    pytest.importorskip("PIL.Image").new("RGB", (16, 16)).save(out, "JPEG")
    return out.getvalue()


def test_a_label_goes_by_the_names_and_kinds_of_tables(daemon, tmp_path):
    """Proves whole and real labels."""
    import batchd

    for name, encoding, size, packed, kind in (
        ("target", "int", 8, struct.pack("<q", 7), "int64"),
        ("class", "uint16", 2, struct.pack("<H", 7), "int64"),
        ("label", "float32", 4, struct.pack("<f", 7.5), "float32"),
        ("y", "float64", 8, struct.pack("<d", 7.5), "float64"),
    ):
        path = tmp_path / f"{name}.mds"
        shard(path, {"photo": ("jpeg", None), name: (encoding, size)}, [[picture(), packed]] * 2)
        with batchd.DataLoader(f"mds:{path}", 2, transform="val224", arrays="numpy") as loader:
            _, labels = next(iter(loader))
        assert labels.dtype == kind and labels.tolist() == [7.5 if "float" in kind else 7] * 2


def test_a_text_label_is_a_class(daemon, tmp_path):
    """Proves that names become the classes that tables make of them, over shards, from the kept index too; streaming's reader
    gives the names."""
    import batchd

    words = ["dog", "cat", "éland", "dog", "Cat", "cat"]
    for i, part in enumerate((words[:4], words[4:])):
        columns = {"photo": ("jpeg", None), "label": ("str", None), "n": ("int", 8)}
        shard(tmp_path / f"shard.{i}.mds", columns, [[picture(), w.encode(), bytes(8)] for w in part])
    names = sorted(set(words))
    for options in ({}, {}, {"fields": {"image": "photo", "label": "label"}}):
        with batchd.DataLoader(f"mds:{tmp_path}", 6, transform="val224", arrays="numpy", **options) as loader:
            batch = next(iter(loader))
            labels = batch["label"] if "fields" in options else batch[1]
            assert loader.dataset.classes == names and loader.dataset.class_to_idx["éland"] == 3
        assert labels.dtype == "int64" and [names[i] for i in labels] == words
    with batchd.DataLoader(f"mds:{tmp_path}", 6, fields={"name": "label"}) as loader:
        assert next(iter(loader))["name"] == words
    reader = upstream("streaming.base.format.mds.reader").MDSReader
    config = shard(tmp_path / "one.mds", {"label": ("str", None)}, [[w.encode()] for w in words])
    config = {**config, "raw_data": {"basename": "one.mds", "bytes": 0, "hashes": {}}, "samples": 6, "zip_data": None}
    theirs = reader.from_json(str(tmp_path), None, config)
    assert [theirs.get_item(i)["label"] for i in range(6)] == words


def test_a_number_is_the_label_before_a_text(daemon, tmp_path):
    """Proves the order of kinds, whatever the names."""
    import batchd

    columns = {"photo": ("jpeg", None), "label": ("str", None), "class": ("int", 8)}
    shard(tmp_path / "a.mds", columns, [[picture(), b"dog", struct.pack("<q", 7)]])
    with batchd.DataLoader(f"mds:{tmp_path}/a.mds", 1, transform="val224", arrays="numpy") as loader:
        assert next(iter(loader))[1].tolist() == [7] and loader.dataset.classes == []


@pytest.mark.parametrize(
    "value, words",
    [
        (b"", "empty"),
        (b"a\0b", "zero byte"),
        (b"\xff", "not UTF-8"),
        (b"x" * 256, "255 bytes at most"),
    ],
)
def test_a_text_that_names_no_class_is_bad_data(make_daemon, tmp_path, value, words):
    """Proves both sides: 255 bytes are a name."""
    import batchd

    make_daemon(config="bad_data: 50%\n")
    columns = {"photo": ("jpeg", None), "label": ("str", None)}
    shard(tmp_path / "a.mds", columns, [[picture(), v] for v in (b"y" * 255, value, b"b")])
    with pytest.warns(RuntimeWarning, match=f"1 of 3 samples are left out.*label .*{words}"):
        loader = batchd.DataLoader(f"mds:{tmp_path}/a.mds", 2, transform="val224", arrays="numpy")
    with loader:
        assert next(iter(loader))[1].tolist() == [1, 0] and loader.dataset.classes == ["b", "y" * 255]


@pytest.mark.parametrize("encoding", ["pil", "jpeg_array", "list[png]", "list[jpeg]"])
def test_pictures_in_streamings_own_form_are_refused_by_name(tmp_path, encoding):
    """Proves it with and without a list of fields."""
    shard(tmp_path / "a.mds", {"photo": (encoding, None), "label": ("int", 8)}, [[b"x", bytes(8)]])
    for spec in ("", "#image=photo,label=label"):
        assert f"column photo is encoded as {encoding}, which is not read" in refusal(f"mds:{tmp_path}/a.mds{spec}")

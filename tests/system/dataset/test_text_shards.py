"""Shards whose samples have no picture, and values of JSON files by their keys: what webdataset and json.loads give."""

import io
import json
import os
import pathlib
import random
import subprocess
import tarfile
import zipfile

import pytest

REPO = pathlib.Path(__file__).resolve().parents[3]
TOOLS = pathlib.Path(os.environ.get("BATCHD_BUILD", REPO / "build")) / "tests" / "tools"
WORDS = "ein Text über eine Katze, die nicht müde wird".split()


def put_tar(path, members):
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def write(folder, n, seed=0):
    """Texts and JSON objects in a tar and a zip; the samples as webdataset decodes the tar."""
    wds = pytest.importorskip("webdataset", reason="the webdataset package is not installed")
    rng, members = random.Random(seed), []
    for i in range(n):
        meta = {
            "caption": " ".join(rng.choices(WORDS, k=rng.randrange(12))),
            "width": rng.randrange(-5000, 5000),
            "score": rng.random() * 100,
            "nsfw": rng.random() < 0.5,
            "tags": rng.choices(WORDS, k=2),
            "deep": {"caption": "another", "ü": None},
        }
        if i % 7 == 3:
            del meta["width"]
        if i % 11 == 5:
            meta["score"] = None
        if i % 13 == 6:
            meta["width"] = "wide"
        data = json.dumps(meta, ensure_ascii=i % 2 == 0).encode()
        members += [(f"{i:04}.txt", f"text {i}, ".encode() * rng.randrange(9)), (f"{i:04}.json", data)]
    members += [("bad1.txt", b"x"), ("bad1.json", b"[1, 2"), ("bad2.txt", b"x"), ("bad2.json", b"[]")]
    put_tar(folder / "a.tar", members)
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in members:
            z.writestr(name, data)
    return [s for s in wds.WebDataset(str(folder / "a.tar"), shardshuffle=False, empty_check=False)]


def values(spec):
    done = subprocess.run([TOOLS / "values", spec], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    names = [line.split(" ")[1:3] for line in done.stdout.splitlines() if line[0] == "#"]
    return names


def test_texts_alone_are_a_data_set(daemon, tmp_path):
    """Proves every text, shuffled, in tuples, dictionaries and as packed bytes, for tar and zip, on two ranks."""
    import batchd

    want = [s["txt"].decode() for s in write(tmp_path, 60)]
    for kind in ("tar", "zip"):
        seen = {}
        for rank in range(2):
            loader = batchd.DataLoader(
                f"{kind}:{tmp_path}/a.{kind}",
                fields={"text": "txt"},
                batch_size=7,
                shuffle=True,
                rank=rank,
                world_size=2,
                job=kind,
            )
            for batch in loader:
                for index, text in zip(loader.last_batch.indices, batch["text"]):
                    assert text == want[int(index)]
                    seen[int(index)] = text
        assert len(seen) == len(want)
    packed = batchd.DataLoader(f"tar:{tmp_path}/a.tar", fields=("txt",), batch_size=8, packed=True, job="p")
    (ragged,) = next(iter(packed))
    got = [bytes(bytearray(int(v) for v in ragged.values[a:b])) for a, b in zip(ragged.offsets, ragged.offsets[1:])]
    assert [g.decode() for g in got] == want[:8]


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_values_of_json_are_those_of_json_loads(make_daemon, tmp_path, kind):
    """Proves strings, whole numbers, real numbers, booleans and lists by their keys; samples without one, or with one of
    another type, are left out."""
    make_daemon(config="bad_data: 50%\n")
    import batchd
    import numpy

    want = []
    for sample in write(tmp_path, 80):
        try:
            meta = json.loads(sample["json"])
        except ValueError:
            continue
        if isinstance(meta, dict) and isinstance(meta.get("width"), int) and meta["score"] is not None:
            want.append((sample["txt"].decode(), meta))
    assert 40 < len(want) < 80
    spec = f"{kind}:{tmp_path}/a.{kind}"
    keys = ("caption", "width", "score", "nsfw", "tags")
    fields = {key: f"json:{key}" for key in keys} | {"text": "txt"}
    with pytest.warns(RuntimeWarning, match="of 8. samples are left out; the first"):
        loader = batchd.DataLoader(spec, fields=fields, batch_size=9, job="j", arrays="numpy")
    n = 0
    for batch in loader:
        for k, index in enumerate(loader.last_batch.indices):
            text, meta = want[int(index)]
            assert batch["text"][k] == text and batch["caption"][k] == meta["caption"]
            assert batch["width"][k] == meta["width"] and batch["nsfw"][k] == meta["nsfw"]
            assert batch["score"][k] == numpy.float32(meta["score"])
            assert json.loads(batch["tags"][k]) == meta["tags"]
            n += 1
    assert n == len(want) == len(loader.dataset)
    assert [k for _, k in values(f"{spec}#a=json:width,b=json:score,c=json:caption")] == ["dense", "dense", "text"]


def test_a_label_of_json_goes_with_its_picture(daemon, samples, tmp_path):
    """Proves captions and labels by key beside pictures, as image-text pairs have them."""
    import batchd

    files = sorted(samples.rglob("*.jpg"))[:20]
    members = []
    for i, path in enumerate(files):
        members += [
            (f"{i:03}.jpg", path.read_bytes()),
            (f"{i:03}.json", b'{"class": %d, "text": "no. %d"}' % (i * 3, i)),
        ]
    put_tar(tmp_path / "p.tar", members)
    fields = ("image", "label", "text")
    loader = batchd.DataLoader(
        f"tar:{tmp_path}/p.tar#image=jpg,label=json:class,text=json:text",
        fields=fields,
        batch_size=5,
        transform="val224",
    )
    n = 0
    for images, labels, texts in loader:
        indices = [int(i) for i in loader.last_batch.indices]
        assert [int(x) for x in labels] == [i * 3 for i in indices] and list(texts) == [f"no. {i}" for i in indices]
        assert tuple(images.shape)[1:] == (3, 224, 224)
        n += len(indices)
    assert n == 20


def test_hostile_json_leaves_its_sample_out(tmp_path):
    """Proves deep nesting, huge numbers, bytes that are not UTF-8, doubled keys and zero bytes."""
    rows = [
        b'{"k": 1}',
        b"[" * 100000,
        b'{"k": ' + b"[" * 100000 + b"]" * 100000 + b"}",
        b'{"k": 99999999999999999999999}',
        b'{"k": "\xff"}',
        b'{"k": 1e999}',
        b'{"k": "a\\u0000b"}',
        b'{"k": 1, "k": 2}',
        b"",
        b'{"k": true}',
    ]
    put_tar(tmp_path / "h.tar", [(f"{i}.json", row) for i, row in enumerate(rows)])
    out = subprocess.run([TOOLS / "values", f"tar:{tmp_path}/h.tar#k=json:k"], stdout=subprocess.PIPE, text=True)
    assert out.returncode == 0
    (tmp_path / "a").mkdir()
    put_tar(tmp_path / "a" / "h.tar", [("0.json", rows[0]), ("1.json", rows[7]), ("2.json", rows[9])])
    same = subprocess.run([TOOLS / "values", f"tar:{tmp_path}/a/h.tar#k=json:k"], stdout=subprocess.PIPE, text=True)
    assert out.stdout == same.stdout


def test_a_picture_transform_of_texts_is_refused(daemon, tmp_path):
    """Proves that transform= for samples without pictures is an error that says so, and no shard loses its default."""
    import batchd

    put_tar(tmp_path / "a.tar", [("0.txt", b"a")])
    with pytest.raises(batchd.InvalidError, match="transform"):
        batchd.DataLoader(f"tar:{tmp_path}/a.tar#text=txt", transform="val224")
    with pytest.raises(batchd.Error, match="no sample"):
        batchd.DataLoader(f"tar:{tmp_path}/a.tar#text=json:caption")

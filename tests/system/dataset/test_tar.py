"""tar: data sets have the samples that the webdataset package makes of the same shards, in the same order."""

import io
import os
import pathlib
import random
import subprocess
import sys
import tarfile
import zipfile

import pytest

import batchd
from daemons import until

REPO = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("BATCHD_BUILD", REPO / "build"))
TOOL = BUILD / "tests" / "tools" / "dataset"


def add(tar, name, data, **attributes):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in attributes.items():
        setattr(info, key, value)
    tar.addfile(info, io.BytesIO(data))


def write(path, members, format=tarfile.PAX_FORMAT):
    with tarfile.open(path, "w", format=format) as tar:
        for name, data in members:
            add(tar, name, data)


def ours(spec, *more):
    done = subprocess.run([TOOL, spec, *map(str, more)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    return [(name.encode().decode("unicode_escape").encode("latin-1").decode(), int(label)) for name, label in lines]


def lowered(samples):
    """With extensions as webdataset has them; batchd's messages keep a member's own name."""
    return [(name[: name.rindex(".")] + name[name.rindex(".") :].lower(), label) for name, label in samples]


def refusal(spec):
    done = subprocess.run([TOOL, spec], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1, done.stdout
    return done.stderr


def expected(*shards, images=("jpg", "jpeg", "png", "webp")):
    """Of the samples that webdataset gives, those with an image and a label."""
    wds = pytest.importorskip("webdataset", reason="the webdataset package is not installed")
    samples = wds.WebDataset([str(s) for s in shards], shardshuffle=False, empty_check=False)
    found = []
    for sample in samples:
        image = next((e for e in images if e in sample), None)
        if image and "cls" in sample:
            shard = os.path.basename(sample["__url__"])
            found.append((f"{shard}: {sample['__key__']}.{image}", int(sample["cls"])))
    return found


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_samples_and_order_are_webdatasets(tmp_path, format):
    """Proves keys, extensions, order and labels for every kind of tar that Python writes: long names, names that are not
    ASCII, folders, several extensions, members that belong to no sample."""
    long = "a-long-folder/" * 6 + "b" * 60
    members = [
        ("000.jpg", b"x" * 700),
        ("000.cls", b"3"),
        ("sub/folder.d/001.cls", b" -4\n"),
        ("sub/folder.d/001.png", b""),
        ("001.seg.png", b"no image of its own"),
        ("001.JPG", b"y"),
        ("001.cls", b"+17"),
        ("README", b"no key"),
        ("__index__.json", b"{}"),
        ("002.txt", b"no image"),
        ("002.cls", b"1"),
        ("003.jpeg", b"z" * 512),
        ("003.png", b"z" * 513),
        ("003.cls", b"5"),
        (".hidden.jpg", b"h"),
        ("dir/.odd", b"h"),
        (long + ".jpg", b"q"),
        (long + ".cls", b"9223372036854775807"),
        ("000.jpg", b"the same key again, later"),
        ("000.cls", b"0"),
    ]
    if format != tarfile.USTAR_FORMAT:
        members += [("p/" + "ü" * 130 + ".jpg", b"u"), ("p/" + "ü" * 130 + ".cls", b"7")]
    write(tmp_path / "a.tar", members, format)
    write(tmp_path / "b.tar", [("000.cls", b"8"), ("000.jpg", b"in the next shard")], format)
    want = expected(tmp_path / "a.tar", tmp_path / "b.tar")
    assert len(want) == (7 if format == tarfile.USTAR_FORMAT else 8)
    for pattern in ("a.tar::{}/b.tar".format(tmp_path), "*.tar", "", "{a,b}.tar"):
        assert lowered(ours(f"tar:{tmp_path}/{pattern}")) == want


def test_braces_are_expanded_as_a_shell_does(tmp_path):
    """Proves numbers with and without zeros, steps, downwards, several braces; the oracle is bash."""
    for n in range(12):
        for width in (1, 3):
            for part in "ab":
                write(tmp_path / f"{part}-{n:0{width}}.tar", [("k.jpg", b""), ("k.cls", str(n).encode())])
    for pattern in ("{a,b}-{000..011}.tar", "a-{0..11..3}.tar", "b-{11..2}.tar", "a-{8,1,005}.tar", "{a,b}-1{0,1}.tar"):
        names = subprocess.run(["bash", "-c", f"echo {pattern}"], stdout=subprocess.PIPE, text=True).stdout.split()
        got = [name.split(": ")[0] for name, _ in ours(f"tar:{tmp_path}/{pattern}")]
        assert got == names


def test_the_log_names_shards_as_a_user_does(make_daemon, samples, tmp_path):
    """Not with the second slash by which the client marks the folder that it opened."""
    d = make_daemon("--log-level", "info")
    write(tmp_path / "a.tar", [("0.jpg", sorted(samples.glob("*/*"))[0].read_bytes()), ("0.cls", b"1")])
    with batchd.DataLoader(f"tar:{tmp_path}/a.tar", batch_size=1, transform="val224", arrays="numpy") as loader:
        assert len(loader) == 1
    until("the record is there", lambda: f", tar:{tmp_path}/a.tar" in d.output())


def test_links_and_folders_are_skipped(tmp_path):
    """Proves that members which are no regular files make no sample and do not disturb the others, as in webdataset."""
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        add(tar, "d", b"", type=tarfile.DIRTYPE)
        add(tar, "0.jpg", b"1234")
        add(tar, "0.cls", b"1")
        add(tar, "1.jpg", b"", type=tarfile.SYMTYPE, linkname="0.jpg")
        add(tar, "2.jpg", b"", type=tarfile.LNKTYPE, linkname="0.jpg")
        add(tar, "3.jpg", b"", type=tarfile.FIFOTYPE)
        add(tar, "4.jpg", b"abc")
        add(tar, "4.cls", b"2")
    assert ours(f"tar:{tmp_path}/a.tar") == expected(tmp_path / "a.tar") == [("a.tar: 0.jpg", 1), ("a.tar: 4.jpg", 2)]


def test_without_labels_samples_have_none(tmp_path):
    """Proves that shards without .cls are a data set of images alone."""
    write(tmp_path / "a.tar", [("x.jpg", b""), ("x.txt", b"a cat"), ("y.jpg", b"")])
    assert ours(f"tar:{tmp_path}/a.tar") == [("a.tar: x.jpg", -1), ("a.tar: y.jpg", -1)]


def test_sizes_beyond_octal_digits_are_read(tmp_path):
    """Proves base-256 and pax sizes with a sparse shard in which a member of 9 GiB comes first, and a sample behind it
    is found."""
    for format in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        path = tmp_path / "big.tar"
        big = tarfile.TarInfo("big.bin")
        big.size = 9 << 30
        with open(path, "wb") as f:
            f.write(big.tobuf(format))
            f.seek(big.size, os.SEEK_CUR)
            for name, data in (("0.jpg", b"x"), ("0.cls", b"4")):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                f.write(info.tobuf(format) + data.ljust(512, b"\0"))
            f.write(bytes(1024))
        assert ours(f"tar:{path}") == [("big.tar: 0.jpg", 4)]
        path.unlink()


def damaged(change):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        add(tar, "0.jpg", b"a" * 600)
        add(tar, "0.cls", b"1")
    return change(bytearray(buffer.getvalue()))


def with_size(block, field):
    block[124:136] = field
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block[:512])
    return block


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda b: b[: 512 + 300], "beyond the shard's end: cut short?"),
        (lambda b: b[: 512 + 1000], "beyond the shard's end: cut short?"),  # in what fills the block of 600 bytes
        (lambda b: b[: 2048 + 1], "beyond the shard's end: cut short?"),
        (lambda b: b[: 512 + 1024 + 100], "in the middle of a header"),
        (lambda b: with_size(b, b"\xff" * 12), "negative or no number"),
        (lambda b: with_size(b, b"\x80" + b"\x7f" * 11), "negative or no number"),
        (lambda b: with_size(b, b"\x80\0\0\0\x7f" + b"\xff" * 7), "beyond the shard's end"),
        (lambda b: with_size(b, b"99999999999\0"), "negative or no number"),
        (lambda b: b[:1536] + b"garbage!" * 64 + b[2048:], "no tar header: damaged?"),
        (lambda b: b"no archive at all" * 60, "not a tar archive?"),
        (lambda b: b"short", "not a tar archive"),
        (lambda b: b"", "an empty file"),
        (lambda b: b"\x1f\x8b" + b[2:], "compressed by gzip"),
    ],
)
def test_damaged_shards_are_refused_by_name(tmp_path, change, words):
    """Proves that a cut, forged or foreign shard is an error with its name and place; tarfile takes some of these for
    the archive's end."""
    (tmp_path / "bad.tar").write_bytes(bytes(damaged(change)))
    text = refusal(f"tar:{tmp_path}/bad.tar")
    assert f"{tmp_path}/bad.tar, byte" in text and words in text


def pax(records):
    """An extended header of raw records in front of a member."""
    info = tarfile.TarInfo("PaxHeader")
    info.type = b"x"
    info.size = len(records)
    data = tarfile.TarInfo("0.jpg")
    padding = bytes(-len(records) % 512)
    return info.tobuf(tarfile.USTAR_FORMAT) + records + padding + data.tobuf(tarfile.USTAR_FORMAT) + bytes(1024)


@pytest.mark.parametrize(
    "content, words",
    [
        (pax(b"12 path=a\0b\n"), "zero byte"),
        (pax(b"12 path=a\nb\n"), "control character"),
        (pax(b"99 path=abc\n"), "damaged pax header"),
        (pax(b"0 path=abc\n"), "damaged pax header"),
        (pax(b"99999999999999999999999 path=a\n"), "damaged pax header"),
        (pax(b"13 size=1x00\n"), "pax size that is no number"),
        (pax(b"22 GNU.sparse.major=1\n"), "sparse"),
        (pax(b"18 size=999999999\n"), "beyond the shard's end"),
        (pax(b"\0" * 512)[:1024] * 9 + bytes(1024), "more than 8 extended headers"),
        (pax(b" " * (1 << 20) + b" "), "extended header of more than 1 MiB"),
    ],
)
def test_hostile_extended_headers_are_refused(tmp_path, content, words):
    """Proves the limits on pax headers."""
    (tmp_path / "x.tar").write_bytes(content)
    assert words in refusal(f"tar:{tmp_path}/x.tar")


def test_a_member_that_comes_twice_in_a_sample_is_refused(tmp_path):
    """Proves that it is an error, as in webdataset, whose message says the same."""
    write(tmp_path / "a.tar", [("0.jpg", b""), ("0.cls", b"1"), ("0.JPG", b"")])
    assert "0.JPG comes twice in one sample" in refusal(f"tar:{tmp_path}/a.tar")
    with pytest.raises(Exception, match="duplicate file name"):
        expected(tmp_path / "a.tar")


def test_a_million_empty_members_cost_no_more_than_their_names(tmp_path):
    """Proves that keys without samples take no memory each, and that members of one key are limited."""
    with open(tmp_path / "many.tar", "wb") as f:
        for name in ("a", "b"):
            block = tarfile.TarInfo(name).tobuf(tarfile.USTAR_FORMAT)
            f.write(block * 100000)
        f.write(tarfile.TarInfo("k.jpg").tobuf(tarfile.USTAR_FORMAT) + bytes(1024))
    assert ours(f"tar:{tmp_path}/many.tar") == [("many.tar: k.jpg", -1)]
    write(tmp_path / "key.tar", [(f"k.{i}", b"") for i in range(300)])
    assert "more than 256 members of one key" in refusal(f"tar:{tmp_path}/key.tar")


def test_a_missing_shard_is_named(tmp_path):
    """Proves it for a range, a wildcard and a folder."""
    write(tmp_path / "a-0.tar", [("0.jpg", b"")])
    write(tmp_path / "a-2.tar", [("0.jpg", b"")])
    assert f"{tmp_path}/a-1.tar: No such file" in refusal(f"tar:{tmp_path}/a-{{0..2}}.tar")
    assert "no file matches b-*.tar" in refusal(f"tar:{tmp_path}/b-*.tar")
    (tmp_path / "empty").mkdir()
    assert "no file matches *.tar" in refusal(f"tar:{tmp_path}/empty")


@pytest.mark.parametrize(
    "pattern", ["{0..2", "0..2}.tar", "{a{b,c}}.tar", "{abc}.tar", "{0..9999999999}.tar", "{0..9999999}.tar"]
)
def test_bad_braces_are_refused(tmp_path, pattern):
    """Proves that a mistyped pattern, or one that names millions, is an error that shows it."""
    assert pattern in refusal(f"tar:{tmp_path}/{pattern}")


def photographs(samples, n, shards, tmp_path, seed=0):
    """Labelled photographs in shards; returns their bytes and labels in order."""
    files = sorted(p for p in samples.rglob("*.jpg"))
    rng = random.Random(seed)
    rows = [(files[rng.randrange(len(files))].read_bytes(), rng.randrange(1000)) for _ in range(n)]
    for s in range(shards):
        members = []
        for i in range(s * n // shards, (s + 1) * n // shards):
            members += [(f"{i:06}.cls", str(rows[i][1]).encode()), (f"{i:06}.jpg", rows[i][0])]
        write(tmp_path / f"train-{s:03}.tar", members)
    return rows


def test_pixels_and_labels_are_those_of_the_files(daemon, samples, tmp_path):
    """Proves batches byte for byte against a list of the same files, and labels against webdataset."""
    import batchd

    rows = photographs(samples, 50, 4, tmp_path)
    with open(tmp_path / "list.txt", "w") as f:
        for i, (data, label) in enumerate(rows):
            (tmp_path / f"{i}.jpg").write_bytes(data)
            f.write(f"{i}.jpg\t{label}\n")
    options = dict(batch_size=8, shuffle=True, seed=3, transform="train224", dtype="uint8")
    packed = batchd.DataLoader(f"tar:{tmp_path}/train-{{000..003}}.tar", job="a", **options)
    loose = batchd.DataLoader(f"files:{tmp_path}/list.txt", job="b", **options)
    for epoch in range(2):
        packed.set_epoch(epoch)
        loose.set_epoch(epoch)
        n = 0
        for (x, y), (u, v) in zip(packed, loose):
            assert (x == u).all() and (y == v).all()
            n += len(y)
        assert n == 50
    labels = [label for _, label in expected(*sorted(tmp_path.glob("*.tar")))]
    assert labels == [label for _, label in rows]


def epoch_of(spec, world_size, epoch, state=None, stop=None, batch_size=4):
    """Sample indices of one epoch, rank by rank, padding left out, and a state."""
    import batchd

    seen, after = [], None
    for rank in range(world_size):
        loader = batchd.DataLoader(
            spec,
            batch_size=batch_size,
            shuffle=True,
            seed=5,
            transform="val224",
            dtype="uint8",
            rank=rank,
            world_size=world_size,
            job=f"w{world_size}-{epoch}-{stop}-{bool(state)}",
        )
        if state:
            loader.load_state_dict(state)
        loader.set_epoch(epoch)
        for step, _ in enumerate(loader):
            last = loader.last_batch
            n = len(last.indices) - last.n_padding
            seen += [int(i) for i in last.indices[:n]]
            if stop is not None and step + 1 == stop:
                after = loader.state_dict()
                break
        loader.close()
    return seen, after


def test_every_sample_comes_once_on_any_number_of_ranks_and_after_a_resume(daemon, samples, tmp_path):
    """Proves exactly once per epoch on 1, 2, 3 and 8 ranks, and for an epoch that 3 ranks began and 2 end."""
    photographs(samples, 97, 5, tmp_path)
    spec = f"tar:{tmp_path}"
    for world_size in (1, 2, 3, 8):
        seen, _ = epoch_of(spec, world_size, epoch=1)
        assert sorted(seen) == list(range(97))
    first, state = epoch_of(spec, 3, epoch=2, stop=4)
    rest, _ = epoch_of(spec, 2, epoch=2, state=state)
    assert len(first) == 48
    assert sorted(first + rest) == list(range(97))


def values(spec):
    """Fields as the data set describes them, and the values of its samples."""
    done = subprocess.run([TOOL.with_name("values"), spec], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line.split(" ") for line in done.stdout.splitlines()]
    fields = {line[1]: line[2:] for line in lines if line[0] == "#"}
    rows = [(line[0], bytes.fromhex(line[1])) for line in lines if line[0] != "#"]
    n = len(fields) - 1
    return fields, [dict(rows[i : i + n]) for i in range(0, len(rows), n)]


def test_captions_numbers_and_bytes_are_webdatasets(tmp_path):
    """Proves text, JSON, whole numbers and other bytes of samples, the order of preference of extensions, that samples
    which lack a wanted field are left out, and the bounds from which batches get their room."""
    wds = pytest.importorskip("webdataset", reason="the webdataset package is not installed")
    rng = random.Random(4)
    members = []
    for i in range(60):
        members.append((f"{i:05}.jpg" if i % 3 else f"{i:05}.png", b"x" * i))
        if i % 7:
            members.append((f"{i:05}.txt", ("ä cat " * rng.randrange(40)).encode()))
        members.append((f"{i:05}.json", b'{"id": %d}' % i))
        members.append((f"{i:05}.id", b" %d\n" % -i))
        members.append((f"{i:05}.emb.bin", rng.randbytes(rng.randrange(9))))
    members.insert(0, ("bad.jpg", b""))
    members[1:1] = [("bad.txt", b"\xff not UTF-8"), ("bad.json", b"{}"), ("bad.id", b"1"), ("bad.emb.bin", b"")]
    write(tmp_path / "a.tar", members)
    want = []
    for sample in wds.WebDataset([str(tmp_path / "a.tar")], shardshuffle=False, empty_check=False):
        if "txt" in sample and sample["__key__"] != "bad":
            want.append(sample)
    fields, got = values(f"tar:{tmp_path}/a.tar#text=txt,meta=json,number=id,image=png;jpg,more=emb.bin")
    assert list(fields) == ["image", "text", "meta", "number", "more"]
    assert [fields[k][0] for k in fields] == ["dense", "text", "text", "dense", "bytes"]
    assert [g["text"] for g in got] == [w["txt"] for w in want]
    assert [g["meta"] for g in got] == [w["json"] for w in want]
    assert [int.from_bytes(g["number"], "little", signed=True) for g in got] == [int(w["id"]) for w in want]
    assert [g["more"] for g in got] == [w["emb.bin"] for w in want]
    lengths = sorted((len(w["txt"]) for w in want), reverse=True)
    assert int(fields["text"][1]) == lengths[0]
    assert sum(lengths[:4]) <= int(fields["text"][2]) <= sum(lengths[:4]) * 9 // 8


@pytest.mark.parametrize(
    "fields, words",
    [
        ("#=jpg", "a name or an extension that is empty"),
        ("#image=jpg,image=png", "twice"),
        ("#image=", "a name or an extension that is empty"),
        ("#image=jpg,x", "expected NAME=EXTENSION"),
        ("#image=jpg,text=srt", "every group of files lacks one of image (jpg), text (srt), or"),
        ("#text=txt,w=json:width", "lacks one of text (txt), w (json:width), or"),
        ("#image=gif", "lacks one of image (gif), or"),
        ("#image=jpg," + ",".join(f"f{i}=txt" for i in range(40)), "at most 31 fields"),
    ],
)
def test_bad_lists_of_fields_are_refused(tmp_path, fields, words):
    """Proves that a mistake in the list is an error that says what is expected."""
    write(tmp_path / "a.tar", [("0.jpg", b""), ("0.txt", b"a")])
    assert words in refusal(f"tar:{tmp_path}/a.tar{fields}")


def test_shards_without_pictures_want_a_list_of_fields(tmp_path):
    """Proves that the error says how to name what is there."""
    write(tmp_path / "a.tar", [("0.txt", b"a")])
    assert refusal(f"tar:{tmp_path}/a.tar").strip().endswith("name other fields after #, NAME=EXTENSION")


def captioned(samples, n, tmp_path):
    files = sorted(p for p in samples.rglob("*.jpg"))
    members = []
    for i in range(n):
        members += [(f"{i:04}.jpg", files[i % len(files)].read_bytes()), (f"{i:04}.txt", f"picture {i} ü".encode())]
        members += [(f"{i:04}.cls", str(i * 3).encode()), (f"{i:04}.bin", bytes(range(i % 5)))]
    write(tmp_path / "a.tar", members)


def test_batches_have_captions_beside_their_pictures(daemon, samples, tmp_path):
    """Proves that every row's image, text, label and bytes are those of one sample, as webdataset pairs them, in
    dictionaries and tuples."""
    import batchd

    wds = pytest.importorskip("webdataset", reason="the webdataset package is not installed")
    captioned(samples, 30, tmp_path)
    want = list(wds.WebDataset([str(tmp_path / "a.tar")], shardshuffle=False, empty_check=False))
    options = dict(batch_size=7, shuffle=True, seed=1, transform="val224", dtype="uint8")
    fields = {"picture": "png;jpg", "text": "txt", "label": "cls", "more": "bin"}
    loader = batchd.DataLoader(f"tar:{tmp_path}/a.tar", fields=fields, job="d", **options)
    plain = batchd.DataLoader(f"tar:{tmp_path}/a.tar", job="p", **options)
    n = 0
    for batch, (images, labels) in zip(loader, plain):
        rows = [want[int(i)] for i in loader.last_batch.indices]
        assert (batch["picture"] == images).all()
        assert batch["text"] == [row["txt"].decode() for row in rows]
        assert batch["label"].tolist() == labels.tolist() == [int(row["cls"]) for row in rows]
        assert [bytes(v) for v in batch["more"]] == [row["bin"] for row in rows]
        n += len(rows)
    assert n >= 30
    pairs = batchd.DataLoader(f"tar:{tmp_path}/a.tar", fields=("image", "text"), job="t", **options)
    plain.set_epoch(0)
    for (images, texts), (same, _) in zip(pairs, plain):
        assert (images == same).all() and texts == [want[int(i)]["txt"].decode() for i in pairs.last_batch.indices]


def test_the_example_of_pairs_runs(daemon, samples, tmp_path):
    """Proves that client/examples/pairs_tar.py trains on shards with captions."""
    pytest.importorskip("torch")
    captioned(samples, 64, tmp_path)
    out = subprocess.run(
        [sys.executable, REPO / "client" / "examples" / "pairs_tar.py", f"{tmp_path}/a.tar"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert out.returncode == 0 and "epoch 1: loss" in out.stdout, out.stdout


@pytest.mark.parametrize("name", ["tar:{}/*.tar", "tar:{}/{{0,1}}.tar", "tar:{}/0.tar::{}/1.tar", "tar:{}"])
def test_messages_name_shards_as_their_user_does(make_daemon, tmp_path, name):
    """Proves that errors and the log have no mark of the client's behind the folder whose descriptor it sends."""
    write(tmp_path / "0.tar", [("a.txt", b"a"), ("a.cls", b"0"), ("b.txt", b"b")])
    write(tmp_path / "1.tar", [("c.txt", b"c"), ("c.cls", b"1")])
    dataset = name.format(tmp_path, tmp_path)
    written = dataset.removeprefix("tar:") + ("/*.tar" if dataset.endswith(str(tmp_path)) else "")
    daemon = make_daemon(config="bad_data: 50%\n")
    with pytest.warns(RuntimeWarning, match="1 of 3 samples are left out; the first, 0.tar: b, has no label"):
        batchd.DataLoader(f"{dataset}#text=txt,label=cls", batch_size=2).close()
    assert f"{written}: 1 of 3 samples are left out; the first" in daemon.output()
    with pytest.raises(batchd.Error) as refused:
        batchd.DataLoader(f"{dataset}#text=nothing", batch_size=2)
    assert f"{written[:120]}: no sample: every group" in str(refused.value)


def test_messages_name_arrow_files_as_their_user_does(daemon, tmp_path):
    arrow = pytest.importorskip("pyarrow")
    schema = arrow.schema([("x", arrow.int64())])
    with arrow.ipc.new_stream(tmp_path / "0.arrow", schema):
        pass
    with pytest.raises(batchd.Error) as refused:
        batchd.DataLoader(f"arrow:{tmp_path}/*.arrow#x=x", batch_size=2)
    assert f"arrow:{tmp_path}/*.arrow: the files have no rows" in str(refused.value)


@pytest.mark.parametrize(
    "name, words",
    [
        ("pipe:cat a.tar", "no command is run"),
        ("https://example.org/a.tar", "nothing is read from a network"),
        ("$DATA/a.tar", "variables are not expanded here"),
        ("{}/small.tgz", "compressed by gzip"),
        ("{}/small.tar.bz2", "compressed by bzip2.*bunzip2"),
        ("{}/small.tar.xz", "compressed by xz.*unxz"),
        ("{}/small.zip", "a zip archive: name it zip:"),
    ],
)
def test_what_webdataset_reads_besides_is_refused_by_what_it_is(daemon, tmp_path, name, words):
    """Proves it for pipes, addresses, variables, and an archive that is shorter than a header of tar."""
    for ending, mode in (("tgz", "gz"), ("tar.bz2", "bz2"), ("tar.xz", "xz")):
        with tarfile.open(tmp_path / f"small.{ending}", f"w:{mode}") as tar:
            add(tar, "0.jpg", b"1")
    with zipfile.ZipFile(tmp_path / "small.zip", "w") as archive:
        archive.writestr("0.jpg", b"1")
    assert (tmp_path / "small.tgz").stat().st_size < 512
    with pytest.raises(batchd.Error, match=words):
        batchd.DataLoader("tar:" + name.format(tmp_path), 1)
    if name.startswith("$"):
        for other in ("imagefolder:$DATA/a", "npy:/nothing/$DATA/x.npy", "tokens:$DATA/t.bin,length=4"):
            with pytest.raises(batchd.NotFoundError, match=words):
                batchd.DataLoader(other, 1)

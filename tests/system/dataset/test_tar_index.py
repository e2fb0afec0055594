"""Indexes of tar shards: those of batchctl, of NVIDIA DALI's wds2idx and of the wids package name the samples that the
shards' headers name; one that does not fit is found out, and named."""

import argparse
import importlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile

import pytest

BUILD = pathlib.Path(os.environ.get("BATCHD_BUILD", pathlib.Path(__file__).resolve().parents[3] / "build"))


def pack(path, members, format=tarfile.GNU_FORMAT):
    """members: [(name, bytes)]; None as bytes: a folder."""
    with tarfile.open(path, "w", format=format) as archive:
        for name, value in members:
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE if value is None else tarfile.REGTYPE
            info.size = len(value or b"")
            archive.addfile(info, io.BytesIO(value or b""))
    return path


def some(n, first=0, folder=""):
    """Members of n samples, of unlike sizes."""
    return [
        (f"{folder}{i:05}.{ext}", value)
        for i in range(first, first + n)
        for ext, value in (("png", b"p" * (i * 37 % 1500)), ("cls", b"%d" % i), ("txt", f"text {i}".encode()))
    ]


FIELDS = "#image=png,label=cls,text=txt"


def listed(spec):
    """(name, label) of each sample, and the log."""
    done = subprocess.run(
        [BUILD / "tests" / "tools" / "dataset", spec],
        capture_output=True,
        text=True,
        env=os.environ | {"LOG_LEVEL": "info"},
    )
    assert done.returncode == 0, done.stderr
    return [tuple(line.split("\t")) for line in done.stdout.splitlines()], done.stderr


def values(spec):
    done = subprocess.run([BUILD / "tests" / "tools" / "values", spec], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def used(log):
    """Of how many shards the index was used."""
    return int(log.split("indexes beside ")[1].split(",")[0])


def wds2idx(shard):
    """DALI's own program."""
    module = pytest.importorskip("wds2idx", reason="nvidia-dali is not installed")
    index = shard.with_suffix(".idx")
    done = subprocess.run([sys.executable, module.__file__, shard, index], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return index


SHARDS = {
    "gnu": (some(200), tarfile.GNU_FORMAT),
    "ustar in a folder": (
        [("a", None), *some(70, folder="a/"), ("b", None), *some(5, folder="b/")],
        tarfile.USTAR_FORMAT,
    ),
    "long names": (some(80, folder="x" * 120 + "/"), tarfile.GNU_FORMAT),
    "pax": (some(80, folder="y" * 120 + "/"), tarfile.PAX_FORMAT),
    "WebDataset's own": ([("__meta__", b"m"), *some(3)], tarfile.GNU_FORMAT),
    "one": (some(1), tarfile.GNU_FORMAT),
}


@pytest.mark.parametrize("shard", SHARDS)
def test_batchctls_index_gives_the_samples_of_the_headers(batchctl, tmp_path, shard):
    """Names, labels, texts and places (they are part of the data set's values) are the same with and without it."""
    members, form = SHARDS[shard]
    spec = f"tar:{pack(tmp_path / 't-0.tar', members, form)}{FIELDS}"
    (samples, log), all_values = listed(spec), values(spec)
    assert used(log) == 0
    done = batchctl("index", f"tar:{tmp_path}/t-0.tar")
    assert done.returncode == 0 and "1 indexes written" in done.stdout, done.stderr
    again, log = listed(spec)
    assert used(log) == 1, log
    assert again == samples and values(spec) == all_values


@pytest.mark.parametrize("shard", ["gnu", "ustar in a folder", "pax", "one"])
def test_dalis_index_is_read_and_is_ours(batchctl, tmp_path, shard):
    """wds2idx writes the index: the samples are the same, and batchctl writes the same bytes."""
    members, form = SHARDS[shard]
    path = pack(tmp_path / "t-0.tar", members, form)
    samples, _ = listed(f"tar:{path}{FIELDS}")
    theirs = wds2idx(path).read_bytes()
    again, log = listed(f"tar:{path}{FIELDS}")
    assert used(log) == 1 and again == samples, log
    assert batchctl("index", f"tar:{path}", "--force").returncode == 0
    assert path.with_suffix(".idx").read_bytes() == theirs


@pytest.mark.parametrize("shard", ["long names"])
def test_dalis_wrong_offsets_are_found_out(tmp_path, shard):
    """wds2idx takes the headers of long names for data: its offsets of the members before them are wrong."""
    members, form = SHARDS[shard]
    path = pack(tmp_path / "t-0.tar", members, form)
    samples, _ = listed(f"tar:{path}{FIELDS}")
    wds2idx(path)
    again, log = listed(f"tar:{path}{FIELDS}")
    assert again == samples and used(log) == 0 and "index-not-used" in log


def edited(text, line, word, value):
    lines = [text_line.split(" ") for text_line in text.splitlines()]
    lines[line][word] = str(value)
    return "".join(" ".join(words) + "\n" for words in lines)


MISFITS = {
    "an offset within the member before": (lambda t: edited(t, 3, 1, 512), "line 4"),
    "an offset one block on": (lambda t: edited(t, 3, 1, int(t.splitlines()[3].split()[1]) + 512), "line 4"),
    "an offset beyond the end": (lambda t: edited(t, 3, 1, 1 << 40), "beyond the shard's end"),
    "a huge offset": (lambda t: edited(t, 3, 1, 10**17), "beyond the shard's end"),
    "a number of 20 digits": (lambda t: edited(t, 3, 1, 10**19 * 5), "damaged"),
    "an odd offset": (lambda t: edited(t, 3, 1, 7), "line 4"),
    "a negative offset": (lambda t: edited(t, 3, 1, -512), "damaged"),
    "a size beyond the end": (lambda t: edited(t, 3, 2, 1 << 40), "beyond the shard's end"),
    "another extension": (lambda t: edited(t, 3, 0, "jpg"), "do not go together"),
    "another name": (lambda t: edited(t, 1, 3, "00009.png"), "another member at this offset"),
    "an escape sequence": (lambda t: edited(edited(t, 3, 3, "a\x1b.png"), 3, 0, "png"), "do not go together"),
    "a line less": (lambda t: "v1.2 9\n" + "".join(t.splitlines(True)[1:-1]), "the shard has more members"),
    "fewer lines than promised": (lambda t: "".join(t.splitlines(True)[:-1]), "damaged"),
    "more lines than promised": (lambda t: t.replace("v1.2 10", "v1.2 9"), "damaged"),
    "cut in a line": (lambda t: t[:-9], "damaged"),
    "no names": (lambda t: t.replace("v1.2", "v1.1"), "v1.1 has no names"),
    "nothing": (lambda t: "", "expected v1.2"),
    "another format": (lambda t: "hello\n", "expected v1.2"),
    "no member": (lambda t: "v1.2 0\n", "no member"),
    "longer than the shard": (lambda t: t + "x" * (1 << 20), "longer than the shard"),
}


@pytest.mark.parametrize("change", MISFITS)
def test_an_index_that_does_not_fit_is_named_and_not_used(batchctl, tmp_path, change):
    """The samples stay right, the log names shard and line, and batchctl index --check finds it and mends it."""
    path = pack(tmp_path / "t-0.tar", some(10))
    samples, _ = listed(f"tar:{path}{FIELDS}")
    assert batchctl("index", f"tar:{path}").returncode == 0
    index = path.with_suffix(".idx")
    change, words = MISFITS[change]
    index.write_text(change(index.read_text()))
    again, log = listed(f"tar:{path}{FIELDS}")
    assert again == samples and used(log) == 0
    assert "index-not-used" in log and str(path) in log and words in log, log
    done = batchctl("index", f"tar:{path}", "--check")
    assert done.returncode == 1 and words in done.stderr, done.stderr
    assert batchctl("index", f"tar:{path}").returncode == 0
    assert used(listed(f"tar:{path}{FIELDS}")[1]) == 1


@pytest.mark.parametrize("name", ["v1.0/nodot", "v1.0/" + "a" * 170 + ".tar"], ids=["no dot", "long"])
def test_an_index_lies_beside_its_shard_whatever_the_names_are(batchctl, tmp_path, name):
    """Dots of folders are no endings, and names are not cut short, as those of messages are."""
    path = tmp_path / name
    path.parent.mkdir()
    pack(path, some(3))
    assert "1 indexes written" in batchctl("index", f"tar:{path}").stdout
    assert list(tmp_path.rglob("*.idx*")) == [path.with_suffix(".idx")]
    assert batchctl("index", f"tar:{path}", "--check").returncode == 0


def test_an_index_of_another_or_an_older_shard(batchctl, tmp_path):
    """A shard that was written again is read by its headers; so is one that got its neighbour's index."""
    path, other = pack(tmp_path / "t-0.tar", some(10)), pack(tmp_path / "t-1.tar", some(10, first=10))
    assert batchctl("index", f"tar:{tmp_path}/*.tar").returncode == 0
    assert used(listed(f"tar:{tmp_path}/*.tar{FIELDS}")[1]) == 2
    path.with_suffix(".idx").write_bytes(other.with_suffix(".idx").read_bytes())
    samples, log = listed(f"tar:{tmp_path}/*.tar{FIELDS}")
    assert used(log) == 1 and "t-0.tar: line 2" in log and len(samples) == 20
    assert batchctl("index", f"tar:{tmp_path}/*.tar").returncode == 0
    pack(path, [(name.replace("0000", "1111"), value) for name, value in some(10)])
    os.utime(path.with_suffix(".idx"), ns=(0, path.stat().st_mtime_ns - 1))
    samples, log = listed(f"tar:{tmp_path}/*.tar{FIELDS}")
    assert "it is older than the shard" in log and samples[0][0].endswith("11110.png")


def test_names_that_the_format_cannot_hold(batchctl, tmp_path):
    """A blank would shift every number behind it: nothing is written, and the shard is named."""
    path = pack(tmp_path / "t-0.tar", [("a b.png", b"p"), ("a b.cls", b"1")])
    done = batchctl("index", f"tar:{path}")
    assert done.returncode == 1 and "a b.png: a name with a blank" in done.stderr
    assert os.listdir(tmp_path) == ["t-0.tar"]


def test_json_and_wrong_operands(batchctl, tmp_path):
    pack(tmp_path / "t-0.tar", some(4))
    (tmp_path / "t-1.tar").write_bytes(b"no tar")
    done = batchctl("index", f"tar:{tmp_path}/*.tar", "--json", "--quiet")
    result = json.loads(done.stdout)
    assert done.returncode == 1 and (result["written"], result["failed"]) == (1, 1)
    assert result["shards"][0]["samples"] == 4 and "not a tar archive" in result["shards"][1]["why"]
    for operand, words in ((f"mds:{tmp_path}", "have an index in themselves"), ("npy:x", "expected tar:SHARDS")):
        done = batchctl("index", operand)
        assert done.returncode == 2 and words in done.stderr
    assert batchctl("index", f"tar:{tmp_path}/gone-*.tar").returncode == 4


def cut_mark(path):
    """Without the zeros at its end, as after a cut between two members."""
    with tarfile.open(path) as archive:
        end = max(m.offset_data + (m.size + 511) // 512 * 512 for m in archive)
    os.truncate(path, end)
    return path


def without_end(log):
    return [line for line in log.splitlines() if "no end mark" in line]


def test_a_shard_without_an_end_mark_is_named(batchctl, tmp_path):
    """Proves it for headers that are read, for an index beside the shard, and for batchctl verify."""
    pack(tmp_path / "t-0.tar", some(10))
    cut_mark(pack(tmp_path / "t-1.tar", some(10, first=10)))
    spec = f"tar:{tmp_path}/t-{{0..1}}.tar{FIELDS}"
    samples, log = listed(spec)
    assert len(samples) == 20 and len(without_end(log)) == 1
    assert f"{tmp_path}/t-1.tar has no end mark; it may have been cut" in log
    done = batchctl("verify", f"tar:{tmp_path}/t-{{0..1}}.tar#label=cls,text=txt")
    assert done.returncode == 0 and f"{tmp_path}/t-1.tar has no end mark" in done.stderr
    batchctl("index", f"tar:{tmp_path}/t-{{0..1}}.tar")
    samples, log = listed(spec)
    assert used(log) == 2 and len(without_end(log)) == 1


def test_many_shards_without_an_end_mark_are_counted(tmp_path):
    for k in range(8):
        cut_mark(pack(tmp_path / f"{k}.tar", some(1, first=k)))
    assert len(without_end(listed(f"tar:{tmp_path}{FIELDS}")[1])) == 8
    for k in range(8, 30):
        cut_mark(pack(tmp_path / f"{k}.tar", some(1, first=k)))
    lines = without_end(listed(f"tar:{tmp_path}{FIELDS}")[1])
    assert len(lines) == 9 and "22 more shards have no end mark" in lines[-1]


def wids_list(folder, names, **changes):
    shards = [
        {"url": name, "md5sum": "0" * 32, "nsamples": 10, "filesize": (folder / name).stat().st_size, **changes}
        for name in names
    ]
    path = folder / "index.json"
    path.write_text(json.dumps({"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": shards}))
    return path


def test_a_list_of_wids_names_the_shards(tmp_path, monkeypatch):
    """The samples, in order, are those that the wids package gives for its own list."""
    wids_index = pytest.importorskip(
        "wids.wids_index", reason="webdataset before 1.0, which has wids, is not installed"
    )
    wids = importlib.import_module("wids")

    for k in range(3):
        pack(tmp_path / f"t-{k}.tar", some(10, first=10 * k))
    monkeypatch.chdir(tmp_path)
    wids_index.main_create(
        argparse.Namespace(files=["t-{0..2}.tar"], output="index.json", name="t", base=None, info=None)
    )
    theirs = wids.ShardListDataset(
        str(tmp_path / "index.json"), cache_dir=str(tmp_path / "cache"), keep=True, transformations=[]
    )
    samples, _ = listed(f"tar:{tmp_path}/index.json{FIELDS}")
    assert [int(label) for _, label in samples] == [int(theirs[i][".cls"].read()) for i in range(len(theirs))]


def test_lists_of_shards(batchctl, tmp_path):
    """A list names shards below its folder, in its own order; batchctl index takes it, too."""
    for k in range(2):
        pack(tmp_path / f"t-{k}.tar", some(10, first=10 * k))
    index = wids_list(tmp_path, ["t-1.tar", "t-0.tar"])
    samples, _ = listed(f"tar:{index}{FIELDS}")
    assert [int(label) for _, label in samples] == [*range(10, 20), *range(10)]
    assert "2 indexes written" in batchctl("index", f"tar:{index}").stdout
    for url in (f"{tmp_path}/t-0.tar", f"file:{tmp_path}/t-0.tar", "./t-0.tar"):
        wids_list(tmp_path, ["t-0.tar"], url=url)
        assert len(listed(f"tar:{index}{FIELDS}")[0]) == 10


@pytest.mark.parametrize(
    "change, words",
    [
        ({"url": "https://host/t-0.tar"}, "not below the list's folder"),
        ({"url": "pipe:cat t-0.tar"}, "not below the list's folder"),
        ({"url": "../t-0.tar"}, "not below the list's folder"),
        ({"url": "a/../../t-0.tar"}, "not below the list's folder"),
        ({"url": "/etc/passwd"}, "not below the list's folder"),
        ({"url": ""}, "not below the list's folder"),
        ({"url": 3}, "a shard without a url"),
        ({"filesize": 3}, "and its list says 3"),
        ({"filesize": -3}, "is no number of bytes"),
        ({"url": "gone.tar"}, "gone.tar"),
    ],
)
def test_bad_lists_are_refused_by_name(tmp_path, change, words):
    pack(tmp_path / "t-0.tar", some(10))
    index = wids_list(tmp_path, ["t-0.tar"], **change)
    done = subprocess.run(
        [BUILD / "tests" / "tools" / "dataset", f"tar:{index}{FIELDS}"], capture_output=True, text=True
    )
    assert done.returncode == 1 and words in done.stderr, done.stderr
    for text, words in (
        ("{", "line 1"),
        ("[]", "expected a list of shards"),
        ('{"shardlist": []}', "it has no shards"),
        ("[" * 5000, "line 1"),
    ):
        index.write_text(text)
        done = subprocess.run(
            [BUILD / "tests" / "tools" / "dataset", f"tar:{index}{FIELDS}"], capture_output=True, text=True
        )
        assert done.returncode == 1 and words in done.stderr, done.stderr

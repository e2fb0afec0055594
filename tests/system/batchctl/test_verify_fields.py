"""batchctl verify of shards with several fields: damaged pictures are named, and groups of files that are no samples
because a field is missing or wrong are counted."""

import io
import json
import re
import shlex
import subprocess
import tarfile

import numpy
import pytest

image = pytest.importorskip("PIL.Image")

N, BAD_PICTURE, BAD_TEXT, BAD_LABEL, OTHER_JSON, ALONE = 12, 7, 3, 9, 10, 11


def parts_of(i):
    png = io.BytesIO()
    image.fromarray(numpy.random.default_rng(i).integers(0, 256, (24, 24, 3), "uint8")).save(png, "PNG")
    parts = {
        "png": png.getvalue()[:60] if i == BAD_PICTURE else png.getvalue(),
        "txt": b"\xff\xfe" if i == BAD_TEXT else b"a picture",
        "cls": b"cat" if i == BAD_LABEL else b"%d" % i,
        "json": b'{"b": 1}' if i == OTHER_JSON else b'{"a": 1}',
    }
    return {"png": parts["png"]} if i == ALONE else parts


@pytest.fixture
def shards(tmp_path):
    for k in range(2):
        with tarfile.open(tmp_path / f"{k}.tar", "w") as shard:
            for i in range(6 * k, 6 * k + 6):
                for ending, content in parts_of(i).items():
                    info = tarfile.TarInfo(f"{i:03}.{ending}")
                    info.size = len(content)
                    shard.addfile(info, io.BytesIO(content))
    return f"tar:{tmp_path}/{{0..1}}.tar"


def left_out(shards, wanted):
    """How many of webdataset's samples lack one of the wanted fields, as Python reads them."""
    wds = pytest.importorskip("webdataset", reason="the webdataset package is not installed")
    readers = {
        "png": lambda b: b,
        "txt": lambda b: b.decode(),
        "cls": int,
        "json": lambda b: json.loads(b)["a"],
    }
    n = 0
    for sample in wds.WebDataset(shards.removeprefix("tar:"), shardshuffle=False, empty_check=False):
        try:
            for ending in wanted:
                readers[ending](sample[ending])
        except (KeyError, ValueError):
            n += 1
    return n


@pytest.mark.parametrize(
    "fields, wanted",
    [
        ("image=png,text=txt,label=cls,a=json:a", ("png", "txt", "cls", "json")),
        ("image=png,text=txt", ("png", "txt")),
        ("image=png", ("png",)),
        ("text=txt", ("txt",)),
    ],
)
def test_samples_and_those_that_are_none_are_counted(batchctl, shards, fields, wanted):
    """Proves the counts against webdataset's samples, also where the index is a kept one, and the bad picture's name."""
    n = left_out(shards, wanted)
    for _ in range(2):
        done = batchctl("verify", "--json", f"{shards}#{fields}")
        said = json.loads(done.stdout)
        assert said["n_left_out"] == n and said["samples"] == N - n
        bad = [b["name"] for b in said["bad"]]
        assert bad == (["1.tar: 007.png"] if "png" in wanted else []) and done.returncode == bool(bad or n)
    done = batchctl("verify", f"{shards}#{fields}")
    assert (f"{n} of {N} samples are left out; the first, " in done.stdout) == (n > 0)


def test_a_list_counts_those_of_its_parts(batchctl, shards, tmp_path):
    """Proves the sum over the parts of a blend."""
    one = f"{shards}#image=png,text=txt"
    done = batchctl("verify", "--json", f"blend:{one};;{one}")
    assert json.loads(done.stdout)["n_left_out"] == 2 * left_out(shards, ("png", "txt")) > 0


@pytest.mark.parametrize("budget, kind", [("1%", Exception), ("100%", RuntimeWarning)])
def test_the_advised_command_runs_in_a_shell(make_daemon, build, shards, budget, kind):
    """Proves that what an error and a warning advise is the data set as the user has named it, and finds the picture."""
    batchd = pytest.importorskip("batchd")
    make_daemon(config=f"bad_data: {budget}\n")
    dataset = f"{shards}#image=png"
    with pytest.warns(kind) if kind is RuntimeWarning else pytest.raises(batchd.BadDataError) as said:
        with batchd.DataLoader(dataset, 2, transform="val224") as loader:
            for _ in loader:
                pass
    text = "".join(str(w.message) for w in said) if kind is RuntimeWarning else str(said.value)
    command = re.search("`(.*?)`", text)[1]
    assert shlex.split(command) == ["batchctl", "verify", dataset]
    done = subprocess.run(["bash", "-c", f"{build}/{command}"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "1.tar: 007.png" in done.stdout, done.stderr


def test_no_command_is_advised_that_finds_nothing(make_daemon, tmp_path):
    """Proves it for a picture that is sound and needs more memory than there is."""
    batchd = pytest.importorskip("batchd")
    (tmp_path / "a").mkdir()
    image.new("RGB", (6000, 5000)).save(tmp_path / "a" / "large.png")
    make_daemon(config="memory: 64MiB\n")
    turned = [["RandomRotation", 10], ["CenterCrop", 8]]  # of the whole picture
    with pytest.raises(batchd.BadDataError, match="large.png: needs at least") as said:
        with batchd.DataLoader(f"imagefolder:{tmp_path}", 1, transform=turned, dtype="uint8") as loader:
            next(iter(loader))
    assert "batchctl verify" not in str(said.value)


def test_no_command_is_advised_for_data_in_memory(daemon):
    """Proves it for a damaged picture of a table that a trainer has handed over."""
    batchd = pytest.importorskip("batchd")
    datasets = pytest.importorskip("datasets", reason="the datasets package is not installed")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    rows = [{"image": {"bytes": parts_of(BAD_PICTURE)["png"], "path": None}, "label": 0}]
    data = datasets.Dataset.from_list(rows, features=features)
    with pytest.raises(batchd.BadDataError, match="cannot be decoded") as said:
        with batchd.DataLoader(data, 1, transform="val224") as loader:
            next(iter(loader))
    assert "batchctl verify" not in str(said.value)


@pytest.mark.parametrize(
    "dataset, code, words",
    [
        (
            "nothing-of-this-name",
            4,
            "name a directory of class folders, or imagefolder:DIR, files:LIST, tar:SHARDS, mds:SHARDS",
        ),
        ("random:length=5,shape=3", 2, "has no files that could be bad"),
        ("tokens:t.bin,length=4,windows=random,samples=5", 2, "draws its windows at random; leave windows=random out"),
        ("serve:speech", 2, "is made by a producer and has no files to read"),
    ],
)
def test_what_cannot_be_verified_is_told_why(batchctl, dataset, code, words):
    """Random windows have an end where samples= says it, and thirteen kinds have files."""
    done = batchctl("verify", dataset)
    assert done.returncode == code and words in done.stderr

"""A trainer in C finds every field of the daemon's batches by its name: client/examples/fields.c against the packages
whose data it reads."""

import io
import shutil
import subprocess
import tarfile

import numpy
import pytest

from daemons import BUILD, REPO

image = pytest.importorskip("PIL.Image")

N = 11
CROP = '[["CenterCrop", 24], "ToTensor"]'


def rows_of(*arguments):
    """[{field: text or mean}] in the order of indices, as the program prints them."""
    program = BUILD / "client" / "examples" / "fields"
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert [int(line[0]) for line in lines] == list(range(len(lines)))
    return [dict(part.split("=", 1) for part in line[1:]) for line in lines]


def same(found, expected):
    """Texts are equal; means are equal to the four digits that are printed."""
    assert len(found) == len(expected) > 0
    for got, wanted in zip(found, expected):
        assert got.keys() == wanted.keys()
        for name, value in wanted.items():
            assert got[name] == value if isinstance(value, str) else abs(float(got[name]) - value) < 1e-4, name


def png(i):
    held = io.BytesIO()
    pixels = numpy.random.default_rng(i).integers(0, 256, (24, 24, 3), "uint8")
    image.fromarray(pixels).save(held, "PNG")
    return held.getvalue()


def texts():
    return ["né" * (i % 5) + f" {i}" * (i % 2) for i in range(N)]


def test_shards_of_pictures_captions_and_labels(daemon, tmp_path):
    """Proves image, text, label and raw bytes of each sample, empty texts among them, against webdataset and Pillow."""
    wds = pytest.importorskip("webdataset", reason="the webdataset package is not installed")
    with tarfile.open(tmp_path / "a.tar", "w") as shard:
        for i, text in enumerate(texts()):
            parts = ("png", png(i)), ("txt", text.encode()), ("cls", b"%d" % (i * 3)), ("bin", bytes(range(i + 1)))
            for ending, content in parts:
                info = tarfile.TarInfo(f"{i:03}.{ending}")
                info.size = len(content)
                shard.addfile(info, io.BytesIO(content))
    found = rows_of(f"tar:{tmp_path}/a.tar#image=png,text=txt,label=cls,raw=bin", CROP)
    samples = wds.WebDataset(str(tmp_path / "a.tar"), shardshuffle=False, empty_check=False)
    expected = [
        {
            "image": float((numpy.asarray(image.open(io.BytesIO(s["png"]))) / 255).mean()),
            "text": s["txt"].decode(),
            "label": int(s["cls"]),
            "raw": float(numpy.frombuffer(s["bin"], "uint8").mean()),
        }
        for s in samples
    ]
    same(found, expected)


def test_named_arrays(daemon, tmp_path):
    """Proves three arrays of an archive against numpy."""
    arrays = {
        "x": numpy.random.default_rng(0).random((N, 2, 3), "float32"),
        "mask": numpy.random.default_rng(1).integers(0, 9, (N, 4), "uint8"),
        "target": numpy.arange(N),
    }
    numpy.savez(tmp_path / "a.npz", **arrays)
    same(rows_of(f"npz:{tmp_path}/a.npz"), [{k: float(v[i].mean()) for k, v in arrays.items()} for i in range(N)])


def test_windows_of_tokens(daemon, tmp_path):
    """Proves x and y of each window against numpy."""
    tokens = numpy.random.default_rng(0).integers(0, 50257, 100).astype("uint16")
    tokens.tofile(tmp_path / "t.bin")
    found = rows_of(f"tokens:{tmp_path}/t.bin,length=8")
    assert len(found) == 12
    for k, row in enumerate(found):
        means = [float(tokens[8 * k + shift : 8 * k + shift + 8].mean()) for shift in (0, 1)]
        assert [float(value) for value in row.values()] == pytest.approx(means, abs=1e-3)


def test_a_huggingface_data_set(daemon, tmp_path):
    """Proves texts, numbers and lists of different length against the package."""
    datasets = pytest.importorskip("datasets", reason="the datasets package is not installed")
    columns = {"text": texts(), "n": list(range(N)), "ids": [list(range(i % 4 + 1)) for i in range(N)]}
    datasets.Dataset.from_dict(columns).save_to_disk(str(tmp_path / "saved"))
    data = datasets.load_from_disk(str(tmp_path / "saved"))
    found = rows_of(f"arrow:{tmp_path}/saved#text=text,n=n,ids=ids")
    same(found, [{"text": r["text"], "n": r["n"], "ids": float(numpy.mean(r["ids"]))} for r in data])


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64", "float64"])
def test_the_smallest_trainer_takes_what_it_reads(daemon, tmp_path, dtype):
    """client/examples/train.c prints numpy's means of float32, and reads no other numbers as if they were that."""
    x = numpy.arange(24).reshape(6, 4).astype(dtype)
    numpy.save(tmp_path / "x.npy", x)
    program = BUILD / "client" / "examples" / "train"
    done = subprocess.run([program, f"npy:{tmp_path}/x.npy"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if dtype == "float32":
        assert done.returncode == 0 and done.stdout.splitlines() == [
            f"epoch {epoch} batch 0: 6 rows, mean {x.mean():.4f}" for epoch in (0, 1)
        ]
    else:
        assert done.returncode == 1 and not done.stdout and "float32" in done.stderr


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", ["train.c", "fields.c"])
def test_the_examples_are_c_plus_plus_too(name):
    flags = ["-x", "c++", "-std=c++20", "-Wall", "-Werror", "-fsyntax-only", f"-I{REPO / 'client'}"]
    subprocess.run(["c++", *flags, REPO / "client" / "examples" / name], check=True)

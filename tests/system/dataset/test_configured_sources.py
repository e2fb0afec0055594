"""Every kind of source may be named in the daemon's configuration and on its command line, and gives there what a client
gets who names the files itself; batchctl reads the same kinds."""

import io
import re
import struct
import subprocess
import tarfile
import zipfile

import numpy
import pytest
from PIL import Image

torch = pytest.importorskip("torch")

import batchd  # noqa: E402 (torch may be missing)
from batchd import _check  # noqa: E402
from daemons import BUILD, REPO  # noqa: E402
from test_mds import shard  # noqa: E402

PLAIN = [["CenterCrop", 24], "ToTensor"]


def png(i):
    held = io.BytesIO()
    pixels = numpy.random.default_rng(i).integers(0, 256, (24, 24, 3)).astype("uint8")
    Image.fromarray(pixels).save(held, "png")
    return held.getvalue()


def tar(path, first):
    with tarfile.open(path, "w") as archive:
        for i in range(first, first + 4):
            for name, value in ((f"{i:04}.png", png(i)), (f"{i:04}.cls", str(i).encode())):
                info = tarfile.TarInfo(name)
                info.size = len(value)
                archive.addfile(info, io.BytesIO(value))


def megatron(prefix, n):
    """A pair as Megatron's IndexedDatasetBuilder writes it: one document of n uint16 tokens."""
    numpy.arange(n, dtype="uint16").tofile(f"{prefix}.bin")
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 1, 2)
    prefix.with_suffix(".idx").write_bytes(head + struct.pack("<iqqq", n, 0, 0, 1))


@pytest.fixture
def files(tmp_path):
    rng = numpy.random.default_rng(0)
    for name in ("a", "b"):
        (tmp_path / "folder" / name).mkdir(parents=True)
        (tmp_path / "folder" / name / "x.png").write_bytes(png(ord(name)))
    (tmp_path / "list.txt").write_text("folder/a/x.png\t3\nfolder/b/x.png\t4\n")
    tar(tmp_path / "t-0.tar", 0)
    tar(tmp_path / "t-1.tar", 4)
    shard(
        tmp_path / "m.mds",
        {"image": ("png", None), "label": ("int", 8)},
        [[png(i), struct.pack("<q", i)] for i in range(3)],
    )
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.writestr("a/x.png", png(1))
        archive.writestr("b/x.png", png(2))
    x, y = rng.integers(0, 9, (6, 3)).astype("float32"), numpy.arange(6)
    numpy.save(tmp_path / "x.npy", x)
    numpy.save(tmp_path / "y.npy", y)
    numpy.savez(tmp_path / "a.npz", data=x, label=y)
    images = rng.integers(0, 256, (5, 24, 24)).astype("uint8")
    (tmp_path / "i-idx3-ubyte").write_bytes(struct.pack(">IIII", 0x803, 5, 24, 24) + images.tobytes())
    (tmp_path / "l-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, 5) + bytes(range(5)))
    for k in range(2):
        rows = rng.integers(0, 10, (3, 3073)).astype("uint8")
        (tmp_path / f"data_batch_{k}.bin").write_bytes(rows.tobytes())
        rng.integers(0, 50000, 100 + k).astype("uint16").tofile(tmp_path / f"t_{k}.bin")
    megatron(tmp_path / "corpus", 60)
    return tmp_path


KINDS = {
    "imagefolder": "imagefolder:{}/folder",
    "files": "files:{}/list.txt",
    "tar": "tar:{}/t-{{0..1}}.tar",
    "two tars": "tar:{0}/t-0.tar::{0}/t-1.tar",
    "mds": "mds:{}/m.mds",
    "zip": "zip:{}/z.zip",
    "npy": "npy:{0}/x.npy,{0}/y.npy",
    "named npy": "npy:a={0}/x.npy,b={0}/y.npy",
    "npz": "npz:{}/a.npz",
    "idx": "idx:{0}/i-idx3-ubyte,{0}/l-idx1-ubyte",
    "cifar": "cifar:{}/data_batch_*.bin",
    "tokens": "tokens:{}/t_*.bin,length=8",
    "megatron": "tokens:{}/corpus.bin,length=8",
    "blend": "blend:{0}/x",  # replaced below
    "random": "random:length=7,shape=3x4",
}


def source(kind, folder):
    if kind == "blend":
        return f"blend:seed=3;;0.7*tar:{folder}/t-0.tar;;0.3*tar:{folder}/t-1.tar"
    return KINDS[kind].format(folder)


def rows(dataset):
    plain = ":" in dataset and dataset.split(":")[0] in ("imagefolder", "files", "tar", "mds", "zip", "blend")
    pictures = plain or dataset in ("imagefolder", "files", "tar", "two-tars", "mds", "zip", "blend")
    with batchd.DataLoader(dataset, 2, transform=PLAIN if pictures else None) as loader:
        return [[part.clone() for part in (batch.values() if isinstance(batch, dict) else batch)] for batch in loader]


def same(got, wanted):
    assert len(got) == len(wanted) > 0
    for a, b in zip(got, wanted):
        assert len(a) == len(b)
        assert all(torch.equal(x, y) for x, y in zip(a, b))


@pytest.mark.parametrize("way", ["configuration", "command line", "relative"])
def test_every_kind_gives_what_a_client_gets(make_daemon, files, monkeypatch, way):
    """The oracle is the same source sent by a client, which opens the files itself."""
    names = {kind: kind.replace(" ", "-") for kind in KINDS}
    monkeypatch.chdir(files)
    if way == "configuration":
        entries = "".join(f"  - name: {name}\n    source: '{source(kind, files)}'\n" for kind, name in names.items())
        make_daemon(config=f"datasets:\n{entries}")
    else:
        of = {
            kind: source(kind, files) if way == "command line" else source(kind, ".").replace("./", "")
            for kind in KINDS
        }
        make_daemon(*(part for kind, name in names.items() for part in ("--dataset", f"{name}={of[kind]}")))
    for kind, name in names.items():
        same(rows(name), rows(source(kind, files)))


def check(*arguments, **options):
    done = subprocess.run(
        [BUILD / "batchd", "--check-config", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        **options,
    )
    return done.returncode, done.stderr


def test_what_looks_like_a_path_becomes_absolute(tmp_path):
    """images= of arrow: is a folder, options of tokens: are none; the last look for files says which texts are paths."""
    for given, missing in {
        "arrow:images=pictures,saved/*.arrow": ["saved/", "pictures"],
        "arrow:images=/gone,x.arrow": ["x.arrow", "/gone"],
        "tokens:a.bin,length=8,b.bin": ["a.bin", "b.bin"],
        "cifar:version=100,c.bin": ["c.bin"],
        "npy:x=c.npy,y=/gone/d.npy": ["c.npy", "/gone/d.npy"],
        "zip:z.zip!/a/b": ["z.zip"],
        "tar:t-{0..3}.tar#image=png": [],
        "blend:2*npy:a.npy;;1*tokens:b.bin,length=3": ["a.npy", "b.bin"],
        "serve:a": [],
    }.items():
        code, text = check("--dataset", f"a={given}", cwd=tmp_path)
        assert code == 0, (given, text)
        found = re.findall(r"data set a: (/\S*): No such", text)
        assert found == [p if p.startswith("/") else f"{tmp_path}/{p}" for p in missing], given


@pytest.mark.parametrize(
    "source, words",
    [
        ("memory:x=3", "are arrays of a client; a configuration names files"),
        ("arrow:rows=12,/x.arrow", "has rows=, which only a client can send along"),
        ("serve:", "names nothing after the colon"),
        ("blend:serve:x", "'serve:x' cannot be a part of a blend"),
        ("blend:blend:npy:/x", "cannot be a part of a blend"),
        ("blend:2*npy:/x;;npy:/y", "either every data set has a weight, or none"),
        ("blend:npy:/x;;lmdb:/y", "'lmdb:/y' is not a source"),
        ("tokens:/a.bin,lenght=8", "no option 'lenght'; the options are: length stride samples"),
        ("blend:tokens:/a.bin,length=8;;tokens:/a.bin,len=8", "no option 'len'; the options are: length stride"),
    ],
)
def test_what_a_configuration_cannot_name_is_refused_by_name(tmp_path, source, words):
    """Each refusal names the source and says why."""
    file = tmp_path / "b.yaml"
    file.write_text(f"datasets:\n  - name: a\n    source: '{source}'\n")
    code, text = check("--config", file)
    assert code == 78 and words in text, text


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "random"])
def test_batchctl_verifies_every_kind(batchctl, files, kind):
    """verify reads all samples of each kind, with the daemon's own code and no daemon."""
    done = batchctl("verify", source(kind, files))
    assert done.returncode == 0 and re.search(r"all \d+ (files|rows) are good", done.stdout), done.stderr


def test_a_cut_file_is_named(batchctl, files):
    """The other side: a token file with an odd number of bytes and an empty set of matches."""
    assert "no file has such a name" in batchctl("verify", f"tokens:{files}/no-*.bin,length=8").stderr
    assert "is made by a producer" in batchctl("verify", "serve:x").stderr
    (files / "corpus.bin").write_bytes(b"12")
    assert "corpus" in batchctl("verify", f"tokens:{files}/corpus.bin,length=8").stderr


@pytest.mark.parametrize("pattern", ["p_{1..2}.bin", "p_{1,2}.bin", "p_{1,2}*", "p_1.bin,%s/p_[2].bin"])
def test_braces_name_files(batchctl, tmp_path, pattern):
    """Braces and wildcards of a configuration are those of a client."""
    for i in (1, 2):
        (tmp_path / f"p_{i}.bin").write_bytes(bytes(2 * 9))
    done = batchctl("verify", f"tokens:{tmp_path}/{pattern.replace('%s', str(tmp_path))},length=8")
    assert "all 2 rows are good" in done.stdout, done.stderr
    done = batchctl("verify", f"tokens:{tmp_path}/p_{{0..5000}}.bin,length=8")
    assert "a pattern of more than 4096 files" in done.stderr


def test_a_misspelt_option_is_named(batchctl, files):
    """An option that a kind has not is no name of a file, unless a file has this name."""
    assert "tokens: no option 'lenght'; the options are: length stride samples" in (
        batchctl("verify", f"tokens:{files}/corpus.bin,lenght=8").stderr
    )
    assert "cifar: no option 'Version'; the options are: version\n" in (
        batchctl("verify", f"cifar:{files}/data_batch_1.bin,Version=10").stderr
    )


def test_every_list_of_kinds_is_the_tables():
    """The documents and the Python package have each kind of proto/sources.h."""
    text = (REPO / "proto" / "sources.h").read_text()
    kinds = re.findall(r'X\([A-Z]+, "(\w+)",\s*"([^"]*)"', text)
    assert len(kinds) > 12
    assert [f"{name}:{rest}" for name, rest in kinds] == list(_check._KINDS)
    for path in (
        "client/batchd.h",
        "client/python/guide/data.md",
        "client/python/batchd/loader.py",
        "client/man/batchctl.1",
        "daemon/man/batchd.yaml.5",
        "proto/README.md",
    ):
        words = (REPO / path).read_text().replace(" : Ns", ":").replace(" ", "")
        lacking = [name for name, _ in kinds if f"{name}:" not in words]
        assert not lacking, f"{path} lacks {lacking}"

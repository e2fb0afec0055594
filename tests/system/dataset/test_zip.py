"""zip: data sets have the samples of the files that Python's zipfile and Info-ZIP pack: as ImageFolder lists the unpacked
folder, or grouped as webdataset groups a tar of the same files."""

import io
import os
import pathlib
import random
import shutil
import struct
import subprocess
import tarfile
import zipfile

import pytest

from test_imagefolder import expected as folder_of
from test_imagefolder import put, unescape

REPO = pathlib.Path(__file__).resolve().parents[3]
TOOL = pathlib.Path(os.environ.get("BATCHD_BUILD", REPO / "build")) / "tests" / "tools" / "dataset"


def run(*args):
    return subprocess.run([TOOL, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def listed(spec, *more):
    """Classes, and samples without the shard's name."""
    done = run(spec, *more)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    classes = [unescape(line[2:]) for line in lines if line.startswith("# ")]
    samples = [unescape(line).split("\t") for line in lines if not line.startswith("# ")]
    return classes, [(name.split(": ", 1)[1], int(label)) for name, label in samples]


def contents(spec):
    done = run("--read", spec)
    assert done.returncode == 0, done.stderr
    return [line if line[:1] == "!" else bytes.fromhex(line) for line in done.stdout.splitlines()]


def refusal(spec):
    done = run(spec)
    assert done.returncode == 1, done.stdout
    return done.stderr


def pack(path, members, method=zipfile.ZIP_DEFLATED, **options):
    with zipfile.ZipFile(path, "w", method, **options) as z:
        for name, data in members:
            z.writestr(name, data)


def class_folders(root):
    put(
        root,
        *("b/2.jpg", "b/10.jpg", "a/x/1.PNG", "a/0.jpeg", "a-b/1.jpg", "a/x-y/1.webp", "a/notes.txt", "ü/é.jpg"),
        *("loose.txt", "b/.hidden.jpg", "c d/1.bmp", "c d/e/f/g.tif"),
    )
    rng = random.Random(7)
    for path in root.rglob("*.*"):
        if path.is_file():
            path.write_bytes(rng.choice([rng.randbytes, lambda n: b"the same " * n])(rng.randrange(5000)))


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("top", ["", "train/", "data/train/"])
def test_classes_order_and_bytes_are_those_of_the_unpacked_folder(tmp_path, method, top):
    """Proves that an archive is the ImageFolder that it unpacks to, in whatever order it was packed, below any number of
    folders that all pictures share."""
    root = tmp_path / "root"
    class_folders(root)
    files = [p for p in root.rglob("*") if p.is_file()]
    random.Random(1).shuffle(files)
    with zipfile.ZipFile(tmp_path / "t.zip", "w", method) as z:
        z.writestr("README.md", b"outside")
        z.writestr("__MACOSX/._1.jpg", b"macOS's")
        for path in files:
            z.write(path, top + str(path.relative_to(root)))
    classes, want = folder_of(root)
    assert listed(f"zip:{tmp_path}/t.zip") == (classes, [(top + name, label) for name, label in want])
    assert contents(f"zip:{tmp_path}/t.zip") == [(root / name).read_bytes() for name, _ in want]


def test_what_info_zip_packs_is_read(tmp_path):
    """Proves it for the zip command: extra fields, folders' own members, deflated and stored by its own choice; and for
    a pipe, where sizes follow the data."""
    if not shutil.which("zip"):
        pytest.skip("the zip command is not installed")
    root = tmp_path / "root"
    class_folders(root)
    subprocess.run(["zip", "-qr", "../t.zip", "."], cwd=root, check=True)
    with open(tmp_path / "p.zip", "wb") as f:
        subprocess.run(["zip", "-qr", "-", "."], cwd=root, check=True, stdout=f)
    classes, want = folder_of(root)
    for name in ("t.zip", "p.zip"):
        assert listed(f"zip:{tmp_path}/{name}") == (classes, want)
        assert contents(f"zip:{tmp_path}/{name}") == [(root / name).read_bytes() for name, _ in want]


class Pipe(io.RawIOBase):
    """Cannot seek, so that zipfile writes data descriptors."""

    def __init__(self, path):
        self.file = open(path, "wb")

    def writable(self):
        return True

    def write(self, data):
        return self.file.write(data)

    def close(self):
        self.file.close()
        super().close()


def test_data_descriptors_zip64_and_bytes_before_the_archive_are_read(tmp_path):
    """Proves three forms of archives: sizes behind the data, 64-bit places and sizes, a program in front."""
    members = [(f"{c}/{i}.jpg", os.urandom(100 * i) + b"tail" * 50) for c in "ab" for i in range(4)]
    pipe = Pipe(tmp_path / "piped.zip")
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in members:
            z.writestr(name, data)
    pipe.close()
    with zipfile.ZipFile(tmp_path / "wide.zip", "w") as z:
        for name, data in members:
            with z.open(name, "w", force_zip64=True) as f:
                f.write(data)
    pack(tmp_path / "plain.zip", members)
    (tmp_path / "behind.zip").write_bytes(b"#!/bin/sh\n" * 99 + (tmp_path / "plain.zip").read_bytes())
    for name in ("piped.zip", "wide.zip", "behind.zip", "plain.zip"):
        assert zipfile.ZipFile(tmp_path / name).testzip() is None
        assert contents(f"zip:{tmp_path}/{name}") == [data for _, data in members]


def test_more_than_65535_members_are_read(tmp_path):
    """Proves an archive whose end is in zip64 form, which zipfile writes for so many members."""
    pack(tmp_path / "t.zip", [(f"{i % 3}/{i:06}.jpg", b"") for i in range(70000)], zipfile.ZIP_STORED)
    classes, samples = listed(f"zip:{tmp_path}/t.zip")
    assert classes == ["0", "1", "2"] and len(samples) == 70000
    assert samples[0] == ("0/000000.jpg", 0) and samples[-1] == ("2/069998.jpg", 2)


def test_a_folder_of_the_archive_is_named_behind_it(tmp_path):
    """Proves "ARCHIVE.zip!/FOLDER" for one of several data sets in an archive."""
    members = [(f"set/{part}/{c}/{i}.jpg", b"") for part in ("train", "val") for c in "xy" for i in range(2)]
    pack(tmp_path / "t.zip", members)
    assert listed(f"zip:{tmp_path}/t.zip!/set/val")[1] == [(n, n.split("/")[2] == "y") for n, _ in members[4:]]
    assert listed(f"zip:{tmp_path}/t.zip!/set/val/")[0] == ["x", "y"]
    assert listed(f"zip:{tmp_path}/t.zip")[0] == ["train", "val"]
    assert "no sample lies below set/test/" in refusal(f"zip:{tmp_path}/t.zip!/set/test")


def test_several_archives_share_their_classes(tmp_path):
    """Proves that classes are numbered over all archives, one of which has a single class."""
    pack(tmp_path / "t-0.zip", [("t/b/0.jpg", b""), ("t/b/1.jpg", b"")])
    pack(tmp_path / "t-1.zip", [("t/c/0.jpg", b""), ("t/a/1.jpg", b"")])
    classes, samples = listed(f"zip:{tmp_path}/t-{{0,1}}.zip")
    assert classes == ["a", "b", "c"]
    assert samples == [("t/b/0.jpg", 1), ("t/b/1.jpg", 1), ("t/a/1.jpg", 0), ("t/c/0.jpg", 2)]
    pack(tmp_path / "t-2.zip", [("t/0.jpg", b"")])
    assert "0.jpg lies in no class folder" in refusal(f"zip:{tmp_path}/t-*.zip")


def test_a_single_class_is_a_class(tmp_path):
    """Proves against ImageFolder of the unpacked folder that the only class folder gives the class, also below others, and
    that pictures without a folder, or in the folder that is named, have no label."""
    pack(tmp_path / "t.zip", [("data/cat/b.jpg", b""), ("data/cat/a.jpg", b""), ("data/cat/c.txt", b"")])
    with zipfile.ZipFile(tmp_path / "t.zip") as z:
        z.extractall(tmp_path / "root")
    classes, samples = folder_of(tmp_path / "root" / "data")
    assert listed(f"zip:{tmp_path}/t.zip")[0] == listed(f"zip:{tmp_path}/t.zip!/data")[0] == classes == ["cat"]
    assert [label for _, label in listed(f"zip:{tmp_path}/t.zip")[1]] == [label for _, label in samples] == [0, 0]
    pack(tmp_path / "u.zip", [("b.jpg", b""), ("a.jpg", b"")])
    for spec in (f"zip:{tmp_path}/u.zip", f"zip:{tmp_path}/t.zip!/data/cat"):
        classes, samples = listed(spec)
        assert classes == [] and [name[-5:] for name, _ in samples] == ["a.jpg", "b.jpg"]
        assert {label for _, label in samples} == {-1}  # none


def test_names_with_backslashes_are_those_that_unzip_writes(tmp_path):
    """Proves it for an archive of Windows, and that one of Unix keeps them, as unzip does."""
    for system in (0, 3):
        with zipfile.ZipFile(tmp_path / f"{system}.zip", "w") as z:
            for name in ("cat\\0.jpg", "cat\\1.jpg", "dog\\0.jpg"):
                info = zipfile.ZipInfo("x")
                info.filename, info.create_system = name, system
                z.writestr(info, b"")
    assert listed(f"zip:{tmp_path}/0.zip") == (["cat", "dog"], [("cat/0.jpg", 0), ("cat/1.jpg", 0), ("dog/0.jpg", 1)])
    assert listed(f"zip:{tmp_path}/3.zip")[0] == []
    if shutil.which("unzip"):
        subprocess.run(["unzip", "-q", tmp_path / "0.zip", "-d", tmp_path / "out"], stdout=-1, stderr=-1)
        assert folder_of(tmp_path / "out")[0] == ["cat", "dog"]


def test_bytes_behind_the_end_are_passed_over(tmp_path):
    """Proves it for zeros and a newline, as zipfile reads them, and for an archive with a comment."""
    for n, behind in enumerate((bytes(512), b"\n", b"x" * 70)):
        path = tmp_path / f"{n}.zip"
        pack(path, [("a/0.jpg", b"0"), ("b/1.jpg", b"1")])
        if n == 2:
            with zipfile.ZipFile(path, "a") as z:
                z.comment = b"a comment"
        with open(path, "ab") as f:
            f.write(behind)
        assert zipfile.ZipFile(path).namelist() == ["a/0.jpg", "b/1.jpg"]
        assert listed(f"zip:{path}") == (["a", "b"], [("a/0.jpg", 0), ("b/1.jpg", 1)])


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_with_fields_files_are_grouped_as_webdataset_groups_a_tar(tmp_path, method):
    """Proves keys, extensions, labels, texts and pictures against webdataset on a tar of the same files."""
    wds = pytest.importorskip("webdataset", reason="the webdataset package is not installed")
    members = []
    for i in range(40):
        members += [(f"d/{i:03}.jpg", os.urandom(i * 10)), (f"d/{i:03}.cls", b"%d" % (i % 7))]
        if i != 5:
            members += [(f"d/{i:03}.txt", f"a text of {i}, ".encode() * (i % 9 * 100))]
    pack(tmp_path / "t.zip", members, method)
    with tarfile.open(tmp_path / "t.tar", "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    rows = [s for s in wds.WebDataset(str(tmp_path / "t.tar"), shardshuffle=False, empty_check=False) if "txt" in s]
    spec = f"zip:{tmp_path}/t.zip#image=jpg;png,label=cls,text=txt"
    assert listed(spec) == ([], [(r["__key__"] + ".jpg", int(r["cls"])) for r in rows])
    assert contents(spec) == [r["jpg"] for r in rows]
    texts = run("--values", spec, "text").stdout.split("\n")[:-1]
    assert [bytes.fromhex(t) for t in texts] == [r["txt"] for r in rows]


def test_the_kept_index_is_used_until_the_archive_changes(tmp_path):
    """Proves that an opening with a kept index gives the same samples, and another archive of the name its own."""
    class_folders(tmp_path / "root")
    shutil.make_archive(str(tmp_path / "t"), "zip", tmp_path / "root")
    (tmp_path / "cache").mkdir()
    os.utime(tmp_path / "t.zip", (1, 1))
    import time

    time.sleep(2.1)
    first = listed(f"zip:{tmp_path}/t.zip", tmp_path / "cache")
    assert list((tmp_path / "cache").glob("packed-*.index"))
    assert listed(f"zip:{tmp_path}/t.zip", tmp_path / "cache") == first
    assert listed(f"zip:{tmp_path}/t.zip!/a", tmp_path / "cache")[0] != first[0]
    pack(tmp_path / "t.zip", [("p/1.jpg", b""), ("q/2.jpg", b"")])
    assert listed(f"zip:{tmp_path}/t.zip", tmp_path / "cache") == (["p", "q"], [("p/1.jpg", 0), ("q/2.jpg", 1)])


def test_batches_are_those_of_the_folder(daemon, samples, tmp_path):
    """Proves batches, labels and names of classes byte for byte against the same pictures in a folder, for stored and
    deflated members."""
    import batchd

    options = dict(batch_size=8, shuffle=True, seed=3, transform="train224", dtype="uint8")
    folder = batchd.DataLoader(f"imagefolder:{samples}", job="folder", **options)
    batches = [(x.copy() if hasattr(x, "copy") else x.clone(), list(map(int, y))) for x, y in folder]
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / f"{method}.zip", "w", method) as z:
            for path in samples.rglob("*"):
                z.write(path, path.relative_to(samples.parent))
        packed = batchd.DataLoader(f"zip:{tmp_path}/{method}.zip", job=f"zip{method}", **options)
        assert packed.dataset.classes == folder.dataset.classes
        n = 0
        for (x, y), (u, v) in zip(packed, batches):
            assert (x == u).all() and list(map(int, y)) == v
            n += 1
        assert n == len(batches)
    part = batchd.DataLoader(f"zip:{tmp_path}/0.zip!/{samples.name}", job="part", **options)
    assert part.dataset.classes == folder.dataset.classes


# ---- hostile archives ----


def one(name=b"c/0.jpg", data=b"x" * 600, method=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    pack(buffer, [(name.decode(), data), ("d/1.jpg", b"y" * 50)], method)
    return bytearray(buffer.getvalue())


def central(b, at, form, value, n=0):
    """Changes a number of the n-th record of the directory."""
    place = -1
    for _ in range(n + 1):
        place = b.index(b"PK\1\2", place + 1)
    struct.pack_into(form, b, place + at, value)
    return b


def local(b, at, form, value):
    struct.pack_into(form, b, at, value)
    return b


def end(b, at, form, value):
    struct.pack_into(form, b, b.rindex(b"PK\5\6") + at, value)
    return b


@pytest.mark.parametrize(
    "content, words",
    [
        (one()[:-5], "not a zip archive"),
        (b"", "not a zip archive"),
        (b"PK\5\6" + b"\0" * 18, "are empty"),
        (one()[:200], "not a zip archive"),
        (one()[100:], "its directory lies outside the archive"),
        (central(one(), 8, "<H", 1), "c/0.jpg is encrypted"),
        (local(one(), 6, "<H", 1), "the header of c/0.jpg is not what the directory says"),
        (central(one(), 10, "<H", 12), "compressed by bzip2 (method 12)"),
        (central(one(), 10, "<H", 93), "compressed by zstd (method 93)"),
        (central(one(), 10, "<H", 8), "the header of c/0.jpg is not what the directory says"),
        (central(one(), 24, "<I", 601), "c/0.jpg is stored with two sizes"),
        (central(one(), 20, "<I", 1 << 31), "c/0.jpg lies outside the archive"),
        (central(one(), 42, "<I", 1 << 31), "c/0.jpg lies outside the archive"),
        (central(one(), 42, "<I", 0, n=1), "overlaps another member"),
        (central(one(), 42, "<I", 7), "the header of c/0.jpg is not what the directory says"),
        (local(one(), 28, "<H", 65535), "c/0.jpg lies outside the archive"),
        (local(one(), 28, "<H", 60), "d/1.jpg overlaps another member"),
        (central(one(method=8), 24, "<I", 0xF0000000), "cannot become the 4026531840 that it claims"),
        (end(one(), 10, "<H", 7), "its directory has 2 members, and should have 7"),
        (end(one(), 4, "<H", 1), "several disks"),
        (end(one(), 12, "<I", 5), "its directory"),
        (end(one(), 16, "<I", 0xFFFFFFFF), "zip64 record is missing"),
        (central(one(), 42, "<I", 0xFFFFFFFF), "c/0.jpg lies outside the archive"),
        (one(b"c/0\n.jpg"), "control character"),
        (one(b"d/1.jpg"), "d/1.jpg is there twice"),
    ],
)
def test_hostile_archives_are_refused_by_name(tmp_path, content, words):
    """Proves that an archive that is damaged, cut short, forged, or of a kind that is not read is an error with its name
    and the member's."""
    (tmp_path / "bad.zip").write_bytes(bytes(content))
    text = refusal(f"zip:{tmp_path}/bad.zip")
    assert f"{tmp_path}/bad.zip" in text or "are empty" in text
    assert words in text


def test_overlapping_members_are_refused(tmp_path):
    """Proves it for the bomb whose members all quote one kernel: many headers, one stream of data."""
    b = bytearray(one(b"c/0.jpg", b"z" * 600))
    second = b.index(b"PK\3\4", 1)
    struct.pack_into("<II", b, b.index(b"PK\1\2") + 20, 600 + 37 + 50, 600 + 37 + 50)  # over the next member
    assert b[second : second + 4] == b"PK\3\4"
    (tmp_path / "bad.zip").write_bytes(bytes(b))
    assert "d/1.jpg overlaps another member" in refusal(f"zip:{tmp_path}/bad.zip")


def test_a_bomb_costs_no_more_than_it_declares(tmp_path):
    """Proves that a member that inflates to more, or to less, than the directory says, or to other bytes, is bad data
    with its name, and others are read."""
    data = b"0" * 5000000
    for change, words in (
        (lambda b: central(b, 24, "<I", 5000), "has another size"),
        (lambda b: central(b, 24, "<I", 5000001), "has another size"),
        (lambda b: central(b, 16, "<I", 1), "checksum is wrong"),
        (lambda b: local(b, 60, "<Q", 0xFFFFFFFFFFFFFFFF), "is damaged"),
    ):
        b = change(one(data=data, method=zipfile.ZIP_DEFLATED))
        (tmp_path / "bomb.zip").write_bytes(bytes(b))
        first, second = contents(f"zip:{tmp_path}/bomb.zip")
        assert first.startswith("! bomb.zip: c/0.jpg: ") and words in first and second == b"y" * 50


def test_a_value_that_is_a_bomb_is_refused(tmp_path):
    """Proves that a text of more than 1 MiB, before or after inflating, is an error with its name."""
    pack(tmp_path / "t.zip", [("0.jpg", b""), ("0.txt", b"a" * (1 << 20) + b"b")])
    assert "a value may have 1 MiB" in refusal(f"zip:{tmp_path}/t.zip#image=jpg,text=txt")
    b = one(b"0.txt", b"a" * 5000, zipfile.ZIP_DEFLATED)
    (tmp_path / "t.zip").write_bytes(bytes(central(b, 24, "<I", 4000)))
    assert "0.txt: its compressed data is damaged" in refusal(f"zip:{tmp_path}/t.zip#image=jpg,text=txt")

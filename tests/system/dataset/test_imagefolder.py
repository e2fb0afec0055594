"""imagefolder numbers classes and files as torchvision.datasets.ImageFolder documents it."""

import os
import pathlib
import random
import subprocess
import time

import pytest

REPO = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("BATCHD_BUILD", REPO / "build"))
TOOL = BUILD / "tests" / "tools" / "dataset"
EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def expected(root):
    """The rule as torchvision documents it, over os.scandir and os.walk."""
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    samples = []
    for label, name in enumerate(classes):
        for folder, _, files in sorted(os.walk(os.path.join(root, name), followlinks=True)):
            for file in sorted(files):
                if file.lower().endswith(EXTENSIONS):
                    samples.append((os.path.relpath(os.path.join(folder, file), root), label))
    return classes, samples


def unescape(text):
    return os.fsdecode(text.encode().decode("unicode_escape").encode("latin-1"))


def ours(root, *more):
    out = subprocess.run([TOOL, f"imagefolder:{root}", *more], check=True, stdout=subprocess.PIPE, text=True).stdout
    lines = out.splitlines()
    classes = [unescape(line[2:]) for line in lines if line.startswith("# ")]
    samples = [line.split("\t") for line in lines if not line.startswith("# ")]
    return classes, [(unescape(name), int(label)) for name, label in samples]


def put(root, *names):
    for name in names:
        path = os.path.join(os.fsencode(root), os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb"):
            pass


def assert_same(root, *more):
    assert ours(root, *more) == expected(str(root))


def test_photographs_are_numbered_alike(photos):
    """Proves it on a folder of 400 photographs in 20 classes."""
    assert_same(photos)


def test_nested_folders_sort_by_their_whole_path(tmp_path):
    """Proves "a-b" before "a/b", and files of a folder before those below it."""
    put(
        tmp_path,
        "c/a/b/1.jpg",
        "c/a-b/2.jpg",
        "c/a/3.jpg",
        "c/4.jpg",
        "c/z.jpg",
        "c/a.b/5.jpg",
        "c/a0/6.jpg",
        "c/a/b-c/7.jpg",
        "d/a/1.png",
    )
    assert_same(tmp_path)


def test_names_sort_by_code_point(tmp_path):
    """Proves the order of names outside ASCII, of astral code points, and of bytes that are not UTF-8."""
    names = [
        "Z",
        "a",
        "ä",
        "é",
        "ß",
        "ω",
        "中",
        "日本",
        "\uffee",
        "\U0001f600",
        "\U0001f600b",
        "a\u0301",
        "  x",
        "b\\x41",
    ]
    raw = [b"\xff", b"\x80z", b"a\xc3", b"a\xe4\xb8", b"\xed\xa0\x80", b"\xc0\x80"]
    put(tmp_path, *[f"{n}/{m}.jpg" for n in names for m in names[:6]])
    for r in raw:
        put(tmp_path, os.fsdecode(r) + "/x.png", "a/" + os.fsdecode(r) + ".webp")
    assert_same(tmp_path)


def test_extensions_count_whatever_their_case(tmp_path):
    """Proves both sides of the rule for extensions, formats that are not decoded included."""
    put(
        tmp_path,
        *[f"c/{i}{e}" for i, e in enumerate(EXTENSIONS)],
        *[f"c/{i}{e.upper()}" for i, e in enumerate(EXTENSIONS)],
        "c/a.Jpg",
        "c/.jpg",
        "c/a.jpg.txt",
        "c/a.gif",
        "c/jpg",
        "c/ajpg",
        "c/b.jpe",
        "stray.jpg",
        "d/x.JPEG",
    )
    assert_same(tmp_path)


def test_links_are_followed(tmp_path):
    """Proves that linked folders are walked, linked and dangling files counted, as os.walk(followlinks=True) does."""
    root, other = tmp_path / "root", tmp_path / "other"
    put(root, "a/1.jpg", "b/2.jpg")
    put(other, "deep/3.jpg", "4.jpg")
    os.symlink(other, root / "linked")
    os.symlink(other / "deep", root / "a" / "down")
    os.symlink(other / "4.jpg", root / "b" / "to-a-file.jpg")
    os.symlink("/nowhere/at/all", root / "b" / "dangling.jpg")
    os.symlink(other / "4.jpg", root / "file-at-the-top")
    assert_same(root)


def test_a_link_to_a_folder_above_ends_the_walk_there(tmp_path):
    """Proves that a loop is skipped instead of being walked until the kernel gives up."""
    put(tmp_path, "a/1.jpg", "a/b/2.jpg")
    os.symlink("..", tmp_path / "a" / "b" / "up")
    os.symlink(tmp_path, tmp_path / "a" / "top")
    assert ours(tmp_path) == (["a"], [("a/1.jpg", 0), ("a/b/2.jpg", 0)])


def test_random_trees_agree(tmp_path):
    """Proves it on random trees, with awkward characters around '/' in ASCII, walked and from the kept index."""
    r = random.Random(7)
    alphabet = ["a", "B", "-", ".", "0", "~", "é", " ", "+", "ab", "日"]
    for tree in range(20):
        root, cache = tmp_path / f"t{tree}", tmp_path / f"cache{tree}"
        cache.mkdir()
        for c in range(r.randint(1, 6)):
            name = "c" + "".join(r.choices(alphabet, k=r.randint(0, 3)))
            for _ in range(r.randint(1, 15)):
                parts = ["d" + "".join(r.choices(alphabet, k=r.randint(0, 2))) for _ in range(r.randint(0, 3))]
                put(
                    root,
                    "/".join(
                        [
                            name,
                            *parts,
                            "f" + "".join(r.choices(alphabet, k=2)) + r.choice([".jpg", ".PNG", ".txt", ".jpg"]),
                        ]
                    ),
                )
            put(root, f"{name}/one.jpg")
        time.sleep(0.03)  # an index of folders that changed a moment ago is not kept
        assert_same(root, cache)
        assert len(list(cache.iterdir())) == 1
        assert_same(root, cache)


@pytest.mark.parametrize(
    "names, message",
    [
        ([], "Couldn't find any class folder in"),
        (
            ["stray.jpg"],
            "Images lie in a folder per class; those without classes can be given as a list (files:LIST), with any labels",
        ),
        (
            ["full/1.jpg", "void/readme.txt", "blank/x.gif"],
            "Found no valid file for the classes blank, void. Supported extensions are: .jpg, .jpeg,",
        ),
    ],
)
def test_folders_without_images_are_named_as_torchvision_names_them(tmp_path, names, message):
    """Proves the texts of ImageFolder's two errors."""
    put(tmp_path, *names)
    done = subprocess.run([TOOL, f"imagefolder:{tmp_path}"], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert message in done.stderr

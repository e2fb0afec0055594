"""A label is what the data say, or it is not there: no reader makes one up."""

import csv
import io
import re
import tarfile
import zipfile

import pytest

batchd = pytest.importorskip("batchd")
image = pytest.importorskip("PIL.Image")

import test_mds  # noqa: E402 (batchd may be missing)

PLAIN = {"transform": [["Resize", [8, 8]]], "dtype": "uint8", "arrays": "numpy"}


def jpg(i=0):
    out = io.BytesIO()
    image.new("RGB", (16, 16), (i % 256,) * 3).save(out, "JPEG")
    return out.getvalue()


def tar(path, members):
    with tarfile.open(path, "w") as shard:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            shard.addfile(info, io.BytesIO(content))
    return f"tar:{path}"


def pictures(n, folder=""):
    return [(f"{folder}{i}.jpg", jpg(i)) for i in range(n)]


def labels(n, ending="cls", folder="", first=0):
    return [(f"{folder}{i}.{ending}", str(9 - i).encode()) for i in range(first, n)]


def both(n, first=0):
    return sorted(pictures(n) + labels(n, first=first))


def read(spec, **options):
    with batchd.DataLoader(spec, 100, **PLAIN, **options) as loader:
        return next(iter(loader))


def refusal(spec, **options):
    with pytest.raises(batchd.Error) as refused:
        read(spec, **options)
    return str(refused.value)


def webdataset(spec, *wanted):
    """What webdataset gives, or the type of what it raises."""
    wds = pytest.importorskip("webdataset", reason="the webdataset package is not installed")
    expand, group = wds.tariterators.tar_file_expander, wds.tariterators.group_by_keys
    with open(spec.removeprefix("tar:"), "rb") as shard:  # a file that webdataset opens stays open

        def source():
            yield {"url": shard.name, "stream": shard}

        try:
            return list(wds.DataPipeline(source, expand, group, wds.decode(), wds.to_tuple(*wanted)))
        except ValueError as e:
            return type(e)


def test_a_shard_that_is_not_sorted_is_refused(daemon, tmp_path):
    """Proves that keys which come back are no samples, whether or not fields are named; webdataset raises, too."""
    for name, members in (
        ("blocks", pictures(6) + labels(6)),
        ("late", both(6) + [("3.txt", b"a")]),
        ("first", labels(6) + pictures(6)),
    ):
        spec = tar(tmp_path / f"{name}.tar", members)
        assert webdataset(spec, "jpg", "cls") is ValueError
        for options in ({}, {"fields": ("image", "label")}):
            text = refusal(spec, **options)
            assert "is not sorted" in text and "tar --sort=name" in text
    spec = tar(tmp_path / "sorted.tar", both(6))
    assert read(spec)[1].tolist() == [int(c) for _, c in webdataset(spec, "jpg", "cls")] == [9, 8, 7, 6, 5, 4]


def test_one_sample_without_a_label_does_not_take_those_of_all(make_daemon, tmp_path):
    """Proves it for the first sample, whose lack once made indices of all labels, and for another."""
    make_daemon(config="bad_data: 50%\n")
    for name, members in (("first", both(6, first=1)), ("last", [m for m in both(6) if m[0] != "5.cls"])):
        spec = tar(tmp_path / f"{name}.tar", members)
        assert webdataset(spec, "jpg", "cls") is ValueError
        for _ in range(2):  # the second time from the kept index
            with pytest.warns(RuntimeWarning, match=r"1 of 6 samples are left out.*has no label \(cls\)"):
                got = read(spec)[1].tolist()
            assert got == ([8, 7, 6, 5, 4] if name == "first" else [9, 8, 7, 6, 5])


@pytest.mark.parametrize("ending", ["label", "class", "target", "y", "id", "txt", "json"])
def test_a_shard_without_cls_names_what_it_has(daemon, tmp_path, ending):
    """Proves the refusal, and that following it gives what webdataset gives."""
    spec = tar(tmp_path / "s.tar", sorted(pictures(2) + labels(2, ending)))
    for _ in range(2):
        text = refusal(spec)
        told = ", ".join(sorted(["jpg", ending]))
        assert f"no label: each sample has {told}, none of which is cls" in text and 'fields=("image",)' in text
    (got,) = read(spec, fields=("image",))
    assert len(got) == 2
    if ending in ("class", "id"):  # whole numbers by their extension
        got = read(spec, fields={"image": "jpg", "label": ending})["label"].tolist()
        assert got == [9, 8]


def test_folders_of_labels_are_no_labels(daemon, tmp_path):
    """Proves that pictures and labels in folders of their own, whose keys differ, are refused."""
    spec = tar(tmp_path / "s.tar", pictures(6, "images/") + labels(6, folder="labels/"))
    assert webdataset(spec, "jpg", "cls") is ValueError
    text = refusal(spec)
    assert "no sample" in text and "images/0, has no label (cls)" in text


def test_pictures_alone_are_verified_and_read_by_name(daemon, batchctl, tmp_path):
    """Proves that what has no label can still be verified, and read for its pictures."""
    spec = tar(tmp_path / "s.tar", pictures(3))
    assert "no label: each sample has jpg" in refusal(spec)
    assert batchctl("verify", spec).returncode == 0
    assert len(read(f"{spec}#image=jpg")["image"]) == len(read(spec, fields=("image",))[0]) == 3


def test_a_zip_without_class_folders_is_refused(daemon, tmp_path):
    """Proves the refusal, and the classes of a single folder."""
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as z:
        for name, content in pictures(3):
            z.writestr(name, content)
    text = refusal(f"zip:{tmp_path}/z.zip")
    assert "no label: the images lie in no class folders" in text and '{"image": "jpg", "label": "cls"}' in text
    assert len(read(f"zip:{tmp_path}/z.zip", fields=("image",))[0]) == 3
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as z:
        for name, content in pictures(3, "data/cat/"):
            z.writestr(name, content)
    assert read(f"zip:{tmp_path}/c.zip")[1].tolist() == [0, 0, 0]


def test_a_shard_of_columns_names_columns(daemon, tmp_path):
    """Proves that what an error says about shards of MDS can be written of them."""
    columns = {"photo": ("jpeg", None), "species": ("str", None)}
    test_mds.shard(tmp_path / "s.mds", columns, [[jpg(i), kind] for i, kind in enumerate((b"dog", b"cat"))])
    text = refusal(f"mds:{tmp_path}/s.mds")
    assert "each sample has photo (jpeg), species (str)" in text and "#image=COLUMN after" in text
    assert len(read(f"mds:{tmp_path}/s.mds#image=photo")["image"]) == 2
    assert read(f"mds:{tmp_path}/s.mds", fields={"image": "photo", "label": "species"})["label"].tolist() == [1, 0]
    test_mds.shard(tmp_path / "t.mds", {"species": ("str", None)}, [[b"dog"]])
    assert "name other fields after #, NAME=COLUMN" in refusal(f"mds:{tmp_path}/t.mds")


@pytest.mark.parametrize("header", [["file_name", "text"], ["path", "species"]])
def test_a_table_without_labels_is_refused(daemon, tmp_path, header):
    """Proves that the columns are named, and that following the text gives the classes of the column."""
    with open(tmp_path / "l.csv", "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(header)
        for i, kind in enumerate(("dog", "cat", "dog")):
            (tmp_path / f"{i}.jpg").write_bytes(jpg(i))
            writer.writerow([f"{i}.jpg", kind])
    spec = f"files:{tmp_path}/l.csv"
    text = refusal(spec)
    assert f"no column label, class or target among {', '.join(header)}" in text
    assert "label" in refusal(spec, fields=("image", "label"))
    assert len(read(spec, fields=("image",))[0]) == 3
    assert read(spec, fields={"image": "image", "label": header[1]})["label"].tolist() == [1, 0, 1]


def test_paths_of_a_list_begin_in_its_folder(daemon, tmp_path, monkeypatch):
    """Proves that a list whose paths mean another folder is refused at once, with the folder in which they are looked for."""
    (tmp_path / "lists").mkdir()
    (tmp_path / "img").mkdir()
    monkeypatch.chdir(tmp_path)
    for i in range(10):
        (tmp_path / "img" / f"{i}.jpg").write_bytes(jpg(i))
    (tmp_path / "lists" / "l.txt").write_text("".join(f"img/{i}.jpg\t{i}\n" for i in range(10)))
    text = refusal("files:lists/l.txt")
    assert re.search(rf"img/0.jpg: no such file in .*{tmp_path.name}/lists, the folder of the list", text)
    (tmp_path / "l.txt").write_text("\ufeff" + (tmp_path / "lists" / "l.txt").read_text(), "utf-8")
    assert read("files:l.txt")[1].tolist() == list(range(10))
    (tmp_path / "u.txt").write_text("https://example.org/0.jpg\t0\n")
    assert "nothing is read from a network" in refusal("files:u.txt")

"""What each reader makes of data that are not quite as the rules expect: a table of readers by oddities.

As a program: odd_data.py prints the table, in Markdown, for a daemon at $BATCHD_SOCKET. Each cell is one of

    right           every sample has its own picture and label
    absent          the samples have no label, and the batch has none
    error: ...      the opening or the epoch is refused, with this text
    warning: ...    a Python warning says what is missing
    WRONG: ...      samples, pictures or labels are other than the truth, and nothing says so

A case makes its data in a folder and returns a Case. What is true of it is known here, by construction: sample i's
picture has the grey value GREY[i], and its label is LABELS[i]. test_odd_data.py runs each cell as a test.
"""

import csv
import gzip
import io
import json
import os
import pathlib
import shutil
import struct
import tarfile
import tempfile
import warnings
import zipfile

import numpy as np
from _pytest.outcomes import Skipped
from PIL import Image

import batchd

N = 6
GREY = [10 + 30 * i for i in range(N)]
LABELS = [9 - i for i in range(N)]
FIXED_TIME = 1_000_000_000


class Case:
    """data: what DataLoader gets. truth: (grey value, label) of each sample that there is; a label of None: the data have
    none. running, between: change the data, while a loader is open or between two; the samples afterwards are `then`."""

    def __init__(self, data, truth=None, options=None, running=None, between=None, then=None, extra=None):
        self.data = data
        self.truth = list(zip(GREY, LABELS)) if truth is None else truth
        self.options = {"transform": [["Resize", [8, 8]]], "dtype": "uint8", **(options or {})}
        self.running, self.between, self.then = running, between, then
        self.extra = extra  # values of a further field, by sample


# ---- the data ----


def picture(value, kind="PNG", size=8):
    out = io.BytesIO()
    Image.new("RGB", (size, size), (value,) * 3).save(out, kind)
    return out.getvalue()


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def fixed(path):
    """As an archive with fixed times unpacks it."""
    os.utime(path, (FIXED_TIME, FIXED_TIME))


def tar(path, members):
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in members:
            content = content if isinstance(content, bytes) else content.encode()
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def zipped(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members:
            info = zipfile.ZipInfo()
            info.filename = name  # as it is, backslashes too
            archive.writestr(info, content)
    return path


def pairs(labels=LABELS, suffix="cls"):
    """Members of a shard: each sample's picture, then its label."""
    for i, label in enumerate(labels):
        yield f"{i:03}.png", picture(GREY[i])
        if label is not None:
            yield f"{i:03}.{suffix}", str(label)


def table(folder, rows, name="list.csv", encoding="utf-8", separator=","):
    for i in range(N):
        put(folder / f"{i}.png", picture(GREY[i]))
    out = io.StringIO()
    csv.writer(out, delimiter=separator, lineterminator="\n").writerows(rows)
    put(folder / name, out.getvalue().encode(encoding))
    return f"files:{folder / name}"


def rows(labels=LABELS, label="label"):
    return [("path", label), *((f"{i}.png", x) for i, x in enumerate(labels))]


def mds(folder, columns, samples):
    from test_mds import upstream  # without what the package itself imports

    with upstream("streaming.base.format.mds.writer").MDSWriter(out=str(folder / "mds"), columns=columns) as writer:
        for sample in samples:
            writer.write(sample)
    return f"mds:{folder / 'mds'}"


def mds_pairs(labels=LABELS, kind="int", name="label", cast=int):
    return (
        {"image": "png", name: kind},
        ({"image": Image.new("RGB", (8, 8), (GREY[i],) * 3), name: cast(x)} for i, x in enumerate(labels)),
    )


def huggingface(labels=LABELS, kind=None, name="label", grey=GREY):
    import datasets

    features = datasets.Features({"image": datasets.Image(), name: kind or datasets.Value("int64")})
    return datasets.Dataset.from_dict(
        {"image": [{"bytes": picture(g), "path": None} for g in grey], name: list(labels)}, features=features
    )


def saved(folder, data):
    data.save_to_disk(str(folder / "saved"))
    return f"arrow:{folder / 'saved'}"


def idx(path, array):
    kinds = {"uint8": 8, "int8": 9, "int16": 11, "int32": 12, "float32": 13, "float64": 14}
    head = struct.pack(">HBB", 0, kinds[array.dtype.name], array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    put(path, head + array.astype(array.dtype.newbyteorder(">")).tobytes())
    return path


def pixels(grey=GREY):
    return np.repeat(np.array(grey, np.uint8), 8 * 8 * 3).reshape(len(grey), 8, 8, 3)


def class_folder(folder, names=("cat", "dog", "eel")):
    """Two samples a class, in the order of the folders' names."""
    for i in range(N):
        put(folder / names[i // 2] / f"{i}.png", picture(GREY[i]))
    order = sorted(range(N), key=lambda i: (names[i // 2], i))
    classes = sorted(names)
    return f"imagefolder:{folder}", [(GREY[i], classes.index(names[i // 2])) for i in order]


RAW = {"transform": None, "dtype": None}  # rows as they are stored


# ---- what is odd ----

CASES = {}


def case(reader, oddity):
    def keep(make):
        CASES[reader, oddity] = make
        return make

    return keep


@case("folder", "no label")
def _(folder):
    for i in range(N):
        put(folder / f"{i}.png", picture(GREY[i]))
    return Case(f"imagefolder:{folder}", truth=[(g, None) for g in GREY])


@case("folder", "empty")
def _(folder):
    data, _ = class_folder(folder)
    (folder / "axolotl").mkdir()
    return Case(data, truth=[(g, 1 + i // 2) for i, g in enumerate(GREY)])


@case("folder", "empty file")
def _(folder):
    data, truth = class_folder(folder)
    put(folder / "cat" / "0.png", b"")
    return Case(data, truth=truth[1:])


@case("folder", "non-ASCII")
def _(folder):
    data, truth = class_folder(folder, ("ähre", "犬", "cat"))
    return Case(data, truth=truth)


@case("folder", "links")
def _(folder):
    data, truth = class_folder(folder / "real")
    (folder / "links").mkdir()
    for name in ("cat", "dog", "eel"):
        (folder / "links" / name).symlink_to(folder / "real" / name)
    return Case(f"imagefolder:{folder / 'links'}", truth=truth)


def exchange(folder, names, grey):
    """Other pictures of the same size under the same names and times, in place."""
    for i, name in enumerate(names):
        path = folder / name
        if path.exists():
            path.unlink()  # as tar does
        put(path, picture(grey[i], "PPM"))
        fixed(path)


def exchanged(when):
    """when: running or between, an argument of Case."""

    def make(folder):
        names = [f"{'abc'[i // 2]}/{i}.ppm" for i in range(N)]
        exchange(folder, names, GREY)
        return Case(
            f"imagefolder:{folder}",
            truth=[(g, i // 2) for i, g in enumerate(GREY)],
            then=[(g, i // 2) for i, g in enumerate(GREY[::-1])],
            **{when: lambda: exchange(folder, names, GREY[::-1])},
        )

    return make


case("folder", "replaced between loaders")(exchanged("between"))
case("folder", "changed under a loader")(exchanged("running"))


@case("list", "no label")
def _(folder):
    table(folder, [])
    put(folder / "list.txt", "".join(f"{i}.png\n" for i in range(N)))
    return Case(f"files:{folder / 'list.txt'}", truth=[(g, None) for g in GREY])


@case("list", "BOM")
def _(folder):
    table(folder, [])
    put(folder / "list.txt", "\ufeff" + "".join(f"{i}.png\t{x}\n" for i, x in enumerate(LABELS)))
    return Case(f"files:{folder / 'list.txt'}")


@case("list", "mixed types")
def _(folder):
    table(folder, [])
    put(folder / "list.txt", "".join(f"{i}.png\t{x if i else x + 0.5}\n" for i, x in enumerate(LABELS)))
    return Case(
        f"files:{folder / 'list.txt'}", truth=[(g, x if i else x + 0.5) for i, (g, x) in enumerate(zip(GREY, LABELS))]
    )


@case("list", "missing field")
def _(folder):
    table(folder, [])
    put(folder / "list.txt", "".join(f"{i}.png\t{x}\n" if i != 3 else f"{i}.png\n" for i, x in enumerate(LABELS)))
    return Case(f"files:{folder / 'list.txt'}", truth=[])


@case("list", "duplicate")
def _(folder):
    table(folder, [])
    put(folder / "list.txt", "".join(f"{i}.png\t{x}\n" for i, x in [*enumerate(LABELS), (0, LABELS[0])]))
    return Case(f"files:{folder / 'list.txt'}", truth=[*zip(GREY, LABELS), (GREY[0], LABELS[0])])


@case("list", "Windows paths")
def _(folder):
    for i in range(N):
        put(folder / "d" / f"{i}.png", picture(GREY[i]))
    put(folder / "list.txt", "".join(f"d\\{i}.png\t{x}\r\n" for i, x in enumerate(LABELS)))
    return Case(f"files:{folder / 'list.txt'}")


@case("list", "non-ASCII")
def _(folder):
    for i in range(N):
        put(folder / f"bild ä{i}.png", picture(GREY[i]))
    put(folder / "list.txt", "".join(f"bild ä{i}.png\t{x}\n" for i, x in enumerate(LABELS)))
    return Case(f"files:{folder / 'list.txt'}")


@case("table", "no label")
def _(folder):
    return Case(table(folder, [("path", "species"), *((f"{i}.png", f"s{x}") for i, x in enumerate(LABELS))]), truth=[])


@case("table", "other type")
def _(folder):
    names = sorted(f"s{x}" for x in LABELS)
    return Case(
        table(folder, rows([f"s{x}" for x in LABELS])), truth=[(g, names.index(f"s{x}")) for g, x in zip(GREY, LABELS)]
    )


@case("table", "mixed types")
def _(folder):
    return Case(
        table(folder, rows([x if i else x + 0.5 for i, x in enumerate(LABELS)])),
        truth=[(g, x if i else x + 0.5) for i, (g, x) in enumerate(zip(GREY, LABELS))],
    )


@case("table", "whole, then real")
def _(folder):
    values = [5] + [4 + i / 64 for i in range(1, N)]
    made = [("path", "label", "score"), *((f"{i}.png", x, values[i]) for i, x in enumerate(LABELS))]
    return Case(
        table(folder, made), options={"fields": {"image": "path", "label": "label", "score": "score"}}, extra=values
    )


@case("table", "null")
def _(folder):
    return Case(table(folder, rows([x if i != 2 else "" for i, x in enumerate(LABELS)])), truth=[])


@case("table", "BOM")
def _(folder):
    return Case(table(folder, rows(), encoding="utf-8-sig"))


@case("table", "non-ASCII")
def _(folder):
    names = sorted(f"ä{x}" for x in LABELS)
    return Case(
        table(folder, rows([f"ä{x}" for x in LABELS])), truth=[(g, names.index(f"ä{x}")) for g, x in zip(GREY, LABELS)]
    )


@case("table", "duplicate")
def _(folder):
    return Case(
        table(folder, [("path", "label", "label"), *((f"{i}.png", x, 0) for i, x in enumerate(LABELS))]), truth=[]
    )


@case("tar", "no label")
def _(folder):
    return Case(f"tar:{tar(folder / 'a.tar', pairs([None] * N))}", truth=[(g, None) for g in GREY])


@case("tar", "label elsewhere")
def _(folder):
    made = list(pairs())
    return Case(f"tar:{tar(folder / 'a.tar', made[::2] + made[1::2])}")


@case("tar", "label in another folder")
def _(folder):
    made = [(("images/" if name.endswith("png") else "labels/") + name, content) for name, content in pairs()]
    return Case(f"tar:{tar(folder / 'a.tar', made)}")


@case("tar", "label of another name")
def _(folder):
    return Case(f"tar:{tar(folder / 'a.tar', pairs(suffix='label'))}")


@case("tar", "other type")
def _(folder):
    return Case(f"tar:{tar(folder / 'a.tar', pairs(['cat', 'dog', 'cat', 'dog', 'cat', 'dog']))}", truth=[])


@case("tar", "mixed types")
def _(folder):
    return Case(
        f"tar:{tar(folder / 'a.tar', pairs([9, 8.5, 7, 6, 5, 4]))}",
        truth=[(g, x) for g, x in zip(GREY, [9, 8.5, 7, 6, 5, 4])],
    )


def with_json(folder, values, reader="tar"):
    made = []
    for i, value in enumerate(values):
        made.append((f"{i:03}.png", picture(GREY[i])))
        made.append((f"{i:03}.json", json.dumps({"score": value} if value is not ... else {})))
        made.append((f"{i:03}.cls", str(LABELS[i])))
    path = (tar if reader == "tar" else zipped)(folder / f"a.{reader}", made)
    return f"{reader}:{path}", {"fields": {"image": "png", "label": "cls", "score": "json:score"}}


def scores(reader):
    @case(reader, "whole, then real")
    def _(folder):
        values = [5] + [4 + i / 64 for i in range(1, N)]
        data, options = with_json(folder, values, reader)
        return Case(data, options=options, extra=values)

    @case(reader, "null")
    def _(folder):
        data, options = with_json(folder, [1.5, None, 2.5, 3.5, 4.5, 5.5], reader)
        return Case(data, options=options, truth=[])

    @case(reader, "missing field")
    def _(folder):
        data, options = with_json(folder, [1.5, ..., 2.5, 3.5, 4.5, 5.5], reader)
        return Case(data, options=options, truth=[])

    @case(reader, "large numbers")
    def _(folder):
        values = [2**63 + 5, 1, 2, 3, 4, 5]
        data, options = with_json(folder, values, reader)
        return Case(data, options=options, extra=values)


scores("tar")
scores("zip")


@case("tar", "first sample without label")
def _(folder):
    return Case(f"tar:{tar(folder / 'a.tar', pairs([None, *LABELS[1:]]))}", truth=[])


@case("tar", "every second without label")
def _(folder):
    return Case(
        f"tar:{tar(folder / 'a.tar', pairs([x if i % 2 == 0 else None for i, x in enumerate(LABELS)]))}", truth=[]
    )


@case("tar", "empty file")
def _(folder):
    return Case(f"tar:{tar(folder / 'a.tar', [(n, b'' if n == '003.png' else c) for n, c in pairs()])}", truth=[])


@case("tar", "empty")
def _(folder):
    return Case(f"tar:{tar(folder / 'a.tar', [])}", truth=[])


@case("tar", "duplicate")
def _(folder):
    return Case(f"tar:{tar(folder / 'a.tar', [*pairs(), *pairs()])}", truth=list(zip(GREY, LABELS)) * 2)


@case("tar", "out of order")
def _(folder):
    made = [x for i in (3, 0, 5, 1, 4, 2) for x in list(pairs())[2 * i : 2 * i + 2]]
    return Case(f"tar:{tar(folder / 'a.tar', made)}", truth=[(GREY[i], LABELS[i]) for i in (3, 0, 5, 1, 4, 2)])


@case("tar", "non-ASCII")
def _(folder):
    return Case(f"tar:{tar(folder / 'ä.tar', [('ä' + n, c) for n, c in pairs()])}")


@case("tar", "links")
def _(folder):
    (folder / "b.tar").symlink_to(tar(folder / "a.tar", pairs()))
    return Case(f"tar:{folder / 'b.tar'}")


def shard(path, grey):
    tar(path, [(n, c if n.endswith("cls") else picture(grey[int(n[:3])], "PPM")) for n, c in ppm_pairs()])
    fixed(path)


def ppm_pairs():
    for i, label in enumerate(LABELS):
        yield f"{i:03}.ppm", b""
        yield f"{i:03}.cls", str(label)


@case("tar", "replaced between loaders")
def _(folder):
    path = folder / "a.tar"
    shard(path, GREY)
    return Case(f"tar:{path}", between=lambda: shard(path, GREY[::-1]), then=list(zip(GREY[::-1], LABELS)))


@case("tar", "changed under a loader")
def _(folder):
    path = folder / "a.tar"
    shard(path, GREY)
    return Case(f"tar:{path}", running=lambda: shard(path, GREY[::-1]), then=list(zip(GREY[::-1], LABELS)))


@case("zip", "no label")
def _(folder):
    return Case(
        f"zip:{zipped(folder / 'a.zip', [(f'{i}.png', picture(g)) for i, g in enumerate(GREY)])}",
        truth=[(g, None) for g in GREY],
    )


@case("zip", "one class")
def _(folder):
    return Case(
        f"zip:{zipped(folder / 'a.zip', [(f'data/cat/{i}.png', picture(g)) for i, g in enumerate(GREY)])}",
        truth=[(g, 0) for g in GREY],
    )


@case("zip", "Windows paths")
def _(folder):
    made = [(f"{('cat', 'dog', 'eel')[i // 2]}\\{i}.png", picture(g)) for i, g in enumerate(GREY)]
    return Case(f"zip:{zipped(folder / 'a.zip', made)}", truth=[(g, i // 2) for i, g in enumerate(GREY)])


@case("zip", "label elsewhere")
def _(folder):
    made = list(pairs())
    return Case(
        f"zip:{zipped(folder / 'a.zip', made[::2] + made[1::2])}", options={"fields": {"image": "png", "label": "cls"}}
    )


@case("zip", "non-ASCII")
def _(folder):
    made = [(f"{('ähre', 'cat', 'dog')[i // 2]}/{i}.png", picture(g)) for i, g in enumerate(GREY)]
    order = sorted(range(N), key=lambda i: made[i][0])
    classes = sorted({"ähre", "cat", "dog"})
    return Case(
        f"zip:{zipped(folder / 'a.zip', made)}",
        truth=[(GREY[i], classes.index(made[i][0].split("/")[0])) for i in order],
    )


@case("mds", "no label")
def _(folder):
    made = ({"image": Image.new("RGB", (8, 8), (g,) * 3)} for g in GREY)
    return Case(mds(folder, {"image": "png"}, made), truth=[(g, None) for g in GREY])


@case("mds", "label of another name")
def _(folder):
    return Case(mds(folder, *mds_pairs(name="target")))


@case("mds", "other type")
def _(folder):
    return Case(
        mds(folder, *mds_pairs([f"s{x}" for x in LABELS], "str", cast=str)),
        truth=[(g, sorted(f"s{x}" for x in LABELS).index(f"s{y}")) for g, y in zip(GREY, LABELS)],
    )


@case("mds", "real labels")
def _(folder):
    return Case(
        mds(folder, *mds_pairs(kind="float32", cast=np.float32)), truth=[(g, float(x)) for g, x in zip(GREY, LABELS)]
    )


@case("mds", "large numbers")
def _(folder):
    values = [2**63 + 5, 1, 2, 3, 4, 5]
    made = (
        {"image": Image.new("RGB", (8, 8), (GREY[i],) * 3), "label": x, "id": np.uint64(values[i])}
        for i, x in enumerate(LABELS)
    )
    return Case(
        mds(folder, {"image": "png", "label": "int", "id": "uint64"}, made),
        options={"fields": {"image": "image", "label": "label", "score": "id"}},
        extra=values,
    )


@case("mds", "whole, then real")
def _(folder):
    values = [5] + [4 + i / 64 for i in range(1, N)]
    made = (
        {"image": Image.new("RGB", (8, 8), (GREY[i],) * 3), "label": x, "meta": {"score": values[i]}}
        for i, x in enumerate(LABELS)
    )
    return Case(
        mds(folder, {"image": "png", "label": "int", "meta": "json"}, made),
        options={"fields": {"image": "image", "label": "label", "score": "meta:score"}},
        extra=values,
    )


@case("huggingface", "no label")
def _(folder):
    return Case(huggingface(name="score"), truth=[])


@case("huggingface", "null")
def _(folder):
    return Case(huggingface([x if i != 2 else None for i, x in enumerate(LABELS)]), truth=[])


@case("huggingface", "turned pictures")
def _(folder):
    import datasets

    exif = Image.Exif()
    exif[0x112] = 6
    made = []
    for g in GREY:
        out, image = io.BytesIO(), Image.new("RGB", (16, 8), (g,) * 3)
        image.putpixel((0, 0), (255, 255, 255))
        image.save(out, "PNG", exif=exif)
        made.append({"bytes": out.getvalue(), "path": None})
    data = datasets.Dataset.from_dict(
        {"image": made, "label": LABELS},
        features=datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")}),
    )
    corner = [int(np.asarray(data[i]["image"].convert("RGB"))[0, 0, 0]) for i in range(N)]
    return Case(data, truth=list(zip(corner, LABELS)), options={"transform": [["CenterCrop", [16, 8]]]})


@case("huggingface", "lists of bytes")
def _(folder):
    import datasets

    values = [[1, 0], [0, 0, 0], [1], [0], [1, 1], [0, 1]]
    data = huggingface().add_column("score", values).cast_column("score", datasets.Sequence(datasets.Value("uint8")))
    return Case(data, options={"fields": {"image": "image", "label": "label", "score": "score"}}, extra=values)


@case("arrow", "no label")
def _(folder):
    return Case(saved(folder, huggingface(name="score")), truth=[])


@case("arrow", "plain")
def _(folder):
    return Case(saved(folder, huggingface()), options={"fields": {"image": "image", "label": "label"}})


@case("npy", "no label")
def _(folder):
    np.save(folder / "x.npy", pixels())
    return Case(f"npy:{folder / 'x.npy'}", truth=[(g, None) for g in GREY], options=RAW)


@case("npy", "other lengths")
def _(folder):
    np.save(folder / "x.npy", pixels())
    np.save(folder / "y.npy", np.array(LABELS[1:]))
    return Case(f"npy:{folder / 'x.npy'},{folder / 'y.npy'}", truth=[], options=RAW)


@case("npy", "real labels")
def _(folder):
    np.save(folder / "x.npy", pixels())
    np.save(folder / "y.npy", np.array(LABELS) + 0.5)
    return Case(
        f"npy:{folder / 'x.npy'},{folder / 'y.npy'}", truth=[(g, x + 0.5) for g, x in zip(GREY, LABELS)], options=RAW
    )


def npy(folder, grey):
    np.save(folder / "x.npy", pixels(grey))
    np.save(folder / "y.npy", np.array(LABELS))
    fixed(folder / "x.npy")


@case("npy", "replaced between loaders")
def _(folder):
    npy(folder, GREY)
    return Case(
        f"npy:{folder / 'x.npy'},{folder / 'y.npy'}",
        options=RAW,
        between=lambda: npy(folder, GREY[::-1]),
        then=list(zip(GREY[::-1], LABELS)),
    )


@case("npz", "out of order")
def _(folder):
    np.savez(folder / "a.npz", label=np.array(LABELS), x=pixels())
    return Case(f"npz:{folder / 'a.npz'}", options=RAW)


@case("idx", "other lengths")
def _(folder):
    a = idx(folder / "x", pixels()[..., 0])
    b = idx(folder / "y", np.array(LABELS[1:], np.uint8))
    return Case(f"idx:{a},{b}", truth=[], options=RAW)


@case("idx", "compressed")
def _(folder):
    a = idx(folder / "x", pixels()[..., 0])
    b = idx(folder / "y", np.array(LABELS, np.uint8))
    for path in (a, b):
        put(path.with_suffix(".gz"), gzip.compress(path.read_bytes()))
    return Case(f"idx:{a}.gz,{b}.gz", options=RAW)


@case("cifar", "other label")
def _(folder):
    record = lambda g, x: bytes([x]) + bytes([g]) * 3072  # noqa: E731
    put(folder / "data.bin", b"".join(record(g, x) for g, x in zip(GREY, [*LABELS[:-1], 77])))
    return Case(f"cifar:{folder / 'data.bin'}", truth=[], options=RAW)


@case("tokens", "a .npy file")
def _(folder):
    np.save(folder / "t.npy", np.arange(1000, dtype=np.uint16))
    return Case(f"tokens:{folder / 't.npy'}", truth=[], options={"transform": None, "dtype": None, "length": 6})


@case("tokens", "four bytes")
def _(folder):
    np.arange(1000, dtype=np.int32).tofile(folder / "t.bin")
    return Case(f"tokens:{folder / 't.bin'}", truth=[], options={"transform": None, "dtype": None, "length": 6})


@case("tokens", "more than its header says")
def _(folder):
    head = np.zeros(256, np.int32)
    head[:3] = 20240520, 1, 50
    put(folder / "t.bin", head.tobytes() + np.arange(200, dtype=np.uint16).tobytes())
    return Case(f"tokens:{folder / 't.bin'}", truth=[], options={"transform": None, "dtype": None, "length": 6})


@case("in memory", "no label")
def _(folder):
    return Case((pixels(),), truth=[(g, None) for g in GREY], options=RAW)


@case("in memory", "other lengths")
def _(folder):
    return Case((pixels(), np.array(LABELS[1:])), truth=[], options=RAW)


@case("in memory", "mask")
def _(folder):
    return Case((pixels(), np.ma.masked_array(LABELS, [0, 1, 0, 0, 0, 0])), truth=[], options=RAW)


@case("in memory", "a list")
def _(folder):
    return Case([pixels()[0], pixels()[1]], truth=[], options=RAW)


@case("in memory", "real labels")
def _(folder):
    return Case((pixels(), np.array(LABELS) + 0.5), truth=[(g, x + 0.5) for g, x in zip(GREY, LABELS)], options=RAW)


@case("several", "one part without labels")
def _(folder):
    a = tar(folder / "a.tar", pairs())
    b = tar(folder / "b.tar", pairs([None] * N))
    return Case([f"tar:{a}", f"tar:{b}"], truth=[])


# ---- what comes of it ----


def content(batch):
    """(grey values, labels or None, values of the further field or None)."""
    if isinstance(batch, dict):
        parts = batch
        image = next((v for k, v in parts.items() if np.ndim(v) >= 3), next(iter(parts.values())))
        return image, parts.get("label"), parts.get("score")
    if isinstance(batch, (tuple, list)):
        return batch[0], batch[1] if len(batch) > 1 else None, None
    return batch, None, None


def samples_of(loader):
    """(index, grey value, label, further value) of each row that stands for itself."""
    found = []
    for batch in loader:
        image, label, extra = content(batch)
        for row, index in enumerate(loader.last_batch.indices):
            value = int(np.asarray(image[row]).reshape(-1)[0])
            one = None if label is None else np.asarray(label[row])
            more = (
                None
                if extra is None
                else extra[row]
                if isinstance(extra[row], bytes)
                else np.asarray(extra[row]).tolist()
            )
            found.append((int(index), value, None if one is None else one.tolist(), more))
    return [row[1:] for row in sorted(found, key=lambda row: row[0])]


def judged(found, truth, extra):
    """right, absent or None."""
    values = [(v, label) for v, label, _ in found]
    if extra is not None and [x for _, _, x in found] != extra:
        return None
    if values == truth:
        return "right"
    if truth and values == [(v, None) for v, _ in truth]:
        return "absent"
    return None


def short(text):
    return " ".join(str(text).split())[:300]


def outcome(made, **options):
    """The cell of a case: see the top of this file."""
    options = {k: v for k, v in {**made.options, **options}.items() if v is not None}
    said = []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            loader = batchd.DataLoader(made.data, batch_size=4, arrays="numpy", n_slots=2, **options)
            with loader:
                found = samples_of(loader)
                if made.running:
                    made.running()
                    loader.set_epoch(5)
                    found = samples_of(loader)
            if made.between:
                assert judged(found, made.truth, made.extra), f"before: {found}"
                made.between()
                with batchd.DataLoader(made.data, batch_size=4, arrays="numpy", n_slots=2, **options) as loader:
                    found = samples_of(loader)
        except (batchd.Error, ValueError, TypeError) as e:
            return f"error: {short(e)}"
        said += [w for w in told if not issubclass(w.category, (ResourceWarning, DeprecationWarning))]
    truth = made.then if made.then is not None else made.truth
    if made.running and judged(found, made.truth, made.extra):
        return "right"  # the old samples, whole: an open file that was replaced by rename
    if right := judged(found, truth, made.extra):
        return right
    if said:
        return f"warning: {short(said[0].message)}"
    return f"WRONG: {short(found)}"


def main():
    readers = list(dict.fromkeys(reader for reader, _ in CASES))
    print("| reader | what is odd | what comes of it |\n|---|---|---|")
    for reader in readers:
        for (name, oddity), make in CASES.items():
            if name != reader:
                continue
            folder = pathlib.Path(tempfile.mkdtemp())
            try:
                said = outcome(make(folder))
            except (ImportError, Skipped) as e:
                said = f"skipped: {e}"
            shutil.rmtree(folder)
            print(f"| {reader} | {oddity} | {said} |", flush=True)


if __name__ == "__main__":
    main()

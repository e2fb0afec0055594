"""HuggingFace data sets that lie in memory: the samples that the `datasets` package itself gives, from a table that is
handed over."""

import fcntl
import io
import json
import os

import numpy
import pytest
from PIL import Image

torch = pytest.importorskip("torch")
datasets = pytest.importorskip("datasets", reason="the datasets package is not installed")
pyarrow = pytest.importorskip("pyarrow")

import batchd  # noqa: E402 (torch may be missing)
from batchd import _free_memory, _hf_memory, _memory  # noqa: E402

N = 61
PLAIN = [["CenterCrop", [24, 20]], "ToTensor"]
FEATURES = datasets.Features(
    {
        "img": datasets.Image(),
        "label": datasets.ClassLabel(names=["ant", "bee", "cat"]),
        "text": datasets.Value("string"),
        "long": datasets.Value("large_string"),
        "blob": datasets.Value("binary"),
        "ids": datasets.List(datasets.Value("int32")),
        "box": datasets.List(datasets.Value("float32"), length=4),
        "boxes": datasets.List(datasets.List(datasets.Value("float64"), length=4)),
        "grid": datasets.Array2D((2, 3), "int16"),
        "flag": datasets.Value("bool"),
        "score": datasets.Value("float64"),
    }
)


@pytest.fixture(autouse=True)
def quiet(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


def picture(i):
    return Image.fromarray(numpy.random.default_rng(i).integers(0, 256, (24, 20, 3), dtype=numpy.uint8))


def row(i):
    rng = numpy.random.default_rng(1000 + i)
    return {
        "img": picture(i),
        "label": i * 7 % 3,
        "text": f"ünï {i} " * (i % 5),
        "long": f"<{i}>",
        "blob": bytes(range(i)),
        "ids": rng.integers(-9, 9, i % 7).tolist(),
        "box": rng.random(4).astype("float32").tolist(),
        "boxes": rng.random((i % 4, 4)).tolist(),
        "grid": rng.integers(-99, 99, (2, 3)).tolist(),
        "flag": bool(i % 3),
        "score": float(rng.random()),
    }


def made(n=N):
    return datasets.Dataset.from_list([row(i) for i in range(n)], features=FEATURES)


def pixels(image):
    return torch.from_numpy(numpy.array(image.convert("RGB"))).permute(2, 0, 1).float() / 255


def check_images(data, name, images, labels, indices):
    assert labels.tolist() == [data[i]["label"] for i in indices.tolist()]
    for image, i in zip(images, indices.tolist()):
        assert torch.equal(image, pixels(data[i][name]))


CHANGES = {
    "made": lambda data: data,
    "shuffled": lambda data: data.shuffle(seed=3),
    "few": lambda data: data.select([5, 60, 7, 7, 0]),
    "slice": lambda data: data.select(range(10, 40)),
    "filtered": lambda data: data.filter(lambda label: label != 1, input_columns="label", keep_in_memory=True),
    "mapped": lambda data: data.map(lambda r: {"label": (r["label"] + 1) % 3}, keep_in_memory=True),
    "joined": lambda data: datasets.concatenate_datasets([data, data.select(range(9))]),
    "column": lambda data: data.add_column("more", [i / 2 for i in range(N)]),
    "renamed": lambda data: data.rename_column("text", "words"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_all_columns_are_those_of_the_package(daemon, change):
    """Pictures, classes, texts, bytes, numbers and lists of any kind, after what the package does to a table."""
    data = CHANGES[change](made())
    columns = data.column_names
    with batchd.DataLoader(data, 8, fields=tuple(columns), transform=PLAIN, arrays="torch") as loader:
        assert loader.classes == ["ant", "bee", "cat"] and len(loader.dataset) == len(data)
        seen = 0
        for batch in loader:
            for k, i in enumerate(loader.last_batch.indices.tolist()):
                want = data[i]
                for column, values in zip(columns, batch):
                    if column == "img":
                        assert torch.equal(values[k], pixels(want["img"]))
                    else:
                        got = values[k].tolist() if hasattr(values[k], "tolist") else values[k]
                        assert got == want[column], column
                seen += 1
    assert seen == len(data)


def test_images_and_labels_without_fields(daemon):
    """What a loop over pictures and classes gets, shuffled by the loader, and dtypes as those of a saved data set."""
    data = made()
    with batchd.DataLoader(data, 7, transform=PLAIN, shuffle=True) as loader:
        seen = []
        for images, labels in loader:
            check_images(data, "img", images, labels, loader.last_batch.indices)
            seen += loader.last_batch.indices.tolist()
    assert sorted(seen) == list(range(N)) and seen != list(range(N))


def test_types_are_those_of_the_saved_data_set(daemon, tmp_path):
    """The same batch, dtype for dtype, from memory and from the file that save_to_disk writes."""
    data = made().remove_columns("img")
    data.save_to_disk(tmp_path / "saved")
    batches = []
    for source in (data, datasets.load_from_disk(tmp_path / "saved")):
        with batchd.DataLoader(source, N, job=f"types{len(batches)}") as loader:
            batches += list(loader)
    for name, values in batches[0].items():
        other = batches[1][name]
        if hasattr(values, "dtype"):
            assert values.dtype == other.dtype and torch.equal(values, other), name
        else:
            assert [v if isinstance(v, (str, bytes)) else v.tolist() for v in values] == [
                v if isinstance(v, (str, bytes)) else v.tolist() for v in other
            ], name


def test_images_in_files_of_their_own(daemon, tmp_path):
    """Rows that only name their picture, beside rows that have it."""
    paths = []
    for i in range(6):
        picture(i).save(tmp_path / f"{i}.png")
        paths.append(str(tmp_path / f"{i}.png") if i % 2 else (tmp_path / f"{i}.png").read_bytes())
    images = [{"path": p, "bytes": None} if isinstance(p, str) else {"path": None, "bytes": p} for p in paths]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    data = datasets.Dataset.from_dict({"image": images, "label": range(6)}, features=features)
    with batchd.DataLoader(data, 6, transform=PLAIN) as loader:
        ((images, labels),) = loader
        check_images(data, "image", images, labels, loader.last_batch.indices)


def test_what_no_file_has_is_handed_over(daemon, tmp_path):
    """A column that was added to, and one that was cast from, a data set in files; kept in memory when it was loaded."""
    made().save_to_disk(tmp_path / "saved")
    saved = datasets.load_from_disk(tmp_path / "saved")
    more = saved.add_column("more", [i / 2 for i in range(N)]).shuffle(seed=1)
    with batchd.DataLoader(more, N, fields=("img", "more"), transform=PLAIN) as loader:
        ((images, numbers),) = loader
    assert numbers.tolist() == more["more"][:]
    assert all(torch.equal(images[i], pixels(more[i]["img"])) for i in range(N))
    cast = saved.cast_column("score", datasets.Value("float32"))
    with batchd.DataLoader(cast, N, fields=("score", "ids"), job="cast") as loader:
        ((scores, ids),) = loader
    assert scores.dtype == torch.float32 and scores.tolist() == cast["score"][:]
    assert [v.tolist() for v in ids] == cast["ids"][:]
    kept = datasets.load_from_disk(tmp_path / "saved", keep_in_memory=True)
    with batchd.DataLoader(kept, N, transform=PLAIN, job="kept") as loader:
        ((images, labels),) = loader
        check_images(kept, "img", images, labels, loader.last_batch.indices)


def test_a_daemon_that_comes_back_gets_the_table_again(make_daemon):
    """The loader goes on where it was after the daemon was killed and started again, in the data set's own order."""
    d = make_daemon()
    data = made().shuffle(seed=4)
    with batchd.DataLoader(data, 1, reconnect=60, n_slots=4, transform=PLAIN) as loader:
        batches, seen = iter(loader), []
        next(batches)
        seen += loader.last_batch.indices.tolist()
        d.kill()
        d.start()
        with pytest.warns(RuntimeWarning):
            for images, labels in batches:
                check_images(data, "img", images, labels, loader.last_batch.indices)
                seen += loader.last_batch.indices.tolist()
    assert seen == list(range(N))


def test_ranks_share_one_table_and_no_descriptor_is_left(daemon, batchctl):
    """Each rank hands over a table of its own, which are equal, in orders that are equal: one loader. Another order is
    another data set."""
    before = len(os.listdir("/proc/self/fd"))
    options = dict(batch_size=4, world_size=2, transform=PLAIN, job="shared")
    loaders = [batchd.DataLoader(made().shuffle(seed=4), rank=rank, **options) for rank in range(2)]
    assert len(json.loads(batchctl("status", "--json").stdout)["loaders"]) == 1
    iterators = [iter(loader) for loader in loaders]
    for iterator in iterators:
        next(iterator)
    with pytest.raises(batchd.MismatchError, match="dataset"):
        batchd.DataLoader(made().shuffle(seed=5), rank=1, **options)
    del iterators, iterator
    for loader in loaders:
        loader.close()
    del loaders, loader
    assert len(os.listdir("/proc/self/fd")) <= before + 1


@pytest.mark.parametrize("where", ["memory", "files"])
def test_trainers_of_equal_data_share_it_without_a_name(daemon, batchctl, tmp_path, where):
    """The name that share mode gives a job by itself follows from the content of table and rows, not from the memory that
    one process has them in."""
    made(9).save_to_disk(tmp_path / "saved")

    def data():
        return (made(9) if where == "memory" else datasets.load_from_disk(tmp_path / "saved")).shuffle(seed=4)

    loaders = [batchd.DataLoader(data(), batch_size=4, transform=PLAIN, mode="share") for _ in range(2)]
    assert len(json.loads(batchctl("status", "--json").stdout)["loaders"]) == 1
    for loader in loaders:
        loader.close()


def test_a_table_larger_than_memory_is_refused_before_it_is_copied(daemon, monkeypatch):
    """The way out is named, with the bytes; nothing has been written."""
    monkeypatch.setattr(_free_memory, "available", lambda: 1000)
    monkeypatch.setattr(os, "memfd_create", lambda *_: pytest.fail("a table is written"))
    with pytest.raises(MemoryError, match=r"\d+ bytes in the columns img, label.*save_to_disk.*load_from_disk"):
        batchd.DataLoader(made(4), 4)


def test_a_table_is_charged_to_its_user(make_daemon):
    """A table of pictures is charged as data while its loader is there, and is refused where it does not fit."""
    make_daemon("--memory", f"{64 << 20}", config="linger: 0s\n")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    noise = io.BytesIO()
    picture(0).save(noise, "png")

    def padded(n_rows):
        rows = [{"path": None, "bytes": noise.getvalue() + bytes(1 << 20)}] * n_rows
        return datasets.Dataset.from_dict({"image": rows, "label": range(n_rows)}, features=features)

    with batchd.DataLoader(padded(8), 1, transform=PLAIN, n_slots=4) as loader:
        next(iter(loader))
        own = next(u for u in batchd.status()["users"] if u["uid"] == os.getuid())
        assert 8 << 20 <= own["data_bytes"] < 10 << 20
    with pytest.raises(batchd.LimitError, match="memory"):
        batchd.DataLoader(padded(70), 1, transform=PLAIN, n_slots=4, job="large")


# ---- hostile clients ----


def stream(columns):
    out = io.BytesIO()
    table = pyarrow.table(columns)
    with pyarrow.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def memfd(content, seals=_memory.ALL_SEALS):
    fd = os.memfd_create("forged", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(fd, "wb", closefd=False) as out:
        out.write(content)
    if seals:
        fcntl.fcntl(fd, _memory.ADD_SEALS, seals)
    return fd


def hand_over(monkeypatch, fd, text="0" * 32, rows="", fields="y=y"):
    """What the daemon says to a client that sends this descriptor as its table."""
    from batchd import _hf

    spec = f"arrow:table={text}:{fd},{rows}#{fields}"
    monkeypatch.setattr(_hf, "hand_over", lambda *_: (spec, ("y",), None))
    with batchd.DataLoader(None, 1, job=f"fd{fd}{len(rows)}", arrays="numpy") as loader:
        return [batch[0].item() for batch in loader]


SEAL, SHRINK, GROW, WRITE = 1, 2, 4, 8


def test_hostile_tables_are_refused_and_the_daemon_lives(daemon, monkeypatch, tmp_path):
    """A table that is not sealed in full, cut short at every 64th byte, no table, empty, or a file is refused by name; the
    next honest client is served."""
    good = stream({"y": pyarrow.array(range(5), "int64")})
    assert hand_over(monkeypatch, memfd(good)) == list(range(5))
    for seals in (0, SHRINK, SHRINK | GROW, SHRINK | WRITE, GROW | WRITE):
        with pytest.raises(batchd.InvalidError, match="sealed against shrinking, growing and writing"):
            hand_over(monkeypatch, memfd(good, seals))
    (tmp_path / "file").write_bytes(good)
    with open(tmp_path / "file", "rb") as file, pytest.raises(batchd.InvalidError, match="sealed"):
        hand_over(monkeypatch, os.dup(file.fileno()))
    for n in range(64, len(good) - 8, 64):
        with pytest.raises(batchd.Error, match="table in memory"):
            hand_over(monkeypatch, memfd(good[:n]))
    for content in (b"", b"nothing", bytes(4096), b"ARROW1\0\0" + bytes(64)):
        with pytest.raises(batchd.Error, match="table in memory"):
            hand_over(monkeypatch, memfd(content))
    rows = memfd(numpy.array([9], "<u8").tobytes())
    with pytest.raises(batchd.Error, match="row 9, and the files have 5 rows"):
        hand_over(monkeypatch, memfd(good), rows=f"rows=00:{rows},")
    assert hand_over(monkeypatch, memfd(good)) == list(range(5))


def test_a_forged_hash_gets_its_sender_no_other_table(daemon, monkeypatch):
    """Another table under the hash of one that is open joins that job, as a rank of it, and sees what the job has; alone
    it is a data set of its own, whose pixels are not another's."""
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    monkeypatch.setattr(_hf_memory, "_digest", lambda fd: "0" * 32)
    for k in range(2):
        data = datasets.Dataset.from_dict({"image": [picture(k)] * 3, "label": range(3)}, features=features)
        with batchd.DataLoader(data, 3, transform=PLAIN, job=f"forged{k}") as loader:
            for epoch in range(2):
                for images, _ in loader:
                    assert torch.equal(images[0], pixels(picture(k)))

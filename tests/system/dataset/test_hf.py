"""HuggingFace data sets: the samples that the `datasets` package itself gives, read from its files by the daemon."""

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

N = 61
PLAIN = [["CenterCrop", [24, 20]], "ToTensor"]


@pytest.fixture(autouse=True)
def quiet(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


def picture(i):
    return Image.fromarray(numpy.random.default_rng(i).integers(0, 256, (24, 20, 3), dtype=numpy.uint8))


FEATURES = datasets.Features(
    {
        "img": datasets.Image(),
        "label": datasets.ClassLabel(names=["ant", "bee", "cat"]),
        "text": datasets.Value("string"),
        "blob": datasets.Value("large_binary"),
        "box": datasets.List(datasets.Value("float32"), length=4),
        "ids": datasets.List(datasets.Value("int32")),
        "boxes": datasets.List(datasets.List(datasets.Value("float32"), length=4)),
        "grid": datasets.Array2D((2, 3), "int16"),
        "flag": datasets.Value("bool"),
        "score": datasets.Value("float64"),
        "half": datasets.Value("float16"),
        "small": datasets.Value("uint8"),
        "flags": datasets.List(datasets.Value("bool"), length=11),
    }
)


def row(i):
    rng = numpy.random.default_rng(1000 + i)
    return {
        "img": picture(i),
        "label": i * 7 % 3,
        "text": f"ünï {i} " * (i % 5),
        "blob": bytes(range(i)),
        "box": rng.random(4).astype("float32").tolist(),
        "ids": rng.integers(-9, 9, i % 7).tolist(),
        "boxes": rng.random((i % 4, 4)).astype("float32").tolist(),
        "grid": rng.integers(-99, 99, (2, 3)).tolist(),
        "flag": bool(i % 3),
        "score": i / 7,
        "half": numpy.float16(i / 3),
        "small": i * 4 % 256,
        "flags": (rng.random(11) < 0.5).tolist(),
    }


@pytest.fixture
def saved(tmp_path):
    """The rows in three files."""
    made = datasets.Dataset.from_list([row(i) for i in range(N)], features=FEATURES)
    made.save_to_disk(tmp_path / "saved", num_shards=3)
    return datasets.load_from_disk(tmp_path / "saved")


def pixels(sample):
    return torch.from_numpy(numpy.asarray(sample["img"].convert("RGB")).copy()).permute(2, 0, 1).float() / 255


def check(data, images, labels, indices):
    """A batch against the package's own rows."""
    for image, label, i in zip(images, labels.tolist(), indices.tolist()):
        sample = data[i]
        assert label == sample["label"]
        assert torch.equal(image, pixels(sample))


CHANGES = {
    "plain": lambda d: d,
    "shuffle": lambda d: d.shuffle(seed=3),
    "slice": lambda d: d.select(range(13, 47)),
    "choice": lambda d: d.select([5, 60, 0, 5, 31, 5]),
    "filter": lambda d: d.filter(lambda r: r["label"] != 1),
    "split": lambda d: d.train_test_split(0.3, seed=1)["test"],
    "shard": lambda d: d.shard(4, 2, contiguous=False),
    "sort": lambda d: d.sort("score", reverse=True),
    "twice": lambda d: datasets.concatenate_datasets([d.select(range(3, 9)), d.shuffle(seed=8), d]),
    "columns": lambda d: d.remove_columns(["ids", "score"]).shuffle(seed=1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_samples_are_those_of_the_package(daemon, saved, change):
    """Pixels, labels and order, whatever was selected, shuffled, filtered or concatenated."""
    data = CHANGES[change](saved)
    with batchd.DataLoader(data, 8, transform=PLAIN) as loader:
        assert loader.classes == ["ant", "bee", "cat"] and len(loader.dataset) == len(data)
        seen = []
        for images, labels in loader:
            indices = loader.last_batch.indices
            check(data, images, labels, indices)
            seen += indices.tolist()
    assert seen == list(range(len(data)))


def test_fields_of_every_type(daemon, saved):
    """Every column as a field, with the package's values; integers of one a row are int64, others keep their types."""
    data = saved.shuffle(seed=2)
    wanted = {name: name for name in FEATURES if name != "img"}
    seen = 0
    with batchd.DataLoader(
        data, 10, fields={"pixel_values": "img", **wanted}, transform=PLAIN, arrays="numpy"
    ) as loader:
        for batch in loader:
            for k, i in enumerate(loader.last_batch.indices.tolist()):
                sample = data[i]
                seen += 1
                assert (batch["pixel_values"][k] == pixels(sample).numpy()).all()
                assert batch["text"][k] == sample["text"] and batch["blob"][k] == sample["blob"]
                for name in ("box", "ids", "boxes", "grid", "flag", "score", "half", "small", "flags", "label"):
                    expected = numpy.asarray(sample[name])
                    assert numpy.array_equal(batch[name][k], expected.reshape(batch[name][k].shape)), (name, i)
        kinds = {name: (f.dtype, f.shape, f.ragged) for name, f in loader.fields.items()}
    assert seen == N
    assert {
        ("float32", (4,), False), ("int32", (), True), ("float32", (4,), True), ("int16", (2, 3), False),
        ("bool", (), False), ("float64", (), False), ("float16", (), False), ("int64", (), False), ("bool", (11,), False),
    } <= set(kinds.values())  # fmt: skip


@pytest.mark.parametrize("world", [1, 2, 3])
def test_exactly_once_on_any_number_of_ranks(daemon, saved, world):
    """The order of DistributedSampler over the data set; every sample comes."""
    data = saved.train_test_split(0.4, seed=5)["train"]
    seen = set()
    for rank in range(world):
        sampler = torch.utils.data.DistributedSampler(data, world, rank, shuffle=True, seed=4)
        sampler.set_epoch(1)
        with batchd.DataLoader(
            data, 4, shuffle=True, seed=4, transform=PLAIN, rank=rank, world_size=world, job="hf"
        ) as loader:
            loader.set_epoch(1)
            got = []
            for images, labels in loader:
                check(data, images, labels, loader.last_batch.indices)
                got += loader.last_batch.indices.tolist()
        assert got == list(sampler)
        seen.update(got)
    assert seen == set(range(len(data)))


def test_resume_with_another_world_size(daemon, saved):
    """Two ranks take three batches each; three ranks go on from their token and take the rest, each once."""
    data = saved.shuffle(seed=9)
    options = dict(batch_size=4, shuffle=True, seed=1, transform=PLAIN)
    loaders = [batchd.DataLoader(data, rank=r, world_size=2, job="two", **options) for r in range(2)]
    seen, states = [], []
    for loader in loaders:
        batches = iter(loader)
        for _ in range(3):
            images, labels = next(batches)
            check(data, images, labels, loader.last_batch.indices)
            seen += loader.last_batch.indices.tolist()
        states.append(loader.state_dict())
    for loader in loaders:
        loader.close()
    rest = []
    for r in range(3):
        with batchd.DataLoader(data, rank=r, world_size=3, job="three", **options) as loader:
            loader.load_state_dict(states[0])
            for images, labels in loader:
                b = loader.last_batch
                check(data, images, labels, b.indices)
                rest += b.indices.tolist()[: b.n_rows - b.n_padding]
    assert sorted(seen + rest) == list(range(N))


def test_files_as_the_package_caches_them(daemon, tmp_path):
    """A data set from a generator (IPC streams in the cache), and what map has written of it, by name and as a file."""

    def make():
        for i in range(30):
            yield {"image": picture(i), "label": i % 2, "text": str(i)}

    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(2), "text": datasets.Value("string")}
    )
    data = datasets.Dataset.from_generator(make, features=features, cache_dir=str(tmp_path / "made"))
    data = data.map(lambda r: {"text": r["text"] + "!"}).rename_column("text", "caption")
    with batchd.DataLoader(data, 30, fields=("image", "caption"), transform=PLAIN) as loader:
        ((images, captions),) = loader
    assert captions == [f"{i}!" for i in range(30)]
    assert torch.equal(images[7], pixels({"img": picture(7)}))
    (file,) = data.cache_files
    with batchd.DataLoader(f"arrow:{file['filename']}", 30, fields={"x": "image", "t": "text"}) as loader:
        (batch,) = loader
    assert batch["t"] == captions and batch["x"].shape == (30, 3, 224, 224)


def test_ipc_files_and_sizes_of_batches(daemon, tmp_path):
    """The file format, with its footer, in one batch and in many, and a folder of them."""
    table = pyarrow.table(
        {"label": list(range(100)), "text": pyarrow.array([f"t{i}" for i in range(100)], pyarrow.large_string())}
    )
    for k, size in enumerate((100, 7)):
        with pyarrow.ipc.new_file(tmp_path / f"{k}.arrow", table.schema) as out:
            out.write_table(table, max_chunksize=size)
    with batchd.DataLoader(f"arrow:{tmp_path}", 200, fields=("label", "text")) as loader:
        ((labels, texts),) = loader
    assert labels.tolist() == 2 * list(range(100)) and texts == 2 * [f"t{i}" for i in range(100)]


def test_images_in_files_of_their_own(daemon, tmp_path):
    """load_dataset("imagefolder"): the Arrow file has paths. A missing file is replaced and named."""
    for i in range(12):
        folder = tmp_path / "pictures" / ("cat" if i % 2 else "dog")
        folder.mkdir(parents=True, exist_ok=True)
        picture(i).save(folder / f"{i}.png")
    data = datasets.load_dataset("imagefolder", data_dir=str(tmp_path / "pictures"), split="train")
    data = data.shuffle(seed=1)
    with batchd.DataLoader(data, 5, transform=PLAIN) as loader:
        seen = 0
        assert loader.classes == ["cat", "dog"]
        for images, labels in loader:
            for image, label, i in zip(images, labels.tolist(), loader.last_batch.indices.tolist()):
                assert label == data[i]["label"]
                assert torch.equal(image, pixels({"img": data[i]["image"]}))
                seen += 1
    assert seen == 12
    os.unlink(data[3]["image"].filename)
    with batchd.DataLoader(data, 12, transform=PLAIN, job="missing") as loader:
        with pytest.raises(batchd.Error, match=r"\.png"):
            next(iter(loader))


def test_texts_and_numbers_without_images(daemon, tmp_path):
    """All columns, as a dictionary; with_format chooses among them."""
    data = datasets.Dataset.from_list([{"ids": list(range(i % 5)), "text": f"<{i}>", "y": i / 2} for i in range(20)])
    data.save_to_disk(tmp_path / "text")
    data = datasets.load_from_disk(tmp_path / "text").shuffle(seed=1)
    with batchd.DataLoader(data, 20) as loader:
        (batch,) = loader
    assert batch["text"] == data["text"][:] and batch["y"].tolist() == data["y"][:]
    assert [v.tolist() for v in batch["ids"]] == data["ids"][:]
    with batchd.DataLoader(data.with_format("torch", columns=["text"]), 20, job="chosen") as loader:
        (batch,) = loader
    assert batch == {"text": data["text"][:]}


def test_output_all_columns_are_the_packages(daemon):
    """The columns of the format first, then all others, as the package's own rows have them."""
    data = datasets.Dataset.from_dict({"s": ["p", "q"], "a": [1, 2], "b": [0.5, 1.5]})
    for format in ({"columns": ["a"], "output_all_columns": True}, {"columns": ["b", "a"]}):
        formatted = data.with_format("numpy", **format)
        with batchd.DataLoader(formatted, 2, arrays="numpy", job=str(format)) as loader:
            (batch,) = loader
        wanted = formatted[:]
        assert list(batch) == list(wanted)
        assert all(list(batch[name]) == list(wanted[name]) for name in batch)


def test_arguments_of_a_format_are_not_left_out(daemon):
    """The package makes float16 of it; here columns keep their types, so the argument is refused by name."""
    data = datasets.Dataset.from_dict({"a": [0.5, 1.5]}).with_format("torch", dtype=torch.float16)
    assert data[0]["a"].dtype == torch.float16
    with pytest.raises(TypeError, match=r"dtype=torch.float16.*cast_column.*with_format\('torch'\)"):
        batchd.DataLoader(data, 2)


class Negative(datasets.Dataset):
    def __getitem__(self, key):
        return {name: -value for name, value in super().__getitem__(key).items()}


class Backwards(datasets.Dataset):
    def __iter__(self):
        return reversed(list(super().__iter__()))


class Named(datasets.Dataset):
    """Changes no sample."""

    name = "mine"


def test_what_a_subclass_does_is_not_left_out(daemon):
    """A class with a method of its own is refused by its name; one that changes no sample is read."""
    table = datasets.Dataset.from_dict({"a": [1, 2]}).data
    assert Negative(table)[0] == {"a": -1}
    for kind, method in ((Negative, "__getitem__"), (Backwards, "__iter__")):
        with pytest.raises(TypeError, match=f"{kind.__name__} object, .* a {method} of its own.*batchd.serve"):
            batchd.DataLoader(kind(table), 2)
    with batchd.DataLoader(Named(table), 2) as loader:
        assert next(iter(loader))["a"].tolist() == [1, 2]


def test_numbers_in_memory_are_handed_over(daemon):
    """A data set that has no file: its columns are handed over as a table."""
    data = datasets.Dataset.from_dict({"x": [[i, i + 1] for i in range(9)], "y": list(range(9)), "t": ["a"] * 9})
    with batchd.DataLoader(data, 9, fields=("x", "y")) as loader:
        ((x, y),) = loader
    assert [v.tolist() for v in x] == data["x"][:] and y.tolist() == data["y"][:]


def test_nulls_in_memory_are_refused(daemon):
    """Such a row would become NaN, and whole numbers beside it floats; a filter that leaves it out is enough."""
    data = datasets.Dataset.from_dict({"y": [1, 2, None, 4]})
    with pytest.raises(batchd.Error, match="column y is null in row 2"):
        batchd.DataLoader(data, 2)
    with batchd.DataLoader(data.filter(lambda r: r["y"] is not None), 3) as loader:
        (batch,) = loader
    assert batch["y"].tolist() == [1, 2, 4]


def test_nulls_are_refused_unless_no_sample_has_them(daemon, tmp_path):
    """The row is named; a filter that leaves such rows out is enough."""
    rows = [{"y": i, "text": None if i == 6 else str(i)} for i in range(12)]
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "nulls")
    data = datasets.load_from_disk(tmp_path / "nulls")
    with pytest.raises(batchd.Error, match="column text is null in row 6"):
        batchd.DataLoader(data, 4)
    data = data.filter(lambda r: r["text"] is not None)
    with batchd.DataLoader(data, 11, job="without") as loader:
        (batch,) = loader
    assert batch["text"] == data["text"][:]


def test_a_daemon_that_comes_back_gets_the_rows_again(make_daemon, saved):
    """The loader goes on where it was after the daemon was killed and started again, in the data set's own order."""
    d = make_daemon()
    data = saved.shuffle(seed=4)
    with batchd.DataLoader(data, 1, reconnect=60, n_slots=4, transform=PLAIN) as loader:
        batches, seen = iter(loader), []
        next(batches)
        seen += loader.last_batch.indices.tolist()
        d.kill()
        d.start()
        with pytest.warns(RuntimeWarning):
            for images, labels in batches:
                check(data, images, labels, loader.last_batch.indices)
                seen += loader.last_batch.indices.tolist()
    assert seen == list(range(N))


def test_ranks_share_one_job_and_no_descriptor_is_left(daemon, saved, batchctl):
    """Each rank sends rows of its own, which are equal: one loader. Other rows are another data set."""
    data = saved.shuffle(seed=4)
    before = len(os.listdir("/proc/self/fd"))
    options = dict(batch_size=4, world_size=2, job="shared", transform=PLAIN)
    loaders = [batchd.DataLoader(data.select(range(N)), rank=rank, **options) for rank in range(2)]
    assert len(json.loads(batchctl("status", "--json").stdout)["loaders"]) == 1
    with pytest.raises(batchd.MismatchError, match="dataset"):
        batchd.DataLoader(saved.shuffle(seed=5), rank=1, **options)
    for loader in loaders:
        next(iter(loader))
        loader.close()
    del loaders, loader
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_rows_of_arrays_are_pictures_for_a_transform(daemon, tmp_path):
    """An Array3D of uint8 goes through a pipeline as pictures in memory do."""
    features = datasets.Features({"x": datasets.Array3D((9, 8, 3), "uint8"), "y": datasets.Value("int64")})
    x = numpy.random.default_rng(0).integers(0, 256, (11, 9, 8, 3), dtype=numpy.uint8)
    datasets.Dataset.from_dict({"x": list(x), "y": list(range(11))}, features=features).save_to_disk(tmp_path / "a")
    data = datasets.load_from_disk(tmp_path / "a")
    with batchd.DataLoader(data, 11, fields=("x", "y"), transform=["ToTensor"]) as loader:
        ((images, labels),) = loader
    assert labels.tolist() == list(range(11))
    assert torch.equal(images, torch.from_numpy(x).permute(0, 3, 1, 2).float() / 255)
    with batchd.DataLoader(data, 11, fields=("x",), arrays="numpy", job="plain") as loader:
        ((rows,),) = loader
    assert (rows == x).all()


def test_bytes_that_are_cast_to_images(daemon, tmp_path):
    """A binary column of encoded pictures after cast_column(Image()), named by the default and by fields."""

    def encoded(i):
        picture(i).save(tmp_path / f"{i}.png")
        return (tmp_path / f"{i}.png").read_bytes()

    rows = [{"png": encoded(i), "label": i} for i in range(7)]
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "bytes")
    data = datasets.load_from_disk(tmp_path / "bytes").cast_column("png", datasets.Image())
    for options in ({}, {"fields": {"a": "png", "b": "label"}}):
        with batchd.DataLoader(data, 7, transform=PLAIN, job=str(len(options)), **options) as loader:
            (batch,) = loader
        images, labels = batch.values() if isinstance(batch, dict) else batch
        assert labels.tolist() == list(range(7))
        assert all(torch.equal(images[i], pixels({"img": data[i]["png"]})) for i in range(7))
    with batchd.DataLoader(data, 7, fields=("png", "label"), transform=PLAIN, job="table") as loader:
        ((images, labels),) = loader
    assert labels.tolist() == list(range(7))
    assert all(torch.equal(images[i], pixels({"img": data[i]["png"]})) for i in range(7))


def test_long_class_names_are_cut(daemon, tmp_path):
    """As many bytes as a folder's name may have, between characters; through the package's object they are whole."""
    names = ["a" * 255, "b" * 256, "x" + "ü" * 127, "x" + "ü" * 128, "c" * 70000, "€" * 90]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=names)})
    data = datasets.Dataset.from_dict({"image": [picture(0)], "label": [5]}, features=features)
    data.save_to_disk(tmp_path / "long")
    with batchd.DataLoader(f"arrow:{tmp_path / 'long'}", 1) as loader:
        assert loader.classes == [n.encode()[:255].decode(errors="ignore") for n in names]
    with batchd.DataLoader(datasets.load_from_disk(tmp_path / "long"), 1, job="whole") as loader:
        assert loader.classes == names


def refusal(data, kind=(TypeError, ValueError, batchd.Error), **options):
    with pytest.raises(kind) as caught:
        batchd.DataLoader(data, 4, **options)
    return str(caught.value)


def test_refusals_say_what_to_do(daemon, saved):
    """What cannot be read from the files by the daemon is refused by name."""
    assert "IterableDataset" in refusal(saved.to_iterable_dataset())
    assert "dataset['train']" in refusal(saved.train_test_split(0.5))
    assert "with_format(None)" in refusal(saved.with_transform(lambda rows: rows))
    assert "img (Image), " in refusal(saved.remove_columns("label"))
    assert "'nothing'" in refusal(saved, fields=("nothing",))
    assert "rename_column" in refusal(saved.rename_column("text", "a,b"), fields=("a,b",))
    nested = datasets.Features({"t": datasets.List(datasets.Value("string"))})
    folder = os.path.dirname(saved.cache_files[0]["filename"]) + "-nested"
    datasets.Dataset.from_dict({"t": [["a"], []]}, features=nested).save_to_disk(folder)
    assert "column t has lists of string" in refusal(datasets.load_from_disk(folder))


def test_a_column_of_another_mode_is_read_in_that_mode_or_refused(daemon, saved):
    """What the package converts to grey is never read in colours."""
    grey = saved.cast_column("img", datasets.Image(mode="L"))
    with pytest.raises(ValueError, match=r"column 'img' is Image\(mode='L'\): .*image_mode='L'"):
        batchd.DataLoader(grey, 8, fields=("img",), transform=PLAIN, socket=daemon.socket)
    for column, mode in ((grey, "L"), (saved.cast_column("img", datasets.Image(mode="RGB")), None)):
        loader = batchd.DataLoader(
            column, 8, fields=("img",), transform=PLAIN[:1], image_mode=mode, dtype="uint8", socket=daemon.socket
        )
        wanted = numpy.stack([numpy.asarray(column[i]["img"]) for i in range(8)])
        got = next(iter(loader))[0].numpy()
        numpy.testing.assert_array_equal(got, wanted[:, None] if mode else wanted.transpose(0, 3, 1, 2))
        loader.close()


@pytest.mark.parametrize("mode", ["YCbCr", "CMYK", "HSV", "RGBA", "1"])
def test_a_mode_that_cannot_be_read_is_answered_by_what_works(daemon, saved, mode):
    """image_mode takes none of these, so the error does not name it; the cast that it names gives RGB."""
    with pytest.raises(ValueError) as error:
        batchd.DataLoader(saved.cast_column("img", datasets.Image(mode=mode)), 8)
    assert "image_mode" not in str(error.value) and "to get RGB instead" in str(error.value)
    cast = saved.cast_column("img", datasets.Image())
    with batchd.DataLoader(cast, 8, transform=PLAIN) as loader:
        images, labels = next(iter(loader))
        check(saved, images, labels, loader.last_batch.indices)


def test_verify_preview_and_last_batch(daemon, batchctl, saved, tmp_path):
    """The tools read the files by the same name as a configured data set does."""
    folder = os.path.dirname(saved.cache_files[0]["filename"])
    assert f"all {N} files are good" in batchctl("verify", f"arrow:{folder}").stdout
    batchctl("preview", "--out", str(tmp_path / "sheet.png"), f"arrow:{folder}")
    assert Image.open(tmp_path / "sheet.png").size[0] > 100
    with batchd.DataLoader(f"arrow:{folder}", 5, transform=PLAIN, shuffle=True) as loader:
        images, labels = next(iter(loader))
        check(saved, images, labels, loader.last_batch.indices)
        assert loader.classes == ["ant", "bee", "cat"]


def test_a_configuration_names_the_folder_of_images(make_daemon, tmp_path):
    """Proves images= in a source of batchd.yaml, which a configuration needs as no package says where the images lie."""
    for i in range(4):
        picture(i).save(tmp_path / f"{i}.png")
    paths = [str(tmp_path / f"{i}.png") for i in range(4)]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    datasets.Dataset.from_dict({"image": paths, "label": range(4)}, features=features).save_to_disk(tmp_path / "saved")
    source = f"arrow:images={tmp_path},{tmp_path}/saved"
    make_daemon(config=f"datasets:\n  - name: pictures\n    source: '{source}'\n")
    with batchd.DataLoader("pictures", 4, transform=PLAIN, dtype="uint8", layout="NHWC") as loader:
        images, labels = next(iter(loader))
        assert labels.tolist() == [0, 1, 2, 3]
        assert all((images[i].numpy() == numpy.asarray(picture(i))).all() for i in range(4))


def test_lists_of_small_numbers_are_arrays(daemon, tmp_path):
    """Proves that a list of uint8 is an array, in memory and in a file, and that binary stays bytes."""
    features = datasets.Features(
        {"m": datasets.List(datasets.Value("uint8")), "b": datasets.Value("binary"), "t": datasets.Value("string")}
    )
    data = datasets.Dataset.from_dict(
        {"m": [[1, 0], [0, 0, 0]], "b": [b"\1\0", b""], "t": ["a", "b"]}, features=features
    )
    data.save_to_disk(tmp_path / "d")
    for each in (data, datasets.load_from_disk(str(tmp_path / "d"))):
        with batchd.DataLoader(each, batch_size=2, arrays="numpy") as loader:
            batch = next(iter(loader))
        assert all(isinstance(row, numpy.ndarray) and row.dtype == numpy.uint8 for row in batch["m"])
        assert [row.tolist() for row in batch["m"]] == data["m"][:]
        assert batch["b"] == data["b"][:] and batch["t"] == data["t"][:]


def test_a_null_in_a_list_names_its_column(daemon):
    data = datasets.Dataset.from_dict({"boxes": [[1, None], [2]]})
    with pytest.raises(batchd.Error, match="column boxes: a list has a null"):
        batchd.DataLoader(data, batch_size=2)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_turned_as_the_package_turns_them(daemon, tmp_path, format, orientation):
    """Proves the pixels of data[i]["image"] for every orientation, in memory, from a file, and by the file's name; and
    that apply_exif=False leaves them as they lie."""
    exif = Image.Exif()
    exif[0x112] = orientation
    out = io.BytesIO()
    lossless = {"lossless": True} if format == "WEBP" else {}
    Image.fromarray(numpy.random.default_rng(0).integers(0, 256, (20, 28, 3), dtype=numpy.uint8)).save(
        out, format, exif=exif, **lossless
    )
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["x"])})
    data = datasets.Dataset.from_list(
        [{"image": {"bytes": out.getvalue(), "path": None}, "label": 0}] * 2, features=features
    )
    data.save_to_disk(tmp_path / "d")
    options = dict(batch_size=2, transform=[["CenterCrop", [16, 12]]], dtype="uint8", layout="NHWC", arrays="numpy")
    crop = center_of(data[0]["image"].convert("RGB"))
    lying = center_of(Image.open(io.BytesIO(out.getvalue())).convert("RGB"))
    for each in (data, datasets.load_from_disk(str(tmp_path / "d")), f"arrow:{tmp_path}/d#image=image,label=label"):
        assert (picture_of(each, **options) == crop).all()
        assert (picture_of(each, apply_exif=True, **options) == crop).all()
        assert (picture_of(each, apply_exif=False, **options) == lying).all()


def center_of(image):
    left, top = (image.width - 12) // 2, (image.height - 16) // 2
    return numpy.asarray(image.crop((left, top, left + 12, top + 16)))


def picture_of(data, **options):
    with batchd.DataLoader(data, **options) as loader:
        batch = next(iter(loader))
    return (batch["image"] if isinstance(batch, dict) else batch[0])[1]


def test_a_list_of_turned_and_other_pictures_wants_a_word(daemon, samples, tmp_path):
    """Proves that neither part is turned, or left, in silence."""
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    out = io.BytesIO()
    picture(0).save(out, "PNG")
    data = datasets.Dataset.from_list(
        [{"image": {"bytes": out.getvalue(), "path": None}, "label": 0}], features=features
    )
    data.save_to_disk(tmp_path / "d")
    parts = [f"arrow:{tmp_path}/d#image=image,label=label", f"imagefolder:{samples}"]
    with pytest.raises(batchd.InvalidError, match="apply_exif=True or apply_exif=False"):
        batchd.DataLoader(parts, 2, transform="val224")
    for turned in (True, False):
        batchd.DataLoader(parts, 2, transform="val224", apply_exif=turned).close()


def test_a_file_without_images_gives_all_columns(daemon, tmp_path):
    """Proves of arrow: what the guide says of the package's data sets."""
    data = datasets.Dataset.from_dict({"t": ["a", "b"], "n": [1, 2]})
    data.save_to_disk(tmp_path / "d")
    for each in (data, f"arrow:{tmp_path}/d"):
        with batchd.DataLoader(each, batch_size=2, arrays="numpy") as loader:
            batch = next(iter(loader))
        assert batch["t"] == ["a", "b"] and batch["n"].tolist() == [1, 2]

"""Arrays of pictures through pipelines, MNIST's and CIFAR's files: pixels and labels as torchvision's own data sets and
transforms give them."""

import gzip
import pickle
import struct

import numpy
import pytest

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")

import batchd  # noqa: E402
import vision  # noqa: E402

try:
    torchvision = vision.import_torchvision()
except ImportError:
    pytest.skip("no torchvision", allow_module_level=True)
v2 = torchvision.transforms.v2

N = 37
TO_TENSOR = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]


def pictures(*shape):
    return numpy.random.default_rng(7).integers(0, 256, shape, dtype="uint8")


def theirs(transform, array):
    """torchvision's result for one picture, through Pillow."""
    return transform(Image.fromarray(array, "L" if array.ndim == 2 else "RGB"))


# Deterministic: equal pixels can be asked for.
CHAINS = {
    "ToTensor": [],
    "Resize": [v2.Resize((24, 30))],
    "Resize one edge": [v2.Resize(40)],
    "CenterCrop": [v2.CenterCrop(20)],
    "Pad": [v2.Pad(3, fill=7)],
    "Pad that crops": [v2.Pad((-2, 3, 1, -4), padding_mode="reflect")],
    "flip": [v2.RandomHorizontalFlip(1.0), v2.RandomVerticalFlip(1.0)],
    "crop that flips": [v2.CenterCrop((20, 18)), v2.RandomVerticalFlip(1.0)],
    "crop to a mirror image": [v2.CenterCrop((20, 18)), v2.RandomHorizontalFlip(1.0)],
    "Grayscale": [v2.Grayscale(1)],
    "Grayscale 3": [v2.Grayscale(3)],
}


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("form", ["HWC", "CHW", "HW", "HW1"])
def test_pixels_are_torchvisions(daemon, form, chain):
    """Colour pictures either way round and grey ones, on which the channel count follows torchvision's."""
    hwc = pictures(N, 32, 28, 3) if form in ("HWC", "CHW") else pictures(N, 32, 28)
    given = hwc.transpose(0, 3, 1, 2) if form == "CHW" else hwc[..., None] if form == "HW1" else hwc
    ops = v2.Compose([*CHAINS[chain], v2.ToTensor()])
    labels = numpy.arange(N) % 10
    with batchd.DataLoader((given, labels), batch_size=N, transform=ops) as loader:
        ((got, classes),) = loader
    expected = torch.stack([theirs(ops, picture) for picture in hwc])
    assert got.shape == expected.shape and got.dtype == expected.dtype
    assert torch.equal(got, expected) and (classes.numpy() == labels).all()


def test_mnists_recipe(daemon):
    """One channel, one mean and one deviation."""
    images = pictures(N, 28, 28)
    ops = v2.Compose([v2.ToTensor(), v2.Normalize((0.1307,), (0.3081,))])
    with batchd.DataLoader((images, numpy.arange(N)), batch_size=N, transform=ops) as loader:
        ((got, _),) = loader
    assert got.shape == (N, 1, 28, 28)
    assert torch.equal(got, torch.stack([theirs(ops, i) for i in images]))
    with pytest.raises(batchd.InvalidError, match="one channel|mean"):
        batchd.DataLoader(
            (images, numpy.arange(N)), transform=v2.Compose([v2.ToTensor(), v2.Normalize([0.5] * 3, [0.5] * 3)])
        )


def test_random_ops_draw_for_each_sample_and_repeat(daemon):
    """CIFAR's training recipe: each crop is one of those that padding allows; the same epoch gives the same pixels, on
    any number of ranks."""
    images = pictures(N, 3, 32, 32)
    ops = v2.Compose([v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip(), v2.ToTensor()])
    got = {}
    for world in (1, 3):
        rows = {}
        for rank in range(world):
            with batchd.DataLoader(
                (images, numpy.arange(N)),
                batch_size=5,
                transform=ops,
                shuffle=True,
                rank=rank,
                world_size=world,
                job="c",
            ) as loader:
                for x, y in loader:
                    rows.update(zip(y.tolist(), x.clone()))
        got[world] = rows
    assert got[1].keys() == got[3].keys() == set(range(N))
    assert all(torch.equal(got[1][i], got[3][i]) for i in range(N))
    padded = numpy.pad(images, ((0, 0), (0, 0), (4, 4), (4, 4)))
    places = set()
    for i in range(N):
        row = (got[1][i].numpy() * 255).round().astype("uint8")
        found = [
            (y, x, flip)
            for y in range(9)
            for x in range(9)
            for flip in (False, True)
            if (padded[i, :, y : y + 32, x : x + 32][..., :: -1 if flip else 1] == row).all()
        ]
        assert len(found) == 1
        places.add(found[0])
    assert len(places) > N // 2


def test_arrays_that_are_no_pictures_say_why(daemon):
    for array, words in (
        (numpy.zeros((4, 3, 8, 8), "float32"), "float32 of 3 x 8 x 8"),
        (numpy.zeros((4, 8, 8, 4), "uint8"), "uint8 of 8 x 8 x 4"),
        (numpy.zeros(4, "uint8"), "one number"),
    ):
        with pytest.raises(batchd.InvalidError, match=words):
            batchd.DataLoader((array, numpy.arange(4)), transform=["ToTensor"])


def test_a_file_cut_short_is_bad_data(make_daemon, tmp_path):
    """Rows of a file that has shrunk are bad samples, with its name; too many of them end the loader."""
    make_daemon()
    numpy.save(tmp_path / "x.npy", pictures(4000, 32, 32, 3))
    with batchd.DataLoader(f"npy:{tmp_path}/x.npy", batch_size=8, transform=["ToTensor"], n_slots=2) as loader:
        it = iter(loader)
        next(it)
        with open(tmp_path / "x.npy", "r+b") as f:
            f.truncate(5000)
        with pytest.raises(batchd.BadDataError, match="x.npy: the file has become shorter"):
            for _ in it:
                pass


# ---- MNIST ----


def idx_bytes(array):
    codes = {"uint8": 8, "int8": 9, "int16": 0x0B, "float32": 0x0D}
    big = array.astype(array.dtype.newbyteorder(">"))
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, codes[array.dtype.name], array.ndim, *array.shape) + big.tobytes()


@pytest.fixture
def mnist(tmp_path):
    """A root for torchvision.datasets.MNIST, with both kinds of file."""
    images, labels = pictures(N, 28, 28), numpy.random.default_rng(1).integers(0, 10, N, dtype="uint8")
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part in ("train", "t10k"):
        for name, array in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
            (raw / f"{part}-{name}").write_bytes(idx_bytes(array))
            (raw / f"{part}-{name}.gz").write_bytes(gzip.compress(idx_bytes(array)))
    return tmp_path


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_mnists_files(daemon, mnist, ending):
    ops = v2.Compose([v2.ToTensor(), v2.Normalize((0.1307,), (0.3081,))])
    data = torchvision.datasets.MNIST(mnist, train=True, transform=ops)
    raw = mnist / "MNIST" / "raw"
    spec = f"idx:{raw}/train-images-idx3-ubyte{ending},{raw}/train-labels-idx1-ubyte{ending}"
    with batchd.DataLoader(spec, batch_size=8, transform=ops) as loader:
        rows = [(x.clone(), y.clone()) for x, y in loader]
    images, labels = torch.cat([x for x, _ in rows]), torch.cat([y for _, y in rows])
    assert len(images) == len(data) == N
    assert torch.equal(images, torch.stack([data[i][0] for i in range(N)]))
    assert labels.tolist() == [data[i][1] for i in range(N)] and labels.dtype == torch.int64
    with batchd.DataLoader(spec, batch_size=N) as loader:  # without a transform: as stored
        ((images, _),) = loader
    assert torch.equal(images, data.data)


def test_idx_takes_two_files_at_most(daemon, tmp_path):
    (tmp_path / "x").write_bytes(idx_bytes(pictures(N, 28, 28)))
    with pytest.raises(batchd.InvalidError, match="expected one file, or two: images and, after a comma, labels"):
        batchd.DataLoader("idx:" + ",".join([f"{tmp_path}/x"] * 3))


def test_damaged_idx_files_are_named(daemon, tmp_path):
    """Headers that lie, compressed or not: huge, cut short, too long, of another type; a bomb is refused by what its
    header says, or by what it inflates to."""
    good = idx_bytes(pictures(N, 28, 28))
    cases = {
        "cut short": good[:-1],
        "header promises": struct.pack(">BBBBII", 0, 0, 8, 2, 2**32 - 1, 2**20) + bytes(100),
        "product is too large": struct.pack(">BBBBIII", 0, 0, 8, 3, *[2**32 - 1] * 3),
        "int16": idx_bytes(numpy.zeros((3, 2), "int16")),
        "type 0x07": b"\0\0\7\1" + bytes(8),
        "not an IDX file": b"PNG" + bytes(60),
        "the file ends in it": b"\0\0\x08\x03\0\0",
        "more than 9 dimensions": b"\0\0\x08\xff" + bytes(1020),
        "no sample": struct.pack(">BBBBI", 0, 0, 8, 1, 0),
        "a single number": b"\0\0\x08\0\1",
    }
    compressed = {
        "cut short": gzip.compress(good)[:-20],
        "to less than": gzip.compress(good[:-1]),
        "to more than": gzip.compress(good + b"x"),
        "damaged compressed data": gzip.compress(good)[:200] + b"\xff" * 100 + gzip.compress(good)[300:],
        "memory|allocate": gzip.compress(struct.pack(">BBBBII", 0, 0, 8, 2, 2**31, 2**14) + bytes(1 << 20)),
    }
    for words, content in [*cases.items(), *compressed.items()]:
        (tmp_path / "x").write_bytes(content)
        with pytest.raises((batchd.Error, MemoryError), match=words):
            batchd.DataLoader(f"idx:{tmp_path}/x")


# ---- CIFAR ----


@pytest.fixture
def cifar10(tmp_path, monkeypatch):
    """The pickled version for torchvision, and the binary one, of the same pictures."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    names = [f"data_batch_{i}" for i in range(1, 6)]
    rng = numpy.random.default_rng(2)
    for name in names:
        data, labels = rng.integers(0, 256, (10, 3072), dtype="uint8"), rng.integers(0, 10, 10)
        (folder / name).write_bytes(pickle.dumps({"data": data, "labels": labels.tolist()}))
        rows = [bytes([label]) + row.tobytes() for label, row in zip(labels, data)]
        (tmp_path / f"{name}.bin").write_bytes(b"".join(rows))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}))
    monkeypatch.setattr(torchvision.datasets.CIFAR10, "_check_integrity", lambda self: True)
    monkeypatch.setattr(torchvision.datasets.cifar, "check_integrity", lambda *_: True)
    return tmp_path


def test_cifar10s_files(daemon, cifar10):
    ops = v2.Compose([v2.Resize(40), v2.CenterCrop(36), v2.ToTensor()])
    data = torchvision.datasets.CIFAR10(cifar10, train=True, transform=ops)
    with batchd.DataLoader(f"cifar:{cifar10}/data_batch_*.bin", batch_size=16, transform=ops) as loader:
        rows = [(x.clone(), y.clone()) for x, y in loader]
    assert torch.equal(torch.cat([x for x, _ in rows]), torch.stack([x for x, _ in data]))
    assert torch.cat([y for _, y in rows]).tolist() == data.targets
    # The same data set object's own arrays, which torchvision has unpickled.
    with batchd.DataLoader((data.data, torch.tensor(data.targets)), batch_size=50, transform=ops) as loader:
        ((images, labels),) = loader
    assert torch.equal(images, torch.cat([x for x, _ in rows])) and labels.tolist() == data.targets


@pytest.mark.parametrize(("label", "words"), (((10,), "0 to 9"), ((0, 100), "fine: 0 to 99"), ((20, 0), "coarse")))
def test_labels_that_cifar_does_not_have(make_daemon, tmp_path, label, words):
    """A record with one is a bad sample, named by its file and number; the other records are served."""
    make_daemon(config="bad_data: 30%\n")
    record = numpy.zeros((8, len(label) + 3072), "uint8")
    record[:, len(label) :] = numpy.arange(8)[:, None]
    record[5, : len(label)] = label
    (tmp_path / "x.bin").write_bytes(record.tobytes())
    spec = f"cifar:{tmp_path}/x.bin"
    with batchd.DataLoader(spec, 4) as loader, pytest.raises(batchd.BadDataError, match=rf"x\.bin\[5\]: .*{words}"):
        list(loader)
    with pytest.warns(RuntimeWarning, match=rf"x\.bin\[5\].*{words}"):
        with batchd.DataLoader(spec, 8, transform=["ToTensor"]) as loader:
            ((images, _),) = loader
    assert set((images[:, 0, 0, 0] * 255).round().int().tolist()) == {0, 1, 2, 3, 4, 6, 7}


def test_cifar100_and_files_that_are_neither(daemon, tmp_path):
    rng = numpy.random.default_rng(3)
    records = rng.integers(0, 256, (7, 3074), dtype="uint8")
    records[:, :2] %= numpy.array([20, 100], "uint8")
    (tmp_path / "train.bin").write_bytes(records.tobytes())
    with batchd.DataLoader(f"cifar:{tmp_path}/train.bin", batch_size=7) as loader:
        ((images, labels),) = loader
    assert (images.numpy() == records[:, 2:].reshape(7, 3, 32, 32)).all() and (labels.numpy() == records[:, 1]).all()
    with batchd.DataLoader(
        f"cifar:{tmp_path}/train.bin", batch_size=7, fields=("coarse_label", "image"), transform=["ToTensor"]
    ) as loader:
        ((coarse, images),) = loader
    assert (coarse.numpy() == records[:, 0]).all()
    assert torch.equal(images, torch.from_numpy(records[:, 2:].reshape(7, 3, 32, 32)) / 255)
    (tmp_path / "odd.bin").write_bytes(records.tobytes()[:-1])
    with pytest.raises(batchd.BadDataError, match="odd.bin.*no whole number of CIFAR-10's records"):
        batchd.DataLoader(f"cifar:{tmp_path}/odd.bin")
    (tmp_path / "both.bin").write_bytes(bytes(3073 * 3074))
    with pytest.raises(batchd.InvalidError, match="add version=10 or version=100"):
        batchd.DataLoader(f"cifar:{tmp_path}/both.bin")
    with batchd.DataLoader(f"cifar:version=10,{tmp_path}/both.bin") as loader:
        assert len(loader.dataset) == 3074

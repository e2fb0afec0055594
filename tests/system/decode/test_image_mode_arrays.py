"""Arrays of uint16, int32 and float32 as pictures, against torchvision on images of Pillow's modes I;16, I and F."""

import json

import numpy as np
import pytest
from PIL import Image

import batchd
from test_image_modes import DTYPES, numbers, torchvisions
from vision import import_torchvision

N, WIDTH, HEIGHT = 7, 26, 20
SHAPES = {"plain": (HEIGHT, WIDTH), "last": (HEIGHT, WIDTH, 1), "first": (1, HEIGHT, WIDTH)}


def pictures(mode):
    return np.stack([numbers(mode, WIDTH, HEIGHT, i) for i in range(N)])


def npy(path, x, y):
    np.save(path / "x.npy", x)
    np.save(path / "y.npy", y)
    return f"npy:{path}/x.npy,{path}/y.npy"


def npz(path, x, y):
    np.savez(path / "xy.npz", data=x, label=y)
    return f"npz:{path}/xy.npz"


SOURCES = {"npy": npy, "npz": npz, "memory": lambda path, x, y: (x, y)}


def objects():
    """Transforms whose result has no random number."""
    v2 = import_torchvision().transforms.v2
    return [
        [v2.Resize((31, 17))],
        [v2.Resize(13), v2.CenterCrop(11)],
        [v2.CenterCrop(30), v2.RandomHorizontalFlip(1.0)],
        [v2.Pad(3, fill=7), v2.RandomVerticalFlip(1.0)],
    ]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("mode", DTYPES)
def test_rows_are_what_torchvision_makes_of_the_same_image(daemon, tmp_path, mode, source):
    """Crops, sizes, flips and fills of every row, in each shape that a picture may have, byte for byte."""
    try:
        pipelines = objects()
    except ImportError:
        pytest.skip("torchvision is not installed")
    x, y = pictures(mode), np.arange(N) * 3
    for shape in SHAPES:
        (tmp_path / shape).mkdir()
        data = SOURCES[source](tmp_path / shape, x.reshape(N, *SHAPES[shape]), y)
        for k, pipeline in enumerate(pipelines if shape == "plain" else pipelines[1:2]):
            options = dict(transform=pipeline, dtype=DTYPES[mode], layout="NHWC", arrays="numpy", shuffle=True)
            with batchd.DataLoader(data, 3, job=f"{shape}{k}", **options) as loader:
                seen = []
                for images, labels in loader:
                    for image, label, i in zip(images, labels, loader.last_batch.indices.tolist()):
                        theirs = np.asarray(torchvisions(pipeline, Image.fromarray(x[i])))
                        assert image.dtype == theirs.dtype and image[..., 0].tobytes() == theirs.tobytes(), (
                            i,
                            pipeline,
                        )
                        assert label == y[i]
                        seen.append(i)
            assert sorted(seen) == list(range(N))


@pytest.mark.parametrize("mode", DTYPES)
def test_floats_of_numbers(daemon, mode):
    """ToDtype with its scale and Normalize, as torchvision makes floats of the same tensor."""
    torch = pytest.importorskip("torch")
    try:
        v2 = import_torchvision().transforms.v2
    except ImportError:
        pytest.skip("torchvision is not installed")
    x = pictures(mode)
    pipeline = [
        v2.CenterCrop((9, 11)),
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize([0.5], [0.25]),
    ]
    with batchd.DataLoader((x,), N, transform=pipeline) as loader:
        images = next(iter(loader))
        images = images[0] if isinstance(images, (tuple, list)) else images
    for image, row in zip(images, x):
        assert torch.equal(image, torchvisions(pipeline, Image.fromarray(row)))


WIDER = [
    ("uint8", "I;16"),
    ("uint8", "I"),
    ("uint8", "F"),
    ("uint16", "I"),
    ("uint16", "F"),
    ("int32", "F"),
    ("uint16", "I;16"),
]


@pytest.mark.parametrize("stored, mode", WIDER)
def test_image_mode_widens_as_pillow_does(daemon, stored, mode):
    """image_mode= of a mode that holds the numbers of the rows, as for files."""
    rng = np.random.default_rng(5)
    top = {"uint8": 256, "uint16": 65536, "int32": 1 << 20}[stored]
    x = rng.integers(0, top, (N, HEIGHT, WIDTH)).astype(stored)
    options = dict(
        transform=[["CenterCrop", [10, 12]]], image_mode=mode, dtype=DTYPES[mode], layout="NHWC", arrays="numpy"
    )
    with batchd.DataLoader((x, np.arange(N)), N, **options) as loader:
        ((images, _),) = loader
    for image, row in zip(images, x):
        picture = Image.fromarray(row)
        theirs = np.asarray(picture.convert(mode) if picture.mode != mode else picture)[5:15, 7:19]
        if stored == "uint8" and mode == "I;16":
            theirs = row[5:15, 7:19].astype(np.uint16)
        assert image.dtype == theirs.dtype and np.array_equal(image[..., 0], theirs)


def test_random_crops_come_from_the_row(daemon):
    """RandomResizedCrop and a flip of each row, seeded: the same again, and within the row's own numbers."""
    x = pictures("I;16")
    options = dict(
        transform=[["RandomResizedCrop", 8], "RandomHorizontalFlip"], dtype="uint16", layout="NHWC", arrays="numpy"
    )
    batches = []
    for job in ("one", "two"):
        with batchd.DataLoader((x, np.arange(N)), N, seed=3, job=job, **options) as loader:
            batches += [images.copy() for images, _ in loader]
    assert batches[0].shape == (N, 8, 8, 1) and np.array_equal(*batches) and len(np.unique(batches[0])) > 50


@pytest.mark.parametrize(
    "x, options, text",
    [
        (
            np.zeros((3, 9, 9, 3), "uint16"),
            {},
            "uint16 of 9 x 9 x 3, which are no images.*one channel uint16, int32 or",
        ),
        (np.zeros((3, 9, 9), "float64"), {}, "float64 of 9 x 9, which are no images"),
        (np.zeros((3, 9, 9), "int16"), {}, "int16 of 9 x 9, which are no images"),
        (np.zeros((3, 9, 9), "uint16"), {"dtype": "float32"}, "images of mode I;16 are uint16.*ToDtype"),
        (
            np.zeros((3, 9, 9), "float32"),
            {"image_mode": "I;16"},
            "does not suit the samples, which are arrays of mode F",
        ),
        (
            np.zeros((3, 9, 9, 3), "uint8"),
            {"image_mode": "F"},
            "does not suit the samples, which are arrays of mode RGB",
        ),
        (
            np.zeros((3, 9, 9), "uint16"),
            {"transform": [["ColorJitter", 0.4]]},
            "'ColorJitter' does not work on images of mode I;16",
        ),
    ],
)
def test_what_no_transform_takes_is_refused_by_name(daemon, x, options, text):
    """When the loader opens, with what to do; without a transform the rows arrive as they are."""
    options = {"transform": [["CenterCrop", 4]], "dtype": "uint16", **options}
    with pytest.raises(batchd.InvalidError, match=text):
        batchd.DataLoader((x, np.arange(3)), 3, **options)
    with batchd.DataLoader((x, np.arange(3)), 3, arrays="numpy") as loader:
        ((rows, _),) = loader
    assert rows.dtype == x.dtype and np.array_equal(rows, x)


@pytest.mark.parametrize("mode", DTYPES)
@pytest.mark.parametrize("transform", [None, [["CenterCrop", [20, 26]]]])
def test_preview_shows_arrays_of_numbers(batchctl, tmp_path, mode, transform):
    """A sheet, scaled as for files of numbers; --json alone gives the numbers."""
    np.save(tmp_path / "x.npy", pictures(mode))
    options = ["--transform", json.dumps(transform)] if transform else []
    said = batchctl("preview", "--out", str(tmp_path / "sheet.png"), *options, f"npy:{tmp_path}/x.npy")
    assert said.returncode == 0 and f"each image of mode {mode} is scaled" in said.stdout, said.stderr
    assert Image.open(tmp_path / "sheet.png").size[0] > WIDTH
    said = batchctl("preview", "--json", f"npy:{tmp_path}/x.npy", "--n", "2")
    assert json.loads(said.stdout)["fields"][0]["data"] == {"values": WIDTH * HEIGHT}

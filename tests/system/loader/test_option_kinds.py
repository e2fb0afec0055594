"""Options and kinds of data sets: an option that would do nothing for a data set is refused, with what to do instead; one that
means something works."""

import numpy
import pytest

torch = pytest.importorskip("torch")

import batchd  # noqa: E402 (torch may be missing)

PICTURES = numpy.random.default_rng(1).integers(0, 256, (6, 8, 10, 3), dtype=numpy.uint8)
FLOATS = numpy.arange(12.0).reshape(6, 2)
LABELS = numpy.arange(6)


@pytest.fixture
def sources(tmp_path):
    """One data set of each kind that has no pictures in files."""
    numpy.save(tmp_path / "x.npy", FLOATS)
    numpy.savez(tmp_path / "x.npz", x=FLOATS, label=LABELS)
    numpy.arange(100, dtype="uint16").tofile(tmp_path / "t.bin")
    return {
        "memory": (FLOATS, LABELS),
        "dictionary": {"x": FLOATS, "y": LABELS},
        "npy": f"npy:{tmp_path}/x.npy",
        "npz": f"npz:{tmp_path}/x.npz",
        "random": "random:length=6,shape=2,dtype=float64",
        "tokens": f"tokens:{tmp_path}/t.bin,length=8",
        "list": [f"npy:{tmp_path}/x.npy"] * 2,
    }


@pytest.mark.parametrize(
    "options, words",
    [
        ({"dtype": "float16"}, r"dtype='float16' does nothing .*x.to"),
        ({"dtype": torch.float32}, "dtype='float32' does nothing"),
        ({"dtype": "uint8"}, "dtype='uint8' does nothing"),
        ({"layout": "NCHW"}, r"layout='NCHW' does nothing .*permute"),
        ({"layout": "NHWC"}, "layout='NHWC' does nothing"),
        ({"apply_exif": True}, "apply_exif=True does nothing"),
        ({"image_mode": "RGB"}, "image_mode='RGB' does nothing"),
        ({"image_mode": "L"}, "needs a transform in words or objects: the data set has none by itself"),
        ({"decode": "draft"}, "needs transform=: arrays have no JPEGs"),
    ],
)
def test_options_for_pictures_are_refused_for_data_that_is_stored(daemon, sources, options, words):
    """Arrays and tokens come as they are stored, so an option that would make them otherwise must not be taken."""
    for dataset in sources.values():
        with pytest.raises((TypeError, ValueError), match=words):
            batchd.DataLoader(dataset, 2, **options)


def test_length_is_refused_without_tokens(daemon, sources):
    """It was taken and ignored for arrays in memory, HuggingFace's tables and lists."""
    for name, dataset in sources.items():
        if name != "tokens":
            with pytest.raises(TypeError, match="length is for token files"):
                batchd.DataLoader(dataset, 2, length=16)
    datasets = pytest.importorskip("datasets")
    with pytest.raises(TypeError, match="length is for token files"):
        batchd.DataLoader(datasets.Dataset.from_dict({"x": [1, 2]}), 2, length=16)


def test_columns_without_pictures_take_no_dtype(daemon):
    """Those of HuggingFace's tables, where the package's own numbers are expected."""
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"x": [0.5, 1.5], "text": ["a", "b"]})
    with pytest.raises(TypeError, match="dtype='float16' does nothing for a datasets.Dataset"):
        batchd.DataLoader(data, 2, dtype="float16")
    data = data.cast_column("x", datasets.Value("float32"))
    with pytest.raises(TypeError, match="dtype='float32' does nothing"):
        batchd.DataLoader(data, 2, dtype="float32")  # the text is none
    with batchd.DataLoader(data, 2, dtype="float32", fields=("x",)) as loader:
        assert next(iter(loader))[0].dtype == torch.float32


def test_a_dtype_that_the_data_has_is_no_mistake(daemon, tmp_path):
    """The caller gets what was asked for."""
    x = FLOATS.astype("float32")
    for dataset in ((x, LABELS), {"x": x, "z": x + 1}, "random:length=6,shape=2,dtype=float32"):
        with batchd.DataLoader(dataset, 6, dtype="float32") as loader:
            batch = next(iter(loader))
        first = batch["x"] if isinstance(batch, dict) else batch[0]
        assert first.dtype == torch.float32
    with pytest.raises(TypeError, match="dtype='float32' does nothing"):
        batchd.DataLoader({"x": x, "z": FLOATS}, 6, dtype="float32")


def test_arrays_of_pictures_take_what_makes_numbers_of_them(daemon):
    """With a transform dtype, layout and image_mode mean something; what belongs to files still does not."""
    resize = [["Resize", [8, 10]], "ToTensor"]
    with batchd.DataLoader((PICTURES, LABELS), 6, transform=resize, dtype="float16", layout="NHWC") as loader:
        images, _ = next(iter(loader))
    wanted = (torch.from_numpy(PICTURES).float() / 255).half()
    assert images.dtype == torch.float16 and torch.equal(images, wanted)
    with batchd.DataLoader((PICTURES, LABELS), 6, transform=resize, dtype="uint8", image_mode="RGB") as loader:
        assert torch.equal(next(iter(loader))[0], torch.from_numpy(PICTURES).permute(0, 3, 1, 2))
    with pytest.raises(TypeError, match="apply_exif=True does nothing .*turns images by a tag of their files"):
        batchd.DataLoader((PICTURES, LABELS), 6, transform=resize, apply_exif=True)
    with pytest.raises((TypeError, batchd.InvalidError), match="decode|Draft"):
        batchd.DataLoader((PICTURES, LABELS), 6, transform=resize, decode="draft")


def test_a_trainer_beside_a_raw_one_may_say_what_the_job_has(daemon):
    """raw=True is uint8 and NHWC, and a job's trainers agree on both: so they mean something for arrays of a named job."""
    with batchd.DataLoader((FLOATS,), 6, dtype="uint8", layout="NHWC", job="beside") as loader:
        ((rows,),) = loader
        assert rows.dtype == torch.float64 and rows.tolist() == FLOATS.tolist()
        with pytest.raises(batchd.MismatchError, match="layout|dtype"):
            batchd.DataLoader((FLOATS,), 6, job="beside")


def test_a_refused_loader_is_closed(daemon):
    """The daemon has no session of it."""
    with pytest.raises(TypeError):
        batchd.DataLoader((FLOATS,), 2, dtype="float16", job="refused")
    assert not any(session["job"] == "refused" for session in batchd.status().get("sessions", ()))
    with batchd.DataLoader((FLOATS,), 2, job="refused") as loader:
        assert next(iter(loader))[0].dtype == torch.float64

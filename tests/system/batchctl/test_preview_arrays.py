"""batchctl preview of arrays: the pictures that rows are, and the numbers of others."""

import json
import struct

import numpy
import pytest

image = pytest.importorskip("PIL.Image")

N = 7


def pictures(*shape):
    return numpy.random.default_rng(11).integers(0, 256, (N, *shape), dtype="uint8")


def is_shown(sheet, picture):
    """Whether a sheet, as Pillow reads it, has the picture, enlarged by whatever factor."""
    for scale in range(1, 40):
        want = picture.repeat(scale, 0).repeat(scale, 1)
        h, w = want.shape[:2]
        if h > sheet.shape[0] or w > sheet.shape[1]:
            return False
        begin, end = sheet[: len(sheet) - h + 1, : sheet.shape[1] - w + 1], sheet[h - 1 :, w - 1 :]
        places = numpy.argwhere((begin == want[0, 0]).all(-1) & (end == want[-1, -1]).all(-1))
        if any((sheet[y : y + h, x : x + w] == want).all() for y, x in places):
            return True
    return False


def preview(batchctl, tmp_path, spec, *options):
    """What --json says, and the sheet as Pillow reads it."""
    out = tmp_path / "sheet.png"
    done = batchctl("preview", "--quiet", "--json", "--out", out, spec, *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), numpy.asarray(image.open(out).convert("RGB"))


def as_rgb(pictures):
    return pictures if pictures.ndim == 4 else numpy.repeat(pictures[..., None], 3, -1)


@pytest.mark.parametrize("shape", [(9, 12, 3), (9, 12, 1), (3, 9, 12), (9, 12)])
@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_rows_that_are_pictures(batchctl, tmp_path, kind, shape):
    """Proves that every row is on the sheet as numpy has it, in each of the forms that a transform takes; and a row's
    label in --json."""
    x, y = pictures(*shape), numpy.arange(N) * 3
    if kind == "npz":
        numpy.savez(tmp_path / "a.npz", x=x, label=y)
        spec = f"npz:{tmp_path}/a.npz"
    else:
        numpy.save(tmp_path / "x.npy", x)
        numpy.save(tmp_path / "y.npy", y)
        spec = f"npy:{tmp_path}/x.npy,{tmp_path}/y.npy"
    said, sheet = preview(batchctl, tmp_path, spec)
    assert sorted(said["indices"]) == list(range(N)) and not said["bad"]
    assert [f["label"] for f in said["fields"]] == [3 * i for i in said["indices"]]
    x = x.transpose(0, 2, 3, 1) if shape[0] == 3 else x[..., 0] if shape[-1] == 1 else x
    assert all(is_shown(sheet, picture) for picture in as_rgb(x))
    _, sheet = preview(
        batchctl, tmp_path, spec, "--transform", '[["RandomHorizontalFlip", {"p": 1}]]', "--indices", "2"
    )
    assert is_shown(sheet, as_rgb(x)[2][:, ::-1]) and not is_shown(sheet, as_rgb(x)[2])


def test_files_of_mnist_and_cifar(batchctl, tmp_path):
    """Proves the pictures and labels of both formats, written here by their descriptions."""
    x, y = pictures(28, 28), numpy.arange(N, dtype="uint8") % 10
    (tmp_path / "images-idx3-ubyte").write_bytes(struct.pack(">BBBB3I", 0, 0, 8, 3, N, 28, 28) + x.tobytes())
    (tmp_path / "labels-idx1-ubyte").write_bytes(struct.pack(">BBBBI", 0, 0, 8, 1, N) + y.tobytes())
    said, sheet = preview(batchctl, tmp_path, f"idx:{tmp_path}/images-idx3-ubyte,{tmp_path}/labels-idx1-ubyte")
    assert [f["label"] for f in said["fields"]] == [y[i] for i in said["indices"]]
    assert all(is_shown(sheet, picture) for picture in as_rgb(x))
    x = pictures(3, 32, 32)
    rows = numpy.concatenate([y[:, None], x.reshape(N, -1)], 1)
    (tmp_path / "data_batch_1.bin").write_bytes(rows.tobytes())
    said, sheet = preview(batchctl, tmp_path, f"cifar:{tmp_path}/data_batch_1.bin")
    assert [f["label"] for f in said["fields"]] == [y[i] for i in said["indices"]]
    assert all(is_shown(sheet, picture) for picture in x.transpose(0, 2, 3, 1))


def test_rows_that_are_mixed(batchctl, tmp_path):
    """Proves that rows of arrays are mixed, as numpy blends them with the weights that --json names."""
    x = pictures(9, 12, 3)
    numpy.save(tmp_path / "x.npy", x)
    said, sheet = preview(batchctl, tmp_path, f"npy:{tmp_path}/x.npy", "--mix", "mixup:alpha=1", "--n", "4")
    for i, how in zip(said["indices"], said["fields"], strict=True):
        blend = x[i] * numpy.float32(how["weight"]) + x[how["partner"]] * numpy.float32(how["partner_weight"])
        assert how["kind"] == "mixup" and is_shown(sheet, numpy.rint(blend).astype("uint8"))


def test_numbers_of_other_arrays(batchctl, tmp_path):
    """Proves that --json alone shows rows of numbers as numpy has them, and says how many there are of more than 64."""
    x, y = numpy.random.default_rng(5).normal(size=(N, 2, 3)).astype("float32"), numpy.ones((N, 65), "int16")
    numpy.savez(tmp_path / "a.npz", x=x, y=y)
    done = batchctl("preview", "--json", f"npz:{tmp_path}/a.npz", "--n", "3")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert len(said["indices"]) == 3
    for i, row in zip(said["indices"], said["fields"], strict=True):
        assert row["x"] == pytest.approx(x[i].ravel().tolist(), rel=1e-6) and row["y"] == {"values": 65}
    done = batchctl("preview", "--json", f"npz:{tmp_path}/a.npz", "--indices", "6,0")
    assert json.loads(done.stdout)["indices"] == [6, 0]


@pytest.mark.parametrize(
    "options, words",
    [
        (["--out", "sheet.png"], "float64 of 2 x 3, which are no images"),
        (["--json", "--transform", "val224"], "shown by --json alone"),
        ([], "--out FILE.png is missing"),
    ],
)
def test_numbers_are_no_pictures(batchctl, tmp_path, options, words):
    """Proves that a picture of numbers is refused with what the rows are."""
    numpy.save(tmp_path / "x.npy", numpy.zeros((N, 2, 3), "float64"))
    done = batchctl("preview", f"npy:{tmp_path}/x.npy", *options)
    assert done.returncode == 2 and words in done.stderr


def test_a_wrong_transform_is_named(batchctl, tmp_path):
    """Proves that a transform is parsed for the rows: a name that is none, and deviations of three channels for one."""
    numpy.save(tmp_path / "x.npy", pictures(9, 12))
    for transform, words in (("train225", "train225"), ('["ToTensor", ["Normalize", [0.5, 0, 0], [1, 1, 1]]]', "one")):
        out = tmp_path / "s.png"
        done = batchctl("preview", f"npy:{tmp_path}/x.npy", "--out", out, "--transform", transform)
        assert done.returncode == 2 and words in done.stderr and not out.exists()


def test_pictures_need_a_file(batchctl, tmp_path):
    """Proves that --json alone does not pass for a sheet where there are pictures."""
    numpy.save(tmp_path / "x.npy", pictures(9, 12, 3))
    done = batchctl("preview", "--json", f"npy:{tmp_path}/x.npy")
    assert done.returncode == 2 and "--out FILE.png is missing" in done.stderr

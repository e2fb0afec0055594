"""batchctl preview --op: one op over its magnitudes, cell by cell what Pillow and torchvision make of the picture."""

import json

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from test_batchctl import cell
from vision import import_torchvision

torch = pytest.importorskip("torch")
PX, COLUMNS = 160, 7


def in_middle(image):
    """Cut to the cell, or with black around."""
    return import_torchvision().transforms.CenterCrop(PX)(image)


def resized(image, px):
    return in_middle(image.resize((int(px), int(px)), Image.Resampling.BILINEAR))


def sheet(batchctl, samples, tmp_path, op, *more):
    out = tmp_path / "op.png"
    r = batchctl("preview", samples, "--out", out, "--op", op, "--indices", "5,90", *more)
    assert r.returncode == 0 and r.stderr == "", r.stderr
    assert f"14 images of {PX}x{PX}" in r.stdout
    made = Image.open(out).convert("RGB")
    return [[cell(made, row * COLUMNS + k, COLUMNS, PX, PX) for k in range(COLUMNS)] for row in range(2)]


def files(samples):
    every = sorted(p for d in sorted(samples.iterdir()) for p in d.iterdir())
    return [Image.open(every[i]).convert("RGB").resize((PX, PX), Image.Resampling.BILINEAR) for i in (5, 90)]


SWEEPS = {
    "Posterize": ((8, 5, 4, 3, 2, 1), ImageOps.posterize),
    "Solarize": ((256, 205, 154, 102, 51, 0), ImageOps.solarize),
    "Contrast": ((0, 0.25, 0.5, 1, 1.5, 1.9), lambda i, f: ImageEnhance.Contrast(i).enhance(f)),
    "TrimBorder": ((2, 5, 10, 20, 40, 60), lambda i, n: in_middle(i.crop((n, n, PX - n, PX - n)))),
    "CenterCropOrPad": (
        (40, 80, 120, 160, 200, 240),
        lambda i, n: in_middle(import_torchvision().transforms.CenterCrop(n)(i)),
    ),
    "CenterCrop": (
        (40, 80, 120, 160, 200, 240),
        lambda i, n: in_middle(import_torchvision().transforms.CenterCrop(n)(i)),
    ),
    "Resize": ((40, 80, 120, 160, 240, 320), resized),
    "RandomResize": ((40, 80, 120, 160, 240, 320), resized),
    "ResizeKeepRatio": ((40, 80, 120, 160, 240, 320), resized),
    "RandomShortestSize": ((40, 80, 120, 160, 240, 320), resized),
    "ScaleJitter": ((0.25, 0.5, 0.75, 1, 1.5, 2), lambda i, r: resized(i, PX * r)),
    "PillowGaussianBlur": ((0.1, 0.5, 1, 2, 4, 8), lambda i, r: i.filter(ImageFilter.GaussianBlur(r))),
}


@pytest.mark.parametrize("op", SWEEPS)
def test_a_sheet_has_an_op_over_its_magnitudes(batchctl, samples, tmp_path, op):
    """A row for each picture: before, then six magnitudes."""
    steps, reference = SWEEPS[op]
    for row, image in zip(sheet(batchctl, samples, tmp_path, op), files(samples)):
        assert row[0].tobytes() == image.tobytes()
        for made, step in zip(row[1:], steps):
            assert made.tobytes() == reference(image, step).tobytes(), step


def test_policies_grow_and_ops_without_magnitude_are_drawn(batchctl, samples, tmp_path):
    """RandAugment at magnitude 30 is further from the picture than at 0; draws of a flip are the picture or its mirror,
    both occur, and the sheet is the same each time."""
    rows = [np.asarray([np.asarray(c, int) for c in row]) for row in sheet(batchctl, samples, tmp_path, "RandAugment")]
    assert all(len({c.tobytes() for c in row}) > 4 for row in rows)
    flips = sheet(batchctl, samples, tmp_path, "RandomHorizontalFlip")
    kinds = set()
    for row in flips:
        plain, mirrored = row[0].tobytes(), ImageOps.mirror(row[0]).tobytes()
        kinds |= {[plain, mirrored].index(c.tobytes()) for c in row[1:]}
    assert kinds == {0, 1}
    again = sheet(batchctl, samples, tmp_path, "RandomHorizontalFlip")
    assert [[c.tobytes() for c in row] for row in again] == [[c.tobytes() for c in row] for row in flips]


@pytest.mark.parametrize(
    "op",
    [
        '["Posterize", 3]',
        "RandomErasing",
        "RandomRotation",
        "RandomZoomOut",
        '["RandomResizedCrop", 64]',
        "RandomCrop",
        "RandomResizedCrop",
        "Pad",
        "RandomPad",
        "RandomCropOrPad",
        "RandomResizeKeepRatio",
        "GaussianNoise",
        "ElasticTransform",
    ],
)
def test_ops_on_numbers_of_other_sizes_and_in_json(batchctl, samples, tmp_path, op):
    """Each is shown, or refused as in a pipeline, by name."""
    if op == "Pad":
        r = batchctl("preview", samples, "--out", tmp_path / "x.png", "--op", op)
        assert r.returncode == 2 and "--op 'Pad': argument 'padding' is missing" in r.stderr
        return
    rows = sheet(batchctl, samples, tmp_path, op)
    assert all(len({c.tobytes() for c in row}) > 1 for row in rows)


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--op", "NoSuchOp"], "--op 'NoSuchOp' is not known"),
        (["--op", "Posteriz"], "--op 'Posteriz' is not known; did you mean 'Posterize'"),
        (["--op", '["RandomApply", ["NoSuchOp"]]'], "--op: op 1 'NoSuchOp' is not known"),
        (["--op", '["Posterize"'], "--op: .*expected a name, or an op in JSON"),
        (["--op", "rand-m9-inc1"], "--op 'rand-m9-inc1' is a text of timm's, which batchd's Python package reads"),
        (["--op", "ToTensor"], "--op: .*nothing to see"),
        (["--op", "Invert", "--transform", "val224"], "leave --transform out"),
        (["--op", "Invert", "--columns", "3"], "leave --columns out"),
        (["--op", "Invert\udcff"], "no UTF-8"),
    ],
)
def test_what_cannot_be_shown_is_refused(batchctl, samples, tmp_path, arguments, says):
    import re

    r = batchctl("preview", samples, "--out", tmp_path / "x.png", *arguments)
    assert r.returncode == 2 and re.search(says, r.stderr), r.stderr
    assert not (tmp_path / "x.png").exists()


def test_the_result_is_told_as_json(batchctl, samples, tmp_path):
    r = batchctl("preview", samples, "--out", tmp_path / "x.png", "--op", "AutoAugment", "--n", "3", "--json")
    said = json.loads(r.stdout)
    assert r.returncode == 0 and len(said["indices"]) == 3 == len(said["fields"]) and said["width"] == PX
    assert "AutoAugment" in said["pipeline"]

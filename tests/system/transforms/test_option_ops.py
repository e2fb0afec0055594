"""The ops that the options decode and image_mode stand for are none of the list that a user wrote."""

import io

import numpy as np
import pytest
from PIL import Image

import batchd

OPTIONS = [{}, {"decode": "draft"}, {"image_mode": "L"}, {"decode": ("draft", 50), "image_mode": "L"}]
WRONG = [
    ([["CenterCrop", 8], ["RandomCrop", "x"]], "^op 2 'RandomCrop'"),
    ([["CenterCrop", 8], ["RandomApply", ["Nope"]]], "^op 2.1 'Nope'"),
    ([["Nope", 8], ["CenterCrop", 8]], "^op 1 'Nope'"),
    ([["CenterCrop", 8], {"decode": ["CenterCrop", 8]}], "^op 2 is not"),
    ([["CenterCrop", 8], ["Convert", "F"]], "^op 2 'Convert'.* must be the first op"),
]


def picture(seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (60, 60, 3), dtype=np.uint8)
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "JPEG")
    return data.getvalue()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "all").mkdir()
    for i in range(4):
        (tmp_path / "all" / f"{i}.jpg").write_bytes(picture(i))
    return f"imagefolder:{tmp_path}"


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("transform, says", WRONG, ids=str)
def test_an_error_counts_the_ops_of_the_user(transform, says, options):
    """Proves that an error has the number that the op has in the user's list, with and without the options."""
    with pytest.raises(ValueError, match=says):
        batchd.load(picture(), transform, dtype="uint8", **options)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_loader_counts_them_too(daemon, folder, options):
    """Proves the same for a loader, and for each of its views."""
    for transform in ([["CenterCrop", 8], ["Nope", 8]], {"a": ["Nope", ["CenterCrop", 8]], "b": [["CenterCrop", 8]]}):
        with pytest.raises(ValueError, match=f"op {2 if isinstance(transform, list) else 1} 'Nope'"):
            batchd.DataLoader(folder, 2, transform=transform, dtype="uint8", **options)


def test_an_op_of_an_option_is_named_by_it():
    with pytest.raises(ValueError, match="^op of decode= 'Draft': argument 'size'"):
        batchd.load(picture(), [["CenterCrop", 8]], decode=("draft", 0))
    for option, op in (({"decode": "draft"}, "Draft"), ({"image_mode": "L"}, ["Convert", "F"])):
        with pytest.raises(ValueError, match=f"^op 1 '.*' and {next(iter(option))} both say how files are read"):
            batchd.load(picture(), [op, ["CenterCrop", 8]], **option)


def test_splits_go_with_the_options(daemon, folder):
    """Proves that what comes first in all views, as in timm's splits, may follow the ops of options: a draft that
    leaves a picture as it is changes no draw."""
    split = batchd.aug_splits(([["RandomResizedCrop", 48], "RandomHorizontalFlip"], ["Invert"], ["ToTensor"]), n=2)

    def views(**options):
        with batchd.DataLoader(folder, 4, transform=split, arrays="numpy", dtype="uint8", **options) as loader:
            return [view.copy() for view in next(iter(loader))[0]]

    for ours, plain in zip(views(decode="draft"), views(), strict=True):
        assert (ours == plain).all()
    first, second = views(image_mode="L")
    assert first.shape[1] == 1 and (255 - first == second).all()

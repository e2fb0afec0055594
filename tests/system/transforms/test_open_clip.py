"""open_clip's own transforms, as its create_model_and_transforms returns them, against the same objects on PIL images."""

import io
import tarfile

import numpy
import pytest

import batchd
from vision import import_torchvision

pytest.importorskip("torch", reason="torch is not installed")
image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
try:
    torchvision = import_torchvision()  # open_clip imports it as well
except ImportError:
    pytest.skip("torchvision is not installed", allow_module_level=True)
theirs = pytest.importorskip("open_clip.transform", reason="open_clip_torch is not installed")

N = 12


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """(shard of pictures with captions, the pictures)"""
    path, pictures = tmp_path_factory.mktemp("pairs") / "a.tar", []
    with tarfile.open(path, "w") as shard:
        for i in range(N):
            pixels = numpy.random.default_rng(i).integers(0, 256, (70 + 3 * i, 90 - i, 3), "uint8")
            pictures.append(image.fromarray(pixels))
            png = io.BytesIO()
            pictures[-1].save(png, "PNG")
            for name, content in ((f"{i:03}.png", png.getvalue()), (f"{i:03}.txt", f"picture {i}".encode())):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                shard.addfile(member, io.BytesIO(content))
    return path, pictures


def load(path, transform, **options):
    return batchd.DataLoader(f"tar:{path}", 5, transform=transform, fields={"image": "png", "text": "txt"}, **options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"resize_mode": "longest"},
        {"resize_mode": "longest", "fill_color": 127},
        {"resize_mode": "squash", "interpolation": "bilinear"},
    ],
    ids=str,
)
def test_validation_is_byte_for_byte_open_clips(daemon, pairs, options):
    """Proves the finished numbers of every picture, and its caption beside it."""
    path, pictures = pairs
    transform = theirs.image_transform((64, 48), is_train=False, **options)
    rows, texts = [], []
    for batch in load(path, transform):
        rows += list(batch["image"])
        texts += batch["text"]
    assert texts == [f"picture {i}" for i in range(N)]
    for row, picture in zip(rows, pictures, strict=True):
        assert (row == transform(picture)).all()


@pytest.mark.parametrize(
    "steps",
    [
        [("color_jitter", dict(brightness=(0.5, 0.5), p=1.0))],
        [("color_jitter", dict(contrast=(1.5, 1.5), p=1.0)), ("gray_scale", dict(p=1.0))],
        [("color_jitter", dict(saturation=(0.2, 0.2), p=0.0)), ("gray_scale", dict(p=0.0))],
    ],
    ids=str,
)
def test_its_jitter_and_gray(daemon, pairs, steps):
    """Proves that its own classes draw nothing else than their p says, with parameters that leave no other choice."""
    path, pictures = pairs
    made = [getattr(theirs, name)(**options) for name, options in steps]
    classes = torchvision.transforms
    transform = classes.Compose([classes.CenterCrop(40), *made, classes.ToTensor()])
    rows = [row for batch in load(path, transform) for row in batch["image"]]
    for row, picture in zip(rows, pictures, strict=True):
        assert (row == transform(picture)).all()


@pytest.mark.filterwarnings("ignore:Unused augmentation cfg")
@pytest.mark.parametrize("augmented", [False, True])
def test_training_transforms_are_taken(daemon, pairs, augmented):
    """Proves that each kind of training transform that image_transform makes is accepted whole, and gives other pictures
    in each epoch."""
    path, _ = pairs
    more = dict(color_jitter=(0.4, 0.4, 0.4, 0.1), color_jitter_prob=0.8, gray_scale_prob=0.2) if augmented else {}
    transform = theirs.image_transform(64, is_train=True, aug_cfg=theirs.AugmentationCfg(scale=(0.5, 1.0), **more))
    loader = load(path, transform)
    first, second = (numpy.concatenate([b["image"] for b in loader]) for _ in range(2))
    assert first.shape == (N, 3, 64, 64) and numpy.isfinite(first).all() and (first != second).any()

"""decode="draft": JPEGs in the size and with the pixels that Pillow's Image.draft gives them."""

import io
import pathlib

import numpy as np
import pytest
from PIL import Image, ImageFile, ImageOps

import batchd
from vision import import_torchvision

SUBSAMPLINGS = ["4:4:4", "4:2:2", "4:2:0"]
SIZES = [(8, 8), (9, 17), (31, 33), (64, 48), (123, 77), (250, 161)]  # width, height


def picture(width, height, mode="RGB", seed=0):
    """Smooth colours with noise and hard edges."""
    rng = np.random.default_rng([seed, width, height])
    channels = len(mode) if mode != "L" else 1
    y, x = np.mgrid[:height, :width]
    planes = [(np.sin(x / (5 + c)) + np.cos(y / (7 - c))) * 60 + 128 for c in range(channels)]
    values = np.stack(planes, -1) + rng.integers(-40, 40, (height, width, channels))
    values[:: 1 + height // 3] = 255 * (seed % 2)
    values = values.clip(0, 255).astype(np.uint8)
    return Image.fromarray(values[..., 0] if channels == 1 else values, mode)


def written(image, kind="JPEG", **options):
    out = io.BytesIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ImageFile, "MAXBLOCK", 1 << 20)  # noise takes more room than Pillow reserves
        image.save(out, kind, **options)
    return out.getvalue()


def drafted(data, size, exif=False):
    """size: width, height."""
    image = Image.open(io.BytesIO(data))
    image.draft("RGB", size)
    if exif:
        image = ImageOps.exif_transpose(image)
    return image.convert("RGB")


def load(data, transform, **options):
    return batchd.load(data, transform, dtype="uint8", layout="NHWC", arrays="numpy", **options)


def same(ours, theirs, what):
    theirs = np.asarray(theirs)
    assert ours.shape == theirs.shape, (what, ours.shape, theirs.shape)
    assert np.array_equal(ours, theirs), (what, np.argwhere(ours != theirs)[:4])


def check(data, scale, what, exif=False):
    """The whole picture, and parts of it, at 1 / scale."""
    stored = Image.open(io.BytesIO(data)).size
    size = max(stored[0] // scale, 1), max(stored[1] // scale, 1)
    theirs = np.asarray(drafted(data, size, exif))
    height, width = theirs.shape[:2]
    options = {"decode": ("draft", size[::-1]), "apply_exif": exif}
    same(load(data, [["CenterCrop", [height, width]]], **options), theirs, (what, scale))
    for index in range(3):
        part = max(height * (index + 1) // 4, 1), max(width * (3 - index) // 4, 1)
        crop = [["RandomCrop", list(part)]]
        ours = load(data, crop, index=index, **options)
        places = np.argwhere((theirs[: height - part[0] + 1, : width - part[1] + 1] == ours[0, 0]).all(-1))
        parts = (theirs[y : y + part[0], x : x + part[1]] for y, x in places)
        assert any(np.array_equal(ours, one) for one in parts), (what, scale, part, index)


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("subsampling", SUBSAMPLINGS)
def test_every_scale_of_every_sampling(subsampling, progressive):
    for size in SIZES:
        for quality, seed in ((30, 0), (98, 1)):
            data = written(picture(*size, seed=seed), subsampling=subsampling, quality=quality, progressive=progressive)
            for scale in (1, 2, 4, 8):
                check(data, scale, (size, quality))


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_grey_and_cmyk(mode, progressive):
    for size in SIZES:
        data = written(picture(*size, mode), quality=85, progressive=progressive)
        for scale in (2, 4, 8):
            check(data, scale, (mode, size))


def test_restart_markers_and_flat_pictures():
    for scale in (2, 4, 8):
        check(written(picture(200, 120), quality=80, restart_marker_blocks=3), scale, "restart")
        check(written(Image.new("RGB", (200, 120), (250, 3, 80)), quality=80), scale, "flat")


def test_scale_is_the_one_that_pillow_chooses():
    data = written(picture(1000, 600), quality=80)
    for size in [(125, 75), (126, 75), (125, 76), (250, 150), (251, 150), (500, 10), (10, 301), (3000, 1), (1, 1)]:
        theirs = drafted(data, size)
        ours = load(data, [["CenterCrop", [theirs.height, theirs.width]]], decode=("draft", size[::-1]))
        same(ours, theirs, size)


@pytest.mark.parametrize("orientation", [1, 3, 6, 7])
def test_with_exif_the_stored_picture_is_drafted(orientation):
    image = picture(160, 90)
    exif = Image.Exif()
    exif[0x0112] = orientation
    for scale in (2, 4):
        check(written(image, quality=85, exif=exif.tobytes()), scale, orientation, exif=True)


def test_other_formats_come_in_full():
    image = picture(400, 300)
    for kind in ("PNG", "BMP", "TIFF", "WEBP"):
        data = written(image, kind, **({"lossless": True} if kind == "WEBP" else {}))
        same(load(data, [["CenterCrop", [300, 400]]], decode=("draft", 40)), drafted(data, (40, 40)), kind)


def test_cut_files_are_refused_as_pillow_does():
    plain = written(picture(200, 120), quality=80)
    for n in (len(plain) // 2, len(plain) - 40):
        with pytest.raises(OSError):
            drafted(plain[:n], (50, 30))
        with pytest.raises(batchd.BadDataError):
            load(plain[:n], [["CenterCrop", [30, 50]]], decode=("draft", (30, 50)))
    progressive = written(picture(200, 120), quality=80, progressive=True)
    check(progressive[: len(progressive) - 30] + b"\xff\xd9", 2, "the last scan's end is missing")


def test_recipes_equal_torchvision_behind_draft(photos):
    transforms = import_torchvision().transforms.v2
    for path in sorted(p for p in pathlib.Path(photos).rglob("*") if p.suffix.lower() in (".jpg", ".jpeg")):
        data = path.read_bytes()
        for size in (224, 96):
            theirs = transforms.CenterCrop(size)(transforms.Resize(size + 32)(drafted(data, (size, size))))
            words = [["Resize", size + 32], ["CenterCrop", size]]
            same(load(path, words, decode="draft"), theirs, (path, size))
        theirs = transforms.CenterCrop(224)(transforms.Resize(256)(drafted(data, (224, 224))))
        same(load(path, "val224", decode="draft"), theirs, path)


def rows(loader):
    return {int(i): np.asarray(x) for images, _ in loader for i, x in zip(loader.last_batch.indices, images)}


def folder(tmp_path, n=6):
    (tmp_path / "set" / "a").mkdir(parents=True)
    for i in range(n):
        image = picture(400 + 40 * i, 300 + 20 * i, seed=i)
        image.save(tmp_path / "set" / "a" / f"{i}.jpg", quality=85, progressive=i % 3 == 2)
    return f"imagefolder:{tmp_path / 'set'}"


def test_loaders_that_differ_in_the_draft_share_no_pixels(make_daemon, tmp_path):
    """Of one data set with one decoded cache, in the epoch that fills it and in the next."""
    make_daemon(config="memory: 400MB\n")
    dataset = folder(tmp_path)
    crop = [["CenterCrop", 60]]
    options = {"batch_size": 2, "dtype": "uint8", "layout": "NHWC", "arrays": "numpy", "transform": crop}
    loaders = {
        decode: batchd.DataLoader(dataset, decode=decode, job=f"d{i}", **options)
        for i, decode in enumerate(("full", ("draft", 60), ("draft", 120), "draft"))
    }
    for epoch in range(3):
        for decode, loader in loaders.items():
            loader.set_epoch(epoch)
            for i, row in rows(loader).items():
                image = Image.open(tmp_path / "set" / "a" / f"{i}.jpg")
                if decode != "full":
                    image.draft("RGB", (60, 60) if decode in ("draft", ("draft", 60)) else (120, 120))
                x, y = round((image.width - 60) / 2), round((image.height - 60) / 2)
                same(row, image.convert("RGB").crop((x, y, x + 60, y + 60)), (epoch, decode, i))


def test_views_are_made_of_one_draft_of_the_largest(make_daemon, tmp_path):
    make_daemon()
    dataset = folder(tmp_path)
    views = {"large": [["CenterCrop", 90]], "small": [["CenterCrop", 40]]}
    loader = batchd.DataLoader(
        dataset, 3, transform=views, decode="draft", dtype="uint8", layout="NHWC", arrays="numpy", job="v"
    )
    for images, _ in loader:
        for k, i in enumerate(loader.last_batch.indices):
            image = Image.open(tmp_path / "set" / "a" / f"{int(i)}.jpg")
            image.draft("RGB", (90, 90))
            for name, edge in (("large", 90), ("small", 40)):
                x, y = round((image.width - edge) / 2), round((image.height - edge) / 2)
                same(np.asarray(images[name][k]), image.convert("RGB").crop((x, y, x + edge, y + edge)), (name, i))
    with pytest.raises(batchd.Error, match="same Draft"):
        unlike = {"a": [["Draft", 90], *views["large"]], "b": views["small"]}
        batchd.DataLoader(dataset, 3, transform=unlike, dtype="uint8", job="w")


def test_draws_are_those_of_the_full_picture(tmp_path):
    """The op that stands for the draft takes no place in the keys: a PNG's rows are the same with and without it."""
    data = written(picture(300, 200), "PNG")
    for words in ("train224", [["RandomCrop", 50], ["ColorJitter", 0.4]]):
        for index in range(3):
            options = {"index": index, "seed": 4}
            same(load(data, words, decode="draft", **options), load(data, words, **options), (words, index))


def test_numpys_numbers_are_sizes():
    data = written(picture(300, 200))
    words = [["CenterCrop", [50, 75]]]
    wanted = load(data, words, decode=("draft", (50, 75)))
    same(load(data, words, decode=("draft", (np.int64(50), np.int32(75)))), wanted, "numbers")
    same(load(data, words, decode=("draft", np.array([50, 75]))), wanted, "an array")


CONFIGURED = """
pipelines:
  - name: small
    transform: [[RandomResizedCrop, 40], ToTensor]
datasets:
  - name: photos
    source: imagefolder:{}
    transform: small
"""


def test_what_the_configuration_has_is_not_replaced(make_daemon, tmp_path):
    """A data set's own transform is the daemon's, which a draft in front of train224 would not be."""
    (tmp_path / "set/a").mkdir(parents=True)
    (tmp_path / "set/a/0.jpg").write_bytes(written(picture(300, 200)))
    make_daemon(config=CONFIGURED.format(tmp_path / "set"))
    with batchd.DataLoader("photos", 1, arrays="numpy") as loader:
        assert next(iter(loader))[0].shape == (1, 3, 40, 40)
    with pytest.raises(ValueError, match="decode='draft' needs transform=.*configuration"):
        batchd.DataLoader("photos", 1, decode="draft")
    for transform in ("small", {"a": "val224", "b": "small"}):
        with pytest.raises(ValueError, match="decode does not go with transform='small'.*\\[\"Draft\", 80\\]"):
            batchd.DataLoader("photos", 1, transform=transform, decode=("draft", 80))
    with batchd.DataLoader("photos", 1, transform="val224", decode="draft", arrays="numpy") as loader:
        assert next(iter(loader))[0].shape == (1, 3, 224, 224)


def test_what_is_wrong_is_named(daemon):
    data = written(picture(64, 64))
    for decode in ("Draft", 8, ("draft",), ("draft", 8, 8), True):
        with pytest.raises(ValueError, match="decode must be"):
            load(data, "val224", decode=decode)
    for size in (0, "x", (1, 2, 3), 10**6):
        with pytest.raises(ValueError, match="op of decode= 'Draft'.*size"):
            load(data, "val224", decode=("draft", size))
    with pytest.raises(ValueError, match="decode: .* is no size in pixels"):
        load(data, "val224", decode=("draft", object()))
    with pytest.raises(ValueError, match="Draft.*must be the first op"):
        load(data, [["CenterCrop", 8], "Draft"])
    with pytest.raises(ValueError, match="'Draft' .decode. reads image files"):
        x = np.zeros((4, 16, 16, 3), np.uint8)
        batchd.DataLoader({"image": x}, 2, transform=[["CenterCrop", 8]], decode="draft")

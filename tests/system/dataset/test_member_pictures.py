"""Pictures of every format that is decoded, as members of shards and archives: Pillow's pixels."""

import io
import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")

import batchd  # noqa: E402 (torch may be missing)

ENDINGS = {
    "jpg": "JPEG",
    "png": "PNG",
    "webp": "WEBP",
    "bmp": "BMP",
    "ppm": "PPM",
    "pgm": "PPM",
    "pbm": "PPM",
    "gif": "GIF",
    "tif": "TIFF",
    "tiff": "TIFF",
}
MODES = {"pgm": "L", "pbm": "1", "gif": "P"}


def picture(ending, number):
    pixels = np.random.default_rng(number).integers(0, 256, (12, 15, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).convert(MODES.get(ending, "RGB")).save(out, ENDINGS[ending])
    return out.getvalue()


def samples():
    return [(f"{i:03}", ending, picture(ending, i)) for i, ending in enumerate([*ENDINGS, *ENDINGS])]


def pack(path, members):
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in members:
                archive.writestr(name, data)
        return
    with tarfile.open(path, "w") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def pixels_of(dataset, **options):
    with batchd.DataLoader(
        dataset, 4, transform=[["CenterCrop", [12, 15]], "ToTensor"], dtype="uint8", **options
    ) as loader:
        rows = [row for batch in loader for row in (batch["image"] if isinstance(batch, dict) else batch[0])]
    return [row.permute(1, 2, 0).numpy() if row.shape[0] == 3 else row.numpy() for row in rows]


def check(rows):
    expected = [np.asarray(Image.open(io.BytesIO(data)).convert("RGB")) for _, _, data in samples()]
    assert len(rows) == len(expected)
    for (_, ending, _), ours, theirs in zip(samples(), rows, expected):
        np.testing.assert_array_equal(ours, theirs, ending)


@pytest.mark.parametrize("ending", ["tar", "zip"])
@pytest.mark.parametrize("fields", [None, ("image", "txt")])
def test_samples_of_shards_may_be_of_every_format(daemon, tmp_path, ending, fields):
    """Without a list of fields, and with the name image for it."""
    path = tmp_path / f"all.{ending}"
    pack(path, [m for k, e, data in samples() for m in ((f"{k}.{e}", data), (f"{k}.txt", b"text"))])
    if fields is None:
        check(
            pixels_of(
                f"{ending}:{path}"
                + ("" if ending == "tar" else "#image=jpg;png;webp;bmp;ppm;pgm;pbm;gif;tif;tiff,txt=txt"),
                **({"fields": ("image",)} if ending == "tar" else {}),
            )
        )
    else:
        check(pixels_of(f"{ending}:{path}", fields={name: name for name in fields}))


def test_an_arrow_file_may_have_pictures_of_every_format(daemon, tmp_path):
    datasets = pytest.importorskip("datasets", reason="the datasets package is not installed")
    datasets.disable_progress_bars()
    table = {"image": [{"bytes": data, "path": f"{k}.{e}"} for k, e, data in samples()], "label": [0] * len(samples())}
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    datasets.Dataset.from_dict(table, features=features).save_to_disk(tmp_path / "saved")
    check(pixels_of(f"arrow:{tmp_path}/saved"))


def test_a_name_without_a_folder_is_one_of_the_working_directory(batchctl, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for ending in ("tar", "zip"):
        pack(tmp_path / f"a.{ending}", [("0.jpg", picture("jpg", 0))])
        done = batchctl("verify", f"{ending}:a.{ending}")
        assert (done.returncode, "all 1 files are good" in done.stdout) == (0, True), done.stderr

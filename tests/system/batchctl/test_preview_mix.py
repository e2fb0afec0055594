"""batchctl preview --mix shows the rows that a trainer gets."""

import json

import numpy as np
import pytest

import batchd
from test_batchctl import Image, cell

N = 6
TRANSFORM = '[["RandomResizedCrop", 224], "ToTensor"]'


@pytest.mark.parametrize("mix, kind", [("cutmix:alpha=1", "cutmix"), ("mixup:alpha=1", "mixup")])
def test_the_first_batch_of_a_loader(daemon, batchctl, photos, tmp_path, mix, kind):
    """The same pixels (of a blend: rounded), partners and weights as in the first batch of a loader."""
    out = tmp_path / "sheet.png"
    options = "--transform", TRANSFORM, "--mix", mix, "--n", N, "--seed", 5, "--epoch", 2, "--columns", 2
    said = json.loads(batchctl("preview", photos, "--out", out, *options, "--json").stdout)
    loader = batchd.DataLoader(
        f"imagefolder:{photos}", N, shuffle=True, seed=5, transform=TRANSFORM, layout="NHWC", mix=mix, arrays="numpy"
    )
    loader.set_epoch(2)
    images, _ = next(iter(loader))
    table, indices = loader.last_batch.mix, loader.last_batch.indices
    assert said["indices"] == indices.tolist()
    for i, (row, told) in enumerate(zip(table, said["fields"])):
        assert told["kind"] == kind and told["partner"] == indices[row["partner"]]
        assert told["weight"] == pytest.approx(float(row["weight"]))
        shown = np.asarray(cell(Image.open(out), i, 2), "f4")
        assert np.abs(shown - images[i] * 255).max() < (1e-3 if kind == "cutmix" else 0.501)


def test_wrong_descriptions(batchctl, photos, tmp_path):
    for mix, why in (("mixup:alpha=nan", "alpha must be a number"), ("timm", "an even number of rows; give --n 8")):
        r = batchctl("preview", photos, "--out", tmp_path / "x.png", "--mix", mix, "--n", 7)
        assert r.returncode == 2 and f"--mix: {'timm' if mix == 'timm' else 'alpha'}" in r.stderr and why in r.stderr


@pytest.mark.parametrize("smoothing", [0, 0.1])
def test_targets_are_those_of_a_loader(daemon, batchctl, photos, tmp_path, smoothing):
    """The shares of both classes, with their smoothing, are what the loader's soft targets have there."""
    n = 20  # of two classes, so that some rows mix pictures of one class
    mix, chosen = f"targets:classes=20,smoothing={smoothing};mixup:alpha=1", list(range(10, 30))
    options = "--mix", mix, "--indices", ",".join(map(str, chosen)), "--seed", 5, "--epoch", 2
    said = json.loads(batchctl("preview", photos, "--out", tmp_path / "x.png", *options, "--json").stdout)
    spec = f"imagefolder:{photos}"
    loader = batchd.DataLoader(spec, n, sampler=chosen, seed=5, transform=TRANSFORM, mix=mix, arrays="numpy")
    loader.set_epoch(2)
    _, targets = next(iter(loader))
    assert said["indices"] == chosen and {len(told["target"]) for told in said["fields"]} == {1, 2}
    for row, told in zip(targets, said["fields"]):
        wanted = {name: float(row[k]) for k, name in enumerate(loader.classes) if row[k] > 0.1 / 20 + 1e-6}
        assert told["target"] == pytest.approx(wanted, abs=1e-6)


def test_too_few_classes_are_refused_as_by_a_loader(batchctl, photos, tmp_path):
    r = batchctl("preview", photos, "--out", tmp_path / "x.png", "--mix", "targets:classes=3;mixup:alpha=1")
    assert r.returncode == 2 and "--mix: the data set has 20 classes, and the soft targets only 3" in r.stderr

"""ElasticTransform: torchvision's own code, which gets the numbers that the daemon draws for its field, gives the same
pixels."""

import numpy as np
import pytest
from PIL import Image
from test_augment_ops import choices, functional, images, render
from test_draws import philox4x32
from test_pixels import NO_PREFIX
from test_random_ops import is_uniform
from vision import import_torchvision

from batchd import _transform

torch = pytest.importorskip("torch")
transforms = import_torchvision().transforms
assert functional and images and render  # fixtures


def field(key, width, height):
    """torch.rand's numbers for one direction."""
    block = np.arange(-(-width * height // 4), dtype=np.uint64)
    zero = np.zeros_like(block)
    made = np.stack(philox4x32([zero, zero, zero, block], [int(k) for k in key]), -1).ravel()[: width * height]
    return torch.from_numpy(((made >> np.uint64(8)) * 2.0**-24).astype(np.float32).reshape(1, 1, height, width))


def upstream(monkeypatch, transform, image, keys):
    fields = [field(keys[i : i + 2], *image.size) for i in (0, 2)]
    with monkeypatch.context() as patch:
        patch.setattr(torch, "rand", lambda *a, **k: fields.pop(0).clone())
        made = transform(image)
    assert not fields
    return np.asarray(made).astype(int)


# The last picture's edges are a gradient, so that a place that is slightly off is seen at once.
OPTIONS = [
    {},
    {"alpha": [30.0, 90.0], "sigma": [3.0, 1.5], "fill": [200, 3, 90]},
    {"alpha": 500.0, "sigma": 2.6, "fill": 128},
    {"alpha": 9.0, "sigma": 0.0},
    {"alpha": [200.0, -80.0], "sigma": 4.0, "interpolation": "nearest", "fill": [7, 8, 255]},
    {"alpha": 0.0, "sigma": 0.5},
]


def torchvisions(module, options):
    options = dict(options)
    mode = transforms.InterpolationMode(options.pop("interpolation", "bilinear"))
    return module.ElasticTransform(interpolation=mode, **options)


@pytest.mark.parametrize("module", [transforms, transforms.v2], ids=["v1", "v2"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_pixels_of_torchvisions_code_with_the_same_numbers(build, render, images, monkeypatch, module, options):
    """Values within 1 and nearly all equal; nearest: other pixels only where a place lies between two."""
    transform = torchvisions(module, options)
    (op,) = _transform._ops(transform)
    assert op[0] == "ElasticTransform"
    moved = 0
    for n, image in enumerate(images):
        if min(image.size) <= 20 and options == {}:
            continue
        for index in range(3):
            keys = choices(build, op, image.size, 1, index + n)[0]
            want = upstream(monkeypatch, transform, image, keys)
            got = render([op, ["CenterCropOrPad", [image.height, image.width]]], [image], index=index + n)
            got = np.frombuffer(got, np.uint8).reshape(want.shape).astype(int)
            off = np.abs(got - want)
            if options.get("interpolation") == "nearest":
                assert (off.max(-1) > 0).mean() <= 0.001, (image.size, off.max())
            else:
                assert off.max() <= 1 and (off > 0).mean() <= 0.001, (image.size, off.max(), (off > 0).mean())
            moved += (want != np.asarray(image)).mean()
    assert moved > 1 or options["alpha"] == 0.0 == moved


def test_nothing_for_fill_is_black_in_bilinear_sums(build, render, images, monkeypatch):
    """fill=None of v2 multiplies by no mask, so the border is brighter than with fill=0."""
    transform = transforms.v2.ElasticTransform(alpha=300.0, sigma=2.0, fill=None)
    image = images[2]
    (op,) = _transform._ops(transform)
    want = upstream(monkeypatch, transform, image, choices(build, op, image.size, 1)[0])
    got = [
        np.frombuffer(render([[op[0], {**op[1], "fill": fill}], ["CenterCropOrPad", [70, 90]]], [image]), np.uint8)
        for fill in (None, 0)
    ]
    assert np.abs(got[0].astype(int) - want.ravel()).max() <= 1
    assert (got[0] > got[1]).sum() > 100 and not (got[0] < got[1]).any()


def test_every_sample_has_a_field_of_its_own(build):
    """Keys of both directions are uniform and do not depend on each other."""
    chosen = choices(build, ["ElasticTransform"])
    for column in range(4):
        is_uniform(chosen[:, column] / 2**32, 0.0, 1.0)
        assert (
            abs(np.corrcoef(chosen[:, column], np.roll(chosen[:, (column + 1) % 4], 1))[0, 1]) < 5 / len(chosen) ** 0.5
        )
        assert abs(np.corrcoef(chosen[:, column], chosen[:, (column + 1) % 4])[0, 1]) < 5 / len(chosen) ** 0.5
    assert len(np.unique(chosen, axis=0)) == len(chosen)


@pytest.mark.parametrize(
    "op,message",
    [
        (["ElasticTransform", "x"], "argument 'alpha'"),
        (["ElasticTransform", 50, 40], "argument 'sigma'.*31.7"),
        (["ElasticTransform", 50, [1, 0]], "argument 'sigma'.*two numbers above 0"),
        (["ElasticTransform", 50, [1, 2, 3]], "argument 'sigma'"),
        (["ElasticTransform", 50, 5, "bicubic"], "argument 'interpolation'"),
        (["ElasticTransform", 50, 5, "nearest", 300], "argument 'fill'"),
        (["ElasticTransform"], "sigma .5, 5. needs at least 21 x 21: lower sigma"),
    ],
)
def test_wrong_arguments_are_named(render, op, message):
    with pytest.raises(AssertionError, match=message):
        render([NO_PREFIX, op, ["CenterCrop", 8]], [Image.new("RGB", (20, 40))])

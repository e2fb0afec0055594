"""torchvision's augmentation objects, v1 and v2, with every kind of argument: the client's text for each is one that
the daemon's parser takes, and says what the object says."""

import json

import pytest
from PIL import Image

from test_pixels import Render, tool
from batchd import _transform
from vision import import_torchvision

pytest.importorskip("torch")


def both(m, mode):
    """Classes that v1 and v2 have, and what of their arguments the text must hold."""
    return [
        (m.RandomInvert(), {"p": 0.5}),
        (m.RandomPosterize(3), {"bits": 3, "p": 0.5}),
        (m.RandomSolarize(128, 0.2), {"threshold": 128, "p": 0.2}),
        (m.RandomAutocontrast(), {"p": 0.5}),
        (m.RandomEqualize(0.1), {"p": 0.1}),
        (m.RandomAdjustSharpness(2.0), {"sharpness_factor": 2.0}),
        (m.GaussianBlur(9), {"sigma": [0.1, 2.0]}),
        (m.GaussianBlur((5, 9), (0.5, 1)), {"kernel_size": [5, 9], "sigma": [0.5, 1]}),
        (m.GaussianBlur(3, 1.5), {"sigma": [1.5, 1.5]}),
        (m.RandomRotation(30), {"degrees": [-30, 30], "interpolation": "nearest"}),
        (
            m.RandomRotation((10, 20), mode.BILINEAR, center=(3, 4), fill=(1, 2, 3)),
            {"center": [3, 4], "fill": [1, 2, 3]},
        ),
        (m.RandomRotation(30, expand=True, fill=None), {"expand": True}),
        (m.RandomAffine(10, (0.1, 0.2), (0.5, 1.5), (1, 2, 3, 4), mode.BICUBIC, 7), {"shear": [1, 2, 3, 4], "fill": 7}),
        (m.RandomAffine((0, 0), shear=5), {"shear": [-5, 5], "translate": None, "scale": None, "center": None}),
        (m.RandomPerspective(), {"distortion_scale": 0.5, "interpolation": "bilinear"}),
        (m.RandomPerspective(fill=[1, 2, 3.0]), {"fill": [1, 2, 3]}),
        (m.Resize((20, 20), mode.LANCZOS), {"interpolation": "lanczos"}),
        (m.RandomResizedCrop(20, interpolation=mode.HAMMING), {"interpolation": "hamming"}),
        (m.RandomResizedCrop(20, interpolation=mode.BOX), {"interpolation": "box"}),
    ]


def newer(v2):
    return [
        (v2.RandomResize(20, 40), {"min_size": 20, "max_size": 40}),
        (v2.RandomShortestSize([20, 30], 50), {"min_size": [20, 30], "max_size": 50}),
        (v2.RandomShortestSize(20), {"min_size": [20], "max_size": None}),
        (v2.ScaleJitter((30, 40)), {"target_size": [30, 40], "scale_range": [0.1, 2.0]}),
        (v2.RandomZoomOut((1, 2, 3)), {"fill": [1, 2, 3], "side_range": [1.0, 4.0]}),
        (v2.RandomPhotometricDistort(), {"hue": [-0.05, 0.05], "p": 0.5}),
        (v2.RandomChannelPermutation(), {}),
    ]


def test_objects_of_torchvision(build, tmp_path):
    vision = import_torchvision().transforms
    v2, mode = vision.v2, vision.InterpolationMode
    render = Render(tool(build, "render"), tmp_path)
    for made, wanted in [*both(vision, mode), *both(v2, mode), *newer(v2)]:
        text = _transform.text([v2.RandomHorizontalFlip(0.0), made, v2.CenterCrop(8)])
        given = json.loads(text)[1][1]
        assert {k: given.get(k) for k in wanted} == wanted, made
        assert len(render(text, [Image.new("RGB", (40, 30))])) == 8 * 8 * 3, made

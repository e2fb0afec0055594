"""RandomApply, RandomChoice and RandomOrder: how often they choose what, and that what they run gives Pillow's pixels."""

import collections
import itertools
import json
import math
import subprocess

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from test_draws import numbers
from test_random_ops import N, choices, evenly_spread

SIZE = (24, 20)
# A raw picture counts as the deterministic prefix, which the first op ends; the second one tells the size.
KEEP = [["RandomHorizontalFlip", 0], ["Resize", [SIZE[1], SIZE[0]]]]


@pytest.fixture(scope="module")
def picture(tmp_path_factory):
    """Noise, as an image and as raw pixels in a file."""
    pixels = np.random.default_rng(3).integers(0, 256, (SIZE[1], SIZE[0], 3), np.uint8)
    file = tmp_path_factory.mktemp("noise") / "picture.rgb"
    file.write_bytes(pixels.tobytes())
    return Image.fromarray(pixels), f"{SIZE[0]}x{SIZE[1]}:{file}"


def rows(build, ops, raw, n, seed=0, epoch=0, first=0):
    """The results for samples first to first + n - 1."""
    tool = build / "tests" / "tools" / "render"
    if not tool.exists():
        pytest.skip(f"{tool} is not built")
    args = [tool, json.dumps([*KEEP, *ops]), "uint8", "NHWC", str(seed), str(epoch), str(first), *[raw] * n]
    done = subprocess.run(args, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    made = done.stdout
    return [made[i : i + len(made) // n] for i in range(0, len(made), len(made) // n)]


def counted(build, ops, raw):
    """How often each result comes, of N samples."""
    found = collections.Counter()
    for first in range(0, N, 5000):
        found.update(rows(build, ops, raw, 5000, first=first))
    return found


# Ops that keep the size and of which no two commute, with what Pillow does.
BRIGHTER = ["ColorJitter", {"brightness": [1.5, 1.5]}], lambda i: ImageEnhance.Brightness(i).enhance(1.5)
FLATTER = ["ColorJitter", {"contrast": [0.5, 0.5]}], lambda i: ImageEnhance.Contrast(i).enhance(0.5)
GREY = ["Grayscale", 3], lambda i: i.convert("L").convert("RGB")


def after(image, functions):
    for f in functions:
        image = f(image)
    return np.asarray(image).tobytes()


def test_apply_runs_all_or_nothing(build, picture):
    """As often as p says, within four standard deviations."""
    image, raw = picture
    made = counted(build, [["RandomApply", [BRIGHTER[0], GREY[0]], 0.3]], raw)
    n = made[after(image, [BRIGHTER[1], GREY[1]])]
    assert n + made[image.tobytes()] == N
    assert abs(n - N * 0.3) < 4 * math.sqrt(N * 0.3 * 0.7)
    for p in (0.0, 0.25, 1.0):
        happened = choices(build, ["RandomApply", [GREY[0]], p]).sum()
        assert abs(happened - N * p) <= 4 * math.sqrt(N * p * (1 - p))


def test_choice_runs_one(build, picture):
    """Each as often as the others, or by weight, which need not sum to 1; never one of weight 0."""
    image, raw = picture
    ops, functions = zip(BRIGHTER, FLATTER, GREY)
    made = counted(build, [["RandomChoice", [*ops, "Identity"]]], raw)
    assert len(made) == 4
    evenly_spread([made[x] for x in [image.tobytes(), *(after(image, [f]) for f in functions)]])
    found = choices(build, ["RandomChoice", ["Identity"] * 4, [3, 0, 5, 2]])[:, 0].astype(int)
    counts = np.bincount(found, minlength=4)
    assert counts[1] == 0
    for count, p in zip(counts, (0.3, 0, 0.5, 0.2)):
        assert abs(count - N * p) <= 4 * math.sqrt(N * p * (1 - p))


def test_order_runs_all_in_any_order(build, picture):
    """All six orders equally often, each with the pixels that Pillow gives in that order."""
    image, raw = picture
    ops, functions = zip(BRIGHTER, FLATTER, GREY)
    expected = [after(image, order) for order in itertools.permutations(functions)]
    made = counted(build, [["RandomOrder", list(ops)]], raw)
    assert set(made) == set(expected)
    evenly_spread(list(made.values()))
    orders = choices(build, ["RandomOrder", ["Identity", "RandomGrayscale", BRIGHTER[0], GREY[0], FLATTER[0]]])
    codes = orders.astype(int) @ np.array([64, 16, 4, 1])
    assert (np.sort(orders, axis=1) == np.arange(4)).all() and len(np.unique(codes)) == 24
    evenly_spread(np.unique(codes, return_counts=True)[1])


def test_ops_inside_draw_numbers_of_their_own(build, picture):
    """A new implementation of Philox is the oracle: ops of the pipeline itself keep the numbers of their position, and the
    n-th op inside containers has those of place 64 + n, whatever its neighbours do."""
    image, raw = picture
    flip = ["RandomHorizontalFlip", 0.5]
    ops = [["RandomApply", ["RandomGrayscale", ["RandomApply", [flip], 1]], 1], ["RandomVerticalFlip", 0.5]]
    made = rows(build, [["RandomApply", [["RandomGrayscale", 0]], 1], *ops], raw, 40, seed=5, epoch=9)
    for index, row in enumerate(made):
        happens = [
            (numbers(5, 9, index, place)[0] >> 8) * 2.0**-24 < p
            for place, p in ((65, 0.1), (67, 0.5), (4, 0.5))  # grey, horizontal, vertical
        ]
        out = image.convert("L").convert("RGB") if happens[0] else image
        out = out.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if happens[1] else out
        out = out.transpose(Image.Transpose.FLIP_TOP_BOTTOM) if happens[2] else out
        assert row == out.tobytes(), index


def test_nested_choices_are_independent(build, picture):
    """Two flips inside two containers take all four values equally often."""
    image, raw = picture
    ops = [["RandomApply", ["RandomHorizontalFlip"], 1], ["RandomApply", ["RandomVerticalFlip"], 1]]
    made = counted(build, ops, raw)
    evenly_spread(list(made.values()))
    assert len(made) == 4

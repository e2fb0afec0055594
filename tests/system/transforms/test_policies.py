"""torchvision's policies: their tables and amounts, what they draw by distribution, and the pixels of each drawn step
against torchvision's own functions on Pillow's images."""

import json
import math
import subprocess

import numpy as np
import pytest
from PIL import Image

from test_random_ops import evenly_spread, is_uniform
from vision import import_torchvision

torch = pytest.importorskip("torch")

SIZE = (61, 47)  # width, height
N = 100_000
NAMES = (  # enum augment
    "Identity ShearX ShearY TranslateX TranslateY - - - - Rotate Brightness Color Contrast Sharpness Posterize Solarize "
    "SolarizeAdd GaussianBlur AutoContrast Equalize Invert"
).split()
FILTERS = {0: "nearest", 2: "bilinear", 3: "bicubic"}
SIGNED = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast", "Sharpness")


@pytest.fixture(scope="module")
def v2():
    try:
        return import_torchvision().transforms.v2
    except Exception as e:  # absent, or built for another torch
        pytest.skip(f"torchvision cannot be imported: {e}")


@pytest.fixture(scope="module")
def picture(tmp_path_factory):
    """A smooth picture with noise on it, so that every op changes something."""
    y, x = np.mgrid[: SIZE[1], : SIZE[0]]
    pixels = np.stack([x * 4, y * 5, 255 - x - y], -1) * 0.8 + np.random.default_rng(1).integers(0, 50, (*x.shape, 3))
    pixels = pixels.clip(20, 240).astype(np.uint8)
    file = tmp_path_factory.mktemp("picture") / "picture.rgb"
    file.write_bytes(pixels.tobytes())
    return Image.fromarray(pixels), f"{SIZE[0]}x{SIZE[1]}:{file}"


def tool(build):
    path = build / "tests" / "tools" / "render"
    if not path.exists():
        pytest.skip(f"{path} is not built")
    return path


def run(args):
    done = subprocess.run(args, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def drawn(build, op, n, size=SIZE):
    """Rows of numbers: the choices of op, at place 2 of a pipeline."""
    ops = [["Resize", [size[1], size[0]]], ["CenterCrop", [size[1], size[0]]], op]
    lines = (
        run([tool(build), "--choices", json.dumps(ops), "0", "0", "0", str(n), *map(str, size)]).decode().splitlines()
    )
    return [np.array(line.split(), float) for line in lines]


def steps(row):
    """(name, amount, filter) of each step."""
    return [(NAMES[int(what)], amount, FILTERS[int(f)]) for what, amount, f in row.reshape(-1, 3)]


def made(build, op, raw, n):
    """The pixels for samples 0 to n - 1, with op at place 2."""
    ops = [["RandomHorizontalFlip", 0], ["Resize", [SIZE[1], SIZE[0]]], op]
    out = run([tool(build), json.dumps(ops), "uint8", "NHWC", "0", "0", "0", *[raw] * n])
    return np.frombuffer(out, np.uint8).reshape(n, SIZE[1], SIZE[0], 3)


def theirs(v2, image, taken, fill):
    """torchvision's results of the steps."""
    policy = v2.RandAugment()
    for name, amount, f in taken:
        magnitude = amount
        if name in ("Brightness", "Color", "Contrast", "Sharpness"):
            magnitude = amount - 1.0
            assert 1.0 + magnitude == amount
        if name == "Solarize":
            magnitude = amount / 255.0
        if name == "Posterize" and amount == 0:  # Pillow 13 refuses it; the older ones make black
            image = Image.new("RGB", image.size)
            continue
        fills = {Image.Image: fill}
        image = policy._apply_image_or_video_transform(image, name, magnitude, interpolation=f, fill=fills)
    return image


def magnitudes(space, name, n_bins, size=SIZE):
    function, signed = space[name]
    assert signed == (name in SIGNED)
    values = function(n_bins, size[1], size[0])
    return None if values is None else [float(v) for v in values]


def amounts(name, values, bins):
    """What may be drawn of these bins, as our steps say it."""
    if values is None:
        return {0.0}
    values = [values[i] for i in bins]
    if name in ("Brightness", "Color", "Contrast", "Sharpness"):
        return {1.0 + v for v in values} | {1.0 - v for v in values}
    if name == "Solarize":
        return {255.0 * v for v in values}
    return {v for v in values} | ({-v for v in values} if name in SIGNED else set())


@pytest.mark.parametrize(
    "kind,n_bins,magnitude,options",
    [
        ("RandAugment", 31, 9, {}),
        ("RandAugment", 31, 30, {"magnitude": 30, "num_ops": 5}),
        ("RandAugment", 10, 7, {"magnitude": 7, "num_magnitude_bins": 10, "num_ops": 1}),
        ("TrivialAugmentWide", 31, None, {}),
        ("TrivialAugmentWide", 12, None, {"num_magnitude_bins": 12}),
    ],
)
def test_what_is_drawn(build, v2, kind, n_bins, magnitude, options):
    """Every change of torchvision's space equally often, with exactly torchvision's amounts, equally often too."""
    space = getattr(v2, kind)._AUGMENTATION_SPACE
    n_ops = options.get("num_ops", 2) if kind == "RandAugment" else 1
    rows = drawn(build, [kind, options], N // n_ops)
    assert all(len(row) == 3 * n_ops for row in rows)
    all_steps = np.concatenate(rows).reshape(-1, 3)
    counts = {}
    for what, amount in all_steps[:, :2]:
        counts.setdefault(NAMES[int(what)], []).append(amount)
    assert set(counts) == set(space)
    evenly_spread([len(x) for x in counts.values()])
    bins = range(n_bins) if magnitude is None else [magnitude]
    for name, found in counts.items():
        expected = amounts(name, magnitudes(space, name, n_bins), bins)
        assert set(found) == expected, name
        middle = 1.0 if name in ("Brightness", "Color", "Contrast", "Sharpness") else 0.0
        if name in SIGNED:
            positive = sum(x > middle for x in found)
            negative = sum(x < middle for x in found)
            assert abs(positive - negative) < 4 * math.sqrt(positive + negative), name
        if magnitude is None and name in SIGNED:
            per_bin = np.unique(np.abs(np.array(found) - middle).round(6), return_counts=True)[1]
            assert len(per_bin) == n_bins
            evenly_spread(per_bin)


@pytest.mark.parametrize("policy", ["imagenet", "cifar10", "svhn"])
def test_auto_augments_sub_policies(build, v2, policy):
    """Each of torchvision's 25 pairs, by the frequencies of its steps: expected counts of (first, second) from its table,
    by chi-square."""
    from torchvision.transforms import AutoAugmentPolicy

    table = v2.AutoAugment(AutoAugmentPolicy(policy))._policies
    space = v2.AutoAugment._AUGMENTATION_SPACE
    expected = {}
    for pair in table:
        options = []
        for name, p, bin in pair:
            values = magnitudes(space, name, 10)
            found = amounts(name, values, [bin]) if values is not None else {0.0}
            options.append([(None, 1 - p)] + [((name, round(a, 6)), p / len(found)) for a in found])
        for first, p in options[0]:
            for second, q in options[1]:
                key = tuple(x for x in (first, second) if x)
                expected[key] = expected.get(key, 0) + p * q / 25
    counts = {}
    for row in drawn(build, ["AutoAugment", policy], N):
        key = tuple((name, round(amount, 6)) for name, amount, _ in steps(row))
        counts[key] = counts.get(key, 0) + 1
    possible = {key for key, p in expected.items() if p > 1e-12}
    assert set(counts) <= possible
    chi2 = sum((counts.get(k, 0) - N * expected[k]) ** 2 / (N * expected[k]) for k in possible)
    k = len(possible) - 1
    z = ((chi2 / k) ** (1 / 3) - (1 - 2 / (9 * k))) / math.sqrt(2 / (9 * k))
    assert 0.5 * math.erfc(z / math.sqrt(2)) > 1e-4, (chi2, k)


def test_the_first_generation_rounds_thresholds_in_its_own_way(build, v2):
    """torchvision.transforms has linspace(255, 0); v2 has 255 * linspace(1, 0)."""
    from torchvision import transforms as v1

    for kind, ours in ((v1.RandAugment(), "RandAugment"), (v1.TrivialAugmentWide(), "TrivialAugmentWide")):
        space = kind._augmentation_space(31, (47, 61)) if ours == "RandAugment" else kind._augmentation_space(31)
        found = {}
        for row in drawn(build, [ours, {"v1": True}], 30_000):
            for name, amount, _ in steps(row):
                found.setdefault(name, set()).add(amount)
        assert set(space) == set(found)
        for name, (values, signed) in space.items():
            values = [float(v) for v in values] if values.ndim else [0.0]
            values = values if ours == "TrivialAugmentWide" or len(values) == 1 else [values[9]]
            if name == "Solarize":
                assert found[name] == set(values)
            else:
                scaled = [v / 255 if name == "Solarize" else v for v in values]
                assert found[name] == amounts(name, scaled, range(len(scaled))), name


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("kind", ["RandAugment", "TrivialAugmentWide", "AutoAugment"])
def test_pixels_are_those_of_torchvisions_functions(build, v2, picture, kind, interpolation):
    """The drawn steps, done by torchvision on a Pillow image, byte for byte; black and grey outside."""
    image, raw = picture
    for fill in (None, [9, 99, 199]):
        options = {"interpolation": interpolation, "fill": fill}
        if kind == "RandAugment":
            options |= {"num_ops": 3, "magnitude": 17}
        ours = made(build, [kind, options], raw, 60)
        for row, taken in zip(ours, drawn(build, [kind, options], 60)):
            want = np.asarray(theirs(v2, image, steps(taken), fill))
            assert np.array_equal(row, want), (steps(taken), np.abs(row.astype(int) - want).max())


@pytest.mark.parametrize(
    "options", [{}, {"severity": 10, "mixture_width": 4, "chain_depth": 2}, {"all_ops": False, "fill": [9, 99, 199]}]
)
def test_aug_mix(build, v2, picture, options):
    """What is drawn (chains of 1 to 3 of torchvision's changes, weights by Dirichlet), and the pixels: each chain by
    torchvision's functions on a Pillow image, mixed in float32 as torchvision mixes tensors, truncated."""
    image, raw = picture
    width, severity, fill = options.get("mixture_width", 3), options.get("severity", 3), options.get("fill")
    rows = drawn(build, ["AugMix", options], N)
    heads = np.array([row[: 1 + 2 * width] for row in rows])
    assert np.abs(heads[:, : 1 + width].sum(axis=1) - 1).max() < 1e-6
    own, depths = heads[:, 0], heads[:, 1 + width :].astype(int).ravel()
    taken = np.concatenate([row[1 + 2 * width :] for row in rows]).reshape(-1, 3)
    counts = {name: taken[taken[:, 0] == what, 1] for what, name in enumerate(NAMES) if (taken[:, 0] == what).any()}
    is_uniform(own, 0, 1)
    if "chain_depth" in options:
        assert set(depths.tolist()) == {2}
    else:
        evenly_spread(np.bincount(depths)[1:])
    space = v2.AugMix._AUGMENTATION_SPACE if options.get("all_ops", True) else v2.AugMix._PARTIAL_AUGMENTATION_SPACE
    assert set(counts) == set(space)
    evenly_spread([len(counts[name]) for name in space])
    for name in space:
        assert set(counts[name].tolist()) == amounts(name, magnitudes(space, name, 10), range(severity)), name
    for row, taken in zip(made(build, ["AugMix", options], raw, 40), drawn(build, ["AugMix", options], 40)):
        weights, ends = taken[: 1 + width].astype(np.float32), np.cumsum(taken[1 + width : 1 + 2 * width]).astype(int)
        chain = steps(taken[1 + 2 * width :])
        mix = weights[0] * np.asarray(image).astype(np.float32)
        for i, (begin, end) in enumerate(zip([0, *ends], ends)):
            mix += weights[1 + i] * np.asarray(theirs(v2, image, chain[begin:end], fill)).astype(np.float32)
        assert np.array_equal(row, mix.astype(np.uint8))


def test_bad_arguments_are_named(build):
    for op, words in (
        (["RandAugment", {"num_ops": 17}], "'num_ops' is 17"),
        (["RandAugment", {"magnitude": 31}], "'magnitude' is 31"),
        (["RandAugment", {"interpolation": "lanczos"}], "'interpolation' is \"lanczos\""),
        (["TrivialAugmentWide", {"num_magnitude_bins": 1}], "'num_magnitude_bins' is 1"),
        (["AutoAugment", "mnist"], "'policy' is \"mnist\""),
        (["AutoAugment", {"fill": 256}], "'fill' is 256"),
        (["AugMix", {"severity": 11}], "'severity' is 11"),
        (["AugMix", {"mixture_width": 8, "chain_depth": 5}], "'chain_depth' is 5; expected a depth"),
        (["TimmRandAugment", [["Rotate", 0.5]]], "'ops' is"),
        (["TimmRandAugment", [["Shake", 0.5, 1]]], "timm's name of an op"),
        (["TimmRandAugment", [["Rotate", 0.5, 9]], {"choice_weights": [0]}], "'choice_weights'"),
        (["TimmAutoAugment", [[["Rotate", 2, 9]]]], "'policy'"),
    ):
        args = [tool(build), json.dumps([["CenterCrop", 8], op]), "uint8", "NHWC", "0", "0", "0", "/dev/null"]
        assert words in subprocess.run(args, capture_output=True, text=True).stderr

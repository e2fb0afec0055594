"""timm's policies against timm: its texts and objects, what is drawn by distribution, and the pixels of each drawn step
by timm's own functions. Without timm these tests are skipped."""

import json
import math
import random
import subprocess

import numpy as np
import pytest
from PIL import Image

import batchd
from batchd import _transform
from test_policies import SIZE, drawn, made, picture  # noqa: F401
from test_random_ops import same_distribution
from vision import import_torchvision

torch = pytest.importorskip("torch")
try:
    import_torchvision()
except Exception as e:  # absent, or built for another torch
    pytest.skip(f"torchvision cannot be imported: {e}", allow_module_level=True)
pytest.importorskip("timm", reason="timm is not installed")
from timm.data import auto_augment, create_transform  # noqa: E402

TEXTS = [
    "rand-m9-mstd0.5-inc1",
    "rand-m7-mstd0.5-inc1",
    "rand-m15-n3-mmax20-mstd1-p0.8",
    "rand-m9-n1",
    "rand-mstd101-inc1",
    "rand-m9-tweights",
    "rand-m5-t3a",
    "rand-m5-n4-t3aw-inc1",
    "v0",
    "v0r-mstd0.5",
    "original",
    "originalr",
    "3a",
    "augmix-m5-w4-d2",
    "augmix-mstd1",
    "augmix-b1",
]
RAW = {  # enum augment: timm's function
    5: auto_augment.shear_x,
    6: auto_augment.shear_y,
    7: auto_augment.translate_x_abs,
    8: auto_augment.translate_y_abs,
    9: auto_augment.rotate,
    10: auto_augment.brightness,
    11: auto_augment.color,
    12: auto_augment.contrast,
    13: auto_augment.sharpness,
    14: auto_augment.posterize,
    15: auto_augment.solarize,
    16: auto_augment.solarize_add,
    17: auto_augment.gaussian_blur,
    18: auto_augment.auto_contrast,
    19: auto_augment.equalize,
    20: auto_augment.invert,
}


def ops(transform):
    return json.loads(_transform.text(transform))


def policy(text, **options):
    """The op of timm's object for a text."""
    read = ops(create_transform(SIZE[1], is_training=True, auto_augment=text, **options))
    return next(op for op in read if op[0].startswith("Timm"))


@pytest.fixture
def canonical(build, samples, tmp_path):
    """The ops of a pipeline in the daemon's own words, as batchctl has them, which reads a pipeline as the daemon does."""

    def words(transform):
        run = [
            build / "batchctl",
            "preview",
            f"imagefolder:{samples}",
            "--json",
            "--n",
            "1",
            "--out",
            tmp_path / "one.png",
        ]
        done = subprocess.run([*run, "--transform", _transform.text(transform)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(json.loads(done.stdout)["pipeline"])

    return words


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("interpolation", ["bicubic", "random"])
def test_texts_mean_what_timm_makes_of_them(daemon, samples, canonical, text, interpolation):
    """The same op from the text in a list of words as from timm's own object."""
    crop = ["RandomResizedCrop", {"size": SIZE[1], "interpolation": interpolation}]
    mean = ["Normalize", [0.1, 0.2, 0.3], [1, 1, 1]]
    ours = canonical([crop, text, "ToTensor", mean])[1]
    want = canonical([crop, policy(text, interpolation=interpolation, mean=(0.1, 0.2, 0.3)), "ToTensor", mean])[1]
    for op in (ours, want):
        weights = op[1].pop("choice_weights", None)
        op.append(None if weights is None else (np.array(weights) / np.sum(weights)).round(12).tolist())
    assert ours == want
    with batchd.DataLoader(f"imagefolder:{samples}", 4, transform=[crop, text, "ToTensor", mean]) as loader:
        assert len(next(iter(loader))[0]) == 4


@pytest.mark.parametrize("text", ["3a", "rand-m5-t3a"])
def test_policies_that_move_no_pixels_take_any_filter(daemon, samples, text):
    """timm hands the crop's filter to every policy; Pillow moves no pixels by lanczos, and these policies move none."""
    transform = create_transform(32, is_training=True, auto_augment=text, interpolation="lanczos")
    transform.transforms[-3](Image.new("RGB", (9, 9)))  # timm's policy itself runs
    batchd.DataLoader(f"imagefolder:{samples}", 4, transform=transform).close()
    crop = ["RandomResizedCrop", {"size": 32, "interpolation": "lanczos"}]
    batchd.DataLoader(f"imagefolder:{samples}", 4, transform=[crop, text, "ToTensor"]).close()
    moving = create_transform(32, is_training=True, auto_augment="rand-m9", interpolation="lanczos")
    with pytest.raises(ValueError, match="'interpolation' is \"lanczos\"; expected .*bicubic"):
        batchd.DataLoader(f"imagefolder:{samples}", 4, transform=moving)


@pytest.mark.parametrize("text", ["rand-m9-mstd", "augmix-n2", "original-m9", "rand-m2.5", "v1"])
def test_texts_that_timm_refuses_are_refused_by_name(daemon, samples, text):
    with pytest.raises(ValueError, match=f"op 2.*{text}"):
        batchd.DataLoader(f"imagefolder:{samples}", 4, transform=[["CenterCrop", 8], text])


def test_create_transform_as_a_whole(daemon, samples):
    """DeiT's recipe, timm's default, and its evaluation."""
    train = create_transform(
        32,
        is_training=True,
        auto_augment="rand-m9-mstd0.5-inc1",
        interpolation="bicubic",
        re_prob=0.25,
        re_mode="pixel",
    )
    assert [op if isinstance(op, str) else op[0] for op in ops(train)] == [
        "RandomResizedCrop",
        "RandomHorizontalFlip",
        "TimmRandAugment",
        "ToTensor",
        "Normalize",
        "RandomErasing",
    ]
    default = create_transform(32, is_training=True, interpolation="random")
    assert ops(default)[0][1]["interpolation"] == "random"
    for transform in (train, default, create_transform(32), create_transform(32, no_aug=True, is_training=True)):
        images, _ = next(iter(batchd.DataLoader(f"imagefolder:{samples}", 8, transform=transform)))
        assert tuple(images.shape) == (8, 3, 32, 32) and images.dtype == torch.float32


def theirs(image, steps, fill):
    for what, amount, f in steps:
        if int(what) == 14 and amount == 0:  # Pillow 13 refuses it; the older ones make black
            image = Image.new("RGB", image.size)
            continue
        whole = {14: int, 15: int, 16: int}.get(int(what), float)
        arguments = () if int(what) >= 18 else (whole(amount),)
        image = RAW[int(what)](image, *arguments, fillcolor=tuple(fill), resample=int(f))
    return image


@pytest.mark.parametrize("text", TEXTS[:13])
def test_pixels_are_those_of_timms_functions(build, picture, text):  # noqa: F811
    """The drawn steps, done by timm's functions, byte for byte."""
    image, raw = picture
    for interpolation in ("bilinear", "random"):
        op = policy(text, interpolation=interpolation)
        for row, taken in zip(made(build, op, raw, 60), drawn(build, op, 60)):
            steps = taken.reshape(-1, 3)
            want = np.asarray(theirs(image, steps, op[1]["fill"]))
            assert np.array_equal(row, want), (steps, np.abs(row.astype(int) - want).max())


@pytest.mark.parametrize("text", TEXTS[13:])
def test_mixtures_are_timms(build, picture, text):  # noqa: F811
    """AugMixAugment's own arithmetic, with our draws: weights and m as drawn, chains by timm's functions."""
    image, raw = picture
    op = policy(text)
    width = op[1]["width"]
    for row, taken in zip(made(build, op, raw, 30), drawn(build, op, 30)):
        m, weights = np.float32(taken[0]), taken[1 : 1 + width].astype(np.float32)
        depths, steps = taken[1 + width : 1 + 2 * width].astype(int), taken[1 + 2 * width :].reshape(-1, 3)
        ends = np.cumsum(depths)
        chains = [theirs(image, steps[e - d : e], op[1]["fill"]) for d, e in zip(depths, ends)]
        if op[1]["blended"]:
            want = image
            calc = auto_augment.AugMixAugment([], width=width)._calc_blended_weights
            for chain, w in zip(chains, calc(weights, m)):
                want = Image.blend(want, chain, w)
        else:
            mixed = np.zeros_like(np.asarray(image), dtype=np.float32)
            for chain, w in zip(chains, weights):
                mixed += w * np.asarray(chain, dtype=np.float32)
            want = Image.blend(image, Image.fromarray(mixed.clip(0, 255).astype(np.uint8)), m)
        assert np.abs(row.astype(int) - np.asarray(want)).max() <= (1 if op[1]["blended"] else 0)


def spies(text, n):
    """What timm itself draws: (function's name, argument) of each step of n images."""
    seen = []

    def spy(name):
        def op(img, *args, **kwargs):
            size = {"translate_x_rel": img.size[0], "translate_y_rel": img.size[1]}.get(name, 1)
            seen.append((name, args[0] * size if args else 0.0))
            return img

        return op

    transform = create_transform(SIZE[1], is_training=True, auto_augment=text).transforms
    found = next(t for t in transform if type(t).__module__ == "timm.data.auto_augment")
    for op in getattr(found, "ops", None) or [op for steps in found.policy for op in steps]:
        op.aug_fn = spy(op.aug_fn.__name__)
    random.seed(5)
    np.random.seed(6)
    image = Image.new("RGB", SIZE)
    for _ in range(n):
        found(image)
    return seen


@pytest.mark.parametrize("text", ["rand-m9-mstd0.5-inc1", "rand-m9-n3-tweights", "rand-m5-mstd101", "v0-mstd0.5", "3a"])
def test_what_is_drawn_is_distributed_as_timms(build, text):
    """How often each change happens, by chi-square, and each one's amounts, by Kolmogorov-Smirnov: 10^5 images of ours,
    20000 of timm's."""
    n_ours, n_theirs = 100_000, 20_000
    names = {5: "shear_x", 6: "shear_y", 7: "translate_x_rel", 8: "translate_y_rel"}
    ours, other = {}, {}
    for taken in drawn(build, policy(text), n_ours):
        for what, amount, _ in taken.reshape(-1, 3):
            ours.setdefault(names.get(int(what)) or RAW[int(what)].__name__, []).append(amount)
    rename = {"desaturate": "color", "gaussian_blur_rand": "gaussian_blur"}
    for name, amount in spies(text, n_theirs):
        if name == "desaturate":
            amount = min(1.0, max(0.0, 1.0 - amount))
        if name == "gaussian_blur_rand":
            amount = random.uniform(0.1, 2.0 * amount)
        other.setdefault(rename.get(name, name), []).append(amount)
    assert set(ours) == set(other)
    for name, amounts in ours.items():
        p = (len(amounts) + len(other[name])) / (n_ours + n_theirs)
        deviation = math.sqrt(max(p, 1e-9) * (1 / n_ours + 1 / n_theirs))
        assert abs(len(amounts) / n_ours - len(other[name]) / n_theirs) < 4.5 * deviation, name
        same_distribution(np.array(amounts), np.array(other[name]))


@pytest.mark.parametrize("alpha", [0.3, 1.0, 4.0])
def test_weights_are_dirichlet(build, alpha):
    """m by Beta and each weight by Dirichlet's margin, against numpy's; they sum to 1."""
    op = policy("augmix-m3-w3-d1")
    op[1]["alpha"] = alpha
    rows = np.stack([row[:4] for row in drawn(build, op, 100_000)])
    generator = np.random.default_rng(9)
    same_distribution(rows[:, 0], generator.beta(alpha, alpha, 100_000))
    theirs = generator.dirichlet([alpha] * 3, 100_000)
    assert np.allclose(rows[:, 1:].sum(axis=1), 1, atol=1e-6)
    for i in range(3):
        same_distribution(rows[:, 1 + i], theirs[:, i])

"""The choices of random ops, against torch's formulas: same distributions, and only the key decides.

Seeds are fixed on our side and on torch's, so each test gives the same verdict every time; the thresholds are p =
1e-4."""

import json
import math
import subprocess

import numpy as np
import pytest

from vision import import_torchvision

torch = pytest.importorskip("torch")
N = 100_000
P = 1e-4


def choices(build, op, size=(500, 375), count=N, seed=0, epoch=0, index=0):
    """The op's choices for `count` samples of an image of that size: an array of one row each."""
    tool = build / "tests" / "tools" / "render"
    if not tool.exists():
        pytest.skip(f"{tool} is not built")
    ops = [op] if op[0] in ("RandomResizedCrop", "RandomCrop") else [["CenterCrop", 8], op]
    args = [tool, "--choices", json.dumps(ops), *map(str, (seed, epoch, index, count, *size))]
    return np.loadtxt(subprocess.run(args, capture_output=True, text=True, check=True).stdout.splitlines(), ndmin=2)


def kolmogorov_p(d, n):
    """Probability of a distance of at least d between distributions when n is the effective number of samples."""
    x = d * (math.sqrt(n) + 0.12 + 0.11 / math.sqrt(n))
    return (
        min(1.0, max(0.0, 2 * sum((-1) ** (k - 1) * math.exp(-2 * k * k * x * x) for k in range(1, 101))))
        if x > 0.2
        else 1.0
    )


def same_distribution(a, b):
    """Two-sample Kolmogorov-Smirnov."""
    a, b = np.sort(a), np.sort(b)
    values = np.concatenate([a, b])
    d = np.abs(np.searchsorted(a, values, "right") / len(a) - np.searchsorted(b, values, "right") / len(b)).max()
    p = kolmogorov_p(d, len(a) * len(b) / (len(a) + len(b)))
    assert p > P, f"distance {d:.4f}, p = {p:.2g}"


def is_uniform(a, low, high):
    a = np.sort(a)
    assert a[0] >= low and a[-1] < high
    expected = (a - low) / (high - low)
    d = max(
        np.abs(expected - np.arange(len(a)) / len(a)).max(), np.abs(expected - np.arange(1, len(a) + 1) / len(a)).max()
    )
    assert kolmogorov_p(d, len(a)) > P, d


def evenly_spread(counts):
    """Chi-square against equal counts, by the normal approximation of Wilson and Hilferty."""
    counts = np.asarray(counts, float)
    k, expected = len(counts) - 1, counts.sum() / len(counts)
    chi2 = ((counts - expected) ** 2 / expected).sum()
    z = ((chi2 / k) ** (1 / 3) - (1 - 2 / (9 * k))) / math.sqrt(2 / (9 * k))
    assert 0.5 * math.erfc(z / math.sqrt(2)) > P, f"chi2 = {chi2:.1f} for {k} degrees of freedom"


def torch_resized_crop(width, height, scale, ratio):
    """torchvision's RandomResizedCrop.make_params."""
    log_ratio = torch.log(torch.tensor(ratio))
    for _ in range(10):
        target = width * height * torch.empty(1).uniform_(*scale).item()
        aspect = torch.exp(torch.empty(1).uniform_(log_ratio[0].item(), log_ratio[1].item())).item()
        w, h = int(round(math.sqrt(target * aspect))), int(round(math.sqrt(target / aspect)))
        if 0 < w <= width and 0 < h <= height:
            return torch.randint(0, width - w + 1, (1,)).item(), torch.randint(0, height - h + 1, (1,)).item(), w, h
    if width / height < min(ratio):
        w, h = width, int(round(width / min(ratio)))
    elif width / height > max(ratio):
        w, h = int(round(height * max(ratio))), height
    else:
        w, h = width, height
    return (width - w) // 2, (height - h) // 2, w, h


def torch_resized_crops(width, height, scale, ratio, n):
    """n of them at once: the first of ten attempts that fits, otherwise the fallback of the one above."""
    low, high = (math.log(r) for r in np.float32(ratio))
    target = width * height * torch.empty(10, n).uniform_(*scale).numpy().astype(float)
    aspect = np.exp(torch.empty(10, n).uniform_(low, high).numpy()).astype(float)
    w, h = np.round(np.sqrt(target * aspect)), np.round(np.sqrt(target / aspect))
    fits = (0 < w) & (w <= width) & (0 < h) & (h <= height)
    first, column = fits.argmax(axis=0), np.arange(n)
    w, h = w[first, column], h[first, column]
    left, top = (np.floor(torch.rand(n).double().numpy() * (1 + end - edge)) for end, edge in ((width, w), (height, h)))
    made = np.stack([left, top, w, h], axis=1)
    made[~fits.any(axis=0)] = torch_resized_crop(width, height, (2, 2), ratio)  # no attempt fits
    return made


@pytest.mark.parametrize(
    "size,scale,ratio",
    [
        ((500, 375), (0.08, 1.0), (3 / 4, 4 / 3)),
        ((375, 500), (0.2, 0.9), (0.5, 2.0)),
        ((64, 300), (0.08, 1.0), (3 / 4, 4 / 3)),  # rarely fits in ten attempts
        ((500, 375), (0.8, 1.25), (3 / 4, 4 / 3)),  # areas above the image's never fit
    ],
)
def test_resized_crop_is_distributed_as_torchs(build, size, scale, ratio):
    """Widths, heights, places, areas and ratios of the windows, two samples of 10^5."""
    ours = choices(build, ["RandomResizedCrop", {"size": 8, "scale": scale, "ratio": ratio}], size)
    torch.manual_seed(11)
    theirs = torch_resized_crops(*size, scale, ratio, N)
    assert (
        (ours[:, 0] + ours[:, 2] <= size[0]).all()
        and (ours[:, 1] + ours[:, 3] <= size[1]).all()
        and (ours[:, 2:] >= 1).all()
    )
    for column in range(4):
        same_distribution(ours[:, column], theirs[:, column])
    same_distribution(ours[:, 2] * ours[:, 3], theirs[:, 2] * theirs[:, 3])
    same_distribution(ours[:, 2] / ours[:, 3], theirs[:, 2] / theirs[:, 3])


@pytest.mark.parametrize("size", [(1000, 20), (20, 1000), (300, 300)])
def test_resized_crop_falls_back_to_the_middle(build, size):
    """When no attempt can fit, the window is exactly torchvision's central one."""
    ours = choices(build, ["RandomResizedCrop", {"size": 8, "scale": [1, 1], "ratio": [1.2, 1.25]}], size, 50)
    assert (ours == np.array(torch_resized_crop(*size, (1.0, 1.0), (1.2, 1.25)))).all()


def test_random_crop_places_are_uniform(build):
    """Every left and top equally often; always 0 where the image just fits; padding counts as image."""
    ours = choices(build, ["RandomCrop", [300, 460]], (500, 375))
    evenly_spread(np.bincount(ours[:, 0].astype(int), minlength=41))
    evenly_spread(np.bincount(ours[:, 1].astype(int), minlength=76))
    assert ours[:, 0].max() == 40 and ours[:, 1].max() == 75
    assert (choices(build, ["RandomCrop", [375, 500]], (500, 375), 20) == 0).all()
    padded = choices(build, ["RandomCrop", 32, 4], (32, 32))
    evenly_spread(np.bincount(padded[:, 0].astype(int) + 4, minlength=9))
    needed = choices(build, ["RandomCrop", {"size": 32, "pad_if_needed": True}], (20, 40))
    evenly_spread(np.bincount(needed[:, 0].astype(int) + 12, minlength=13))  # 12 on both sides, as torchvision pads


@pytest.mark.parametrize(
    "op,p",
    [
        ("RandomHorizontalFlip", 0.5),
        ("RandomVerticalFlip", 0.3),
        ("RandomGrayscale", 0.1),
        ("RandomHorizontalFlip", 0.0),
        ("RandomHorizontalFlip", 1.0),
    ],
)
def test_chances(build, op, p):
    """As often as requested, within four standard deviations; never and always exactly."""
    n = choices(build, [op, p]).sum()
    assert abs(n - N * p) <= 4 * math.sqrt(N * p * (1 - p))


def test_jitter_factors_are_uniform_and_orders_equally_likely(build):
    """Each factor in torchvision's range, independent of the order, which takes all 24 values equally often."""
    ours = choices(build, ["ColorJitter", 0.4, [0.9, 2.0], 1.5, 0.1])
    for column, (low, high) in zip(range(4, 8), [(0.6, 1.4), (0.9, 2.0), (0.0, 2.5), (-0.1, 0.1)]):
        is_uniform(ours[:, column], np.float32(low), np.float32(high))
    orders = ours[:, :4].astype(int)
    assert (np.sort(orders, axis=1) == np.arange(4)).all()
    codes = np.unique(orders @ np.array([64, 16, 4, 1]), return_counts=True)[1]
    assert len(codes) == 24
    evenly_spread(codes)
    assert abs(np.corrcoef(ours[:, 4], ours[:, 5])[0, 1]) < 4 / math.sqrt(N)


def test_neighbouring_keys_are_independent(build):
    """Flips of one sample over epochs, of neighbours in an epoch and under neighbouring seeds look like coin tosses."""
    flip = ["RandomHorizontalFlip", 0.5]
    base = choices(build, flip)[:, 0]
    for other in (choices(build, flip, epoch=1), choices(build, flip, seed=1), choices(build, flip, index=1)):
        assert abs((base == other[:, 0]).mean() - 0.5) < 4 * 0.5 / math.sqrt(N)


def test_choices_depend_on_the_key_alone(build):
    """The choice for sample 1000 is the same whether it is drawn first or last, and differs between epochs."""
    op = ["RandomResizedCrop", 8]
    many, one = choices(build, op, count=1001), choices(build, op, count=1, index=1000)
    assert (many[1000] == one[0]).all()
    assert (choices(build, op, count=100, epoch=1) != choices(build, op, count=100)).any(axis=1).mean() > 0.9


def test_torchvision_itself_agrees(build):
    """Where torchvision is installed: its own classes instead of our copies of their formulas."""
    try:
        transforms = import_torchvision().transforms.v2
    except Exception as e:  # absent, or built for another torch
        pytest.skip(f"torchvision cannot be imported: {e}")
    image = torch.empty(3, 375, 500)
    torch.manual_seed(3)
    crop = transforms.RandomResizedCrop(8)
    theirs = [crop.make_params([image]) for _ in range(5000)]
    ours = choices(build, ["RandomResizedCrop", 8])
    for column, name in enumerate(("left", "top", "width", "height")):
        same_distribution(ours[:, column], np.array([t[name] for t in theirs]))
    jitter = transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)
    theirs = [jitter.make_params([image]) for _ in range(5000)]
    ours = choices(build, ["ColorJitter", 0.4, 0.4, 0.4, 0.1])
    for column, name in enumerate(("brightness", "contrast", "saturation", "hue"), 4):
        same_distribution(ours[:, column], np.array([t[f"{name}_factor"] for t in theirs]))

"""RandomErasing against torchvision and timm: boxes by distribution, numbers by value, and bytes where they are exact."""

import json
import math
import subprocess

import numpy as np
import pytest

import batchd
from test_random_ops import N, choices, evenly_spread, kolmogorov_p, same_distribution
from vision import import_torchvision

torch = pytest.importorskip("torch")

SIZE = (50, 40)  # width, height
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
NORMALIZE = ["ToTensor", ["Normalize", MEAN, STD]]


@pytest.fixture(scope="module")
def torchvision():
    try:
        return import_torchvision()
    except Exception as e:  # absent, or built for another torch
        pytest.skip(f"torchvision cannot be imported: {e}")


@pytest.fixture(scope="module")
def picture(tmp_path_factory):
    pixels = np.random.default_rng(8).integers(0, 256, (SIZE[1], SIZE[0], 3), np.uint8)
    file = tmp_path_factory.mktemp("noise") / "picture.rgb"
    file.write_bytes(pixels.tobytes())
    return pixels, f"{SIZE[0]}x{SIZE[1]}:{file}"


def tool(build):
    path = build / "tests" / "tools" / "render"
    if not path.exists():
        pytest.skip(f"{path} is not built")
    return path


def rows(build, ops, raw, n, dtype="float32", layout="NCHW"):
    ops = [["RandomHorizontalFlip", 0], ["Resize", [SIZE[1], SIZE[0]]], *ops]
    args = [tool(build), json.dumps(ops), dtype, layout, "0", "0", "0", *[raw] * n]
    done = subprocess.run(args, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    shape = (n, 3, SIZE[1], SIZE[0]) if layout == "NCHW" else (n, SIZE[1], SIZE[0], 3)
    return np.frombuffer(done.stdout, dtype).reshape(shape)


def refusal(build, ops, dtype):
    args = [tool(build), json.dumps([["CenterCrop", 8], *ops]), dtype, "NCHW", "0", "0", "0", "/dev/null"]
    return subprocess.run(args, capture_output=True, text=True).stderr


def boxes(build, erasing, size=SIZE, count=N):
    """(x, y, width, height) for the samples that have one box; how many have each number of boxes."""
    lines = []
    args = [tool(build), "--choices", json.dumps([["CenterCrop", 8], "ToTensor", ["RandomErasing", erasing]])]
    done = subprocess.run([*args, "0", "0", "0", str(count), *map(str, size)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [[float(x) for x in line.split()] for line in done.stdout.splitlines()]
    return np.array([x[1:] for x in lines if x[0] == 1]), np.bincount([int(x[0]) for x in lines])


@pytest.mark.parametrize("size,scale,ratio", [((224, 224), (0.02, 0.33), (0.3, 3.3)), ((60, 20), (0.2, 0.9), (0.5, 4))])
def test_boxes_are_distributed_as_torchvisions(build, torchvision, size, scale, ratio):
    """Places, widths, heights and areas of 10^5 images against 20000 of torchvision's own draws; p = 1."""
    ours, counts = boxes(build, {"p": 1, "scale": scale, "ratio": ratio}, size)
    erasing = torchvision.transforms.v2.RandomErasing(p=1, scale=scale, ratio=ratio)
    torch.manual_seed(4)
    image = torch.empty(3, size[1], size[0])
    theirs = [erasing.make_params([image]) for _ in range(20_000)]
    theirs = np.array([[t["j"], t["i"], t["w"], t["h"]] for t in theirs if t["v"] is not None])
    p = len(theirs) / 20_000  # a box is found in ten attempts
    assert abs(len(ours) / N - p) <= 4 * math.sqrt((p * (1 - p) + 1e-9) * (1 / N + 1 / 20_000))
    for column in range(4):
        same_distribution(ours[:, column], theirs[:, column])
    same_distribution(ours[:, 2] * ours[:, 3], theirs[:, 2] * theirs[:, 3])


def test_how_often_and_how_many(build):
    """p by frequency; timm's count: each number of boxes equally often, the area shared by them."""
    _, counts = boxes(build, {"p": 0.25})
    assert abs(counts[1] - N / 4) <= 4 * math.sqrt(N * 0.25 * 0.75)
    _, counts = boxes(build, {"p": 1, "count": [2, 4], "scale": [0.02, 0.33]}, (224, 224))
    evenly_spread(counts[2:])
    assert counts[:2].sum() == 0
    one, _ = boxes(build, {"p": 1, "scale": [0.3, 0.3]}, (224, 224))
    assert abs((one[:, 2] * one[:, 3]).mean() / 224**2 - 0.3) < 0.003
    args = [["CenterCrop", 8], "ToTensor", ["RandomErasing", {"p": 1, "count": 3, "scale": [0.3, 0.3]}]]
    three = choices_of(build, args)
    assert abs((three[:, [3, 7, 11]] * three[:, [4, 8, 12]]).mean() / 224**2 - 0.1) < 0.002


def choices_of(build, ops):
    args = [tool(build), "--choices", json.dumps(ops), "0", "0", "0", str(N), "224", "224"]
    return np.loadtxt(subprocess.run(args, capture_output=True, text=True, check=True).stdout.splitlines())


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_values_are_in_the_box_and_nowhere_else(build, torchvision, picture, layout):
    """The row is torchvision's: F.erase of the normalised image with the same box and value."""
    pixels, raw = picture
    F = torchvision.transforms.v2.functional
    image = torch.from_numpy(pixels.copy()).permute(2, 0, 1).float().div(255)
    image = image.sub(torch.tensor(MEAN).view(3, 1, 1)).div(torch.tensor(STD).view(3, 1, 1))
    for value in (0, [0.5, -1.25, 3]):
        ours = rows(build, [*NORMALIZE, ["RandomErasing", {"p": 1, "value": value}]], raw, 20, layout=layout)
        drawn = choices_at(build, value, 20)
        for row, (n, *box) in zip(ours, drawn):
            x, y, w, h = map(int, box)
            v = torch.tensor(value, dtype=torch.float32).reshape(-1, 1, 1).expand(3, h, w)
            want = F.erase(image, y, x, h, w, v)
            want = want if layout == "NCHW" else want.permute(1, 2, 0)
            assert np.array_equal(row, want.numpy())


def choices_at(build, value, n):
    """The boxes of the op at place 4 of a pipeline, as rows() makes it."""
    ops = [["Resize", [SIZE[1], SIZE[0]]], ["Resize", [SIZE[1], SIZE[0]]], *NORMALIZE]
    ops.append(["RandomErasing", {"p": 1, "value": value}])
    args = [tool(build), "--choices", json.dumps(ops), "0", "0", "0", str(n), *map(str, SIZE)]
    return np.loadtxt(subprocess.run(args, capture_output=True, text=True, check=True).stdout.splitlines(), ndmin=2)


def normal_p(values):
    """Kolmogorov-Smirnov against N(0, 1)."""
    values = np.sort(values.ravel().astype(float))
    expected = 0.5 * (1 + np.vectorize(math.erf)(values / math.sqrt(2)))
    n = len(values)
    d = max(np.abs(expected - np.arange(n) / n).max(), np.abs(expected - np.arange(1, n + 1) / n).max())
    return kolmogorov_p(d, n)


def test_random_numbers_are_normal(build, picture):
    """Each number of the box, or one colour a box; 10^5 of them by Kolmogorov-Smirnov, tails and independence too; the
    layout does not change them."""
    _, raw = picture
    ops = ["RandomErasing", {"p": 1, "scale": [0.9, 0.9], "ratio": [0.7, 0.9], "value": "random"}]
    made = rows(build, ["ToTensor", ops], raw, 40)
    other = rows(build, ["ToTensor", ops], raw, 40, layout="NHWC")
    assert np.array_equal(made, other.transpose(0, 3, 1, 2))
    clean = rows(build, ["ToTensor"], raw, 1)
    noise = made[made != clean]
    assert len(noise) > 100_000
    assert normal_p(noise[:100_000]) > 1e-4
    assert abs((np.abs(noise) > 3).mean() - 0.0027) < 4 * math.sqrt(0.0027 / len(noise))
    assert (np.abs(noise) > 3.6).sum() > 0  # beyond the last layer of the ziggurat
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 4 / math.sqrt(len(noise))
    ops[1]["value"] = "color"
    colors = rows(build, ["ToTensor", ops], raw, 1500)
    middle = colors[:, :, SIZE[1] // 2, SIZE[0] // 2]
    assert normal_p(middle) > 1e-4
    for image, color in zip(colors[:20], middle):
        for channel in range(3):
            assert (image[channel] == color[channel]).sum() > 0.8 * SIZE[0] * SIZE[1]


def test_half_precision_is_the_float_rounded(build, picture):
    _, raw = picture
    ops = [*NORMALIZE, ["RandomErasing", {"p": 1, "value": "random"}]]
    assert np.array_equal(rows(build, ops, raw, 3).astype(np.float16), rows(build, ops, raw, 3, "float16"))


def test_bytes_where_they_are_exact(build, picture):
    """uint8 batches leave ToTensor and Normalize to the trainer, so the erased value must be a pixel's number; anything
    else is refused, with the reason and what to do."""
    pixels, raw = picture
    made = rows(build, ["ToTensor", ["RandomErasing", {"p": 1, "value": 0}]], raw, 5, "uint8", "NHWC")
    assert all((row == 0).all(axis=2).sum() > 20 and not (row == 0).all() for row in made)
    value = [
        float((np.float32(v) / np.float32(255) - np.float32(m)) / np.float32(s))
        for v, m, s in zip((7, 8, 9), MEAN, STD)
    ]
    made = rows(build, [*NORMALIZE, ["RandomErasing", {"p": 1, "value": value}]], raw, 5, "uint8", "NHWC")
    for row in made:
        erased = (row == (7, 8, 9)).all(axis=2)
        assert erased.sum() > 20 and np.array_equal(row[~erased], pixels[~erased])
    for value in (0, "random", "color"):
        said = refusal(build, [*NORMALIZE, ["RandomErasing", {"value": value}]], "uint8")
        assert "op 4 'RandomErasing'" in said and "uint8" in said and "float32" in said
    assert "after ToTensor" in refusal(build, ["RandomErasing", "ToTensor"], "float32")
    assert "one channel" in refusal(
        build, ["Grayscale", "ToTensor", ["RandomErasing", {"value": [1, 2, 3]}]], "float32"
    )


def test_interpolation_is_drawn_as_timm_draws_it(build):
    """timm's default: bilinear or bicubic, each for half of the images, after the same crop as without it."""
    drawn = choices(build, ["RandomResizedCrop", {"size": 8, "interpolation": "random"}])
    evenly_spread(np.bincount(drawn[:, 4].astype(int), minlength=4)[2:])
    assert set(drawn[:, 4]) == {2, 3}
    assert (drawn[:, :4] == choices(build, ["RandomResizedCrop", 8])).all()


def test_loaders_deliver_it(daemon, samples):
    """A loader in host memory has it; one of bytes is refused with the reason."""
    transform = [["RandomResizedCrop", 32], *NORMALIZE, ["RandomErasing", {"p": 1, "value": 9.5, "scale": [0.5, 0.6]}]]
    loader = batchd.DataLoader(f"imagefolder:{samples}", 8, transform=transform, arrays="numpy")
    images, _ = next(iter(loader))
    assert all(0.4 < (image == 9.5).mean() < 0.7 for image in images)
    with pytest.raises(ValueError, match="RandomErasing.*uint8"):
        batchd.DataLoader(f"imagefolder:{samples}", 8, transform=transform, dtype="uint8")

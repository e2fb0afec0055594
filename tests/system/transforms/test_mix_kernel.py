"""The mixing kernels as nvcc compiled them, in the PTX interpreter of tests/ptx, as test_convert_kernel.py runs the
finishing kernels: images against torch's operations on finished float32 rows, targets against torchvision's formula, bit for bit."""

import struct
import subprocess

import numpy as np
import ptx
import pytest

from batchd._mix import TABLE
from conftest import BUILD
from test_convert_kernel import IMAGENET, NUMBERS, TEXTS, THREADS, TINY, every_generation, program, pytestmark  # noqa: F401

torch = pytest.importorskip("torch")
TOOL = BUILD / "tests" / "tools" / "mix-plan"
KERNELS = [
    (number, planar, channels)
    for number in ("float16", "bfloat16", "float32")
    for planar in (False, True)
    for channels in (1, 2, 3, 4)
    if not (planar and channels == 1)
]
NONE, BLEND, BOX = 0, 1, 2


def name_of(number, planar, channels):
    return f"mix_{'planar' if planar else 'flat'}_{number}_{channels}"


def records(n, height, width, seed):
    """A row of each kind in turn, with any partner; the first box has no area, the second is the whole image."""
    r = np.random.default_rng(seed)
    rows = np.zeros(n, TABLE)
    for i, row in enumerate(rows):
        row["partner"], row["kind"] = r.integers(n), (BOX, BLEND, NONE)[i % 3]
        row["weight"] = r.random(dtype=np.float32)
        row["partner_weight"] = np.float32(1) - row["weight"]
        edges = [(0, 0, 0, 0), (0, height, 0, width)][i // 3] if i in (0, 3) else None
        row["top"], row["bottom"] = edges[:2] if edges else np.sort(r.integers(0, height + 1, 2))
        row["left"], row["right"] = edges[2:] if edges else np.sort(r.integers(0, width + 1, 2))
    return rows


def mixed(x, rows):
    """Finished float32 images [n, height, width, channels], by torch's operations."""
    made = x.clone()
    for i, row in enumerate(rows):
        other = x[int(row["partner"])]
        if row["kind"] == BLEND:
            made[i] = other.mul(float(row["partner_weight"])).add_(x[i].mul(float(row["weight"])))
        elif row["kind"] == BOX:
            box = slice(row["top"], row["bottom"]), slice(row["left"], row["right"])
            made[i][box] = other[box]
    return made


def finish(generation, kernel, n, height, width, norm=IMAGENET, in_offset=0, out_offset=0, n_blocks=None, first=0):
    number, planar, channels = kernel
    norm = [np.array(v[:channels], np.float32) for v in norm]
    pixels = np.random.default_rng(n * height).integers(0, 256, (n, height, width, channels), np.uint8)
    rows = records(n, height, width, width)
    memory = ptx.Global()
    size = NUMBERS[number].itemsize
    source = memory.buffer(pixels.tobytes(), in_offset)
    target = memory.buffer(pixels.size * size, out_offset * size, writable=True)
    args = [source.address, target.address, width, height * width, channels, list(NUMBERS).index(number), int(planar)]
    args += ["auto", first, n - first, *(repr(float(v)) for values in norm for v in values)]
    said = subprocess.run(
        [TOOL, *map(str, args)], input=rows[first:].tobytes(), stdout=subprocess.PIPE, check=True
    ).stdout
    plan, (name, blocks) = said[:-36], struct.unpack("32sI", said[-36:])
    assert name.rstrip(b"\0").decode() == name_of(*kernel)
    program(generation, name_of(*kernel)).launch(memory, n_blocks or blocks, THREADS, plan)

    mean, std = map(torch.from_numpy, norm)
    x = mixed((torch.from_numpy(pixels).to(torch.float32) / 255 - mean) / std, rows).to(NUMBERS[number])
    wanted = (x.permute(0, 3, 1, 2) if planar else x).contiguous().view(-1).view(torch.uint8).numpy()
    begin = first * len(wanted) // n
    wrong = np.flatnonzero(target.bytes[begin:] != wanted[begin:])
    assert not len(wrong), f"{len(wrong)} bytes of {len(wanted)} differ, the first at {wrong[0]}"
    assert (target.writes()[begin:] == 1).all() and not target.writes()[:begin].any()


@pytest.mark.skipif(not TOOL.exists(), reason="needs `make tests`: tests/tools/mix-plan")
@every_generation
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: name_of(*kernel))
def test_every_row_is_torchs(generation, kernel):
    """Blends, boxes and clean rows, for images that a thread's pieces divide and do not, in any place, for any grid."""
    finish(generation, kernel, 4, 16, 24)
    finish(generation, kernel, 3, 70, 40)  # several blocks an image
    finish(generation, kernel, 3, 70, 40, n_blocks=2)
    finish(generation, kernel, 7, 11, 13, n_blocks=1)
    finish(generation, kernel, 6, 16, 24, first=2)  # a launch in the middle of the batch
    finish(generation, kernel, 4, 16, 24, in_offset=3)
    finish(generation, kernel, 4, 16, 24, out_offset=1)
    finish(generation, kernel, 1, 1, 1)
    finish(generation, kernel, 4, 16, 24, norm=TINY)  # true divisions


def finish_numbers(generation, number, planar, channels, n, height, width, n_blocks=None, first=0, clean=False):
    """Slots with numbers that no pixel has: noise, in the layout of the result."""
    source_type = {"float16": np.float16}.get(number, np.float32)
    shape = (n, channels, height, width) if planar else (n, height, width, channels)
    numbers = np.random.default_rng(n * width).normal(0, 2, shape).astype(source_type)
    rows = records(n, height, width, width)
    if clean:
        rows["kind"], rows["partner"] = NONE, np.arange(n)
    memory = ptx.Global()
    source = memory.buffer(numbers.tobytes())
    target = memory.buffer(numbers.size * NUMBERS[number].itemsize, writable=True)
    args = [source.address, target.address, width, height * width, channels, list(NUMBERS).index(number), int(planar)]
    args += ["auto", first, n - first, *["0"] * channels, *["1"] * channels]
    said = subprocess.run(
        [TOOL, *map(str, args)], input=rows[first:].tobytes(), stdout=subprocess.PIPE, check=True
    ).stdout
    plan, (_, blocks) = said[:-36], struct.unpack("32sI", said[-36:])
    program(generation, f"mix_numbers_{number}").launch(memory, n_blocks or blocks, THREADS, plan)

    x = torch.from_numpy(numbers.astype(np.float32))
    x = mixed(x.permute(0, 2, 3, 1) if planar else x, rows).to(NUMBERS[number])
    wanted = (x.permute(0, 3, 1, 2) if planar else x).contiguous().view(-1).view(torch.uint8).numpy()
    begin = first * len(wanted) // n
    assert (target.bytes[begin:] == wanted[begin:]).all()
    assert (target.writes()[begin:] == 1).all() and not target.writes()[:begin].any()


@pytest.mark.skipif(not TOOL.exists(), reason="needs `make tests`: tests/tools/mix-plan")
@every_generation
@pytest.mark.parametrize("number", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("planar, channels", [(True, 3), (False, 3), (True, 1)])
def test_rows_that_are_numbers_already(generation, number, planar, channels):
    """The same rows of the same kinds; bfloat16 is rounded once, from float32."""
    finish_numbers(generation, number, planar, channels, 4, 16, 24)
    finish_numbers(generation, number, planar, channels, 3, 70, 40, n_blocks=2)
    finish_numbers(generation, number, planar, channels, 7, 11, 13, first=2)
    finish_numbers(generation, number, planar, channels, 2, 5, 7, clean=True)


@every_generation
def test_soft_targets_are_torchs(generation):
    """Labels of both rows, the same one too, with smoothing."""
    n, first, classes = 9, 2, 300
    rows = records(n, 4, 4, 1)
    labels = np.random.default_rng(2).integers(0, classes, n)
    labels[rows["partner"][4]] = labels[4]
    on, off = np.float32(1 - 0.1 + 0.1 / classes), np.float32(0.1 / classes)
    memory = ptx.Global()
    source = memory.buffer(labels.astype("i8").tobytes())
    target = memory.buffer(n * classes * 4, writable=True)
    plan = struct.pack("QQIIIff", source.address, target.address, first, n - first, classes, on, off)
    plan = (plan + rows[first:].tobytes()).ljust(16 + 20 + 64 * TABLE.itemsize + 4, b"\0")
    program(generation, "mix_targets").launch(memory, 3, THREADS, plan)
    hot = torch.full((n, classes), float(off)).scatter_(1, torch.from_numpy(labels).view(-1, 1), float(on))
    w, v = (torch.from_numpy(rows[name].copy()).view(-1, 1) for name in ("weight", "partner_weight"))
    wanted = hot * w + hot[rows["partner"].astype("i8")] * v
    got = target.bytes.view(np.float32).reshape(n, classes)
    assert (got[first:] == wanted.numpy()[first:]).all() and not target.writes()[: first * classes * 4].any()

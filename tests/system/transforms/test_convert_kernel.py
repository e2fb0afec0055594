"""The finishing kernels as nvcc compiled them, without a GPU: their PTX runs in the interpreter of tests/ptx. The
interpreter detects wrong addresses, races and barriers that a GPU tolerates, and counts memory accesses. Results are
compared with torch's, bit for bit. tests/unit/finish/test_convert_kernel.c has the same arithmetic as C.

The PTX is that of the build (make keeps it), from which its machine code was made; of GPU generations with the same PTX
only one is run."""

import re
import struct
import subprocess

import numpy as np
import ptx
import pytest

from conftest import BUILD

torch = pytest.importorskip("torch")

HAS_KERNEL = (BUILD / ".cuda").exists() and (BUILD / ".cuda").read_text().strip() == "1"  # as the Makefile decides it
COMPILED = BUILD / "client" / "finish" / "convert"  # nvcc's output: its PTX for every generation, and the log of ptxas
TOOL = BUILD / "tests" / "tools" / "convert-plan"
pytestmark = [
    pytest.mark.skipif(
        not HAS_KERNEL, reason="this build has no finishing kernel: nvcc (of the CUDA toolkit) was not found"
    ),
    pytest.mark.skipif(not TOOL.exists(), reason="needs `make tests`: tests/tools/convert-plan"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

THREADS = 256
NUMBERS = {
    "uint8": torch.uint8,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
}  # in the order of enum convert_number
KERNELS = [
    (number, planar, channels)
    for number in NUMBERS
    for planar in (False, True)
    for channels in (1, 2, 3, 4)
    if not (planar and channels == 1)
]
IMAGENET = [0.485, 0.456, 0.406, 0.3], [0.229, 0.224, 0.225, 0.7]
TINY = [0.0, 0.5, 0.25, 0.125], [1e-40, 0.5, 1e-39, 3.0]  # 1 / std is more than a float32 can hold


def name_of(number, planar, channels):
    return f"convert_{'planar' if planar else 'flat'}_{number}_{channels}"


def generations():
    """One for each different text: "75", "80 86 89 90" ..."""
    texts = {}
    for path in COMPILED.glob("*.ptx"):
        text = path.read_text()
        target = re.search(r"^\.target sm_(\d+)", text, re.M)[1]
        texts.setdefault(re.sub(r"^\.target .*", "", text, flags=re.M), []).append(int(target))
    return {
        " ".join(map(str, sorted(targets))): text
        for text, targets in sorted(texts.items(), key=lambda item: min(item[1]))
    }


TEXTS = generations()
modules, programs = {}, {}


def program(generation, name):
    if generation not in modules:
        modules[generation] = ptx.parse(TEXTS[generation])
    if (generation, name) not in programs:
        programs[generation, name] = ptx.Program(modules[generation], name)
    return programs[generation, name]


class Batch:
    """A batch and its place: pixels at in_offset bytes, the tensor at out_offset numbers past an aligned address. norm: mean and std, None for ToTensor alone."""

    def __init__(
        self, number, planar, channels, n_images, plane, in_offset=0, out_offset=0, norm=IMAGENET, divides="auto"
    ):
        self.number, self.planar, self.channels = number, planar, channels
        self.norm = norm and [np.array(values[:channels], np.float32) for values in norm]
        r = np.random.default_rng(n_images * plane)
        self.pixels = r.integers(0, 256, (n_images, plane, channels), np.uint8)
        if n_images * plane >= 256:  # all values, in every channel
            self.pixels.reshape(-1, channels)[:256] = (np.arange(256)[:, None] + 77 * np.arange(channels)) % 256
        self.memory = ptx.Global()
        size = NUMBERS[number].itemsize
        self.source = self.memory.buffer(self.pixels.tobytes(), in_offset)
        self.target = self.memory.buffer(self.pixels.size * size, out_offset * size, writable=True)
        self.plan, name, self.n_blocks, self.divides = self.make_plan(n_images * plane, plane, divides)
        assert name.rstrip(b"\0").decode() == name_of(number, planar, channels)

    def make_plan(self, n_px, plane, divides):
        args = [
            self.source.address,
            self.target.address,
            n_px,
            plane,
            self.channels,
            list(NUMBERS).index(self.number),
            int(self.planar),
            divides,
        ]
        for values in self.norm or ():
            args += [repr(float(v)) for v in values]
        said = subprocess.run(
            [TOOL, *map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True
        ).stdout
        return said[:-40], *struct.unpack("32sII", said[-40:])

    def finish(self, generation, n_blocks=None):
        """Runs the kernel; every byte is correct and written once, and every pixel's byte was read once."""
        report = program(generation, name_of(self.number, self.planar, self.channels)).launch(
            self.memory, n_blocks or self.n_blocks, THREADS, self.plan
        )
        wanted = self.wanted()
        wrong = np.flatnonzero(self.target.bytes != wanted)
        assert not len(
            wrong
        ), f"{len(wrong)} bytes of {len(wanted)} differ from torch's, the first at {wrong[0]}: {self.target.bytes[wrong[0]]}, not {wanted[wrong[0]]}"
        assert (self.target.writes() == 1).all()
        assert (self.source.reads() == 1).all()
        return report

    def wanted(self):
        x = torch.from_numpy(self.pixels)
        if self.number != "uint8":
            x = x.to(torch.float32) / 255
            if self.norm:
                mean, std = map(torch.from_numpy, self.norm)
                x = (x - mean) / std
            x = x.to(NUMBERS[self.number])
        if self.planar:
            x = x.transpose(1, 2)
        return x.contiguous().view(-1).view(torch.uint8).numpy()


every_generation = pytest.mark.parametrize("generation", TEXTS or [None])
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: name_of(*kernel))


@every_generation
def test_all_kernels_are_there(generation):
    found = [name for name in ptx.parse(TEXTS[generation]).kernels if name.startswith("convert_")]
    assert sorted(found) == sorted(name_of(*kernel) for kernel in KERNELS)


@every_generation
@every_kernel
def test_every_shape_and_place(generation, kernel):
    """In each layout and dtype the numbers are torch's, for any grid."""

    def finish(*shape, n_blocks=None, **place):
        return Batch(*kernel, *shape, **place).finish(generation, n_blocks)

    finish(2, 2560)  # complete: several blocks, the last one not full
    finish(2, 2560, n_blocks=1)  # the same by one block, piece by piece
    finish(3, 437)  # planes that are no multiple of a thread's piece
    finish(11, 437, n_blocks=1)
    finish(2, 240, n_blocks=5)  # more blocks than there is work
    finish(1, 1, norm=None)
    finish(7, 1)
    finish(5, 3, norm=None, in_offset=1)
    finish(2, 800, in_offset=3)  # pixels at an odd address
    finish(2, 800, in_offset=4)
    finish(2, 800, out_offset=1)  # a tensor that begins in the middle of 16 bytes
    finish(3, 437, in_offset=7, out_offset=3, n_blocks=1)
    finish(2, 800, norm=None)  # ToTensor alone


@every_generation
@pytest.mark.parametrize(
    "kernel", [kernel for kernel in KERNELS if kernel[0] != "uint8"], ids=lambda kernel: name_of(*kernel)
)
def test_true_divisions(generation, kernel):
    """For a mean and std whose reciprocals are inexact, which the plan detects itself; and forced."""
    batch = Batch(*kernel, 2, 800, norm=TINY)
    assert batch.divides
    batch.finish(generation)
    Batch(*kernel, 3, 437, norm=TINY).finish(generation, 1)
    forced = Batch(*kernel, 2, 800, divides="1")
    assert forced.divides and not Batch(*kernel, 2, 800).divides
    forced.finish(generation, 1)


@every_generation
@every_kernel
def test_what_is_moved(generation, kernel):
    """For whole images: all stores are 16 bytes for each thread and full sectors; all loads are full sectors, issued
    before any thread waits for one. For three channels there are no bank conflicts in shared memory."""
    report = Batch(*kernel, 4, 2048).finish(generation)
    stores, loads = report.of("global", True), report.of("global", False)
    assert stores and all(t.bytes == 32 * t.sectors == 16 * 32 * t.requests for t in stores)
    assert loads and all(t.bytes == 32 * t.sectors for t in loads)
    order = [(t.space, t.writes) for t in report.traffic.values()]
    assert order[: len(loads)] == [("global", False)] * len(loads)
    shared = report.of("shared", True) + report.of("shared", False)
    assert bool(shared) == kernel[1]
    if kernel[2] == 3:
        assert all(t.passes == t.best_passes for t in shared)


def test_no_stack_no_spills():
    """In the machine code for every GPU of the build no register is spilled."""
    found = re.findall(
        r"Compiling entry function '(\w+)' for '(sm_\w+)'\n.*Function properties for (\w+)\n +(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads\n",
        (COMPILED / "log").read_text(),
    )
    archs = {arch for _, arch, *_ in found}
    assert {f"sm_{target}" for generation in TEXTS for target in generation.split()} == archs
    assert sorted((name, arch) for name, arch, *_ in found if name.startswith("convert_")) == sorted(
        (name_of(*kernel), arch) for kernel in KERNELS for arch in archs
    )
    for name, arch, again, *bytes_ in found:
        assert name == again and bytes_ == [
            "0",
            "0",
            "0",
        ], f"{name} for {arch}: {bytes_} bytes of stack frame, spill stores, spill loads"

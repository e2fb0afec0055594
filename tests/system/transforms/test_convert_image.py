"""The finishing kernels as stored in libbatchd: in a form that drivers older than the nvcc that made them can load."""

import re
import shutil
import struct
import subprocess

import pytest

from conftest import BUILD

HAS_KERNEL = (BUILD / ".cuda").exists() and (BUILD / ".cuda").read_text().strip() == "1"  # as the Makefile decides it
pytestmark = pytest.mark.skipif(
    not HAS_KERNEL, reason="this build has no finishing kernel: nvcc (of the CUDA toolkit) was not found"
)

MAGIC = 0xBA55ED50
ELF = 2  # the kind of a fatbin's entry that is machine code
OLDEST = (7, 0)  # of CUDA 11.0; the oldest driver that batchd takes, 470, is of CUDA 11.4


@pytest.fixture(scope="module")
def library():
    return (BUILD / "libbatchd.so").read_bytes()


def entries(library):
    """(kind, GPU, contents) of each entry of the fatbin: a header, then entries, each with a header of its own."""
    begin = next(
        m.start()
        for m in re.finditer(re.escape(struct.pack("<I", MAGIC)), library)
        if struct.unpack_from("<HH", library, m.start() + 4) == (1, 16)
    )
    (n_bytes,) = struct.unpack_from("<Q", library, begin + 8)
    at, end = begin + 16, begin + 16 + n_bytes
    while at < end:
        kind, _, header, size = struct.unpack_from("<HHIQ", library, at)
        (gpu,) = struct.unpack_from("<I", library, at + 28)
        yield kind, gpu, library[at + header : at + header + size]
        at += header + size


def texts(library):
    """PTX that could be given to cuModuleLoadData: a string."""
    return [m[0].decode() for m in re.finditer(rb"\.version \d+\.\d+\n\.target sm_\d+[^\0]*(?=\0)", library)]


def test_the_kernels_are_there_as_ptx_of_an_old_version(library):
    """One text with all kernels that a driver from 470 on can compile, on any supported GPU."""
    (text,) = texts(library)
    version = tuple(map(int, re.search(r"\.version (\d+)\.(\d+)", text).groups()))
    assert version <= OLDEST
    kernels = set(re.findall(r"\.visible \.entry (\w+)\(", text))
    compiled = next(path.read_text() for path in (BUILD / "client/finish/convert").glob("*.ptx"))
    finishing = {name for name in kernels if name.startswith("convert_")}
    assert (
        len(finishing) == 28
        and len(kernels) > 28
        and kernels == set(re.findall(r"\.visible \.entry (\w+)\(", compiled))
    )


def test_no_machine_code_is_compressed(library):
    """A driver reads code that nvcc has compressed only if it is about as new. Without a compressed one every entry is
    an ELF file."""
    found = list(entries(library))
    assert found and all(kind == ELF for kind, _, _ in found)
    for _, gpu, contents in found:
        assert contents.startswith(b"\x7fELF"), f"the machine code for sm_{gpu} is compressed"


def test_ptxas_compiles_the_text_for_every_gpu_it_knows(library, tmp_path):
    """The same as in a driver, with the toolkit's own compiler: the text uses nothing younger than its version."""
    ptxas = shutil.which("ptxas") or shutil.which("/usr/local/cuda/bin/ptxas")
    if not ptxas:
        pytest.skip("there is no ptxas")
    (tmp_path / "k.ptx").write_text(texts(library)[0])
    known = [
        name
        for name in ("sm_75", "sm_80", "sm_90")
        if name in subprocess.run([ptxas, "--help"], capture_output=True, text=True).stdout
    ]
    assert known
    for name in known:
        done = subprocess.run(
            [ptxas, f"-arch={name}", "-o", "/dev/null", tmp_path / "k.ptx"], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

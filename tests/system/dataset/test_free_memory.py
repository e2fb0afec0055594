"""Arrays in memory that do not fit are refused before they are copied: by the machine's memory and by that of the group
that the process is in, whose kernel kills where an allocation would fail."""

import contextlib
import os
import subprocess
import sys
import textwrap

import numpy
import pytest
from test_limits import SmallGroup, needs_root

import batchd
from batchd import _free_memory

MIB = 1 << 20


def test_arrays_larger_than_memory_are_refused_before_they_are_copied(daemon, monkeypatch):
    """Both sides of the limit, which is seven eighths; nothing is written."""
    x = numpy.zeros((70, 100), "uint8")
    monkeypatch.setattr(_free_memory, "available", lambda: 8000)
    assert len(batchd.DataLoader((x,), 10)) == 7
    monkeypatch.setattr(_free_memory, "available", lambda: 7999)
    monkeypatch.setattr(os, "memfd_create", lambda *_: pytest.fail("an array is written"))
    with pytest.raises(MemoryError, match=r"arrays data have 7000 bytes, .* of the 7999 bytes.*numpy.save.*'npy:FILE'"):
        batchd.DataLoader((x,), 10)


def test_a_mapped_file_is_to_be_handed_over_by_name(daemon, monkeypatch, tmp_path):
    numpy.save(tmp_path / "x.npy", numpy.zeros((70, 100), "uint8"))
    mapped = numpy.load(tmp_path / "x.npy", mmap_mode="r")
    monkeypatch.setattr(_free_memory, "available", lambda: 1000)
    with pytest.raises(MemoryError, match=f"hand over 'npy:{tmp_path}/x.npy'"):
        batchd.DataLoader((mapped,), 10)
    assert len(batchd.DataLoader(f"npy:{tmp_path}/x.npy", 10)) == 7


def test_what_is_free_is_the_least_of_machine_and_groups(monkeypatch):
    monkeypatch.setattr(_free_memory, "_of_machine", lambda: 5000)
    for groups, wanted in (([], 5000), ([None, 3000], 3000), ([7000], 5000), ([-5], 0)):
        monkeypatch.setattr(_free_memory, "_of_groups", lambda: iter(groups))
        assert _free_memory.available() == wanted


@needs_root
def test_a_memory_group_refuses_instead_of_killing(daemon, tmp_path):
    """An array of 256 MiB, mapped from a file, in a group of 192 MiB: an error, and no process is killed."""
    numpy.lib.format.open_memmap(tmp_path / "x.npy", "w+", "uint8", (256, MIB))
    group = SmallGroup(192 * MIB)
    try:
        script = textwrap.dedent(f"""
            import numpy, batchd
            try:
                batchd.DataLoader((numpy.load({str(tmp_path / "x.npy")!r}, mmap_mode="r"),), 4, arrays="numpy")
            except MemoryError as e:
                print(e)
            """)
        done = subprocess.run(
            [
                "/bin/sh",
                "-c",
                'echo $$ >"$0/cgroup.procs" && exec "$@"',
                str(group.folder),
                sys.executable,
                "-c",
                script,
            ],
            capture_output=True,
            text=True,
            env={**os.environ, "BATCHD_ARRAYS": "numpy"},
        )
        assert done.returncode == 0 and f"have {256 * MIB} bytes" in done.stdout, (done.returncode, done.stderr)
        assert group.oom_kills() == 0
    finally:
        with contextlib.suppress(OSError):
            group.remove()

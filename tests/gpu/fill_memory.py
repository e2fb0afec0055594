"""Writes to memory until the machine has as much as it will have: fill_memory.py GIB

Some virtual machines get their memory only as it is used, and a daemon that starts before that sees a small machine:
its budget is small and it pins little. Writes GIB at most, a gibibyte at a time, and only while two more are available.
Prints MemTotal before and after."""

import mmap
import sys

PIECE = 1 << 30


def meminfo(name):
    """GiB"""
    with open("/proc/meminfo") as f:
        return next(int(line.split()[1]) / (1 << 20) for line in f if line.startswith(f"{name}:"))


def main(most):
    before, kept = meminfo("MemTotal"), []
    page = b"1" * (1 << 20)
    while len(kept) < most and meminfo("MemAvailable") > 3:
        kept.append(mmap.mmap(-1, PIECE))
        for _ in range(PIECE // len(page)):
            kept[-1].write(page)
    print(f"MemTotal {before:.1f} GiB, after {len(kept)} GiB were written {meminfo('MemTotal'):.1f} GiB")


if __name__ == "__main__":
    main(int(sys.argv[1]))

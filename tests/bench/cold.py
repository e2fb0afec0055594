"""Reads that have to wait: images a second from files in the page cache, from files just dropped from it, and from a
slow file system.

python tests/bench/cold.py --build build [--data DIR] [--ms 5] [--io-threads 8 --io-threads 32] [--rounds 3]

The slow file system is a library (preload/slow-reads.c) under which each file's first read takes --ms milliseconds.
"Reading in the workers" is batchd under the same library, told to let reads wait even if they may not: then a decoding
thread is idle while it reads its file. Dropping the page cache needs root.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from runner import HERE, Runner

COPIES = 2
IN_STOCK = 5  # batches that a loader may have made ahead before it was asked


def tree(runner, source):
    """The pictures several times over, so that an epoch lasts longer."""
    folder = runner.scratch / "pictures"
    for i in range(COPIES):
        shutil.copytree(source, folder / str(i))
    return folder


def slow(folder, ms, inline=False):
    """Makes a process that starts with this environment see a slow disk."""
    return {
        "LD_PRELOAD": str(folder / "slow-reads.so"),
        "SLOW_READS": str(folder / "pictures"),
        "SLOW_READS_MS": str(ms),
        **({"SLOW_READS_INLINE": "1"} if inline else {}),
    }


class With:
    """Sets environment variables for processes that start in the meantime."""

    def __init__(self, runner, variables):
        self.runner, self.variables = runner, variables

    def __enter__(self):
        self.before = dict(os.environ), self.runner.environment
        os.environ.update(self.variables)
        self.runner.environment = {**self.runner.environment, **self.variables}

    def __exit__(self, *_):
        os.environ.clear()
        os.environ.update(self.before[0])
        self.runner.environment = self.before[1]


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("3")


def loaders(runner, folder, args):
    """{row: (loader, function to call before each measurement)}"""
    # Pixels of an epoch never come from a cache of an earlier epoch.
    config = "cache:\n  jpeg: off\n  decoded: off\nio_threads: {}\n"
    options = {"transform": "train224", "data": str(folder)}
    rows = {}

    def ours(label, name, io_threads, variables, before=None):
        with With(runner, variables):
            daemon = runner.daemon(name, config.format(io_threads))
        rows[label] = runner.batchd(daemon, **options), before

    def torch(label, variables, before=None):
        with With(runner, variables):
            loader = runner.participant("PyTorch", **options)
        if loader:
            rows[label] = loader, before

    many = args.io_threads[-1]
    ours("batchd, files in the page cache", "warm", many, {})
    torch("PyTorch, files in the page cache", {})
    if os.access("/proc/sys/vm/drop_caches", os.W_OK):
        for n in args.io_threads:
            ours(f"batchd, page cache dropped, {n} I/O threads", f"dropped-{n}", n, {}, drop_caches)
        torch("PyTorch, page cache dropped", {}, drop_caches)
    for n in args.io_threads:
        ours(f"batchd, {args.ms:g} ms a file, {n} I/O threads", f"slow-{n}", n, slow(runner.scratch, args.ms))
    ours(
        f"batchd, {args.ms:g} ms a file, reading in the workers",
        "inline",
        many,
        slow(runner.scratch, args.ms, inline=True),
    )
    torch(f"PyTorch, {args.ms:g} ms a file", slow(runner.scratch, args.ms))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument(
        "--data", type=pathlib.Path, help="an image folder of JPEGs (default: sample pictures made for this)"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ms", type=float, default=5, help="how long a read of the slow file system takes")
    parser.add_argument("--io-threads", type=int, action="append", help="may be repeated")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.build, args.io_threads, args.quick = args.build.resolve(), args.io_threads or [8, 32], False
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="batchd-cold-"))
    runner = Runner(args, scratch)
    try:
        subprocess.run(
            [
                os.environ.get("CC", "cc"),
                "-shared",
                "-fPIC",
                "-O2",
                "-o",
                scratch / "slow-reads.so",
                HERE / "preload/slow-reads.c",
                "-ldl",
            ],
            stdin=subprocess.DEVNULL,
            check=True,
        )
        args.data = folder = tree(runner, args.data.resolve() if args.data else runner.sample_data())
        rows = loaders(runner, folder, args)
        rates = {label: [] for label in rows}
        for i in range(args.rounds + 1):
            for label, (loader, before) in rows.items():
                if before:
                    before()
                m = loader.ask(1, IN_STOCK)
                if i:  # in the first round every loader is cold
                    rates[label].append(m["images"] / m["wall_s"])
    finally:
        runner.stop()
        shutil.rmtree(scratch, ignore_errors=True)
    best = statistics.median(rates["batchd, files in the page cache"])
    for label, r in rates.items():
        print(
            f"{label:60} {statistics.median(r):8.0f} images/s   {statistics.median(r) / best:6.2f} of warm   ({min(r):.0f} to {max(r):.0f})"
        )
    if args.json:
        print(json.dumps(rates))
    return 0


if __name__ == "__main__":
    sys.exit(main())

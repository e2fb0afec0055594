"""Shared by the benchmarks of one format (shards.py, hf.py): their options, and how they tell of train224."""

import argparse
import os
import pathlib
import shutil
import statistics
import tempfile

from runner import Runner


def fresh_copy(runner, scratch):
    """A folder of the same pictures, written just now."""
    data = runner.args.data
    for picture in runner.pictures():
        place = scratch / "pictures" / pathlib.Path(picture).relative_to(data)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(picture, place)
    return scratch / "pictures"


def main(about, name, opening, train):
    """Parses the options, then calls opening(args, scratch) and train(args, runner, scratch)."""
    parser = argparse.ArgumentParser(description=about.split("\n\n")[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, help="an image folder of JPEGs (default: sample pictures)")
    parser.add_argument("--samples", type=int, default=100000)
    parser.add_argument("--bytes", type=int, default=10000)
    parser.add_argument("--epochs", type=int, default=12, help="of the pictures, a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--batch-size", type=int, default=64)
    args = parser.parse_args()
    args.build, args.quick = args.build.resolve(), False
    scratch = pathlib.Path(tempfile.mkdtemp(prefix=f"batchd-{name}-"))
    runner = Runner(args, scratch)
    try:
        opening(args, scratch)
        args.data = args.data.resolve() if args.data else runner.sample_data()
        args.data = fresh_copy(runner, scratch)
        train(args, runner, scratch)
    finally:
        runner.stop()
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


def tell(rates, width):
    """rates: {label: [(images/s, ms of CPU an image)]}, a pair of each round."""
    for label, r in rates.items():
        print(
            f"train224, {label:{width}} {statistics.median(x for x, _ in r):8.0f} images/s "
            f"{statistics.median(c for _, c in r):7.3f} ms of CPU an image"
        )

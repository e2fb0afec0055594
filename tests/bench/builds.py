"""CPU time of two builds for the same batches: builds.py A B [options]. For what must cost almost nothing, such as the
trainers' state clock: A is the build, B the same with the thing left out.

Each round runs `batchctl bench --private` of both, in turn and in changing order, so that a machine that gets slower in
the meantime is slower for both. The result is the median of the rounds' ratios, and the middle half of them."""

import argparse
import json
import pathlib
import statistics
import subprocess

# Cheap batches show a cost per batch best; pictures show a cost per row.
CHEAP = ["--batch-size", "16", "--dtype", "uint8", "random:length=32000,shape=3x32x32,dtype=uint8"]


def cost(build, options):
    """CPU microseconds per image, of the daemon and of the trainer."""
    command = [build / "batchctl", "bench", "--private", "--json", "--quiet", *options]
    total = json.loads(subprocess.run(command, capture_output=True, check=True, stdin=subprocess.DEVNULL).stdout)
    return [1000 * total["total"][f"{who}_cpu_ms_per_image"] for who in ("daemon", "trainer")]


def spread(values):
    quarters = statistics.quantiles(values, n=4)
    return f"{quarters[1]:.4f} ({quarters[0]:.4f} to {quarters[2]:.4f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a", type=pathlib.Path, metavar="A", help="a build folder")
    parser.add_argument("b", type=pathlib.Path, metavar="B", help="another")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--epochs", default="20", help="of a measurement")
    parser.add_argument(
        "options", nargs="*", help="of batchctl bench, behind --; default: cheap batches of random rows"
    )
    args = parser.parse_args()
    options = ["--epochs", args.epochs, *(args.options or CHEAP)]
    found = {args.a: [], args.b: []}
    for n in range(args.rounds):
        for build in (args.a, args.b) if n % 2 else (args.b, args.a):
            found[build].append(cost(build, options))
    for i, who in enumerate(("daemon", "trainer", "both")):
        a, b = ([sum(c) if who == "both" else c[i] for c in found[build]] for build in (args.a, args.b))
        ratios = [x / y for x, y in zip(a, b)]
        print(
            f"{who}: A {statistics.median(a):.4f}, B {statistics.median(b):.4f} us of CPU per image; "
            f"A / B {spread(ratios)}; least A / least B {min(a) / min(b):.4f}"
        )


if __name__ == "__main__":
    main()

"""What filling the decoded cache costs: CPU and time per image of an epoch that fills it, beside an epoch without it.

python tests/bench/filling.py --build build [--data DIR] [--rounds 5] [--before BUILD] [--transform train224]

Each round starts daemons of its own, in turn, because a cache is filled once. An epoch goes over the pictures several
times, and is counted from batch --skip on, when the slots are made. CPU time includes the trainer's.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import tempfile

from runner import Runner
from scenarios import NO_CACHE

FILLS = "cache:\n  jpeg: off\n  decoded: auto\n"
AT_MOST = 1.25


def tree(runner, source, copies):
    """The pictures several times over, under other names."""
    folder = runner.scratch / "pictures"
    for i in range(copies):
        shutil.copytree(source, folder / str(i))
    return folder


def measure(runner, label, name, config, build, args):
    """{images, wall_s, cpu_s} of the first epoch of a new daemon."""
    runner.args.build = build
    daemon = runner.daemon(name, f"memory: {args.memory}\n{config}")
    loader = runner.batchd(daemon, transform=args.transform, job=name)
    if not loader:
        raise SystemExit(f"filling: {label}: {next(iter(runner.absent.values()))}")
    m = loader.ask(1, args.skip)
    status = runner.run(build / "batchctl", "status", "--json", "--socket", daemon.socket)
    m["filled"] = sum(tier["entries"] for tier in status["cache"] if tier["tier"] == "decoded")
    runner.settle()
    return m


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument(
        "--before", type=pathlib.Path, metavar="BUILD", help="an earlier build, measured beside this one"
    )
    parser.add_argument(
        "--data", type=pathlib.Path, help="an image folder of JPEGs (default: sample pictures made for this)"
    )
    parser.add_argument("--copies", type=int, default=5, help="how often an epoch has each picture")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--skip", type=int, default=14, help="batches")
    parser.add_argument("--transform", default="train224")
    parser.add_argument("--memory", default="6GiB", help="of each daemon; half of it must hold all pictures decoded")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.build, args.quick = args.build.resolve(), False
    ways = {"no cache": (NO_CACHE, args.build), "filling": (FILLS, args.build)}
    if args.before:
        ways["filling before"] = (FILLS, args.before.resolve())
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="batchd-filling-"))
    runner = Runner(args, scratch)
    found = {label: [] for label in ways}
    try:
        args.data = tree(runner, args.data.resolve() if args.data else runner.sample_data(), args.copies)
        for i in range(args.rounds):
            for k, (label, (config, build)) in enumerate(ways.items()):
                found[label].append(measure(runner, label, f"{k}-{i}", config, build, args))
    finally:
        runner.stop()
        shutil.rmtree(scratch, ignore_errors=True)
    plain = found.pop("no cache")
    print(f"no cache: {statistics.median(1000 * m['cpu_s'] / m['images'] for m in plain):.3f} ms CPU per image")
    ratios = {}
    for label, measured in found.items():
        if not all(m["filled"] for m in measured):
            raise SystemExit(f"filling: the cache stayed empty: raise --memory ({args.memory})")
        ratios[label] = {
            what: [m[what] / m["images"] / (n[what] / n["images"]) for m, n in zip(measured, plain)]
            for what in ("cpu_s", "wall_s")
        }
        cpu, wall = (statistics.median(values) for values in ratios[label].values())
        ms = statistics.median(1000 * m["cpu_s"] / m["images"] for m in measured)
        print(f"{label}: {ms:.3f} ms; CPU {cpu:.2f} of no cache (wanted: {AT_MOST}), time {wall:.2f}")
    if args.json:
        print(json.dumps(ratios))


if __name__ == "__main__":
    main()

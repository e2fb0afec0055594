"""How often the daemon's threads take a lock for a row: python tests/bench/contention.py --build build [--workers 32]

Runs a few epochs and then more under tests/fake/faults/contention.c, in daemons of their own, and prints what the additional
rows cost: acquisitions, and those that found the lock taken, for each mutex. Workers on fewer processors find a lock
taken only when its holder was interrupted, so that the second number is a lower bound for a larger machine.
"""

import argparse
import collections
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

from runner import Runner

CONFIGS = {
    "no cache": "cache:\n  jpeg: off\n  decoded: off\n",
    "index": "cache:\n  jpeg: auto\n  decoded: off\n",
    "decoded": "cache:\n  jpeg: off\n  decoded: auto\n",
}
FEW, MORE = 3, 11


def read(path):
    """Acquisitions and waits for each place at which a mutex was taken first: mutexes of one kind share it."""
    counts = collections.Counter()
    for line in path.read_text().splitlines():
        taken, waited, program, place = line.split()
        counts[program, place, "taken"] += int(taken)
        counts[program, place, "waited"] += int(waited)
    return counts


def count(runner, name, config, epochs):
    """What a daemon's mutexes were taken, over so many epochs and its start and end."""
    to = runner.scratch / f"{name}.locks"
    preload = {"LD_PRELOAD": str(runner.args.build / "tests/contention.so"), "CONTENTION_TO": str(to)}
    os.environ.update(preload)
    try:
        daemon = runner.daemon(name, config)
    finally:
        for key in preload:
            del os.environ[key]
    argv = ["bench", runner.args.data, "--socket", daemon.socket, "--transform", "train224"]
    argv += ["--batch-size", runner.args.batch_size, "--epochs", epochs, "--json"]
    runner.run(runner.args.build / "batchctl", *argv, stderr=subprocess.DEVNULL)
    runner.settle()
    return read(to)


def function_at(program, place):
    """The function, not one that was inlined there. place is where the call returns to."""
    unknown = f"{pathlib.Path(program).name} {place}"
    if not shutil.which("addr2line"):
        return unknown
    argv = ["addr2line", "-i", "-f", "-e", program, hex(int(place, 16) - 1)]
    lines = subprocess.run(argv, capture_output=True, text=True).stdout.splitlines()
    return lines[-2] if len(lines) > 1 and lines[-2] != "??" else unknown


def per_row(runner, label, config):
    """[(acquisitions, waits, function)] for a row, the most frequent first."""
    few, more = (count(runner, f"{label}-{n}".replace(" ", "-"), config, n) for n in (FEW, MORE))
    rows = len(runner.pictures()) * (MORE - FEW)
    more.subtract(few)
    places = {(program, place) for program, place, _ in more}
    table = [(more[*at, "taken"] / rows, more[*at, "waited"] / rows, function_at(*at)) for at in places]
    return sorted(table, reverse=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, help="an image folder of JPEGs (default: sample pictures)")
    parser.add_argument("--workers", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.build, args.quick = args.build.resolve(), False
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="batchd-contention-"))
    runner = Runner(args, scratch)
    found = {}
    try:
        args.data = args.data.resolve() if args.data else runner.sample_data()
        for label, config in CONFIGS.items():
            table = per_row(runner, label, config)
            taken, waited = (sum(row[i] for row in table) for i in (0, 1))
            found[label] = {"taken": taken, "waited": waited, "hottest": table[0][0]}
            if args.json:
                continue
            print(f"{label}, {args.workers} workers: {taken:.2f} locks a row, {waited:.3f} of them taken already")
            for row in table:
                if row[0] >= 0.02:
                    print(f"   {row[0]:6.2f} {row[1]:7.3f}  first taken by {row[2]}")
    finally:
        runner.stop()
        shutil.rmtree(scratch, ignore_errors=True)
    if args.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()

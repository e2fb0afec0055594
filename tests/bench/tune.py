"""Whether `batchctl tune` finds a good setting: tune.py DATASET [options].

Runs tune twice and compares the two tables; then measures every combination of workers and slots in turn, round by
round, and says how much of the best one's speed the recommended setting has, and what the two tables' medians differ by.
Both want a machine without other load."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from daemons import BUILD  # noqa: E402

OFF = "cache:\n  decoded: off\n  jpeg: off\nlinger: 0s\n"  # as tune measures workers and slots


def batchctl(*args, env=None):
    command = [str(BUILD / "batchctl"), *map(str, args)]
    made = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if made.returncode:
        sys.exit(f"{' '.join(command)}: {made.stderr}")
    return json.loads(made.stdout)


def rate(dataset, transform, setting, seconds, config):
    chosen = [f"--{name}={n}" for name, n in zip(("workers", "slots"), setting) if n]
    options = ["--private", "--json", "--quiet", f"--seconds={seconds}", *transform, *chosen]
    epochs = batchctl("bench", *options, "--", dataset, env=os.environ | {"BATCHD_CONFIG": config})["epochs"]
    if not any(e["images"] for e in epochs):
        sys.exit(f"no batch came within {seconds}: give more --seconds")
    return sum(e["images"] for e in epochs) / sum(e["seconds"] for e in epochs)


def sweep(args, transform, config):
    """The median speed of every (workers, slots); 0: the daemon decides."""
    processors = len(os.sched_getaffinity(0))
    settings = [(w, s) for w in (0, *range(1, processors + 1)) for s in (0, 3, 4, 6, 8, 12)]
    rates = {setting: [] for setting in settings}
    for _ in range(args.rounds):
        for setting in settings:
            rates[setting].append(rate(args.dataset, transform, setting, args.seconds, config))
    return {setting: statistics.median(r) for setting, r in rates.items()}


def differences(first, second):
    """Of the trials that both tables have: the greater median by the lesser one, less 1."""
    key = lambda t: (t["setting"], t["value"])  # noqa: E731
    other = {key(t): t["images_per_s"] for t in second["trials"] if t.get("images_per_s")}
    pairs = [(t["images_per_s"], other[key(t)]) for t in first["trials"] if t.get("images_per_s") and key(t) in other]
    return [max(a, b) / min(a, b) - 1 for a, b in pairs]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", metavar="DATASET", help="such as imagefolder:DIR")
    parser.add_argument("--transform", help="as of batchctl tune")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", default="3s", help="of each measurement")
    args = parser.parse_args()
    transform = [f"--transform={args.transform}"] if args.transform else []
    tune = ["tune", "--json", "--quiet", "--no-torch", f"--seconds={args.seconds}", f"--rounds={min(args.rounds, 9)}"]
    tables = [batchctl(*tune, *transform, "--", args.dataset) for _ in range(2)]
    apart = differences(*tables)
    print(f"tables: medians differ by {statistics.median(apart):.1%} (median), {max(apart):.1%} at most")
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
        config.write(OFF)
        config.flush()
        found = sweep(args, transform, config.name)
    best = max(found, key=found.get)
    name = lambda s: f"workers {s[0] or 'auto'}, slots {s[1] or 'auto'}"  # noqa: E731
    for setting in sorted(found, key=found.get, reverse=True):
        print(f"  {name(setting):28} {found[setting]:8.0f} images/s  {found[setting] / found[best]:.3f}")
    for n, table in enumerate(tables):
        choice = table["choice"]
        chosen = tuple(0 if choice[what] == "auto" else int(choice[what]) for what in ("workers", "slots"))
        print(f"tune {n + 1} recommends {name(chosen)}: {found[chosen] / found[best]:.3f} of the best ({name(best)})")


if __name__ == "__main__":
    main()

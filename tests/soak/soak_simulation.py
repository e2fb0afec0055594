"""Random histories of the daemon's state machines (tests/test_simulation.c), from other seeds than the tests': 10^7 by default, half on each of two processors.

    soak_simulation.py [--build DIR] [--rounds N] [--seed FIRST] [--quick]
"""
import argparse
import os
import pathlib
import subprocess
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.environ.get("BATCHD_BUILD", "build"))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seed", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true")
    args, _ = parser.parse_known_args()
    rounds = args.rounds or (20_000 if args.quick else 10_000_000)
    program = pathlib.Path(args.build).resolve() / "tests" / "test_simulation"
    share = -(-rounds // (os.cpu_count() or 1))
    runs = [subprocess.Popen([program, "--rounds", str(min(share, rounds - done)), "--first", str(args.seed + done)], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL) for done in range(0, rounds, share)]
    failed = 0
    for run in runs:
        _, errors = run.communicate()
        failed += run.returncode != 0
        sys.stdout.write(errors)
    print(f"simulation: {rounds} histories, {'every promise kept' if not failed else 'see above'}")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())

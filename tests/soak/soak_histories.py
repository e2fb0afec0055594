"""Random histories of trainings that are killed, resumed, made larger and smaller, each step against torch's own sampler: tests/python/test_resume.py's property
test, with as many histories as asked for."""
import argparse
import os
import pathlib
import subprocess
import sys

REPO = pathlib.Path(__file__).resolve().parents[2]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=REPO / "build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first history")
    parser.add_argument("--quick", action="store_true", help="30 rounds")
    args, _ = parser.parse_known_args()
    env = {**os.environ, "BATCHD_BUILD": str(args.build.resolve()), "BATCHD_HISTORIES": str(30 if args.quick else args.rounds),
           "BATCHD_FIRST_HISTORY": str(args.seed)}
    sys.exit(subprocess.run([sys.executable, "-m", "pytest", "-q", "-s", "-k", "histories", str(REPO / "tests/python/test_resume.py")], env=env).returncode)


if __name__ == "__main__":
    main()

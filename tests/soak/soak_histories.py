"""Random histories of trainings that are killed, resumed, and moved to more or fewer ranks, each step checked against
torch's own sampler: the property test of tests/system/resume/test_resume.py, with a chosen number of histories."""

import os
import subprocess
import sys

import crew


def scenario(args, folder, progress):
    env = {
        **os.environ,
        "BATCHD_BUILD": str(args.build),
        "BATCHD_HISTORIES": str(args.rounds),
        "BATCHD_FIRST_HISTORY": str(args.seed),
    }
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-s",
            "-p",
            "no:cacheprovider",
            "-k",
            "histories",
            str(crew.REPO / "tests/system/resume/test_resume.py"),
        ],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if ran.returncode:
        raise crew.Failure(ran.stdout[-4000:])
    progress(args.rounds)
    return {"histories": args.rounds}


if __name__ == "__main__":
    crew.main("histories", __doc__, 1000, 30, scenario)

"""Random histories of the daemon's state machines in a made-up world (tests/test_simulation.c), on all processors, from other seeds than the tests'."""
import os
import subprocess

import crew


def scenario(args, folder, progress):
    program = args.build / "tests" / "test_simulation"
    first = 1_000_000 + args.seed % 1_000_000 * 1_000_000
    share = -(-args.rounds // (os.cpu_count() or 1))
    runs = [subprocess.Popen([program, "--rounds", str(min(share, args.rounds - done)), "--first", str(first + done)], text=True,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for done in range(0, args.rounds, share)]
    said = [run.communicate()[1] for run in runs]
    if any(run.returncode for run in runs):
        raise crew.Failure("".join(said))
    progress(args.rounds)
    return {"histories": args.rounds}


if __name__ == "__main__":
    crew.main("simulation", __doc__, 10_000_000, 10_000, scenario)

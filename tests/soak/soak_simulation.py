"""Random histories of the daemon's state machines in a simulated world (tests/daemon/test_simulation.c), on all processors,
from seeds that the tests do not use."""

import os
import subprocess
import tempfile
import threading

import crew

TELL_EVERY = 1000


def scenario(args, folder, progress):
    program = args.build / "tests" / "test_simulation"
    first = 1_000_000 + args.seed % 1_000_000 * 1_000_000
    share = -(-args.rounds // (os.cpu_count() or 1))
    counts = {}

    def follow(begin, run):
        for line in run.stdout:
            if line.strip().isdigit():
                counts[begin] = int(line)
                progress(min(sum(counts.values()), args.rounds - 1))

    with tempfile.TemporaryFile("w+") as said:  # the output of all of them, which names the history that fails
        runs, readers = [], []
        for begin in range(0, args.rounds, share):
            run = subprocess.Popen(
                [
                    program,
                    "--rounds",
                    str(min(share, args.rounds - begin)),
                    "--first",
                    str(first + begin),
                    "--tell-every",
                    str(TELL_EVERY),
                ],
                text=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=said,
            )
            reader = threading.Thread(target=follow, args=(begin, run), daemon=True)
            reader.start()
            runs.append(run)
            readers.append(reader)
        for run, reader in zip(runs, readers):
            run.wait()
            reader.join()
        said.seek(0)
        if any(run.returncode for run in runs):
            raise crew.Failure(said.read()[-4000:])
    progress(args.rounds)
    return {"histories": args.rounds}


if __name__ == "__main__":
    crew.main("simulation", __doc__, 10_000_000, 10_000, scenario)

"""One loader in a process of its own: participant.py NAME 'JSON of peers.Options'.

Prints {"version": ...} or {"absent": why} once. Then answers each line {"epochs": E, "first": e, "skip": s} with the
number of images between the arrival of batch s and the last batch, and the wall and CPU time for them. The CPU time is
that of this process, its workers and options.daemon_pid.
"""

import json
import os
import sys
import time
import traceback

import clock
from arrays import ARRAYS
from peers import PEERS, Options


def make(name, options):
    if name == "batchd":
        from ours import Batchd

        return Batchd(options)
    return {**PEERS, **ARRAYS}[name](options)


def pids(options):
    return clock.family(os.getpid()) + ([options.daemon_pid] if getattr(options, "daemon_pid", None) else [])


def touch(batch):
    """Reads one number of the batch, because a trainer's copy would have to wait for it; returns the rows."""
    images = batch[0]
    if not hasattr(images, "__getitem__"):  # DALI's
        return images.shape()[0]
    _ = images[(0,) * images.ndim]
    return len(images)


def measure(loader, options, epochs, first, skip):
    n_images = n_batches = 0
    began = cpu_began = None
    for e in range(first, first + epochs):
        for batch in loader.epoch(e):
            rows = touch(batch)
            if began is not None:
                n_images += rows
            n_batches += 1
            if n_batches == skip:
                began, cpu_began = time.perf_counter(), clock.cpu_s(pids(options))
    wall = time.perf_counter() - began
    return {"images": n_images, "wall_s": wall, "cpu_s": clock.cpu_s(pids(options)) - cpu_began}


def main():
    name, options = sys.argv[1], Options(**json.loads(sys.argv[2]))
    answers, sys.stdout = sys.stdout, sys.stderr  # libraries may print anything
    try:
        loader = make(name, options)
    except Exception as e:  # a library that does not fit this machine may raise any exception
        traceback.print_exc()
        print(
            json.dumps({"absent": f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"}),
            file=answers,
            flush=True,
        )
        return
    print(json.dumps({"version": loader.version}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(measure(loader, options, **json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()

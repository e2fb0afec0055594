"""A loader's verdict: whether its input is the limit of the training, and what would help."""

import os
import sys
import time

from . import _lib
from .errors import Error

LEAST_S, LEAST_SHARE = 60.0, 0.2  # of a loader that says its verdict when it is closed, without being asked


class Verdict(str):
    """One line, and what it was made of:

    known            False: in the period the trainer has worked for less than a second
    input_bound      whether it waits for batches for at least 5 % of its time
    share            the part of its time, without idle time, that it waits for batches
    cause            the state that has most of this: "read", "decode", "transform", "gpu_copy", "order", "producer",
                     "peer" or "memory" (batchctl(1) describes them); "busy" where it never waits
    shares           the part of each state in the same period, idle time included; they sum to 1
    without_cause, twice_the_cpu, all_processors, decoded_cache
                     estimates of how much faster the training would be (0.6: by 60 %) without waiting for that cause,
                     with twice the processors, with a worker for each processor, and with decoded images in memory; 0
                     where that does not apply
    """

    __slots__ = (
        "known",
        "input_bound",
        "share",
        "cause",
        "shares",
        "without_cause",
        "twice_the_cpu",
        "all_processors",
        "decoded_cache",
    )

    def __new__(cls, parts, shares):
        self = super().__new__(cls, parts["text"])
        self.shares = shares
        for name in cls.__slots__:
            if name != "shares":
                setattr(self, name, parts[name])
        return self


PERIODS = {"last_5s": "verdict_last_5s", "last_minute": "verdict", "since_start": "verdict_since_start"}


def ask(socket, job, rank, period):
    """The verdict on the trainer that is this rank of this user's job."""
    if period not in PERIODS:
        raise ValueError(f"verdict: period is one of {', '.join(PERIODS)}, not {period!r}")
    for s in _lib.status(socket)["sessions"]:
        mine = (s["job"], s["rank"], s["uid"]) == (job, rank, os.geteuid())
        if mine and s["state"] == "attached" and PERIODS[period] in s:
            return Verdict(s[PERIODS[period]], s["clock"]["shares"][period])
    raise Error(f"batchd at {socket} has no trainer of rank {rank} of job {job}: it has lost the connection")


def say_at_end(loader, opened):
    """The verdict of a loader that is about to be closed, on the terminal: always with BATCHD_VERDICT=1, else that of a
    long run of which a good part was spent waiting; never with BATCHD_VERDICT=0."""
    wish = os.environ.get("BATCHD_VERDICT", "")
    if wish == "0" or sys.stderr is None or (wish != "1" and time.monotonic() - opened < LEAST_S):
        return
    try:
        verdict = loader.verdict("since_start")
    except Exception:  # the daemon may be gone by now
        return
    if wish == "1" or (verdict.input_bound and verdict.share >= LEAST_SHARE):
        sys.stderr.write(f"batchd: {verdict}\n")
        sys.stderr.flush()

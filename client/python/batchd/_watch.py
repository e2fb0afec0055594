"""Tells a process whose trainer is stuck in a collective which rank that trainer waits for.

A rank that is blocked in NCCL reads no notices, so a thread checks the daemon's status when a loader has been quiet for
a while. It costs nothing as long as batches flow.
"""

import os
import threading
import time
import warnings
import weakref

from . import _lib

LOOK_S, QUIET_S = 15.0, 30.0


def start(loader):
    """Watches as long as the loader lives."""
    thread = threading.Thread(target=_watch, args=(weakref.ref(loader),), name="batchd-watch", daemon=True)
    thread.start()
    return thread


def _watch(reference):
    told = set()
    while True:
        time.sleep(LOOK_S)
        loader = reference()
        if loader is None or loader._handle is None:
            return
        if time.monotonic() - loader._beat < QUIET_S:
            told.clear()
            continue
        job, socket, rank = loader.job, loader.socket, loader.rank
        del loader
        try:
            sessions = _lib.status(socket)["sessions"]
        except Exception:  # then there is nothing to tell
            continue
        for s in sessions:
            if s.get("stalled") and s["job"] == job and s["rank"] != rank and s["id"] not in told:
                told.add(s["id"])
                warnings.warn(
                    f"no batch was asked for in {QUIET_S:.0f} s; rank {s['rank']} of this job (pid {s['pid']} on node {os.uname().nodename}) has been stalled for "
                    f"{s.get('stalled_s', 0):.0f} s with {s['held']} batches: {s.get('stalled_why', '')}",
                    RuntimeWarning,
                )

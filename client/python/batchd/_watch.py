"""Tells a process whose trainer is stuck in a collective which rank that trainer waits for.

A rank that is blocked in NCCL reads no notices, so a thread checks the daemon's status when a loader has been quiet for
a while. It costs nothing as long as batches flow. One thread watches all loaders of the process, and ends with them.
"""

import os
import threading
import time
import warnings
import weakref

from . import _lib

LOOK_S, QUIET_S = 15.0, 30.0

_lock = threading.RLock()  # a signal's handler may open a loader anywhere
_watched = weakref.WeakSet()
_thread = None


def _forget():
    """A forked child has neither its parent's threads nor the use of its loaders."""
    global _lock, _watched, _thread
    _lock, _watched, _thread = threading.RLock(), weakref.WeakSet(), None


os.register_at_fork(after_in_child=_forget)


class Watch:
    """What the trainer of one loader has been told; lives as long as the loader."""

    def __init__(self, loader):
        self.loader, self.told = weakref.ref(loader), set()

    def look(self):
        """False: the loader is closed or gone."""
        loader = self.loader()
        if loader is None or loader._handle is None:
            return False
        if time.monotonic() - loader._beat < QUIET_S:
            self.told.clear()
            return True
        job, socket, rank = loader.job, loader.socket, loader.rank
        del loader
        try:
            sessions = _lib.status(socket)["sessions"]
        except Exception:  # then there is nothing to tell
            return True
        for s in sessions:
            if s.get("stalled") and s["job"] == job and s["rank"] != rank and s["id"] not in self.told:
                self.told.add(s["id"])
                warnings.warn(
                    f"no batch was asked for in {QUIET_S:.0f} s; rank {s['rank']} of this job (pid {s['pid']} on node {os.uname().nodename}) has been stalled for "
                    f"{s.get('stalled_s', 0):.0f} s with {s['held']} batches: {s.get('stalled_why', '')}",
                    RuntimeWarning,
                )
        return True


def start(loader):
    """Watches as long as the loader, which keeps what is returned, lives."""
    global _thread
    watch = Watch(loader)
    with _lock:
        _watched.add(watch)
        if _thread is None:
            _thread = threading.Thread(target=_run, name="batchd-watch", daemon=True)
            _thread.start()
    return watch


def _run():
    global _thread
    while True:
        time.sleep(LOOK_S)
        with _lock:
            watched = list(_watched)
        ended = [watch for watch in watched if not watch.look()]
        with _lock:
            _watched.difference_update(ended)
            del watched, ended
            if not _watched:
                _thread = None
                return

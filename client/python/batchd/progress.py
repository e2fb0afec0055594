"""A bar on the terminal while the daemon prepares a data set, a line about what the loader waits for, and a way out of
the wait for Ctrl-C."""

import os
import shutil
import sys
import threading
import time

from . import _lib

_FIRST_S, _EACH_S = 0.5, 0.1
_WAITS = b"daemon", b"producer"  # phases without anything to draw


class Listener:
    """The callbacks of the C library, which live as long as the loader: progress of an opening, the first or a
    reconnect, and events. Holds no reference to the loader, so that an unreferenced loader closes at once."""

    def __init__(self):
        self.bar = None  # only while the first opening is under way
        self.interrupted = None
        self.events = []  # (event, text), for the loader to report when it is out of C
        self.on_progress = _lib.PROGRESS(self._progress)
        self.on_event = _lib.EVENT(self._event)

    def __enter__(self):
        """While the library opens something. A signal that came meanwhile has its handler run when a callback begins,
        before its `try`. No code can catch an exception that the handler raises, usually KeyboardInterrupt; Python only
        reports it to this hook."""
        self._hook = None
        if threading.current_thread() is threading.main_thread():
            self._hook, sys.unraisablehook = sys.unraisablehook, self._unraisable
        return self

    def __exit__(self, *exception):
        if self._hook is not None:
            sys.unraisablehook = self._hook

    def _unraisable(self, info):
        ours = threading.current_thread() is threading.main_thread() and (
            info.object == self._progress or (info.object is None and "ctypes callback" in (info.err_msg or ""))
        )
        if ours:
            self.interrupted = info.exc_value
        else:
            self._hook(info)

    def _progress(self, arg, phase, done, total):
        """An exception of a signal's handler cannot pass through C, so it is kept for later."""
        if self.interrupted is not None:
            return 1
        try:
            if self.bar is not None:
                self.bar.show(phase, done, total)
            return 0
        except BaseException as e:
            self.interrupted = e
            return 1

    def _event(self, _arg, event, text):
        try:
            self.events.append((event, text.decode("utf-8", "replace")))
        except BaseException as e:
            self.interrupted = e

    def check(self):
        """Raises the exception that could not be raised inside a callback."""
        interrupted, self.interrupted = self.interrupted, None
        if interrupted is not None:
            raise interrupted


class Bar:
    def __init__(self, wanted, may_draw, listener=None):
        """wanted: True, False, or None for "if stderr is a terminal". listener: gets all progress, too."""
        self._listener = listener
        if wanted is None:
            wanted = sys.stderr is not None and sys.stderr.isatty()
        self._draws = bool(wanted) and may_draw
        self._drawn = False
        self._next = time.monotonic() + _FIRST_S

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def show(self, phase, done, total):
        if self._listener is not None:
            self._listener.on_progress(phase, done, total)
        if self._draws and phase and phase not in _WAITS and time.monotonic() >= self._next:
            self._next = time.monotonic() + _EACH_S
            self._draw(phase.decode("ascii", "replace"), done, total)

    def _draw(self, phase, done, total):
        if phase == "gpu":
            text = "batchd: the daemon gets the GPU ready"
        else:
            text = f"batchd: {phase} {done}" + (f" of {total}" if total else "")
        width = min(shutil.get_terminal_size().columns - len(text) - 4, 40)
        if total and width >= 10:
            filled = width * min(done, total) // total
            text += " [" + "#" * filled + " " * (width - filled) + "]"
        sys.stderr.write("\r\x1b[K" + text)
        sys.stderr.flush()
        self._drawn = True


class Announcement:
    """Reports on standard error, once each, that the loader waits for the daemon or for a producer."""

    def __init__(self, dataset, socket):
        self._name = dataset[6:] if dataset.startswith("serve:") else dataset
        self._at = f" at {os.fsdecode(socket)}" if socket else ""
        self._said = set()

    def on_progress(self, phase, done, total):
        if phase not in _WAITS or phase in self._said or done < 1 or sys.stderr is None:
            return
        self._said.add(phase)
        what = (
            f"no daemon answers{self._at} yet; waiting for it"
            if phase == b"daemon"
            else f"waiting for a producer named '{self._name}' (batchd.serve(..., name='{self._name}'))"
        )
        sys.stderr.write(f"batchd: {what}, for {total} s at most\n")
        sys.stderr.flush()

"""A bar on the terminal while the daemon prepares a data set, and a way out of the wait for Ctrl-C."""
import shutil
import sys
import time

_FIRST_S, _EACH_S = 0.5, 0.1


class Bar:
    def __init__(self, wanted, may_draw):
        """wanted: True, False, or None for "if stderr is a terminal"."""
        if wanted is None:
            wanted = sys.stderr is not None and sys.stderr.isatty()
        self._draws = bool(wanted) and may_draw
        self._drawn = False
        self._next = time.monotonic() + _FIRST_S
        self.interrupted = None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def on_progress(self, _arg, phase, done, total):
        """Called by the C library. What a signal's handler raises cannot pass through C, so it is kept for later."""
        try:
            if self._draws and phase and time.monotonic() >= self._next:
                self._next = time.monotonic() + _EACH_S
                self._draw(phase.decode("ascii", "replace"), done, total)
            return 0
        except BaseException as e:
            self.interrupted = e
            return 1

    def _draw(self, phase, done, total):
        text = f"batchd: {phase} {done}" + (f" of {total}" if total else "")
        width = min(shutil.get_terminal_size().columns - len(text) - 4, 40)
        if total and width >= 10:
            filled = width * min(done, total) // total
            text += " [" + "#" * filled + " " * (width - filled) + "]"
        sys.stderr.write("\r\x1b[K" + text)
        sys.stderr.flush()
        self._drawn = True

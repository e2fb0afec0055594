"""What a loader's batches cost its loop: counted per batch, summed up when asked."""

import collections
import time

_RECENT = 1024


class Timing:
    """The waits of a loader, and the loop's own time between batches."""

    __slots__ = ("_waits", "_before", "_n", "_rows", "_wait_s", "_began", "_at")

    def __init__(self):
        self._waits = collections.deque(maxlen=_RECENT)
        self._n = self._rows = 0
        self._wait_s = 0.0
        self._began = self._before = self._at = None  # moments: the first call, and the last two batches

    def note(self, wait_s, n_rows):
        """A batch has come after so long a wait."""
        self._before, self._at = self._at, time.perf_counter()
        if self._before is None:
            self._began = self._at - wait_s
        self._n += 1
        self._rows += n_rows
        self._wait_s += wait_s
        self._waits.append(wait_s)

    def dict(self):
        waits = sorted(self._waits)
        elapsed = self._at - self._began if self._n else 0.0

        def percentile(p):
            return waits[min(len(waits) * p // 100, len(waits) - 1)] if waits else 0.0

        return {
            "batches": self._n,
            "rows": self._rows,
            "data_time": waits and self._waits[-1] or 0.0,
            "step_time": self._at - self._before if self._before is not None else 0.0,
            "wait_s": self._wait_s,
            "wait_p50_s": percentile(50),
            "wait_p99_s": percentile(99),
            "wait_share": min(self._wait_s / elapsed, 1.0) if elapsed > 0 else 0.0,
            "rows_per_s": self._rows / elapsed if elapsed > 0 else 0.0,
        }

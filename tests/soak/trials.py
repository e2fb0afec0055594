"""Shared by soak_trials.py and soak_producers.py: trainers in threads of this process, through the Python package, each
checked batch by batch; and processes that are meant to be killed."""

import os
import subprocess
import sys
import threading
import time

import crew


def package(build):
    """The Python package of this tree, with the library of that build."""
    os.environ["BATCHD_BUILD"] = str(build)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(crew.REPO / "client/python"), os.environ.get("PYTHONPATH")])
    )
    sys.path.insert(0, str(crew.REPO / "client/python"))
    import batchd

    return batchd


class Thread(threading.Thread):
    """Runs work(self) until it is told to stop. n_batches counts the batches received, `at` is (epoch, step) of the
    last; an exception from work is the run's failure. `more` has other facts about the trainer."""

    def __init__(self, name, work, **more):
        super().__init__(name=name, daemon=True)
        self.__dict__.update(more)
        self._work = work
        self.n_batches, self.at, self.failure, self.stopping = 0, None, None, False
        self.start()

    def run(self):
        try:
            self._work(self)
        except Exception as e:
            self.failure = f"{self.name}, behind {self.at}: {e!r}"

    def had(self, loader, may_skip=False):
        """Notes a batch, which has to follow the last, and returns its place."""
        at = loader.last_batch.epoch, loader.last_batch.step
        if (
            self.at
            and not (may_skip and loader.last_batch.n_skipped)
            and at not in ((self.at[0], self.at[1] + 1), (self.at[0] + 1, 0))
        ):
            raise crew.Failure(f"batch {at} came behind {self.at}")
        self.n_batches, self.at = self.n_batches + 1, at
        return at

    def check(self):
        if self.failure:
            raise crew.Failure(self.failure)


def wait_for(threads, n):
    """Waits until each has received n more batches."""
    goals = [t.n_batches + n for t in threads]

    def arrived():
        for t in threads:
            t.check()
        return all(t.n_batches >= goal for t, goal in zip(threads, goals))

    try:
        crew.until("", arrived)
    except crew.Failure:
        short = [
            f"{t.name} had {t.n_batches - goal + n}, the last at {t.at}"
            for t, goal in zip(threads, goals)
            if t.n_batches < goal
        ]
        raise crew.Failure(f"not each got {n} batches more within {crew.PATIENCE_S} s: {'; '.join(short)}") from None


def stop(threads):
    for t in threads:
        t.stopping = True
    for t in threads:
        t.join(crew.PATIENCE_S)
        t.check()
        if t.is_alive():
            raise crew.Failure(f"{t.name} does not end")


class Process:
    """A Python script that prints a line and is killed."""

    def __init__(self, script, *argv):
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", script, *map(str, argv)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for_line(self):
        if not self._process.stdout.readline():
            raise crew.Failure(f"a process that was to be killed said nothing: {self._process.stderr.read()}")

    def kill(self):
        self._process.kill()
        self._process.communicate()


def restart(daemon, rng):
    """Like a crash."""
    daemon.kill()
    time.sleep(rng.choice((0, 0, 0.02, 0.2)))
    daemon.start()

"""Trainers and daemons that are killed, with every byte checked: kills.py WORK

The trainers are the C trainer with --check rows, the build is $BATCHD_BUILD; WORK is for the data. Two lines "SAID ..."
are the results; a case that fails is followed by its daemon's log. Exit status: how many cases failed. Only the standard
library is needed: tests/system/gpu/test_cuda.py tests more of this, and needs pytest and numpy."""

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import npy_file
from own_daemon import Daemon

BATCH = 8
STEPS = npy_file.NUMBERED // BATCH
EPOCHS = 2
BUILD = pathlib.Path(os.environ.get("BATCHD_BUILD", "build"))
started = []


class Trainer:
    """Takes the batches from number `first` on; collects its "done EPOCH STEP" lines with the time of each."""

    def __init__(self, daemon, data, job, *args, first=0):
        argv = [BUILD / "tests/gpu/trainer", "--dataset", data, "--job", job, "--rank", 0, "--world", 1, "--slots", 4]
        argv += ["--batch", BATCH, "--epochs", EPOCHS, "--from", f"{first // STEPS},{first % STEPS}", *args]
        self.process = subprocess.Popen(
            [str(a) for a in argv],
            env=os.environ | {"BATCHD_SOCKET": daemon.socket},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(self.process)
        self.first, self.done, self.last, self.changed = first, [], "", threading.Condition()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            words = line.split()
            with self.changed:
                if words[:1] == ["done"] and line.endswith("\n"):
                    self.done.append((int(words[1]) * STEPS + int(words[2]), time.monotonic()))
                self.last = line.strip()
                self.changed.notify_all()
        with self.changed:
            self.changed.notify_all()

    def until(self, n, seconds=30):
        """Waits for its n-th batch."""
        deadline = time.monotonic() + seconds
        with self.changed:
            while len(self.done) < n and self.reader.is_alive() and time.monotonic() < deadline:
                self.changed.wait(0.1)
            assert len(self.done) >= n, f"{len(self.done)} of {n} batches came; {self.last}; {self.error()}"

    def error(self):
        return "" if self.process.poll() is None else self.process.stderr.read().strip()[-300:]

    def ends(self, seconds=60):
        """Its exit status."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"the trainer hung after {len(self.done)} batches") from None
        self.reader.join(5)
        return self.process.returncode

    def next(self):
        """The number of the batch after its last one; none before it is missing or came twice."""
        numbers = [n for n, _ in self.done]
        wanted = list(range(self.first, self.first + len(numbers)))
        assert numbers == wanted, f"batches are missing or came twice: {numbers[:5]} ... {numbers[-5:]}"
        return self.first + len(numbers)

    def ends_well(self):
        """ "IPC", say: how all of the remaining batches came."""
        status = self.ends()
        assert status == 0, f"the trainer ended with status {status}: {self.error()}"
        assert self.next() == EPOCHS * STEPS, f"it ended before batch {self.next()} of {EPOCHS * STEPS}"
        return self.last.partition(" by ")[2]


def trainers_are_killed(daemon, data):
    """With batches in use; each successor continues after the last batch that was checked."""
    at, n_killed = 0, 3
    for seed in range(n_killed):
        trainer = Trainer(daemon, data, "kill", "--delay-us", 2000, "--seed", seed, first=at)
        trainer.until(60)
        trainer.process.send_signal(signal.SIGKILL)
        trainer.ends(10)
        at = trainer.next()
    began = time.monotonic()
    trainer = Trainer(daemon, data, "kill", "--seed", n_killed, first=at)
    trainer.until(1)
    first_ms = (trainer.done[0][1] - began) * 1e3
    path = trainer.ends_well()
    assert daemon.process.poll() is None, "the daemon ended"
    held = sum(gpu.get("slab_bytes", 0) for gpu in daemon.status()["gpus"]) >> 20
    return (
        f"{n_killed} trainers killed, the next one had its first batch after {first_ms:.0f} ms; {EPOCHS * STEPS} batches "
        f"in order, every byte right ({path}); GPU memory held afterwards {held} MiB"
    )


def daemons_are_killed(daemon, data):
    """In the middle of an epoch; a new one takes its place, and the same trainer goes on."""
    trainer, pauses, starts = Trainer(daemon, data, "lost", "--delay-us", 4000, "--reconnect-ms", 60000), [], []
    for n in (150, 450):
        trainer.until(n)
        daemon.kill()
        killed, n_done = time.monotonic(), len(trainer.done)
        daemon.begin()
        starts.append(time.monotonic() - killed)
        trainer.until(n_done + 8)  # some had been delivered already
        times = [t for _, t in trainer.done[n_done - 1 :]]
        pauses.append(max(later - earlier for earlier, later in zip(times, times[1:])))
    path = trainer.ends_well()
    return (
        f"{len(pauses)} daemons killed, longest pause of the trainer {max(pauses) * 1e3:.0f} ms (of which the new daemon's "
        f"start {max(starts) * 1e3:.0f}); {EPOCHS * STEPS} batches in order, every byte right ({path})"
    )


def main(work):
    work = pathlib.Path(work)
    work.mkdir(parents=True, exist_ok=True)
    data, n_failed = npy_file.numbered(work), 0
    for case in (trainers_are_killed, daemons_are_killed):
        daemon, last_words = Daemon(BUILD), ""
        try:
            with daemon:
                said = case(daemon, data)
            assert not daemon.wrong, daemon.wrong
        except Exception as e:
            n_failed += 1
            said = f"{case.__name__.replace('_', ' ')} FAILED: {type(e).__name__}: {e}"
            last_words = daemon.last_words if hasattr(daemon, "last_words") else ""
        for process in started:
            process.kill()
        print(f"SAID {said}\n{last_words}", flush=True)
    return n_failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

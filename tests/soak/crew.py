"""Shared by the endurance runs: a daemon; a crew of small trainers (trainer.c), every line of which is checked against
a golden list made by torch's sampler and from the arrays themselves; and the daemon's accounts, which must balance at
the end."""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zlib

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import daemons  # noqa: E402 (found by the line above)
from daemons import REPO, until  # noqa: E402

PATIENCE_S = 60  # no wait here takes seconds normally; this only turns a hang into a failure
COLUMNS = 16


Failure = AssertionError  # daemons.py raises it as well


class Daemon(daemons.Daemon):
    """A daemon that restarts on the same socket after a kill, and reports on itself."""

    def __init__(self, build, folder, config="linger: 0s\n"):
        self.build = build
        super().__init__(folder, config=config, build=build)

    def status(self):
        said = subprocess.run(
            [self.build / "batchctl", "status", "--json", "--socket", self.socket],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        if said.returncode:
            raise Failure(f"batchctl status: {said.stderr}")
        return json.loads(said.stdout)

    def footprint(self):
        return daemons.footprint(self.pid)

    def settled_footprint(self):
        return daemons.settled_footprint(self.pid)

    def rss_bytes(self):
        fields = pathlib.Path(f"/proc/{self.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    def left(self):
        """What the daemon still has of others than this program: sessions, loaders, slots, charges. Empty when it has
        nothing."""
        s = self.status()
        books = [{k: v for k, v in user.items() if k not in ("uid", "fds")} for user in s["users"]]
        mine = {**dict.fromkeys(s["users"][0], 0), "sessions": 1} if s["users"] else {}
        mine = {k: v for k, v in mine.items() if k not in ("uid", "fds")}
        left = {"sessions": s["sessions"], "loaders": s["loaders"], "slots_bytes": s["memory"]["slots_bytes"]}
        left["users"] = [] if books == [mine] else books
        return {k: v for k, v in left.items() if v}

    def wait_until_empty(self):
        try:
            until("all slots, sessions and loaders are gone", lambda: not self.left())
        except Failure as e:
            raise Failure(f"{e}: left are {json.dumps(self.left())}") from None


class Data:
    """Arrays with known contents, and what every batch of them must be."""

    def __init__(self, folder, n, seed=7):
        self.n, self.seed = n, seed
        self.x = numpy.random.default_rng(1).random((n, COLUMNS), dtype=numpy.float32)
        self.y = numpy.arange(n, dtype=numpy.int64) * 3
        numpy.save(folder / "x.npy", self.x)
        numpy.save(folder / "y.npy", self.y)
        self.name = f"npy:{folder}/x.npy,{folder}/y.npy"
        self._orders = {}
        from torch.utils.data import (
            DistributedSampler,
        )  # done here, because it takes seconds that a trainer should not wait for later

        self._sampler = DistributedSampler

    def order(self, rank, world_size, epoch):
        key = rank, world_size, epoch
        if key not in self._orders:
            sampler = self._sampler(range(self.n), world_size, rank, shuffle=True, seed=self.seed)
            sampler.set_epoch(epoch)
            self._orders[key] = numpy.fromiter(sampler, numpy.int64)
        return self._orders[key]

    def batch(self, rank, world_size, batch_size, epoch, step):
        """(indices, CRC of rows and labels); no indices after the epoch's end."""
        indices = self.order(rank, world_size, epoch)[step * batch_size : (step + 1) * batch_size]
        return indices.tolist(), zlib.crc32(self.y[indices].tobytes(), zlib.crc32(self.x[indices].tobytes()))


class Trainer:
    """One rank. Its processes may come and go; their lines, taken together, must be the golden list without gap or
    repetition."""

    def __init__(self, daemon, data, *, job, rank=0, world_size=1, mode="shard", batch_size=8, hold=3, pace_us=2000):
        self.daemon, self.data, self.job, self.mode = daemon, data, job, mode
        self.rank, self.world_size, self.batch_size, self.hold, self.pace_us = (
            rank,
            world_size,
            batch_size,
            hold,
            pace_us,
        )
        self.epoch = self.step = self.n_batches = 0
        self.failure = None
        self.process = None

    def start(self, epochs=1 << 30):
        d = self.daemon
        self.process = subprocess.Popen(
            [
                d.build / "tests/soak/trainer",
                d.socket,
                self.data.name,
                self.job,
                self.mode,
                *map(
                    str,
                    (
                        self.rank,
                        self.world_size,
                        self.batch_size,
                        self.data.seed,
                        self.epoch,
                        self.step,
                        epochs,
                        self.hold,
                        self.pace_us,
                    ),
                ),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self._reader.start()
        return self

    def _read(self, process):
        for line in process.stdout:
            if line.endswith("\n") and not self.failure:  # an incomplete line was never printed
                self.failure = self._wrong(line)

    def _wrong(self, line):
        """None if this is the expected batch, which is then counted."""
        who = f"{self.mode} job {self.job}, rank {self.rank}"
        if line.startswith("TORN"):
            return f"{who}: a batch on loan changed: {line.strip()}"
        epoch, step, _padding, crc, indices = line.split()
        sharded = (self.rank, self.world_size) if self.mode == "shard" else (0, 1)
        golden, golden_crc = self.data.batch(*sharded, self.batch_size, self.epoch, self.step)
        if (int(epoch), int(step)) != (self.epoch, self.step):
            return f"{who}: batch {step} of epoch {epoch} came where batch {self.step} of epoch {self.epoch} was due"
        if [int(i) for i in indices.split(",")] != golden or int(crc) != golden_crc:
            return f"{who}: batch {step} of epoch {epoch} is not the golden one"
        self.step += 1
        self.n_batches += 1
        if not self.data.batch(*sharded, self.batch_size, self.epoch, self.step)[0]:
            self.epoch, self.step = self.epoch + 1, 0
        return None

    def check(self):
        if self.failure:
            raise Failure(self.failure)
        if self.process and self.process.poll() not in (None, 0, -signal.SIGKILL):
            raise Failure(
                f"{self.mode} job {self.job}, rank {self.rank} exited with {self.process.returncode}: {self.process.stderr.read()}"
            )

    def wait_for(self, n):
        """Waits until the rank has received n more batches."""
        goal = self.n_batches + n

        def arrived():
            self.check()
            return self.n_batches >= goal

        until(f"rank {self.rank} of {self.mode} job {self.job} gets {n} batches more", arrived)

    def kill(self):
        """SIGKILL; complete lines of the killed process count."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdout, self.process.stderr):
            pipe.close()
        self.check()
        self.process = None

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)


class Progress:
    """A progress bar on a terminal, an occasional line in a log, nothing with --json."""

    def __init__(self, name, total, quiet):
        self.name, self.total, self.quiet = name, total, quiet
        self.bar, self.said = sys.stderr.isatty(), time.monotonic()

    def __call__(self, done):
        now = time.monotonic()
        if self.quiet or (now - self.said < (0.2 if self.bar else 15) and done < self.total):
            return
        self.said = now
        if self.bar:
            width = 30 * done // self.total
            sys.stderr.write(
                f"\r{self.name} [{'#' * width}{'.' * (30 - width)}] {done}/{self.total}" + "\n" * (done == self.total)
            )
        elif done < self.total:
            sys.stderr.write(f"{self.name}: {done} of {self.total}\n")
        sys.stderr.flush()


def main(name, about, full, quick, scenario):
    """An endurance script: scenario(args, folder, progress) returns its counts, or raises Failure. Prints one line (or
    JSON) and exits with 0 or 1."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--build", type=pathlib.Path, default=REPO / "build", help="the build folder (default: build)")
    parser.add_argument("--rounds", type=int, help=f"how often (default {full or 'all'})")
    parser.add_argument("--quick", action="store_true", help=f"{quick} rounds")
    parser.add_argument("--seed", type=int, help="of what happens when (default: the clock's)")
    parser.add_argument("--json", action="store_true", help="the result as JSON, no progress")
    args = parser.parse_args()
    args.build = args.build.resolve()
    args.rounds = args.rounds or (quick if args.quick else full)
    args.seed = int(time.time()) if args.seed is None else args.seed
    os.environ["PATH"] = os.pathsep.join([str(args.build), os.environ["PATH"]])
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="batchd-soak-") as folder:
        folder = pathlib.Path(folder)
        try:
            result = {"name": name, "ok": True, **scenario(args, folder, Progress(name, args.rounds, args.json))}
        except Failure as e:
            log = folder / "batchd.log"
            result = {
                "name": name,
                "ok": False,
                "why": str(e),
                "log": log.read_text(errors="replace")[-4000:] if log.exists() else "",
            }
    result.update(seed=args.seed, seconds=round(time.monotonic() - began, 1))
    if args.json:
        print(json.dumps(result))
    else:
        counted = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in result.items() if k not in ("name", "ok", "log"))
        print(f"{name}: {'ok' if result['ok'] else 'FAILED'}: {counted}")
        if not result["ok"]:
            print(result["log"], file=sys.stderr)
            print(f"again with: {sys.argv[0]} --rounds {args.rounds} --seed {args.seed}", file=sys.stderr)
    sys.exit(not result["ok"])

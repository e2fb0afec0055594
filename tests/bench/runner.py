"""Starts the processes that a scenario needs (daemons, loaders in their own processes, the decoder alone) and ends
them."""

import json
import os
import pathlib
import subprocess
import sys
import time

import clock

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[1]
START_S = 30


class Absent(Exception):
    """A loader that cannot run here, and why."""


class Daemon:
    """A daemon for this scenario only."""

    def __init__(self, runner, name, config, build):
        folder = runner.scratch / f"daemon-{name}"
        folder.mkdir()
        self.socket, self.log = str(folder / "socket"), folder / "log"
        (folder / "batchd.yaml").write_text(f"workers: {runner.args.workers}\nindex_cache: {folder}/index\n{config}")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [
                    build / "batchd",
                    "--foreground",
                    "--socket",
                    self.socket,
                    "--config",
                    folder / "batchd.yaml",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_S
        while not os.path.exists(self.socket):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"batchd did not start:\n{self.log.read_text(errors='replace')}")
            time.sleep(0.02)

    @property
    def pid(self):
        return self.process.pid

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()


class Participant:
    """A loader in a process of its own (participant.py)."""

    def __init__(self, runner, name, options):
        self.log = runner.scratch / f"{name}-{len(runner.started)}.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, HERE / "participant.py", name, json.dumps(options)],
                env=runner.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.n_epochs = 0
        runner.started.append(self)
        hello = self.answer()
        if "absent" in hello:
            raise Absent(hello["absent"])
        self.version = hello["version"]

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise Absent(
                f"died: {(self.log.read_text(errors='replace').strip().splitlines() or ['without a word'])[-1]}"
            )
        return json.loads(line)

    def ask(self, epochs, skip):
        """Runs so many epochs; counts from the arrival of batch `skip`. {images, wall_s, cpu_s}."""
        self.process.stdin.write(json.dumps({"epochs": epochs, "first": self.n_epochs, "skip": skip}) + "\n")
        self.process.stdin.flush()
        self.n_epochs += epochs
        return self.answer()

    def stop(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Runner:
    def __init__(self, args, scratch):
        self.args, self.scratch = args, scratch
        self.started, self.versions, self.absent = [], {}, {}
        self.environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(REPO / "client" / "python"), str(HERE), str(REPO / "tests" / "demo")]),
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, [str(args.build), os.environ.get("LD_LIBRARY_PATH")])),
            "PATH": os.pathsep.join([str(args.build), os.environ["PATH"]]),
        }

    def sample_data(self):
        folder = self.scratch / "sample-data"
        subprocess.run(
            [self.args.build / "batchctl", "sample-data", folder, "--classes", "8", "--per-class", "50", "--quiet"],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        return folder

    def pictures(self):
        return sorted(str(p) for p in self.args.data.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))

    def daemon(self, name, config=""):
        daemon = Daemon(self, name, config, self.args.build)
        self.started.append(daemon)
        return daemon

    def daemon_before(self, name, config=""):
        """The daemon of the earlier build, or None."""
        if not self.args.before:
            return None
        daemon = Daemon(self, f"{name}-before", config, self.args.before)
        self.started.append(daemon)
        return daemon

    def participant(self, name, label=None, **options):
        """A loader that is ready, or None after noting why it is absent."""
        options = {
            "data": str(self.args.data),
            "batch_size": self.args.batch_size,
            "workers": self.args.workers,
            "scratch": str(self.scratch),
            **options,
        }
        if label is None:
            label = name
        if label in self.absent:
            return None
        try:
            participant = Participant(self, name, options)
            self.versions[name] = participant.version
            return participant
        except Absent as e:
            self.absent[label] = str(e)
            return None

    def batchd(self, daemon, **options):
        return self.participant(
            "batchd",
            label=f"batchd ({options.get('job', 'bench')})",
            **{"socket": daemon.socket, "daemon_pid": daemon.pid, "job": "bench", **options},
        )

    def run(self, *argv, **named):
        """The JSON output of a program."""
        done = subprocess.run(
            [str(a) for a in argv],
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            **({} if "input" in named else {"stdin": subprocess.DEVNULL}),
            **named,
        )
        return json.loads(done.stdout)

    def python(self, program, *argv):
        return self.run(sys.executable, HERE / program, *argv)

    def memory(self, daemon):
        return clock.resident_bytes(daemon.pid)

    def settle(self):
        """Ends everything that the scenario started."""
        for each in reversed(self.started):
            each.stop()
        self.started.clear()

    stop = settle

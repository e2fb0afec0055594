"""A daemon and trainers as processes of their own on the fake driver (tests/fake/cuda), and the fake driver's reports about
them. With BATCHD_GPU_TESTS=real on the real driver."""

import os
import pathlib
import signal
import subprocess

import numpy

from daemons import BUILD, Daemon

LENGTH = 4096
# The only threads of the daemon that may call CUDA.
ALLOWED = "batchd-gpu*"
# Calls that free a resource: if such a call fails, something is left over.
GIVES_BACK = {
    "cuMemFree",
    "cuMemFreeHost",
    "cuMemHostUnregister",
    "cuStreamDestroy",
    "cuEventDestroy",
    "cuDevicePrimaryCtxRelease",
    "cuIpcCloseMemHandle",
    "cuMemUnmap",
    "cuMemRelease",
    "cuMemAddressFree",
    "cuModuleUnload",
    "cuCtxPopCurrent",
}
REAL = os.environ.get("BATCHD_GPU_TESTS") == "real"


def make_rows(folder):
    """An array whose rows identify themselves; what trainer.c's --check rows expects."""
    x = numpy.arange(LENGTH, dtype=numpy.uint64)[:, None] * 2654435761 + numpy.arange(64, dtype=numpy.uint64)
    numpy.save(folder / "x.npy", x.astype(numpy.uint32).view(numpy.int32))
    numpy.save(folder / "y.npy", numpy.arange(LENGTH, dtype=numpy.int64))
    return f"npy:{folder}/x.npy,{folder}/y.npy"


class Place:
    """A folder with a daemon of its own on the fake driver, and the reports of its processes. Its trainers are
    tests/gpu/trainer.c."""

    def __init__(self, folder, daemon_env=None, trainer_env=None, args=(), build=BUILD):
        self.folder, self.build = folder, build
        folder.mkdir(parents=True, exist_ok=True)
        common = (
            {}
            if REAL
            else {
                "BATCHD_LIBCUDA": str(build / "libfakecuda.so"),
                "FAKECUDA_DIR": str(folder),
                "FAKECUDA_DELAY_US": "100",
                "FAKECUDA_QUIET": "1",
            }
        )
        self.daemon_env = (
            common | {"FAKECUDA_ALLOW_THREADS": ALLOWED, "FAKECUDA_REPORT": str(folder / "daemon")} | (daemon_env or {})
        )
        self.trainer_env = (
            common
            | {"FAKECUDA_REPORT": str(folder / "trainer"), "BATCHD_SOCKET": str(folder / "batchd.sock")}
            | (trainer_env or {})
        )
        self.args = args

    def __enter__(self):
        self.daemon = DaemonOnDouble(self.folder, self.daemon_env, self.args, self.build)
        return self

    def __exit__(self, kind, *_):
        if kind:
            self.daemon.kill()
        else:
            self.status = self.daemon.end()

    def start(self, *args, before=(), **env):
        return subprocess.Popen(
            [*before, str(self.build / "tests/gpu/trainer"), *map(str, args)],
            env=os.environ | self.trainer_env | env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def train(self, *args, before=(), **env):
        p = self.start(*args, before=before, **env)
        try:
            out, err = p.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            p.kill()
            out, err = p.communicate()
            raise AssertionError(f"the trainer hung: {out[-200:]}\n{err}\n{self.daemon.output()}") from None
        return p.returncode, out.strip().rpartition("\n")[2], err.strip()

    def reports(self, who):
        return [Report(path) for path in sorted(self.folder.glob(f"{who}.[0-9]*"))]

    def daemon_report(self):
        (report,) = self.reports("daemon")
        return report

    def assert_clean(self, n_ended=None):
        """On the fake driver: no process broke a rule or left anything behind, and the expected number of trainers came to
        their end."""
        if REAL:
            return
        daemon, trainers = self.daemon_report(), self.reports("trainer")
        assert daemon.ended and daemon.clean() and "pageable" not in daemon.counts, daemon.text
        assert all(r.clean() for r in trainers), [r.text for r in trainers if not r.clean()]
        assert n_ended is None or sum(r.ended for r in trainers) == n_ended


class DaemonOnDouble(Daemon):
    """The same with an environment of its own, and possibly another exit status than 0."""

    def __init__(self, folder, env, args, build):
        super().__init__(folder, args, env=os.environ | env, build=build)

    def start(self):
        self.begun_at = self.log.stat().st_size if self.log.exists() else 0
        super().start()

    def lost(self):
        """Whether this daemon, among those started here, has reported that its GPU is lost."""
        return b"gpu-lost" in self.log.read_bytes()[self.begun_at :]

    def end(self):
        if self.process.poll() is None and not self.lost():  # which ends it without a signal
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(300)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"batchd did not stop:\n{self.output()}") from None


class Report:
    """The fake driver's report about a process. ended: it came to its end, so leaks and counts are in the report."""

    def __init__(self, path):
        self.text = pathlib.Path(path).read_text()
        self.violations, self.leaks, self.counts, self.calls, self.ended = [], [], {}, {}, False
        for line in self.text.splitlines():
            kind, _, rest = line.partition(" ")
            if kind == "violation":
                self.violations.append(rest)
            elif kind == "leak":
                self.leaks.append(rest)
            elif kind in ("count", "call"):
                name, _, n = rest.rpartition(" ")
                (self.counts if kind == "count" else self.calls)[name] = int(n)
            elif kind == "end":
                self.ended = True

    def clean(self):
        return not self.violations and not self.leaks

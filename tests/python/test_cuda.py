"""Batches on a GPU, daemon and trainers as processes of their own, on the driver double (tests/fakecuda).

The trainers are tests/gpu/trainer.c: C programs that take batches in every way libbatchd offers, at random, and check every byte. The double reports whoever
breaks CUDA's rules, and what is left over at a process's end. With BATCHD_GPU_TESTS=real (`make check-gpu` on a machine with a GPU) the tests that need no double
run on the real driver.
"""
import concurrent.futures
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading

import numpy
import pytest

from conftest import BUILD, Daemon, REPO

LENGTH, BATCH, WORLD = 4096, 8, 4
TRAINER = BUILD / "tests" / "gpu" / "trainer"
DOUBLE = BUILD / "libfakecuda.so"
# The only threads of the daemon that may call CUDA.
ALLOWED = "batchd-gpu"
# What gives something back: if that is what fails, something is left over.
GIVES_BACK = {"cuMemFree", "cuMemFreeHost", "cuMemHostUnregister", "cuStreamDestroy", "cuEventDestroy", "cuDevicePrimaryCtxRelease",
              "cuIpcCloseMemHandle", "cuModuleUnload"}
STICKY = 719

REAL = os.environ.get("BATCHD_GPU_TESTS") == "real"
CUDA = (BUILD / ".cuda").read_text().strip() if (BUILD / ".cuda").exists() else "1"  # as the Makefile has it
pytestmark = [pytest.mark.skipif(not (TRAINER.exists() and DOUBLE.exists()), reason="needs `make tests`: the driver double and its trainer"),
              pytest.mark.skipif(CUDA == "0", reason="this build has no GPU support (CUDA=0)")]
on_double = pytest.mark.skipif(REAL, reason="only the double can be told to do this")
on_gpu = pytest.mark.skipif(not REAL, reason="needs a GPU: make check-gpu")


class Place:
    """A folder with a daemon of its own on the double, and what its processes report."""

    def __init__(self, folder, daemon_env=None, trainer_env=None, args=()):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        common = {} if REAL else {"BATCHD_LIBCUDA": str(DOUBLE), "FAKECUDA_DIR": str(folder), "FAKECUDA_DELAY_US": "100", "FAKECUDA_QUIET": "1"}
        self.daemon_env = common | {"FAKECUDA_ALLOW_THREADS": ALLOWED, "FAKECUDA_REPORT": str(folder / "daemon")} | (daemon_env or {})
        self.trainer_env = common | {"FAKECUDA_REPORT": str(folder / "trainer"), "BATCHD_SOCKET": str(folder / "batchd.sock")} | (trainer_env or {})
        self.args = args

    def __enter__(self):
        self.daemon = DaemonOnDouble(self.folder, self.daemon_env, self.args)
        return self

    def __exit__(self, kind, *_):
        if kind:
            self.daemon.kill()
        else:
            self.status = self.daemon.end()

    def start(self, *args, before=(), **env):
        return subprocess.Popen([*before, str(TRAINER), *map(str, args)], env=os.environ | self.trainer_env | env, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def train(self, *args, before=(), **env):
        p = self.start(*args, before=before, **env)
        try:
            out, err = p.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            p.kill()
            out, err = p.communicate()
            pytest.fail(f"the trainer hung: {out[-200:]}\n{err}\n{self.daemon.output()}")
        return p.returncode, out.strip().rpartition("\n")[2], err.strip()

    def reports(self, who):
        return [Report(path) for path in sorted(self.folder.glob(f"{who}.[0-9]*"))]

    def daemon_report(self):
        (report,) = self.reports("daemon")
        return report

    def assert_clean(self, n_ended=None):
        """On the double: nobody broke a rule, nobody left anything, and so many trainers came to their end."""
        if REAL:
            return
        daemon, trainers = self.daemon_report(), self.reports("trainer")
        assert daemon.ended and daemon.clean() and "pageable" not in daemon.counts, daemon.text
        assert all(r.clean() for r in trainers), [r.text for r in trainers if not r.clean()]
        assert n_ended is None or sum(r.ended for r in trainers) == n_ended


class DaemonOnDouble(Daemon):
    """The same with an environment of its own, and an end that may be other than 0."""

    def __init__(self, folder, env, args):
        super().__init__(folder, args, env=os.environ | env)

    def end(self):
        if self.process.poll() is None and "gpu-lost" not in self.output():  # which ends it by itself
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
            pytest.fail(f"batchd did not stop:\n{self.output()}")


class Report:
    """What the double wrote about a process. ended: it came to its end, so leaks and counts are there."""

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


@pytest.fixture(scope="module")
def rows(build, tmp_path_factory):
    """An array whose rows say which they are; what trainer.c's --check rows expects."""
    folder = tmp_path_factory.mktemp("rows")
    x = numpy.arange(LENGTH, dtype=numpy.uint64)[:, None] * 2654435761 + numpy.arange(64, dtype=numpy.uint64)
    numpy.save(folder / "x.npy", x.astype(numpy.uint32).view(numpy.int32))
    numpy.save(folder / "y.npy", numpy.arange(LENGTH, dtype=numpy.int64))
    return f"npy:{folder}/x.npy,{folder}/y.npy"


# ---- many batches ----


class Rank(threading.Thread):
    """One rank's trainers: each is killed after a while, at any moment, and the next goes on behind the last batch that was checked."""

    def __init__(self, place, rows, rank, n_epochs, n_kills):
        super().__init__()
        self.place, self.rows, self.rank, self.n_epochs = place, rows, rank, n_epochs
        self.random = random.Random(rank)
        steps = LENGTH // (BATCH * WORLD)
        self.kill_at = sorted(self.random.sample(range(20, n_epochs * steps - 20), n_kills))
        self.steps, self.n_done, self.n_killed, self.failure = steps, 0, 0, None

    def run(self):
        try:
            while self.n_done < self.n_epochs * self.steps and not self.failure:
                self.one()
        except Exception as e:  # in the main thread's assert
            self.failure = repr(e)

    def one(self):
        at = self.n_done
        p = self.place.start("--dataset", self.rows, "--job", "proof", "--rank", self.rank, "--world", WORLD, "--batch", BATCH, "--epochs", self.n_epochs,
                             "--from", f"{at // self.steps},{at % self.steps}", "--seed", self.rank * 100 + self.n_killed, "--delay-us", 50, "--slots", 3,
                             FAKECUDA_DELAY_US="250", FAKECUDA_SEED=str(self.rank * 100 + self.n_killed))
        killed = False
        for line in p.stdout:
            words = line.split()
            if words[0] != "done":
                continue
            assert (int(words[1]), int(words[2])) == divmod(self.n_done, self.steps), f"rank {self.rank}: {line} is not batch {self.n_done}"
            self.n_done += 1
            if not killed and self.kill_at and self.n_done >= self.kill_at[0]:
                p.kill()  # what it said until then still counts
                killed = True
        error = p.stderr.read()
        p.wait()
        p.stdout.close(), p.stderr.close()
        if killed:
            self.kill_at.pop(0)
            self.n_killed += 1
        elif p.returncode:
            self.failure = f"rank {self.rank} ended with {p.returncode} after {self.n_done} batches: {error}"


def test_ten_thousand_batches_to_four_trainers_that_are_killed(rows, tmp_path):
    """Every byte right, no slot reused early (that would be wrong bytes), nothing left over, no CUDA call from a wrong thread."""
    with Place(tmp_path) as place:
        ranks = [Rank(place, rows, rank, n_epochs=20, n_kills=4) for rank in range(WORLD)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        assert not any(rank.failure for rank in ranks), [rank.failure for rank in ranks] + [place.daemon.output()]
    assert place.status == 0, place.daemon.output()
    assert sum(rank.n_done for rank in ranks) >= 10000 and sum(rank.n_killed for rank in ranks) == 16
    place.assert_clean(WORLD)


def test_four_trainers_share_one_copy(rows, tmp_path, batchctl, monkeypatch):
    with Place(tmp_path) as place:
        args = ["--dataset", rows, "--job", "shared", "--mode", "share", "--world", WORLD, "--batch", BATCH, "--delay-us", 100]
        trainers = [place.start(*args, "--rank", i, "--seed", i) for i in range(WORLD)]
        for t in trainers:
            out, err = t.communicate(timeout=60)
            assert t.returncode == 0 and out.endswith(f"end {LENGTH // BATCH} batches by IPC\n"), err
        monkeypatch.setenv("BATCHD_SOCKET", place.trainer_env["BATCHD_SOCKET"])
        n_copies = sum(c["copies"] for gpu in json.loads(batchctl("status", "--json").stdout)["gpus"] for c in gpu["copies"])
    n = LENGTH // BATCH
    assert place.status == 0 and n <= n_copies <= n + 64  # the next epoch's first batches are made ahead
    place.assert_clean(WORLD)


@pytest.mark.skipif(CUDA != "1", reason="this build has no finishing kernel (no nvcc)")
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
@pytest.mark.parametrize("layout", [[], ["--nchw"]], ids=["nhwc", "nchw"])
def test_images_are_the_same_as_on_the_cpu(samples, tmp_path, dtype, layout):
    with Place(tmp_path) as place:
        code, last, err = place.train("--dataset", f"imagefolder:{samples}", "--job", "images", "--rank", 0, "--world", 1, "--batch", 8, "--dtype", dtype, *layout,
                                      "--transform", "train224", "--check", "twin", "--epochs", 2, "--most", 16)
        assert (code, last) == (0, "end 16 batches by IPC"), err
    assert place.status == 0
    place.assert_clean(1)


# ---- things that stand in the way ----

# A daemon that has lost its GPU does not come back in these tests.
SHORT = ["--job", "short", "--rank", 0, "--world", 1, "--batch", BATCH, "--most", 24, "--reconnect-ms", 500]


@on_gpu
def test_in_another_pid_namespace_the_trainer_copies(rows, tmp_path):
    if os.geteuid():
        pytest.skip("making a PID namespace takes root")
    with Place(tmp_path) as place:
        code, last, err = place.train("--dataset", rows, *SHORT, before=["unshare", "--pid", "--fork"])
        assert code == 0 and last.startswith("end 24 batches by copy: "), (last, err, place.daemon.output())


@on_double
@pytest.mark.parametrize("daemon_env, trainer_env", [
    ({"FAKECUDA_PERSONALITY": "no-ipc"}, {"FAKECUDA_PERSONALITY": "no-ipc"}),
    ({"FAKECUDA_PERSONALITY": "mig"}, {"FAKECUDA_PERSONALITY": "mig"}),
    ({"FAKECUDA_PIDNS": "17"}, {}),
    ({"FAKECUDA_EUID": "4711"}, {}),
    ({"FAKECUDA_PERSONALITY": "no-device"}, {}),
    ({"BATCHD_LIBCUDA": "/nonexistent/libcuda.so"}, {}),
    ({"BATCHD_LIBCUDA": str(BUILD / "libfakecuda-old.so")}, {}),
    ({"FAKECUDA_PERSONALITY": "exclusive"}, {"FAKECUDA_PERSONALITY": "exclusive"}),
    ({"FAKECUDA_MEMORY_MB": "501"}, {"FAKECUDA_MEMORY_MB": "4000", "FAKECUDA_DIR": ""}),
], ids=["no-ipc", "mig", "pid-namespace", "user", "no-device", "no-driver", "old-driver", "exclusive", "no-memory"])
def test_without_ipc_the_trainer_copies_and_is_told_why(rows, tmp_path, daemon_env, trainer_env):
    with Place(tmp_path, daemon_env, trainer_env) as place:
        code, last, err = place.train("--dataset", rows, *SHORT)
        assert code == 0 and last.startswith("end 24 batches by copy: "), (last, err, place.daemon.output())
        assert len(last) > len("end 24 batches by copy: ") + 10, "no reason given"
    assert place.status == 0, place.daemon.output()
    for r in place.reports("daemon") + place.reports("trainer"):
        assert r.clean(), r.text
    assert all("pageable" not in r.counts for r in place.reports("trainer"))


def some(n):
    """Which of n calls to let fail: all of a few, the first, one in the middle and the last of many."""
    return range(1, n + 1) if n <= 3 else sorted({1, 2, n // 2})


def sweep(rows, folder, who, calls, code):
    """A daemon and a trainer for each call of `who` that may fail; yields what went wrong as text."""
    cases = [(name, n) for name, total in calls.items() for n in some(total)]
    folders = iter(range(len(cases)))  # short names: a socket lies there

    def one(case):
        name, n = case
        rule = {"FAKECUDA_FAIL": f"{name}:{n}={code}"}
        sub = folder / str(next(folders))
        with Place(sub, rule if who == "daemon" else None, rule if who == "trainer" else None) as place:
            status, last, err = place.train("--dataset", rows, *SHORT)
            lost = "gpu-lost" in place.daemon.output()
            again, last_again, err_again = (0, "end 24", "") if lost else place.train("--dataset", rows, *SHORT, FAKECUDA_FAIL="")
        text, log = f"{last}\n{err}", place.daemon.output()
        at_end = code == STICKY and who == "daemon" and "gpu-lost" in log  # perhaps only when it let go of the GPU
        daemons, trainers = place.reports("daemon"), place.reports("trainer")
        wrong = []
        if status not in (0, 2, 77):
            wrong.append(f"exit status {status}")
        if status == 2 and not any(said in text for said in ("CUDA", "GPU", "trainer: cu", "is stopping")):
            wrong.append("no clear message")
        if status == 2 and who == "daemon" and not lost and "open again" not in text:
            wrong.append("the daemon's trouble ended the trainer")
        if again or not last_again.startswith("end 24"):
            wrong.append(f"the next trainer: {last_again} {err_again}")
        if place.status != (75 if at_end else 0):
            wrong.append(f"the daemon's exit status {place.status}")
        if name not in GIVES_BACK:
            wrong += [f"violations: {r.violations}" for r in daemons + trainers if r.violations]
            if code != STICKY:
                wrong += [f"left over in the daemon: {r.leaks}" for r in daemons if r.leaks]
            if code != STICKY and status == 0:
                wrong += [f"left over in the trainer: {r.leaks}" for r in trainers if r.leaks]
        return f"{who}: {name}, call {n}, error {code}: {'; '.join(wrong)}\n  trainer said: {text}\n  daemon said: {log}" if wrong else None

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        return [w for w in pool.map(one, cases) if w], len(cases)


@pytest.fixture(scope="module")
def usual_calls(rows, tmp_path_factory):
    """How often a short run calls what: {"daemon": {"cuMemAlloc": 1, ...}, "trainer": ...}."""
    with Place(tmp_path_factory.mktemp("usual")) as place:
        assert place.train("--dataset", rows, *SHORT)[0] == 0
    (trainer,) = place.reports("trainer")
    return {"daemon": place.daemon_report().calls, "trainer": trainer.calls}


@on_double
@pytest.mark.parametrize("who", ["daemon", "trainer"])
@pytest.mark.parametrize("code", [2, STICKY])
def test_any_call_may_fail(rows, tmp_path, usual_calls, who, code):
    """Each call's failure, once as "out of memory" and once for good, ends in words or goes unnoticed, and in a clean state."""
    wrong, n = sweep(rows, tmp_path, who, usual_calls[who], code)
    assert n > 20 and not wrong, f"{len(wrong)} of {n}:\n" + "\n".join(wrong[:12])


# ---- the double against itself ----


@on_double
def test_conformance_on_the_double(build, tmp_path):
    """What the double does is written down; tests/gpu/check compares the same lines with a real driver's."""
    env = os.environ | {"BATCHD_LIBCUDA": str(DOUBLE), "FAKECUDA_QUIET": "1", "FAKECUDA_DIR": str(tmp_path)}
    out = subprocess.run([str(build / "tests" / "gpu" / "conformance")], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    (tmp_path / "double").write_text(out.stdout)
    said = subprocess.run([str(REPO / "tests" / "gpu" / "compare"), str(REPO / "tests" / "gpu" / "conformance.expected"), str(tmp_path / "double")],
                          capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + out.stderr


@on_double
def test_measurements_run(build, tmp_path):
    """What `make bench-gpu` does on a GPU runs through on the double and finds all its numbers; they mean nothing."""
    p = subprocess.run([sys.executable, str(REPO / "tests" / "gpu" / "bench.py"), "--build", str(build), "--gpu", "driver double", "--double",
                        "--out", str(tmp_path), "--without", "loaders"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180)
    results = (tmp_path / "RESULTS.md").read_text()
    assert p.returncode == 0, p.stdout + p.stderr
    for what in ("host to device, daemon's GPU thread", "slows down while the daemon streams", "4 trainers get each batch from one copy", "trainer can launch",
                 "device to device, bytes read and written", "pageable copies | 0 | 0 copies | yes", "memory used on the GPU for batches"):
        assert what in results, results
    failed = [line for line in results.partition("## What did not work")[2].splitlines() if line.startswith("- ") and "DataLoader" not in line]
    assert not failed, failed
    assert {"gpu", "claims", "rows", "seconds"} <= set(json.loads((tmp_path / "results.json").read_text()))
    assert "</svg>" in (tmp_path / "results.svg").read_text()

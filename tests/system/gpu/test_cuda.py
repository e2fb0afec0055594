"""Batches on a GPU, daemon and trainers as processes of their own, on the fake driver (tests/fake/cuda).

The trainers are tests/gpu/trainer.c: C programs that take batches in every way that libbatchd offers, at random, and
check every byte. The fake driver reports every process that breaks CUDA's rules, and leftovers at a process's end. With
BATCHD_GPU_TESTS=real (`make check-gpu` on a machine with a GPU) the tests that need no fake run on the real
driver.
"""

import json
import os
import random
import subprocess
import threading

import pytest

from conftest import BUILD, REPO
from fake_driver import LENGTH, REAL, Place, make_rows

BATCH, WORLD = 8, 4
TRAINER = BUILD / "tests" / "gpu" / "trainer"
DOUBLE = BUILD / "libfakecuda.so"
CUDA = (BUILD / ".cuda").read_text().strip() if (BUILD / ".cuda").exists() else "1"  # as the Makefile decides it
pytestmark = [
    pytest.mark.skipif(
        not (TRAINER.exists() and DOUBLE.exists()), reason="needs `make tests`: the fake driver and its trainer"
    ),
    pytest.mark.skipif(CUDA == "0", reason="this build has no GPU support (CUDA=0)"),
]
on_fake = pytest.mark.skipif(REAL, reason="only the fake driver can be told to do this")
on_gpu = pytest.mark.skipif(not REAL, reason="needs a GPU: make check-gpu")


@pytest.fixture(scope="module")
def rows(build, tmp_path_factory):
    return make_rows(tmp_path_factory.mktemp("rows"))


# ---- many batches ----


class Rank(threading.Thread):
    """One rank's trainers: each is killed after a while, at any moment, and the next continues after the last checked
    batch."""

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
        p = self.place.start(
            "--dataset",
            self.rows,
            "--job",
            "proof",
            "--rank",
            self.rank,
            "--world",
            WORLD,
            "--batch",
            BATCH,
            "--epochs",
            self.n_epochs,
            "--from",
            f"{at // self.steps},{at % self.steps}",
            "--seed",
            self.rank * 100 + self.n_killed,
            "--delay-us",
            50,
            "--slots",
            3,
            FAKECUDA_DELAY_US="250",
            FAKECUDA_SEED=str(self.rank * 100 + self.n_killed),
        )
        killed = False
        for line in p.stdout:
            words = line.split()
            if words[0] != "done":
                continue
            assert (int(words[1]), int(words[2])) == divmod(
                self.n_done, self.steps
            ), f"rank {self.rank}: {line} is not batch {self.n_done}"
            self.n_done += 1
            if not killed and self.kill_at and self.n_done >= self.kill_at[0]:
                p.kill()  # its output until then still counts
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
    """Every byte right, no slot reused early (that would give wrong bytes), nothing left over, no CUDA call from a
    wrong thread."""
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
        args = [
            "--dataset",
            rows,
            "--job",
            "shared",
            "--mode",
            "share",
            "--world",
            WORLD,
            "--batch",
            BATCH,
            "--delay-us",
            100,
        ]
        trainers = [place.start(*args, "--rank", i, "--seed", i) for i in range(WORLD)]
        for t in trainers:
            out, err = t.communicate(timeout=300)
            assert t.returncode == 0 and out.endswith(f"end {LENGTH // BATCH} batches by IPC\n"), err
        monkeypatch.setenv("BATCHD_SOCKET", place.trainer_env["BATCHD_SOCKET"])
        n_copies = sum(
            c["copies"] for gpu in json.loads(batchctl("status", "--json").stdout)["gpus"] for c in gpu["copies"]
        )
    n = LENGTH // BATCH
    assert place.status == 0 and n <= n_copies <= n + 64  # the next epoch's first batches are made ahead
    place.assert_clean(WORLD)


@pytest.mark.skipif(CUDA != "1", reason="this build has no finishing kernel (no nvcc)")
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
@pytest.mark.parametrize("layout", [[], ["--nchw"]], ids=["nhwc", "nchw"])
def test_images_are_the_same_as_on_the_cpu(samples, tmp_path, dtype, layout):
    with Place(tmp_path) as place:
        code, last, err = place.train(
            "--dataset",
            f"imagefolder:{samples}",
            "--job",
            "images",
            "--rank",
            0,
            "--world",
            1,
            "--batch",
            8,
            "--dtype",
            dtype,
            *layout,
            "--transform",
            "train224",
            "--check",
            "twin",
            "--epochs",
            2,
            "--most",
            16,
        )
        assert (code, last) == (0, "end 16 batches by IPC"), err
    assert place.status == 0
    place.assert_clean(1)


# ---- obstacles ----

# A daemon that has lost its GPU does not come back in these tests.
SHORT = ["--job", "short", "--rank", 0, "--world", 1, "--batch", BATCH, "--most", 24, "--reconnect-ms", 500]


@on_gpu
def test_in_another_pid_namespace_the_memory_comes_as_a_descriptor(rows, tmp_path):
    if os.geteuid():
        pytest.skip("making a PID namespace takes root")
    with Place(tmp_path) as place:
        code, last, err = place.train("--dataset", rows, *SHORT, before=["unshare", "--pid", "--fork"])
        assert (code, last) == (0, "end 24 batches by VMM"), (last, err, place.daemon.output())


@on_fake
@pytest.mark.parametrize(
    "daemon_env, trainer_env",
    [
        ({"FAKECUDA_PERSONALITY": "no-ipc"}, {"FAKECUDA_PERSONALITY": "no-ipc"}),
        ({"FAKECUDA_MIG": "a"}, {"FAKECUDA_MIG": "b"}),
        ({"FAKECUDA_PIDNS": "17", "FAKECUDA_PERSONALITY": "no-vmm"}, {}),
        ({"FAKECUDA_EUID": "4711", "FAKECUDA_PERSONALITY": "no-vmm"}, {}),
        ({"FAKECUDA_PERSONALITY": "no-device"}, {}),
        ({"BATCHD_LIBCUDA": "/nonexistent/libcuda.so"}, {}),
        ({"BATCHD_LIBCUDA": str(BUILD / "libfakecuda-old.so")}, {}),
        ({"FAKECUDA_PERSONALITY": "exclusive"}, {"FAKECUDA_PERSONALITY": "exclusive"}),
        ({"FAKECUDA_MEMORY_MB": "501"}, {"FAKECUDA_MEMORY_MB": "4000", "FAKECUDA_DIR": ""}),
    ],
    ids=["no-ipc", "mig", "pid-namespace", "user", "no-device", "no-driver", "old-driver", "exclusive", "no-memory"],
)
def test_without_ipc_the_trainer_copies_and_is_told_why(rows, tmp_path, daemon_env, trainer_env):
    with Place(tmp_path, daemon_env, trainer_env) as place:
        code, last, err = place.train("--dataset", rows, *SHORT)
        assert code == 0 and last.startswith("end 24 batches by copy: "), (last, err, place.daemon.output())
        assert len(last) > len("end 24 batches by copy: ") + 10, "no reason given"
    assert place.status == 0, place.daemon.output()
    for r in place.reports("daemon") + place.reports("trainer"):
        assert r.clean(), r.text
    assert all("pageable" not in r.counts for r in place.reports("trainer"))


@on_fake
def test_within_one_instance_of_a_divided_gpu_memory_is_shared(rows, tmp_path):
    """MIG is not refused by its name: the driver decides."""
    with Place(tmp_path, {"FAKECUDA_MIG": "a"}, {"FAKECUDA_MIG": "a"}) as place:
        code, last, err = place.train("--dataset", rows, *SHORT)
        assert code == 0 and last.startswith("end 24 batches by IPC"), (last, err, place.daemon.output())


# ---- the fake driver against itself ----


@on_fake
def test_conformance_on_the_fake_driver(build, tmp_path):
    """The fake driver's behaviour is recorded; tests/gpu/run compares the same lines with those of a real driver."""
    env = os.environ | {"BATCHD_LIBCUDA": str(DOUBLE), "FAKECUDA_QUIET": "1", "FAKECUDA_DIR": str(tmp_path)}
    out = subprocess.run(
        [str(build / "tests" / "gpu" / "conformance")],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    (tmp_path / "fake").write_text(out.stdout)
    said = subprocess.run(
        [
            str(REPO / "tests" / "gpu" / "compare"),
            str(REPO / "tests" / "gpu" / "conformance.expected"),
            str(tmp_path / "fake"),
        ],
        capture_output=True,
        text=True,
    )
    assert said.returncode == 0, said.stdout + out.stderr

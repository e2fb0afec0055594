"""Batches on a GPU with real processes, on the fake driver: the daemon, trainers that compare every byte, kills in
the middle, failing GPUs.

The fake driver reports at each process's end its violations and leaks (tests/fake/cuda/README.md)."""

import itertools
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import time

import batchd
import pytest
from conftest import BUILD
from daemons import until

TRAINER = BUILD / "tests" / "tools" / "gpu-trainer"
DATA = "random:length=4000,shape=3x32x32,dtype=uint8"


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """The fake driver for every process of the test; in the daemon only its GPU thread may call it. Afterwards every process
    that ended without a signal has a clean report."""
    if not TRAINER.exists() or not (BUILD / "libfakecuda.so").exists():
        pytest.skip("make tests builds gpu-trainer and libfakecuda.so")
    monkeypatch.setenv("BATCHD_LIBCUDA", str(BUILD / "libfakecuda.so"))
    monkeypatch.setenv("FAKECUDA_REPORT", str(tmp_path / "report"))
    monkeypatch.setenv("FAKECUDA_FORBID_THREADS", "")
    (tmp_path / "gpus").mkdir()
    monkeypatch.setenv("FAKECUDA_DIR", str(tmp_path / "gpus"))
    return Reports(tmp_path)


class Reports:
    def __init__(self, folder):
        self.folder = folder

    def of(self, pid):
        path = self.folder / f"report.{pid}"
        return path.read_text() if path.exists() else ""

    def assert_clean(self, pid):
        text = self.of(pid)
        assert "end 0 violations, 0 leaks" in text, text

    def violations(self):
        return [
            line
            for path in self.folder.glob("report.*")
            for line in path.read_text().splitlines()
            if line.startswith("violation")
        ]


@pytest.fixture
def gpu_daemon(fake, make_daemon, monkeypatch):
    def make(*args, env=None, **options):
        with monkeypatch.context() as m:
            m.setenv("FAKECUDA_ALLOW_THREADS", "batchd-gpu*")
            for name, value in (env or {}).items():
                m.setenv(name, value)
            return make_daemon("--linger", "0s", *args, **options)

    return make


def start(*args, data=DATA, env=None, stdin=subprocess.DEVNULL):
    return subprocess.Popen(
        [str(TRAINER), data, *map(str, args)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **(env or {})},
    )


def finish(trainer, exit_code=0):
    output = trainer.stdout.read()  # not communicate(): what readline() has read ahead would be lost
    assert trainer.wait(300) == exit_code, output
    return output.splitlines()


def status(batchctl):
    return json.loads(batchctl("status", "--json").stdout)


def test_a_job_of_four_gets_every_byte_by_dma(gpu_daemon, fake, batchctl):
    """Four ranks on one GPU; every copy from pinned memory, each trainer's slab in place, and nothing left after they
    leave."""
    daemon = gpu_daemon("--gpu-memory", "64MiB")
    trainers = [
        start(150, "--job", "four", "--rank", rank, "--world", 4, "--hold-us", 500, "--seed", rank) for rank in range(4)
    ]
    until("a trainer has attached", lambda: status(batchctl)["gpus"])
    gpu = status(batchctl)["gpus"][0]
    assert (
        gpu["name"].startswith("Fake GPU")
        and re.fullmatch("GPU-[0-9a-f-]{36}", gpu["uuid"])
        and gpu["state"] == "in use"
    )
    for trainer in trainers:
        assert finish(trainer)[-1] == "150 batches, ipc, "
        fake.assert_clean(trainer.pid)
    until("slabs are freed", lambda: status(batchctl)["gpus"][0]["slab_bytes"] == 0)
    gpu = status(batchctl)["gpus"][0]
    assert gpu["pageable_copies"] == 0 and gpu["errors"] == 0 and gpu["pinned_bytes"] == 0 and not gpu["context"]
    assert sum(c["copies"] for c in gpu["copies"]) >= 600
    daemon.stop()
    fake.assert_clean(daemon.pid)


def test_batches_lie_near_the_gpu(gpu_daemon, batchctl):
    """The daemon asks the kernel for memory of the GPU's own NUMA node before it pins any."""
    daemon = gpu_daemon(env={"FAKECUDA_NUMA": "0"})
    trainer = start(1000000, "--job", "near", "--hold-us", 500)
    try:
        until("its batches are pinned", lambda: any(gpu["pinned_bytes"] for gpu in status(batchctl)["gpus"]))
        gpu = status(batchctl)["gpus"][0]
        assert gpu["numa_node"] == 0
        maps = pathlib.Path(f"/proc/{daemon.pid}/numa_maps")
        if gpu["numa_error"] or not maps.exists():
            pytest.skip(f"no NUMA policies here: {gpu['numa_error']}")
        slabs = [line.split()[1] for line in maps.read_text().splitlines() if "memfd:batchd-slab" in line]
        assert slabs and all(policy.startswith("prefer") and policy.endswith(":0") for policy in slabs), slabs
    finally:
        trainer.kill()
        trainer.communicate()


def test_trainers_that_share_get_each_batch_from_one_copy(gpu_daemon, fake, batchctl):
    """Three trainers of one share job on one GPU: as many copies as batches, not three times as many."""
    daemon = gpu_daemon()
    trainers = [
        start(100, "--job", "shared", "--share", "--rank", rank, "--world", 3, "--batch", 40, "--hold-us", 300)
        for rank in range(3)
    ]
    for trainer in trainers:
        assert finish(trainer)[-1] == "100 batches, ipc, "
    gpu = status(batchctl)["gpus"][0]
    assert 100 <= sum(c["copies"] for c in gpu["copies"]) <= 100 + 32  # those made ahead
    daemon.stop()
    fake.assert_clean(daemon.pid)
    assert not fake.violations()


@pytest.mark.parametrize("full", [0, 1], ids=["there is memory", "there is none"])
def test_a_gpu_trainer_waits_for_slots_that_are_being_made(gpu_daemon, fake, full):
    """The first trainer of the job, without a GPU, has 4 slots, and 12 more are being made, slowly; the second has all
    slots on its GPU, or as many as there are."""
    gpu_daemon(env={"FAULTS": f"populate=1500,full={full}", "LD_PRELOAD": str(BUILD / "tests" / "faultinject.so")})
    with batchd.DataLoader(
        DATA,
        batch_size=400,
        job="half",
        mode="share",
        rank=0,
        world_size=2,
        dtype="uint8",
        layout="NHWC",
        autostart=False,
        timeout=300,
    ) as cpu:
        trainer = start(20, "--job", "half", "--share", "--rank", 1, "--world", 2, "--batch", 400)
        for epoch in range(2):  # 10 batches each; the group is in lockstep
            assert sum(1 for _ in itertools.islice(cpu, 10)) == 10
        assert finish(trainer)[-1] == "20 batches, ipc, "
    assert not fake.violations()


@pytest.mark.parametrize("stays", [True, False], ids=["it stays", "it has gone"])
def test_a_group_that_was_begun_without_a_gpu(gpu_daemon, fake, batchctl, stays):
    """The job's memory grows with its trainers until one wants its batches on a GPU: then it gets its final size at
    once, and later trainers get theirs there as well, up to a reported number."""
    daemon = gpu_daemon("--linger", "60s")
    options = dict(batch_size=16, job="mixed", mode="share", dtype="uint8", layout="NHWC", autostart=False, timeout=30)
    cpu = batchd.DataLoader(DATA, **options)
    batches = iter(cpu)
    before = [next(batches)[0].clone() for _ in range(3)]
    if not stays:
        cpu.close()
    trainers = [start(100000, "--job", "mixed", "--share", "--hold-us", 500)]
    assert trainers[0].stdout.readline() == "attached\n"
    if stays:
        before += [next(batches)[0].clone() for _ in range(40)]
    trainers += [start(100000, "--job", "mixed", "--share", "--hold-us", 500) for _ in range(6)]
    for trainer in trainers[1:]:
        assert trainer.stdout.readline() == "attached\n"
    if stays:
        output = finish(start(5, "--job", "mixed", "--share"), exit_code=3)
        assert (
            "share group has a trainer with its batches on a GPU" in output[-1] and "no more than the 8" in output[-1]
        ), output
    for trainer in trainers:
        trainer.kill()
        trainer.communicate()
    while len(status(batchctl)["sessions"]) > stays:
        time.sleep(0.05)
    assert finish(start(60, "--job", "mixed", "--share"))[-1] == "60 batches, ipc, "
    assert sum(c["copies"] for c in status(batchctl)["gpus"][0]["copies"]) >= 60
    cpu.close()
    with batchd.DataLoader(DATA, **dict(options, job="alone")) as alone:
        for mine, theirs in zip(before, alone):
            assert (mine == theirs[0]).all()
    daemon.stop()
    assert not fake.violations()


def test_killed_trainers_leave_nothing_behind(gpu_daemon, fake, batchctl):
    """kill -9 at any moment, with copies and leases in progress: the others' bytes stay right, and the daemon's memory
    on the GPU is freed only after the process has ended."""
    rng = random.Random(1)
    daemon = gpu_daemon("--gpu-memory", "256MiB")
    steady = start(600, "--job", "steady", "--hold-us", 2000)
    for i in range(12):
        victim = start(100000, "--job", f"victim{i % 3}", "--hold-us", 1000, "--seed", i)
        assert victim.stdout.readline() == "attached\n"
        time.sleep(rng.random() * 0.1)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        victim.stdout.close()
    assert finish(steady)[-1] == "600 batches, ipc, "
    until("slabs are freed", lambda: status(batchctl)["gpus"][0]["slab_bytes"] == 0)
    assert not status(batchctl)["sessions"]
    daemon.stop()
    fake.assert_clean(daemon.pid)
    assert not fake.violations()


def test_a_stopped_trainer_keeps_its_memory_on_the_gpu(gpu_daemon, fake, batchctl):
    """It hangs up without Close while it lives (the end of the job makes the daemon shut down its socket): memory that
    it has open is not freed."""
    daemon = gpu_daemon()
    trainer = start(100000, "--job", "one", "--hold-us", 1000)
    assert trainer.stdout.readline() == "attached\n"
    trainer.send_signal(signal.SIGSTOP)
    heir = start(50, "--job", "one")  # takes the rank; the stopped one is fenced
    assert finish(heir)[-1].startswith("50 batches, ipc")
    assert status(batchctl)["gpus"][0]["slabs"] >= 1
    trainer.send_signal(signal.SIGCONT)
    trainer.communicate(timeout=300)
    until("slabs are freed", lambda: status(batchctl)["gpus"][0]["slabs"] == 0)
    daemon.stop()
    assert not fake.violations()


@pytest.mark.parametrize(
    "env, args, says",
    [
        ({"BATCHD_LIBCUDA": "/nowhere/libcuda.so.1"}, [], "no NVIDIA driver"),
        ({"FAKECUDA_PERSONALITY": "no-device"}, [], "CUDA_ERROR_NO_DEVICE"),
        ({"FAKECUDA_GPUS": "2", "CUDA_VISIBLE_DEVICES": "1"}, [], "sees no GPU-"),
        ({"FAKECUDA_PERSONALITY": "no-ipc"}, [], "cannot be shared"),
        ({"FAKECUDA_VERSION": "12040", "FAKECUDA_PERSONALITY": "no-vmm"}, [], "version 12.4"),
        ({}, ["--gpu-memory", "off"], "gpu_memory is off"),
        ({}, ["--gpu-memory", "2MiB"], "no room on Fake GPU"),
        (
            {"FAKECUDA_FAIL": "cuDeviceGetUuid:*=2"},
            [],
            "cannot look at its GPUs: CUDA_ERROR_OUT_OF_MEMORY in cuDeviceGetUuid",
        ),
        ({"FAKECUDA_FAIL": "cuDriverGetVersion:*=987"}, [], "CUDA error 987 in cuDriverGetVersion"),
    ],
)
def test_without_ipc_the_trainer_is_told_and_copies_itself(gpu_daemon, fake, batchctl, env, args, says):
    """Whatever the daemon lacks: the same bytes, the reason once for the trainer, and in the status."""
    daemon = gpu_daemon(*args, env=env)
    trainer = start(30, "--batch", 400)
    assert trainer.stdout.readline() == "attached\n"
    text = batchctl("status").stdout
    last = finish(trainer)[-1]
    assert last.startswith("30 batches, copy, ") and says in last, last
    assert says in text or "no trainer is connected" in text, text
    fake.assert_clean(trainer.pid)
    daemon.stop()
    assert not fake.violations()


@pytest.mark.parametrize("share", [[], ["--share"]], ids=["shard", "share"])
def test_nothing_is_copied_for_a_trainer_that_cannot_open_it(gpu_daemon, fake, batchctl, share):
    """The daemon has no problem, but the trainer's CUDA refuses the handle: it copies by itself, and the daemon, which
    is told, does not."""
    daemon = gpu_daemon()
    trainer = start(30, "--batch", 400, *share, env={"FAKECUDA_PERSONALITY": "no-ipc"})
    assert trainer.stdout.readline() == "attached\n"
    until(
        "it has begun",
        lambda: "on the trainer's side: CUDA IPC does not work here" in batchctl("status").stdout
        or trainer.poll() is not None,
    )
    assert finish(trainer)[-1].startswith(
        "30 batches, copy, CUDA IPC does not work here: cuIpcOpenMemHandle says CUDA_ERROR_NOT_SUPPORTED; "
    )
    assert "on the trainer's side: CUDA IPC does not work here" in daemon.output()
    assert sum(c["copies"] for c in status(batchctl)["gpus"][0]["copies"]) == 0
    fake.assert_clean(trainer.pid)
    daemon.stop()
    fake.assert_clean(daemon.pid)


def test_a_trainer_that_exits_without_closing_is_in_no_call(gpu_daemon, fake):
    """Its thread is copying the next batch when the process ends, and the driver is dismantled."""
    gpu_daemon()
    env = {"FAKECUDA_PERSONALITY": "no-ipc", "FAKECUDA_LATENCY_US": "cuMemcpyHtoDAsync=100000"}
    trainer = start(3, "--leave", env=env)
    assert finish(trainer)[-1].startswith("3 batches, copy, ")
    assert fake.of(trainer.pid) and not fake.violations()


def test_a_trainer_with_another_driver_gets_a_descriptor(gpu_daemon, fake, batchctl):
    """A container's libcuda may be newer than the host's. A descriptor is the kernel driver's; CUDA IPC is not tried,
    neither by the first trainer, for which the daemon starts its driver, nor by the next."""
    daemon = gpu_daemon(env={"FAKECUDA_VERSION": "12040"})
    for job in "ab":
        trainer = start(20, "--job", job)
        assert finish(trainer)[-1] == "20 batches, vmm-fd, "
        assert "call cuIpcOpenMemHandle" not in fake.of(trainer.pid)
    daemon.stop()
    assert not fake.violations()


def test_memory_that_its_trainer_cannot_open_makes_room(gpu_daemon, fake, batchctl):
    """The GPU's budget holds one slab. Its only trainer cannot open that by CUDA IPC, and comes again for a descriptor,
    or copies by itself: the daemon keeps no slab for nobody."""
    daemon = gpu_daemon("--linger", "60s", "--gpu-memory", "3MiB")
    trainer = start(20, env={"FAKECUDA_FAIL": "cuIpcOpenMemHandle:*=801"})
    assert finish(trainer)[-1] == "20 batches, vmm-fd, "
    daemon.stop()
    daemon = gpu_daemon("--linger", "60s")
    trainer = start(100000, "--hold-us", 1000, env={"FAKECUDA_PERSONALITY": "no-ipc"})
    assert trainer.stdout.readline() == "attached\n"
    until("its slab is freed", lambda: [gpu["slab_bytes"] for gpu in status(batchctl)["gpus"]] == [0])
    assert status(batchctl)["gpus"][0]["pinned_bytes"] == 0
    trainer.kill()
    trainer.communicate()
    daemon.stop()
    assert not fake.violations()


def test_under_mps_the_daemon_joins_only_its_own_users_trainers(gpu_daemon, fake):
    """MPS serves one user at a time. In the compute mode that leaves no other way the daemon is MPS's client as its
    trainer is; in the ordinary mode it is none, and so waits for no other user's processes."""
    gpu_daemon(env={"FAKECUDA_PERSONALITY": "exclusive,mps"})
    assert finish(start(20, env={"FAKECUDA_PERSONALITY": "exclusive,mps"}))[-1] == "20 batches, ipc, "


def test_a_daemon_waits_for_no_other_user_of_mps(gpu_daemon, fake):
    """The trainer is MPS's client and so is every process of its user; the daemon is another user's."""
    gpu_daemon(env={"FAKECUDA_PERSONALITY": "mps-other-user"})
    assert finish(start(20, env={"FAKECUDA_PERSONALITY": "mps"}))[-1] == "20 batches, ipc, "


def test_a_gpu_that_no_process_may_use(gpu_daemon, fake):
    """The driver only returns an unknown error; the reason is the compute mode."""
    gpu_daemon()
    trainer = start(5, env={"FAKECUDA_PERSONALITY": "prohibited"})
    output = finish(trainer, exit_code=3)
    assert (
        "cannot use cuda:0: cuDevicePrimaryCtxRetain says CUDA_ERROR_UNKNOWN; its compute mode is PROHIBITED"
        in output[-1]
    ), output


def test_a_build_without_cuda_says_so(fake, make_daemon, tmp_path):
    """CUDA=0: the daemon supports no GPUs, its trainers are told why and continue."""
    nocuda = BUILD / "tests" / "batchd-nocuda"
    socket = tmp_path / "s"
    daemon = subprocess.Popen(
        [str(nocuda), "--socket", str(socket)], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until("it listens", socket.exists)
    try:
        last = finish(start(20, env={"BATCHD_SOCKET": str(socket)}))[-1]
        assert last.startswith("20 batches, copy, ") and "CUDA=0" in last
    finally:
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(300) == 0


def test_a_trainer_in_another_pid_namespace_gets_a_descriptor(gpu_daemon, fake, batchctl):
    """CUDA IPC's handles name processes, so that containers cannot open each other's. The status shows the common
    problem."""
    probe = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, text=True)
    if probe.returncode:  # not root, or in a chroot
        pytest.skip(f"no PID namespaces here: {probe.stderr}")
    gpu_daemon()

    def start_inside(n, *arguments):
        return subprocess.Popen(
            ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", str(TRAINER), DATA, str(n), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    assert finish(start_inside(20))[-1] == "20 batches, vmm-fd, "
    run = start_inside(100000, "--job", "inside", "--hold-us", "1000")
    assert run.stdout.readline() == "attached\n"
    other = start(100000, "--job", "other", "--hold-us", 1000)
    assert other.stdout.readline() == "attached\n"
    assert sorted(s["transport"] for s in status(batchctl)["sessions"]) == ["cuda-ipc", "cuda-vmm-fd"]
    assert "; 1 trainer by cuda-ipc, 1 by cuda-vmm-fd" in batchctl("status").stdout
    for trainer in (run, other):
        trainer.kill()
        trainer.communicate()


def test_pinning_can_be_off_or_demanded(gpu_daemon, fake, batchctl):
    """off: the copies are counted as slow and the status says why; on with a limit that forbids it: the trainer is
    refused, naming the key."""
    daemon = gpu_daemon("--pin-memory", "off")
    trainer = start(20)
    assert finish(trainer)[-1] == "20 batches, ipc, "
    assert status(batchctl)["gpus"][0]["pageable_copies"] >= 20
    assert "pin_memory is off" in batchctl("status").stdout
    daemon.stop()
    gpu_daemon(config="pin_memory: on\npin_limit: 0%\n")
    output = finish(start(20), exit_code=3)
    assert "pin_limit" in output[-1] and "pin_memory" in output[-1], output


def test_a_lost_gpu_ends_the_daemon_and_a_new_one_serves_again(gpu_daemon, fake):
    """A sticky CUDA error in the middle of training: trainers on the GPU get its name, the daemon ends with 75, the
    next daemon has a GPU again."""
    daemon = gpu_daemon(env={"FAKECUDA_FAIL": "run:40=700"})
    output = finish(start(100000), exit_code=3)
    assert output[-1].startswith(("GPU: ", "LOST: ")), output  # the daemon may end before its last output is read
    assert daemon.process.wait(300) == 75
    log = daemon.output()
    assert "gpu-lost" in log and "CUDA_ERROR_ILLEGAL_ADDRESS" in log and "CODE=GPU_LOST" in log
    daemon.log.rename(daemon.folder / "first.log")
    os.environ.pop("FAKECUDA_FAIL", None)
    daemon.start()
    assert finish(start(20))[-1] == "20 batches, ipc, "


def test_a_session_that_is_opening_learns_that_the_gpu_is_lost(gpu_daemon, fake):
    """The GPU fails while the second trainer's memory is made on it: both get the reason, not only that the daemon
    stops. The reason names the call that saw the failure first: the opener's, or the copier's that runs beside it."""
    daemon = gpu_daemon(env={"FAKECUDA_FAIL": "cuMemAlloc:2=700"})
    first = start(100000, "--job", "first", "--hold-us", 1000)
    assert first.stdout.readline() == "attached\n"
    second = finish(start(5, "--job", "second"), exit_code=3)
    assert second[-1].startswith("GPU: ") and "CUDA_ERROR_ILLEGAL_ADDRESS in cu" in second[-1], second
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in "".join(finish(first, exit_code=3)[-1:])
    assert daemon.process.wait(300) == 75
    daemon.start()


def test_trainers_wait_for_the_next_daemon_when_the_gpu_is_lost(gpu_daemon, fake):
    """With reconnecting on: the reason is in the event's text, and the next daemon serves them on the GPU from the next
    batch on."""
    daemon = gpu_daemon(env={"FAKECUDA_FAIL": "run:40=700"})
    trainer = start(300, "--reconnect-ms", 60000)
    assert daemon.process.wait(300) == 75
    daemon.start()
    output = finish(trainer)
    lost = [line for line in output if line.startswith("lost: ")]
    assert len(lost) == 1 and "CUDA_ERROR_ILLEGAL_ADDRESS" in lost[0], output
    assert [line for line in output if line.startswith("back: ") and "CUDA_ERROR_ILLEGAL_ADDRESS" in line] and output[
        -1
    ] == "300 batches, ipc, "


def test_copies_that_fail_time_after_time(gpu_daemon, fake, batchctl):
    """The first failing daemon is tried once more; then the trainer gets its batches without the daemon's GPU, and so
    does every later trainer."""
    gpu_daemon(env={"FAKECUDA_FAIL": "cuMemcpyHtoDAsync:*=2"})
    output = finish(start(60, "--reconnect-ms", 60000))
    lost = [line for line in output if line.startswith("lost: ")]
    assert len(lost) == 2 and all(
        "CUDA_ERROR_OUT_OF_MEMORY in cuMemcpyHtoDAsync; open again" in line for line in lost
    ), output
    assert output[-1].startswith("60 batches, "), output
    last = finish(start(20))[-1]
    assert last.startswith(
        "20 batches, copy, the daemon's copies to Fake GPU 0 fail (CUDA_ERROR_OUT_OF_MEMORY in cuMemcpyHtoDAsync)"
    ), last
    assert not fake.violations()


def test_daemons_that_lose_the_gpu_again_and_again(gpu_daemon, fake):
    """Each daemon comes back and fails before the first batch: the trainer tries for as long as it would wait for one
    daemon, with pauses, and then gets the reason."""
    daemon = gpu_daemon(env={"FAKECUDA_FAIL": "run:1=700"})
    trainer = start(100000, "--reconnect-ms", 1500)
    n = 1
    while trainer.poll() is None and n < 40:
        if daemon.process.poll() is not None:
            assert daemon.process.returncode == 75
            env = dict(os.environ, FAKECUDA_FAIL="run:1=700", FAKECUDA_ALLOW_THREADS="batchd-gpu*")
            with open(daemon.log, "ab") as log:
                daemon.process = subprocess.Popen(
                    daemon.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env
                )
            n += 1
        time.sleep(0.01)
    if n == 40:
        trainer.kill()
    output = finish(trainer, exit_code=3 if n < 40 else -signal.SIGKILL)
    assert 2 <= n < 40, output
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in output[-1], output
    daemon.kill()
    daemon.start()


def test_sigterm_at_the_very_end_of_a_lost_gpu_changes_nothing(gpu_daemon, fake):
    """systemd may stop a daemon that is ending, at any moment: the exit code stays the GPU's."""
    daemon = gpu_daemon(env={"FAKECUDA_FAIL": "run:20=700"})
    trainer = start(100000)
    while daemon.process.poll() is None:
        if (
            "gpu-lost" in daemon.output()
        ):  # without a pause, as only a millisecond is left: one of the signals arrives at the very end
            for _ in range(1000):
                daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.returncode == 75
    finish(trainer, exit_code=3)
    daemon.start()


def test_a_clean_stop_frees_nothing_that_trainers_have_open(gpu_daemon, fake):
    """SIGTERM in the middle: trainers finish the GPU's current work, close the daemon's memory, and report that; then
    the daemon frees it, and the next daemon continues to serve them."""
    daemon = gpu_daemon()
    trainers = [
        start(
            150,
            "--job",
            "four",
            "--rank",
            rank,
            "--world",
            4,
            "--hold-us",
            500,
            "--seed",
            rank,
            "--reconnect-ms",
            60000,
        )
        for rank in range(3)
    ]
    trainers.append(
        start(
            150,
            "--job",
            "four",
            "--rank",
            3,
            "--world",
            4,
            "--hold-us",
            500,
            "--reconnect-ms",
            60000,
            env={"FAKECUDA_DELAY_US": "10000"},
        )
    )
    for trainer in trainers:
        assert trainer.stdout.readline() == "attached\n"
    time.sleep(0.2)
    pid = daemon.pid
    daemon.stop()
    fake.assert_clean(pid)  # leaks included: everything was freed
    assert "gpu-left" not in daemon.output()
    daemon.start()
    for trainer in trainers:
        assert finish(trainer)[-1] == "150 batches, ipc, "
    daemon.stop()
    assert not fake.violations()


def test_a_process_that_does_not_let_go_is_not_waited_for_long(gpu_daemon, fake):
    """A stopped trainer, and one that ignores the error: the daemon ends in time, and frees nothing that they use."""
    daemon = gpu_daemon()
    trainers = [
        start(100000, "--job", name, "--hold-us", 1000, "--stay", stdin=subprocess.PIPE)
        for name in ("stopped", "idle", "dies")
    ]
    stopped, idle, dies = trainers
    for trainer in trainers:
        assert trainer.stdout.readline() == "attached\n"
    stopped.send_signal(signal.SIGSTOP)
    daemon.process.send_signal(signal.SIGTERM)
    until("it stops", lambda: "stopping:" in daemon.output())
    dies.kill()
    dies.wait()
    daemon.stop()
    assert "2 trainers still have batches on a GPU open" in daemon.output(), daemon.output()
    stopped.send_signal(signal.SIGCONT)
    for trainer in (stopped, idle):
        output, _ = trainer.communicate(timeout=300)
        assert trainer.returncode == 3 and "SHUTDOWN: " in output, output
    dies.communicate()
    assert not fake.violations()


def test_a_second_sigterm_and_new_trainers_during_the_grace_time(gpu_daemon, fake):
    """A second signal neither shortens nor lengthens the wait, and new connections are refused meanwhile."""
    daemon = gpu_daemon()
    idle = start(100000, "--stay", stdin=subprocess.PIPE)
    assert idle.stdout.readline() == "attached\n"
    daemon.process.send_signal(signal.SIGTERM)
    until("it stops", lambda: "stopping:" in daemon.output())
    daemon.process.send_signal(signal.SIGTERM)
    late = start(5)
    assert daemon.process.wait(300) == 0
    output, _ = late.communicate(timeout=300)
    assert late.returncode == 3, output
    idle.communicate(timeout=300)
    assert not fake.violations()


def test_a_lost_gpu_is_gone_even_when_its_driver_hangs(gpu_daemon, fake):
    """The GPU is lost while the driver blocks the thread: the daemon does not wait for it for ever."""
    daemon = gpu_daemon(env={"FAKECUDA_LATENCY_US": "cuMemFree=600000000"})
    assert finish(start(5))[-1] == "5 batches, ipc, "  # and the thread is in cuMemFree now
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(300) == 75
    assert "gpu-stuck" in daemon.output()
    daemon.start()

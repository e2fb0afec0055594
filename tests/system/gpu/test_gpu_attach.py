"""The cost for other trainers of the same user when a trainer first wants its batches on a GPU, and what stays there
after all have left. On the fake driver."""

import re
import time

import batchd
from batchd import progress
from daemons import until
from test_gpu_daemon import DATA, fake, finish, gpu_daemon, start, status  # noqa: F401: fixtures


def calls(fake, pid, name):
    (n,) = re.findall(rf"^call {name} (\d+)$", fake.of(pid), re.M)
    return int(n)


def test_the_next_trainer_finds_the_pages_pinned(gpu_daemon, fake, batchctl):
    """While a loader lingers, its memory stays on the GPU and its pages stay registered; the next trainers use both."""
    daemon = gpu_daemon("--linger", "600s")
    pid = daemon.pid
    for _ in range(3):
        assert finish(start(20, "--job", "again"))[-1] == "20 batches, ipc, "
        until("it has gone", lambda: not status(batchctl)["sessions"])
        (gpu,) = status(batchctl)["gpus"]
        assert gpu["pinned_bytes"] > 0 and gpu["slabs"] == 1
    daemon.stop()
    fake.assert_clean(pid)
    assert calls(fake, pid, "cuMemHostRegister") == calls(fake, pid, "cuMemHostUnregister") == 1
    assert calls(fake, pid, "cuMemAlloc") == calls(fake, pid, "cuDevicePrimaryCtxRetain") == 1


def test_pages_are_let_go_with_the_loader(gpu_daemon, fake, batchctl):
    """A trainer with other batches takes the job's place: the memory of the lingering loader is freed, pinned pages
    included."""
    daemon = gpu_daemon("--linger", "600s")
    assert finish(start(20, "--job", "again"))[-1] == "20 batches, ipc, "
    until("it has gone", lambda: not status(batchctl)["sessions"])
    (before,) = status(batchctl)["gpus"]
    other = start(100000, "--job", "again", "--batch", 32, "--hold-us", 1000)
    assert other.stdout.readline() == "attached\n"
    until("there is one slab", lambda: status(batchctl)["gpus"][0]["slabs"] == 1)
    (gpu,) = status(batchctl)["gpus"]
    assert before["pinned_bytes"] < gpu["pinned_bytes"] < 3 * before["pinned_bytes"]
    other.kill()
    other.communicate()
    pid = daemon.pid
    daemon.stop()
    fake.assert_clean(pid)


def test_a_trainer_hears_that_the_gpu_is_made_ready(gpu_daemon, fake):
    """A context takes seconds: the phase is reported before the driver has returned."""
    daemon = gpu_daemon(env={"FAKECUDA_LATENCY_US": "cuDevicePrimaryCtxRetain=3000000"})
    trainer = start(5, "--progress")
    phases = [trainer.stdout.readline()]
    while phases[-1] not in ("phase: gpu\n", "attached\n"):
        phases.append(trainer.stdout.readline())
    assert phases[-1] == "phase: gpu\n"
    assert finish(trainer)[-1] == "5 batches, ipc, "
    daemon.stop()
    assert not fake.violations()


def test_the_bar_says_what_it_waits_for(capsys, monkeypatch):
    """There is nothing to count while a GPU is made ready."""
    with progress.Bar(True, True) as bar:
        monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic() + 60: now)
        bar.show(b"gpu", 0, 0)
        assert capsys.readouterr().err.endswith("batchd: the daemon gets the GPU ready")


def test_status_tells_how_soon_trainers_hear_of_their_copies(gpu_daemon, batchctl):
    """For a trainer on a GPU, as numbers and as words; for one in host memory nothing is shown."""
    gpu_daemon()
    with batchd.DataLoader(
        DATA, batch_size=16, dtype="uint8", layout="NHWC", job="host", autostart=False, timeout=30
    ) as host:
        next(iter(host))
        trainer = start(100000, "--job", "gpu", "--hold-us", 500)
        try:
            found = until(
                "batches have come",
                lambda: [s for s in status(batchctl)["sessions"] if s.get("gpu_handover", {}).get("batches", 0) > 50],
            )
            (session,) = found
            times = session["gpu_handover"]
            assert session["job"] == "gpu" and 0 < times["p50_us"] <= times["p99_us"] < 60e6, times
            assert re.search(
                rf"^session {session['id']} hears of a batch on its GPU within \d+ us of its copy's end",
                batchctl("status").stdout,
                re.M,
            )
        finally:
            trainer.kill()
            trainer.communicate()


def test_a_daemon_lets_go_of_gpus_when_it_is_idle(gpu_daemon, fake, batchctl):
    """Trainers without a GPU do not end the wait, however short the time; the last one with a GPU does."""
    daemon = gpu_daemon(config="gpu_idle_exit: 0s\n")
    pid = daemon.pid
    for _ in range(2):
        with batchd.DataLoader(DATA, batch_size=16, dtype="uint8", autostart=False, timeout=30) as loader:
            assert sum(1 for _ in loader) == 250
    until("they have gone", lambda: not status(batchctl)["sessions"])
    assert daemon.process.poll() is None
    assert finish(start(20))[-1] == "20 batches, ipc, "
    assert daemon.process.wait(300) == 0
    assert "gpu_idle_exit" in daemon.output()
    fake.assert_clean(pid)
    daemon.start()


def test_a_daemon_that_was_refused_a_slab_lets_go_as_well(gpu_daemon, fake):
    """The driver was started for a trainer that then copied by itself: GPUs are open, so the daemon ends."""
    daemon = gpu_daemon("--gpu-memory", "2MiB", config="gpu_idle_exit: 0s\n")
    assert finish(start(20, "--batch", 400))[-1].startswith("20 batches, copy, no room")
    assert daemon.process.wait(300) == 0
    daemon.start()


def test_idle_exit_counts_where_it_is_shorter(gpu_daemon, fake):
    """Both times are set: the first to expire ends the daemon."""
    daemon = gpu_daemon(config="idle_exit: 5s\ngpu_idle_exit: 30d\n")
    assert finish(start(20))[-1] == "20 batches, ipc, "
    assert daemon.process.wait(300) == 0
    assert "for idle_exit" in daemon.output()
    daemon.start()

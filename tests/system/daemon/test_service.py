"""batchd as a service: started by a connection, restarted under load, killed, hung. Its trainers get the golden list,
whatever the service manager does. Each test runs under systemd itself, where that is possible, and under a small double
of it."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from conftest import REPO
from daemons import until
from managers import Double, Systemd, Unavailable

pytestmark = pytest.mark.long("other programs: a service manager; test_systemd.py holds what the daemon tells it")

sys.path.insert(0, str(REPO / "tests/soak"))
import crew  # noqa: E402

pytest.importorskip("torch")

# A hang should be detected soon; a test without a hang must not take a short pause of the machine for one: our unit's
# own time.
WATCHDOG_S = {True: 3.0, False: 30.0}


@pytest.fixture(params=[Double, Systemd], ids=["double", "systemd"])
def manager(request, build, tmp_path):
    try:
        m = request.param(build, tmp_path, [], WATCHDOG_S["hangs" in request.function.__name__])
    except Unavailable as e:
        pytest.skip(str(e))
    m.build, m.socket = build, m.address  # as a crew's daemon
    m.start()
    yield m
    m.stop()


@pytest.fixture
def ranks(manager, tmp_path):
    data = crew.Data(tmp_path, 1009)
    ranks = [crew.Trainer(manager, data, job="service", rank=r, world_size=2) for r in range(2)]
    yield ranks
    for trainer in ranks:
        if trainer.process:
            trainer.kill()


def have_more(ranks, n=5):
    for trainer in ranks:
        trainer.wait_for(n)


def test_the_first_trainer_starts_it(manager, ranks):
    # They connect while no daemon runs: the manager's socket keeps their connections until the daemon has started.
    for trainer in ranks:
        trainer.start()
    have_more(ranks)
    assert manager.n_starts() == 1, manager.story()


def test_a_restart_under_load_is_a_pause(manager, ranks):
    for trainer in ranks:
        trainer.start()
    have_more(ranks)
    for _ in range(3):
        before = manager.main_pid()
        manager.restart()
        have_more(ranks)
        assert manager.main_pid() != before


def test_a_reload_under_load_is_not_even_that(manager, ranks):
    for trainer in ranks:
        trainer.start()
    have_more(ranks)
    before = manager.main_pid()
    manager.reload()
    have_more(ranks)
    assert manager.main_pid() == before and manager.n_starts() == 1, manager.story()


def test_a_crash_is_a_pause(manager, ranks):
    for trainer in ranks:
        trainer.start()
    have_more(ranks)
    before = manager.main_pid()
    os.kill(before, signal.SIGSEGV)
    have_more(ranks)
    until("another one serves", lambda: manager.main_pid() != before)
    assert manager.n_starts() == 2, manager.story()


def test_a_loop_that_hangs_is_restarted(manager, ranks):
    # A stopped process sends no ping.
    for trainer in ranks:
        trainer.start()
    have_more(ranks)
    before = manager.main_pid()
    os.kill(before, signal.SIGSTOP)
    until("the watchdog bites", lambda: not os.path.exists(f"/proc/{before}"))
    have_more(ranks)
    assert manager.main_pid() != before


# Stops one thread of another process, as a hanging file system would, until that process has ended.
STOPPER = """
    import ctypes, os, sys
    PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 0x4206, 0x4207, 0x40000000
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    tid = int(sys.argv[1])
    if ptrace(PTRACE_SEIZE, tid, None, None):
        sys.exit(os.strerror(ctypes.get_errno()))
    ptrace(PTRACE_INTERRUPT, tid, None, None)
    try:
        while True:
            pid, status = os.waitpid(-1, WALL)
            if os.WIFSTOPPED(status):
                print("stopped", flush=True)
    except ChildProcessError:
        pass
"""


def workers_of(pid):
    tasks = f"/proc/{pid}/task"
    return [int(t) for t in os.listdir(tasks) if open(f"{tasks}/{t}/comm").read().startswith("batchd-worker")]


def test_a_worker_that_hangs_is_noticed(manager, samples):
    # One of the workers never returns from its sample: the loop runs, yet no ping is sent. The trainer drops its
    # batches at once, so that workers are always busy; it prints a line per epoch.
    trainer = subprocess.Popen(
        [
            manager.build / "tests/soak/trainer",
            manager.socket,
            f"imagefolder:{samples}",
            "busy",
            "shard",
            "0",
            "1",
            "8",
            "1",
            "0",
            "0",
            "1000000",
            "1",
            "-1",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert trainer.stdout.readline() == "0 12\n"
        before = manager.main_pid()
        stopper = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(STOPPER), str(workers_of(before)[0])],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if stopper.stdout.readline() != "stopped\n":
            pytest.skip(f"ptrace is not allowed here: {stopper.communicate()[1]}")
        until("the watchdog bites", lambda: not os.path.exists(f"/proc/{before}"))
        stopper.communicate(timeout=300)
        epochs = [int(trainer.stdout.readline().split()[0]) for _ in range(50)]  # its earlier lines, and its last one
        assert epochs == list(range(1, 51))
        assert manager.main_pid() != before
    finally:
        trainer.kill()
        trainer.communicate()

"""What becomes of a loader when its last trainer has gone: it ends where no other trainer can come to it, and stays warm
where one can."""

import os
import signal
import subprocess
import sys

import batchd
import daemons
import numpy

ROWS = (numpy.arange(40, dtype="float32").reshape(20, 2), numpy.arange(20))


def states(d):
    return {entry["job"]: entry["state"] for entry in batchd._lib.status(d.socket)["loaders"]}


def until_states(d, *expected):
    daemons.until(f"loaders that are {expected}", lambda: sorted(states(d).values()) == sorted(expected))


def run_a_batch(**options):
    loader = batchd.DataLoader(ROWS, batch_size=4, **options)
    next(iter(loader))
    return loader


def test_a_loader_that_no_other_trainer_can_find_ends_with_close(make_daemon):
    """And its memory with it: a script that makes a loader for each validation holds one."""
    d = make_daemon(config="linger: 10min\n")
    for _ in range(3):
        run_a_batch().close()
    until_states(d)
    daemons.until("its memory", lambda: batchd._lib.status(d.socket)["memory"]["slots_bytes"] == 0)


def test_batches_that_are_kept_stay_what_they_are(make_daemon):
    d = make_daemon(config="linger: 10min\n")
    with batchd.DataLoader(ROWS, batch_size=4) as loader:
        kept, _ = next(iter(loader))
    until_states(d)
    assert (numpy.asarray(kept) == ROWS[0][:4]).all()


def test_named_jobs_groups_and_ranks_stay_warm(make_daemon):
    d = make_daemon(config="linger: 10min\n")
    run_a_batch(job="mine").close()
    run_a_batch(mode="share").close()
    run_a_batch(rank=0, world_size=2).close()
    until_states(d, "lingering", "lingering", "lingering")
    assert "mine" in states(d)


def test_a_trainer_that_was_killed_may_come_back(make_daemon):
    """Its job has said no Close, and nothing else is known than that the connection is lost."""
    d = make_daemon(config="linger: 10min\n")
    script = (
        "import batchd, numpy, sys, time\n"
        "loader = batchd.DataLoader((numpy.zeros((20, 2), 'float32'), numpy.zeros(20, int)), batch_size=4)\n"
        "next(iter(loader)); print('here', flush=True); time.sleep(600)"
    )
    env = dict(os.environ, BATCHD_SOCKET=str(d.socket))
    trainer = subprocess.Popen([sys.executable, "-c", script], env=env, stdout=subprocess.PIPE, text=True)
    assert trainer.stdout.readline() == "here\n"
    trainer.send_signal(signal.SIGKILL)
    trainer.wait()
    until_states(d, "lingering")

"""How workers step back behind programs that compute."""

import os
import pathlib
import subprocess

import daemons
import pytest


def priorities(pid):
    """Policy and niceness of each thread, by its name; a thread has the name of another until it has begun."""
    return {
        (task / "comm").read_text().strip(): (
            os.sched_getscheduler(int(task.name)),
            os.getpriority(os.PRIO_PROCESS, int(task.name)),
        )
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
    }


@pytest.mark.parametrize("config, more", [("", 0), ("nice: 12\n", 12)])
def test_workers_step_back_and_the_loop_does_not(make_daemon, config, more):
    own = os.getpriority(os.PRIO_PROCESS, 0)
    d = make_daemon(config="workers: 1\n" + config)
    usual, back = (os.SCHED_OTHER, own), (os.SCHED_BATCH, max(own, more))
    expected = {"batchd": usual, "batchd-io": usual, "batchd-worker": back, "batchd-relief": back}
    daemons.until(f"{expected}", lambda: expected.items() <= priorities(d.pid).items())


def test_a_daemon_with_a_session_of_its_own_is_nice_as_a_whole(build, tmp_path):
    """Where the kernel groups processes by session, niceness counts in the session only."""
    if not pathlib.Path("/proc/self/autogroup").exists():
        pytest.skip("the kernel groups no processes by session")
    before = pathlib.Path("/proc/self/autogroup").read_text()
    (tmp_path / "batchd.yaml").write_text("nice: 5\n")
    argv = [build / "batchd", "--foreground", "--socket", tmp_path / "s", "--config", tmp_path / "batchd.yaml"]
    for own in (False, True):
        d = subprocess.Popen(argv, start_new_session=own, stderr=subprocess.DEVNULL)
        try:
            daemons.until("its socket", (tmp_path / "s").exists)
            group = pathlib.Path(f"/proc/{d.pid}/autogroup").read_text()
            assert group.split()[-1] == "5" if own else group == before
        finally:
            d.terminate()
            d.wait()

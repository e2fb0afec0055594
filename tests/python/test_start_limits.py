"""A daemon that its limits do not let start says which limit, at once, to the script that has started it."""

import os
import pathlib
import resource
import subprocess
import sys
import textwrap
import time

import pytest

SCRIPT = textwrap.dedent("""
    import time, batchd
    t = time.monotonic()
    try:
        batchd.DataLoader("random:length=8,shape=1", 4, arrays="numpy")
    except batchd.Error as e:
        print(type(e).__name__, e)
    print(f"{time.monotonic() - t:.1f}")
""")
PIDS = pathlib.Path("/sys/fs/cgroup/pids")


def run(tmp_path, before):
    (tmp_path / "run").mkdir(mode=0o700)
    env = {k: v for k, v in os.environ.items() if k != "BATCHD_SOCKET"}
    env |= {"XDG_RUNTIME_DIR": str(tmp_path / "run"), "XDG_CONFIG_HOME": str(tmp_path), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=env, preexec_fn=before, capture_output=True, text=True, timeout=300
    )
    said, seconds = done.stdout.strip().rsplit("\n", 1)
    # The error is not that of a daemon which went away, and which a loader waits for (30 s).
    assert said.startswith("ConnectError") and float(seconds) < 25, done
    return said


@pytest.fixture
def few_threads():
    if not os.access(PIDS, os.W_OK):
        pytest.skip("no control group of the first version for numbers of processes that may be written")
    group = PIDS / f"batchd-test-{os.getpid()}"
    group.mkdir()
    (group / "pids.max").write_text("30")
    yield group
    deadline = time.monotonic() + 300
    while (group / "tasks").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    group.rmdir()


def test_too_few_threads_are_a_reason_at_once(few_threads, tmp_path):
    """docker --pids-limit, podPidsLimit: the number that is needed, the limit, and what to do."""
    said = run(tmp_path, lambda: (few_threads / "tasks").write_text(str(os.getpid())))
    assert (
        "start-failed: cannot start: no more threads are allowed" in said
        and "pids.max of its control group is 30" in said
    )
    assert "lower io_threads (32)" in said and "daemon.log" in said


@pytest.mark.parametrize("n", (20, 63))
def test_too_few_descriptors_are_a_reason_at_once(tmp_path, n):
    """A daemon that may open hardly a file would wait for a free descriptor at each, for minutes."""
    said = run(tmp_path, lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)))
    assert f"only {n} files may be open, and batchd needs 64" in said and "ulimit -n" in said

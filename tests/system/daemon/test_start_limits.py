"""A daemon that its limits do not let start says which limit, at once, to the script that has started it."""

import contextlib
import os
import pathlib
import resource
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from daemons import runs, until

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


def end_daemons(folder):
    """Those that a script has started, which would wait for another for minutes."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            line = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
            if os.fsencode(folder) in line and b"--on-demand" in line:
                os.kill(int(pid), signal.SIGTERM)
                until("the daemon ends", lambda pid=int(pid): not runs(pid))


def run(tmp_path, before, script=SCRIPT, error="ConnectError"):
    (tmp_path / "run").mkdir(mode=0o700)
    env = {k: v for k, v in os.environ.items() if k != "BATCHD_SOCKET"}
    env |= {"XDG_RUNTIME_DIR": str(tmp_path / "run"), "XDG_CONFIG_HOME": str(tmp_path), "OPENBLAS_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", script], env=env, preexec_fn=before, capture_output=True, text=True, timeout=300
        )
    finally:
        end_daemons(tmp_path / "run")
    said, seconds = done.stdout.strip().rsplit("\n", 1)
    # The error is not that of a daemon which went away, and which a loader waits for (30 s).
    assert said.startswith(error) and float(seconds) < 25, done
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


def test_a_limit_of_the_size_of_files_is_named(tmp_path):
    """Batch systems set ulimit -f, which the kernel applies to shared memory as well."""
    config = tmp_path / "batchd" / "batchd.yaml"
    config.parent.mkdir()
    config.write_text("slots: 4\n")
    big = SCRIPT.replace("shape=1", "shape=3x512x512")
    said = run(tmp_path, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)), big, "LimitError")
    assert "File too large: raise ulimit -f" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to take /proc away")
def test_a_missing_proc_is_named(tmp_path):
    """Whether another user's file may be read is asked through /proc. In a chroot without it, the error says so."""
    data = tmp_path / "data" / "a"
    data.mkdir(parents=True)
    (data / "0.ppm").write_bytes(b"P6 1 1 255 abc")
    for folder in (data, data.parent, tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o055)
    text = textwrap.dedent(f"""
        import ctypes, os, batchd
        libc = ctypes.CDLL(None)
        assert libc.unshare(0x20000) == 0 and libc.mount(b"none", b"/", None, 0x44000, None) == 0
        assert libc.mount(b"none", b"/proc", b"tmpfs", 0, None) == 0
        os.setgroups([]), os.setgid(65534), os.setuid(65534)
        try:
            batchd.DataLoader("imagefolder:{data.parent}", 1, arrays="numpy", transform=[["CenterCrop", 1]])
        except batchd.Error as e:
            print(type(e).__name__, e)
        print("0")
    """)
    run_dir = tmp_path / "run"
    said = run(tmp_path, lambda: os.chown(run_dir, 65534, 65534), text, "AccessError")
    assert "/proc is not mounted here" in said


@pytest.mark.parametrize("n", (20, 63))
def test_too_few_descriptors_are_a_reason_at_once(tmp_path, n):
    """A daemon that may open hardly a file would wait for a free descriptor at each, for minutes."""
    said = run(tmp_path, lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)))
    assert f"only {n} files may be open, and batchd needs 64" in said and "ulimit -n" in said

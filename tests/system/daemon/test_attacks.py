"""The attacks of tests/attack, one test each: raw packets, files and mounts of hostile users."""

import os
import subprocess
import sys

import pytest

from daemons import BUILD, REPO

pytestmark = pytest.mark.long(
    "plays every attack in full; test_reliability.py and test_limits.py hold the daemon's bounds"
)

RUN = REPO / "tests" / "attack" / "run"
sys.path.insert(0, str(RUN.parent))

from users import ATTACKS  # noqa: E402


@pytest.mark.parametrize("name", [attack.__name__ for attack in ATTACKS])
def test_the_daemon_holds(name, tmp_path):
    # Proves that the attack, which its function in attacks.py describes, breaks nothing.
    env = dict(os.environ, BATCHD_BUILD=str(BUILD), TMPDIR="/tmp")
    result = subprocess.run([sys.executable, str(RUN), name], env=env, capture_output=True, text=True, timeout=600)
    verdict = result.stdout.strip().rpartition("\n")[2]  # figures come before it
    if verdict.startswith("skipped"):
        pytest.skip(verdict)
    assert result.returncode == 0 and verdict.startswith("held"), result.stdout + result.stderr


def test_a_broken_defence_would_be_noticed(tmp_path):
    # Proves that the script exits with 1 when an attack breaks something: here a daemon that is killed under it.
    script = (
        "import runpy, sys, attacks\n"
        "attacks.ATTACKS[:] = [attacks.leases_are_counted]\n"
        "attacks.check_serves = lambda daemon: (daemon.kill(), 'the daemon has died')[1]\n"
        f"sys.argv = ['run']\nrunpy.run_path({str(RUN)!r}, run_name='__main__')\n"
    )
    env = dict(os.environ, BATCHD_BUILD=str(BUILD), PYTHONPATH=str(RUN.parent))
    result = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=600)
    assert result.returncode == 1 and result.stdout.startswith("broke"), result.stdout + result.stderr

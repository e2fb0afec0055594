"""What a daemon has of the environment of the script that has started it."""

import json
import os
import pathlib
import signal
import subprocess
import sys

from daemons import runs, until

SCRIPT = """
import json, pathlib, batchd
loader = batchd.DataLoader("random:length=8,shape=1", 4, arrays="numpy")
assert len(next(iter(loader))[0]) == 4
pid = batchd.status()["daemon"]["pid"]
entries = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode().split("\\0")
print(json.dumps([pid, dict(e.split("=", 1) for e in entries if e)]))
"""


def test_keys_and_tokens_stay_with_the_script(tmp_path):
    """The daemon outlives the script and serves others: its environment, which a debugger or a core shows, has what it
    reads itself, and none of the script's keys."""
    secrets = {"AWS_SECRET_ACCESS_KEY": "abc", "HF_TOKEN": "hf_1", "https_proxy": "http://me:pw@proxy", "OF_MINE": "x"}
    config = tmp_path / "batchd.yaml"
    config.write_text("workers: 1\n")
    kept = {"XDG_RUNTIME_DIR": str(tmp_path), "BATCHD_CONFIG": str(config), "LC_ALL": "C", "NVIDIA_X": "1"}
    env = {k: v for k, v in os.environ.items() if k != "BATCHD_SOCKET"} | secrets | kept
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done
    pid, environment = json.loads(done.stdout)
    os.kill(pid, signal.SIGTERM)
    until("the daemon ends", lambda: not runs(pid))
    assert str(tmp_path) in pathlib.Path(tmp_path / "batchd" / "daemon.log").read_text()
    assert not environment.keys() & secrets.keys(), environment
    assert kept.items() <= environment.items() and environment["PATH"] == env["PATH"], environment

"""The daemon on a machine with two NUMA nodes, which is made of this machine's processors by mounting files over those of
the kernel: where workers run, what status and doctor say. tests/run/numa shows on two nodes where the pages lie."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import BUILD, Daemon
from test_reliability import needs_root

FAR = 1023  # a node that no machine has, so that the kernel refuses to place slots there
DATASET = "random:length=64,shape=65536,dtype=uint8"
IN_FAKE = """mount --make-rprivate / && mount --bind "$1/node" /sys/devices/system/node &&
mount --bind "$1/status" /proc/$$/status && shift && exec "$@" """
INTERLEAVED = """import ctypes, os, sys
mask = ctypes.c_ulong(1)
if ctypes.CDLL(None, use_errno=True).syscall(238, 3, ctypes.byref(mask), ctypes.c_ulong(8)):
    sys.exit(f"set_mempolicy: {os.strerror(ctypes.get_errno())}")
os.execv(sys.argv[1], sys.argv[1:])"""


class DaemonOnNodes(Daemon):
    def __init__(self, folder, before):
        self.before = before
        super().__init__(folder, ["--workers", "4", "--log-level", "info"])

    def start(self):
        self.argv = [*self.before, *self.argv]
        super().start()

    def status(self, *args):
        return subprocess.run(
            [BUILD / "batchctl", *(args or ("status", "--json")), "--socket", self.socket],
            capture_output=True,
            text=True,
            timeout=300,
        ).stdout

    def train(self):
        subprocess.run(
            [BUILD / "batchctl", "bench", "--socket", self.socket, "--quiet", "--epochs", "1", "--slots", "4", DATASET],
            check=True,
            capture_output=True,
            timeout=300,
        )

    def processors(self):
        """Of each worker."""
        tasks = pathlib.Path(f"/proc/{self.pid}/task").iterdir()
        said = [(task / "status").read_text() for task in tasks if (task / "comm").read_text() == "batchd-worker\n"]
        return sorted(text.split("Cpus_allowed_list:", 1)[1].split()[0] for text in said)


@pytest.fixture
def machine(tmp_path):
    """A command that runs another one where the kernel tells of two nodes of one processor each, and the processors."""
    processors = sorted(os.sched_getaffinity(0))[:2]
    if len(processors) < 2:
        pytest.skip("needs two processors")
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("mounts cannot be made here")
    fake = tmp_path / "fake"
    for number, processor in zip((0, FAR), processors):
        (fake / f"node/node{number}").mkdir(parents=True)
        (fake / f"node/node{number}/cpulist").write_text(f"{processor}\n")
    for name in ("online", "has_memory"):
        (fake / "node" / name).write_text(f"0,{FAR}\n")
    allowed = ",".join(map(str, processors))
    (fake / "status").write_text(f"Name:\tbatchd\nCpus_allowed_list:\t{allowed}\nMems_allowed_list:\t0-{FAR}\n")
    return ["unshare", "--mount", "sh", "-c", IN_FAKE, "sh", str(fake)], processors


@needs_root
def test_workers_are_spread_and_bound_and_the_status_says_so(machine, tmp_path):
    before, processors = machine
    daemon = DaemonOnNodes(tmp_path, before)
    numa = json.loads(daemon.status())["numa"]
    assert numa["nodes"] == [{"node": n, "processors": 1, "workers": 2} for n in (0, FAR)]
    assert daemon.processors() == sorted(str(p) for p in processors * 2)
    assert not numa["error"] and numa["text"].endswith("; batches lie on the nodes in turn")
    (line,) = [line for line in daemon.status("status").splitlines() if line.startswith("NUMA")]
    assert "node 0 has 2 workers on 1 processors" in line
    (found,) = [f for f in json.loads(daemon.status("doctor", "--json"))["findings"] if f["about"] == "NUMA"]
    assert found["state"] == "ok"
    daemon.stop()


@needs_root
def test_slots_that_cannot_be_placed_are_served_all_the_same(machine, tmp_path):
    """And the log has one line of it, however many trainers there are."""
    daemon = DaemonOnNodes(tmp_path, machine[0])
    daemon.train()
    daemon.train()
    assert daemon.output().count("batches cannot be placed") == 1
    numa = json.loads(daemon.status())["numa"]
    assert numa["error"] and numa["rows_near"] == 0 and "Invalid argument" in numa["text"]
    (found,) = [f for f in json.loads(daemon.status("doctor", "--json"))["findings"] if f["about"] == "NUMA"]
    assert found["state"] == "note" and "mbind" in found["advice"]
    daemon.stop()


@needs_root
def test_an_operators_own_policy_stays(machine, tmp_path):
    before, _ = machine
    interleaved = [sys.executable, "-c", INTERLEAVED]
    if os.uname().machine != "x86_64" or subprocess.run([*interleaved, "/bin/true"], capture_output=True).returncode:
        pytest.skip("no memory policies here")
    daemon = DaemonOnNodes(tmp_path, [*before, *interleaved])
    assert "numa" not in json.loads(daemon.status())
    assert len(daemon.processors()) == 4 and len(set(daemon.processors())) == 1
    assert "a memory policy of its own" in daemon.output()
    daemon.stop()


def test_with_one_node_nothing_is_said(tmp_path):
    if len(list(pathlib.Path("/sys/devices/system/node").glob("node[0-9]*"))) > 1:
        pytest.skip("this machine has several nodes")
    daemon = DaemonOnNodes(tmp_path, [])
    assert "numa" not in json.loads(daemon.status()) and "NUMA" not in daemon.status("status")
    assert len(daemon.processors()) == 4 and len(set(daemon.processors())) == 1
    daemon.stop()

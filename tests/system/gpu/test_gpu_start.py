"""The daemon that a trainer starts, on a machine with two of the fake driver's GPUs: it serves every trainer,
whatever the first one's environment is."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest
from conftest import BUILD
from daemons import runs, until

TRAINER = BUILD / "tests" / "tools" / "gpu-trainer"
DATA = "random:length=4000,shape=3x32x32,dtype=uint8"
OF_ONE_TRAINER = {
    "CUDA_LAUNCH_BLOCKING": "1",
    "CUDA_INJECTION64_PATH": "/nowhere/profiler.so",
    "NVTX_INJECTION64_PATH": "/nowhere/profiler.so",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50",
}


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Two GPUs and no daemon. Each started daemon records its environment and its process; all are stopped at the
    end."""
    if not TRAINER.exists() or not (BUILD / "libfakecuda.so").exists():
        pytest.skip("make tests builds gpu-trainer and libfakecuda.so")
    if pathlib.Path("/run/batchd/batchd.socket").exists():
        pytest.skip("this machine has a daemon of its own, which would be found")
    (tmp_path / "gpus").mkdir()
    (tmp_path / "started").mkdir()
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "batchd"
    program.write_text(f'#!/bin/sh\nenv >{tmp_path}/started/$$\nexec {BUILD}/batchd "$@"\n')
    program.chmod(0o755)
    for name, value in {
        "BATCHD_LIBCUDA": BUILD / "libfakecuda.so",
        "FAKECUDA_GPUS": 2,
        "FAKECUDA_DIR": tmp_path / "gpus",
        "FAKECUDA_REPORT": tmp_path / "report",
        "XDG_RUNTIME_DIR": tmp_path,
        "BATCHD_DAEMON": program,
        **OF_ONE_TRAINER,
    }.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("BATCHD_SOCKET", raising=False)
    yield Machine(tmp_path)
    for pid in Machine(tmp_path).started():
        if runs(pid):
            os.kill(pid, signal.SIGTERM)
            until("the daemon ends", lambda: not runs(pid))


class Machine:
    def __init__(self, folder):
        self.folder = folder

    def started(self):
        """Process ids of the daemons that were started, each with its environment."""
        return {
            int(path.name): dict(line.partition("=")[::2] for line in path.read_text().splitlines())
            for path in (self.folder / "started").iterdir()
        }

    def train(self, visible, *args):
        return subprocess.Popen(
            [str(TRAINER), DATA, "1000000", *args],
            env=os.environ | {"CUDA_VISIBLE_DEVICES": visible},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def test_two_trials_with_a_gpu_each_share_one_daemon(machine, batchctl):
    """Each trial sees one GPU, the first one starts the daemon, and both have their batches in the daemon's memory on their own GPU."""
    trials = [machine.train("0", "--job", "a"), machine.train("1", "--job", "b")]
    try:
        for trial in trials:
            assert trial.stdout.readline() == "attached\n", trial.communicate()
        gpus = until(
            "batches are copied to both GPUs",
            lambda: [
                g
                for g in json.loads(batchctl("status", "--json").stdout)["gpus"]
                if sum(c["copies"] for c in g["copies"]) > 4
            ][1:],
        )
        assert len(gpus) == 1 and len(machine.started()) == 1
        (environment,) = machine.started().values()
        assert (
            not environment.keys() & {"CUDA_VISIBLE_DEVICES", *OF_ONE_TRAINER} and environment["FAKECUDA_GPUS"] == "2"
        )
    finally:
        for trial in trials:
            trial.kill()
            trial.communicate()


def test_a_trainer_without_a_gpu_may_be_the_first(machine):
    """A script that hides all GPUs, like a script for the CPU, starts the daemon; the next script gets its batches from
    it on a GPU."""
    script = (
        f"import batchd; loader = batchd.DataLoader({DATA!r}, 16, arrays='numpy'); print(len(next(iter(loader))[0]))"
    )
    first = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert first.stdout == "16\n", first
    second = subprocess.run(
        [str(TRAINER), DATA, "20"],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert second.stdout.splitlines()[-1] == "20 batches, ipc, ", second
    assert len(machine.started()) == 1


def test_a_daemon_of_batchctls_own_sees_all_gpus_as_well(machine, batchctl, monkeypatch):
    """batchctl bench --private starts its daemon without the variables that concern one trainer only."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    ended = batchctl(
        "bench", "random:length=64,shape=4,dtype=uint8", "--private", "--epochs", "1", "--batch-size", "16", "--quiet"
    )
    assert ended.returncode == 0, ended
    (environment,) = machine.started().values()
    assert not environment.keys() & {"CUDA_VISIBLE_DEVICES", *OF_ONE_TRAINER}

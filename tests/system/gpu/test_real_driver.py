"""The behaviour for users with NVIDIA's driver and no usable GPU: a container without --gpus, a machine whose module is
not loaded, CUDA_VISIBLE_DEVICES="".

Uses the driver's own library, where it is installed or $REAL_LIBCUDA names one; on a machine with a GPU the driver is
told to hide it.
"""

import ctypes
import json
import os
import subprocess

import pytest

import batchd
from conftest import BUILD

LIBRARY = os.environ.get("REAL_LIBCUDA") or "libcuda.so.1"
DATA = "random:length=400,shape=3x32x32,dtype=uint8"
TRAINER = BUILD / "tests" / "tools" / "gpu-trainer"


@pytest.fixture(autouse=True)
def real(monkeypatch):
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as e:
        if "REAL_LIBCUDA" in os.environ:
            raise
        pytest.skip(f"no NVIDIA driver here: {e}")
    monkeypatch.setenv("BATCHD_LIBCUDA", LIBRARY)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def test_doctor_says_so_in_a_sentence(batchctl):
    """No GPU is no problem unless a GPU is required; control nodes in /dev are no GPU."""
    p = batchctl("doctor", "--json")
    found = {f["about"]: f for f in json.loads(p.stdout)["findings"]}
    assert p.returncode == 0, p.stdout + p.stderr
    assert (
        found["driver"]["state"] == "note"
        and "sees no GPU" in found["driver"]["text"]
        and "CUDA_VISIBLE_DEVICES" in found["driver"]["advice"]
    )
    n_gpus = sum(name.startswith("nvidia") and name[6:].isdigit() for name in os.listdir("/dev"))
    assert n_gpus or found["nodes"]["state"] == "note", found["nodes"]
    assert batchctl("doctor", "--gpu").returncode == 1


def test_a_trainer_that_wants_a_gpu_is_refused_in_words(make_daemon):
    """Refused before anything else, without a request to the daemon; without device= the same trainer works."""
    make_daemon()
    p = subprocess.run([str(TRAINER), DATA, "5"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert (
        p.returncode == 3
        and "no GPU can be used here: the NVIDIA driver sees no GPU (cuInit says CUDA_ERROR_NO_DEVICE)" in p.stdout
    ), p.stdout + p.stderr
    with batchd.DataLoader(DATA, batch_size=4, autostart=False) as loader:
        assert len(next(iter(loader))[0]) == 4


def test_a_daemon_that_sees_none_tells_its_trainers(make_daemon, monkeypatch):
    """The trainer's GPU is the fake driver's; the daemon's driver is NVIDIA's. The trainer copies by itself and knows
    why."""
    daemon = make_daemon()
    monkeypatch.setenv("BATCHD_LIBCUDA", str(BUILD / "libfakecuda.so"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    p = subprocess.run([str(TRAINER), DATA, "5"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert p.returncode == 0, p.stdout + p.stderr
    assert p.stdout.splitlines()[-1].startswith(
        "5 batches, copy, on the daemon's side: the NVIDIA driver sees no GPU (CUDA_ERROR_NO_DEVICE in cuInit)"
    ), p.stdout
    assert "no-device" in daemon.output()


def test_the_gpu_tests_see_that_there_is_none(build):
    """The question of check-gpu and bench-gpu before they use the driver."""
    p = subprocess.run(
        [str(build / "tests" / "gpu" / "conformance"), "--probe"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (p.returncode, p.stdout) == (77, ""), p.stdout + p.stderr

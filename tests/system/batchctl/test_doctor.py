"""batchctl doctor on the fake driver's personalities: its findings, its advice, and its exit code."""

import json
import os
import pathlib
import subprocess

import pytest
from test_reliability import needs_root


@pytest.fixture
def doctor(build, batchctl, monkeypatch, tmp_path):
    """Runs it in a folder of its own, as on a machine with that GPU."""
    fake = build / "libfakecuda.so"
    if not fake.exists():
        pytest.skip(f"{fake} is not built")
    monkeypatch.setenv("FAKECUDA_REPORT", str(tmp_path / "report"))
    monkeypatch.setenv("FAKECUDA_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def run(*args, personality="", library="libfakecuda.so", daemon=False):
        monkeypatch.setenv("BATCHD_LIBCUDA", str(build / library))
        monkeypatch.setenv("FAKECUDA_PERSONALITY", personality)
        if not daemon:
            monkeypatch.delenv("BATCHD_SOCKET", raising=False)
        p = batchctl("doctor", "--json", *args)
        said = json.loads(p.stdout)
        for report in tmp_path.glob("report.*"):  # of both processes
            assert report.read_text().splitlines()[-1] == "end 0 violations, 0 leaks", report.read_text()
            report.unlink()
        assert said["problems"] == sum(f["state"] == "problem" for f in said["findings"])
        assert p.returncode == (1 if said["problems"] else 0), p.stderr
        return said["findings"]

    return run


def about(findings, what):
    return [(f["state"], f["text"]) for f in findings if f["about"] == what]


def advice(findings, text):
    return [f.get("advice") for f in findings if text in f["text"]]


def test_a_healthy_gpu(doctor):
    """Found, pinned, shared between two processes, both of which leave nothing behind."""
    gpu = about(doctor(personality="read-only-register"), "GPU 0")
    assert [s for s, _ in gpu] == ["ok"] * 3
    assert "Fake GPU" in gpu[0][1] and "GPU-" in gpu[0][1] and "can be pinned" in gpu[1][1] and "CUDA IPC" in gpu[2][1]


def test_every_gpu_is_looked_at(doctor):
    """Two GPUs, each with its own lines."""
    findings = doctor(personality="two-gpus")
    assert len(about(findings, "GPU 0")) == len(about(findings, "GPU 1")) == 3
    assert "2 GPUs" in about(findings, "driver")[0][1]


@pytest.mark.parametrize(
    "personality,state,text",
    [
        ("no-ipc", "note", "cannot be shared by CUDA IPC"),
        ("mig", "note", "MIG instance"),
        ("", "note", "cannot be pinned"),
        ("exclusive", "problem", "compute mode is exclusive"),
        ("prohibited", "problem", "compute mode is prohibited"),
    ],
)
def test_what_a_gpu_cannot(doctor, personality, state, text):
    """Named with its severity: a feature that trainers can do without is a note."""
    assert (state, True) in [(s, text in t) for s, t in about(doctor(personality=personality), "GPU 0")]


@pytest.mark.parametrize(
    "personality,library,text",
    [
        ("no-device", "libfakecuda.so", "sees no GPU"),
        ("", "libfakecuda-old.so", "too old"),
        ("", "no-such-library.so", "no NVIDIA driver"),
    ],
)
def test_no_gpu_is_a_note_unless_one_is_wanted(doctor, personality, library, text):
    """A machine without a GPU has no problem; --gpu requires a GPU."""
    state, said = about(doctor(personality=personality, library=library), "driver")[0]
    assert state == "note" and text in said
    state, said = about(doctor("--gpu", personality=personality, library=library), "driver")[0]
    assert state == "problem" and text in said


def test_a_gpu_that_works_needs_no_node_of_a_known_name(doctor):
    """With --gpu, too: the driver finds it, whatever its node in /dev is called."""
    if any(os.path.exists(f"/dev/{name}") for name in ("nvidia0", "dxg", "nvhost-gpu")):
        pytest.skip("this machine has a GPU's node")
    assert [state for state, _ in about(doctor("--gpu"), "nodes")] == ["note"]


def test_a_driver_that_does_not_start_is_a_problem(doctor):
    """The libraries and the kernel's module differ."""
    findings = doctor(personality="mismatch")
    assert about(findings, "driver")[0][0] == "problem" and "restart" in advice(findings, "cuInit")[0]


@needs_root
@pytest.mark.parametrize(
    "nodes,state,text",
    [
        ("", "note", "no GPU's device node in /dev"),
        ("nvidiactl", "note", "only nvidiactl"),  # as the driver's library leaves it on a machine without a GPU
        (
            "nvidiactl nvidia-modeset nvidia-uvm nvidia0 nvidia13 nvidia-caps",
            "ok",
            "2 GPU device nodes in /dev, accessible",
        ),
        ("nvidiactl nvidia0", "note", "1 GPU device node in /dev, but no nvidia-uvm"),
        ("dxg", "ok", "1 GPU device node in /dev, accessible"),
        ("nvhost-gpu nvmap", "ok", "1 GPU device node in /dev, accessible"),
    ],
)
def test_device_nodes(build, tmp_path, nodes, state, text):
    """Only GPUs are counted, not the other devices of NVIDIA's driver in /dev; WSL2 and Jetson have others."""
    script = 'mount -t tmpfs none /dev && mknod /dev/null c 1 3 && for n in $1; do : >/dev/$n; done && exec "$0" doctor --json'
    p = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, str(build / "batchctl"), nodes],
        env=os.environ | {"BATCHD_LIBCUDA": "/nowhere", "XDG_RUNTIME_DIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if "findings" not in p.stdout:
        pytest.skip(f"no mount namespaces here: {p.stderr}")
    said = about(json.loads(p.stdout)["findings"], "nodes")
    assert said[0][0] == state and text in said[0][1], said


def test_a_call_that_fails_is_named(doctor, monkeypatch):
    """A GPU that is full, in this process and in the other."""
    monkeypatch.setenv("FAKECUDA_FAIL", "cuDevicePrimaryCtxRetain:1=2")
    findings = doctor()
    assert ("problem", True) in [
        (s, "cuDevicePrimaryCtxRetain says CUDA_ERROR_OUT_OF_MEMORY" in t) for s, t in about(findings, "GPU 0")
    ]
    assert "500 MB" in advice(findings, "cuDevicePrimaryCtxRetain")[0]
    monkeypatch.setenv("FAKECUDA_FAIL", "cuMemAlloc:1=2")
    assert ("note", True) in [(s, "cuMemAlloc says CUDA_ERROR_OUT_OF_MEMORY" in t) for s, t in about(doctor(), "GPU 0")]


def test_the_daemon(doctor, make_daemon, monkeypatch):
    """A running daemon of this version; a named daemon that does not answer is a problem, no daemon is none."""
    if not pathlib.Path("/run/batchd/batchd.socket").exists():  # this machine's own daemon would be found
        assert about(doctor(), "daemon")[0][0] == "note"
    monkeypatch.delenv("FAKECUDA_REPORT")  # other tests cover the daemon's report (test_doctor_daemon.py)
    daemon = make_daemon()
    assert about(doctor(daemon=True), "daemon") == [("ok", "batchd 0.1.0 answers")]
    assert about(doctor("--socket", daemon.socket), "daemon")[0][0] == "ok"
    state, text = about(doctor("--socket", "/nowhere/socket"), "daemon")[0]
    assert state == "problem" and "/nowhere/socket" in text


def test_for_people(build, batchctl, monkeypatch):
    """Lines, advice below them, and a sum."""
    monkeypatch.setenv("BATCHD_LIBCUDA", "/nowhere/libcuda.so.1")
    p = batchctl("doctor")
    assert "note     driver" in p.stdout and "-> install NVIDIA's driver" in p.stdout
    assert batchctl("doctor", "--gpu").stdout.rstrip().endswith("problems.")
    assert batchctl("doctor", "--gpus").returncode == 2

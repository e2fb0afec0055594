"""batchctl doctor with a daemon: on each GPU it opens a loader of the daemon as a trainer does, and explains by the
result what the differences between both sides mean."""

import json
import os
import shutil
import subprocess

import pytest
from conftest import BUILD, Daemon
from daemons import until
from test_reliability import needs_root, public  # noqa: F401

PROGRAM = BUILD / "batchctl"


@pytest.fixture
def place(public):  # noqa: F811
    """A folder that any user can reach, with batchctl and the fake driver in it, and the environment that both need."""
    if not (BUILD / "libfakecuda.so").exists():
        pytest.skip("make tests builds libfakecuda.so")
    for name in ("batchctl", "libfakecuda.so"):
        shutil.copy(BUILD / name, public)
    (public / "gpus").mkdir()
    (public / "gpus").chmod(0o1777)
    return Place(public)


class Place:
    def __init__(self, folder):
        self.folder = folder
        self.env = {
            "PATH": os.environ["PATH"],
            "BATCHD_LIBCUDA": str(folder / "libfakecuda.so"),
            "FAKECUDA_DIR": str(folder / "gpus"),
            "FAKECUDA_QUIET": "1",
        }

    def daemon(self, config="", **env):
        env = self.env | {"FAKECUDA_REPORT": str(self.folder / "daemon"), "FAKECUDA_ALLOW_THREADS": "batchd-gpu*"} | env
        return Running(self.folder, config, env)

    def doctor(self, daemon, before=(), user=None, **env):
        """Its findings, as (state, about, text, advice)."""
        who = dict(user=user, group=user, extra_groups=[]) if user else {}
        p = subprocess.run(
            [*before, str(self.folder / "batchctl"), "doctor", "--json", "--socket", str(daemon.socket)],
            env=self.env | env,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            **who,
        )
        assert p.stdout.startswith("{"), p
        return [(f["state"], f["about"], f["text"], f.get("advice") or "") for f in json.loads(p.stdout)["findings"]]


class Running:
    """A daemon on the fake driver for any user; at its end nothing may be left on the GPU."""

    def __init__(self, folder, config, env):
        self._folder, self._daemon = (
            folder,
            Daemon(folder, ["--linger", "0s"], "socket_mode: 0666\n" + config, env=os.environ | env),
        )
        self.socket = self._daemon.socket

    def __enter__(self):
        return self

    def status(self):
        return json.loads(
            subprocess.run(
                [PROGRAM, "status", "--json", "--socket", self.socket], capture_output=True, text=True
            ).stdout
        )

    def __exit__(self, kind, *_):
        if not kind:
            until("the loader has gone", lambda: not self.status()["sessions"])
        pid = self._daemon.pid
        self._daemon.stop()
        report = self._folder / f"daemon.{pid}"
        if report.exists() and not kind:
            assert report.read_text().splitlines()[-1] == "end 0 violations, 0 leaks", report.read_text()


def of_gpu(findings):
    """The finding about the daemon's batches on the GPU: one line."""
    (found,) = [
        (state, text) for state, about, text, _ in findings if about == "GPU 0" and "the daemon's batches" in text
    ]
    return found


def about(findings, what):
    return [(state, text, advice) for state, subject, text, advice in findings if subject == what]


def test_the_same_user_maps_the_daemons_memory(place):
    """The loader's batch is in mapped memory, both sides are the same, which one line says, and the loader is gone
    afterwards."""
    with place.daemon() as daemon:
        findings = place.doctor(daemon)
        state, text = of_gpu(findings)
        assert state == "ok" and "memory that trainers map" in text
        ((_, same, _),) = about(findings, "sides")
        assert f"the same user ({os.geteuid()}), the same PID, network and IPC namespaces, and CUDA driver 13.0" in same
        assert not about(findings, "user") + about(findings, "namespaces") + about(findings, "driver")[1:]


@needs_root
def test_another_user(place):
    """The finding follows the daemon's answer: with batches copied by the trainer it names the user as the difference,
    with advice."""
    with place.daemon() as daemon:
        findings = place.doctor(daemon, user=65533)
        state, text = of_gpu(findings)
        ((found, why, advice),) = about(findings, "user")
        assert why.startswith(f"the daemon runs as user {os.geteuid()} and you are 65533; ")
        if "copied" in text:
            assert state == found == "note" and "copy their batches by themselves" in why and "BATCHD_SOCKET" in advice
        else:
            assert state == found == "ok" and "can be mapped here all the same" in why and not advice


@pytest.mark.parametrize("namespace, name", [("--pid", "PID"), ("--net", "network"), ("--ipc", "IPC")])
@needs_root
def test_another_namespace(place, namespace, name):
    """The namespace is named, as harmless where the memory was mapped and with advice where it was not."""
    before = ["unshare", namespace, *(["--fork", "--mount-proc"] if namespace == "--pid" else [])]
    probe = subprocess.run([*before, "true"], capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"no {name} namespaces here: {probe.stderr}")
    with place.daemon() as daemon:
        findings = place.doctor(daemon, before=before)
        state, text = of_gpu(findings)
        ((found, why, advice),) = about(findings, "namespaces")
        assert f"the daemon is in another {name} namespace" in why
        if "copied" in text:
            assert state == found == "note" and f"{name} namespace: docker run" in advice
        else:
            assert state == found == "ok" and "can be mapped here all the same" in why and not advice


def test_another_driver(place):
    """The daemon still has the driver from before an update."""
    with place.daemon(FAKECUDA_VERSION="12040") as daemon:
        findings = place.doctor(daemon)
        if "copied" in of_gpu(findings)[1]:
            assert (
                "note",
                "the daemon has CUDA driver 12.4, and here it is CUDA driver 13.0; trainers here copy their batches by themselves",
                "use one release of the driver on both sides, and restart the daemon",
            ) in about(findings, "driver")


def test_a_driver_that_shares_nothing(place):
    """Nothing differs, so only the daemon's reason is reported."""
    with place.daemon(FAKECUDA_PERSONALITY="no-ipc") as daemon:
        findings = place.doctor(daemon, FAKECUDA_PERSONALITY="no-ipc")
        assert of_gpu(findings)[0] == "note" and not about(findings, "user") + about(findings, "namespaces")


@needs_root
def test_without_a_gpu_a_difference_is_no_fault(place):
    """There is nothing to try, so the finding states the fact without advice."""
    with place.daemon() as daemon:
        findings = place.doctor(daemon, user=65533, BATCHD_LIBCUDA="/nowhere/libcuda.so.1")
        ((state, text, advice),) = about(findings, "user")
        assert state == "ok" and "for batches on a GPU only" in text and not advice
        (_, theirs, _), (_, ours, _) = about(findings, "sides")
        pid, net = (os.stat(f"/proc/self/ns/{kind}").st_ino for kind in ("pid", "net"))
        for side, user in ((theirs, os.geteuid()), (ours, 65533)):
            assert f"user {user}, PID namespace {pid}, network {net}, IPC " in side
        assert "no CUDA driver in use" in ours


def test_a_loader_that_the_daemon_refuses(place):
    """The error that a trainer would get is a problem, in the daemon's words."""
    with place.daemon(config="pin_memory: on\npin_limit: 0%\n") as daemon:
        findings = place.doctor(daemon)
        ((state, text, _),) = [f for f in about(findings, "GPU 0") if "a loader with its batches there" in f[1]]
        assert state == "problem" and "pin_limit" in text
        assert len(about(findings, "sides")) == 1

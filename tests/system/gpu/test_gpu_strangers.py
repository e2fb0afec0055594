"""Batches on a GPU between processes that CUDA IPC does not connect: other users, other namespaces. The daemon's memory
comes as a descriptor (cuda-vmm-fd).

On the fake driver (tests/fake/cuda), whose reports list violations and leaks; daemon and trainers are processes of
their own.
"""

import atexit
import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

import batchd
import pytest

from conftest import BUILD
from daemons import settled_footprint, until
from fake_driver import LENGTH, REAL, DaemonOnDouble, Place, make_rows

TRAINER = BUILD / "tests" / "gpu" / "trainer"
DOUBLE = BUILD / "libfakecuda.so"
CUDA = (BUILD / ".cuda").read_text().strip() if (BUILD / ".cuda").exists() else "1"
pytestmark = [
    pytest.mark.skipif(
        not (TRAINER.exists() and DOUBLE.exists()), reason="needs `make tests`: the fake driver and its trainer"
    ),
    pytest.mark.skipif(CUDA == "0", reason="this build has no GPU support (CUDA=0)"),
    pytest.mark.skipif(REAL, reason="only the fake driver can be told to do this"),
    pytest.mark.skipif(os.geteuid() != 0, reason="becoming other users and making namespaces takes root"),
    pytest.mark.skipif(
        not (shutil.which("setpriv") and shutil.which("unshare")), reason="setpriv and unshare are not installed"
    ),
]

SERVICE, ALICE, BOB = 64001, 64002, 64003
BATCH = 8
MOST = 24
TRAIN = ["--rank", 0, "--world", 1, "--batch", BATCH, "--most", MOST, "--reconnect-ms", 20000]


def as_user(uid):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"]


def apart(*kinds):
    """In namespaces of its own; a PID namespace has a /proc of its own, too."""
    return [
        "unshare",
        *(f"--{kind}" for kind in kinds),
        *(["--fork", "--kill-child", "--mount-proc"] if "pid" in kinds else []),
        "--",
    ]


@pytest.fixture
def folder():
    """A folder in which every user may write, removed afterwards."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="batchd-strangers-"))
    path.chmod(0o1777)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def rows(folder):
    where = folder / "rows"
    where.mkdir()
    where.chmod(0o755)
    dataset = make_rows(where)
    for file in where.iterdir():
        file.chmod(0o644)
    return dataset


@functools.cache
def programs():
    """A build folder that other users reach: a home folder, and what lies below it, may be closed to them."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="batchd-strangers-programs-"))
    atexit.register(shutil.rmtree, path)
    path.chmod(0o755)
    for name in ("batchd", "batchctl", "libfakecuda.so", "tests/gpu/trainer"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(BUILD / name, path / name)
    return path


class Machine(Place):
    """A daemon that serves every user, itself run as `uid`."""

    def __init__(self, folder, uid=0, daemon_env=None, trainer_env=None):
        config = folder / "batchd.yaml"
        config.write_text("socket_mode: '0666'\nlinger: 0s\n")
        super().__init__(folder, daemon_env, trainer_env, ["--config", str(config)], programs())
        self.uid = uid

    def __enter__(self):
        self.daemon = ServiceOnDouble(self.folder, self.daemon_env, self.args, self.build, self.uid)
        return self

    def look(self):
        out = subprocess.run(
            [str(self.build / "batchctl"), "status", "--json", "--socket", self.trainer_env["BATCHD_SOCKET"]],
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(out.stdout)

    def slabs(self):
        return sum(gpu["slabs"] for gpu in self.look()["gpus"])


class ServiceOnDouble(DaemonOnDouble):
    def __init__(self, folder, env, args, build, uid):
        self.uid = uid
        super().__init__(folder, env, args, build)

    def start(self):
        if self.uid:
            self.argv = [*as_user(self.uid), *self.argv] if self.argv[0] != "setpriv" else self.argv
        super().start()


def assert_all(place, code, last, err, path="VMM"):
    assert code == 0 and last == f"end {MOST} batches by {path}", (last, err, place.daemon.output())


def settle(place):
    """After all of its trainers have ended: nothing of theirs is on the GPU. Returns the daemon's footprint."""
    until("its memory is freed", lambda: place.slabs() == 0)
    assert not any(name.startswith("/memfd:fakecuda ") for name in links(place.daemon.pid)), links(place.daemon.pid)
    return settled_footprint(place.daemon.pid)


def links(pid):
    """The targets of the process's descriptors."""
    found = []
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(os.readlink(fd))
        except FileNotFoundError:  # closed meanwhile
            pass
    return found


# ---- which trainers get a descriptor ----


@pytest.mark.parametrize(
    "service, trainer",
    [(0, ALICE), (SERVICE, ALICE), (SERVICE, 0)],
    ids=["root serves a user", "the service serves a user", "the service serves root"],
)
def test_another_users_trainer_maps_the_daemons_memory(rows, folder, service, trainer):
    """Every byte right, one import per trainer, no copy by the trainer, and nothing left on either side."""
    with Machine(folder, service) as place:
        seen = []
        for _ in range(2):
            assert_all(
                place,
                *place.train("--dataset", rows, "--job", "other", *TRAIN, before=as_user(trainer) if trainer else ()),
            )
            seen.append(settle(place))
        assert seen[0] == seen[1], "descriptors, threads and mappings of the daemon grow with each trainer"
    assert place.status == 0, place.daemon.output()
    place.assert_clean(2)
    for report in place.reports("trainer"):
        assert report.calls["cuMemImportFromShareableHandle"] == 1 and "cuIpcOpenMemHandle" not in report.calls
        assert report.counts.get("copies-to-device", 0) == 0
    assert (
        place.daemon_report().calls["cuMemExportToShareableHandle"] == 2
        and "cuIpcGetMemHandle" not in place.daemon_report().calls
    )


@pytest.mark.parametrize(
    "kinds",
    [["pid"], ["net"], ["ipc"], ["user", "map-root-user"], ["pid", "net", "ipc", "uts", "cgroup"]],
    ids=["pid", "net", "ipc", "user", "container"],
)
def test_a_trainer_in_another_namespace_maps_the_daemons_memory(rows, folder, kinds):
    """CUDA IPC cannot work between PID namespaces, and may fail between the others. In a user namespace it is tried,
    and its failure detected."""
    before = apart(*kinds)
    if subprocess.run([*before, "true"], capture_output=True).returncode:
        pytest.skip(f"this machine does not make such namespaces: {kinds}")
    with Machine(folder) as place:
        assert_all(place, *place.train("--dataset", rows, "--job", "apart", *TRAIN, before=before, FAKECUDA_DIR=""))
        settle(place)
    assert place.status == 0
    place.assert_clean(1)


def test_cuda_ipc_stays_first_where_it_works(rows, folder):
    """A trainer of the daemon's own user, in the same namespaces: no memory by descriptor is made."""
    with Machine(folder) as place:
        assert_all(place, *place.train("--dataset", rows, "--job", "same", *TRAIN), path="IPC")
    place.assert_clean(1)
    assert "cuMemCreate" not in place.daemon_report().calls


@pytest.mark.parametrize("side", ["daemon", "trainer"])
def test_where_cuda_ipc_fails_the_descriptor_takes_its_place(rows, folder, side):
    """No obstacle that is known in advance: the driver refuses CUDA IPC, to the daemon while it makes the memory, or to
    the trainer, which then opens again."""
    env = {"FAKECUDA_PERSONALITY": "no-legacy-ipc"}
    with Machine(
        folder, daemon_env=env if side == "daemon" else None, trainer_env=env if side == "trainer" else None
    ) as place:
        for _ in range(2):
            assert_all(place, *place.train("--dataset", rows, "--job", "failing", *TRAIN))
        settle(place)
    assert place.status == 0
    place.assert_clean(2)
    for report in place.reports("trainer"):
        assert report.calls.get("cuIpcOpenMemHandle", 0) == (side == "trainer"), "it is tried once in a process"


@pytest.mark.parametrize(
    "daemon_env, trainer_env, says",
    [
        (
            {"FAKECUDA_PERSONALITY": "no-vmm"},
            {},
            "batchd uses CUDA IPC between processes of one user only; by a descriptor: memory of Fake GPU 0 cannot be shared by a descriptor",
        ),
        (
            {},
            {"FAKECUDA_PERSONALITY": "no-vmm"},
            "batchd uses CUDA IPC between processes of one user only; by a descriptor: the trainer's GPU or driver cannot map memory",
        ),
        ({"FAKECUDA_FAIL": "cuMemCreate:*=2"}, {}, "by a descriptor: Fake GPU 0 has no "),
        (
            {},
            {"FAKECUDA_FAIL": "cuMemImportFromShareableHandle:*=800"},
            "mapping the daemon's memory by its descriptor does not work here: cuMemImportFromShareableHandle says CUDA_ERROR_NOT_PERMITTED",
        ),
    ],
    ids=[
        "the daemon's GPU cannot",
        "the trainer's GPU cannot",
        "no memory",
        "the trainer's driver will not",
    ],
)
def test_where_neither_works_the_trainer_copies_and_is_told_why(rows, folder, daemon_env, trainer_env, says):
    with Machine(folder, SERVICE, daemon_env, trainer_env) as place:
        code, last, err = place.train("--dataset", rows, "--job", "copies", *TRAIN, before=as_user(ALICE))
        assert code == 0 and last.startswith(f"end {MOST} batches by copy: ") and says in last, (
            last,
            err,
            place.daemon.output(),
        )
        settle(place)
    assert place.status == 0, place.daemon.output()
    for report in place.reports("daemon") + place.reports("trainer"):
        assert report.clean(), report.text


def test_gpu_memory_off_is_off_for_other_users(rows, folder):
    with Machine(folder, SERVICE) as place:
        pass
    place.args.extend(["--gpu-memory", "off"])
    with place:
        code, last, err = place.train("--dataset", rows, "--job", "off", *TRAIN, before=as_user(ALICE))
        assert code == 0 and "gpu_memory is off" in last, (last, err)
    assert all("cuInit" not in report.calls for report in place.reports("daemon"))


# ---- both kinds in one job ----


# A trainer that has taken all slots waits for the other one.
SHARED = ["--mode", "share", "--world", 2, "--batch", BATCH, "--most", MOST, "--slots", 8]


@pytest.mark.parametrize("first", ["by CUDA IPC", "by a descriptor"])
def test_trainers_of_one_job_on_both_sides_of_a_container(rows, folder, first):
    """The trainer that CUDA IPC reaches began first: the other gets memory of its own. In the other order both use the
    existing memory, which suits both."""
    with Machine(folder, daemon_env={"FAKECUDA_DIR": ""}, trainer_env={"FAKECUDA_DIR": ""}) as place:
        inside, outside = (
            ["unshare", "--pid", "--fork", "--kill-child", "--"],
            [],
        )  # in one mount namespace, otherwise their data sets would not be the same
        trainers, slabs = [], 1 if first == "by a descriptor" else 2
        for rank, before in enumerate([outside, inside] if first == "by CUDA IPC" else [inside, outside]):
            trainers.append(
                place.start("--dataset", rows, "--job", "both", "--rank", rank, "--seed", rank, *SHARED, before=before)
            )
            until(
                "the first has attached",
                lambda: rank or any(s["state"] == "attached" for s in place.look()["sessions"]),
            )
        for rank, trainer in enumerate(trainers):
            out, err = trainer.communicate(timeout=300)
            path = "IPC" if rank == 0 and slabs == 2 else "VMM"
            assert trainer.returncode == 0 and out.endswith(f"end {MOST} batches by {path}\n"), (
                out[-200:],
                err,
                place.daemon.output(),
            )
        settle(place)
    assert place.status == 0
    for report in place.reports("daemon") + place.reports("trainer"):
        assert report.clean() and report.ended, report.text
    calls = place.daemon_report().calls
    assert (calls.get("cuIpcGetMemHandle", 0), calls["cuMemExportToShareableHandle"]) == (slabs - 1, 1)


# ---- kill -9 ----


TRAINERS_CALLS = [
    "cuMemImportFromShareableHandle:1",
    "cuMemAddressReserve:1",
    "cuMemMap:1",
    "cuMemSetAccess:1",
    "cuEventRecord:1",
    "cuEventRecord:20",
    "cuMemUnmap:1",
    "cuMemRelease:1",
    "cuMemAddressFree:1",
]
DAEMONS_CALLS = [
    "cuMemGetAllocationGranularity:1",
    "cuMemCreate:1",
    "cuMemAddressReserve:1",
    "cuMemMap:1",
    "cuMemSetAccess:1",
    "cuMemsetD8Async:1",
    "cuMemExportToShareableHandle:1",
    "cuMemcpyHtoDAsync:1",
    "cuMemcpyHtoDAsync:12",
]


def test_a_trainer_that_is_killed_in_any_state_leaves_nothing(rows, folder):
    """Killed at each call for the daemon's memory, before, during and after mapping: the daemon frees it when the
    process has ended, and the next trainer gets every byte."""
    with Machine(folder, SERVICE) as place:
        assert_all(place, *place.train("--dataset", rows, "--job", "first", *TRAIN, before=as_user(ALICE)))
        before = settle(place)
        for call in TRAINERS_CALLS:
            code, last, err = place.train(
                "--dataset", rows, "--job", "killed", *TRAIN, before=as_user(ALICE), FAKECUDA_FAIL=f"{call}=-9"
            )
            assert code == -9, (call, code, last, err)
            assert settle(place) == before, call
        assert_all(place, *place.train("--dataset", rows, "--job", "killed", *TRAIN, before=as_user(ALICE)))
        assert settle(place) == before
        assert not place.look()["sessions"]
    assert place.status == 0
    place.assert_clean(2)


@pytest.mark.parametrize("call", DAEMONS_CALLS)
def test_a_daemon_that_is_killed_in_any_state_costs_no_byte(rows, folder, call):
    """Killed while it makes the memory, before it has sent it, while it copies: the trainer continues with the next
    daemon from where it was, its mappings are unmapped in order, every row is right."""
    with Machine(folder, SERVICE, daemon_env={"FAKECUDA_FAIL": f"{call}=-9"}) as place:
        trainer = place.start("--dataset", rows, "--job", "goes on", *TRAIN, before=as_user(ALICE))
        assert place.daemon.process.wait(300) == -9, place.daemon.output()
        del place.daemon.env["FAKECUDA_FAIL"]
        place.daemon.start()
        out, err = trainer.communicate(timeout=300)
        assert_all(place, trainer.returncode, out.strip().rpartition("\n")[2], err)
        settle(place)
    assert place.status == 0, place.daemon.output()
    assert all(report.clean() for report in place.reports("daemon") + place.reports("trainer"))
    assert sum(report.ended for report in place.reports("trainer")) == 1


def test_a_daemon_that_stops_waits_for_no_process_that_has_a_descriptor(rows, folder):
    """Sent memory stays readable, so the daemon ends at once although the stopped trainer has it mapped; the trainer
    continues with the next daemon, every row right."""
    with Machine(folder, SERVICE) as place:
        trainer = place.start(
            "--dataset",
            rows,
            "--job",
            "stopped",
            "--rank",
            0,
            "--world",
            1,
            "--batch",
            BATCH,
            "--most",
            200,
            "--delay-us",
            500,
            "--reconnect-ms",
            20000,
            before=as_user(ALICE),
        )
        until("it has its first batch", lambda: any(s["batches"] > 3 for s in place.look()["sessions"]))
        trainer.send_signal(signal.SIGSTOP)
        assert place.daemon.end() == 0, place.daemon.output()
        assert "gpu-left" not in place.daemon.output()
        place.daemon.start()
        trainer.send_signal(signal.SIGCONT)
        out, err = trainer.communicate(timeout=300)
        assert trainer.returncode == 0 and out.endswith("end 200 batches by VMM\n"), (
            out[-200:],
            err,
            place.daemon.output(),
        )
        settle(place)
    assert place.status == 0
    assert all(report.clean() and report.ended for report in place.reports("daemon") + place.reports("trainer"))


# ---- a driver that says no ----


@pytest.mark.parametrize("error", [2, 801, 999, 719], ids=["out of memory", "not supported", "unknown", "sticky"])
def test_cpu_trainers_and_the_daemon_survive_every_error(rows, folder, error):
    """Each call for memory by descriptor always ends in the error: the trainer on the GPU is told why and copies, a
    loader without a GPU continues, the daemon keeps running."""
    for call in sorted({call.partition(":")[0] for call in DAEMONS_CALLS} - {"cuMemcpyHtoDAsync"}):
        where = folder / call
        where.mkdir()
        where.chmod(0o1777)
        with Machine(where, SERVICE, daemon_env={"FAKECUDA_FAIL": f"{call}:*={error}"}) as place:
            cpu = batchd.DataLoader(
                rows,
                batch_size=BATCH,
                job="cpu",
                socket=place.trainer_env["BATCHD_SOCKET"],
                autostart=False,
                timeout=300,
                reconnect=0,
            )
            batches = iter(cpu)
            next(batches)
            assert cpu.transport == "memfd"
            code, last, err = place.train("--dataset", rows, "--job", "gpu", *TRAIN, before=as_user(ALICE))
            assert code == 0 and last.startswith(f"end {MOST} batches by copy: ") and call in last, (
                call,
                last,
                err,
                place.daemon.output(),
            )
            assert sum(1 for _ in batches) == LENGTH // BATCH - 1
            cpu.close()
            assert place.daemon.process.poll() is None, place.daemon.output()
            if error != 719:  # after this error no CUDA call follows, not even to free
                settle(place)
        assert place.status == 0, (call, place.daemon.output())
        assert not any(report.violations for report in place.reports("daemon") + place.reports("trainer"))
        assert all(report.clean() for report in place.reports("trainer"))

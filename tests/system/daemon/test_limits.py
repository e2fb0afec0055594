"""Limits of the machine and of one user, with real resources: a flood of connections, a file system that does not
answer, a small memory control group."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys

import pytest

from conftest import BUILD
from daemons import Daemon, until
from test_end_to_end import Trainer
from test_reliability import NO_LINGER, Wire, finish_as, needs_root, open_packet, public  # noqa: F401 (public is a fixture)

MIB = 1 << 20


def status_of(d):
    said = subprocess.run(
        [BUILD / "batchctl", "status", "--json", "--socket", d.socket],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


# ---- the log ----


def test_a_storm_of_refusals_is_one_record(make_daemon):
    # 2000 connections over the limit, then 2000 invalid messages: one record each, and the number of repetitions is
    # logged when the daemon ends.
    d = make_daemon(config=NO_LINGER + "limits:\n  sessions_per_user: 3\n")
    refused = 0
    with contextlib.ExitStack() as inside:
        for _ in range(3):
            wire = inside.enter_context(Wire(d.socket))
            wire.send(Wire.HELLO)
            assert wire.hear()
        for _ in range(2000):
            with Wire(d.socket) as wire:
                refused += b"sessions_per_user" in wire.hear()
    assert refused == 2000
    assert d.output().count("session-refused") == 1
    until("the three have left", lambda: not status_of(d)["sessions"])
    illegal = 0
    for _ in range(2000):
        with Wire(d.socket) as wire:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                wire.send(b"\xff\xff")
                illegal += b"illegal" in wire.hear()
    assert illegal == 2000
    assert d.output().count("session-refused") == 2
    assert "repeated" not in d.output()
    d.stop()
    last = [line for line in d.output().splitlines() if "repeated" in line]
    assert len(last) == 2 and sum(f"user {os.geteuid()} 1999 more times" in line for line in last) == 2, last


def nested(depth):
    """Open in Open in Open: lengths of three bytes."""
    packet = b""
    for _ in range(depth):
        n = len(packet)
        packet = bytes([0x12, n & 0x7F | 0x80, n >> 7 & 0x7F | 0x80, n >> 14]) + packet
    return packet


OFFENCES = {
    "no message": b"\xff\xff",
    "nested": nested(9000),
    "oversized": b"\x0a" * 70000,
    "out of place": Wire.HELLO,  # for the second time
    "foreign slot": b"\x2a\x04\x08\x07\x10\x09",  # Release before Opened
    "unread": Wire.STATUS,  # many of them
}


def test_each_kind_of_offender_is_one_record_and_disturbs_no_trainer(make_daemon):
    # Twenty of each kind, in turn, beside a trainer: two records, because all but one kind get the same refusal; the
    # rest are counted, and the count is logged at the end.
    d = make_daemon(config=NO_LINGER)
    trainer = Trainer("""
        with batchd.DataLoader("random:length=400,shape=4", batch_size=4, shuffle=True, seed=3, arrays="numpy", job="beside") as loader:
            for x, y in loader:
                say(indices=loader.last_batch.indices.tolist())
        """)
    refused = dict.fromkeys(OFFENCES, 0)
    for _ in range(20):
        for kind, packet in OFFENCES.items():
            with Wire(d.socket) as wire:
                wire.send(Wire.HELLO)
                wire.hear()
                with contextlib.suppress(OSError):
                    for _ in range(2000 if kind == "unread" else 1):
                        wire.send(packet)
                said = b"x"
                while said and not said.startswith(b":"):  # Error
                    said = wire.hear()
                refused[kind] += bool(said) or kind == "unread"  # its socket is full, so that it cannot be told
    assert refused == dict.fromkeys(OFFENCES, 20)
    batches = [said["indices"] for said in trainer.finish()]
    assert sorted(sum(batches, [])) == list(range(400))
    assert d.output().count("session-refused") == 2, d.output()
    d.stop()
    assert d.output().count("repeated:") == 2, d.output()
    assert "bad-sample" not in d.output()


# ---- a file system that hangs ----

# FUSE file systems whose servers never answer, in a mount namespace of its own; then the process becomes the daemon.
BESIDE_A_HUNG_MOUNT = """
import ctypes, os, resource, sys
libc = ctypes.CDLL(None, use_errno=True)
def must(r):
    if r:
        sys.exit(77)
mounts, uid, program = dict(text.split(":", 1) for text in sys.argv[1].split(",")), int(sys.argv[2]), sys.argv[4:]
must(libc.unshare(0x20000))
must(libc.mount(b"none", b"/", None, 0x44000, None))
for fd, folder in mounts.items():
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other"
    must(libc.mount(b"hung", folder.encode(), b"fuse", 0, options.encode()))
    os.close(int(fd))
if int(sys.argv[3]):
    resource.setrlimit(resource.RLIMIT_NPROC, (int(sys.argv[3]),) * 2)
os.setgid(uid), os.setuid(uid)
os.execv(program[0], program)
"""


class HungDaemon(Daemon):
    also = ()  # folders beside `hung` that are file systems, too
    uid = 0
    most_threads = 0  # 0: no limit

    def start(self):
        try:
            self.fuses = {name: os.open("/dev/fuse", os.O_RDWR) for name in ("hung", *self.also)}
        except OSError as e:
            pytest.skip(f"no FUSE here: {e}")
        self.fuse = self.fuses["hung"]
        for name in self.fuses:
            (self.folder / name).mkdir()
        mounts = ",".join(f"{fd}:{self.folder / name}" for name, fd in self.fuses.items())
        argv = [sys.executable, "-c", BESIDE_A_HUNG_MOUNT, mounts, str(self.uid), str(self.most_threads), *self.argv]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=self.fuses.values()
            )
        until("batchd listens", lambda: self.answers() or self.process.poll() is not None)
        if self.process.poll() == 77:
            self.give_up()
            pytest.skip("mounting is not allowed here")

    def give_up(self):
        """Ends the file systems: hanging calls fail."""
        for fd in self.fuses.values():
            os.close(fd)
        self.fuse = -1


@needs_root
def test_openings_that_hang_leave_threads_for_other_users(build, public, monkeypatch):  # noqa: F811
    # One user opens twelve data sets that do not answer; two hang (a quarter of the file system's eight threads), ten
    # wait, and another user gets an epoch.
    n, names = 12, "".join(f"  - name: hung{i}\n    source: imagefolder:{public}/hung\n" for i in range(12))
    d = HungDaemon(public, [], NO_LINGER + "socket_mode: 0666\nio_threads: 16\ndatasets:\n" + names)
    monkeypatch.setenv("BATCHD_SOCKET", str(d.socket))
    try:
        with contextlib.ExitStack() as stack:
            wires = [stack.enter_context(Wire(d.socket)) for _ in range(n)]
            for i, wire in enumerate(wires):
                wire.send(Wire.HELLO)
                assert wire.hear()
                wire.send(open_packet(f"hung{i}", job=f"job{i}"))
            until("every opening is there", lambda: len(status_of(d)["loaders"]) == n)
            until("openings hang", lambda: status_of(d)["workers"]["io_busy"] == 2)
            assert b"waiting for your other data sets" in wires[-1].hear()
            assert finish_as(
                65534,
                """
                loader = batchd.DataLoader("random:length=64,shape=4", batch_size=4)
                say(n=sum(1 for _ in loader))
                """,
            ) == [{"n": 16}]
            for wire in wires[6:]:  # these clients leave the queue
                wire.socket.close()
            # Two of the twelve, and not always the first ones, are at the server that hangs.
            stayed = {f"job{i}" for i in range(6)}

            def forgotten():
                jobs = {entry["job"] for entry in status_of(d)["loaders"]}
                return stayed <= jobs and len(jobs - stayed) <= 2

            until("who waited and left is forgotten", forgotten)
            d.give_up()
            for wire in wires[:6]:  # each opening had its turn, and failed
                said = wire.hear()
                while b"waiting" in said:
                    said = wire.hear()
                assert b"hung" in said
        until("all is given back", lambda: not status_of(d)["loaders"])
    finally:
        if d.fuse >= 0:
            d.give_up()
        d.stop()


# ---- a memory control group ----


class SmallGroup:
    """A memory control group inside this process's own, version 1 or 2; skips the test where it may not be created."""

    def __init__(self, limit):
        self.folder = None
        lines = [line.split(":", 2) for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines()]
        for _, controllers, path in lines:
            for root, limits, events in (
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control"),
                ("/sys/fs/cgroup", "memory.max", "memory.events"),
            ):
                if ("memory" in controllers.split(",")) != root.endswith("memory") or (
                    controllers and not root.endswith("memory")
                ):
                    continue
                folder = pathlib.Path(root + path) / f"batchd-test-{os.getpid()}"
                try:
                    folder.mkdir()
                except OSError:
                    continue
                try:
                    (folder / limits).write_text(str(limit))
                except OSError:
                    folder.rmdir()
                    continue
                self.folder, self.events = folder, folder / events
                return
        pytest.skip("no memory control group can be made here")

    def oom_kills(self):
        for line in self.events.read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
        return 0

    def remove(self):
        def gone():
            with contextlib.suppress(OSError):
                self.folder.rmdir()
            return not self.folder.exists()

        until("the control group is removed", gone)


class GroupedDaemon(Daemon):
    """Enters the group, then becomes batchd."""

    def __init__(self, group, *args, **more):
        self.group = group
        super().__init__(*args, **more)

    def start(self):
        self.argv = ["/bin/sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', str(self.group.folder), *self.argv]
        super().start()


@needs_root
@pytest.mark.parametrize("memory, budget_mib", [("auto", 24), ("48MiB", 48), ("1GiB", 72)])
def test_a_small_memory_group_is_respected(build, tmp_path, monkeypatch, memory, budget_mib):
    # 96 MiB: by default the budget is a quarter of it, and never more than three quarters. A request that does not fit
    # is refused by name, a window shrinks to the available memory, every slot is used, and no process is killed for
    # memory.
    if "asan" in build.name or "tsan" in build.name:
        pytest.skip("a sanitizer takes more memory than the group has")
    group = SmallGroup(96 * MIB)
    try:
        d = GroupedDaemon(group, tmp_path, [], NO_LINGER + f"memory: {memory}\nslots: 16\nworkers: 2\n")
        monkeypatch.setenv("BATCHD_SOCKET", str(d.socket))
        assert str(d.pid) in (group.folder / "cgroup.procs").read_text().split()
        budget = status_of(d)["memory"]["budget_bytes"]
        assert abs(budget - budget_mib * MIB) < 100
        assert ("memory-lowered" in d.output()) == (memory == "1GiB")
        refused = Trainer("""
            try:
                batchd.DataLoader("random:length=4096,shape=1048576,dtype=uint8", batch_size=60, job="big")
            except batchd.Error as e:
                say(text=str(e))
            """).finish()
        assert "memory" in refused[0]["text"] and "60" in refused[0]["text"], refused
        fits = Trainer("""
            loader = batchd.DataLoader("random:length=256,shape=1048576,dtype=uint8", batch_size=2, job="fits")
            say(n=sum(1 for _ in loader), window=loader._info.window)
            """).finish()[0]
        assert fits["n"] == 128 and 2 <= fits["window"] and fits["window"] * 2 <= budget_mib, fits
        d.stop()
        assert group.oom_kills() == 0
    finally:
        with contextlib.suppress(NameError, UnboundLocalError):
            if d.process.poll() is None:
                d.kill()
        group.remove()

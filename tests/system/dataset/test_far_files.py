"""Data sets on a server that stops answering, as a network file system hangs: a FUSE file system of the test's own (tests/fake/fuse/fuse.h), which is sent SIGSTOP."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import batchd

from conftest import BUILD
from daemons import until
from test_end_to_end import Trainer
from test_limits import HungDaemon, status_of
from test_reliability import NO_LINGER, Wire, finish_as, needs_root, open_packet, public  # noqa: F401 (public is a fixture)

HANG_S = 120
CACHES = {
    "read": "{decoded: off, jpeg: off}",
    "decoded": "{decoded: 500MiB, jpeg: off, filling: always}",
}


class FarDaemon(HungDaemon):
    """A daemon that sees `near` a second time as folder/hung, through a server that stop() and go_on() stop and
    continue."""

    def __init__(self, folder, near, config):
        self.near = near
        super().__init__(folder, [], config)

    def answers(self):
        # The mount has to exist first, although the daemon opens nothing before a request; it exists, because the
        # server has the descriptor from here on.
        if not hasattr(self, "servers"):
            self.servers = [
                subprocess.Popen([BUILD / "tests/tools/fuse", str(fd), str(self.near)], pass_fds=[fd])
                for fd in self.fuses.values()
            ]
            self.server = self.servers[0]
        return super().answers()

    def hang(self):
        self.server.send_signal(signal.SIGSTOP)
        until(
            "the server is stopped", lambda: open(f"/proc/{self.server.pid}/stat").read().rsplit(") ", 1)[1][0] == "T"
        )

    def go_on(self):
        self.server.send_signal(signal.SIGCONT)

    def give_up(self):
        """Also where nothing may be mounted: then start() skips the test."""
        super().give_up()
        for server in self.servers:
            server.kill()
            server.wait()

    def end(self):
        self.go_on()
        try:
            self.stop()
        finally:
            if self.fuse >= 0:
                self.give_up()


TWO_EPOCHS = """
    import hashlib
    loader = batchd.DataLoader({dataset!r}, 8, shuffle=True, job={job!r}, n_slots=2, arrays="numpy", **{options!r})
    for epoch in range(2):
        h, n = hashlib.sha1(), 0
        for batch in loader:
            for part in batch:
                h.update(np.ascontiguousarray(part).tobytes())
            n += loader.last_batch.n_replaced
        say(digest=h.hexdigest(), replaced=n)
        if {waits!r} and epoch == 0:
            sys.stdin.readline()
"""


def two_epochs(dataset, job, waits=False, **options):
    return Trainer(
        TWO_EPOCHS.format(dataset=dataset, job=job, waits=waits, options=options),
        stdin=subprocess.PIPE if waits else subprocess.DEVNULL,
    )


@needs_root
@pytest.mark.parametrize("case", [*CACHES, "npy"])
def test_a_server_that_hangs_holds_up_its_own_jobs_only(build, public, samples, monkeypatch, case):  # noqa: F811
    # Four jobs have had an epoch of the server's files, one of which is broken; in the second epoch it hangs. Jobs on
    # local files and on random data continue undisturbed with two workers; then the server answers, and the four jobs
    # get the same as the local ones.
    near = public / "near"
    shutil.copytree(samples, near)
    (next(p for p in near.iterdir() if p.is_dir()) / "broken.jpg").write_bytes(b"\xff\xd8 no picture")
    np.save(near / "x.npy", np.arange(96 * 64, dtype="float32").reshape(96, 64))
    options = {} if case == "npy" else {"transform": "val224", "dtype": "uint8"}
    kind, name = ("npy", "/x.npy") if case == "npy" else ("imagefolder", "")
    config = (
        NO_LINGER
        + f"workers: 2\nio_threads: 8\nbad_data: 100%\ncache: {CACHES.get(case, '{decoded: off}')}\ndatasets:\n"
    )
    config += (
        f"  - name: far\n    source: {kind}:{public}/hung{name}\n  - name: near\n    source: {kind}:{near}{name}\n"
    )
    d = FarDaemon(public, near, config)
    monkeypatch.setenv("BATCHD_SOCKET", str(d.socket))
    trainers = []
    try:
        expected = two_epochs("near", "expected", **options).finish()
        assert case == "npy" or expected[0]["replaced"] == 1
        trainers = [two_epochs("far", f"far{i}", True, **options) for i in range(4)]
        first = [t.hear() for t in trainers]
        d.hang()
        limit = threading.Timer(HANG_S, d.go_on)  # only turns a hang into a failure
        limit.start()
        for t in trainers:
            t.tell()
        assert first == [expected[0]] * 4
        said = Trainer("""
            loader = batchd.DataLoader("random:length=4096,shape=64", 8, job="random", arrays="numpy")
            say(n=sum(1 for _ in loader))
            """).finish()
        assert said == [{"n": 512}]
        assert two_epochs("near", "beside", **options).finish() == expected
        limit.cancel()
        assert sum(loader["dataset"] == "far" for loader in status_of(d)["loaders"]) == 4
        d.go_on()
        assert [t.finish()[-1] for t in trainers] == [expected[1]] * 4
    finally:
        for t in trainers:
            if t.process.poll() is None:
                t.kill()
        d.end()


class TwoServers(FarDaemon):
    also = ("other",)


def lanes(d):
    return {f["name"]: f for f in status_of(d)["file_systems"]}


@needs_root
def test_a_dead_mount_takes_nothing_from_its_own_users_other_data(build, public, samples, monkeypatch):  # noqa: F811
    # One user has four jobs on a server that hangs, and opens ten more data sets there. The user's data on another
    # server and on a local disk is opened and read as if nothing was wrong.
    near = public / "near"
    shutil.copytree(samples, near)
    config = NO_LINGER + "socket_mode: 0666\nworkers: 2\nio_threads: 8\ncache: {decoded: off, jpeg: off}\ndatasets:\n"
    for name, folder in (("far", public / "hung"), ("other", public / "other"), ("near", near)):
        config += f"  - name: {name}\n    source: imagefolder:{folder}\n"
    options = {"transform": "val224", "dtype": "uint8"}
    d = TwoServers(public, near, config)
    monkeypatch.setenv("BATCHD_SOCKET", str(d.socket))
    trainers = []
    try:
        expected = two_epochs("near", "expected", **options).finish()
        trainers = [two_epochs("far", f"far{i}", True, **options) for i in range(4)]
        assert [t.hear() for t in trainers] == [expected[0]] * 4
        d.hang()
        limit = threading.Timer(HANG_S, d.go_on)  # only turns a hang into a failure
        limit.start()
        for t in trainers:
            t.tell()
        trainers += [two_epochs("far", f"late{i}", **options) for i in range(10)]
        until("every opening is there", lambda: len(status_of(d)["loaders"]) == 14)
        until("the lane is full", lambda: lanes(d)[f"fuse at {public}/hung"]["io_busy"] == 4)
        hung = lanes(d)[f"fuse at {public}/hung"]
        assert hung["io_threads"] == 4 and hung["waiting"] > 9
        text = subprocess.run([BUILD / "batchctl", "status"], capture_output=True, text=True, check=True).stdout
        assert re.search(rf"^fuse at {public}/hung +4 of 4 +\d+ +\d", text, re.MULTILINE), text
        said = finish_as(
            65534,
            """
            say(names=[f["name"] for f in batchd.status()["file_systems"]])
            """,
        )
        assert said == [{"names": ["local disks", ""]}]
        for round in range(2):
            assert two_epochs("other", f"other{round}", **options).finish() == expected
            assert two_epochs("near", f"near{round}", **options).finish() == expected
        assert limit.is_alive(), "the server had to answer first"
        limit.cancel()
        assert lanes(d)[f"fuse at {public}/hung"]["longest_s"] > 0
        assert sum(loader["dataset"] == "far" for loader in status_of(d)["loaders"]) == 14
        d.go_on()
        assert [t.finish()[-1] for t in trainers] == [expected[1]] * 14
    finally:
        for t in trainers:
            if t.process.poll() is None:
                t.kill()
        d.end()


@needs_root
def test_a_user_has_so_many_file_systems(build, public, samples, monkeypatch):  # noqa: F811
    # One more is refused by name while loaders use them; a loader that only lingers makes room.
    near = public / "near"
    shutil.copytree(samples, near)
    config = "linger: 1h\nlimits: {file_systems_per_user: 1}\ndatasets:\n"
    for name, folder in (("far", "hung"), ("other", "other")):
        config += f"  - name: {name}\n    source: imagefolder:{public / folder}\n"
    d = TwoServers(public, near, config)
    monkeypatch.setenv("BATCHD_SOCKET", str(d.socket))
    options = {"transform": "val224", "dtype": "uint8", "arrays": "numpy"}
    try:
        far = batchd.DataLoader("far", 8, job="far", **options)
        same = batchd.DataLoader("far", 8, job="same", **options)
        with pytest.raises(batchd.LimitError, match=r"this user has data sets on 1 network file systems, all that "
                           r"limits.file_systems_per_user in .* allows: close loaders, or raise it"):  # fmt: skip
            batchd.DataLoader("other", 8, job="other", **options)
        assert [user["file_systems"] for user in status_of(d)["users"]] == [1]
        far.close()
        same.close()
        with batchd.DataLoader("other", 8, job="other", **options) as other:
            next(iter(other))
    finally:
        d.end()


@needs_root
@pytest.mark.timing
def test_a_daemon_ends_while_a_server_hangs(build, public, samples, monkeypatch):  # noqa: F811
    # Reads and openings hang when SIGTERM comes, and never return. The daemon ends all the same, before the unit's
    # time is up (TimeoutStopSec=20), and removes its socket.
    near = public / "near"
    shutil.copytree(samples, near)
    config = (
        NO_LINGER
        + f"workers: 2\ncache: {{decoded: off}}\ndatasets: [{{name: far, source: 'imagefolder:{public}/hung'}}]\n"
    )
    d = FarDaemon(public, near, config)
    monkeypatch.setenv("BATCHD_SOCKET", str(d.socket))
    trainers = []
    try:
        options = {"transform": "val224", "dtype": "uint8"}
        trainers = [two_epochs("far", "reads", True, **options)]
        trainers[0].hear()
        d.hang()
        trainers[0].tell()
        trainers.append(two_epochs("far", "opens", **options))
        until("a read and an opening hang", lambda: status_of(d)["workers"]["io_busy"] > 1)
        began = time.monotonic()
        d.process.send_signal(signal.SIGTERM)
        until("the socket is gone", lambda: not d.socket.exists(), 60)
        assert time.monotonic() - began < 20
        assert "has not answered for" in d.output() and "stopped: stopped" in d.output()
        d.go_on()  # the kernel keeps a thread whose request the server has read
        assert d.process.wait(60) == 0
    finally:
        for t in trainers:
            t.kill()
        d.end()


class ThreadsRunOut(FarDaemon):
    uid = 61234  # no other process is this user's, and for root there is no limit
    most_threads = 1 + 2 * 1 + 2  # as many as it has at the start


@needs_root
def test_a_file_system_that_can_have_no_thread_is_refused(build, public, samples, monkeypatch):  # noqa: F811
    # The error says which, why, and what to do; data on local disks is read all the same.
    near = public / "near"
    shutil.copytree(samples, near)
    os.chown(public, ThreadsRunOut.uid, ThreadsRunOut.uid)
    config = NO_LINGER + f"socket_mode: 0666\nworkers: 1\nio_threads: 2\nindex_cache: {public}/cache\ndatasets:\n"
    for name, folder in (("far", public / "hung"), ("near", near)):
        config += f"  - name: {name}\n    source: imagefolder:{folder}\n"
    d = ThreadsRunOut(public, near, config)
    monkeypatch.setenv("BATCHD_SOCKET", str(d.socket))
    options = {"transform": "val224", "dtype": "uint8", "arrays": "numpy"}
    try:
        with pytest.raises(
            batchd.Error, match=rf"no thread can be made to read fuse at {public}/hung: .*raise the limit of threads"
        ):
            batchd.DataLoader("far", 8, job="far", **options)
        assert not any(user["file_systems"] for user in status_of(d)["users"])
        with batchd.DataLoader("near", 8, job="near", **options) as loader:
            next(iter(loader))
    finally:
        d.end()


HOLDS_A_FILE = """
import ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
fd, folder = int(sys.argv[1]), sys.argv[2]
options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
if libc.unshare(0x20000) or libc.mount(b"none", b"/", None, 0x44000, None) or libc.mount(b"mine", folder.encode(), b"fuse", 0, options):
    sys.exit(77)
os.close(fd)
file = os.open(folder + "/file", os.O_RDONLY)
print("open", flush=True)
sys.stdin.readline()
kept = []
for packet in sys.argv[4:]:
    kept.append(s := socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    s.connect(sys.argv[3])
    socket.send_fds(s, [bytes.fromhex(HELLO)], [])
    s.recv(65536)
    socket.send_fds(s, [bytes.fromhex(packet)], [file] * (200 if packet == "ffff" else 1))
    while packet != OPEN and s.recv(65536):
        pass
print("sent", flush=True)
sys.stdin.readline()
"""


@needs_root
def test_a_file_whose_closing_hangs_does_not_stop_the_daemon(make_daemon, tmp_path):
    # A client sends descriptors of a file whose server no longer answers: more than a packet may have, one with a
    # second Hello, and one with an Open that does not need it. Closing such a file waits for its server; the daemon
    # answers other clients all the same.
    d = make_daemon(config=NO_LINGER)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "file").write_bytes(b"x")
    (tmp_path / "mine").mkdir()
    try:
        fuse = os.open("/dev/fuse", os.O_RDWR)
    except OSError as e:
        pytest.skip(f"no FUSE here: {e}")
    server = subprocess.Popen([BUILD / "tests/tools/fuse", str(fuse), str(tmp_path / "files")], pass_fds=[fuse])
    taken = open_packet("random:length=8,shape=2").hex()
    said = f"HELLO, OPEN = {Wire.HELLO.hex()!r}, {taken!r}" + HOLDS_A_FILE
    client = subprocess.Popen(
        [sys.executable, "-c", said, str(fuse), str(tmp_path / "mine"), str(d.socket), "ffff", Wire.HELLO.hex(), taken],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=[fuse],
    )
    os.close(fuse)
    try:
        if client.stdout.readline() != "open\n":
            pytest.skip("mounting is not allowed here")
        server.send_signal(signal.SIGSTOP)
        client.stdin.write("\n")
        client.stdin.flush()
        assert client.stdout.readline() == "sent\n"
        for _ in range(2):
            assert "sessions" in status_of(d)
        server.send_signal(signal.SIGCONT)
    finally:
        server.kill()
        server.wait()
        client.kill()
        client.wait()

"""Failures on a shared machine, in small: processes that are killed, stopped, forked or hostile, full tables, full
disks.

After each: the other clients get byte for byte the same as without it, and the daemon is as before (slots, sessions,
descriptors, threads).
"""

import contextlib
import itertools
import json
import os
import pathlib
import random
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time

import batchd
import pytest

from conftest import BUILD
from daemons import REPO, Daemon, STOP_S, WIRE_VERSION, footprint, in_time, settled_footprint, until
from test_end_to_end import Trainer, epoch_script, rows_of, torch_order

sys.path.append(str(REPO / "tests" / "attack"))
from wire import encode, sources  # noqa: E402

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
NO_LINGER = "linger: 0s\n"


def status():
    import batchd

    return batchd.status()


def resting(d):
    """The footprint of a daemon that has started completely and has served a client."""
    import batchd

    with batchd.DataLoader("random:length=64,shape=4", batch_size=4, arrays="numpy", job="warm-up") as loader:
        assert sum(1 for _ in loader) == 16
    until("the warm-up has left", lambda: not status()["sessions"] and not status()["loaders"])
    return settled_footprint(d.pid)


def assert_idle_again(pid, before):
    """No session, no loader, no slot charged, and the process has the same resources as before."""
    until("the last session leaves", lambda: not status()["sessions"] and not status()["loaders"])
    assert status()["memory"]["slots_bytes"] == 0
    until(f"descriptors, threads and slabs {before} again, not {footprint(pid)}", lambda: footprint(pid) == before)


def cpu_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def public(tmp_path_factory):
    """A folder that other users can reach, unlike pytest's own."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="batchd-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


class Wire:
    """A client of the test's own, packet by packet, for messages that libbatchd never sends."""

    HELLO = b"\x0a\x05\x08%c\x12\x01t" % WIRE_VERSION
    CLOSE = b"\x42\x00"
    STATUS = b"\x3a\x00"

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(300)
        self.socket.connect(str(path))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, packet, fds=()):
        socket.send_fds(self.socket, [packet], list(fds))

    def hear(self):
        """One packet; b"" at the end of the connection."""
        try:
            return self.socket.recv(65536)
        except ConnectionError:
            return b""


# ---- trainers that die ----


@pytest.mark.long("forty kills; test_exactly_once.py has a few")
def test_a_trainer_killed_forty_times_gets_every_sample_once(make_daemon, samples):
    # Killed while it holds batches, resumed from its checkpoint each time: the golden list, and a daemon as before.
    d = make_daemon(config=NO_LINGER)
    dataset, order = f"imagefolder:{samples}", []
    golden = rows_of(Trainer(epoch_script(dataset, batch_size=2, seed=5, job="golden")).finish())
    before = resting(d)
    random.seed(1)
    state, rows, n_kills = None, {}, 0
    while len(order) < 96:
        trainer = Trainer(
            """
            loader = batchd.DataLoader(%r, batch_size=2, shuffle=True, seed=5, transform="train224", dtype="uint8", job="kill")
            state = json.loads(%r)
            if state:
                loader.load_state_dict(state)
            held = []
            for images, labels in loader:
                held = held[-1:] + [images]
                say(indices=loader.last_batch.indices.tolist(), digests=digests(images), state=loader.state_dict())
            """
            % (dataset, json.dumps(state))
        )
        for _ in range(1 if n_kills < 32 else 2):
            if len(order) == 96:
                break
            said = trainer.hear()
            order += said["indices"]
            rows.update(rows_of([said]))
            state = said["state"]
        trainer.kill()
        n_kills += 1
    assert n_kills >= 40
    assert order == torch_order(96, 1, 0, 5, 0) and rows == golden
    assert_idle_again(d.pid, before)


def test_a_daemon_killed_ten_times_costs_two_ranks_nothing(make_daemon, samples):
    # Both continue by themselves and end with the same list as without the kill.
    d = make_daemon()
    dataset = f"imagefolder:{samples}"
    script = (
        """
        import warnings
        warnings.simplefilter("ignore")
        loader = batchd.DataLoader(%r, batch_size=2, shuffle=True, seed=8, transform="train224", job="crash", dtype="uint8")
        for images, labels in loader:
            say(indices=loader.last_batch.indices.tolist(), digests=digests(images))
            sys.stdin.readline()
        """
        % dataset
    )
    alone = [
        rows_of(Trainer(epoch_script(dataset, batch_size=2, seed=8, job="alone"), r, 2).finish()) for r in range(2)
    ]
    trainers = [Trainer(script, r, 2, stdin=subprocess.PIPE) for r in range(2)]
    said = [[], []]
    for step in range(24):
        for rank, trainer in enumerate(trainers):
            said[rank].append(trainer.hear())
        if step % 2 and step < 20:
            d.kill()
            d.start()
        for trainer in trainers:
            trainer.tell()
    for rank, trainer in enumerate(trainers):
        assert trainer.finish() == []
        assert [i for b in said[rank] for i in b["indices"]] == torch_order(96, 2, rank, 8, 0)
        assert rows_of(said[rank]) == alone[rank]


class Fickle(threading.Thread):
    """A proxy between a trainer and its daemon. It hangs up on the trainer's first message after the answer to Open:
    n_let_go times, then no more."""

    def __init__(self, path, daemon, n_let_go):
        super().__init__(daemon=True)
        self.daemon_socket, self.n_let_go, self.n_heard = str(daemon.socket), n_let_go, 0
        self.door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.door.bind(str(path))
        self.door.listen(64)
        self.start()

    def run(self):
        while True:
            trainer, _ = self.door.accept()
            threading.Thread(target=self.pass_on, args=(trainer,), daemon=True).start()

    def pass_on(self, trainer):
        opened = False
        with contextlib.suppress(ConnectionError), trainer, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as d:
            d.connect(self.daemon_socket)
            while True:
                for s in select.select([trainer, d], [], [])[0]:
                    bytes_, fds, _, _ = socket.recv_fds(s, 1 << 17, 8)
                    if not bytes_:
                        return
                    if s is trainer and opened and self.n_heard < self.n_let_go:
                        self.n_heard += 1
                        return
                    opened |= s is d and bool(fds)
                    socket.send_fds(d if s is trainer else trainer, [bytes_], fds)
                    for fd in fds:
                        os.close(fd)


def test_a_daemon_that_comes_back_only_to_go_again(daemon, tmp_path):
    """The daemon accepts its trainer and is gone before the first batch, each time: that counts as being away. The
    trainer tries with pauses until its deadline, and then raises an error; if batches come again in time, nothing was
    lost."""
    options = dict(batch_size=4, arrays="numpy", autostart=False, socket=str(tmp_path / "fickle"), shuffle=False)
    fickle = Fickle(tmp_path / "fickle", daemon, 200)
    with batchd.DataLoader("random:length=40,shape=3", job="patience", reconnect=1.5, **options) as loader:
        with pytest.raises(ConnectionError, match="went away"):
            next(iter(loader))
    assert 2 <= fickle.n_heard < 20, fickle.n_heard
    fickle.n_let_go = fickle.n_heard + 3
    with pytest.warns(RuntimeWarning), batchd.DataLoader(
        "random:length=40,shape=3", job="luck", reconnect=60, **options
    ) as loader:
        assert sum(len(labels) for _, labels in loader) == 40
    assert fickle.n_heard == fickle.n_let_go


def test_a_stopped_trainer_keeps_what_it_holds_and_holds_up_no_other(daemon, samples):
    # SIGSTOP while its whole window is lent: the other rank gets its epoch, other jobs too, and after SIGCONT no byte
    # of its batches has changed.
    dataset = f"imagefolder:{samples}"
    alone = Trainer(epoch_script(dataset, batch_size=4, job="alone"), 0, 2).finish()
    stopped = Trainer(
        """
        loader = batchd.DataLoader(%r, batch_size=4, shuffle=True, transform="train224", job="stop", dtype="uint8")
        held = []
        for images, labels in loader:
            held.append((images, digests(images)))
            if len(held) == loader._info.window - 1:
                break
        say(held=len(held))
        sys.stdin.readline()
        say(same=all(digests(images) == before for images, before in held))
        """
        % dataset,
        1,
        2,
        stdin=subprocess.PIPE,
    )
    n = stopped.hear()["held"]
    assert n >= 2
    stopped.process.send_signal(signal.SIGSTOP)
    assert Trainer(epoch_script(dataset, batch_size=4, job="stop"), 0, 2).finish() == alone
    assert len(Trainer(epoch_script(dataset, batch_size=4, job="other", seed=9)).finish()) == 24
    # A successor takes over its rank while it still exists and holds batches.
    assert len(Trainer(epoch_script(dataset, batch_size=4, job="stop"), 1, 2).finish()) == 12
    stopped.process.send_signal(signal.SIGCONT)
    stopped.tell()
    assert stopped.hear() == {"same": True}
    stopped.finish()


HOLDER = """
    loader = batchd.DataLoader(%r, batch_size=4, shuffle=True, transform="train224", job="orphan", dtype="uint8")
    held = []
    for images, labels in loader:
        held.append((images, digests(images)))
        if len(held) == 3:
            break
"""


def test_a_forked_child_that_keeps_the_socket_does_not_keep_the_slots(make_daemon, samples):
    # The trainer dies, its child lives on with a copy of the socket: the leases end with the process that took them.
    d = make_daemon(config=NO_LINGER)
    before = resting(d)
    trainer = Trainer(
        HOLDER % f"imagefolder:{samples}"
        + """
    child = os.fork()
    if child == 0:
        os.close(1), os.close(2)
        sys.stdin.read()
        os._exit(0)
    say(child=child)
    time.sleep(600)
    """,
        stdin=subprocess.PIPE,
    )
    trainer.hear()
    assert status()["sessions"][0]["held"] >= 3
    trainer.process.kill()
    trainer.process.wait()
    until("the leases of the dead trainer end", lambda: not status()["sessions"])
    assert_idle_again(d.pid, before)
    trainer.process.stdin.close()  # the child leaves


def test_a_client_that_closes_the_socket_and_lives_keeps_its_slots(make_daemon, samples):
    # A hang-up does not end the mapping: until the process ends no slot is reused, whichever client needs slots; then
    # all of them come back.
    d = make_daemon(config=NO_LINGER)
    dataset = f"imagefolder:{samples}"
    before = resting(d)
    trainer = Trainer(
        HOLDER % dataset
        + """
    for fd in os.listdir("/proc/self/fd"):
        try:
            if os.readlink("/proc/self/fd/" + fd).startswith("socket:"):
                os.close(int(fd))
        except OSError:
            pass
    say(closed=True)
    sys.stdin.readline()
    say(same=all(digests(images) == before for images, before in held))
    os._exit(0)
    """,
        stdin=subprocess.PIPE,
    )
    trainer.hear()
    orphan = until("the session is an orphan", lambda: [s for s in status()["sessions"] if "gone" in s["state"]])[0]
    assert orphan["held"] >= 3
    for _ in range(2):
        assert len(Trainer(epoch_script(dataset, batch_size=4, job="orphan")).finish()) == 24
    assert status()["memory"]["slots_bytes"] > 0
    trainer.tell()
    assert trainer.hear() == {"same": True}
    trainer.process.wait()
    assert_idle_again(d.pid, before)


def test_fork_in_a_trainer_leaves_the_parent_alone(daemon, samples):
    # The child gets an error that says what is wrong; the parent's epoch is unchanged, also with a forking torch
    # DataLoader beside it.
    pytest.importorskip("torch")
    dataset = f"imagefolder:{samples}"
    alone = Trainer(epoch_script(dataset, batch_size=8, job="alone")).finish()
    said = Trainer(
        """
        import torch
        class Squares(torch.utils.data.Dataset):
            def __len__(self):
                return 12
            def __getitem__(self, i):
                return i * i
        forking = iter(torch.utils.data.DataLoader(Squares(), num_workers=2, multiprocessing_context="fork"))
        loader = batchd.DataLoader(%r, batch_size=8, shuffle=True, transform="train224", job="fork", dtype="uint8")
        for images, labels in loader:
            b = loader.last_batch
            if b.step in (2, 7):
                child = os.fork()
                if child == 0:
                    code = 1
                    try:
                        next(iter(loader))
                    except batchd.ForkedError as e:
                        code = 42 if "child" in str(e) or "fork" in str(e) else 2
                    finally:
                        os._exit(code)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
            assert next(forking).item() == b.step ** 2
            say(epoch=b.epoch, step=b.step, indices=b.indices.tolist(), padding=b.n_padding, labels=labels.tolist(), digests=digests(images))
        """
        % dataset
    ).finish()
    assert said == alone


# ---- many clients ----


def paced(dataset, job="crowd", **more):
    """A trainer that takes a batch each time it is told to, and reports it."""
    return Trainer(
        """
        loader = batchd.DataLoader(%r, batch_size=4, shuffle=True, transform="train224", job=%r, dtype="uint8")
        for images, labels in loader:
            b = loader.last_batch
            say(epoch=b.epoch, step=b.step, indices=b.indices.tolist(), padding=b.n_padding, labels=labels.tolist(), digests=digests(images))
            sys.stdin.readline()
        """
        % (dataset, job),
        stdin=subprocess.PIPE,
        **more,
    )


def rest_of(trainer):
    """Lets it run to the end of its epoch; unread lines come first."""
    trainer.process.stdin.close()
    return trainer.finish()


def test_a_storm_of_connections_disturbs_no_trainer(make_daemon, samples):
    # 3000 times hello and close, as fast as possible: the trainer's batches are right, and nothing of the flood
    # remains.
    d = make_daemon(config=NO_LINGER)
    dataset = f"imagefolder:{samples}"
    alone = Trainer(epoch_script(dataset, batch_size=4, job="alone")).finish()
    before = resting(d)
    trainer = paced(dataset)
    said = [trainer.hear()]
    for i in range(3000):
        with Wire(d.socket) as wire:
            wire.send(Wire.HELLO)
            if i % 3 == 0:
                assert wire.hear()
            if i % 2:
                with contextlib.suppress(BrokenPipeError):
                    wire.send(Wire.CLOSE)
        if i % 500 == 0:
            trainer.tell()
            said.append(trainer.hear())
    assert said + rest_of(trainer) == alone
    assert_idle_again(d.pid, before)


CROWD = NO_LINGER + "limits:\n  sessions: 2000\n  sessions_per_user: 2000\n  pending: 2000\n  hello_timeout: 2s\n"


@pytest.mark.timing
@pytest.mark.long("a crowd of clients")
def test_too_few_descriptors_for_a_crowd_pause_the_door_and_nothing_else(make_daemon, samples):
    # 64 descriptors, 200 silent connections: the connected trainer continues without a bad sample, the loop does not
    # spin, and afterwards every client is accepted again.
    d = make_daemon("--workers", 2, config=CROWD)
    dataset = f"imagefolder:{samples}"
    alone = Trainer(epoch_script(dataset, batch_size=4, job="alone")).finish()
    before = resting(d)
    resource.prlimit(d.pid, resource.RLIMIT_NOFILE, (64, 64))
    trainer = paced(dataset)
    said = [trainer.hear()]
    crowd = [Wire(d.socket) for _ in range(200)]
    until("the door is closed", lambda: "listener-paused" in d.output())
    for _ in range(10):
        trainer.tell()
        said.append(trainer.hear())
    began, used = time.monotonic(), cpu_s(d.pid)
    for wire in crowd:  # each is told in its turn that it has not said hello
        assert wire.hear()
    in_time(cpu_s(d.pid) - used < 0.2 * (time.monotonic() - began) + 0.2)
    assert len(os.listdir(f"/proc/{d.pid}/fd")) <= 64
    for wire in crowd:
        wire.socket.close()
    assert said + rest_of(trainer) == alone
    assert d.output().count("listener-paused") <= 3
    assert "bad-sample" not in d.output()
    assert_idle_again(d.pid, before)


def processor_ns(pid):
    """CPU time of all threads in nanoseconds, because the clock ticks of /proc/PID/stat are too coarse."""
    return sum(int(task.read_text().split()[0]) for task in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"))


@pytest.mark.timing
@pytest.mark.parametrize("limit", [64, "what is open"])
def test_without_descriptors_left_the_daemon_rests_and_recovers(make_daemon, limit):
    # Near the limit connections are not accepted; at the limit they cannot be, not even to be refused. In neither case
    # does the loop spin while 200 of them wait for a second; and a moment after there is room again a well-behaved
    # client is answered.
    d = make_daemon("--workers", 2, config=CROWD.replace("300ms", "1min"))
    before = resting(d)
    _, hard = resource.prlimit(d.pid, resource.RLIMIT_NOFILE)
    few = limit if limit == 64 else before[0]
    resource.prlimit(d.pid, resource.RLIMIT_NOFILE, (few, hard))
    crowd = [Wire(d.socket) for _ in range(200)]
    until("the door is closed", lambda: "listener-paused" in d.output())
    began, used = time.monotonic_ns(), processor_ns(d.pid)
    time.sleep(1)
    in_time(processor_ns(d.pid) - used < 0.05 * (time.monotonic_ns() - began))
    assert len(os.listdir(f"/proc/{d.pid}/fd")) <= few
    for wire in crowd:
        wire.socket.close()
    resource.prlimit(d.pid, resource.RLIMIT_NOFILE, (max(few, 64), hard))
    with Wire(d.socket) as wire:
        wire.send(Wire.HELLO)
        assert wire.hear()
    assert d.output().count("listener-paused") == 1
    assert_idle_again(d.pid, before)


def open_packet(dataset, job="flood"):
    values = {"sources": sources(dataset), "batch_size": 4, "world_size": 1, "job": job, "ring": 1}
    return encode("ClientMessage", {"open": values})


def test_descriptors_that_no_message_asks_for_are_closed(make_daemon, tmp_path):
    # With Open, with messages that may not have descriptors, too many, and of every kind: none stays open.
    d = make_daemon(config=NO_LINGER)
    before = resting(d)
    os.mkfifo(tmp_path / "fifo")
    kinds = [
        os.open(tmp_path, os.O_RDONLY),
        os.open("/dev/null", os.O_RDWR),
        os.open(tmp_path / "fifo", os.O_RDWR),
        os.memfd_create("x"),
    ]
    floods = [
        (open_packet("random:length=8,shape=2"), kinds),
        (open_packet(f"imagefolder:{tmp_path}"), kinds),
        (open_packet("npy:/x.npy"), kinds),
        (Wire.CLOSE, kinds),
        (Wire.STATUS, kinds),
        (Wire.HELLO, kinds),
        (open_packet("files:/x"), kinds * 30),
        (b"\xff\xff", kinds),
    ]
    for packet, fds in floods * 25:
        with Wire(d.socket) as wire:
            wire.send(Wire.HELLO)
            wire.hear()
            with contextlib.suppress(BrokenPipeError):
                wire.send(packet, fds)
                wire.hear()
    for fd in kinds:
        os.close(fd)
    assert_idle_again(d.pid, before)


def test_a_client_that_says_nothing_or_reads_nothing_is_shown_out(make_daemon, samples):
    # Silent clients are disconnected by the clock, a client that asks and does not read by the length of its queue; a
    # trainer beside them gets its epoch.
    d = make_daemon(config=NO_LINGER + "limits:\n  hello_timeout: 2s\n")
    dataset = f"imagefolder:{samples}"
    alone = Trainer(epoch_script(dataset, batch_size=4, job="alone")).finish()
    before = resting(d)
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(Wire(d.socket)) for _ in range(20)]
        greedy = stack.enter_context(Wire(d.socket))
        greedy.send(Wire.HELLO)
        greedy.socket.settimeout(0.5)
        with pytest.raises(OSError):  # disconnected, or its own queue is full
            for _ in range(100000):
                greedy.send(Wire.STATUS)
        assert Trainer(epoch_script(dataset, batch_size=4, job="beside")).finish() == alone
        assert all(b"no hello" in wire.hear() for wire in silent)
        assert int(pathlib.Path(f"/proc/{d.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") < 1 << 30
    assert_idle_again(d.pid, before)


@needs_root
def test_a_user_who_fills_the_waiting_room_shuts_no_other_user_out(build, public, monkeypatch):
    # As many silent connections of one user as allowed: further ones of that user are refused, another user's trainer
    # is accepted.
    d = Daemon(public, [], "socket_mode: 0666\nlimits:\n  pending: 16\n  hello_timeout: 1min\n")
    try:
        monkeypatch.setenv("BATCHD_SOCKET", str(d.socket))
        with contextlib.ExitStack() as stack:
            silent = [stack.enter_context(Wire(d.socket)) for _ in range(16)]
            assert b"hello" in stack.enter_context(Wire(d.socket)).hear()
            other = """
                with batchd.DataLoader("random:length=64,shape=4", batch_size=4) as loader:
                    say(n=sum(1 for _ in loader))
                """
            assert finish_as(65533, other) == [{"n": 16}]
            silent[0].send(Wire.HELLO)
            assert silent[0].hear()
    finally:
        d.stop()


class DaemonAs(Daemon):
    """A daemon of another user, run from a copy that this user may read, with 64 descriptors."""

    def __init__(self, uid, folder, config):
        self.uid = uid
        shutil.copy(BUILD / "batchd", folder)
        os.chown(folder, uid, uid)
        super().__init__(folder, [], config)

    def start(self):
        self.argv = [
            "sh",
            "-c",
            'ulimit -n 64; exec "$@"',
            "sh",
            "setpriv",
            f"--reuid={self.uid}",
            f"--regid={self.uid}",
            "--clear-groups",
            str(self.folder / "batchd"),
            *self.argv[1:],
        ]
        super().start()


@pytest.mark.timing
@needs_root
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
def test_descriptors_of_others_on_their_way_only_delay_ours(build, public, monkeypatch):
    # Another process of the daemon's user has so many descriptors in flight that the kernel lets the daemon send no
    # slab: the trainer waits, the loop does not spin, and continues by itself.
    d = DaemonAs(65533, public, NO_LINGER)
    try:
        monkeypatch.setenv("BATCHD_SOCKET", str(d.socket))
        hoarder = Trainer(
            """
            import socket
            os.setgroups([])
            os.setresuid(65533, 65533, 65533)
            a, b = socket.socketpair()
            for i in range(10):
                socket.send_fds(a, [b"x"], [1] * 20)
            say(ready=True)
            sys.stdin.readline()
            """,
            stdin=subprocess.PIPE,
        )
        hoarder.hear()
        trainer = Trainer("""
            with batchd.DataLoader("random:length=64,shape=4", batch_size=4) as loader:
                say(n=sum(1 for _ in loader))
            """)
        until("its slab is ready to be sent", lambda: [s for s in status()["sessions"] if s["state"] == "attached"])
        began, used = time.monotonic(), cpu_s(d.pid)
        until("half a second has passed", lambda: time.monotonic() > began + 0.5)
        in_time(cpu_s(d.pid) - used < 0.25)
        assert trainer.process.poll() is None
        hoarder.tell()
        hoarder.finish()
        assert trainer.hear() == {"n": 16}
        trainer.finish()
    finally:
        d.stop()


# ---- hostile and damaged data ----


def as_user(uid, script):
    """A trainer that becomes another user before it uses batchd; Python itself may be where only we can read."""
    return Trainer(
        f"""
        json.dumps(b"".decode("utf-8")), np.zeros(1).tobytes()
        os.setgroups([])
        os.setresgid({uid}, {uid}, {uid})
        os.setresuid({uid}, {uid}, {uid})
        """
        + textwrap.indent(textwrap.dedent(script), "        ")
    )


def finish_as(uid, script):
    """The output of such a trainer."""
    return as_user(uid, script).finish()


@needs_root
def test_no_user_reads_through_the_daemon_what_they_cannot_read_themselves(build, public, samples, monkeypatch):
    # A's job has decoded and cached everything; B, who may not read half of the files, gets none of these, and nothing
    # of a closed folder.
    shutil.copytree(samples, public / "data")
    files = sorted(p for p in (public / "data").glob("*/*") if p.is_file())
    for folder in [public / "data", *(public / "data").iterdir()]:
        folder.chmod(0o755)
    for i, file in enumerate(files):
        os.chown(file, 65533, 65533)
        file.chmod(0o600 if i % 2 else 0o644)
    (public / "d").mkdir()
    d = Daemon(
        public / "d", [], "socket_mode: 0666\nbad_data: 100%\nlinger: 5min\ncache: {decoded: auto, filling: always}\n"
    )
    try:
        monkeypatch.setenv("BATCHD_SOCKET", str(d.socket))
        script = epoch_script(f"imagefolder:{public / 'data'}", batch_size=8, transform="val224", job="secrets")
        secret = rows_of(finish_as(65533, script))
        assert len(secret) == 96
        assert any(c["tier"] == "decoded" and c["entries"] == 96 for c in status()["cache"])
        seen = rows_of(finish_as(65534, script))
        assert set(seen) == set(range(0, 96, 2)) and all(secret[i] == digest for i, digest in seen.items())
        bad = {
            b["index"]: b["error"] for loader in status()["loaders"] if loader["uid"] == 65534 for b in loader["bad"]
        }
        assert set(bad) == set(range(1, 96, 2)) and all("ermission" in text for text in bad.values())
        (public / "data").chmod(0o700)
        os.chown(public / "data", 65533, 65533)
        assert len(rows_of(finish_as(65533, script.replace("secrets", "mine")))) == 96
        refused = finish_as(
            65534,
            """
            try:
                batchd.DataLoader("imagefolder:%s", 8, job="again")
            except batchd.Error as e:
                say(type=type(e).__name__, text=str(e))
            """
            % (public / "data"),
        )
        assert refused[0]["type"] == "AccessError" and str(public / "data") in refused[0]["text"]
    finally:
        d.stop()


def test_a_job_stays_warm_whatever_its_last_trainer_left_unfinished(daemon):
    # A trainer that has had few batches leaves while the daemon makes more slots, of 12 MiB each.
    for k in range(1, 5):
        with batchd.DataLoader("random:length=64,shape=3x1024x1024", 4, job=f"left-{k}", arrays="numpy") as loader:
            for _ in itertools.islice(loader, k):
                time.sleep(0.02)
        until("it has gone", lambda: not batchd.status()["sessions"])
        for _ in range(20):
            (left,) = [x["state"] for x in batchd.status()["loaders"] if x["job"] == f"left-{k}"]
            assert left == "lingering"
            time.sleep(0.02)


def test_pipes_devices_and_links_among_the_pictures_are_named_and_do_no_harm(make_daemon, samples, tmp_path, batchctl):
    # Nothing hangs, no foreign data is read as a picture; a link to a real picture is a picture, as for torchvision.
    make_daemon(config="bad_data: 100%\n")
    tree = tmp_path / "tree"
    shutil.copytree(samples, tree)
    folder = sorted(tree.iterdir())[0]
    good = sorted(folder.iterdir())[0]
    shutil.copy(good, tmp_path / "outside.jpg")
    (tmp_path / "secret").write_text("root:x:0:0\n")
    os.mkfifo(folder / "zz-fifo.jpg")
    (folder / "zz-secret.jpg").symlink_to(tmp_path / "secret")
    (folder / "zz-dangling.jpg").symlink_to(tmp_path / "nowhere")
    (folder / "zz-loop.jpg").symlink_to(folder / "zz-loop.jpg")
    (folder / "zz-good.jpg").symlink_to(tmp_path / "outside.jpg")
    (folder / "zz-empty.jpg").touch()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / "zz-socket.jpg"))
    bad = {"zz-fifo.jpg", "zz-secret.jpg", "zz-dangling.jpg", "zz-loop.jpg", "zz-empty.jpg", "zz-socket.jpg"}
    if os.geteuid() == 0:
        with contextlib.suppress(PermissionError):
            os.mknod(folder / "zz-zero.jpg", 0o666 | 0o020000, os.makedev(1, 5))
            bad.add("zz-zero.jpg")
    said = Trainer(epoch_script(f"imagefolder:{tree}", transform="val224", job="odd")).finish()
    named = {
        pathlib.Path(b["error"].split(": ")[0]).name
        for b in json.loads(batchctl("status", "--json").stdout)["loaders"][0]["bad"]
    }
    listed = {p for p in bad if p in named}
    # Entries that the folder's listing already shows not to be files may be left out of the data set instead of being
    # named.
    assert named == listed and {"zz-fifo.jpg", "zz-secret.jpg", "zz-empty.jpg"} <= named
    assert sum(len(b["indices"]) for b in said) == 96 + 1 + len(named)
    listening.close()


@needs_root
def test_a_full_disk_stops_no_trainer(make_daemon, samples, tmp_path):
    # Neither index nor kept caches can be written: each failure is logged once, and every batch comes.
    full = tmp_path / "full"
    full.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(full)], stdin=subprocess.DEVNULL, capture_output=True
    ).returncode:
        pytest.skip("cannot mount a small file system here")
    try:
        (full / "index").mkdir(mode=0o700)
        (full / "cache").mkdir(mode=0o700)
        with pytest.raises(OSError), open(full / "filler", "wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
        d = make_daemon(config=f"{NO_LINGER}index_cache: {full}/index\ncache:\n  directory: {full}/cache\n")
        script = epoch_script(f"imagefolder:{samples}", transform="val224", job="full")
        said = [Trainer(script).finish() for _ in range(3)]
        assert said[0] == said[1] == said[2] and len(rows_of(said[0])) == 96
        d.stop()
        complaints = [line for line in d.output().splitlines() if "started" not in line and "stopp" not in line]
        assert 1 <= len(complaints) <= 6 and all(str(full) in line for line in complaints), complaints
    finally:
        subprocess.run(["umount", "-l", str(full)], check=True)


# ---- signals under load ----


def test_a_reload_under_load_loses_nothing(make_daemon, samples):
    # SIGHUP after every batch, with another configuration each time: two trainers get the same as without.
    d = make_daemon(config="workers: 2\n")
    dataset = f"imagefolder:{samples}"
    alone = [Trainer(epoch_script(dataset, batch_size=4, job="alone"), r, 2).finish() for r in range(2)]
    trainers = [paced(dataset, rank=r, world_size=2) for r in range(2)]
    said = [[], []]
    for step in range(12):
        for rank, trainer in enumerate(trainers):
            said[rank].append(trainer.hear())
        (d.folder / "batchd.yaml").write_text(
            f"workers: {step % 2 + 1}\nlog_level: {('info', 'notice')[step % 2]}\nslots: {step % 3 + 3}\n"
        )
        d.process.send_signal(signal.SIGHUP)
        until("the reload", lambda: d.output().count("configuration read again") > step)
        for trainer in trainers:
            trainer.tell()
    for rank, trainer in enumerate(trainers):
        assert said[rank] + trainer.finish() == alone[rank]


def test_a_stop_under_load_is_quick_and_trainers_learn_that_the_daemon_left(make_daemon, samples):
    # SIGTERM with four trainers at work: the daemon exits in time with 0, and each trainer's error names it.
    d = make_daemon()
    trainers = [
        Trainer(
            """
        loader = batchd.DataLoader("imagefolder:%s", batch_size=4, shuffle=True, transform="train224", job="end%d", reconnect=0)
        try:
            while True:
                for images, labels in loader:
                    if loader.last_batch.step == 2:
                        say(running=True)
        except batchd.Error as e:
            say(type=type(e).__name__, text=str(e))
        """
            % (samples, i)
        )
        for i in range(4)
    ]
    for trainer in trainers:
        assert trainer.hear() == {"running": True}
    d.process.send_signal(signal.SIGTERM)
    assert d.process.wait(STOP_S) == 0
    for trainer in trainers:
        last = trainer.finish()[-1]
        assert last["type"] in ("ShutdownError", "LostError") and str(d.socket) in last["text"], last

"""Everything that can go wrong on a shared machine, in small: processes that are killed, stopped, forked or hostile, full tables, full disks.

After each: what the others get is byte for byte what they would have got, and the daemon is as it was before (slots, sessions, descriptors, threads).
"""
import contextlib
import json
import os
import pathlib
import random
import resource
import signal
import socket
import subprocess
import sys
import textwrap
import time

import pytest

from conftest import BUILD, Daemon
from test_end_to_end import Trainer, epoch_script, rows_of, torch_order

NO_LINGER = "linger: 0s\n"


def until(what, condition, seconds=20):
    """Waits for something that has no event to wait for (another process's state); returns what the condition gave."""
    deadline = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)


def status():
    import batchd
    return batchd.status()


def footprint(pid):
    """Descriptors, threads and shared slabs of a process."""
    maps = pathlib.Path(f"/proc/{pid}/maps").read_text()
    return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task")), maps.count("/memfd:")


def resting(d):
    """The footprint of a daemon that has started completely and has served somebody."""
    import batchd
    with batchd.DataLoader("random:length=64,shape=4", batch_size=4, arrays="numpy", job="warm-up") as loader:
        assert sum(1 for _ in loader) == 16
    until("the warm-up has left", lambda: not status()["sessions"] and not status()["loaders"])
    seen = []

    def settled():
        seen.append(footprint(d.pid))
        return len(seen) > 5 and len(set(seen[-5:])) == 1

    until("the daemon rests", settled)
    return seen[-1]


def assert_idle_again(pid, before):
    """No session, no loader, no slot charged, and what the process has is what it had."""
    until("the last session leaves", lambda: not status()["sessions"] and not status()["loaders"])
    assert status()["memory"]["slots_bytes"] == 0
    until(f"descriptors, threads and slabs {before} again, not {footprint(pid)}", lambda: footprint(pid) == before)


def cpu_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Wire:
    """A client of the test's own, packet by packet, for what libbatchd would never send."""

    HELLO = b"\x0a\x05\x08\x01\x12\x01t"
    CLOSE = b"\x42\x00"
    STATUS = b"\x3a\x00"

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(20)
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

def test_a_trainer_killed_forty_times_gets_every_sample_once(make_daemon, samples):
    # Killed while it holds batches, resumed from its checkpoint each time: the golden list, and a daemon as before.
    d = make_daemon(config=NO_LINGER)
    dataset, order = f"imagefolder:{samples}", []
    golden = rows_of(Trainer(epoch_script(dataset, batch_size=2, seed=5, job="golden")).finish())
    before = resting(d)
    random.seed(1)
    state, rows, n_kills = None, {}, 0
    while len(order) < 96:
        trainer = Trainer("""
            loader = batchd.DataLoader(%r, batch_size=2, shuffle=True, seed=5, transform="train224", dtype="uint8", job="kill")
            state = json.loads(%r)
            if state:
                loader.load_state_dict(state)
            held = []
            for images, labels in loader:
                held = held[-1:] + [images]
                say(indices=loader.last_batch.indices.tolist(), digests=digests(images), state=loader.state_dict())
            """ % (dataset, json.dumps(state)))
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
    # Both go on by themselves and end with the list that they would have had.
    d = make_daemon()
    dataset = f"imagefolder:{samples}"
    script = """
        import warnings
        warnings.simplefilter("ignore")
        loader = batchd.DataLoader(%r, batch_size=2, shuffle=True, seed=8, transform="train224", job="crash", dtype="uint8")
        for images, labels in loader:
            say(indices=loader.last_batch.indices.tolist(), digests=digests(images))
            sys.stdin.readline()
        """ % dataset
    alone = [rows_of(Trainer(epoch_script(dataset, batch_size=2, seed=8, job="alone"), r, 2).finish()) for r in range(2)]
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


def test_a_stopped_trainer_keeps_what_it_holds_and_holds_up_nobody(daemon, samples):
    # SIGSTOP with its whole window on loan: the other rank gets its epoch, other jobs too, and after SIGCONT not a byte of what it holds has changed.
    dataset = f"imagefolder:{samples}"
    alone = Trainer(epoch_script(dataset, batch_size=4, job="alone"), 0, 2).finish()
    stopped = Trainer("""
        loader = batchd.DataLoader(%r, batch_size=4, shuffle=True, transform="train224", job="stop", dtype="uint8")
        held = []
        for images, labels in loader:
            held.append((images, digests(images)))
            if len(held) == loader._info.window - 1:
                break
        say(held=len(held))
        sys.stdin.readline()
        say(same=all(digests(images) == before for images, before in held))
        """ % dataset, 1, 2, stdin=subprocess.PIPE)
    n = stopped.hear()["held"]
    assert n >= 2
    stopped.process.send_signal(signal.SIGSTOP)
    assert Trainer(epoch_script(dataset, batch_size=4, job="stop"), 0, 2).finish() == alone
    assert len(Trainer(epoch_script(dataset, batch_size=4, job="other", seed=9)).finish()) == 24
    # Its rank is taken over by a successor, while it is still there with what it holds.
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
    trainer = Trainer(HOLDER % f"imagefolder:{samples}" + """
    child = os.fork()
    if child == 0:
        os.close(1), os.close(2)
        sys.stdin.read()
        os._exit(0)
    say(child=child)
    time.sleep(600)
    """, stdin=subprocess.PIPE)
    trainer.hear()
    assert status()["sessions"][0]["held"] >= 3
    trainer.process.kill()
    trainer.process.wait()
    until("the leases of the dead trainer end", lambda: not status()["sessions"])
    assert_idle_again(d.pid, before)
    trainer.process.stdin.close()  # the child leaves


def test_who_closes_the_socket_and_lives_keeps_its_slots(make_daemon, samples):
    # A hang-up says nothing about the mapping: until the process ends nothing is reused, whoever else wants slots; then all of it comes back.
    d = make_daemon(config=NO_LINGER)
    dataset = f"imagefolder:{samples}"
    before = resting(d)
    trainer = Trainer(HOLDER % dataset + """
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
    """, stdin=subprocess.PIPE)
    trainer.hear()
    ghost = until("the session is a ghost", lambda: [s for s in status()["sessions"] if "gone" in s["state"]])[0]
    assert ghost["held"] >= 3
    for _ in range(2):
        assert len(Trainer(epoch_script(dataset, batch_size=4, job="orphan")).finish()) == 24
    assert status()["memory"]["slots_bytes"] > 0
    trainer.tell()
    assert trainer.hear() == {"same": True}
    trainer.process.wait()
    assert_idle_again(d.pid, before)


def test_fork_in_a_trainer_leaves_the_parent_alone(daemon, samples):
    # The child is told what is wrong; the parent's epoch is what it would have been, with a forking torch DataLoader beside it as well.
    pytest.importorskip("torch")
    dataset = f"imagefolder:{samples}"
    alone = Trainer(epoch_script(dataset, batch_size=8, job="alone")).finish()
    said = Trainer("""
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
        """ % dataset).finish()
    assert said == alone

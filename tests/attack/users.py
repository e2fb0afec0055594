"""Attacks of one user on another's part of the machine: whatever bob opens, alice has her equal part. Added to ATTACKS."""

import contextlib
import json
import mmap
import os
import pathlib
import statistics
import struct
import sys
import threading
import time
import traceback

from attacks import ALICE, ATTACKS, BOB, CROP, DARK, become, cpu_ns, directory, need_root, status, until
from wire import VERSION, Client, HungUp

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "client" / "python"))

ROWS = 8  # in a batch
CONFIG = """
cache:
  decoded: off
limits:
  sessions_per_user: 200
  sessions: 400
  loaders_per_user: 100
  loaders: 200
"""
COSTLY = json.dumps([["Resize", [400, 400]], ["Resize", [16, 16]], "ToTensor"])  # about a millisecond


class Trainers:
    """Processes of users that take batches as fast as they come: n of each batch counted in memory that all share."""

    def __init__(self, daemon, folder):
        os.environ.setdefault("BATCHD_LIBRARY", str(pathlib.Path(os.environ["BATCHD_BUILD"], "libbatchd.so").resolve()))
        import batchd  # before the users, who may not read its folder

        self.batchd = batchd
        self.daemon, self.folder = daemon, folder
        self.counts = mmap.mmap(-1, 4096)
        self.children = []

    def start(self, user, loaders):
        """A process of this user with a thread for each loader: its (job, rank, world_size)."""
        place = len(self.children)
        pid = os.fork()
        if pid == 0:
            try:
                become(user)
                self._train(place, loaders)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        self.children.append(pid)
        return place

    def _train(self, place, loaders):
        os.environ["BATCHD_SOCKET"] = str(self.daemon.socket)
        n = [0] * len(loaders)

        def run(i, job, rank, world_size):
            loader = self.batchd.DataLoader(
                f"imagefolder:{self.folder}",
                ROWS,
                transform=COSTLY,
                job=job,
                rank=rank,
                world_size=world_size,
                arrays="numpy",
                n_slots=8,
            )
            while True:
                for _ in loader:
                    n[i] += 1

        for i, options in enumerate(loaders):
            threading.Thread(target=run, args=(i, *options), daemon=True).start()
        while True:
            struct.pack_into("<QQ", self.counts, place * 16, sum(n), min(n))
            threading.Event().wait(0.01)

    def batches(self, place):
        return struct.unpack_from("<QQ", self.counts, place * 16)[0]

    def all_begun(self, place):
        return struct.unpack_from("<QQ", self.counts, place * 16)[1] > 0

    def end(self):
        for pid in self.children:
            os.kill(pid, 9)
            os.waitpid(pid, 0)


def compare(field, bobs):
    """A description of unequal parts, if alice with one trainer and bob with these have them."""
    need_root()
    d = field.daemon(CONFIG)
    folder = field.images("pictures", {f"cat/{i:04}.jpg": DARK for i in range(2000)})
    trainers = Trainers(d, folder)
    try:
        alice, bob = trainers.start(ALICE, [("alices", 0, 1)]), trainers.start(BOB, bobs)
        if not until(lambda: trainers.all_begun(alice) and trainers.all_begun(bob)):
            return "not all have begun"
        a, b = trainers.batches(alice), trainers.batches(bob)
        if not until(lambda: trainers.batches(alice) + trainers.batches(bob) > a + b + 600):
            return "no rows are made"
        a, b = trainers.batches(alice) - a, trainers.batches(bob) - b
        return None if 0.8 < b / max(a, 1) < 1.25 else f"{b * ROWS} rows of bob's beside {a * ROWS} of alice's"
    finally:
        trainers.end()


def hang_ups_are_one_users(field):
    """01, 3: clients of single images that get 64 MiB each, hang up and come again: memory that is made and freed. Alice
    has half of the daemon's processor time, which is counted in her batches, whatever else runs on the machine."""
    need_root()
    d = field.daemon(CONFIG)
    folder = field.images("pictures", {f"cat/{i:04}.jpg": DARK for i in range(2000)})
    trainers = Trainers(d, folder)
    attackers = []

    def come_and_go():
        become(BOB)
        while True:
            try:
                c = Client(d.socket, 60)
                fd = os.memfd_create("pictures", os.MFD_ALLOW_SEALING)
                c.send("load_open", [fd], transform='[["Resize",[2360,2360]],"ToTensor"]', dtype=2)
                os.close(fd)
                c.expect("load_opened")
                for sent in c.fds:
                    os.close(sent)
                c.close()
            except (OSError, HungUp):
                time.sleep(0.01)

    def rate():
        """Batches of alice's per second of the daemon's processor time."""
        before, began = trainers.batches(alice), cpu_ns(d)
        until(lambda: trainers.batches(alice) >= before + 500)
        return 1e9 * (trainers.batches(alice) - before) / (cpu_ns(d) - began)

    try:
        alice = trainers.start(ALICE, [("alices", 0, 1)])
        if not until(lambda: trainers.all_begun(alice)):
            return "alice has not begun"
        alone = rate()
        for _ in range(16):
            attackers.append(os.fork())
            if attackers[-1] == 0:
                try:
                    come_and_go()
                finally:
                    os._exit(1)
        time.sleep(1)
        beside = rate()
        for pid in attackers:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
        attackers.clear()
        part = beside / alone
        return None if part > 0.45 else f"alice has {part:.2f} of the daemon's processor time"
    finally:
        for pid in attackers:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
        trainers.end()


def one_rank_has_its_half(field):
    """Two users with a rank each."""
    return compare(field, [("bobs", 0, 1)])


def ranks_are_one_users(field):
    """01, 5: a job of 8 ranks beside one of one rank."""
    return compare(field, [("bobs", i, 8) for i in range(8)])


def many_ranks_are_one_users(field):
    """01, 5: a job of 32 ranks beside one of one rank."""
    return compare(field, [("bobs", i, 32) for i in range(32)])


def jobs_are_one_users(field):
    """01, 5: ten jobs beside one."""
    return compare(field, [(f"bobs-{i}", 0, 1) for i in range(10)])


def many_jobs_are_one_users(field):
    """01, 5: sixty jobs beside one."""
    return compare(field, [(f"bobs-{i}", 0, 1) for i in range(60)])


# ---- places ----


@contextlib.contextmanager
def acting_as(user):
    """Connections that are made meanwhile are this user's."""
    os.setegid(user)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def produce(daemon, user, name):
    """A producer's connection, or the daemon's error."""
    with acting_as(user):
        c = Client(daemon.socket)
    c.send("produce", name=name, slot_bytes=4096)
    try:
        c.expect("producing")
        return c, None
    except HungUp as end:
        return c, end.error


def producers_leave_places(field):
    """01, 9: bob asks for every place of a producer, then alice for one."""
    need_root()
    d = field.daemon()
    bobs = [produce(d, BOB, f"b{i}") for i in range(64)]
    n = sum(error is None for _, error in bobs)
    _, error = produce(d, ALICE, "a")
    return f"bob has {n}, and alice: {error}" if error else None


# ---- answers ----

HELLO_S, FIRST_BATCH_S = 0.05, 1  # the goals
TRIES = 15


def loops_queue_s(d):
    """How long the daemon's loop has waited for a processor that others had."""
    return int(pathlib.Path(f"/proc/{d.pid}/task/{d.pid}/schedstat").read_text().split()[1]) / 1e9


def answer_times(d, folder):
    """Medians of what alice waits for: the answer to Hello, without the time in which the loop, which gives it, has no
    processor; and from Open of a small data set to its first batch."""
    hellos, firsts = [], []
    for i in range(TRIES):
        with acting_as(ALICE):
            c = Client(d.socket, 60, program=None)
        began, queue = time.monotonic(), loops_queue_s(d)
        c.send("hello", version=VERSION, program="alice")
        c.expect("welcome")
        hellos.append(time.monotonic() - began - loops_queue_s(d) + queue)
        root = directory(folder)
        began = time.monotonic()
        c.open([root], dataset=f"imagefolder:{folder}", transform=CROP, batch_size=4, dtype=2, job=f"small-{i}")
        c.seek()
        c.batch()
        firsts.append(time.monotonic() - began)
        c.close()
        for fd in [root, *c.fds]:
            os.close(fd)
    return statistics.median(hellos), statistics.median(firsts)


@contextlib.contextmanager
def training(d, field, loaders):
    """Bob trains with these."""
    folder = field.images("pictures", {f"cat/{i:04}.jpg": DARK for i in range(2000)})
    trainers = Trainers(d, folder)
    try:
        bob = trainers.start(BOB, loaders)
        if not until(lambda: trainers.all_begun(bob)):
            raise TimeoutError("bob's trainers have not begun")
        yield
    finally:
        trainers.end()


def answers_come(field, busy):
    """A description, if alice waits for longer than the goals beside what bob does, on top of twice what she waits for
    alone: on a busy machine that is much, as workers wait for processors, too."""
    need_root()
    d = field.daemon(CONFIG)
    folder = field.images("small", {f"cat/{i}.jpg": DARK for i in range(16)}, ALICE)
    alone = answer_times(d, folder)
    with busy(d):
        beside = answer_times(d, folder)
    values = f"Hello {beside[0] * 1e3:.1f} ms, first batch {beside[1] * 1e3:.0f} ms"
    values += f" (alone {alone[0] * 1e3:.1f} and {alone[1] * 1e3:.0f}, goals {HELLO_S * 1e3:.0f} and {FIRST_BATCH_S * 1e3:.0f})"
    print(f"        {values}", flush=True)
    late = beside[0] > HELLO_S + 2 * alone[0] or beside[1] > FIRST_BATCH_S + 2 * alone[1]
    return values if late else None


def connections_delay_nobody(field):
    """29: bob has 60 connections that ask for the status again and again and read no answer, and 60 that say nothing."""

    def flood(d, ready):
        become(BOB)
        asking = [Client(d.socket) for _ in range(60)]
        silent = [Client(d.socket, program=None) for _ in range(60)]
        os.write(ready, b"r")
        while silent:
            for c in asking:
                c.socket.setblocking(False)
                with contextlib.suppress(OSError, HungUp):
                    c.send("status")

    @contextlib.contextmanager
    def busy(d):
        ready = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                flood(d, ready[1])
            finally:
                os._exit(1)
        try:
            os.close(ready[1])
            if os.read(ready[0], 1) != b"r":
                raise TimeoutError("bob's connections are refused")
            yield
        finally:
            os.close(ready[0])
            os.kill(child, 9)
            os.waitpid(child, 0)

    return answers_come(field, busy)


def ranks_delay_nobody(field):
    """29: bob has a job of 8 ranks."""
    return answers_come(field, lambda d: training(d, field, [("bobs", i, 8) for i in range(8)]))


def many_ranks_delay_nobody(field):
    """29: bob has a job of 32 ranks."""
    return answers_come(field, lambda d: training(d, field, [("bobs", i, 32) for i in range(32)]))


def jobs_delay_nobody(field):
    """29: bob has ten jobs."""
    return answers_come(field, lambda d: training(d, field, [(f"bobs-{i}", 0, 1) for i in range(10)]))


def many_jobs_delay_nobody(field):
    """29: bob has sixty jobs."""
    return answers_come(field, lambda d: training(d, field, [(f"bobs-{i}", 0, 1) for i in range(60)]))


# ---- caches ----


def caches_are_shared_equally(field):
    """01, 12: bob fills the decoded cache; then alice trains on as much, and bob again. 16 MiB for each are 136 pictures."""
    need_root()
    d = field.daemon("memory: 256MiB\ncache:\n  decoded: 32MiB\n  filling: always\n")
    clients = {}
    for name, user in [("bob", BOB), ("alice", ALICE)]:
        folder = field.images(name, {f"cat/{i:03}.jpg": DARK for i in range(400)}, user)
        with acting_as(user):
            clients[name] = Client(d.socket, 60), [directory(folder)], f"imagefolder:{folder}"

    def begin(name):
        c, fds, dataset = clients[name]
        c.open(
            fds,
            dataset=dataset,
            batch_size=8,
            transform='[["Resize",[200,200]],"ToTensor"]',
            dtype=2,
            n_slots=2,
            job=name,
        )
        c.seek()

    def all_hits():
        return next(tier["hits"] for tier in status(d)["cache"] if tier["tier"] == "decoded")

    def hits(name):
        """Samples of its next epoch that come from the cache."""
        c, before = clients[name][0], all_hits()
        for _ in range(50):
            c.give_back(c.batch())
        return all_hits() - before

    begin("bob")
    alone = [hits("bob") for _ in range(2)][-1]
    begin("alice")
    shared = [(hits("alice"), hits("bob")) for _ in range(4)][-1]
    if alone < 200:
        return f"bob alone has {alone} pictures in a cache for 270"
    return None if min(shared) > 100 else f"of 400 pictures alice has {shared[0]} in the cache, and bob {shared[1]}"


ATTACKS += [
    caches_are_shared_equally,
    connections_delay_nobody,
    ranks_delay_nobody,
    many_ranks_delay_nobody,
    jobs_delay_nobody,
    many_jobs_delay_nobody,
    hang_ups_are_one_users,
    producers_leave_places,
    one_rank_has_its_half,
    ranks_are_one_users,
    many_ranks_are_one_users,
    jobs_are_one_users,
    many_jobs_are_one_users,
]

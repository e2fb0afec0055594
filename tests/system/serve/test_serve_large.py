"""batchd.serve with batches that do not fit their slots: each travels in memory of its own, and no trainer misses or
repeats a batch, wherever in a round the large one is."""

import ast
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import pytest

torch = pytest.importorskip("torch")

import batchd  # noqa: E402
from daemons import until  # noqa: E402
from test_serve import limit, serve  # noqa: E402, F401

SIZES = [10, 20, 5000, 30, 5100, 40000, 7, 7, 120000, 12, 300000, 3, 4, 300001, 2, 700000]


def batch(epoch, k, n):
    """Identifies a batch and its iteration; its contents show a single byte of another batch."""
    return {"k": k, "epoch": epoch, "x": torch.arange(n) * 31 + 1000003 * k + epoch}


class Once:
    """A data set that cannot go back within an epoch: an iterable that counts how often it was started."""

    def __init__(self, sizes):
        self.sizes, self.n_begun = sizes, -1

    def __iter__(self):
        self.n_begun += 1
        return (batch(self.n_begun, k, n) for k, n in enumerate(self.sizes))


class Gated(Once):
    """Its first epoch goes on behind the first batch when the file is there."""

    def __init__(self, sizes, file):
        super().__init__(sizes)
        self.file = file

    def __iter__(self):
        for b in super().__iter__():
            while b["k"] == 1 and not self.file.exists():
                time.sleep(0.01)
            yield b


class Trainer(threading.Thread):
    """Takes epochs in a thread of its own and checks every batch as it comes. begun: it has its place in the group.
    holds: it keeps its first batch until goes_on is set."""

    def __init__(self, n_epochs, sizes, holds=False, **options):
        super().__init__(daemon=True)
        self.n_epochs, self.sizes, self.options, self.got, self.error, self.kept = (
            n_epochs,
            sizes,
            options,
            [],
            None,
            [],
        )
        self.begun, self.goes_on = threading.Event(), threading.Event()
        if not holds:
            self.goes_on.set()
        self.start()

    def run(self):
        try:
            loader = batchd.DataLoader("serve:speech", arrays="torch", **self.options)
            for _ in range(self.n_epochs):
                batches = iter(loader)
                self.begun.set()
                for b in batches:
                    expected = batch(b["epoch"], b["k"], self.sizes[b["k"]])
                    assert torch.equal(b["x"], expected["x"]), (b["epoch"], b["k"])
                    self.got.append((b["epoch"], b["k"], loader.last_batch.epoch, loader.last_batch.step))
                    self.goes_on.wait()
            loader.close()
        except BaseException as e:
            self.error = e

    def result(self):
        self.join(280)
        assert not self.is_alive(), f"it hangs behind {self.got[-1:]}"
        if self.error is not None:
            raise self.error
        return self.got


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


def test_one_trainer_gets_every_batch_once(serve):
    """Two epochs that cannot be repeated; epochs and steps count on, and there is no warning."""
    serve(Once(SIZES))
    assert Trainer(2, SIZES).result() == [(e, k, e, k) for e in range(2) for k in range(len(SIZES))]


@pytest.mark.parametrize("large", range(8))
def test_ranks_get_their_batches_wherever_in_a_round_the_large_one_is(serve, large):
    """Three ranks; the last, incomplete round is not delivered."""
    sizes = [100] * 14
    sizes[large] = 50000
    serve(Once(sizes))
    ranks = [Trainer(2, sizes, rank=rank, world_size=3, job="ddp") for rank in range(3)]
    for rank, trainer in enumerate(ranks):
        assert trainer.result() == [(e, 3 * step + rank, e, step) for e in range(2) for step in range(4)]


def test_all_batches_of_a_round_are_large(serve):
    sizes = [100, 100, 100, 20000, 80000, 320000, 100, 100, 100]
    serve(Once(sizes))
    ranks = [Trainer(2, sizes, rank=rank, world_size=3, job="ddp") for rank in range(3)]
    for rank, trainer in enumerate(ranks):
        assert trainer.result() == [(e, 3 * step + rank, e, step) for e in range(2) for step in range(3)]


@pytest.mark.parametrize("world", [1, 3])
def test_a_share_group_gets_every_batch_once(serve, tmp_path, world):
    """A group of known size, and an open group. Two slots, so that its trainers are never far apart."""
    options = {"world_size": world} if world > 1 else {}
    producer = Gated(SIZES, tmp_path / "all-are-here")
    crew = [Trainer(2, SIZES, mode="share", job="trials", n_slots=2, **options) for _ in range(3 if world > 1 else 2)]
    serve(producer)
    for trainer in crew:
        assert trainer.begun.wait(280) or trainer.result()
    producer.file.touch()
    for trainer in crew:
        got = trainer.result()
        assert got == [(e, k, e, k) for e, k, _, _ in got] and (0, len(SIZES) - 1) in [g[:2] for g in got]
        assert [g[:2] for g in got] == sorted({g[:2] for g in got}) and got[-1][:2] == (1, len(SIZES) - 1)
        if world > 1:
            assert len(got) == 2 * len(SIZES)


def test_batches_that_are_kept_stay_as_they_are(serve):
    """A trainer that keeps all of them keeps none of the daemon's memory for large ones."""
    serve(Once(SIZES))
    loader = batchd.DataLoader("serve:speech", arrays="torch", n_slots=8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about batches that are copied
        kept = list(loader)
    assert [b["k"] for b in kept] == list(range(len(SIZES))) and all(
        torch.equal(b["x"], batch(0, b["k"], SIZES[b["k"]])["x"]) for b in kept
    )


def slots_bytes(batchctl):
    return json.loads(batchctl("status", "--json").stdout)["memory"]["slots_bytes"]


def until_only_slots(batchctl):
    until("nothing but small slots is charged", lambda: slots_bytes(batchctl) < 1 << 20)


def test_large_batches_are_charged_and_given_back(daemon, serve, batchctl):
    """Slots keep their size; a large batch is charged until its last trainer has given it back. The slots of the next
    opening have their size, of the same job as well, which has lingered until then."""
    large = 8 * 1_000_000
    sizes = [10] * 6 + [1_000_000] * 2 + [10] * 6  # none of them among the first of the next epoch
    serve([batch(0, k, n) for k, n in enumerate(sizes)])
    with batchd.DataLoader("serve:speech", arrays="torch", n_slots=4, job="trial") as loader:
        batches = iter(loader)
        for _ in range(5):
            next(batches)
        until("the large ones are made", lambda: slots_bytes(batchctl) > 2 * large)
        assert slots_bytes(batchctl) < 3 * large
        assert [b["k"] for b in batches] == list(range(5, 14))
        until("they are given back", lambda: slots_bytes(batchctl) < large)
    with batchd.DataLoader("serve:speech", arrays="torch", n_slots=4, job="trial") as loader:
        assert [len(b["x"]) for b in loader] == sizes and slots_bytes(batchctl) > 4 * large


@pytest.mark.parametrize("mode", ["shard", "share"])
def test_batches_of_a_kilobyte_a_megabyte_and_a_hundred(daemon, serve, batchctl, mode):
    """Of one size after the other, to two trainers."""
    sizes = [100, 100, 130_000, 130_000, 13_000_000, 13_000_000, 100, 100]
    serve([batch(0, k, n) for k, n in enumerate(sizes)])
    ranks = [Trainer(1, sizes, mode=mode, rank=rank, world_size=2, job="ddp", n_slots=2) for rank in range(2)]
    for rank, trainer in enumerate(ranks):
        wanted = list(range(rank, 8, 2)) if mode == "shard" else list(range(8))
        assert [k for _, k, _, _ in trainer.result()] == wanted


KILLED = """
import sys, batchd
loader = batchd.DataLoader("serve:speech", arrays="numpy", n_slots=2, job="ddp", **eval(sys.argv[1]))
for b in loader:
    print(b["k"], loader.state_dict(), sep="\t", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("mode", ["shard", "share"])
def test_a_killed_trainer_holds_no_large_batch(daemon, serve, batchctl, mode):
    """One of two is killed with large batches on their way to it, and another goes on where it was, which the second one
    has not left behind. Each batch is given once, and in the end nothing is charged for those of the dead one."""
    sizes = [100] + [1_000_000] * 9
    serve([batch(0, k, n) for k, n in enumerate(sizes)])
    options = {"mode": mode, "world_size": 2, "rank": 1}
    argv = [sys.executable, "-c", KILLED, repr(options)]
    victim = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    other = Trainer(1, sizes, holds=True, job="ddp", n_slots=2, mode=mode, world_size=2, rank=0)
    number, state = victim.stdout.readline().split("\t")
    assert int(number) == (1 if mode == "shard" else 0)
    os.kill(victim.pid, signal.SIGKILL)
    victim.communicate()
    with batchd.DataLoader("serve:speech", arrays="torch", n_slots=2, job="ddp", **options) as loader:
        loader.load_state_dict(ast.literal_eval(state))
        batches = iter(loader)
        first = next(batches)["k"]
        other.goes_on.set()
        rest = [b["k"] for b in batches]
        assert [first, *rest] == (list(range(3, 10, 2)) if mode == "shard" else list(range(1, 10)))
        assert [k for _, k, _, _ in other.result()] == (list(range(0, 10, 2)) if mode == "shard" else list(range(10)))
    until_only_slots(batchctl)


def test_two_jobs_get_large_batches_of_two_producers(serve):
    serve([batch(0, k, n) for k, n in enumerate(SIZES)])
    serve([batch(0, k, n) for k, n in enumerate(SIZES[::-1])], name="songs")
    trainer = Trainer(2, SIZES)
    with batchd.DataLoader("serve:songs", arrays="torch") as loader:
        assert [len(b["x"]) for b in loader] == SIZES[::-1]
    assert [k for _, k, _, _ in trainer.result()] == 2 * list(range(len(SIZES)))


def test_next_into_takes_large_batches(serve):
    sizes = [10, 300_000, 20]
    serve(Once(sizes))
    with batchd.DataLoader("serve:speech", arrays="torch") as loader:
        for k, n in enumerate(sizes):
            x = torch.empty(n, dtype=torch.int64)
            loader.next_into({"x": x})
            assert torch.equal(x, batch(0, k, n)["x"])


def test_more_large_batches_than_there_is_memory_for(make_daemon):
    """They come one after the other, even to a trainer that keeps them all."""
    make_daemon(config="memory: 200MiB\n")
    sizes = [10] + [4_000_000] * 12
    with batchd.serve(Once(sizes), "speech", background="fork"):
        with batchd.DataLoader("serve:speech", arrays="torch", n_slots=16) as loader:
            kept = [b["x"] for b in loader]
    assert len(kept) == len(sizes)
    assert all(torch.equal(x, batch(0, k, n)["x"]) for k, (x, n) in enumerate(zip(kept, sizes)))


def test_a_large_batch_beyond_all_memory_names_what_to_raise(make_daemon):
    make_daemon(config="memory: 200MiB\n")
    with batchd.serve(Once([10, 40_000_000]), "speech", background="fork"):
        with batchd.DataLoader("serve:speech", arrays="torch") as loader:
            with pytest.raises(batchd.LimitError, match="which does not fit its slot, needs 305.2 MiB of memory"):
                list(loader)


def test_a_daemon_that_dies_leaves_large_batches_whole(daemon, serve):
    """What a trainer has stays as it is, and the next daemon goes on with the next batch."""
    sizes = [10] + [500_000] * 8
    serve([batch(0, k, n) for k, n in enumerate(sizes)])
    with batchd.DataLoader("serve:speech", arrays="torch", n_slots=2) as loader:
        got = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the daemon is back
            for b in loader:
                got.append(b)
                if b["k"] == 3:
                    daemon.kill()
                    daemon.start()
    assert [b["k"] for b in got] == list(range(9))
    assert all(torch.equal(b["x"], batch(0, b["k"], sizes[b["k"]])["x"]) for b in got)


def test_an_epoch_is_gone_on_with_between_large_batches(serve):
    serve([batch(0, k, n) for k, n in enumerate(SIZES)])
    loader = batchd.DataLoader("serve:speech", arrays="torch")
    states = []
    for b in loader:
        states.append(loader.state_dict())
    loader.close()
    for at in (1, 4, 9):
        again = batchd.DataLoader("serve:speech", arrays="torch")
        again.load_state_dict(states[at])
        assert [b["k"] for b in again] == list(range(at + 1, len(SIZES)))
        again.close()


def test_a_batch_beyond_the_daemons_limit_is_an_error_that_names_it(make_daemon):
    """The producer's error names the batch, its largest part and whose limit; the trainers get the batches made before,
    and then the limit."""
    make_daemon(config="limits:\n  batch_bytes: 1MiB\n")
    sizes = [10, 20, 100000, 30, 140000]
    trainer = Trainer(1, sizes)
    with pytest.raises(
        batchd.LimitError,
        match=r"limits.batch_bytes(.|\n)*1048576(.|\n)*batch 4 of epoch 0(.|\n)*batch\['x'\] \(int64, shape \(140000,\)\)",
    ):
        batchd.serve(Once(sizes), "speech")
    with pytest.raises(batchd.ProducerError, match="limits.batch_bytes"):
        trainer.result()
    assert [g[1] for g in trainer.got] == [0, 1, 2, 3]

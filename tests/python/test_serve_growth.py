"""batchd.serve with batches of varying size: slots grow, and no trainer misses or repeats a batch, wherever in a round the large one is."""

import json
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
    """Takes epochs in a thread of its own and checks every batch as it comes. begun: it has its place in the group."""

    def __init__(self, n_epochs, sizes, **options):
        super().__init__(daemon=True)
        self.n_epochs, self.sizes, self.options, self.got, self.error, self.kept = (
            n_epochs,
            sizes,
            options,
            [],
            None,
            [],
        )
        self.begun = threading.Event()
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
    """Six growths in an epoch that cannot be repeated, and an epoch after it that needs none; epochs and steps count
    on, and there is no warning."""
    serve(Once(SIZES))
    assert Trainer(2, SIZES).result() == [(e, k, e, k) for e in range(2) for k in range(len(SIZES))]


@pytest.mark.parametrize("large", range(8))
def test_ranks_get_their_batches_wherever_in_a_round_the_large_one_is(serve, large):
    """Three ranks; the others' batches of the round were already made and held back, and cannot be made again. The
    last, incomplete round is not delivered."""
    sizes = [100] * 14
    sizes[large] = 50000
    serve(Once(sizes))
    ranks = [Trainer(2, sizes, rank=rank, world_size=3, job="ddp") for rank in range(3)]
    for rank, trainer in enumerate(ranks):
        assert trainer.result() == [(e, 3 * step + rank, e, step) for e in range(2) for step in range(4)]


def test_several_growths_in_one_round(serve):
    """Each batch of a round is larger than a slot made for the previous one."""
    sizes = [100, 100, 100, 20000, 80000, 320000, 100, 100, 100]
    serve(Once(sizes))
    ranks = [Trainer(2, sizes, rank=rank, world_size=3, job="ddp") for rank in range(3)]
    for rank, trainer in enumerate(ranks):
        assert trainer.result() == [(e, 3 * step + rank, e, step) for e in range(2) for step in range(3)]


@pytest.mark.parametrize("world", [1, 3])
def test_a_share_group_gets_every_batch_once(serve, tmp_path, world):
    """A group of known size, and an open group, whose members come back in any order and wait for each other. Two
    slots, so that they are never far apart."""
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


@pytest.mark.parametrize("opened", ["before", "after"])
def test_a_newcomer_waits_for_the_group_while_slots_grow(daemon, serve, batchctl, opened):
    """A trainer comes to an open group whose only member has not yet come back for the larger slots; it was opened
    before they were, or after. It goes on with that member, and the producer is not asked for anything twice."""
    serve(Once([10, 20, 5000, 30, 40, 50]))
    options = {"mode": "share", "job": "trials", "n_slots": 4, "arrays": "torch"}
    member = batchd.DataLoader("serve:speech", **options)
    newcomer = batchd.DataLoader("serve:speech", **options) if opened == "before" else None
    batches = iter(member)
    got = [(b["epoch"], b["k"]) for b in (next(batches), next(batches))]

    def status(what):
        return json.loads(batchctl("status", "--json").stdout)[what]

    until("slots are too small", lambda: any(s["state"] == "told to go" for s in status("sessions")))
    newcomers = []

    def come():
        with batchd.DataLoader("serve:speech", **options) if newcomer is None else newcomer as loader:
            newcomers.extend((b["epoch"], b["k"], loader.last_batch.epoch, loader.last_batch.step) for b in loader)

    thread = threading.Thread(target=come, daemon=True)
    thread.start()
    until(
        "the newcomer has joined",
        lambda: any(
            s["waiting_for"] != "a trainer to begin"
            for loader in status("loaders")
            if loader["number"] == 2
            for s in loader.get("streams", [])
        ),
    )
    got += [(b["epoch"], b["k"]) for b in batches]
    member.close()
    thread.join(280)
    assert got == [(0, k) for k in range(6)] and newcomers == [(0, k, 0, k) for k in range(2, 6)]


def test_batches_that_are_kept_stay_as_they_are(serve):
    """Tensors over the old, smaller slots are neither moved nor overwritten when slots grow."""
    serve(Once(SIZES))
    loader = batchd.DataLoader("serve:speech", arrays="torch", n_slots=8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about batches that are copied
        kept = list(loader)
    assert [b["k"] for b in kept] == list(range(len(SIZES))) and all(
        torch.equal(b["x"], batch(0, b["k"], SIZES[b["k"]])["x"]) for b in kept
    )


def test_old_slots_go_while_a_batch_in_them_is_kept(daemon, serve, batchctl):
    """The daemon gets the memory of the old slots back although this process keeps reading its copy of a batch
    there."""
    serve(Once([10, 20, 50000, 30]))
    loader = batchd.DataLoader("serve:speech", arrays="torch", n_slots=3)
    iterator = iter(loader)
    first = next(iterator)
    assert [b["k"] for b in iterator] == [1, 2, 3]
    status = until(
        "the old session has ended",
        lambda: (s := json.loads(batchctl("status", "--json").stdout))
        and len(s["loaders"]) == 1
        and all(session["state"] != "told to go" for session in s["sessions"])
        and s,
    )
    assert not [s for s in status["sessions"] if s["state"] == "gone, holds batches"]
    assert status["memory"]["slots_bytes"] < 2 * 3 * 8 * 50000 * 1.3 and torch.equal(first["x"], batch(0, 0, 10)["x"])


def test_a_growth_in_the_middle_of_a_checkpoint_is_gone_on_from(serve):
    """A token from before the growth and one from after it, in an epoch that repeats."""
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

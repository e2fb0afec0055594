"""batchctl headroom: trainers of known speed, the order of what they get, and ends of every kind."""

import json
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import batchd
from daemons import in_time, until

STEP_S, INPUT_S = 0.02, 0.06
RANDOM = "random:length=1600,shape=8,dtype=uint8"
OPTIONS = {"batch_size": 8, "shuffle": True, "seed": 3, "arrays": "numpy", "headroom": True, "n_slots": 4}


class Trainer(threading.Thread):
    """Takes epochs in a thread of its own and notes what it gets, in order. measured: in the second half of its first
    epoch it goes slowly until there is a replay, so that a busy machine does not ask when it is over. hold_at: it stays
    in its replay of that number, counted from 1, until the gate is opened."""

    def __init__(self, step_s=0.002, barrier=None, epochs=1, waits=True, measured=True, hold_at=0, **options):
        super().__init__(daemon=True)
        self.loader = batchd.DataLoader(**OPTIONS | {"dataset": RANDOM, "job": "run"} | options)
        self.step_s, self.barrier, self.epochs, self.measured = step_s, barrier, epochs, measured
        self.seen = []  # (epoch, step, replayed)
        self.times = []  # when
        self.rows = {}  # by epoch: indices of batches that are no replays
        self.tokens = []
        self.error = None
        self.ends = False
        self.gate, self.hold_at, self.first_wait_s = threading.Event(), hold_at, None
        self.gate.set()
        self.start()
        until("it trains", lambda: self.seen or not waits or not self.is_alive())

    def run(self):
        try:
            with self.loader:
                for epoch in range(self.epochs):
                    self.loader.set_epoch(epoch)
                    for _ in self.loader:
                        self.note(self.loader.last_batch)
                        if self.ends:
                            return
        except (batchd.Error, threading.BrokenBarrierError) as e:
            self.error = e

    def note(self, b):
        if self.first_wait_s is None:
            self.first_wait_s = b.wait_s
        if b.replayed and len(self.replays()) + 1 == self.hold_at:
            self.gate.clear()
        self.seen.append((b.epoch, b.step, b.replayed))
        self.times.append(time.monotonic())
        if b.replayed:
            self.tokens.append((self.loader.state_dict()["token"], b.token["token"]))
        else:
            self.rows.setdefault(b.epoch, []).extend(b.indices.tolist())
        self.measured = self.measured and not b.replayed and b.epoch == 0
        slow = self.measured and b.step > len(self.loader) // 2
        time.sleep(0.2 if slow else self.step_s)
        assert self.gate.wait(300)
        if self.barrier is not None:
            self.barrier.wait(300)  # as an all-reduce

    def end(self):
        self.join(300)
        assert not self.is_alive() and self.error is None, self.error

    def replays(self):
        return [i for i, (_, _, replayed) in enumerate(self.seen) if replayed]


def measured(result):
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def order(epoch, rank=0, world_size=1):
    """What torch gives, from a data set of the same length."""
    sampler = pytest.importorskip("torch.utils.data").DistributedSampler(
        range(1600), world_size, rank, shuffle=True, seed=3
    )
    sampler.set_epoch(epoch)
    return list(sampler)


def exactly_once(t, rank=0, world_size=1):
    for epoch, rows in t.rows.items():
        assert rows == order(epoch, rank, world_size)[: len(rows)]
        assert t.ends or len(rows) == 1600 // world_size


def together(t):
    """The replays are in one piece, behind a batch, and no position is counted twice."""
    places = t.replays()
    assert places == list(range(places[0], places[0] + len(places))) and places[0] > 0
    before = t.seen[places[0] - 1]
    assert all(t.seen[i][:2] == before[:2] for i in places)
    return before[:2], len(places)


@pytest.mark.timing
@pytest.mark.long("measures for seconds")
@pytest.mark.parametrize("step_s, input_s", [(STEP_S, INPUT_S), (INPUT_S, STEP_S)])
def test_it_predicts_the_speed_of_a_known_trainer(daemon, batchctl, step_s, input_s):
    """A producer makes a batch in input_s, the trainer a step in step_s; what is slower sets the pace."""
    batch = (np.zeros((8, 4), np.float32),)

    class Slow:
        def __iter__(self):
            for _ in range(400):
                time.sleep(input_s)
                yield batch

    with batchd.serve(Slow(), "slow", background=True):
        loader = batchd.DataLoader("serve:slow", job="run", headroom=True, arrays="numpy", n_slots=4)
        done, given, took = threading.Event(), [], []

        def train():
            for _ in loader:
                began = time.monotonic()
                time.sleep(step_s)
                if loader.last_batch.replayed:
                    took.append(time.monotonic() - began)
                elif not took:
                    given.append(began)
                if done.is_set():
                    return

        trainer = threading.Thread(target=train)
        trainer.start()
        until("it trains", lambda: loader.last_batch is not None)
        try:
            result = measured(batchctl("headroom", "run", "--steps", "25", "--json"))
        finally:
            done.set()
            trainer.join(300)
            loader.close()
    (rank,) = result["ranks"]
    assert rank["steps"] == rank["replayed"] == len(took) == 25
    # Sleeps take longer on a busy machine: the trainer's own clock says what its last 25 steps before took.
    pace, replays = (given[-1] - given[-26]) / 25, np.mean(took)
    assert pace > 0.8 * max(step_s, input_s)
    in_time(rank["step_s"] == pytest.approx(pace, rel=0.3), rank, pace)
    in_time(rank["replayed_step_s"] == pytest.approx(replays, rel=0.1, abs=0.002), rank, replays)
    in_time(result["faster"] == pytest.approx(max(1, pace / replays), rel=0.3), result, pace, replays)


def test_the_order_goes_on_where_it_was(daemon, batchctl):
    t = Trainer(epochs=2)
    result = measured(batchctl("headroom", "run", "--steps", "20", "--before", "5", "--json"))
    t.end()
    place, n = together(t)
    assert n == 20 == result["ranks"][0]["replayed"]
    exactly_once(t)
    assert sorted(t.rows) == [0, 1]
    assert {a for a, _ in t.tokens} == {b for _, b in t.tokens} and len(set(t.tokens)) == 1


def test_a_token_from_a_replay_resumes_behind_the_last_new_batch(daemon, batchctl):
    t = Trainer()
    measured(batchctl("headroom", "run", "--steps", "4", "--before", "3", "--json"))
    t.end()
    (_, step), _ = together(t)
    with batchd.DataLoader(RANDOM, job="again", **OPTIONS) as loader:
        loader.load_state_dict({"version": 2, "token": t.tokens[0][0]})
        rest = [i for _ in loader for i in loader.last_batch.indices.tolist()]
    assert rest == order(0)[(step + 1) * 8 :]


@pytest.mark.parametrize("mode", ["shard", "share"])
def test_all_ranks_begin_at_one_batch_and_make_the_same_number_of_replays(daemon, batchctl, mode):
    barrier = threading.Barrier(2)
    trainers = [Trainer(barrier=barrier, mode=mode, rank=r, world_size=2, waits=False) for r in range(2)]
    until("they train", lambda: trainers[0].seen and trainers[1].seen)
    result = measured(batchctl("headroom", "run", "--steps", "16", "--before", "4", "--json"))
    for t in trainers:
        t.end()
    assert together(trainers[0]) == together(trainers[1])
    assert together(trainers[0])[1] == 16
    assert sorted(r["rank"] for r in result["ranks"]) == [0, 1]
    for r, t in enumerate(trainers):
        exactly_once(t, *((r, 2) if mode == "shard" else ()))


def begin(build, *arguments):
    return subprocess.Popen(
        [build / "batchctl", "headroom", "run", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_killed_batchctl_ends_the_replay_on_all_ranks_alike(build, daemon):
    barrier = threading.Barrier(2)
    trainers = [Trainer(0.005, barrier, rank=r, world_size=2, waits=False, hold_at=6) for r in range(2)]
    until("they train", lambda: trainers[0].seen and trainers[1].seen)
    with begin(build, "--steps", "800", "--before", "2") as asks:
        until("replays", lambda: all(len(t.replays()) > 5 for t in trainers))
        asks.kill()
    for t in trainers:
        t.gate.set()
    for t in trainers:
        t.end()
        exactly_once(t, t.loader.rank, 2)
    assert together(trainers[0]) == together(trainers[1])
    assert together(trainers[0])[1] < 500


def test_a_killed_batchctl_before_the_first_replay_leaves_no_trace(build, make_daemon, batchctl):
    daemon = make_daemon("--log-level", "info")
    t = Trainer(0.005, epochs=1000, measured=False)
    t.gate.clear()
    with begin(build, "--steps", "10", "--before", "60") as asks:
        until("it has begun", lambda: "measures job run" in daemon.log.read_text())
        asks.kill()
    until("it has gone", lambda: len(batchd.status()["sessions"]) == 1)
    n = len(t.seen)
    t.gate.set()
    until("more steps", lambda: len(t.seen) > n + 100)
    assert not t.replays()
    again = until(
        "it is over", lambda: (r := batchctl("headroom", "run", "--steps", "4", "--json")).returncode == 0 and r
    )
    measured(again)
    t.ends = True
    t.end()
    assert together(t)[1] == 4
    exactly_once(t)


@pytest.mark.long("measures for its whole limit")
def test_it_ends_in_time(daemon, batchctl):
    t = Trainer(0.02)
    result = measured(batchctl("headroom", "run", "--steps", "900", "--before", "2", "--time", "4s", "--json"))
    t.ends = True
    t.end()
    assert 2 <= result["ranks"][0]["replayed"] < 900
    assert together(t)[1] == result["ranks"][0]["replayed"]


def test_a_killed_trainer_ends_it_for_the_other(build, daemon):
    script = (
        "import batchd, time\n"
        f"loader = batchd.DataLoader({RANDOM!r}, job='run', rank=1, world_size=2, **{OPTIONS!r})\n"
        "while True:\n"
        "    for _ in loader:\n"
        "        print(flush=True)\n"
        "        time.sleep(0.005)\n"
    )
    t = Trainer(0.005, epochs=10000, rank=0, world_size=2, hold_at=6)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        until("it trains", lambda: t.seen)
        asks = begin(build, "--steps", "800", "--before", "2")
        until("replays", lambda: len(t.replays()) > 5)
        other.kill()
        other.wait()
        t.gate.set()
        out, err = asks.communicate(timeout=300)
    assert asks.returncode == 4 and "rank 1 has left the job during the measurement" in err
    t.ends = True
    t.end()
    assert together(t)[1] < 800
    exactly_once(t, 0, 2)


def test_a_restarted_daemon_ends_no_training(build, make_daemon):
    d = make_daemon()
    t = Trainer(0.01, reconnect=300, hold_at=3)
    with begin(build, "--steps", "30", "--before", "2") as asks:
        until("replays", lambda: len(t.replays()) > 2)
        d.process.kill()
        d.process.wait()
        t.gate.set()
        out, err = asks.communicate(timeout=300)
        assert asks.returncode != 0 and err
    d.start()
    t.end()
    assert together(t)[1] == 30  # what all ranks can agree on without a daemon
    exactly_once(t)


def test_a_trainer_that_leaves_its_epoch(daemon, build):
    t = Trainer(0.05)
    with begin(build, "--steps", "800", "--before", "2", "--json") as asks:
        until("replays", lambda: len(t.replays()) > 5)
        t.ends = True
        out, err = asks.communicate(timeout=300)
    t.end()
    assert asks.returncode == 4 and "has left the job" in err


def test_next_into_gets_replays_too(daemon, build, batchctl):
    loader = batchd.DataLoader(RANDOM, job="run", **OPTIONS)
    rows, again, ends = [], [], threading.Event()
    into = np.zeros((8, 8), np.uint8)

    def train():
        while not ends.is_set() and loader.next_into(into) is not None:
            b = loader.last_batch
            (again if b.replayed else rows).append((b.indices.tolist(), into.copy()))
            time.sleep(0.003 if again or len(rows) < 100 else 0.2)

    thread = threading.Thread(target=train, daemon=True)
    thread.start()
    until("it trains", lambda: rows)
    measured(batchctl("headroom", "run", "--steps", "6", "--before", "3", "--json"))
    thread.join(300)
    loader.close()
    assert [i for indices, _ in rows for i in indices] == order(0) and len(again) == 6
    known = {tuple(indices): x for indices, x in rows}
    assert all(np.array_equal(known[tuple(indices)], x) for indices, x in again)


def test_the_environment_allows_it(daemon, batchctl, monkeypatch):
    monkeypatch.setenv("BATCHD_HEADROOM", "1")
    t = Trainer(headroom=False)
    assert measured(batchctl("headroom", "run", "--steps", "4", "--before", "2", "--json"))["ranks"]
    t.end()


def test_refusals(daemon, batchctl):
    def refused(text, *arguments):
        result = batchctl("headroom", *arguments)
        assert result.returncode != 0 and text in result.stderr and not result.stdout, result.stderr
        return result.returncode

    assert refused("there is no job 'run'", "run") == 4
    t = Trainer(0.005, epochs=1000, measured=False, headroom=False)
    assert refused("headroom=True", "run") == 4
    t.ends = True
    t.end()
    assert not t.replays()
    t = Trainer(0.005, epochs=1000, measured=False, job="half", rank=0, world_size=2)
    assert refused("1 of the job's 2 trainers take batches from this daemon", "half") == 1
    t.ends = True
    t.end()
    assert refused("--steps", "run", "--steps", "1") == 2


def test_timing_leaves_replays_out(daemon, batchctl):
    t = Trainer(0.005, epochs=1)
    measured(batchctl("headroom", "run", "--steps", "40", "--before", "2", "--json"))
    t.join(300)
    timing = t.loader.timing()
    assert timing["batches"] == 200 and timing["rows"] == 1600
    replays = t.replays()
    without = t.first_wait_s + t.times[-1] - t.times[0] - (t.times[replays[-1]] - t.times[replays[0] - 1])
    assert timing["rows"] / timing["rows_per_s"] == pytest.approx(without, rel=0.05, abs=0.05)

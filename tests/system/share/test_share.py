"""Share groups of real processes: late, slow, stopped and killed trainers get exactly their batches, and the others are
not affected. A trainer must get what it would get alone (golden), batch for batch and byte for byte."""

import json
import signal
import subprocess
import warnings

import numpy as np
import pytest

import batchd
from daemons import until
from test_end_to_end import Trainer

N, B = 640, 16
DATA = f"random:length={N},shape=3x4,seed=9"
PER_EPOCH = N // B

SCRIPT = """
    warnings_seen = []
    import warnings
    warnings.showwarning = lambda message, *rest, **more: warnings_seen.append(str(message))
    loader = batchd.DataLoader({data!r}, {batch}, shuffle=True, seed=4, mode="share", job="trials", n_slots=4{more})
    say(ready=True)
    n, left, hold = 0, 0, []
    for epoch in range({epochs}):
        for images, labels in loader:
            b = loader.last_batch
            say(epoch=b.epoch, step=b.step, indices=b.indices.tolist(), labels=labels.tolist(), digests=digests(images), skipped=b.n_skipped, apart=b.apart)
            while left == 0:                 # a line on stdin: how many batches to take before the next line; empty: all there are
                line = sys.stdin.readline()
                left = int(line) if line.strip() else 10 ** 9
            left -= 1
    say(done=loader.n_skipped, warnings=warnings_seen)
    loader.close()
"""


def start(more="", *, batch=B, epochs=1):
    more = ", rank=-1, world_size=1" + more
    return Trainer(SCRIPT.format(data=DATA, batch=batch, more=more, epochs=epochs), stdin=subprocess.PIPE)


@pytest.fixture(scope="module")
def golden_of():
    known = {}

    def golden(epoch, batch=B):
        if (epoch, batch) not in known:
            loader = batchd.DataLoader(
                DATA, batch, shuffle=True, seed=4, rank=0, world_size=1, job=f"golden-{batch}-{epoch}", arrays="numpy"
            )
            loader.set_epoch(epoch)
            known[epoch, batch] = [
                (loader.last_batch.indices.tolist(), labels.tolist(), digests(images)) for images, labels in loader
            ]
            loader.close()
        return known[epoch, batch]

    return golden


def digests(images):
    import hashlib

    return [hashlib.blake2b(row.tobytes(), digest_size=8).hexdigest() for row in np.asarray(images)]


def batches(said):
    return [s for s in said if "step" in s]


def is_golden(said, golden_of, batch=B):
    """Each batch is the one that its epoch and step name."""
    for s in batches(said):
        assert (s["indices"], s["labels"], s["digests"]) == golden_of(s["epoch"], batch)[s["step"]], (
            s["epoch"],
            s["step"],
        )


def places(said):
    return [(s["epoch"], s["step"]) for s in batches(said)]


def run(first, n):
    """n positions from (epoch, step) on."""
    at = first[0] * PER_EPOCH + first[1]
    return [((at + i) // PER_EPOCH, (at + i) % PER_EPOCH) for i in range(n)]


def begin(t):
    assert t.hear()["ready"]
    return t


def take(t, n):
    """Lets it take n more batches, and waits for its reports."""
    t.tell(str(n))
    return [t.hear() for _ in range(n)]


def finish(t):
    try:
        t.tell()
        t.process.stdin.close()
    except BrokenPipeError:  # it has finished
        pass
    return t.finish()


def test_a_late_trial_begins_where_it_asks(daemon, golden_of):
    # In each way, while another trainer is in the middle of epoch 0; all get the golden batches, the first at its own
    # pace and undisturbed.
    a = begin(start(epochs=2))
    first = [a.hear()] + take(a, 10)
    late = {how: begin(start(f", join={how!r}", epochs=1)) for how in ("next", "start", "epoch")}
    begun = {how: late[how].hear() for how in ("next", "start")}
    until("the third waits for an epoch", lambda: any("waits_for_epoch" in s for s in batchd.status()["sessions"]))
    said = first + finish(a)
    rest = {how: ([begun[how]] if how in begun else []) + finish(t) for how, t in late.items()}
    assert places(said) == run((0, 0), 2 * PER_EPOCH)
    is_golden(said, golden_of)
    for how, s in rest.items():
        is_golden(s, golden_of)
        assert all(x["skipped"] == 0 for x in batches(s))
    step = places(rest["next"])[0][1]
    assert 11 <= step <= 16 and places(rest["next"]) == run((0, step), PER_EPOCH - step)
    assert places(rest["start"]) == run((0, 0), PER_EPOCH)
    assert places(rest["epoch"]) == run((1, 0), PER_EPOCH)


@pytest.mark.parametrize("policy", ["skip", "detach"])
@pytest.mark.parametrize("how", ["stopped", "killed", "slow"])
def test_others_go_on_whatever_one_does(daemon, golden_of, policy, how):
    # One stops with all the batches that it may hold; the other two take every batch of two epochs all the same:
    # counted, not timed.
    trials = [begin(start(f", policy={policy!r}", epochs=2)) for _ in range(3)]
    said = [[t.hear()] for t in trials]
    if how == "stopped":
        trials[2].process.send_signal(signal.SIGSTOP)
    if how == "killed":
        trials[2].kill()
    for i in range(2 * PER_EPOCH - 1):  # lockstep: neither is ever more than one batch ahead
        for k in range(2):
            said[k] += take(trials[k], 1)
    if how == "stopped":
        trials[2].process.send_signal(signal.SIGCONT)
    if how != "killed":
        said[2] += finish(trials[2])
    for k in range(2):
        said[k] += finish(trials[k])
        assert places(said[k]) == run((0, 0), 2 * PER_EPOCH)
        is_golden(said[k], golden_of)
        assert said[k][-1]["done"] == 0
    if how != "killed":
        is_golden(said[2], golden_of)
        if policy == "detach":
            assert places(said[2]) == run((0, 0), 2 * PER_EPOCH)
            assert any("too slow for its share group" in w for w in said[2][-1]["warnings"])
        else:
            assert said[2][-1]["done"] + len(batches(said[2])) >= PER_EPOCH
            assert said[2][-1]["done"] == sum(s["skipped"] for s in batches(said[2])) > 0


def test_with_policy_wait_no_trainer_gets_ahead_by_more_than_the_slots(daemon, golden_of):
    # The slow trainer holds up the fast one, whatever that does; then both have every batch.
    fast, slow = begin(start(", policy='wait'", epochs=1)), begin(start(", policy='wait'", epochs=1))
    said = [[fast.hear()], [slow.hear()]]
    fast.tell()
    status = batchd.status()
    assert status["loaders"][0]["policy"] == "wait"
    said[1] += finish(slow)
    fast.process.stdin.close()
    said[0] += fast.finish()
    for s in said:
        assert places(s) == run((0, 0), PER_EPOCH)
        is_golden(s, golden_of)


def test_a_rank_that_is_started_again_alone_is_told_to_start_all(daemon):
    """A group with world_size goes on without a killed member, and does not go back for its successor."""

    def member(rank):
        more = f', rank={rank}, world_size=2, policy="wait"'
        return begin(Trainer(SCRIPT.format(data=DATA, batch=B, more=more, epochs=1), stdin=subprocess.PIPE))

    first, second = member(0), member(1)
    first.hear(), second.hear()
    second.kill()
    take(first, 10)
    again = member(1)
    told = again.process.stderr.read()
    assert again.process.wait(300) != 0
    assert "BehindError: the others of share job 'trials' are at epoch 0, batch" in told
    assert "start all of them again" in told and "world_size" not in told.partition("BehindError")[2], told
    finish(first)


def test_each_trial_takes_its_own_batch_size(daemon, golden_of):
    # 16, 8 and 64 rows of the same batches of 64: each gets what it would get alone.
    trials = {n: begin(start(", group_batch_size=64, policy='wait'", batch=n)) for n in (16, 8, 64)}
    for t in trials.values():
        t.tell()
    for n, t in trials.items():
        said = finish(t)
        assert [s["step"] for s in batches(said)] == list(range(N // n))
        is_golden(said, golden_of, n)


def make(batch, *, job="one", **more):
    return batchd.DataLoader(
        DATA,
        batch,
        shuffle=True,
        seed=4,
        mode="share",
        job=job,
        rank=-1,
        world_size=1,
        n_slots=4,
        arrays="numpy",
        **more,
    )


def test_slices_are_views_of_one_slot_and_end_their_leases_one_by_one(daemon):
    # Four slices of one batch, released in any order: the slot goes back with the last, and writing into one changes no
    # other.
    loader = make(16, group_batch_size=64)
    parts = []
    it = iter(loader)
    for _ in range(4):
        parts.append(next(it)[0])
    address = [p.__array_interface__["data"][0] for p in parts]
    assert np.diff(address).tolist() == [16 * 3 * 4 * 4] * 3  # one after the other in memory: without a copy
    kept = parts[3].copy()
    parts[2][:] = -1
    assert (parts[3] == kept).all()
    held = lambda: batchd.status()["sessions"][0]["held"]
    assert held() >= 1
    del parts[1:3]
    assert (parts[1] == kept).all()
    for _ in range(30):
        next(it)  # the slot of those two stays lent
    assert (parts[1] == kept).all()


@pytest.mark.parametrize("stop_at", [1, 5, 8, 37])
def test_a_state_in_the_middle_of_a_batch_is_exact(daemon, golden_of, stop_at):
    # Also when another size takes over: the remaining rows, each once.
    loader = make(16, group_batch_size=64)
    for i, _ in enumerate(loader, 1):
        if i == stop_at:
            break
    state = json.loads(json.dumps(loader.state_dict()))
    loader.close()
    again = make(16, group_batch_size=64)
    again.load_state_dict(state)
    got = [(again.last_batch.indices.tolist(), labels.tolist(), digests(images)) for images, labels in again]
    assert got == golden_of(0)[stop_at:]
    again.close()
    other = make(32, group_batch_size=64)
    other.load_state_dict(state)
    rows = [i for _ in other for i in other.last_batch.indices.tolist()]
    assert rows == [i for b in golden_of(0)[stop_at:] for i in b[0]]


def test_drop_last_is_each_trials_own(daemon):
    # 100 samples in batches of 64 and of 10, with and without.
    data = "random:length=105,shape=2"
    loaders = [
        batchd.DataLoader(
            data,
            n,
            mode="share",
            job="drop",
            rank=-1,
            world_size=1,
            arrays="numpy",
            group_batch_size=60,
            drop_last=drop,
            policy="wait",
        )
        for n, drop in ((10, True), (10, False), (60, True), (60, False))
    ]
    for _ in range(3):
        iterators = [iter(l) for l in loaders]
        sizes = [[], [], [], []]
        while any(iterators):
            for k, it in enumerate(iterators):
                got = next(it, None) if it else None
                if got is None:
                    iterators[k] = None
                else:
                    sizes[k].append(len(got[0]))
        assert sizes == [[10] * 10, [10] * 10 + [5], [60], [60, 45]]
        assert [len(l) for l in loaders] == [len(s) for s in sizes]


def test_mistakes_and_mismatches_are_named(daemon):
    with pytest.raises(
        ValueError, match="group's batches of 64 rows cannot be cut into 48; sizes that fit: 1, 2, 4, 8, 16, 32, 64"
    ):
        make(48, group_batch_size=64)
    with pytest.raises(ValueError, match="policy goes with mode='share'"):
        batchd.DataLoader(DATA, 16, policy="skip")
    with pytest.raises(ValueError, match="leave world_size out"):
        batchd.DataLoader(DATA, 16, mode="share", world_size=2, rank=0, join="next")
    with pytest.raises(ValueError, match="join must be one of next, epoch, start"):
        make(16, join="now")
    first = make(16, policy="skip")
    with pytest.raises(batchd.Error, match="another policy"):
        make(16, policy="wait")
    with pytest.raises(batchd.Error, match="another batch_size"):
        make(32, policy="skip")
    first.close()


def test_with_join_epochs_are_the_groups(daemon, golden_of):
    # A script that calls set_epoch out of habit gets one warning that it has no effect.
    a = make(16)
    a.set_epoch(5)
    it = iter(a)
    next(it)
    b = make(16, join="start")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        b.set_epoch(0)
        b.set_epoch(1)
    assert len(seen) == 1 and "set_epoch has no effect" in str(seen[0].message)
    images, labels = next(iter(b))
    assert (b.last_batch.epoch, b.last_batch.step) == (5, 0)
    assert digests(images) == golden_of(5)[0][2]


def test_a_trainer_that_joined_for_the_next_epoch_waits_for_it_and_the_status_says_so(daemon, golden_of, batchctl):
    # The wait ends with its time limit, and may be repeated; when the group reaches the epoch, both get the same
    # batches.
    a, b = make(16), make(16, join="epoch", timeout=0.3)
    a_it = iter(a)
    next(a_it)
    b_it = iter(b)
    with pytest.raises(TimeoutError, match="no batch within 0.3 s"):
        next(b_it)
    assert [s["waits_for_epoch"] for s in batchd.status()["sessions"] if s["rank"] == b.rank] == [1]
    assert "waits for its group to begin epoch 1" in batchctl("status").stdout
    assert sum(1 for _ in a_it) == PER_EPOCH - 1
    b.timeout, b._timeout_ms = 0, batchd._lib.UNTIL_SIGNAL
    for k, (x, y) in enumerate(zip(a, b_it, strict=True)):
        assert (b.last_batch.epoch, b.last_batch.step) == (1, k)
        assert digests(x[0]) == digests(y[0]) == golden_of(1)[k][2]


@pytest.mark.parametrize("how", ["stopped", "asleep"])
def test_a_trainer_that_waits_for_the_next_epoch_does_not_wait_for_a_stuck_one(make_daemon, golden_of, how):
    # The only trial that could bring the group there is inactive: it is reported, and the new one begins without it. It
    # has missed nothing when it continues.
    d = make_daemon(config="stall_after: 300ms\n")
    old = begin(start())
    said = [old.hear()]
    if how == "stopped":
        old.process.send_signal(signal.SIGSTOP)
    new = make(16, job="trials", join="epoch", on_stall="ignore")
    got = [digests(images) for images, _ in new]
    assert f"stalled: rank 0 of job trials (python, pid {old.process.pid}" in d.output()
    assert new.last_batch.epoch == 1 and got == [b[2] for b in golden_of(1)]
    # A trainer that comes long after that report gets it as well.
    with make(16, job="trials", on_stall="error") as later, pytest.raises(
        batchd.StalledError, match=f"rank 0 of job trials .*pid {old.process.pid}"
    ):
        list(later)
    new.close()
    old.process.send_signal(signal.SIGCONT)
    said += finish(old)
    assert places(said) == run((0, 0), PER_EPOCH)
    is_golden(said, golden_of)


def test_status_says_which_trainer_is_behind_and_what_it_missed(daemon, batchctl):
    fast, slow = make(16, policy="skip"), make(16, policy="skip")
    slow_it = iter(slow)
    next(slow_it)
    for _ in fast:
        pass
    status = batchd.status()
    loader, sessions = status["loaders"][0], {s["rank"]: s for s in status["sessions"]}
    assert loader["policy"] == "skip" and loader["batches_skipped"] > 0
    assert sessions[slow.rank]["skipped"] > 0 == sessions[fast.rank]["skipped"]
    assert sessions[fast.rank]["behind"] == 0 < sessions[slow.rank]["behind"]
    text = batchctl("status").stdout
    assert "skip" in text

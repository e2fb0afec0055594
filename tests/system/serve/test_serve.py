"""batchd.serve: trainers get the same as from iterating the same DataLoader, whichever trainers and producers wait, die
or take over."""

import itertools
import json
import os
import signal
import threading
import time

import pytest

torch = pytest.importorskip("torch")

import batchd  # noqa: E402
import served_data as data  # noqa: E402
from daemons import Daemon, runs, until  # noqa: E402
from test_end_to_end import Trainer  # noqa: E402
from test_reliability import as_user, finish_as, needs_root, public  # noqa: E402, F401

HERE = os.path.dirname(os.path.dirname(__file__))
SCRIPT = f"import sys; sys.path.insert(0, {HERE!r}); import served_data as data\n"


@pytest.fixture(autouse=True)
def limit():
    # Interrupts a wait without end.
    def on_alarm(*_):
        raise TimeoutError("the test took longer than 300 s")

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(300)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def serve(daemon):
    """Starts producers in processes of their own, which are ended with the test."""
    producers = []

    def start(what, name="speech", **more):
        producers.append(batchd.serve(what, name, **{"background": "fork", **more}))
        return producers[-1]

    yield start
    for p in producers:
        if p.is_alive():
            os.kill(p.pid, signal.SIGKILL)
        p.join()


def digests(loader, n=None):
    return [data.digest(b) for b in itertools.islice(loader, n)]


def test_batches_are_what_the_loader_gives_epoch_by_epoch(serve):
    # Several epochs of (images, labels), the short last batch included; len() as torch has it.
    serve(data.plain())
    golden = data.epoch_of(data.plain(), 0)
    loader = batchd.DataLoader("serve:speech")
    assert len(loader) == 13 and loader.batch_size == 8
    for _ in range(3):
        assert digests(loader) == golden
    assert loader.last_batch.epoch == 2 and loader.last_batch.n_rows == 4 and loader.last_batch.last


def test_each_epochs_shuffle_is_torchs_own(serve):
    # set_epoch reaches the sampler; batches have different shapes; texts and lists are sent too. Worker processes in
    # their usual order.
    serve(data.sentences(num_workers=2), slot_bytes=10000)
    here = data.sentences()
    loader = batchd.DataLoader("serve:speech")
    for epoch in (0, 1, 7):
        loader.set_epoch(epoch)
        assert digests(loader) == data.epoch_of(here, epoch)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_iterable_data_set_of_torch(serve, num_workers):
    # With its own workers, each of which has a part: the same batches as from the DataLoader here, epoch after epoch,
    # short ones of each worker included.
    golden = data.epoch_of(data.stream(num_workers), 0)
    serve(data.stream(num_workers))
    loader = batchd.DataLoader("serve:speech")
    for _ in range(2):
        assert digests(loader) == golden
    state = loader.state_dict()
    loader.close()
    again = batchd.DataLoader("serve:speech")
    again.load_state_dict(state)  # at the end of an epoch, so that no batch has to be repeated
    assert digests(again) == golden and again.last_batch.epoch == 2


def test_structures_types_and_contents_survive(serve):
    # Nested containers, every dtype torch and numpy share and bfloat16, strided and empty arrays, texts, bytes, None.
    serve(data.odd(), slot_bytes=1 << 16)
    loader = batchd.DataLoader("serve:speech")
    assert digests(loader) == [data.digest(b) for b in data.odd()]
    batch = next(iter(loader))
    assert (
        batch["bf16"].dtype == torch.bfloat16
        and batch["pair"].right == "right"
        and batch["nested"][1]["deep"][0].shape == (1,)
    )


def test_batches_are_views_and_writing_into_them_changes_no_other_trainers(serve):
    # One copy, into the slot: a large tensor is in shared memory; one trainer does not see another's writes.
    serve([torch.zeros(64, 1024) + i for i in range(6)])
    a, b = (batchd.DataLoader("serve:speech", mode="share", world_size=2, job="j", rank=r) for r in range(2))
    for i, (x, y) in enumerate(zip(a, b)):
        x += 100
        assert (y == i).all() and (x == i + 100).all()


@pytest.mark.parametrize("n", [2, 4])
def test_share_every_trainer_gets_every_batch(serve, n):
    # n trainers that read at different speeds.
    serve(data.plain(), seed=0)
    golden = data.epoch_of(data.plain(), 0) * 2
    got = [[] for _ in range(n)]

    def train(rank):
        loader = batchd.DataLoader("serve:speech", mode="share", world_size=n, rank=rank)
        for _ in range(2):
            for batch in loader:
                got[rank].append(data.digest(batch))
                time.sleep(0.002 * rank)

    threads = [threading.Thread(target=train, args=(r,)) for r in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert got == [golden] * n


def test_trials_come_and_go_at_any_time(serve):
    # One trainer stays for three epochs. Others come one after the other somewhere in between, maybe 7 batches before
    # the end or right after it, and leave again. Every batch that a trainer gets is the one that its epoch and step
    # name, without a gap.
    serve(data.sentences(), slot_bytes=10000)
    golden = [data.epoch_of(data.sentences(), e) for e in range(4)]
    faults, stays = [], batchd.DataLoader("serve:speech", mode="share", job="trials")

    def check(loader, batch, before):
        at = loader.last_batch.epoch, loader.last_batch.step
        if at[0] < len(golden) and data.digest(batch) != golden[at[0]][at[1]]:
            faults.append(("other batch", at))
        if before and at not in ((before[0], before[1] + 1), (before[0] + 1, 0)):
            faults.append(("gap", before, at))
        return at

    def visit(n):
        try:
            with batchd.DataLoader(
                "serve:speech", mode="share", job="trials", join=("next", None, "epoch")[n % 3]
            ) as loader:
                at, left = None, 3 + n % 5
                while left > 0:
                    for batch in loader:
                        at, left = check(loader, batch, at), left - 1
                        if left == 0:
                            break
        except Exception as e:
            faults.append(e)

    visitors = [threading.Thread(target=visit, args=(n,)) for n in range(7)]
    at, n_given = None, 0
    for epoch in range(3):
        for batch in stays:
            at = check(stays, batch, at)
            if n_given % 4 == 0 and n_given // 4 < len(visitors):
                visitors[n_given // 4].start()
            n_given += 1
            time.sleep(0.005)
    stays.close()
    for v in visitors:
        v.join()
    assert not faults and at == (2, len(golden[2]) - 1)


def test_a_trainer_behind_an_epochs_last_batch_gets_the_next_epoch(serve, tmp_path):
    # The end of the epoch is not known yet, because its iterable reports it late. Then the next epoch begins, also for
    # a trainer that has come for the rest of this one.
    def make(epoch):
        yield from (torch.full((2,), 10.0 * epoch + i) for i in range(3))
        while epoch == 0 and not (tmp_path / "end").exists():
            time.sleep(0.01)

    serve(make)
    first, late = (batchd.DataLoader("serve:speech", mode="share", job="trials", join=join) for join in (None, "next"))
    epoch = iter(first)
    assert [int(next(epoch)[0]) for _ in range(3)] == [0, 1, 2]
    joined = iter(late)
    (tmp_path / "end").touch()
    assert list(epoch) == []
    follower = threading.Thread(target=list, args=(first,))
    follower.start()
    assert [int(b[0]) for b in joined] == [10, 11, 12]
    assert late.last_batch.epoch == 1 and late.last_batch.step == 2 and late.last_batch.last
    follower.join()
    for loader in (first, late):
        assert int(next(iter(loader))[0]) == 20 and loader.last_batch.epoch == 2


@pytest.mark.parametrize("world", [2, 3])
def test_shard_deals_batches_out_in_turn_and_drops_an_incomplete_round(serve, world):
    # 13 batches: batch k goes to rank k % world; all ranks get the same number.
    serve(data.plain())
    golden = data.epoch_of(data.plain(), 0)[: 13 // world * world]
    loaders = [batchd.DataLoader("serve:speech", rank=r, world_size=world, job="ddp") for r in range(world)]
    assert {len(loader) for loader in loaders} == {13 // world}
    for _ in range(3):
        got = [d for step in zip(*loaders, strict=True) for d in map(data.digest, step)]
        assert got == golden


def test_ranks_in_processes_of_their_own(serve):
    # As under torchrun: nothing but RANK and WORLD_SIZE, several epochs.
    serve(data.sentences(), slot_bytes=10000)
    here = data.sentences()
    ranks = [
        Trainer(
            SCRIPT
            + """
loader = batchd.DataLoader("serve:speech")
for epoch in range(2):
    loader.set_epoch(epoch)
    say(got=[data.digest(b) for b in loader])
""",
            r,
            2,
            BATCHD_ARRAYS="torch",
        )
        for r in range(2)
    ]
    said = [t.finish() for t in ranks]
    for epoch in range(2):
        golden = data.epoch_of(here, epoch)[:8]
        assert [d for pair in zip(said[0][epoch]["got"], said[1][epoch]["got"], strict=True) for d in pair] == golden


def test_an_iterable_without_a_length(serve):
    # A function of the epoch that makes a generator: the epoch ends with the generator, and its length is not known
    # before.
    serve(lambda epoch: (torch.full((2,), 10.0 * epoch + i) for i in range(3 + epoch)), epochs=2)
    loader = batchd.DataLoader("serve:speech")
    with pytest.raises(TypeError, match="number of batches in an epoch of .* is not known"):
        len(loader)
    assert [[int(b[0]) for b in loader] for _ in range(2)] == [[0, 1, 2], [10, 11, 12, 13]]
    with pytest.raises(batchd.ProducerError, match="it has ended: there were 2 epochs"):
        next(iter(loader))


@pytest.mark.parametrize("leaves", [True, False])
def test_ranks_get_whole_rounds_wherever_another_one_is(serve, leaves):
    # Eight batches for three ranks, without a known length. The third leaves after its first one, or seeks to the next
    # epoch; the others get two rounds all the same, although the remaining batches would be enough for more.
    serve(lambda epoch: (torch.full((2,), 10.0 * epoch + i) for i in range(8)))
    loaders = [batchd.DataLoader("serve:speech", rank=r, world_size=3, job="ddp", n_slots=2) for r in range(3)]
    rounds = [iter(loader) for loader in loaders]
    assert [int(next(r)[0]) for r in rounds] == [0, 1, 2]
    if leaves:
        loaders[2].close()
    else:
        loaders[2].set_epoch(1)
        rounds[2] = iter(loaders[2])
    assert [[int(b[0]) for b in r] for r in rounds[:2]] == [[3], [4]]
    rounds[:2] = map(iter, loaders[:2])
    there = rounds[:2] if leaves else rounds
    assert [int(next(r)[0]) for r in reversed(there)] == [12, 11, 10][
        -len(there) :
    ]  # the third first: it gives back its batch of the previous epoch


def test_a_trainer_may_come_first(daemon, serve):
    # It waits for its producer and reports that; then it gets everything.
    trainer = Trainer(
        SCRIPT
        + """
loader = batchd.DataLoader("serve:speech", producer_timeout=60)
say(got=[data.digest(b) for b in loader])
""",
        BATCHD_ARRAYS="torch",
    )
    while b"waiting" not in (line := trainer.process.stderr.readline().encode()):
        assert line
    serve(data.plain())
    assert trainer.finish() == [{"got": data.epoch_of(data.plain(), 0)}]


def test_a_producer_that_never_comes_is_waited_for_within_a_limit(daemon):
    with pytest.raises(batchd.ProducerError, match="no producer named 'nobody' came within 0.3 s"):
        batchd.DataLoader("serve:nobody", producer_timeout=0.3)
    with pytest.raises(batchd.NotFoundError, match="serve:NAME"):
        batchd.DataLoader("nobody")


def test_a_bare_name_will_do_once_the_producer_is_there(serve, batchctl):
    p = serve(data.plain())
    batchd.DataLoader("serve:speech").close()
    assert digests(batchd.DataLoader("speech")) == data.epoch_of(data.plain(), 0)
    assert p.is_alive()


def slowly(n_before, then):
    """A data set that gives n_before batches and then calls a function."""

    class Slow:
        def __iter__(self):
            for i in range(n_before):
                yield torch.full((2, 2000), float(i))
            then()

    return Slow()


def until_error(loader):
    got = []
    with pytest.raises(batchd.ProducerError) as e:
        for batch in loader:
            got.append(int(batch[0, 0]))
    return got, e.value


def test_a_killed_producer_is_an_error_after_the_batches_it_made(serve):
    # SIGKILL in the middle of a batch: earlier batches arrive, then the reason.
    p = serve(slowly(3, lambda: time.sleep(600)))
    loader = batchd.DataLoader("serve:speech", n_slots=8)
    iterator = iter(loader)
    first = next(iterator)
    assert int(first[0, 0]) == 0
    deadline = time.monotonic() + 300
    while batchd.status()["producers"][0]["batches"] < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(p.pid, signal.SIGKILL)
    got, error = until_error(iterator)
    assert got == [1, 2]
    assert f"producer 'speech' (pid {p.pid}) was killed or crashed after batch 2 of epoch 0" in str(error)


class Stuck(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        time.sleep(600 if i > 3 else 0)
        return torch.tensor(i)


def test_workers_of_a_killed_producer_end_with_it(serve):
    # In the middle of a sample, where torch's own check of the parent never runs.
    p = serve(torch.utils.data.DataLoader(Stuck(), 4, num_workers=1), slot_bytes=4096)
    iterator = iter(batchd.DataLoader("serve:speech"))
    assert next(iterator).tolist() == [0, 1, 2, 3]
    workers = [int(pid) for pid in open(f"/proc/{p.pid}/task/{p.pid}/children").read().split()]
    assert workers
    os.kill(p.pid, signal.SIGKILL)
    with pytest.raises(batchd.ProducerError, match="was killed or crashed"):
        next(iterator)
    while any(runs(pid) for pid in workers):
        time.sleep(0.02)  # the alarm is the limit


def test_an_exception_arrives_with_its_traceback(serve):
    # The exception of the data set, with its place, in the trainer's exception.
    def then():
        raise ValueError("sample 17 has no sound")

    serve(slowly(2, then))
    got, error = until_error(batchd.DataLoader("serve:speech"))
    assert got == [0, 1]
    assert "ValueError: sample 17 has no sound" in str(error) and "Traceback" in str(error) and "in then" in str(error)


def test_an_exception_in_the_very_first_batch_arrives_too(serve):
    def then():
        raise KeyError("language")

    serve(slowly(0, then))
    with pytest.raises(batchd.ProducerError, match="KeyError: 'language'"):
        next(iter(batchd.DataLoader("serve:speech")))


def test_a_stopped_producer_says_so(serve):
    p = serve(slowly(1, lambda: time.sleep(600)))
    loader = batchd.DataLoader("serve:speech")
    iterator = iter(loader)
    next(iterator)
    os.kill(p.pid, signal.SIGTERM)
    p.join(300)
    with pytest.raises(batchd.ProducerError, match="it was stopped"):
        next(iterator)


def test_a_newer_producer_takes_over(serve):
    # Where it is unknown whether the new producer gives the same batches, its trainers get an error; a resumable one
    # just continues.
    old = serve(slowly(5000, lambda: None))
    loader = batchd.DataLoader("serve:speech")
    iterator = iter(loader)
    next(iterator)
    new = serve([torch.zeros(2, 2000)] * 3, resumable=False)
    until("the newer one is there", lambda: [p["pid"] for p in batchd.status()["producers"]] == [new.pid])
    got, error = until_error(iterator)
    assert got == list(range(1, 1 + len(got))) and len(got) < 1000 and "was replaced by a newer one" in str(error)
    old.join(300)
    assert not old.is_alive()


def stopping_before_7(pause):
    class Data:
        def __iter__(self):
            for i in range(20):
                time.sleep(pause if i == 6 else 0)
                yield torch.full((2, 2000), float(i))

    return Data()


def test_a_newer_producer_that_is_resumable_goes_on_where_the_old_one_was(serve):
    serve(stopping_before_7(600), resumable=True, id="x")
    loader = batchd.DataLoader("serve:speech")
    iterator = iter(loader)
    got = [int(next(iterator)[0, 0]) for _ in range(3)]
    serve(stopping_before_7(0), resumable=True, id="x")
    with pytest.warns(RuntimeWarning, match="was replaced"):
        got += [int(b[0, 0]) for b in iterator]
    assert got == list(range(20))


def sessions_when_there_are(n):
    deadline = time.monotonic() + 300
    while len(sessions := batchd.status()["sessions"]) != n and time.monotonic() < deadline:
        time.sleep(0.01)
    return sessions


def test_a_batch_on_loan_when_the_producer_dies_is_kept_by_the_trainer(serve):
    # The trainer lives on, as a notebook does: the daemon's slots are free once the loader is closed.
    p = serve(slowly(3, lambda: time.sleep(600)))
    with batchd.DataLoader("serve:speech") as loader:
        iterator = iter(loader)
        kept = next(iterator)
        os.kill(p.pid, signal.SIGKILL)
        until_error(iterator)
    assert sessions_when_there_are(0) == []
    assert (kept == 0).all()


def test_a_batch_on_loan_when_a_newer_producer_comes_is_kept_by_the_trainer(serve):
    serve(stopping_before_7(600), resumable=True, id="x")
    loader = batchd.DataLoader("serve:speech", n_slots=8)
    iterator = iter(loader)
    kept = next(iterator)
    serve(stopping_before_7(0), resumable=True, id="x")
    with pytest.warns(RuntimeWarning, match="was replaced"):
        got = [int(b[0, 0]) for b in iterator]
    assert got == list(range(1, 20))
    assert [s["state"] for s in sessions_when_there_are(1)] == ["attached"]
    assert (kept == 0).all()


def test_what_cannot_be_sent_is_named(serve):
    serve([{"x": torch.zeros(2)}, {"x": torch.zeros(2), "meta": [object()]}])
    with pytest.raises(batchd.ProducerError, match=r"batch\['meta'\]\[0\] is a builtins.object"):
        list(batchd.DataLoader("serve:speech"))


def test_options_that_are_the_producers_business_are_refused(serve):
    serve(data.plain())
    for option in ({"batch_size": 4}, {"shuffle": True}, {"transform": "val224"}, {"dtype": "uint8"}):
        with pytest.raises(ValueError, match=next(iter(option))):
            batchd.DataLoader("serve:speech", **option)
    for join in ("start", "next", "epoch"):
        options = {"mode": "share", "job": "trials", "join": join}
        if join == "start":
            with pytest.raises(ValueError, match="join='start'.*makes its batches once.*join='next'.*join='epoch'"):
                batchd.DataLoader("serve:speech", **options)
        else:
            with batchd.DataLoader("serve:speech", **options) as loader:
                assert digests(loader) == data.epoch_of(data.plain(), 0)
    with pytest.raises(ValueError, match="neither an iterable"):
        try:
            batchd.serve(17, "x")
        except TypeError as e:
            raise ValueError(*e.args) from e


def test_one_job_at_a_time(serve):
    # A second job gets an error that names the job fed by the producer; when the first has left, the second is served.
    serve(data.plain())
    first = batchd.DataLoader("serve:speech", job="one")
    next(iter(first))
    with pytest.raises(batchd.ProducerError, match="feeds job 'one' already, with 1 trainer;"):
        batchd.DataLoader("serve:speech", job="two")
    first.close()
    deadline = time.monotonic() + 300
    while True:  # the daemon may not have seen it leave yet
        try:
            second = batchd.DataLoader("serve:speech", job="two")
            break
        except batchd.ProducerError:
            assert time.monotonic() < deadline
    assert digests(second) == data.epoch_of(data.plain(), 0)


def test_killed_trainers_with_leases_disturb_no_other(serve, batchctl):
    # Rank 1 of a share job dies three times while it holds batches; rank 0 gets every batch, and in the end nothing is held.
    serve(data.plain(n=400))
    golden = data.epoch_of(data.plain(n=400), 0)
    survivor = iter(batchd.DataLoader("serve:speech", mode="share", job="kill"))
    got = [data.digest(next(survivor))]
    for rank in (1, 2):
        victim = Trainer(
            SCRIPT
            + f"""
loader = batchd.DataLoader("serve:speech", mode="share", job="kill", rank=-1)
loader.set_epoch({rank})
iterator = iter(loader)
say(ok=True)
time.sleep(600)
""",
            BATCHD_ARRAYS="torch",
        )
        assert victim.hear() == {"ok": True}
        got += digests(survivor, 3)
        victim.kill()
    got += digests(survivor)
    assert got == golden
    del survivor
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        status = json.loads(batchctl("status", "--json").stdout)
        if not status["sessions"] and all(s["held"] == 0 for loader in status["loaders"] for s in loader["streams"]):
            return
        time.sleep(0.02)
    pytest.fail(str(status))


@pytest.mark.parametrize("skip", ["sampler", "iterate"])
def test_a_checkpoint_in_the_middle_of_an_epoch(serve, skip):
    # Exactly the rest; also with another number of ranks, where that is possible.
    serve(data.sentences(), slot_bytes=10000, skip=skip)
    loader = batchd.DataLoader("serve:speech")
    golden = [data.epoch_of(data.sentences(), e) for e in range(3)]
    loader.set_epoch(1)
    iterator = iter(loader)
    assert digests(iterator, 4) == golden[1][:4]
    state = json.loads(json.dumps(loader.state_dict()))
    loader.close()
    again = batchd.DataLoader("serve:speech")
    again.load_state_dict(state)
    assert digests(again) == golden[1][4:]
    assert digests(again) == golden[2]
    end = again.state_dict()
    again.close()
    ranks = [batchd.DataLoader("serve:speech", rank=r, world_size=2, job="ddp") for r in range(2)]
    for loader in ranks:
        loader.load_state_dict(state)
    assert [d for pair in zip(*ranks, strict=True) for d in map(data.digest, pair)] == golden[1][4:8]
    assert end["epoch"] == 2 and end["last"]


def test_a_producer_that_is_not_resumable_is_not_begun_in_the_middle(serve):
    serve(data.plain(shuffle=True))
    loader = batchd.DataLoader("serve:speech")
    next(iter(loader))
    state = loader.state_dict()
    loader.close()
    again = batchd.DataLoader("serve:speech", job="again")
    again.load_state_dict(state)
    with pytest.raises(batchd.ProducerError, match="cannot begin with batch 1 of epoch 0(.|\n)*resumable=True"):
        next(iter(again))


def test_a_seed_makes_shuffles_reproducible(serve):
    # The same epoch twice, which without a seed would be two shuffles.
    serve(data.plain(shuffle=True), seed=3)
    loader = batchd.DataLoader("serve:speech")
    first = digests(loader)
    loader.set_epoch(0)
    assert digests(loader) == first and sorted(first) != sorted(data.epoch_of(data.plain(), 0))


def test_a_restarted_daemon_is_gone_on_with(daemon, serve):
    # Producer and trainer find the new daemon and continue exactly where they were.
    serve(data.sentences(), slot_bytes=10000)
    golden = [data.epoch_of(data.sentences(), e) for e in range(2)]
    loader = batchd.DataLoader("serve:speech", n_slots=3)  # so that some batches are still to be made
    iterator = iter(loader)
    got = digests(iterator, 3)
    daemon.kill()
    daemon.start()
    with pytest.warns(RuntimeWarning):
        got += digests(iterator)
    assert got == golden[0]
    assert digests(loader) == golden[1]


def test_a_background_producer_ends_with_its_process(daemon):
    # Also when the parent is killed.
    parent = Trainer("""
p = batchd.serve([np.zeros((2, 3))], "speech", background=True)
loader = batchd.DataLoader("serve:speech")
say(pid=p.pid, shape=next(iter(loader)).shape)
time.sleep(600)
""")
    said = parent.hear()
    assert said["shape"] == [2, 3]
    parent.kill()
    deadline = time.monotonic() + 300
    while runs(said["pid"]):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_status_lists_producers(serve, batchctl):
    p = serve(data.plain())
    loader = batchd.DataLoader("serve:speech")
    assert len(list(loader)) == 13
    (s,) = json.loads(batchctl("status", "--json").stdout)["producers"]
    assert (
        s["name"] == "speech"
        and s["pid"] == p.pid
        and s["batches"] >= 13
        and s["job"] == loader.job
        and s["slot_bytes"] > 0
    )
    text = batchctl("status").stdout
    assert "speech" in text and str(p.pid) in text


# ---- other users ----

NAMED = """socket_mode: 0666
datasets:
- {name: speech, source: 'serve:words', users: [65532, 65533]}
"""
FEED = """
    def batches():
        say(ready=True)
        for i in range(5):
            yield [np.full((2, 3), %d + i)]
    batchd.serve(batches(), "words")
    """
TAKE = """
    try:
        loader = batchd.DataLoader("%s", producer_timeout=%g)
        say(n=[int(batch[0][0, 0]) for batch in loader], uid=os.getuid())
    except batchd.Error as e:
        say(type=type(e).__name__, text=str(e))
    """


@needs_root
def test_a_configured_name_is_fed_by_and_gives_to_the_users_it_lists_only(build, public, monkeypatch):  # noqa: F811
    # 65532 makes batches, 65533 takes them by the configured name. A producer of 65534 with the same name was there
    # first and feeds neither; the trainer of 65534 is refused, and a trainer that opens serve:words without the
    # configuration gets no other user's batches.
    d = Daemon(public, ["--log-level", "info"], NAMED)
    producers = []
    try:
        monkeypatch.setenv("BATCHD_SOCKET", str(d.socket))
        producers.append(as_user(65534, FEED % 900))
        producers[0].hear()
        until_served(d, 65534)
        none = finish_as(65533, TAKE % ("speech", 0.3))[0]
        assert none["type"] == "ProducerError" and "no producer named 'words'" in none["text"]
        producers.append(as_user(65532, FEED % 100))
        producers[1].hear()
        until_served(d, 65532)
        none = finish_as(65533, TAKE % ("serve:words", 0.3))[0]
        assert none["type"] == "ProducerError" and "as the same user" in none["text"]
        refused = finish_as(65534, TAKE % ("speech", 5))[0]
        assert refused["type"] == "AccessError" and "speech" in refused["text"]
        assert finish_as(65533, TAKE % ("speech", 20)) == [{"n": [100, 101, 102, 103, 104], "uid": 65533}]
    finally:
        for p in producers:
            p.kill()
        d.stop()


def until_served(d, uid):
    """Until the daemon's log has that user's producer."""
    deadline = time.monotonic() + 300
    while f"uid {uid}) serves 'words'" not in d.output():
        assert time.monotonic() < deadline, d.output()
        time.sleep(0.01)


def test_mistakes_are_told_to_the_producer(tmp_path):
    # Raised before anything is started, also where the producer would be a background process.
    for kind, word, what, more in (
        (TypeError, "Sentences has samples by number.* DataLoader", data.Sentences(), {}),
        (TypeError, "int is neither", 5, {}),
        (TypeError, "NoneType is neither", None, {}),
        (TypeError, "'hello' is a text", "hello", {}),
        (ValueError, "epochs .*-1", data.plain(), {"epochs": -1}),
        (TypeError, "slot_bytes .*1MB", data.plain(), {"slot_bytes": "1MB"}),
        (ValueError, "seed", data.plain(), {"seed": 0.5}),
        (TypeError, "reconnect", data.plain(), {"reconnect": "1"}),
        (TypeError, "socket", data.plain(), {"socket": 5}),
        (ValueError, "name", data.plain(), {"name": ""}),
        (ValueError, "skip", data.plain(), {"skip": "all"}),
    ):
        for background in (False, True):
            with pytest.raises(kind, match=word):
                batchd.serve(what, **{"name": "wrong", **more}, background=background)

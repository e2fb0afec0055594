"""Exact resume, and the messages between a job's ranks: against golden lists of torch's own sampler, with real
processes that are stopped, killed and restarted."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import warnings

import numpy
import pytest

import batchd
from test_end_to_end import Trainer
from daemons import until
from test_reliability import status

torch = pytest.importorskip("torch")
from torch.utils.data import DistributedSampler  # noqa: E402

N = 97


def make(n=N, **options):
    options = {"shuffle": True, "seed": 3, "arrays": "numpy", "n_slots": 3, **options}
    return batchd.DataLoader(f"random:length={n},shape=2", options.pop("batch_size", 4), **options)


def golden(epoch, *, n=N, seed=3, shuffle=True, world=1, rank=0, drop_last=False):
    sampler = DistributedSampler(range(n), world, rank, shuffle=shuffle, seed=seed, drop_last=drop_last)
    sampler.set_epoch(epoch)
    return list(sampler)


def real(loader):
    """Sample numbers of the current batch, without padding."""
    b = loader.last_batch
    return b.indices[: b.n_rows - b.n_padding].tolist()


# ---- random histories ----


class History:
    """A training that is killed, resumed, and moved to more or fewer ranks at random; every global step must hold
    exactly the next samples of the epoch's order."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.n = self.random.choice((1, 2, 7, 48, 97, 130))
        self.shuffle = self.random.random() < 0.8
        self.drop_last = self.random.random() < 0.3
        self.seed = self.random.randrange(2**40)
        self.global_batch = self.random.choice((4, 8, 12))
        self.keep_global = self.random.random() < 0.7
        self.state, self.given = None, 0
        self.in_loop = False  # the state was saved after an epoch's last batch, before its loop ended
        self.epoch, self.at = 0, 0  # samples of the epoch's order that were consumed
        self.order = self.order_of(0)

    def order_of(self, epoch):
        return golden(epoch, n=self.n, seed=self.seed, shuffle=self.shuffle)

    def loaders(self):
        """A crew of some size, resumed from the last checkpoint (possibly through JSON, as checkpoints are)."""
        world = self.random.choice([w for w in (1, 2, 4) if self.global_batch % w == 0])
        batch = self.global_batch // world if self.keep_global else self.random.choice((1, 3, 5))
        job = f"history-{self.random.random()}"
        crew = [
            make(
                self.n,
                batch_size=batch,
                shuffle=self.shuffle,
                seed=self.seed,
                drop_last=self.drop_last,
                rank=r,
                world_size=world,
                job=job,
            )
            for r in range(world)
        ]
        if self.state is not None:
            for loader in crew:
                loader.load_state_dict(json.loads(json.dumps(self.state)))
                if self.in_loop:
                    assert list(loader) == []
        return crew, world, batch

    def steps_left(self, world, batch):
        left = self.n - self.at
        rows = left // world if self.drop_last else -(-left // world)
        return rows // batch if self.drop_last else -(-rows // batch)

    def next_epoch(self):
        self.epoch, self.at = self.epoch + 1, 0
        self.order = self.order_of(self.epoch)

    def live(self):
        """One life of the crew: some batches, perhaps past the end of an epoch, an occasional checkpoint, the end at
        any moment."""
        crew, world, batch = self.loaders()
        budget = self.random.randrange(0, 14)
        saved = self.epoch, self.at, self.given
        while budget > 0:
            steps = self.steps_left(world, batch)
            iterators = [iter(loader) for loader in crew]
            if self.random.random() < 0.3:  # before the first batch: this must not lose anything
                self.check_state(crew)
                saved = self.epoch, self.at, self.given
            for _ in range(steps):
                got = []
                for it in iterators:
                    next(it)
                for loader in crew:
                    assert loader.last_batch.epoch == self.epoch
                    got += real(loader)
                n = min(world * batch, self.n - self.at)
                assert sorted(got) == sorted(self.order[self.at : self.at + n]), (self.epoch, self.at)
                self.at, self.given, budget = self.at + n, self.given + 1, budget - 1
                if self.random.random() < 0.4:
                    self.check_state(crew)
                    saved = self.epoch, self.at, self.given
                    self.in_loop = self.steps_left(world, batch) == 0
                    if self.in_loop:
                        saved = self.epoch + 1, 0, self.given
                if budget <= 0:
                    break
            else:
                for it in iterators:
                    assert next(it, None) is None
                self.next_epoch()
                budget -= 1
                if self.random.random() < 0.4:
                    self.check_state(crew)
                    saved = self.epoch, self.at, self.given
        for loader in crew:
            loader.close()
        if self.state is None:
            saved = 0, 0, 0
        self.epoch, self.at, self.given = saved
        self.order = self.order_of(self.epoch)

    def check_state(self, crew):
        states = [loader.state_dict() for loader in crew]
        assert all(s == states[0] for s in states)
        self.state, self.in_loop = states[0], False
        assert self.state["global_batch"] == self.given


def test_random_histories_of_kills_and_elastic_worlds_follow_the_golden_order(make_daemon):
    """As many as fit a few seconds, each of about ten lives; tests/soak has the long run."""
    make_daemon(config="linger: 0s\nlimits:\n  loaders: 4096\n")
    rounds, began = int(os.environ.get("BATCHD_HISTORIES", 0)), time.monotonic()
    first = seed = int(os.environ.get("BATCHD_FIRST_HISTORY", 0))
    while seed - first < rounds if rounds else time.monotonic() - began < 6 or seed - first < 15:
        history = History(seed)
        try:
            for _ in range(10):
                history.live()
        except BaseException:
            print("history", seed)
            raise
        seed += 1
    print(f"{seed - first} histories")


# ---- bugs of other loaders, and positions that are easy to lose ----


def test_state_before_the_first_batch_of_a_resumed_epoch_keeps_its_rest(daemon):
    """Saved between iter() and the first batch: the epoch's rest must not be skipped."""
    loader = make()
    it = iter(loader)
    for _ in range(3):
        next(it)
    again = make()
    again.load_state_dict(loader.state_dict())
    iter(again)
    third = make()
    third.load_state_dict(again.state_dict())
    next(iter(third))
    assert third.last_batch.indices.tolist() == golden(0)[12:16]


def test_state_after_set_epoch_is_that_epochs_begin(daemon):
    """Epoch 0 is over, set_epoch(5) decides what follows, also after a resume without a set_epoch."""
    loader = make()
    for _ in loader:
        pass
    loader.set_epoch(5)
    again = make()
    again.load_state_dict(loader.state_dict())
    next(iter(again))
    assert again.last_batch.epoch == 5 and again.last_batch.indices.tolist() == golden(5)[:4]


def test_a_batchs_own_token_resumes_behind_it(daemon):
    """For wrappers that fetch ahead: the token of the batch that was really used."""
    loader = make()
    tokens = []
    for _ in loader:
        tokens.append(loader.last_batch.token)
    assert tokens[-1]["token"] == loader.state_dict()["token"] and tokens[-1]["last"]
    assert not tokens[-1]["finished"] and loader.state_dict()["finished"]
    for k in (0, 7, len(tokens) - 2):
        again = make()
        again.load_state_dict(tokens[k])
        next(iter(again))
        assert again.last_batch.step == k + 1 and again.last_batch.global_batch == k + 2


def test_ended_twice_and_resumed_between_no_epoch_is_lost(daemon):
    """End-of-epoch tokens, saved and loaded over and over: epochs 0, 1, 2, ... each once."""
    state, epochs = None, []
    for _ in range(4):
        loader = make(batch_size=50)
        if state:
            loader.load_state_dict(state)
            loader.load_state_dict(loader.state_dict())  # and once more without a step
        for _ in loader:
            epochs.append(loader.last_batch.epoch)
        state = loader.state_dict()
        loader.close()
    assert epochs == [0, 0, 1, 1, 2, 2, 3, 3]


class Sampler:
    batch_size = 6

    def __init__(self, seed=None):
        self.rng = numpy.random.default_rng(seed)

    def __iter__(self):
        rng = numpy.random.default_rng(self.rng.integers(2**32)) if self.rng is not None else None
        order = rng.permutation(N)
        for start in range(0, N, 6):
            yield order[start : start + 6].tolist()

    def __len__(self):
        return 17


def test_a_sampler_that_cannot_repeat_itself_is_refused_at_resume_but_survives_the_daemon(make_daemon):
    """Random without a seed: after a reconnect the already drawn batches continue; a resume would train on others, and
    raises an error."""
    d = make_daemon()
    sampler = Sampler()
    loader = make(batch_size=None, shuffle=False, batch_sampler=sampler, seed=0)
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in loader:
            found += loader.last_batch.indices.tolist()
            if len(found) == 24:
                state = loader.state_dict()
                d.kill()
                d.start()
    assert sorted(found) == list(range(N))
    again = make(batch_size=None, shuffle=False, batch_sampler=Sampler(), seed=0)
    again.load_state_dict(state)
    with pytest.raises(ValueError, match="other batches"):
        next(iter(again))
    # A repeatable sampler continues; at the end of an epoch the next one follows.
    first = make(batch_size=None, shuffle=False, batch_sampler=Sampler(1), seed=0)
    it = iter(first)
    for _ in range(4):
        next(it)
    second = make(batch_size=None, shuffle=False, batch_sampler=Sampler(1), seed=0)
    second.load_state_dict(first.state_dict())
    assert len([1 for _ in second]) == 13
    assert second.state_dict()["last"]
    third = make(batch_size=None, shuffle=False, batch_sampler=Sampler(1), seed=0)
    third.load_state_dict(second.state_dict())
    assert len([1 for _ in third]) == 17 and third.last_batch.epoch == 1


# ---- bad samples ----


def test_substitutes_are_the_same_after_a_resume_and_in_another_world(make_daemon, samples, tmp_path):
    """Five undecodable files: the substitute for each depends on seed, epoch and sample alone, in any life and on any
    rank."""
    make_daemon(config="bad_data: 100%\n")
    tree = tmp_path / "tree"
    shutil.copytree(samples, tree)
    files = sorted(p for p in tree.glob("*/*") if p.is_file())
    for i in (3, 20, 41, 60, 95):
        files[i].write_bytes(b"no picture")
    options = {"shuffle": True, "seed": 5, "transform": "train224", "dtype": "uint8", "arrays": "numpy"}

    def rows(loader, most=None):
        found = {}
        for k, (images, labels) in enumerate(loader):
            b = loader.last_batch
            for i in range(b.n_rows - b.n_padding):
                found[b.base + (b.step * loader.batch_size + i) * loader.world_size + loader.rank] = (
                    int(b.indices[i]),
                    int(labels[i]),
                    images[i].tobytes(),
                )
            if most and k + 1 == most:
                break
        return found

    whole = rows(batchd.DataLoader(f"imagefolder:{tree}", 8, **options))
    order = golden(0, n=96, seed=5)
    assert sum(whole[p][0] != order[p] for p in range(96)) == 5
    first = batchd.DataLoader(f"imagefolder:{tree}", 8, **options)
    got = rows(first, 2)
    pair = [batchd.DataLoader(f"imagefolder:{tree}", 4, rank=r, world_size=2, job="pair", **options) for r in range(2)]
    for loader in pair:
        loader.load_state_dict(first.state_dict())
    for loader in pair:
        got.update(rows(loader, 3))
    last = batchd.DataLoader(f"imagefolder:{tree}", 8, **options)
    last.load_state_dict(pair[0].state_dict())
    got.update(rows(last))
    assert got == whole


# ---- a data set that has changed, tokens that are not ours ----


def test_a_changed_data_set_is_refused(daemon, samples, tmp_path):
    """With the numbers, and how to find what has changed; a moved data set counts as unchanged; the loader stays usable."""
    tree = tmp_path / "tree"
    shutil.copytree(samples, tree)
    options = {"transform": "val224", "arrays": "numpy"}
    state = batchd.DataLoader(f"imagefolder:{tree}", 8, **options).state_dict()
    files = sorted(p for p in tree.glob("*/*") if p.is_file())
    moved = tmp_path / "moved"
    shutil.copytree(tree, moved)
    batchd.DataLoader(f"imagefolder:{moved}", 8, **options).load_state_dict(state)

    def refusal():
        loader = batchd.DataLoader(f"imagefolder:{tree}", 8, **options)
        with pytest.raises(ValueError) as e:
            loader.load_state_dict(state)
        assert sum(1 for _ in loader) == len(loader)
        return str(e.value)

    for k in range(12):
        shutil.copy(files[0], files[0].with_name(f"zz{k:02}.jpg"))
    find = ". `find . -cnewer CHECKPOINT` in its folder lists the files and folders that have changed"
    assert refusal().endswith(" is now: 96 samples then, 108 now" + find)
    for k in range(12):
        files[0].with_name(f"zz{k:02}.jpg").unlink()
    files[5].unlink()
    assert refusal().endswith(" is now: 96 samples then, 95 now" + find)
    shutil.copy(files[0], files[5])
    shutil.move(files[0], files[-1].with_name("zz.jpg"))
    assert refusal().endswith(" is now: as many samples, but other ones" + find)


def test_a_data_set_that_changes_while_the_daemon_is_away_is_refused_too(make_daemon, samples, tmp_path):
    """The loader does not continue with other data."""
    d = make_daemon()
    tree = tmp_path / "tree"
    shutil.copytree(samples, tree)
    loader = batchd.DataLoader(f"imagefolder:{tree}", 8, transform="val224", arrays="numpy")
    it = iter(loader)
    next(it)
    d.kill()
    file = sorted(p for p in tree.glob("*/*") if p.is_file())[0]
    shutil.copy(file, file.with_name("zz.jpg"))
    d.start()
    with pytest.raises(batchd.Error, match="no longer the same: 96 samples then, 97 now. Put the files back"):
        for _ in it:
            pass


def test_foreign_and_damaged_states_are_refused_clearly(daemon):
    """Tokens of other kinds, cut, changed, from arrays of another length."""
    state = make().state_dict()
    token = state["token"]
    for bad in (None, [], {}, {"epoch": 1}, {**state, "version": 1}, {**state, "token": 7}):
        with pytest.raises(ValueError, match="no state of a batchd.DataLoader"):
            make().load_state_dict(bad)
    for text, why in (
        (token[:-3], "damaged"),
        (token.replace("epoch=0", "epoch=1"), "damaged"),
        ("", "no token"),
        ("\N{SNOWMAN}", "no token"),
        (token + "\n", "damaged"),
    ):
        with pytest.raises(ValueError, match=why):
            make().load_state_dict({**state, "token": text})
    with pytest.raises(ValueError, match="97 samples then|length=97.*97 samples then, random:length=98.*98"):
        make(98).load_state_dict(state)


def test_another_transform_is_warned_about(daemon, samples):
    """The samples are the same, so it is allowed: finetuning at another size."""
    state = batchd.DataLoader(f"imagefolder:{samples}", 8, transform="val224").state_dict()
    with pytest.warns(RuntimeWarning, match="another transform"):
        batchd.DataLoader(f"imagefolder:{samples}", 8, transform="train224").load_state_dict(state)


# ---- incarnations ----


def test_torchrun_restarts_a_job_and_the_new_workers_take_over(daemon, tmp_path):
    """Rank 0 fails in the middle of epoch 1, twice, and torchrun ends rank 1 in the middle of a step. It starts both again;
    they resume from the checkpoint, and every sample of both epochs has been trained on."""
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent("""
        import json, os, pathlib, signal, sys
        import batchd
        restart, rank = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["RANK"])
        folder = pathlib.Path(sys.argv[1])
        loader = batchd.DataLoader("random:length=97,shape=2", 4, shuffle=True, seed=3, arrays="numpy")
        assert loader._options.incarnation == restart
        mine, seen = folder / f"state{rank}", [] # one file: rank 1 may be ended between any two lines
        if mine.exists():
            seen, state = json.loads(mine.read_text())
            loader.load_state_dict(state)
        for epoch in range(loader.state_dict()["epoch"], 2):
            loader.set_epoch(epoch)
            for _ in loader:
                b = loader.last_batch
                if epoch == 1 and b.step == 3 + restart * 3 and restart < 2:
                    if rank:
                        signal.pause()
                    os._exit(7)
                seen.append([b.epoch, b.step, b.indices[:b.n_rows - b.n_padding].tolist(), loader.job])
                new = folder / f"new{rank}"
                new.write_text(json.dumps([seen, loader.state_dict()]))
                new.rename(mine)
        """)
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc_per_node=2",
            "--max-restarts=2",
            "--monitor-interval=0.1",
            str(script),
            str(tmp_path),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads((tmp_path / f"state{r}").read_text())[0] for r in range(2)]
    assert len({line[3] for rank in lines for line in rank}) == 1  # one job through all restarts
    for rank in range(2):
        for epoch in range(2):
            seen = [i for e, _, indices, _ in lines[rank] if e == epoch for i in indices]
            assert seen == golden(epoch, world=2, rank=rank)[: len(seen)] and len(seen) >= 48  # in order, each once
    assert sorted(i for rank in lines for e, _, indices, _ in rank if e == 1 for i in indices) == list(range(97))


HOLDING = """
    loader = batchd.DataLoader("random:length=97,shape=2", 4, shuffle=True, seed=3, n_slots=3, job="fence")
    it = iter(loader)
    held = [next(it)[0] for _ in range(2)]
    before = [x.tobytes() for x in held]
    say(ready=True)
    sys.stdin.readline()
    del held[0]
    try:
        for _ in it:
            pass
        say(error=None)
    except batchd.Error as e:
        say(error=type(e).__name__, text=str(e), same=held[-1].tobytes() == before[-1])
"""


def test_a_stopped_rank_is_told_that_it_was_replaced_also_after_the_daemon_was(make_daemon):
    """SIGSTOP, a successor, SIGCONT: FencedError that names the successor; its late releases and requests affect no
    other trainer; the same if the daemon died in between."""
    d = make_daemon()
    for kill in (False, True):
        old = Trainer(HOLDING, stdin=subprocess.PIPE)
        old.hear()
        old.process.send_signal(signal.SIGSTOP)
        fresh = Trainer(
            """
            import warnings
            warnings.simplefilter("ignore")
            loader = batchd.DataLoader("random:length=97,shape=2", 4, shuffle=True, seed=3, n_slots=3, job="fence")
            for _ in loader:
                say(step=loader.last_batch.step, indices=loader.last_batch.indices.tolist())
                sys.stdin.readline()
            """,
            stdin=subprocess.PIPE,
        )
        said = [fresh.hear()]
        if kill:
            d.kill()
            d.start()
            fresh.tell()
            said.append(fresh.hear())
        old.process.send_signal(signal.SIGCONT)
        old.tell()
        heard = old.hear()
        assert heard["error"] == "FencedError" and heard["same"] and f"pid {fresh.process.pid}" in heard["text"], heard
        old.finish()
        fresh.process.stdin.close()
        said += fresh.finish()
        assert [i for b in said for i in b["indices"]] == golden(0)


WHOLE_JOB = """
    loader = batchd.DataLoader("random:length=97,shape=2", {batch}, shuffle=True, seed=3, n_slots=3, job="again", incarnation={incarnation})
    {resume}
    try:
        for images, labels in loader:
            b = loader.last_batch
            say(step=b.step, indices=b.indices[:b.n_rows - b.n_padding].tolist(), state=loader.state_dict())
            sys.stdin.readline()
        say(error=None)
    except batchd.Error as e:
        say(error=type(e).__name__, text=str(e))
"""


def start_job(world, batch, incarnation=0, state=None):
    resume = f"loader.load_state_dict(json.loads({json.dumps(state)!r}))" if state else ""
    script = WHOLE_JOB.format(batch=batch, incarnation=incarnation, resume=resume)
    return [Trainer(script, rank, world, stdin=subprocess.PIPE) for rank in range(world)]


@pytest.mark.parametrize("world, batch, incarnation", [(2, 6, 0), (2, 6, 1), (4, 3, 1), (1, 12, 1)])
def test_a_whole_job_is_started_again_while_the_old_one_lives(daemon, world, batch, incarnation):
    """Two ranks are stopped in the middle of an epoch while they hold batches; the job is started again from the
    checkpoint, with the same or another number of ranks (and the same global batch). It gets exactly the rest. The old
    ranks get an error when they continue, and none of their actions takes anything from the new job."""
    old = start_job(2, 6)
    seen = []
    for _ in range(3):
        said = [rank.hear() for rank in old]
        seen += [i for s in said for i in s["indices"]]
        if len(seen) < 36:
            for rank in old:
                rank.tell()
    for rank in old:
        rank.process.send_signal(signal.SIGSTOP)
    new = start_job(world, batch, incarnation, said[0]["state"])
    lines = [[rank.hear()] for rank in new]
    for rank in old:
        rank.process.send_signal(signal.SIGCONT)
        rank.tell()
        rank.process.stdin.close()
    for rank in old:
        ended = rank.finish()[-1]
        assert ended["error"] == "FencedError" and ("incarnation" if incarnation else "newer process") in ended["text"]
    for rank, said in zip(new, lines):
        rank.process.stdin.close()
        said += rank.finish()
        assert said[-1] == {"error": None}
    for step in zip(*(said[:-1] for said in lines), strict=True):
        rows = [i for s in step for i in s["indices"]]
        assert sorted(rows) == sorted(golden(0)[len(seen) : len(seen) + len(rows)])
        seen += rows
    assert sorted(seen) == list(range(97))


def test_a_job_of_another_size_needs_a_higher_incarnation(daemon):
    """While the old one lives, a restart cannot be told from a mistake; the refusal says how to mark a restart."""
    old = start_job(2, 6)
    for rank in old:
        rank.hear()
    with pytest.raises(batchd.MismatchError, match="another batch_size.*incarnation"):
        make(batch_size=3, job="again", rank=0, world_size=4)
    batchd.DataLoader(
        "random:length=97,shape=2", 3, shuffle=True, seed=3, job="again", rank=0, world_size=4, incarnation=1
    ).close()
    for rank in old:
        rank.tell()
        rank.process.stdin.close()
        assert rank.finish()[-1]["error"] == "FencedError"


# ---- stalls ----


def test_one_thread_watches_all_loaders_of_a_process(make_daemon):
    """However many come and go, and it ends with the last of them."""
    make_daemon(config="linger: 0s\n")
    program = """
import threading, time, batchd, batchd._watch
def watchers():
    return sum(t.name == "batchd-watch" for t in threading.enumerate())
batchd._watch.LOOK_S = 0.05
loaders = []
for i in range(20):
    loader = batchd.DataLoader("random:length=97,shape=2", 4, job=f"many {i}", rank=0, world_size=2)
    loader.set_epoch(1)
    iter(loader)
    loaders.append(loader)
    assert watchers() == 1, watchers()
while loaders:
    loaders.pop().close()
deadline = time.monotonic() + 60
while watchers() and time.monotonic() < deadline:
    time.sleep(0.01)
assert not watchers()
loader = batchd.DataLoader("random:length=97,shape=2", 4, job="one more", rank=0, world_size=2)
iter(loader)
assert watchers() == 1
print("done")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0 and done.stdout == "done\n", done.stdout + done.stderr


RANK = """
    import batchd._watch
    batchd._watch.LOOK_S = batchd._watch.QUIET_S = 0.2
    import warnings
    loader = batchd.DataLoader("random:length=97,shape=2", 4, job="stall", n_slots=3)
    warnings.showwarning = lambda message, *_: say(warned=str(message))
    for images, labels in loader:
        say(step=loader.last_batch.step)
        sys.stdin.readline()
"""


def test_a_stopped_rank_is_reported_to_log_status_and_the_others_while_they_wait_elsewhere(make_daemon, batchctl):
    """Rank 1 is stopped while it holds a batch. Rank 0, which waits for it outside of batchd as in a collective, is
    told all the same; one log record per stall; then it continues."""
    d = make_daemon(config="stall_after: 1s\nlog_level: notice\n")
    ranks = [Trainer(RANK, r, 2, stdin=subprocess.PIPE) for r in range(2)]
    for rank in ranks:
        assert rank.hear() == {"step": 0}
    ranks[1].process.send_signal(signal.SIGSTOP)
    stalled = until("it is reported", lambda: [s for s in status()["sessions"] if s["stalled"]])[0]
    assert (
        stalled["rank"] == 1
        and stalled["pid"] == ranks[1].process.pid
        and stalled["held"] >= 1
        and "stopped" in stalled["stalled_why"]
    )
    warned = ranks[0].hear()["warned"]  # by the thread: the trainer itself is in readline
    where = f"pid {ranks[1].process.pid} on node {os.uname().nodename})"  # process ids repeat on other nodes
    assert "rank 1" in warned and where in warned and "stopped" in warned
    assert where in d.output()
    assert "is stalled: it is stopped" in batchctl("status").stdout
    time.sleep(0.5)
    assert d.output().count("stalled: rank 1") == 1
    ranks[1].process.send_signal(signal.SIGCONT)
    ranks[1].tell()
    assert ranks[1].hear() == {"step": 1}
    # Of rank 1: by now rank 0 sleeps while another rank is ahead.
    until("it is over", lambda: not [s for s in status()["sessions"] if s["stalled"] and s["rank"] == 1])
    assert "rank 1 of job stall" in d.output() and "goes on after" in d.output()
    for rank in ranks:
        rank.process.stdin.close()
        rank.process.kill()
        rank.process.wait()


def test_a_trainer_that_computes_or_evaluates_for_long_is_not_called_stalled(make_daemon):
    """Both ranks hold a batch for long: one uses the processor, one sleeps as in a collective at the same step. Neither
    is reported."""
    d = make_daemon(config="stall_after: 1s\n")
    ranks = [
        Trainer(RANK.replace("sys.stdin.readline()", body), r, 2, stdin=subprocess.PIPE)
        for r, body in enumerate(
            (
                "time.sleep(4)\n        break",
                "\n        t = time.monotonic()\n        while time.monotonic() < t + 4: pass\n        break",
            )
        )
    ]
    for rank in ranks:
        assert rank.finish() == [{"step": 0}]
    assert "stalled" not in d.output()


def test_a_rank_that_hangs_while_others_are_ahead_is_reported_and_can_be_an_error(make_daemon):
    """Not stopped, only asleep, while others continue: detected because it is behind. A trainer that requested it gets
    StalledError at its next wait."""
    d = make_daemon(config="stall_after: 300ms\nlog_level: notice\n")
    hung = Trainer(RANK, 1, 2, stdin=subprocess.PIPE)
    assert hung.hear() == {"step": 0}
    loader = batchd.DataLoader(
        "random:length=97,shape=2", 4, job="stall", n_slots=3, rank=0, world_size=2, arrays="numpy", on_stall="ignore"
    )
    it = iter(loader)
    for _ in range(5):
        next(it)
    until("it is reported", lambda: "stalled: rank 1" in d.output())
    assert "uses no processor while rank 0 is" in d.output()
    assert next(it) is not None
    hung.process.kill()
    hung.process.wait()
    until("that it has left is said", lambda: "has left after" in d.output())
    hung.process.stdin.close()


@pytest.mark.parametrize("on_stall", ("warn", "error", "ignore"))
def test_a_rank_whose_batches_are_ready_is_told_of_a_stall(make_daemon, on_stall):
    """It never waits, so it never reads its socket for a batch; it is told all the same, before its next batch, once,
    and loses none."""
    d = make_daemon(config="stall_after: 300ms\n")
    stopped = Trainer(RANK, 1, 2, stdin=subprocess.PIPE)
    assert stopped.hear() == {"step": 0}
    loader = batchd.DataLoader(
        "random:length=97,shape=2", 4, job="stall", n_slots=3, rank=0, world_size=2, arrays="numpy", on_stall=on_stall
    )
    it = iter(loader)
    steps, said = [], []

    def ready():
        return [s["ready"] for s in status()["sessions"] if s["rank"] == 0][0]

    def step():
        until("a batch is ready", ready)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            next(it)
        steps.append(loader.last_batch.step)
        said.extend(str(w.message) for w in caught)

    step()
    stopped.process.send_signal(signal.SIGSTOP)
    until("it is reported", lambda: "stalled: rank 1" in d.output())
    if on_stall == "error":
        until("a batch is ready", ready)
        with pytest.raises(batchd.StalledError, match="stalled: rank 1 of job stall"):
            next(it)
    for _ in range(3):
        step()
    assert steps == [0, 1, 2, 3]
    assert len([text for text in said if "stalled: rank 1 of job stall" in text]) == (on_stall == "warn"), said
    loader.close()
    stopped.process.kill()
    stopped.process.wait()
    stopped.process.stdin.close()


def test_a_share_group_learns_which_trainer_holds_it_up(make_daemon):
    """Lockstep: the window is full because of a sleeping rank. The waiting rank warns, or raises if configured so;
    nothing is lost by that."""
    make_daemon(config="stall_after: 300ms\n")
    sleeper = Trainer(
        RANK.replace('job="stall"', 'job="share", mode="share", world_size=2'), 1, 2, stdin=subprocess.PIPE
    )
    loader = batchd.DataLoader(
        "random:length=97,shape=2",
        4,
        job="share",
        mode="share",
        world_size=2,
        rank=0,
        n_slots=3,
        arrays="numpy",
        on_stall="error",
    )
    assert sleeper.hear() == {"step": 0}
    seen, n_errors = [], 0
    it = iter(loader)
    while len(seen) < 25:
        try:
            next(it)
            seen.append(loader.last_batch.step)
        except batchd.StalledError as e:
            n_errors += 1
            assert "rank 1" in str(e) and "others of its group wait" in str(e)
            sleeper.process.stdin.close()  # it continues to the end
    assert n_errors == 1 and seen == list(range(25))
    sleeper.process.wait()

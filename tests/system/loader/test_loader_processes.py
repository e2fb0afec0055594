"""Loaders of several processes: forks, ranks, share groups, what a batch costs."""

import concurrent.futures
import copy
import gc
import os
import pickle
import shutil
import subprocess
import sys
import textwrap

import pytest

import batchd
from plain_loops import RANDOM, content_of, flat, indices_of, make, needs_torch, plain, run_python, same, taken


def test_a_forked_child_can_do_nothing_and_harms_nothing(daemon):
    """Iterating there is an error that says why; tensors freed there give nothing back; the parent continues
    undisturbed."""
    expected = content_of(make())
    loader = make()
    it = iter(loader)
    held = next(it)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            try:
                next(it)
            except batchd.ForkedError as e:
                code = 0 if "fork" in str(e) else 2
            try:
                iter(loader)
                code |= 4
            except batchd.ForkedError:
                pass
            del held, it, loader
            gc.collect()
            child = make()
            code |= 0 if sum(len(x) for x, _ in child) == 100 else 8
            child.close()
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    rest = [(plain(x), plain(y)) for x, y in it]
    assert same([(plain(held[0]), plain(held[1]))] + rest, expected)


def test_pickling_and_copying_are_refused_with_advice(daemon):
    """A connection cannot be pickled."""
    loader = make()
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="process that iterates"):
            attempt(loader)


def test_ranks_as_torchrun_starts_them_share_one_loader(daemon):
    """Two processes with nothing but torchrun's variables: together they see the epoch, in one job."""
    code = """
        import batchd
        loader = batchd.DataLoader("random:length=100,shape=3", 8, shuffle=True)
        assert loader.world_size == 2
        print(loader.job, *(i for _ in loader for i in loader.last_batch.indices))
    """
    outputs = []
    for rank in "01":
        done = run_python(
            code,
            env={
                "RANK": rank,
                "LOCAL_RANK": rank,
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "localhost",
                "MASTER_PORT": "29512",
            },
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout.split())
    assert outputs[0][0] == outputs[1][0]
    assert sorted(int(i) for o in outputs for i in o[1:]) == list(range(100))


@needs_torch
def test_a_process_group_made_later_is_followed(daemon, torch_server, tmp_path):
    """As in frameworks that start their own processes: the loader is made first, its state restored, and the ranks are
    known only afterwards."""
    state = make(shuffle=True, seed=3)
    whole = flat(indices_of(state))
    state.set_epoch(0)
    taken(state, 3)
    (tmp_path / "state").write_bytes(pickle.dumps(state.state_dict()))
    code = f"""
        import batchd, pickle, sys, torch.distributed as dist
        plain, resumed, named, told = (batchd.DataLoader("{RANDOM}", 8, shuffle=True, seed=3, **o) for o in (
            {{}}, {{}}, {{"job": "named"}}, {{"rank": 0, "world_size": 1}}))
        resumed.load_state_dict(pickle.load(open("{tmp_path}/state", "rb")))
        assert plain.world_size == 1 and len(plain) == 13
        dist.init_process_group("gloo", f"file://{tmp_path}/group", rank=int(sys.argv[1]), world_size=2)
        assert len(plain) == 7 and len(plain.sampler) == 50 and plain.rank == dist.get_rank()
        for loader in (plain, resumed, named, told):
            print(*(i for _ in loader for i in loader.last_batch.indices))
        assert resumed.last_batch.epoch == 0 and plain.world_size == resumed.world_size == 2 and told.world_size == 1
        dist.destroy_process_group()
    """
    (tmp_path / "rank.py").write_text(textwrap.dedent(code))
    done = torch_server.run(*([tmp_path / "rank.py", rank] for rank in (0, 1)))
    assert [status for status, _ in done] == [0, 0], done
    plain, restored, named, told = zip(
        *([[int(i) for i in line.split()] for line in output.splitlines() if line[:1].isdigit()] for _, output in done)
    )
    assert [i for pair in zip(*plain) for i in pair] == whole
    assert [i for pair in zip(*restored) for i in pair] == whole[24:]
    assert named == plain and told == (whole, whole)


def test_ranks_that_know_no_group_yet_open_a_job_at_one_moment(daemon):
    """Each believes to be its only rank. None may fail because another one has come while it was being opened."""
    code = f"""
        import batchd
        for _ in range(100):
            batchd.DataLoader("{RANDOM}", 8, job="named").close()
    """
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for done in pool.map(run_python, [code] * 3):
            assert done.returncode == 0, done.stderr


@needs_torch
def test_a_plain_ddp_script_under_torchrun(daemon, tmp_path):
    """torch's own launcher, process group and DistributedDataParallel; the loader finds all settings itself. Two
    epochs, a restored position."""
    (tmp_path / "train.py").write_text(
        textwrap.dedent("""
        import batchd, os, torch
        import torch.distributed as dist
        dist.init_process_group("gloo")
        loader = batchd.DataLoader("random:length=203,shape=12,classes=3", 16, shuffle=True, seed=1)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(12, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        seen = [[], []]
        for epoch in range(2):
            loader.set_epoch(epoch)
            for images, labels in loader:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(images), labels).backward()
                optimizer.step()
                b = loader.last_batch
                seen[epoch] += b.indices[:b.n_rows - b.n_padding].tolist()
                if epoch == 1 and b.step == 2:
                    break
        state = loader.state_dict()
        again = batchd.DataLoader("random:length=203,shape=12,classes=3", 16, shuffle=True, seed=1)
        again.load_state_dict(state)
        for images, labels in again:
            b = again.last_batch
            seen[1] += b.indices[:b.n_rows - b.n_padding].tolist()
        everything = [None] * 2
        dist.all_gather_object(everything, (loader.job, again.job, seen))
        if dist.get_rank() == 0:
            (job, job2, a), (other_job, other_job2, b) = everything
            assert job == other_job and job2 == other_job2 != job
            assert all(sorted(x + y) == list(range(203)) for x, y in zip(a, b))
            print("all there", flush=True)
        dist.barrier()
        # torch's gloo threads now and then abort the interpreter's exit ("terminate called without an active exception"), also without batchd in the
        # script; what this test is about is over by now.
        os._exit(0)
    """)
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc_per_node=2",
            str(tmp_path / "train.py"),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0 and "all there" in done.stdout, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_ready_batch_costs_no_system_call(daemon, tmp_path):
    """200 batches more, taken one by one when they are ready: an occasional packet to wake the daemon, for many batches
    at once, and no other system call."""
    counts = {}
    for n in (200, 400):
        code = f"""
            import batchd, time
            for _ in batchd.DataLoader('random:length={n * 4},shape=8', 4, n_slots=32):
                time.sleep(0.005)
        """
        done = subprocess.run(
            [
                "strace",
                "-f",
                "-c",
                "-U",
                "name,calls",
                "-o",
                str(tmp_path / "calls"),
                sys.executable,
                "-c",
                textwrap.dedent(code),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, "BATCHD_ARRAYS": "numpy"},
        )
        if "ptrace" in done.stderr or "PTRACE" in done.stderr:
            pytest.skip("strace may not trace here")
        assert done.returncode == 0, done.stderr
        for line in (tmp_path / "calls").read_text().splitlines():
            name, calls = line.split()[0], line.split()[-1]
            if calls.isdigit():
                counts.setdefault(name, []).append(int(calls))
    grown = {
        name: c[1] - c[0]
        for name, c in counts.items()
        if name not in ("total", "clock_nanosleep") and len(c) == 2 and abs(c[1] - c[0]) >= 50
    }
    # On a busy machine a few batches may be late: then the trainer waits and receives. One call a batch would be 200.
    assert not grown, grown


def test_sharing_trainers_get_every_batch(daemon):
    """Two trainers in share mode, taken in turn: the same batches, made once."""
    a = make(mode="share", world_size=2, job="both")
    b = make(mode="share", world_size=2, job="both")
    for (x, y), (u, v) in zip(a, b):
        assert (plain(x) == plain(u)).all() and (plain(y) == plain(v)).all()
    assert a.last_batch.last and b.last_batch.last and {a.rank, b.rank} == {0, 1}


def test_trials_under_torchrun_are_not_each_others_rank(daemon, monkeypatch):
    """Each is the only rank of a run of its own; in their common group they are two."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    a = make(mode="share", job="trials")
    it = iter(a)
    next(it)
    b = make(mode="share", job="trials")
    assert {a.rank, b.rank} == {0, 1}
    assert sum(1 for _ in it) == 12

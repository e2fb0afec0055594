"""batchd.DataLoader as used by a training loop, against a real daemon: order, positions, leases, forks, failures."""

import collections
import concurrent.futures
import copy
import ctypes
import functools
import gc
import os
import pathlib
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import warnings

import numpy
import pytest

import batchd
from daemons import WIRE_VERSION
from fork_server import with_torch

RANDOM = "random:length=100,shape=3x4x5,dtype=float32,classes=7"

try:
    import torch
except ImportError:
    torch = None
needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")


def make(dataset=RANDOM, batch_size=8, n_slots=4, **options):
    """Four slots, as for large batches: for small ones the daemon would make many more ahead, and these tests need to
    use up all slots."""
    return batchd.DataLoader(dataset, batch_size, n_slots=n_slots, **options)


def indices_of(loader):
    """The sample numbers of one iteration, batch by batch."""
    found = []
    for _ in loader:
        found.append(loader.last_batch.indices.tolist())
    return found


def plain(x):
    """A numpy copy of a tensor or array."""
    return numpy.asarray(x).copy()


def flat(batches):
    return [i for b in batches for i in b]


def content_of(loader):
    return [(plain(x), plain(y)) for x, y in loader]


def same(a, b):
    return len(a) == len(b) and all((x == u).all() and (y == v).all() for (x, y), (u, v) in zip(a, b))


def run_python(code, **options):
    """A process of its own, which has `batchd` and $BATCHD_SOCKET, and does not spend seconds on importing torch."""
    env = {**os.environ, "BATCHD_ARRAYS": "numpy", **options.pop("env", {})}
    if "import torch" in code and not options:
        return with_torch().python(["-c", textwrap.dedent(code)], env)
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        env=env,
        **options,
    )


# ---- batches ----


def test_an_epoch_has_every_sample_once(daemon):
    """13 batches of 100 samples, the last one shorter, shapes and types as requested."""
    loader = make(shuffle=True)
    assert len(loader) == 13 and len(loader.dataset) == 100 and len(loader.sampler) == 100
    sizes, seen = [], []
    for images, labels in loader:
        assert tuple(images.shape[1:]) == (3, 4, 5) and str(images.dtype).endswith("float32")
        assert len(labels) == len(images) and str(labels.dtype).endswith("int64")
        assert 0 <= labels.min() and labels.max() < 7
        sizes.append(len(images))
        seen += loader.last_batch.indices.tolist()
    assert sizes == [8] * 12 + [4]
    assert sorted(seen) == list(range(100)) and seen != sorted(seen)
    assert loader.last_batch.last and loader.last_batch.n_padding == 0
    assert loader.classes == [str(i) for i in range(7)] and loader.dataset.class_to_idx["3"] == 3


@needs_torch
def test_torch_tensors_by_default_and_numpy_on_request(daemon, monkeypatch):
    """The same bytes either way."""
    with make() as a, make(arrays="numpy") as b:
        for (x, y), (u, v) in zip(a, b):
            assert isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)
            assert isinstance(u, numpy.ndarray) and isinstance(v, numpy.ndarray)
            assert (x.numpy() == u).all() and (y.numpy() == v).all()
    monkeypatch.setenv("BATCHD_ARRAYS", "numpy")
    assert isinstance(next(iter(make()))[0], numpy.ndarray)


@needs_torch
@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("drop_last", [False, True])
def test_order_is_that_of_distributed_sampler(daemon, world, drop_last):
    """All ranks, two epochs, compared with torch's own sampler; padding rows come last."""
    for rank in range(world):
        sampler = torch.utils.data.DistributedSampler(
            range(100), world, rank, shuffle=True, seed=5, drop_last=drop_last
        )
        loader = make(
            shuffle=True, seed=5, drop_last=drop_last, rank=rank, world_size=world, job=f"order-{world}-{drop_last}"
        )
        for epoch in (0, 7):
            sampler.set_epoch(epoch)
            loader.set_epoch(epoch)
            expected = list(sampler)
            if drop_last:
                expected = expected[: len(expected) // 8 * 8]
            found = flat(indices_of(loader))
            assert found == expected and len(loader) == -(-len(expected) // 8)
            assert loader.last_batch.n_padding == (0 if drop_last or rank < (100 % world or world) else 1)


@pytest.mark.parametrize("spelling", ["uint8", "UINT8", numpy.uint8, numpy.dtype("uint8"), torch and torch.uint8])
def test_dtype_may_be_spelt_as_people_do(daemon, samples, spelling):
    """Text, numpy and torch; with uint8 the trainer has to normalise, and the loader tells it how."""
    if spelling is None:
        pytest.skip("torch is not installed")
    loader = make(f"imagefolder:{samples}", dtype=spelling, layout="nhwc")
    images, _ = next(iter(loader))
    assert str(images.dtype).endswith("uint8") and tuple(images.shape) == (8, 224, 224, 3)
    mean, std = loader.normalize
    assert numpy.allclose(mean, (0.485, 0.456, 0.406)) and numpy.allclose(std, (0.229, 0.224, 0.225))


def test_images_come_with_the_pipeline_that_was_asked_for(daemon, samples):
    """A list of ops, of tuples or lists, with numpy numbers in it."""
    loader = make(
        f"imagefolder:{samples}",
        transform=[("Resize", numpy.int64(40)), ["CenterCrop", 32], "ToTensor"],
        arrays="numpy",
    )
    images, labels = next(iter(loader))
    assert images.shape == (8, 3, 32, 32) and images.dtype == numpy.float32 and 0 <= images.min() and images.max() <= 1
    assert loader.normalize is None and len(loader.classes) == 4
    assert labels.tolist() == [0] * 8


# ---- epochs and positions ----


def test_epochs_count_up_unless_set(daemon):
    """Without set_epoch every iteration is the next epoch; with it the requested one."""
    loader = make(shuffle=True)
    epochs = [indices_of(loader) for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]
    for e in (2, 0, 1):
        loader.set_epoch(e)
        assert indices_of(loader) == epochs[e] and loader.last_batch.epoch == e
    loader.sampler.set_epoch(0)
    assert indices_of(loader) == epochs[0]
    assert indices_of(loader) == epochs[1]


def test_a_new_iteration_ends_the_old_one(daemon):
    """The old iterator takes nothing from the new one, and raises an error: if it just ended, that would look like a
    complete epoch."""
    loader = make()
    old = iter(loader)
    next(old)
    new = iter(loader)
    with pytest.raises(batchd.Error, match="another iteration"):
        next(old)
    next(new)
    assert loader.last_batch.epoch == 1 and loader.last_batch.step == 0
    assert sum(1 for _ in new) == 12
    assert next(new, None) is None
    iter(loader)
    assert next(new, None) is None  # the new one had ended
    with pytest.raises(batchd.Error, match="two at a time need two loaders"):
        list(zip(loader, loader))
    old = iter(loader)
    loader.load_state_dict(loader.state_dict())
    with pytest.raises(batchd.Error, match="load_state_dict"):
        next(old)


def resumed(state, **options):
    loader = make(shuffle=True, seed=3, **options)
    loader.load_state_dict(pickle.loads(pickle.dumps(state)))
    return loader


def taken(loader, n):
    """The first n batches' sample numbers."""
    found = []
    for _ in loader:
        found.append(loader.last_batch.indices.tolist())
        if len(found) == n:
            return found
    return found


def test_resume_goes_on_with_the_next_batch(daemon):
    """After every batch of an epoch, the last one included: the rest of it, then the next epoch, without a
    difference."""
    loader = make(shuffle=True, seed=3)
    states, whole = [loader.state_dict()], []
    for _ in loader:
        states.append(loader.state_dict())
        whole.append(loader.last_batch.indices.tolist())
    following = indices_of(loader)
    for k, state in enumerate(states):
        again = resumed(state)
        assert indices_of(again) == whole[k:]
        assert again.state_dict()["global_batch"] == len(whole)
        assert indices_of(again) == following
        again.close()


def test_resume_twice_in_one_epoch_is_exact(daemon):
    """After the second resume of an epoch other loaders differ from the order."""
    whole = indices_of(make(shuffle=True, seed=3))
    first = make(shuffle=True, seed=3)
    assert taken(first, 3) == whole[:3]
    second = resumed(first.state_dict())
    assert taken(second, 4) == whole[3:7]
    third = resumed(second.state_dict())
    assert third.state_dict()["global_batch"] == 7
    assert indices_of(third) == whole[7:]


def test_resume_with_other_batch_sizes_and_world_sizes_covers_the_rest_once(daemon):
    """1 trainer with batches of 8, then 2 with 6, then 3 with 5: the same order, split differently."""
    order = flat(indices_of(make(shuffle=True, seed=3)))
    loader = make(shuffle=True, seed=3)
    taken(loader, 3)
    state, consumed = loader.state_dict(), 24
    for world, size, steps in ((2, 6, 2), (3, 5, 2)):
        ranks = [resumed(state, batch_size=size, rank=r, world_size=world, job=f"w{world}") for r in range(world)]
        parts = [flat(taken(r, steps)) for r in ranks]
        n = steps * size * world
        assert [i for row in zip(*parts) for i in row] == order[consumed : consumed + n]
        assert len({tuple(sorted(r.state_dict().items())) for r in ranks}) == 1
        state, consumed = ranks[0].state_dict(), consumed + n
    last = resumed(state)
    assert flat(indices_of(last)) == order[consumed:]


def test_state_at_the_end_of_an_epoch_loses_none_and_repeats_none(daemon):
    """Resuming continues with the next epoch; requesting the finished one again, as scripts do, gives nothing."""
    loader = make(shuffle=True, seed=3)
    indices_of(loader)
    state = loader.state_dict()
    assert state["last"]
    following = indices_of(loader)
    assert indices_of(resumed(state)) == following
    again = resumed(state)
    again.set_epoch(0)
    assert indices_of(again) == []
    again.set_epoch(1)
    assert indices_of(again) == following
    other_size = resumed(state, batch_size=16)
    assert flat(indices_of(other_size)) == flat(following)


def test_set_epoch_keeps_a_restored_position_of_the_same_epoch_only(daemon):
    """`for epoch in range(start, n): loader.set_epoch(epoch)` works after load_state_dict."""
    loader = make(shuffle=True, seed=3)
    loader.set_epoch(4)
    taken(loader, 5)
    state = loader.state_dict()
    again = resumed(state)
    again.set_epoch(4)
    assert len(indices_of(again)) == 8
    other = resumed(state)
    other.set_epoch(5)
    assert len(indices_of(other)) == 13


def test_state_of_other_data_or_another_order_is_refused(daemon):
    """The error names the difference, instead of training silently on another order."""
    state = make(shuffle=True, seed=3).state_dict()
    with pytest.raises(ValueError, match="another data set"):
        make("random:length=99,shape=2", shuffle=True, seed=3).load_state_dict(state)
    with pytest.raises(ValueError, match="seed"):
        make(shuffle=True, seed=4).load_state_dict(state)
    with pytest.raises(ValueError, match="shuffle"):
        make(seed=3).load_state_dict(state)
    with pytest.raises(ValueError, match="no state"):
        make().load_state_dict({"epoch": 1})


# ---- memory ----


def test_writing_in_place_harms_no_other_trainer(daemon):
    """A trainer that normalises in place sees its own values, and the next time the daemon's; another trainer of the
    same job sees none of the changes."""
    expected = content_of(make())
    loader = make(mode="share", job="shared")
    for epoch in range(3):
        loader.set_epoch(0)
        for (images, labels), (x, y) in zip(loader, expected):
            assert (plain(images) == x).all()
            images *= 0
            images -= 7
            labels += 100
            assert (plain(images) == -7).all()
    assert same(content_of(make(mode="share", job="shared-2")), expected)


@pytest.mark.parametrize("when", ["before", "after"])
def test_faulthandler_and_in_place_writes_get_along(daemon, when):
    """Python's own handler below ours or, enabled in mid-epoch, on top of it: no write is lost, and a real crash is
    reported once."""
    done = run_python(
        """
        import batchd, ctypes, faulthandler
        if WHEN == "before":
            faulthandler.enable()
        loader = batchd.DataLoader("random:length=100,shape=3", 8)
        it = iter(loader)
        images, _ = next(it)
        if WHEN == "after":
            faulthandler.enable()    # its one report is used up by the write
        images[0] = 5
        assert images[0, 0] == 5
        images, _ = next(it)
        images[1] = 6
        for images, _ in loader:     # a new epoch: ours is on top again
            images += 1
        print("all written", flush=True)
        ctypes.string_at(8)
    """.replace("WHEN", repr(when))
    )
    assert done.stdout == "all written\n"
    assert done.returncode == -signal.SIGSEGV and done.stderr.count("Fatal Python error: Segmentation fault") == 1
    assert ("string_at" in done.stderr) == (when == "before")


def test_writable_mapping_allows_readinto(daemon, tmp_path):
    """System calls cannot handle a fault: writable=True is for them."""
    (tmp_path / "bytes").write_bytes(b"\1" * 240)
    expected = content_of(make(arrays="numpy"))
    loader = make(arrays="numpy", writable=True)
    for epoch in range(2):
        loader.set_epoch(0)
        for (images, _), (x, _) in zip(loader, expected):
            assert (images == x).all()
            with open(tmp_path / "bytes", "rb", buffering=0) as f:
                assert f.readinto(memoryview(images).cast("B")[:240]) == 240
            assert images.view(numpy.uint8).reshape(-1)[:240].tolist() == [1] * 240


def test_keeping_every_batch_gets_copies_instead_of_a_standstill(daemon):
    """list(loader) works, reports once why it copies, and all of the batches stay right."""
    expected = content_of(make())
    loader = make(n_slots=4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kept = list(loader)
    assert [w.category for w in caught] == [RuntimeWarning] and "n_slots" in str(caught[0].message)
    assert same([(plain(x), plain(y)) for x, y in kept], expected)


def test_two_slots_are_enough_for_a_plain_loop_and_say_so_when_kept(daemon):
    """The smallest window: no copies in a plain loop, copies for a loop that keeps batches, an error instead of an
    endless wait for a loop that starts to keep them in its middle."""
    loader = make(n_slots=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sum(len(x) for x, _ in loader) == 100
    with pytest.warns(RuntimeWarning, match="1 batch is held while only 2 slots exist"):
        assert sum(len(x) for x, _ in list(loader)) == 100
    kept = []
    with pytest.raises(batchd.Error, match="slots"):
        for k, batch in enumerate(loader):
            if k > 4:
                kept.append(batch)


def test_batches_outlive_the_loader_and_the_daemon(make_daemon):
    """Held batches stay unchanged, readable and writable."""
    daemon = make_daemon()
    loader = make()
    expected = content_of(make())
    it = iter(loader)
    kept = [next(it), next(it)]
    loader.close()
    assert same([(plain(x), plain(y)) for x, y in kept], expected[:2])
    daemon.stop()
    kept[0][0][:] = 1
    del loader, it
    gc.collect()
    assert same([(plain(x), plain(y)) for x, y in kept[1:]], expected[1:2])
    del kept
    gc.collect()


def test_dropped_loader_leaves_without_a_collector(daemon):
    """No reference cycle: the session ends with the last reference, not at a later garbage collection."""
    gc.disable()
    try:
        for images, labels in make(job="gone"):
            assert "gone" in jobs()
        del images, labels
        deadline = time.monotonic() + 300
        while "gone" in jobs() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert "gone" not in jobs()
    finally:
        gc.enable()


def jobs():
    """The number of batches delivered to all sessions of the daemon."""
    return [s["job"] for s in batchd.status()["sessions"]]


def test_threads_may_share_an_iteration(daemon):
    """Each thread gets the next batch in order; every sample comes once."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        it, seen, failures = iter(make("random:length=4000,shape=3,classes=1000000", arrays="numpy")), [], []

        def take():
            try:
                for _, labels in it:
                    seen.extend(labels.tolist())
            except Exception as e:
                failures.append(e)

        threads = [threading.Thread(target=take) for _ in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures and sorted(seen) == sorted(
        i for _, labels in make("random:length=4000,shape=3,classes=1000000", arrays="numpy") for i in labels.tolist()
    )


def test_dropping_tensors_returns_their_slots(daemon):
    """Views of views hold the slot, the last one gives it back."""
    loader = make(n_slots=8)
    it = iter(loader)
    images, labels = next(it)
    row = images[3, 1]
    from batchd import _lib

    assert _lib.n_leased(loader._handle) == 1
    del images
    assert _lib.n_leased(loader._handle) == 1
    del row
    assert _lib.n_leased(loader._handle) == 0
    assert len(labels) == 8


def test_a_batch_that_comes_with_ctrl_c_is_not_lost(daemon, monkeypatch):
    """A signal handler that raises when a batch has just come: the next call gets that batch; a new iteration gives it
    back."""
    from batchd import _lib

    loader, take = make(timeout=20), _lib.next
    expected, it, found = content_of(make()), iter(loader), []

    def take_and_raise(*arguments):
        take(*arguments)
        raise KeyboardInterrupt

    for _ in range(len(expected)):
        monkeypatch.setattr(_lib, "next", take_and_raise)
        with pytest.raises(KeyboardInterrupt):
            next(it)
        monkeypatch.setattr(_lib, "next", take)
        found.append([plain(part) for part in next(it)])
    assert same(found, expected) and next(it, None) is None
    monkeypatch.setattr(_lib, "next", take_and_raise)
    with pytest.raises(KeyboardInterrupt):
        next(iter(loader))
    assert _lib.n_leased(loader._handle) == 1
    iter(loader)
    assert _lib.n_leased(loader._handle) == 0


def test_ctrl_c_while_a_batch_is_dropped_is_neither_lost_nor_loses_the_slot(daemon):
    """A destructor in Python would start with the signal handler, drop its exception, and never reach the release."""
    from batchd import _lib

    loader = make()
    held = [next(iter(loader))]
    assert _lib.n_leased(loader._handle) == 1
    calls = functools.partial(getattr(ctypes.CDLL(None), "raise"), signal.SIGINT), functools.partial(held.clear)
    with pytest.raises(KeyboardInterrupt):
        collections.deque(
            map(functools.partial.__call__, calls), 0
        )  # one after the other, all in C: Python handles the signal afterwards
    assert not held and _lib.n_leased(loader._handle) == 0


# ---- processes ----


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


STARVED = """
    import batchd, sys, time
    loader = batchd.DataLoader("random:length=1000,shape=3", 8, mode="share", world_size=2, job="lonely"{})
    began = time.monotonic()
    try:
        print("ready", flush=True)
        for _ in loader:
            pass
    except {} as e:
        print(type(e).__name__, e, "%.1f" % (time.monotonic() - began))
"""


def test_ctrl_c_ends_a_wait_at_once(daemon):
    """A trainer that waits for the others of its share group can be interrupted."""
    code = textwrap.dedent(STARVED.format("", "KeyboardInterrupt"))
    p = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "BATCHD_ARRAYS": "numpy"},
    )
    assert p.stdout.readline() == "ready\n"
    time.sleep(0.5)
    assert p.poll() is None
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=300)
    assert out.startswith("KeyboardInterrupt"), out + err


def test_ctrl_c_ends_a_long_opening(tmp_path):
    """A fake daemon that builds an index for ever: the bar shows it, Ctrl-C ends it, the terminal is left clean."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(tmp_path / "socket"))
    listener.listen(1)
    p = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import batchd; batchd.DataLoader('random:', socket='{tmp_path}/socket', progress=True)",
        ],
        stderr=subprocess.PIPE,
        env={**os.environ, "BATCHD_ARRAYS": "numpy", "COLUMNS": "60"},
    )
    peer = listener.accept()[0]
    peer.recv(65536)
    peer.send(b"\x0a\x02\x08%c" % WIRE_VERSION)  # Welcome
    peer.recv(65536)
    shown = b""
    while b"]" not in shown:
        peer.send(b"\x12\x0b\x0a\x05index\x10\x03\x18\x06")  # Progress { "index", 3 of 6 }
        time.sleep(0.05)
        os.set_blocking(p.stderr.fileno(), False)
        shown += p.stderr.read() or b""
        assert p.poll() is None, shown
    assert b"batchd: index 3 of 6 [" in shown and b"###" in shown
    os.set_blocking(p.stderr.fileno(), True)
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=300)
    assert (
        p.returncode in (1, -signal.SIGINT)
        and err.endswith(b"KeyboardInterrupt\n")
        and b"ignored" not in err
        and b"\x1b[K" in err
    )
    peer.close()
    listener.close()


def test_timeout_is_an_error_that_says_where_to_look(daemon):
    """timeout= works as in torch."""
    done = run_python(STARVED.format(", timeout=0.3", "TimeoutError"))
    assert "TimeoutError no batch within 0.3 s" in done.stdout and "batchctl status" in done.stdout, (
        done.stdout + done.stderr
    )


# ---- failures ----


def test_mistakes_are_named(daemon, tmp_path):
    """One line each that names the wrong thing, as the exception that Python programs expect."""
    cases = [
        (FileNotFoundError, "nowhere", dict(dataset=f"imagefolder:{tmp_path}/nowhere")),
        (FileNotFoundError, "any class folder", dict(dataset=str(tmp_path))),
        (batchd.Error, "nosuchname", dict(dataset="nosuchname")),
        (ValueError, "batch_size", dict(batch_size=0)),
        (ValueError, "dtype", dict(dtype="complex64")),
        (ValueError, "layout", dict(layout="CHW")),
        (ValueError, "mode", dict(mode="split")),
        (ValueError, "rank", dict(rank=2, world_size=2)),
        (ValueError, "leave shuffle", dict(shuffle=True, batch_sampler=[[1]])),
        (TypeError, "seed", dict(seed="x")),
        (ValueError, "seed", dict(seed=-1)),
        (ValueError, "arrays", dict(arrays="jax")),
        (batchd.ConnectError, "/no/such/socket", dict(socket="/no/such/socket")),
        (batchd.InvalidError, "transform", dict(transform="train224")),
        (TypeError, "batch_size", dict(batch_size="8")),
        (ValueError, "seed", dict(seed=2**64)),
        (ValueError, "timeout .*-1", dict(timeout=-1)),
        (TypeError, "timeout .*seconds", dict(timeout="1")),
        (ValueError, "reconnect .*-0.5", dict(reconnect=-0.5)),
        (TypeError, "reconnect .*seconds", dict(reconnect="1")),
        (TypeError, "producer_timeout", dict(producer_timeout="1")),
        (ValueError, "producer_timeout", dict(producer_timeout=float("nan"))),
        (ValueError, "device .*cpu.*gpu", dict(device="gpu")),
        (ValueError, "job .*NUL", dict(job="a\0b")),
        (ValueError, "dataset .*NUL", dict(dataset="imagefolder:/\0")),
        (TypeError, "socket .*text", dict(socket=5)),
        (TypeError, "dataset .*NoneType", dict(dataset=None)),
        (TypeError, r"dataset .*write \(numpy.asarray\(dataset\),\)", dict(dataset=[1, 2])),
        (TypeError, "pin_memory .*leave it out.* prefetch_factor .*n_slots", dict(pin_memory=True, prefetch_factor=2)),
        (TypeError, "collate_fn must be a function", dict(collate_fn=[])),
        (TypeError, "drop_lats .*drop_last", dict(drop_lats=True)),
        (TypeError, "xyzzy .*help", dict(xyzzy=1)),
        (ValueError, "sampler .*leave shuffle out", dict(sampler=[1], shuffle=True)),
        (ValueError, "sampler .*leave batch_sampler out", dict(sampler=[1], batch_sampler=[[1]])),
    ]
    for kind, word, options in cases:
        with pytest.raises(kind, match=word):
            make(**options)
    with pytest.raises(batchd.Error, match="closed"):
        loader = make()
        loader.close()
        iter(loader)


def test_options_may_have_the_types_that_scripts_have(daemon):
    """Values of numpy and of torch, infinite times, and None where torch accepts it."""
    loader = make(
        batch_size=numpy.int64(8),
        seed=numpy.uint8(3),
        num_workers=numpy.int32(2),
        timeout=numpy.float32(20),
        reconnect=float("inf"),
        device=None,
        shuffle=numpy.bool_(True),
    )
    assert len(indices_of(loader)) == 13
    assert len(indices_of(make(timeout=float("inf"), device="cpu:0"))) == 13 and make(timeout=None).timeout == 0
    if torch is not None:
        assert len(indices_of(make(batch_size=torch.tensor(8), seed=torch.tensor(3), device=torch.device("cpu")))) == 13


def test_what_stands_for_the_data_set_says_what_it_is_not(daemon):
    """Single samples are not available, targets are elsewhere, and a closed loader is named."""
    loader = make()
    with pytest.raises(TypeError, match="only batches"):
        loader.dataset[0]
    with pytest.raises(AttributeError, match="torchvision"):
        loader.dataset.targets
    with pytest.raises(AttributeError, match="has no root"):
        loader.dataset.root
    with pytest.raises(batchd.Error, match="gone"):
        make().dataset.classes


def test_a_job_with_other_options_is_refused_by_the_field(daemon):
    """The second loader of the same job has another specification."""
    first = make(job="one", world_size=2, rank=0)
    with pytest.raises(batchd.MismatchError, match="seed"):
        make(job="one", world_size=2, rank=1, seed=1)
    assert len(first) == 7


def test_a_newer_process_takes_over_its_rank(daemon):
    """A restarted trainer is served; its predecessor gets an error, and does not come back by itself."""
    old, new = make(job="fenced"), None
    it = iter(old)
    next(it)
    new = make(job="fenced")
    assert sum(len(x) for x, _ in new) == 100
    with pytest.raises(batchd.FencedError):
        for _ in it:
            pass


def test_a_daemon_that_comes_back_is_gone_on_with(make_daemon):
    """Killed in mid-epoch and started again: the same batches as without, after one warning."""
    daemon = make_daemon()
    whole = indices_of(make(shuffle=True))
    loader, found = make(shuffle=True), []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for images, _ in loader:
            found.append(loader.last_batch.indices.tolist())
            if len(found) in (1, 5):
                daemon.kill()
                daemon.start()
        following = indices_of(loader)
    assert found == whole and following == indices_of_epoch(1)
    assert [w.category for w in caught] == [RuntimeWarning] * 2 and "it is back" in str(caught[0].message)


def indices_of_epoch(epoch):
    loader = make(shuffle=True)
    loader.set_epoch(epoch)
    return indices_of(loader)


def phases_of_opening(monkeypatch, at_daemon=lambda: None, **options):
    """Opens a loader; returns the library's messages meanwhile. at_daemon is called when no daemon answers."""
    from batchd import progress

    phases = []

    def on_progress(self, phase, done, total):
        phases.append(phase)
        if phase == b"daemon":
            at_daemon()

    monkeypatch.setattr(progress.Announcement, "on_progress", on_progress)
    try:
        make(**options).close()
    except batchd.ConnectError as e:
        return phases, e
    return phases, None


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_opening_waits_for_a_daemon_that_is_being_restarted(make_daemon, monkeypatch, end):
    """Whether the daemon removed its socket or left it behind, and also for a socket named by a variable; not where
    reconnect says so."""
    daemon = make_daemon()
    for options in ({"socket": daemon.socket}, {}):
        getattr(daemon, end)()
        phases, error = phases_of_opening(monkeypatch, reconnect=0, **options)
        assert not phases and str(daemon.socket) in str(error)
        phases, error = phases_of_opening(monkeypatch, at_daemon=daemon.start, **options)
        assert phases.count(b"daemon") == 1 and error is None


def test_opening_does_not_wait_for_what_was_never_there(tmp_path, monkeypatch, capsys):
    """A socket in a missing directory fails at once; a socket in an existing one after a moment, with a message."""
    phases, error = phases_of_opening(monkeypatch, socket=tmp_path / "misspelt" / "socket")
    assert not phases and "misspelt" in str(error)
    monkeypatch.undo()
    with pytest.raises(batchd.ConnectError, match="nobody"):
        make(socket=tmp_path / "nobody")
    assert f"no daemon answers at {tmp_path}/nobody yet; waiting for it, for 3 s at most" in capsys.readouterr().err


def test_a_daemon_that_moved_is_found_by_the_rule(make_daemon):
    """Its own socket first, then the places where a new loader would look."""
    first = make_daemon()
    whole = indices_of(make(shuffle=True))
    loader, found = make(shuffle=True, reconnect=3), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in loader:
            found.append(loader.last_batch.indices.tolist())
            if len(found) == 3:
                second = make_daemon()
                first.kill()
    assert found == whole and loader.socket == str(second.socket)


def test_a_daemon_that_stays_away_is_an_error(make_daemon, capsys):
    """After `reconnect` seconds, with the socket's name, and with a message on the terminal for a long wait; at once if
    it is 0."""
    daemon = make_daemon()
    loaders = [make(reconnect=0), make(reconnect=0.2), make(reconnect=2.5)]
    iterators = [iter(loader) for loader in loaders]
    for it in iterators:
        next(it)
    daemon.kill()
    for it in iterators:
        with pytest.raises(ConnectionError, match="batchd"):
            for _ in it:
                pass
    assert (
        f"batchd: batchd at {daemon.socket} went away" in (said := capsys.readouterr().err)
        and "; waiting for it, for 2.5 s at most\n" in said
    )


# ---- own batches and frameworks ----


class Sampler:
    """Like PyTorch's batch samplers: lists of any length, another order each epoch."""

    batch_size = 9

    def __init__(self):
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = numpy.random.default_rng(self.epoch).permutation(100)
        start = 0
        for n in [9, 1, 5] * 3 + [9, 9, 9, 9, 9, 9, 1]:
            yield order[start : start + n]
            start += n

    def __len__(self):
        return 16


def test_own_batches_come_as_the_sampler_chose_them(daemon):
    """Sizes and order of every batch, the content of every sample, two epochs, and set_epoch reaches the sampler."""
    content = {i: x for batch, (x, _) in zip(indices_of(make()), content_of(make())) for i, x in zip(batch, x)}
    sampler = Sampler()
    loader = make(batch_size=None, batch_sampler=sampler)
    assert loader.batch_size == 9 and len(loader) == 16
    for epoch in (0, 3):
        loader.set_epoch(epoch)
        expected = [list(b) for b in sampler]
        for (images, _), wanted in zip(loader, expected):
            assert loader.last_batch.indices.tolist() == wanted
            assert all((plain(x) == content[i]).all() for x, i in zip(images, wanted))
        assert loader.last_batch.step == 15 and sampler.epoch == epoch


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_sampler_is_cut_into_batches_as_torch_does(daemon, drop_last):
    """Indices in the sampler's order; it is the loader's sampler, and gets the epochs."""

    class Backwards:
        epoch = 0

        def set_epoch(self, epoch):
            self.epoch = epoch

        def __iter__(self):
            return iter(range(49 + self.epoch, -1, -1))

        def __len__(self):
            return 50 + self.epoch

    loader = make(sampler=Backwards(), drop_last=drop_last)
    assert (
        loader.batch_size == 8
        and loader.drop_last == drop_last
        and isinstance(loader.sampler, Backwards)
        and loader.batch_sampler.sampler is loader.sampler
    )
    for epoch in (0, 6):
        loader.set_epoch(epoch)
        n = len(loader.sampler)
        whole = [list(range(n - 1 - at, max(n - 9 - at, -1), -1)) for at in range(0, n, 8)]
        expected = [b for b in whole if len(b) == 8 or not drop_last]
        assert len(loader) == len(expected) and indices_of(loader) == expected
    if torch is not None:
        sampler = torch.utils.data.WeightedRandomSampler([0, 1] * 50, 30)
        found = flat(indices_of(make(sampler=sampler)))
        assert len(found) == 30 and all(i % 2 for i in found)


def test_own_batches_resume_by_skipping_what_was_given_out(daemon):
    """The sampler is iterated again from its start."""
    expected = [list(b) for b in Sampler()]
    loader = make(batch_size=None, batch_sampler=Sampler())
    assert taken(loader, 6) == expected[:6]
    again = make(batch_size=None, batch_sampler=Sampler())
    again.load_state_dict(loader.state_dict())
    assert indices_of(again) == expected[6:]


def test_own_batches_survive_the_daemon(make_daemon):
    """Also when the daemon is killed in between."""
    daemon = make_daemon()
    loader, found = make(batch_size=None, batch_sampler=Sampler()), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in loader:
            found.append(loader.last_batch.indices.tolist())
            if len(found) == 7:
                daemon.kill()
                daemon.start()
    assert found == [list(b) for b in Sampler()]


@needs_torch
def test_torch_batch_samplers_work(daemon):
    """The usual class."""
    sampler = torch.utils.data.BatchSampler(torch.utils.data.SubsetRandomSampler(range(50, 80)), 7, False)
    loader = make(batch_size=None, batch_sampler=sampler)
    batches = indices_of(loader)
    assert [len(b) for b in batches] == [7, 7, 7, 7, 2] and sorted(flat(batches)) == list(range(50, 80))


def test_wrong_own_batches_are_refused_by_name(daemon):
    """Too long, empty, out of range."""
    for batches, kind, word in (
        ([list(range(9))], ValueError, "9 where 1 to 8"),
        ([[]], ValueError, "batch of 0"),
        ([[1, 100]], IndexError, "sample 100 of 100"),
        ([[-1]], IndexError, "-1"),
    ):
        with pytest.raises(kind, match=word):
            list(make(batch_sampler=batches))
    with pytest.raises(ValueError, match="give batch_size"):
        make(batch_size=None, batch_sampler=iter([[1]]))


def test_wrappers_that_keep_unknown_iterables_work(daemon):
    """Like those of HuggingFace Accelerate: only iter and len, and access to the usual attributes."""
    loader = make(drop_last=True, num_workers=2)

    class Wrapper:
        def __init__(self, dataloader):
            self.dataloader = dataloader

        def __iter__(self):
            yield from self.dataloader

        def __len__(self):
            return len(self.dataloader)

    wrapped = Wrapper(loader)
    assert sum(1 for _ in wrapped) == len(wrapped) == 12
    for name, value in (
        ("batch_size", 8),
        ("drop_last", True),
        ("num_workers", 2),
        ("batch_sampler", None),
        ("timeout", 0),
    ):
        assert getattr(loader, name) == value
    assert hasattr(loader.sampler, "set_epoch") and len(loader.dataset) == 100


@needs_torch
def test_cuda_without_a_gpu_is_refused_clearly(daemon):
    """Raised before anything is opened."""
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(
        RuntimeError, match="device='cuda': torch .* can use no GPU here: .*(CUDA|NVIDIA driver).*doctor"
    ):
        make(device="cuda")
    for device in ("gpu", "GPU-0123", "meta"):
        with pytest.raises(ValueError, match=f"'cpu' or 'cuda.:n.', not '{device}'"):
            make(device=device)
    with pytest.raises(RuntimeError, match="torch"):
        make(device="cuda", arrays="numpy")


def test_a_first_program_needs_no_setup(build, tmp_path):
    """Without a running daemon, two processes of an ordinary user start one for both; it serves only that user and
    stops cleanly."""
    program = build / "client" / "examples" / "train"
    who = dict(user=65534, group=65534, extra_groups=[]) if os.geteuid() == 0 else {}
    if not program.exists() or subprocess.run(["test", "-x", str(program)], **who).returncode:
        pytest.skip(f"{program} is not there for ordinary users")
    if pathlib.Path("/run/batchd/batchd.socket").exists():
        pytest.skip("this machine's own batchd runs, so there is one")
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    if who:
        os.chown(runtime, who["user"], who["group"])
        for folder in list(runtime.parents)[:-2]:  # pytest's are private to root
            os.chmod(folder, os.stat(folder).st_mode | 0o011)
    env = {k: v for k, v in os.environ.items() if k not in ("BATCHD_SOCKET", "LD_LIBRARY_PATH")}
    env.update(XDG_RUNTIME_DIR=str(runtime), HOME=str(runtime))
    command = [str(program), "random:length=100,shape=3"]
    processes = [
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
            cwd=runtime.parent,
            **who,
        )
        for _ in range(2)
    ]
    outputs = [p.communicate(timeout=300) for p in processes]
    assert [p.returncode for p in processes] == [0, 0], outputs
    assert all(out.count("rows, mean 0.") == 4 for out, _ in outputs), outputs
    socket = runtime / "batchd" / "socket"
    assert os.stat(runtime / "batchd").st_mode & 0o077 == 0
    pid = batchd.status(socket)["daemon"]["pid"]
    assert os.stat(f"/proc/{pid}").st_uid == os.stat(runtime).st_uid
    assert os.getsid(pid) not in (os.getsid(0), processes[0].pid, processes[1].pid)
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 300
    while socket.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not socket.exists()


def test_a_loader_that_did_not_open_has_a_repr():
    """Debuggers and tracebacks show it while __init__ raises."""
    with pytest.raises(ValueError) as e:
        batchd.DataLoader("random:length=8,shape=2", sampler=[1], shuffle=True)
    (half_open,) = {id(f.locals["self"]): f.locals["self"] for f in e.traceback if "self" in f.locals}.values()
    assert repr(half_open) == "<batchd.DataLoader, not open>"


def test_a_loader_has_a_repr_before_during_and_after_its_life(daemon):
    """A debugger shows the locals of a frame that failed, the half-made loader among them."""
    made = []

    class Kept(batchd.DataLoader):
        def __init__(self, *args, **options):
            made.append(self)
            assert "not open" in repr(self)
            super().__init__(*args, **options)

    for args, options in ((("imagefolder:/there/is/none", 4), {}), (("random:length=8,shape=2",), {"no_such": 1})):
        with pytest.raises((batchd.NotFoundError, TypeError)):
            Kept(*args, **options)
        assert "not open" in repr(made[-1]) or "closed" in repr(made[-1])
    with Kept("random:length=8,shape=2", 4) as loader:
        assert "8 samples" in repr(loader)
    assert repr(loader).endswith(", closed>")

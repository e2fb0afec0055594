"""batchd.DataLoader as used by a training loop, against a real daemon: order and positions."""

import os
import pathlib
import signal
import subprocess
import time

import numpy
import pytest

import batchd
from plain_loops import flat, indices_of, make, needs_torch, resumed, taken, torch


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

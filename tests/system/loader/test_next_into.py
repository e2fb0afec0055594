"""DataLoader.next_into on the CPU: the batches of a loop, in the caller's memory. On a GPU: test_cuda_loader.py."""

import gc
import json
import os
import subprocess
import sys
import weakref

import numpy
import pytest

import batchd
from batchd import _lib
from daemons import REPO

torch = pytest.importorskip("torch")

N = 27  # samples of the arrays; 7 batches, the last of 3
DATA = f"random:length={N},shape=2x5,dtype=float32"


def make(**options):
    options = {"shuffle": True, "seed": 3, "n_slots": 4, **options}
    return batchd.DataLoader(options.pop("dataset", DATA), options.pop("batch_size", 4), **options)


def buffers(rows=4, shape=(2, 5), dtype=torch.float32, kind="torch"):
    images, labels = torch.full((rows, *shape), 7, dtype=dtype), torch.full((rows,), -1, dtype=torch.int64)
    return (images, labels) if kind == "torch" else (images.numpy(), labels.numpy())


def copy(tensor, n):
    return numpy.asarray(tensor[:n]).copy()


def fill(loader, images, labels):
    """The batches until the epoch's end, as (rows, images, labels, indices)."""
    found = []
    while n := loader.next_into(images, labels):
        found.append((n, copy(images, n), copy(labels, n), loader.last_batch.indices))
    assert n is None
    return found


def looped(loader):
    return [(len(x), numpy.asarray(x).copy(), numpy.asarray(y).copy(), loader.last_batch.indices) for x, y in loader]


def same(found, wanted):
    return len(found) == len(wanted) and all(
        len(f) == len(w) and all(numpy.array_equal(a, b) for a, b in zip(f, w)) for f, w in zip(found, wanted)
    )


@pytest.mark.parametrize("kind", ["torch", "numpy"])
@pytest.mark.parametrize("arrays", ["torch", "numpy"])
def test_the_batches_of_a_loop(daemon, kind, arrays):
    """Two epochs, the last batch with fewer rows, into torch tensors and numpy arrays alike; rows after the last stay
    unchanged, and no slot is held."""
    loader, other = make(arrays=arrays), make(job="other")
    images, labels = buffers(kind=kind)
    for epoch in range(2):
        wanted = looped(other)
        assert same(fill(loader, images, labels), wanted) and loader.last_batch.epoch == epoch
        assert wanted[-1][0] == 3 and numpy.array_equal(images[3], wanted[-2][1][3]) and labels[3] == wanted[-2][2][3]
        assert _lib.n_leased(loader._handle) == 0


@pytest.mark.parametrize(
    "options", [dict(), dict(dtype="float16"), dict(dtype="uint8", layout="NHWC"), dict(layout="NHWC")], ids=str
)
def test_pictures(daemon, samples, options):
    """Every dtype and layout; a channels_last tensor through NHWC."""
    options = dict(
        dataset=f"imagefolder:{samples}", transform=[["CenterCrop", 16], "ToTensor"], batch_size=10, **options
    )
    shape = (16, 16, 3) if options.get("layout") == "NHWC" else (3, 16, 16)
    images, labels = buffers(10, shape, getattr(torch, options.get("dtype", "float32")))
    with make(**options) as loader, make(job="other", **options) as other:
        assert same(fill(loader, images, labels), looped(other))
    if shape[2] == 3:
        assert images.permute(0, 3, 1, 2).is_contiguous(memory_format=torch.channels_last)


def test_labels_may_be_left_out_and_buffers_be_larger(daemon):
    """Only the first rows are written, and only the given arrays."""
    loader, other = make(), make(job="other")
    images, labels = buffers(rows=6)
    (x, _), _ = next(iter(other)), loader.next_into(images)
    assert torch.equal(images[:4], x) and (images[4:] == 7).all() and (labels == -1).all()


def test_a_state_saved_behind_any_batch_goes_on_with_the_next(daemon):
    """state_dict is the position after the last batch that next_into wrote; another loader continues there, by
    next_into or in a loop; and so does load_state_dict in the middle."""
    loader = make()
    images, labels = buffers()
    wanted = looped(make(job="whole"))
    for i in range(len(wanted)):
        assert loader.next_into(images, labels) == wanted[i][0]
        state = json.loads(json.dumps(loader.state_dict()))
        for way in (looped, lambda other: fill(other, *buffers())):
            with make(job=f"resumed {i}") as other:
                other.load_state_dict(state)
                assert same(way(other), wanted[i + 1 :])
    loader.load_state_dict(state | {"finished": True})
    assert loader.next_into(images, labels) == 4 and loader.last_batch.epoch == 1
    first = loader.state_dict()
    assert loader.next_into(images, labels) == 4 and loader.last_batch.step == 1
    loader.load_state_dict(first)
    assert loader.next_into(images, labels) == 4 and loader.last_batch.step == 1


def test_epochs_are_those_that_set_epoch_says(daemon):
    """Between epochs, before the first batch, and in the middle, where another epoch ends this one and the same one
    changes nothing."""
    loader = make()
    images, labels = buffers()
    at = []
    for epoch in (5, 5, 2, 2):
        loader.set_epoch(epoch)
        loader.next_into(images, labels)
        at.append((loader.last_batch.epoch, loader.last_batch.step))
    assert at == [(5, 0), (5, 1), (2, 0), (2, 1)]
    while loader.next_into(images, labels):
        pass
    loader.next_into(images, labels)
    assert (loader.last_batch.epoch, loader.last_batch.step) == (3, 0)


def test_a_loop_and_next_into_end_each_other(daemon):
    """A loader has one iteration at a time: a loop that continues after next_into gets an error that says why, and
    next_into after a loop starts as another loop would."""
    loader = make()
    images, labels = buffers()
    loop = iter(loader)
    next(loop)
    assert loader.next_into(images, labels) == 4 and loader.last_batch.epoch == 1
    with pytest.raises(batchd.Error, match="another iteration over the same loader has begun"):
        next(loop)
    assert loader.next_into(images, labels) == 4 and loader.last_batch.step == 1
    next(iter(loader))
    assert loader.last_batch.epoch == 2
    assert loader.next_into(images, labels) == 4 and (loader.last_batch.epoch, loader.last_batch.step) == (3, 0)


def test_an_order_of_the_callers_own(daemon):
    """sampler= and batch_sampler=, batches of any size up to batch_size."""
    batches = [[3, 3, 1], [0], [26, 5, 4, 9]]
    loader, other = (make(batch_sampler=batches, shuffle=False, job=job) for job in "ab")
    assert same(fill(loader, *buffers()), looped(other))
    assert [n for n, *_ in fill(loader, *buffers())] == [3, 1, 4]


def test_slices_of_a_share_groups_batches(daemon):
    """Two trials of one group, each with its own batch size: one by next_into, one by a loop."""
    share = dict(mode="share", job="group", world_size=2, group_batch_size=8, shuffle=True)
    one, two = make(rank=0, batch_size=4, **share), make(rank=1, batch_size=8, **share)
    images, labels = buffers()
    small, large = [], []
    for _ in range(3):
        for _ in range(2):
            assert one.next_into(images, labels) == 4
            small.append((copy(images, 4), copy(labels, 4)))
        n = two.next_into(*(pair := buffers(rows=8)))
        large.append((copy(pair[0], n), copy(pair[1], n)))
    for i in (0, 1):
        assert numpy.array_equal(numpy.concatenate([s[i] for s in small]), numpy.concatenate([s[i] for s in large]))


@pytest.mark.parametrize(
    "images, error, words",
    [
        (
            torch.empty(3, 2, 5),
            ValueError,
            r"images has shape \(3, 2, 5\), and a batch needs \(4, 2, 5\), or more rows",
        ),
        (torch.empty(4, 5, 2), ValueError, "has shape"),
        (torch.empty(4, 10), ValueError, "has shape"),
        (
            torch.empty(4, 2, 5, dtype=torch.float16),
            TypeError,
            "images is float16, and this loader's batches are float32",
        ),
        (torch.empty(4, 2, 10)[:, :, ::2], ValueError, "not contiguous"),
        (torch.empty(4, 5, 2).transpose(1, 2), ValueError, "not contiguous"),
        (
            torch.empty(4, 2, 5, device="meta"),
            ValueError,
            "images is on meta, and this loader's batches are on the CPU",
        ),
        (numpy.empty((4, 2, 5), "float64"), TypeError, "images is float64"),
        (numpy.broadcast_to(numpy.float32(0), (4, 2, 5)), ValueError, "read-only"),
        ([[0.0] * 10] * 4, TypeError, "images is a list"),
        (None, TypeError, "images is a NoneType"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_a_batch_cannot_be_written_into(daemon, images, error, words):
    """Named before a batch is taken, so that none is lost."""
    loader = make()
    with pytest.raises(error, match=words):
        loader.next_into(images, buffers()[1])
    with pytest.raises(TypeError, match="labels is float32"):
        loader.next_into(buffers()[0], torch.empty(4))
    assert loader.next_into(*buffers()) == 4 and loader.last_batch.step == 0


def test_autograd_notices_a_buffer_that_is_overwritten(daemon):
    """Backward through the former content of a buffer is refused, as after any write in place; an input may require
    gradients."""
    loader = make()
    images, labels = buffers()
    loader.next_into(images, labels)
    weight = torch.ones(2, 5, requires_grad=True)
    loss = (images * weight).sum()
    loader.next_into(images, labels)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    images.requires_grad_()
    assert loader.next_into(images, labels) == 4
    (images * 2).sum().backward()
    assert (images.grad == 2).all()


def test_a_loader_without_references_is_gone(daemon):
    """The state of next_into does not keep the loader alive, so that its session ends with its last reference."""
    loader = make()
    loader.next_into(*buffers())
    gone = weakref.ref(loader)
    gc.disable()
    try:
        del loader
        assert gone() is None
    finally:
        gc.enable()


def test_a_closed_loader_says_so(daemon):
    """As an iteration does."""
    loader = make()
    loader.next_into(*buffers())
    loader.close()
    with pytest.raises(batchd.Error, match="closed"):
        loader.next_into(*buffers())


def test_the_example(daemon, samples):
    """The example's loop on the CPU: two epochs of pictures without the incomplete batch, and numbers that are not
    NaN."""
    done = subprocess.run(
        [sys.executable, REPO / "client/examples/train_graph.py", f"imagefolder:{samples}"],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    lines = done.stdout.splitlines()
    assert [line.partition(", loss")[0] for line in lines] == ["epoch 0: 3 steps", "epoch 1: 3 steps"], done
    assert all(float(line.rpartition(" ")[2]) > 0 for line in lines)

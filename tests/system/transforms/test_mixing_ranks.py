"""Ranks that mix rows of which the daemon has to make floats: they open one job, in whichever order they come."""

import concurrent.futures
import threading

import pytest

import batchd

torch = pytest.importorskip("torch")
from test_cuda_loader import run  # noqa: E402, F401

ERASING = [
    ["RandomResizedCrop", 24],
    "ToTensor",
    ["Normalize", [0.4] * 3, [0.2] * 3],
    ["RandomErasing", {"p": 0.5, "value": "random"}],
]
MIX = batchd.MixUp(0.4, 30)


def open_rank(source, rank, ranks, job, **options):
    options = {"transform": ERASING, "mix": MIX, **options}
    return batchd.DataLoader(source, 4, rank=rank, world_size=ranks, job=job, **options)


def first_of(loader):
    images, targets = next(iter(loader))
    return images.clone(), targets.clone()


def test_a_rank_joins_a_job_of_floats(daemon, samples):
    """The second rank asks for bytes, and finds the floats that the first one got; its rows are those of a rank that
    came first."""
    source, seen = f"imagefolder:{samples}", []
    for order in ((0, 1), (1, 0)):
        loaders = {rank: open_rank(source, rank, 2, f"job-{order}") for rank in order}
        seen.append([first_of(loaders[rank]) for rank in (0, 1)])
        for loader in loaders.values():
            loader.close()
    for (x, t), (y, u) in zip(*seen):
        assert torch.equal(x, y) and torch.equal(t, u)
    assert not torch.equal(seen[0][0][0], seen[0][1][0])


def test_ranks_that_open_at_once(daemon, samples):
    """Six ranks together, many times: one that learns that there are no bytes meets others that still ask for them."""
    source, n = f"imagefolder:{samples}", 6
    for attempt in range(12):
        together = threading.Barrier(n)

        def opened(rank):
            together.wait()
            with open_rank(source, rank, n, f"attempt-{attempt}") as loader:
                return first_of(loader)[0]

        with concurrent.futures.ThreadPoolExecutor(n) as pool:
            rows = list(pool.map(opened, range(n)))
        assert len({x.numpy().tobytes() for x in rows}) == n


def test_ranks_of_different_dtypes_are_still_refused(daemon, samples):
    """Where nothing fits, the error names what differs."""
    source = f"imagefolder:{samples}"
    with open_rank(source, 0, 2, "differ", dtype="float16"):
        with pytest.raises(batchd.MismatchError, match="another dtype"):
            open_rank(source, 1, 2, "differ")


def test_ranks_on_a_gpu_that_erase(run):  # noqa: F811
    """The same without a mix, where the daemon's floats go to the GPU."""
    run("""
    transform = [*TRANSFORM, ["RandomErasing", {"p": 0.7, "value": "random"}]]
    two = [open_loader(job="erase", transform=transform, rank=rank, world_size=2) for rank in range(2)]
    rows = [next(iter(loader))[0].cpu() for loader in two]
    assert rows[0].shape == rows[1].shape and not real.equal(*rows)
    for loader in two:
        loader.close()
    """)

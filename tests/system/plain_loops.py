"""What tests of training loops share: loaders of random numbers, and what an iteration gives."""

import os
import pickle
import subprocess
import sys
import textwrap

import numpy
import pytest

import batchd
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

"""Batches as JAX's arrays on the CPU: a case by name. torch is not imported, and no process is forked."""

import functools
import gc
import os
import sys
import threading
import time
import warnings

import jax
import jax.numpy as jnp
import numpy

import batchd
from batchd import _lib

N, WIDTH = 64, 256
ROWS = numpy.arange(N * WIDTH, dtype="float32").reshape(N, WIDTH)


def no_fork():
    raise SystemExit("a fork")


os.register_at_fork(before=no_fork)


def make(data=(ROWS, numpy.arange(N)), **options):
    return batchd.DataLoader(data, **{"batch_size": 8, "arrays": "jax", "n_slots": 5, **options})


def held(loader):
    return _lib.n_leased(loader._handle)


def until_held(loader, n):
    """JAX drops an array as soon as the computation that reads it is over."""
    deadline = time.monotonic() + 60
    while held(loader) != n:
        assert time.monotonic() < deadline, (held(loader), n)
        time.sleep(0.001)


def case_shared():
    """The slot's own memory, at its address; labels are copies; the slot goes back with the array."""
    with make() as loader:
        for x, y in loader:  # enumerate would keep the batch
            k = loader.last_batch.step
            assert isinstance(x, jax.Array) and isinstance(y, jax.Array) and (x.dtype, y.dtype) == ("float32", "int32")
            assert x.unsafe_buffer_pointer() == loader.last_batch._data
            assert (x.devices(), y.devices()) == ({jax.devices()[0]},) * 2
            assert (x == ROWS[8 * k : 8 * k + 8]).all() and (y == numpy.arange(8 * k, 8 * k + 8)).all()
            until_held(loader, 1)
            del x
            until_held(loader, 0)
        assert len(jnp.concatenate([y for _, y in loader])) == N


def case_computations():
    """A queued computation keeps the batch that it reads, though no variable does; all see the right rows."""

    @jax.jit
    def slow(x):
        return functools.reduce(lambda a, _: jnp.tanh(a @ a.T @ a * 1e-9), range(30), x).sum() * 0 + x.sum()

    with warnings.catch_warnings(), make(n_slots=4) as loader:
        warnings.simplefilter("ignore")  # computations may hold all slots, and batches are copied then
        for epoch in range(3):
            sums = [slow(x) for x, _ in loader]
            assert numpy.array_equal(jnp.stack(sums), ROWS.reshape(N // 8, -1).sum(1)), epoch
        sums = None
        until_held(loader, 0)


def case_two_slots():
    """The least number of slots: every other batch is a copy, and no wait for a computation ends in an error."""
    f = jax.jit(lambda x: (x @ x.T).sum() * 0 + x[:, 0].sum())
    with warnings.catch_warnings(), make(n_slots=2) as loader:
        warnings.simplefilter("ignore")
        for _ in range(3):
            assert numpy.array_equal(jnp.stack([f(x) for x, _ in loader]), ROWS[:, 0].reshape(-1, 8).sum(1))


def case_donated():
    """A donated batch is deleted, and not written to."""
    f = jax.jit(lambda x: x + 1, donate_argnums=0)
    with make() as loader:
        for k, (x, _) in enumerate(loader):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                y = f(x)
            assert (y == ROWS[8 * k : 8 * k + 8] + 1).all() and y.unsafe_buffer_pointer() != loader.last_batch._data
            if x.is_deleted():
                until_held(loader, 0)
        assert all((x == ROWS[8 * k : 8 * k + 8]).all() for k, (x, _) in enumerate(loader))


def case_kept():
    """A loop that keeps its slots gets copies, with one warning."""
    with make(n_slots=3) as loader, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        kept = [x for x, _ in loader]
        assert len(said) == 1 and "batches are copied" in str(said[0].message)
        assert (jnp.concatenate(kept) == ROWS).all() and all(isinstance(x, jax.Array) for x in kept)


def case_slices():
    """Slices of a group's batch: one that begins at no multiple of 64 bytes is copied by JAX."""
    rows = ROWS[:, :5].copy()
    with make((rows,), batch_size=4, mode="share", group_batch_size=16, job="slices") as loader:
        assert (jnp.concatenate([x for (x,) in loader]) == rows).all()


def case_by_hand():
    """jax.dlpack.from_dlpack takes numpy's arrays and batchd's own without a copy, too."""
    for arrays in ("numpy", "dlpack"):
        with make(arrays=arrays) as loader:
            for k, (x, _) in enumerate(loader):
                x = jax.dlpack.from_dlpack(x)
                assert x.unsafe_buffer_pointer() == loader.last_batch._data and (x == ROWS[8 * k : 8 * k + 8]).all()
            del x
            until_held(loader, 0)


def case_mixed_fields():
    """Several fields: large ones share the slot, small ones are copies."""
    data = {
        "a": ROWS,
        "b": numpy.tile(ROWS, 2).astype("float16"),
        "c": numpy.arange(N, dtype="int8"),
        "d": ROWS.astype("int64"),
    }
    with make(data) as loader:
        for batch in loader:
            k = loader.last_batch.step
            assert {n: str(v.dtype) for n, v in batch.items()} == dict(a="float32", b="float16", c="int8", d="int32")
            for name, value in batch.items():
                assert (value == data[name][8 * k : 8 * k + 8]).all(), name
            b = batch["b"]
            del batch, value
            until_held(loader, 1)
            del b
            until_held(loader, 0)


def case_outlives_its_loader():
    loader = make()
    batches = iter(loader)
    kept = [next(batches)[0] for _ in range(3)]
    loader.close()
    del loader, batches
    gc.collect()
    for k, x in enumerate(kept):
        assert (x == ROWS[8 * k : 8 * k + 8]).all()
    threads = [threading.Thread(target=kept.pop) for _ in kept[:]]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    gc.collect()


def case_exit():
    """The interpreter ends with a loader, arrays, a cycle and a queued computation."""
    sys.loader = make()
    batches = iter(sys.loader)
    sys.kept = [next(batches)[0], next(batches)]
    sys.kept.append(sys.kept)
    sys.queued = jax.jit(lambda x: functools.reduce(lambda a, _: jnp.tanh(a @ a.T @ a), range(50), x))(next(batches)[0])


def case_refused():
    for options, says in (
        ({"writable": True}, "cannot be written"),
        ({"layout": "channels_last", "data": f"random:length={N},shape=8x8x3"}, "NHWC"),
    ):
        try:
            make(**options)
            raise SystemExit(f"{options} was taken")
        except (ValueError, TypeError) as e:
            assert says in str(e), e


def wide():
    with make((ROWS.astype("float64"), numpy.arange(N))) as loader:
        for k, (x, y) in enumerate(loader):
            assert (x.dtype, y.dtype) == ("float64", "int64") and x.unsafe_buffer_pointer() == loader.last_batch._data
            assert (x == ROWS[8 * k : 8 * k + 8]).all()


def pictures():
    """In each dtype and layout as numpy's, several views, stacked ones, mixed rows, soft targets."""
    base = dict(transform="val224", shuffle=True, seed=3, batch_size=6)
    two = batchd.views("train224", n=2)
    folder = f"imagefolder:{sys.argv[2]}"
    for options in (
        dict(),
        dict(dtype="float16", layout="NHWC"),
        dict(dtype="uint8"),
        dict(transform=two),
        dict(transform=batchd.views("train224", n=2, stack=True)),
        dict(mix=batchd.MixUp(0.4, 4)),
        dict(mix=batchd.CutMix(1.0)),
    ):
        options = {**base, **options}
        with make(folder, **options) as loader, make(folder, **{**options, "arrays": "numpy"}) as oracle:
            n = 0
            for ours, theirs in zip(loader, oracle, strict=True):
                a, b = jax.tree.leaves(ours), jax.tree.leaves(theirs)
                assert len(a) == len(b) and all(isinstance(x, jax.Array) for x in a), options
                assert all((numpy.asarray(x) == y).all() for x, y in zip(a, b)), options
                n += 1
            assert n == len(loader)
            ours = theirs = a = b = None
            until_held(loader, 0)


def daemon_dies():
    loader = make(reconnect=0)
    batches = iter(loader)
    kept = [next(batches)[0], next(batches)[0]]
    print("ready", flush=True)
    warnings.simplefilter("ignore")  # batches that are copied meanwhile
    try:
        list(batches)
        list(loader)
        raise SystemExit("the daemon lives")
    except batchd.Error:
        pass
    assert all((x == ROWS[8 * k : 8 * k + 8]).all() for k, x in enumerate(kept))


def served():
    with make("serve:halves", batch_size=None, n_slots=None) as loader:
        for batch in loader:
            half, eighth, rows = batch["half"], batch["eighth"], batch["rows"]
            assert (half.dtype, eighth.dtype) == (jnp.bfloat16, jnp.float8_e4m3fn)
            assert isinstance(half, jax.Array) and isinstance(eighth, jax.Array)
            wanted = jnp.arange(4096).reshape(8, 512)
            assert (half == wanted.astype(jnp.bfloat16)).all() and (eighth.astype("int32") == wanted % 8).all()
            assert [type(r) for r in rows] == [numpy.ndarray] * 2 and [len(r) for r in rows] == [512, 3]


if __name__ == "__main__":
    (globals().get(f"case_{sys.argv[1]}") or globals()[sys.argv[1]])()
    assert "torch" not in sys.modules
    print("held", flush=True)

"""arrays="dlpack": arrays that other libraries import without a copy. numpy and torch are the oracles here, JAX in
test_jax.py."""

import gc
import os
import subprocess
import sys
import threading

import numpy
import pytest

import batchd
from batchd import _dlpack, _lib

N, WIDTH = 40, 24


@pytest.fixture
def rows():
    return numpy.arange(N * WIDTH, dtype="float32").reshape(N, WIDTH)


def make(rows, **options):
    labels = numpy.arange(len(rows))
    return batchd.DataLoader((rows, labels), **{"batch_size": 8, "arrays": "dlpack", "n_slots": 4, **options})


def held(loader):
    return _lib.n_leased(loader._handle)


def address(array):
    return array.ctypes.data if isinstance(array, numpy.ndarray) else array.data_ptr()


def numpys(array):
    return numpy.from_dlpack(array)


def torchs(array):
    return pytest.importorskip("torch").from_dlpack(array)


@pytest.mark.parametrize("from_dlpack", [numpys, torchs])
@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64", "float16", "bool", "complex64", "float64", "int16"])
def test_other_libraries_take_a_batch_without_a_copy(daemon, rows, from_dlpack, dtype):
    """The slot's own bytes, row for row, for every type; the slot goes back with the last array."""
    wanted = rows.astype(dtype)
    with make(wanted) as loader:
        for x, y in loader:  # enumerate would keep the batch
            k = loader.last_batch.step
            assert (x.shape, x.dtype, len(x)) == ((8, WIDTH), dtype, 8) and x.__dlpack_device__() == (1, 0)
            assert isinstance(y, numpy.ndarray) and (y == numpy.arange(8 * k, 8 * k + 8)).all()
            first, second = from_dlpack(x), from_dlpack(x)
            assert address(first) == address(second) == numpy.asarray(x).ctypes.data
            assert (numpy.asarray(first) == wanted[8 * k : 8 * k + 8]).all()
            del x, first
            assert held(loader) == 1
            del second
            assert held(loader) == 0


def test_the_capsule_is_as_the_consumer_asks(daemon, rows):
    """Versioned ones only on request, read only unless the loader is writable; an unused one gives its share back; what
    an array in host memory has no answer to is refused, and a copy has no part of the loan."""
    with make(rows) as loader:
        x, _ = next(iter(loader))
        for wrong in ({"stream": 1}, {"dl_device": (2, 0)}):
            with pytest.raises(BufferError, match="host memory"):
                x.__dlpack__(**wrong)
        capsules = [x.__dlpack__(max_version=v) for v in (None, (0, 8), (1, 0), (2, 0))]
        assert ["versioned" in repr(c) for c in capsules] == [False, False, True, True]
        assert not numpy.from_dlpack(x).flags.writeable
        copied = numpy.from_dlpack(x, copy=True)
        address = numpy.asarray(x).ctypes.data
        assert copied.ctypes.data != address and (copied == rows[:8]).all()
        del x
        assert held(loader) == 1
        capsules.clear()
        assert held(loader) == 0
    with make(rows, writable=True) as loader:
        x, _ = next(iter(loader))
        written = numpy.from_dlpack(x)
        written[:] = 7
        assert (numpy.asarray(x) == 7).all()


def test_numpy_reads_an_array_as_it_is(daemon, rows):
    with make(rows) as loader:
        x, _ = next(iter(loader))
        whole = numpy.asarray(x)
        assert numpy.shares_memory(whole, numpy.from_dlpack(x)) and numpy.asarray(x, "float64").dtype == "float64"
        assert repr(x) == "<batchd.Array float32 (8, 24)>"
        with pytest.raises(ValueError, match="float16 needs a copy"):
            x.__array__("float16", copy=False)


def test_a_batch_ends_wherever_its_last_array_does(daemon, rows):
    """In another thread, in a reference cycle, and not in a forked child."""
    with make(rows) as loader:
        batches = iter(loader)
        kept = [numpy.from_dlpack(next(batches)[0])]
        thread = threading.Thread(target=kept.clear)
        thread.start()
        thread.join()
        assert held(loader) == 0
        kept.append((kept, numpy.from_dlpack(next(batches)[0])))
        child = os.fork()
        if child == 0:
            kept.clear()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0 and held(loader) == 1
        del kept
        gc.collect()
        assert held(loader) == 0


def test_an_array_outlives_its_loader_and_the_daemon(make_daemon, rows):
    daemon = make_daemon()
    loader = make(rows, reconnect=0)
    batches = iter(loader)
    first, second, third = (next(batches)[0] for _ in range(3))
    first = numpy.from_dlpack(first)
    daemon.kill()
    with pytest.raises(batchd.Error):
        list(batches)
    second = numpy.from_dlpack(second)
    loader.close()
    third = numpy.from_dlpack(third)
    del loader, batches
    gc.collect()
    for k, array in enumerate((first, second, third)):
        assert (array == rows[8 * k : 8 * k + 8]).all()


END = """
import sys, numpy, batchd
from batchd import _lib
loader = batchd.DataLoader((numpy.arange(64.0).reshape(16, 4),), batch_size=4, arrays="dlpack", n_slots=6)
batches = iter(loader)
batch, = next(batches)
capsule, array, cycle = batch.__dlpack__(), numpy.from_dlpack(batch), [next(batches)[0]]
cycle.append(cycle)
sys.kept = numpy.from_dlpack(next(batches)[0])
"""


def test_a_program_ends_with_arrays_of_all_kinds(daemon):
    """With capsules, imported arrays and cycles that the interpreter's end deletes in whatever order."""
    p = subprocess.run([sys.executable, "-X", "faulthandler", "-c", END], capture_output=True, text=True, timeout=300)
    assert (p.returncode, p.stderr) == (0, "")


def test_a_loop_that_keeps_its_slots_gets_copies(daemon, rows):
    with make(rows, n_slots=3) as loader, pytest.warns(RuntimeWarning, match="batches are copied"):
        kept = [x for x, _ in loader]
    assert isinstance(kept[0], batchd.Array) and isinstance(kept[-1], numpy.ndarray)
    assert (numpy.concatenate(list(map(numpy.from_dlpack, kept))) == rows).all()


def test_fields_and_slices(daemon, rows):
    """Large fields are arrays of the slot, which has as many shares as arrays; slices of a group's batch begin at any
    row."""
    data = {"a": numpy.repeat(rows, 64, 1), "b": numpy.repeat(rows, 64, 1) + 1}
    with batchd.DataLoader(data, batch_size=8, arrays="dlpack", n_slots=4) as loader:
        batch = next(iter(loader))
        b = numpy.from_dlpack(batch["b"])
        assert (numpy.from_dlpack(batch["a"]) == data["a"][:8]).all() and (b == data["b"][:8]).all()
        del batch
        assert held(loader) == 1
        del b
        assert held(loader) == 0
    with make(rows, batch_size=5, mode="share", group_batch_size=20, job="slices") as loader:
        assert (numpy.concatenate([numpy.from_dlpack(x).copy() for x, _ in loader]) == rows).all()


class Consumer:
    """Takes a capsule's tensor, as a library does."""

    def __init__(self, capsule):
        self._capsule = capsule  # which deletes the tensor at its end
        self.managed = _dlpack.Managed.from_address(_dlpack._pointer(id(capsule), b"dltensor"))


def test_types_that_numpy_lacks(daemon, tmp_path):
    """bfloat16 of a producer's batch, which torch imports; what numpy would get wrong is refused."""
    torch = pytest.importorskip("torch")
    sent = [torch.arange(4096).view(8, 512).to(torch.bfloat16) * (k + 1) for k in range(3)]
    with batchd.serve(sent, "halves", epochs=1, background=True):
        with batchd.DataLoader("serve:halves", arrays="dlpack") as loader:
            for x, wanted in zip(loader, sent, strict=True):
                assert x.dtype == "bfloat16"
                t = Consumer(x.__dlpack__()).managed.tensor
                assert (t.code, t.bits, t.lanes, tuple(t.shape[:2])) == (4, 16, 1, (8, 512))
                assert torch.equal(torch.from_dlpack(x), wanted)
                with pytest.raises(TypeError, match="numpy has no bfloat16"):
                    numpy.asarray(x)

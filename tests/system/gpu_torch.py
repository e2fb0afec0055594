"""torch with a GPU, as far as batchd.DataLoader uses it, over the fake driver: real torch for everything except
memory, streams and DLPack's import.

For programs that a test starts, with $BATCHD_LIBCUDA set: `use()` makes batchd use it, `done()` at the end looks for
leaks and violations.
"""

import ctypes
import os

import numpy
import torch

_cu = ctypes.CDLL(os.environ["BATCHD_LIBCUDA"])
_cu.fakecuda_counter.restype = ctypes.c_uint64
_cu.fakecuda_last_violation.restype = ctypes.c_char_p


def ok(result):
    assert result == 0, (result, _cu.fakecuda_last_violation())


def counter(name):
    return _cu.fakecuda_counter(name.encode())


def hold(on):
    _cu.fakecuda_hold_streams(ctypes.c_bool(on))


class Stream:
    def __init__(self):
        self._p = ctypes.c_void_p()
        ok(_cu.cuStreamCreate(ctypes.byref(self._p), 1))

    @property
    def cuda_stream(self):
        return self._p.value

    def synchronize(self):
        ok(_cu.cuStreamSynchronize(self._p))


class Memory:
    """Like the caching allocator: reusable once its stream has reached that point."""

    def __init__(self, n_bytes):
        p = ctypes.c_uint64()
        ok(_cu.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(max(n_bytes, 1))))
        self.address = p.value
        self.streams = [current]

    def __del__(self):
        for stream in self.streams:
            stream.synchronize()
        ok(_cu.cuMemFree_v2(ctypes.c_uint64(self.address)))


class Imported:
    """torch's handling of a capsule: takes the tensor out, renames the capsule, calls the deleter when the last view is
    gone."""

    def __init__(self, capsule):
        from batchd import _dlpack

        self._called = False
        for name, kind, used in (
            (b"dltensor", _dlpack.Managed, b"used_dltensor"),
            (b"dltensor_versioned", _dlpack.ManagedVersioned, b"used_dltensor_versioned"),
        ):
            if ctypes.pythonapi.PyCapsule_IsValid(ctypes.py_object(capsule), name):
                ctypes.pythonapi.PyCapsule_GetPointer.restype = ctypes.c_void_p
                self._at = ctypes.pythonapi.PyCapsule_GetPointer(ctypes.py_object(capsule), ctypes.c_char_p(name))
                self.name, self.managed = name, kind.from_address(self._at)
                ctypes.pythonapi.PyCapsule_SetName(ctypes.py_object(capsule), ctypes.c_char_p(used))
                self._keep = used
                break
        t = self.managed.tensor
        assert (t.device_type, t.device_id, t.byte_offset, t.lanes) == (2, 0, 0, 1)
        self.address, self.shape = t.data, tuple(t.shape[: t.ndim])
        self.dtype = {(1, 8): torch.uint8, (2, 32): torch.float32, (0, 64): torch.int64}[t.code, t.bits]

    def __del__(self):
        self.managed.deleter(self._at)


class View:
    """A part of a memory object, which it keeps alive."""

    def __init__(self, memory, offset):
        self._memory, self.address = memory, memory.address + offset


class Tensor:
    device = torch.device("cuda", 0)

    def __init__(self, memory, shape, dtype, order=None):
        """order: of the dimensions in memory, if that is not their own."""
        self._memory, self.shape, self.dtype = memory, tuple(shape), dtype
        self._order = tuple(range(len(self.shape)) if order is None else order)
        self._version = 0
        self.n_bytes = int(numpy.prod(self.shape)) * dtype.itemsize

    def data_ptr(self):
        return self._memory.address

    def is_contiguous(self):
        return self._order == tuple(sorted(self._order))

    def movedim(self, source, to):
        dims = list(range(len(self.shape)))
        dims.insert(to % len(dims), dims.pop(source))
        shape, order = ([values[k] for k in dims] for values in (self.shape, self._order))
        return Tensor(self._memory, shape, self.dtype, order)

    def record_stream(self, stream):
        self._memory.streams.append(stream)  # only the allocator's own memory has them

    def __getitem__(self, piece):
        """A view of a row of bytes."""
        first, end, _ = piece.indices(self.n_bytes)
        return Tensor(View(self._memory, first), (end - first,), self.dtype)

    def view(self, how):
        if isinstance(how, tuple):
            return Tensor(self._memory, how, self.dtype)
        assert self.data_ptr() % how.itemsize == 0
        return Tensor(self._memory, (self.n_bytes // how.itemsize,), how)

    def clone(self):
        copy = Tensor(Memory(self.n_bytes), self.shape, self.dtype, self._order)
        ok(
            _cu.cuMemcpyDtoDAsync_v2(
                ctypes.c_uint64(copy.data_ptr()),
                ctypes.c_uint64(self.data_ptr()),
                ctypes.c_size_t(self.n_bytes),
                current._p,
            )
        )
        return copy

    def cpu(self):
        in_memory = sorted(range(len(self.shape)), key=self._order.__getitem__)
        buffer, pinned = torch.empty([self.shape[k] for k in in_memory], dtype=self.dtype), ctypes.c_void_p()
        if not self.n_bytes:
            return buffer.permute([in_memory.index(k) for k in range(len(in_memory))])
        ok(_cu.cuMemAllocHost_v2(ctypes.byref(pinned), ctypes.c_size_t(self.n_bytes)))
        ok(
            _cu.cuMemcpyDtoHAsync_v2(
                pinned, ctypes.c_uint64(self.data_ptr()), ctypes.c_size_t(self.n_bytes), current._p
            )
        )
        current.synchronize()
        ctypes.memmove(buffer.data_ptr(), pinned, self.n_bytes)
        ok(_cu.cuMemFreeHost(pinned))
        return buffer.permute([in_memory.index(k) for k in range(len(in_memory))])


def empty(shape, dtype, device=None):
    return Tensor(Memory(int(numpy.prod(shape)) * dtype.itemsize), shape, dtype)


def from_dlpack(export):
    assert export.__dlpack_device__() == (2, 0)
    imported = Imported(export.__dlpack__(stream=current.cuda_stream, max_version=(1, 0)))
    return Tensor(imported, imported.shape, imported.dtype)


class _Cuda:
    @staticmethod
    def is_available():
        return True

    @staticmethod
    def current_device():
        return 0

    @staticmethod
    def current_stream(device=None):
        return current


class _Autograd:
    profiler = torch.autograd.profiler

    class graph:
        @staticmethod
        def increment_version(tensor):
            tensor._version += 1


class Torch:
    cuda = _Cuda
    autograd = _Autograd
    empty = staticmethod(empty)
    from_dlpack = staticmethod(from_dlpack)

    def __getattr__(self, name):
        return getattr(torch, name)


def use():
    global current
    context = ctypes.c_void_p()
    ok(_cu.cuInit(0))
    ok(_cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    ok(_cu.cuCtxSetCurrent(context))
    current = Stream()
    from batchd import _arrays

    _arrays.choose = lambda wanted: _arrays.Torch(Torch())


def done():
    ok(_cu.cuStreamDestroy_v2(current._p))
    ok(_cu.cuCtxSetCurrent(None))
    ok(_cu.cuDevicePrimaryCtxRelease_v2(0))
    assert counter("violations") == 0, _cu.fakecuda_last_violation()
    assert _cu.fakecuda_alive() == 0
    print("done")

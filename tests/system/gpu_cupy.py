"""CuPy, as far as batchd.DataLoader uses it, over the fake driver, and how other libraries take a capsule. Nothing here
imports torch.

For programs that a test starts, with $BATCHD_LIBCUDA set: `use()` puts it in CuPy's place, `done()` at the end looks for
leaks and violations.
"""

import ctypes
import os
import sys
import types

import numpy

_cu = ctypes.CDLL(os.environ["BATCHD_LIBCUDA"])
_cu.fakecuda_counter.restype = ctypes.c_uint64
_cu.fakecuda_last_violation.restype = ctypes.c_char_p
_python = ctypes.PyDLL(None)
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p
_context = ctypes.c_void_p()
_CODES = {(0, 64): "int64", (1, 8): "uint8", (2, 32): "float32", (1, 16): "uint16"}


def ok(result):
    assert result == 0, (result, _cu.fakecuda_last_violation())


def counter(name):
    return _cu.fakecuda_counter(name.encode())


class Stream:
    def __init__(self):
        p = ctypes.c_void_p()
        ok(_cu.cuStreamCreate(ctypes.byref(p), 1))
        self.ptr = p.value

    def synchronize(self):
        ok(_cu.cuStreamSynchronize(ctypes.c_void_p(self.ptr)))


class Memory:
    """Of a pool: reusable once its stream has reached that point."""

    def __init__(self, n_bytes):
        p = ctypes.c_uint64()
        ok(_cu.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(max(n_bytes, 1))))
        self.ptr = p.value

    def __del__(self):
        ok(_cu.cuCtxSetCurrent(_context))  # CuPy's own memory may be dropped in any thread
        current.synchronize()
        ok(_cu.cuMemFree_v2(ctypes.c_uint64(self.ptr)))


def imported(array, **asked):
    assert array.__dlpack_device__() == (2, 0)
    return Imported(array.__dlpack__(**asked), "max_version" in asked)


class Imported:
    """A tensor taken out of its capsule, whose deleter is called when the last view is gone."""

    def __init__(self, capsule, versioned):
        from batchd import _dlpack

        name, kind = (b"dltensor_versioned", _dlpack.ManagedVersioned) if versioned else (b"dltensor", _dlpack.Managed)
        self._at = _python.PyCapsule_GetPointer(ctypes.py_object(capsule), ctypes.c_char_p(name))
        self._used = b"used_" + name  # the capsule keeps the pointer
        _python.PyCapsule_SetName(ctypes.py_object(capsule), ctypes.c_char_p(self._used))
        self.managed, self._kept = kind.from_address(self._at), self._used
        _kept_names.append(self._used)
        t = self.managed.tensor
        assert (t.device_type, t.device_id, t.byte_offset, t.lanes) == (2, 0, 0, 1)
        self.ptr, self.shape, self.dtype = t.data, tuple(t.shape[: t.ndim]), numpy.dtype(_CODES[t.code, t.bits])

    def __del__(self):
        self.managed.deleter(self._at)


_kept_names = []


class View:
    """A part of a memory object, which it keeps alive."""

    def __init__(self, memory, offset):
        self._memory, self.ptr = memory, memory.ptr + offset


class ndarray:
    def __init__(self, memory, shape, dtype, strides=None):
        self.data, self.shape, self.dtype = memory, tuple(shape), numpy.dtype(dtype)
        plain = numpy.empty(self.shape, self.dtype).strides
        self.strides = plain if strides is None else tuple(strides)
        self.nbytes = int(numpy.prod(self.shape)) * self.dtype.itemsize

    def swapaxes(self, a, b):
        shape, strides = list(self.shape), list(self.strides)
        for values in (shape, strides):
            values[a], values[b] = values[b], values[a]
        return ndarray(self.data, shape, self.dtype, strides)

    def __getitem__(self, piece):
        if isinstance(piece, ndarray):
            return asarray(self.get()[piece.get()])
        first, end, _ = piece.indices(self.nbytes)
        return ndarray(View(self.data, first), (end - first,), self.dtype)

    def view(self, dtype):
        return ndarray(self.data, (self.nbytes // numpy.dtype(dtype).itemsize,), dtype)

    def reshape(self, shape):
        return ndarray(self.data, shape, self.dtype)

    def copy(self, order):
        assert order == "K"
        made = ndarray(Memory(self.nbytes), self.shape, self.dtype, self.strides)
        n = ctypes.c_size_t(self.nbytes)
        to, of, stream = ctypes.c_uint64(made.data.ptr), ctypes.c_uint64(self.data.ptr), ctypes.c_void_p(current.ptr)
        ok(_cu.cuMemcpyDtoDAsync_v2(to, of, n, stream))
        return made

    def get(self):
        whole = numpy.empty(self.nbytes, "u1")
        if self.nbytes:
            pinned, n = ctypes.c_void_p(), ctypes.c_size_t(self.nbytes)
            ok(_cu.cuMemAllocHost_v2(ctypes.byref(pinned), n))
            ok(_cu.cuMemcpyDtoHAsync_v2(pinned, ctypes.c_uint64(self.data.ptr), n, ctypes.c_void_p(current.ptr)))
            current.synchronize()
            ctypes.memmove(whole.ctypes.data, pinned, self.nbytes)
            ok(_cu.cuMemFreeHost(pinned))
        return numpy.ndarray(self.shape, self.dtype, whole, 0, self.strides)


def empty(shape, dtype):
    return ndarray(Memory(int(numpy.prod(shape)) * numpy.dtype(dtype).itemsize), shape, dtype)


def asarray(values):
    made, pinned = empty(values.shape, values.dtype), ctypes.c_void_p()
    n = ctypes.c_size_t(max(values.nbytes, 1))
    ok(_cu.cuMemAllocHost_v2(ctypes.byref(pinned), n))
    ctypes.memmove(pinned, numpy.ascontiguousarray(values).ctypes.data, values.nbytes)
    ok(_cu.cuMemcpyHtoDAsync_v2(ctypes.c_uint64(made.data.ptr), pinned, n, ctypes.c_void_p(current.ptr)))
    current.synchronize()
    ok(_cu.cuMemFreeHost(pinned))
    return made


def from_dlpack(array):
    memory = imported(array, stream=current.ptr, max_version=(1, 0))
    return ndarray(memory, memory.shape, memory.dtype)


class Device:
    id = 0

    def __init__(self, number=0):
        assert number == 0

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass


def use():
    """In CuPy's place."""
    global current
    ok(_cu.cuInit(0))
    ok(_cu.cuDevicePrimaryCtxRetain(ctypes.byref(_context), 0))
    ok(_cu.cuCtxSetCurrent(_context))
    current = Stream()
    cupy = types.ModuleType("cupy")
    cupy.cuda = types.SimpleNamespace(Device=Device, get_current_stream=lambda: current)
    cupy.empty, cupy.asarray, cupy.from_dlpack = empty, asarray, from_dlpack
    sys.modules["cupy"] = cupy


def done():
    ok(_cu.cuStreamDestroy_v2(ctypes.c_void_p(current.ptr)))
    ok(_cu.cuCtxSetCurrent(None))
    ok(_cu.cuDevicePrimaryCtxRelease_v2(0))
    assert counter("violations") == 0, _cu.fakecuda_last_violation()
    assert _cu.fakecuda_alive() == 0
    print("done")

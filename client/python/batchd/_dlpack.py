"""DLPack's Python side: an array of a batch in a capsule, for torch.from_dlpack and its like in other libraries.

The tensor's deleter is in libbatchd, may run in any thread without the interpreter's lock, and never blocks. Only a
capsule whose tensor was never taken out is deleted here.
"""

import ctypes
import functools

import numpy

from . import _lib, _tree

CPU, CUDA = 1, 2  # kDLCPU, kDLCUDA
# A capsule keeps the pointer to its name, so these must live as long as the process.
_PLAIN, _VERSIONED = b"dltensor", b"dltensor_versioned"

_python = ctypes.PyDLL(None)  # this module's own: settings on ctypes.pythonapi's functions hold for all modules
_is_valid = _python.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.c_void_p, ctypes.c_char_p)
_pointer = _python.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)
_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new = _python.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, _Destructor)
_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]


class ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


@_Destructor
def _unused(capsule):
    """A consumer renames the capsule; if it still has its name, no consumer has taken its tensor."""
    for name, kind in ((_PLAIN, Managed), (_VERSIONED, ManagedVersioned)):
        if _is_valid(capsule, name):
            at = _pointer(capsule, name)
            kind.from_address(at).deleter(at)


def _stream(stream):
    """The consumer's stream, given as in the array API standard, as the driver's handle."""
    if stream is None or stream == -1:
        # The legacy default stream. -1: the consumer takes care of ordering itself; this stream is for giving back.
        return 1
    if stream == 0:
        raise ValueError("stream 0 is ambiguous on CUDA: 1 is the legacy default stream, 2 the per-thread one")
    return int(stream)


def _versioned(max_version):
    """Whether the consumer takes a versioned capsule: others crash on one."""
    return max_version is not None and max_version[0] >= 1


def _capsule(code, managed, versioned, handle):
    if code < 0:
        raise _lib.failure(code, _lib.error(handle) or b"this batch is no longer on loan")
    return _new(managed, _VERSIONED if versioned else _PLAIN, _unused)


class Array:
    """An array of a batch in host memory, for any library: from_dlpack(array) of numpy, torch, JAX and others takes it
    without a copy, any number of times, and the batch's memory goes back when the last of them is gone. So does
    numpy.asarray(array). `shape`; `dtype`: its name, such as "float32"."""

    __slots__ = ("shape", "dtype", "_view", "_handle", "_struct")

    def __init__(self, view, dtype, struct):
        """view: a contiguous numpy array over the slot, of the type's bits where numpy lacks the type; struct: of the
        batch, which is on loan as long as view lives."""
        self.shape, self.dtype, self._view = view.shape, dtype, view
        self._handle, self._struct = struct.handle, struct

    def kept(self):
        """This array, for later: the loader's struct has the next batch then."""
        s = self._struct
        self._struct = _lib.BatchStruct(size_bytes=s.size_bytes, slot=s.slot, generation=s.generation)
        return self

    def __dlpack_device__(self):
        return CPU, 0

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if stream is not None:
            raise BufferError("this batch is in host memory, which has no streams: leave stream out")
        if dl_device is not None and tuple(dl_device) != (CPU, 0):
            raise BufferError("this batch is in host memory: copy it to the device yourself")
        if copy:
            copied = numpy.array(self)  # numpy's own capsule says that it is a copy
            return copied.__dlpack__() if max_version is None else copied.__dlpack__(max_version=max_version)
        view, versioned, managed = self._view, _versioned(max_version), ctypes.c_void_p()
        array = _lib.Array(_tree.DTYPES.index(self.dtype), view.ndim, view.shape, view.nbytes, view.ctypes.data)
        code = _lib.dlpack(
            self._handle, ctypes.addressof(self._struct), ctypes.byref(array), versioned, ctypes.byref(managed)
        )
        return _capsule(code, managed, versioned, self._handle)

    def __array__(self, dtype=None, copy=None):
        if self._view.dtype.name != self.dtype:
            raise TypeError(f"numpy has no {self.dtype}: give the array to a library that has, by its from_dlpack")
        if copy or (dtype is not None and numpy.dtype(dtype) != self._view.dtype):
            if copy is False:
                raise ValueError(f"{dtype} needs a copy of an array of {self.dtype}")
            return numpy.array(self._view, dtype)
        return self._view

    def __len__(self):
        if not self.shape:
            raise TypeError("an array without dimensions has no length")
        return self.shape[0]

    def __repr__(self):
        return f"<batchd.Array {self.dtype} {self.shape}>"


class Export:
    """One batch on the GPU, as stored. Gives it out once."""

    def __init__(self, handle, struct, ordinal):
        self._handle, self._struct, self._ordinal = handle, struct, ordinal

    def __dlpack_device__(self):
        return CUDA, self._ordinal

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"this batch is on CUDA device {self._ordinal}; copy it yourself")
        if copy:
            raise BufferError("this batch is handed out without a copy only")
        versioned, managed = _versioned(max_version), ctypes.c_void_p()
        code = _lib.cuda_dlpack(
            self._handle, ctypes.addressof(self._struct), versioned, _stream(stream), ctypes.byref(managed)
        )
        return _capsule(code, managed, versioned, self._handle)


class _Loan:
    """Ends a loan with its last reference (_arrays.slot_class tells why __del__ is no method)."""

    __slots__ = ("__del__",)


class DeviceArray(Array):
    """A batch in the GPU's memory, as stored. The first library that takes it has the loan from then on; no other can."""

    __slots__ = ("_export", "_loan")

    def __init__(self, handle, struct, ordinal, shape, dtype):
        self.shape, self.dtype, self._loan = shape, dtype, _Loan()
        struct = _lib.BatchStruct.from_buffer_copy(struct)
        self._export = Export(handle, struct, ordinal)
        self._loan.__del__ = functools.partial(_lib.release, handle, struct.slot, struct.generation)

    def __dlpack_device__(self):
        return self._export.__dlpack_device__()

    def __dlpack__(self, **asked):
        if self._loan is None:
            raise BufferError("another call of from_dlpack has taken this batch: keep the array that it returned")
        capsule = self._export.__dlpack__(**asked)
        del self._loan.__del__
        self._loan = None
        return capsule

    def __array__(self, dtype=None, copy=None):
        raise TypeError("this batch is on a GPU: from_dlpack of a library that computes there takes it")

    def __repr__(self):
        return f"<batchd.Array {self.dtype} {self.shape} on cuda:{self.__dlpack_device__()[1]}>"

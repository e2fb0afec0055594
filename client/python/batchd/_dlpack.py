"""DLPack's Python side: a batch on the GPU in a capsule, for torch.from_dlpack and its like in other libraries.

The tensor's deleter is in libbatchd, may run in any thread without the interpreter's lock, and never blocks. Only a
capsule whose tensor was never taken out is deleted here.
"""

import ctypes

from . import _lib

CUDA = 2  # kDLCUDA
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
        versioned = max_version is not None and max_version[0] >= 1  # else some consumers crash
        managed = ctypes.c_void_p()
        code = _lib.cuda_dlpack(
            self._handle, ctypes.addressof(self._struct), versioned, _stream(stream), ctypes.byref(managed)
        )
        if code < 0:
            raise _lib.failure(code, _lib.error(self._handle) or b"this batch is no longer on loan")
        return _new(managed, _VERSIONED if versioned else _PLAIN, _unused)

"""batchd.load by a daemon's workers: connections of this process, each used by one thread at a time."""

import collections
import ctypes
import os
import threading
import time

import numpy

from . import _lib, errors

_MOST_IDLE = 16  # connections; each has memory of the daemon
_PAUSE_S = 10.0  # after no daemon was found, before another look for one
_NONE = 2**32 - 1


class _Options(ctypes.Structure):
    _fields_ = [
        ("size_bytes", ctypes.c_size_t),
        ("socket", ctypes.c_char_p),
        ("transform", ctypes.c_char_p),
        ("dtype", ctypes.c_int),
        ("layout", ctypes.c_int),
        ("apply_exif", ctypes.c_int),
        ("autostart", ctypes.c_int),
        ("program", ctypes.c_char_p),
    ]


class _Image(ctypes.Structure):
    _fields_ = [
        ("path", ctypes.c_char_p),
        ("bytes", ctypes.c_void_p),
        ("n_bytes", ctypes.c_size_t),
        ("seed", ctypes.c_uint64),
        ("epoch", ctypes.c_uint64),
        ("index", ctypes.c_uint64),
    ]


_handle, _text, _size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
_init = _lib._function("load_options_init", None, ctypes.POINTER(_Options))
_open = _lib._function(
    "load_open", ctypes.c_int, ctypes.POINTER(_Options), ctypes.POINTER(ctypes.c_void_p), _text, _size
)
_close = _lib._function("load_close", None, _handle)
_shape = _lib._function("load_shape", None, _handle, ctypes.POINTER(ctypes.c_uint32))
_images = _lib._function(
    "load_images",
    ctypes.c_int,
    _handle,
    ctypes.POINTER(_Image),
    ctypes.c_uint32,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_uint32),
    _text,
    _size,
)

# What a connection is for: its options, as batchd.h has them.
Wish = collections.namedtuple("Wish", "socket transform dtype layout apply_exif")


class Failed(Exception):
    """An image that failed: its number, and the error without its name."""

    def __init__(self, number, code, error):
        super().__init__(str(error))
        self.number, self.code, self.error = number, code, error


class Connection:
    """One connection, for one thread at a time."""

    def __init__(self, wish, autostart):
        o = _Options()
        _init(ctypes.byref(o))
        o.socket = os.fsencode(wish.socket) if wish.socket else None
        o.transform, o.dtype, o.layout = wish.transform, wish.dtype, wish.layout
        o.apply_exif, o.autostart = wish.apply_exif, autostart
        handle, err = ctypes.c_void_p(), ctypes.create_string_buffer(4608)
        code = _open(ctypes.byref(o), ctypes.byref(handle), err, len(err))
        if code < 0:
            raise _lib.failure(code, err.value)
        self._handle = handle
        shape = (ctypes.c_uint32 * 3)()
        _shape(handle, shape)
        self.shape = tuple(shape)
        self.lost = False

    def __del__(self, close=_close):  # when the interpreter ends, this module's names may be gone
        if hasattr(self, "_handle"):
            close(self._handle)

    def run(self, sources, key, rows):
        """Fills rows with the images of sources: paths (bytes), or arrays of uint8. Raises Failed for an image, another
        Error when the connection is lost."""
        seed, epoch, first = key
        images = (_Image * len(sources))()
        for i, (image, source) in enumerate(zip(images, sources)):
            image.seed, image.epoch, image.index = seed, epoch, first + i
            if isinstance(source, bytes):
                image.path = source
            else:
                image.bytes, image.n_bytes = source.ctypes.data, source.size
        failed, err = ctypes.c_uint32(), ctypes.create_string_buffer(4608)
        self.lost = True  # unless the call ends: Ctrl-C leaves images under way
        code = _lib.AGAIN
        while code == _lib.AGAIN:  # a signal's Python handler has run by now
            code = _images(self._handle, images, len(images), rows.ctypes.data, ctypes.byref(failed), err, len(err))
        self.lost = code < 0 and failed.value == _NONE
        if code < 0 and not self.lost:
            raise Failed(failed.value, code, _lib.failure(code, err.value))
        if code < 0:
            raise _lib.failure(code, err.value)


_lock = threading.Lock()
_idle = []  # (wish, connection) that no thread uses, the one used last at the end
_look_again = {}  # socket: when to look for a daemon again


def _forget():
    """In a child of a fork: the connections are the parent's."""
    global _lock
    _lock = threading.Lock()
    _idle.clear()
    _look_again.clear()


os.register_at_fork(after_in_child=_forget)


def take(wish, autostart):
    """An idle connection, or a new one, and whether it is new."""
    with _lock:
        for i in range(len(_idle) - 1, -1, -1):
            if _idle[i][0] == wish:
                return _idle.pop(i)[1], False
    return Connection(wish, autostart), True


def give_back(wish, connection):
    if connection.lost:
        return
    with _lock:
        _idle.append((wish, connection))
        dropped = _idle.pop(0) if len(_idle) > _MOST_IDLE else None
    del dropped  # closed without the lock


def is_there(wish):
    """Whether a daemon may answer: none that was missing a moment ago is looked for again."""
    return time.monotonic() >= _look_again.get(wish.socket, 0)


def is_missing(wish):
    """None has answered."""
    _look_again[wish.socket] = time.monotonic() + _PAUSE_S


def rows_of(wish, sources, key, dtype, autostart):
    """The rows of all sources. A daemon that went away since the last call is looked for once more."""
    while True:
        connection, is_new = take(wish, autostart)
        rows = numpy.empty((len(sources), *connection.shape), dtype)
        try:
            connection.run(sources, key, rows)
            return rows
        except errors.Error:
            if is_new or not connection.lost:
                raise
        finally:
            give_back(wish, connection)

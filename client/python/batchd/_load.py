"""One image, or a few, through a pipeline with the least delay: batchd.load."""

import collections.abc
import ctypes
import functools
import os
import pathlib
import stat

import numpy

from . import _arrays, _check, _draft, _image_mode, _lib, _load_daemon, _views, errors

_TEXT_BYTES = 1024
_MOST_BYTES = 256 << 20  # of a file: the daemon's limit
_PIECE_BYTES = 64 << 10
_SONAME = "libbatchd-inline.so.0"
# Of a list, for which the calling thread then does the work.
_NO_DAEMON = ("CONNECT", "LOST", "LIMIT", "ACCESS", "SHUTDOWN", "VERSION", "PROTOCOL")
_NUMPY = ("uint8", "float16", "float32", "int32", "uint16")


@functools.lru_cache(maxsize=None)
def _library():
    """libbatchd-inline, which stands beside libbatchd."""
    name = pathlib.Path(_lib.name())
    path = name.with_name(_SONAME)
    try:
        c = ctypes.CDLL(str(path) if name.parent != pathlib.Path() else _SONAME)
    except OSError as e:
        raise ImportError(f"batchd.load needs {_SONAME} beside {name}: install the whole of batchd ({e})") from None
    text, size, handle = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p
    c.batchd_inline_open.argtypes = (text, ctypes.c_int, ctypes.c_int, ctypes.POINTER(handle), text, size)
    c.batchd_inline_close.argtypes = (handle,)
    c.batchd_inline_shape.argtypes = (handle, ctypes.POINTER(ctypes.c_uint32))
    c.batchd_inline_row_bytes.argtypes = (handle,)
    c.batchd_inline_row_bytes.restype = size
    u64 = ctypes.c_uint64
    c.batchd_inline_load.argtypes = (handle, handle, size, ctypes.c_int, u64, u64, u64, handle, text, size)
    return c


class _Inline:
    """A pipeline of libbatchd-inline."""

    def __init__(self, transform, dtype, layout):
        self._c = _library()
        handle, err = ctypes.c_void_p(), ctypes.create_string_buffer(_TEXT_BYTES)
        code = self._c.batchd_inline_open(transform, dtype, layout, ctypes.byref(handle), err, len(err))
        if code:
            raise _lib.failure(code, err.value)
        self._handle = handle
        shape = (ctypes.c_uint32 * 3)()
        self._c.batchd_inline_shape(handle, shape)
        self.shape = tuple(shape)

    def __del__(self):
        if hasattr(self, "_handle"):
            self._c.batchd_inline_close(self._handle)

    def run(self, data, key, apply_exif, row):
        """Fills row, an address, with the image in data; raises an Error with the reason."""
        view = numpy.frombuffer(data, numpy.uint8) if not isinstance(data, numpy.ndarray) else data
        if not view.size:
            raise errors.BadDataError("a file of 0 bytes is no image")
        err = ctypes.create_string_buffer(_TEXT_BYTES)
        code = self._c.batchd_inline_load(
            self._handle, view.ctypes.data, view.size, apply_exif, *key, row, err, len(err)
        )
        if code:
            raise _lib.failure(code, err.value)


@functools.lru_cache(maxsize=32)
def _pipeline(transform, dtype, layout):
    return _Inline(transform, dtype, layout)


@functools.lru_cache(maxsize=8)
def _arrays_of(wanted, environment):
    return _arrays.choose(wanted)


def _is_image(source):
    return isinstance(source, (str, os.PathLike, bytes, bytearray, memoryview)) or hasattr(
        source, "__array_interface__"
    )


def _whole(f):
    """The contents of a file. A pipe or a device has no size, and may give bytes without end."""
    n, pieces, n_read = os.fstat(f.fileno()).st_size, [], 0
    while max(n, n_read) <= _MOST_BYTES:
        piece = f.read(max(n - n_read, _PIECE_BYTES))
        if not piece:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.append(piece)
        n_read += len(piece)
    raise errors.make("BAD_DATA", f"file of {max(n, n_read)} bytes or more; at most {_MOST_BYTES} are read")


def _bytes_of(source):
    """The compressed image: a file's contents, or the buffer itself."""
    if isinstance(source, (str, os.PathLike)):
        with open(source, "rb", buffering=0) as f:
            return _whole(f)
    if hasattr(source, "__array_interface__"):
        source = numpy.asarray(source)
        if source.dtype != numpy.uint8 or source.ndim != 1:
            raise TypeError(
                f"load wants a compressed image: a path, or its bytes (uint8 of one dimension), not {source.dtype} of "
                f"{source.ndim} dimensions"
            )
        return numpy.ascontiguousarray(source)
    return source


def _named(source, number, of):
    """Which image an error is about."""
    name = os.fspath(source) if isinstance(source, (str, os.PathLike)) else "the bytes"
    return f"{name} (number {number} of {of})" if of > 1 else name


def _rows_here(pipeline, sources, key, name, apply_exif):
    rows = numpy.empty((len(sources), *pipeline.shape), name)
    step, at = rows.nbytes // max(len(sources), 1), rows.ctypes.data
    seed, epoch, index = key
    for i, each in enumerate(sources):
        try:
            pipeline.run(_bytes_of(each), (seed, epoch, index + i), apply_exif, at + i * step)
        except errors.Error as e:
            raise type(e)(f"{_named(each, i + 1, len(sources))}: {e}") from None
    return rows


def _handed_over(source):
    """The path of a regular file as bytes; otherwise the compressed image as an array."""
    if isinstance(source, (str, os.PathLike)) and stat.S_ISREG(os.stat(source).st_mode):
        return os.fsencode(source)
    data = _bytes_of(source)
    return data if isinstance(data, numpy.ndarray) else numpy.frombuffer(data, numpy.uint8)


def _rows_by_daemon(wish, sources, key, name, may_miss):
    """may_miss: returns None where no daemon can do it, for the calling thread to do it."""
    if may_miss and not _load_daemon.is_there(wish):
        return None
    handed = []
    for i, each in enumerate(sources):
        try:
            handed.append(_handed_over(each))
        except errors.Error as e:
            raise type(e)(f"{_named(each, i + 1, len(sources))}: {e}") from None
    try:
        return _load_daemon.rows_of(wish, handed, key, name, not may_miss)
    except _load_daemon.Failed as e:
        each = sources[e.number]
        if isinstance(each, (str, os.PathLike)):
            with open(each, "rb"):  # a file that cannot be opened is Python's own error
                pass
        raise type(e.error)(f"{_named(each, e.number + 1, len(sources))}: {e}") from None
    except errors.Error as e:
        if not may_miss or e.code not in _NO_DAEMON:
            raise
        _load_daemon.is_missing(wish)
        return None


def load(
    source,
    transform="val224",
    *,
    image_mode=None,
    decode="full",
    dtype="float32",
    layout="NCHW",
    device=None,
    apply_exif=False,
    seed=0,
    epoch=0,
    index=0,
    arrays=None,
    inline=None,
    socket=None,
):
    """The pixels of one image, as a loader with the same transform serves them: for inference.

    source        a path or the bytes of a compressed image (bytes, a buffer, a uint8 array); a list of them gives one
                  array with a row for each
    transform     as for DataLoader. A text is found again faster than objects, which are read again at each call
    image_mode, decode, dtype, layout  as for DataLoader
    device        where torch is to have the result, "cuda:0"; None: host memory
    apply_exif    turn the image upright by its EXIF orientation
    seed, epoch, index  what random ops are drawn by, as of a loader's sample; the images of a list count up from index
    arrays        "torch", "numpy" or "jax"; None: torch if it is installed
    inline        True: the calling thread does the work, without a daemon and without the interpreter's lock. False: the
                  workers of a daemon do, which is started if there is none. None: a list goes to the workers of a daemon
                  that is there, one image never does, since handing it over takes longer than it saves
    socket        of the daemon, as for DataLoader

    The bytes are the same either way. Any number of threads may call it. Raises BadDataError for what is no image, is
    damaged or exceeds the daemon's limits; its text names the image."""
    one = _is_image(source)
    if not one and not isinstance(source, collections.abc.Sequence):
        raise TypeError(f"load wants a path, the bytes of an image or a list of them, not {type(source).__name__}")
    name = _check.dtype_name(dtype)
    words, form = _views.read(transform)
    if form is not None:
        raise TypeError("load makes one result of an image, and transform has several views: call it for each of them")
    text = _check.text("transform", _draft.into(_image_mode.into(words, image_mode), decode, "val224")) or b"val224"
    name = _NUMPY[_check.choice("dtype", name, _NUMPY)]
    kind = _arrays_of("torch" if device is not None else arrays, os.environ.get("BATCHD_ARRAYS"))
    memory, permutes = _check.layout(layout)
    _arrays.check_layout(kind, permutes, layout)
    kinds = _lib.DTYPES.index(name), _check.choice("layout", memory, _lib.LAYOUTS[:2])
    sources = [source] if one else source
    if device is not None and arrays not in (None, "torch"):
        raise TypeError(
            f"load: device={device!r} is where a tensor of torch's lies: leave arrays={arrays!r} out, or device"
        )
    if inline not in (None, True, False):
        raise TypeError(f"inline is True, False or None, not {inline!r}")
    key, rows = (seed, epoch, index), None
    if inline is False or (inline is None and len(sources) > 1):
        wish = _load_daemon.Wish(socket, text, *kinds, bool(apply_exif))
        rows = _rows_by_daemon(wish, sources, key, name, inline is None)
    if rows is None:
        rows = _rows_here(_pipeline(text, *kinds), sources, key, name, bool(apply_exif))
    result = kind.wrap(rows[0] if one else rows)
    result = kind.channels_first(result) if permutes else result
    return result if device is None else result.to(device)

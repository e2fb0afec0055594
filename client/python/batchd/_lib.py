"""libbatchd through ctypes: the structs and functions of batchd.h, nothing more. There is no second implementation of
the protocol here.

ctypes releases the interpreter's lock during every call, so a thread that waits for a batch does not block others.
"""

import ctypes
import operator
import os
import pathlib
import shutil
import struct
import sys

from . import errors

SONAME = "libbatchd.so.0"

OK, END, AGAIN = 0, 1, 2
FOREVER, UNTIL_SIGNAL = -1, -2

DTYPES = (
    "uint8",
    "float16",
    "float32",
    "int32",
    "int64",
    "float64",
    "int16",
    "bool",
    "bfloat16",
    "int8",
    "uint16",
    "uint32",
    "uint64",
    "complex64",
    "complex128",
)
LAYOUTS = ("NCHW", "NHWC", "AS_STORED")
MODES = ("shard", "share")
POLICIES = ("default", "wait", "skip", "detach")
JOINS = ("next", "epoch", "start")
DEVICE_COPY = 2
TRANSPORTS = ("memfd", "cuda-ipc", "copy", "cuda-vmm-fd")  # by enum batchd_device_path
CLOSED = -21

MAX_DIMS = 8

PROGRESS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64)
EVENT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
EVENT_LOST, EVENT_BACK, EVENT_STALLED, EVENT_GOES_ON, EVENT_CHANGED, EVENT_OWN = 1, 2, 3, 4, 5, 6

TOKEN_BYTES = 4096


class Options(ctypes.Structure):
    _fields_ = [
        ("size_bytes", ctypes.c_size_t),
        ("socket", ctypes.c_char_p),
        ("dataset", ctypes.c_char_p),
        ("transform", ctypes.c_char_p),
        ("job", ctypes.c_char_p),
        ("dtype", ctypes.c_int),
        ("layout", ctypes.c_int),
        ("mode", ctypes.c_int),
        ("batch_size", ctypes.c_uint32),
        ("rank", ctypes.c_int32),
        ("world_size", ctypes.c_uint32),
        ("num_workers", ctypes.c_uint32),
        ("n_slots", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("incarnation", ctypes.c_uint64),
        ("shuffle", ctypes.c_int),
        ("drop_last", ctypes.c_int),
        ("apply_exif", ctypes.c_int),
        ("own_batches", ctypes.c_int),
        ("writable", ctypes.c_int),
        ("autostart", ctypes.c_int),
        ("on_progress", PROGRESS),
        ("progress_arg", ctypes.c_void_p),
        ("program", ctypes.c_char_p),
        ("device", ctypes.c_char_p),
        ("reconnect_ms", ctypes.c_uint32),
        ("on_event", EVENT),
        ("event_arg", ctypes.c_void_p),
        ("group_batch_size", ctypes.c_uint32),
        ("policy", ctypes.c_int),
        ("stall_error", ctypes.c_int),
        ("producer_timeout_ms", ctypes.c_uint32),
        ("node_rank", ctypes.c_uint32),
        ("node_world_size", ctypes.c_uint32),
        ("fields", ctypes.POINTER(ctypes.c_char_p)),
        ("n_fields", ctypes.c_uint32),
        ("repeats", ctypes.c_uint32),
        ("epoch_rows", ctypes.c_uint64),
        ("mix", ctypes.c_char_p),
    ]


class Field(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_int),
        ("ragged", ctypes.c_int),
        ("text", ctypes.c_int),
        ("n_dims", ctypes.c_uint32),
        ("shape", ctypes.c_uint32 * MAX_DIMS),
        ("most_values", ctypes.c_uint64),
        ("view", ctypes.c_uint32),
        ("has_normalize", ctypes.c_uint32),
        ("mean", ctypes.c_float * 3),
        ("std", ctypes.c_float * 3),
        ("bytes", ctypes.c_int),
    ]


class Info(ctypes.Structure):
    _fields_ = [
        ("size_bytes", ctypes.c_size_t),
        ("dataset_id", ctypes.c_uint64),
        ("loader_id", ctypes.c_uint64),
        ("n_samples", ctypes.c_uint64),
        ("n_batches", ctypes.c_uint64),
        ("n_samples_rank", ctypes.c_uint64),
        ("n_classes", ctypes.c_uint32),
        ("rank", ctypes.c_uint32),
        ("world_size", ctypes.c_uint32),
        ("batch_size", ctypes.c_uint32),
        ("window", ctypes.c_uint32),
        ("n_dims", ctypes.c_uint32),
        ("shape", ctypes.c_uint32 * MAX_DIMS),
        ("n_label_dims", ctypes.c_uint32),
        ("label_shape", ctypes.c_uint32 * MAX_DIMS),
        ("dtype", ctypes.c_int),
        ("label_dtype", ctypes.c_int),
        ("layout", ctypes.c_int),
        ("has_normalize", ctypes.c_uint32),
        ("mean", ctypes.c_float * 3),
        ("std", ctypes.c_float * 3),
        ("socket", ctypes.c_char_p),
        ("job", ctypes.c_char_p),
        ("daemon_version", ctypes.c_char_p),
        ("stored_dtype", ctypes.c_int),
        ("stored_layout", ctypes.c_int),
        ("stored_shape", ctypes.c_uint32 * MAX_DIMS),
        ("device_path", ctypes.c_int),
        ("device_ordinal", ctypes.c_int),
        ("device_uuid", ctypes.c_ubyte * 16),
        ("device", ctypes.c_char_p),
        ("device_reason", ctypes.c_char_p),
        ("device_handle", ctypes.c_ubyte * 64),
        ("can_finish", ctypes.c_int),
        ("group_batch_size", ctypes.c_uint32),
        ("policy", ctypes.c_int),
        ("served", ctypes.c_uint32),
        ("finish_reason", ctypes.c_char_p),
        ("n_fields", ctypes.c_uint32),
        ("fields", ctypes.POINTER(Field)),
        ("content_id", ctypes.c_uint64),
        ("needs_finish", ctypes.c_int),
        ("n_mix_classes", ctypes.c_uint32),
        ("n_left_out", ctypes.c_uint64),
        ("left_out", ctypes.c_char_p),
    ]


class BatchStruct(ctypes.Structure):
    handle = None  # of the loader that the batch came from, which may be closed meanwhile

    _fields_ = [
        ("size_bytes", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
        ("labels", ctypes.c_void_p),
        ("indices", ctypes.c_void_p),
        ("n_rows", ctypes.c_uint32),
        ("n_padding", ctypes.c_uint32),
        ("n_replaced", ctypes.c_uint32),
        ("slot", ctypes.c_uint32),
        ("generation", ctypes.c_uint64),
        ("epoch", ctypes.c_uint64),
        ("base", ctypes.c_uint64),
        ("step", ctypes.c_uint64),
        ("wait_ns", ctypes.c_uint64),
        ("last", ctypes.c_int),
        ("device_data", ctypes.c_void_p),
        ("device_labels", ctypes.c_void_p),
        ("n_given", ctypes.c_uint64),
        ("order", ctypes.c_uint64),
        ("row", ctypes.c_uint32),
        ("n_skipped", ctypes.c_uint64),
        ("apart", ctypes.c_int),
        ("n_leased", ctypes.c_uint32),
    ]


def _unpacking(kind):
    """A function that reads all fields of such a struct, in the time of a few attributes."""
    return struct.Struct("@" + "".join(field._type_ for _, field in kind._fields_)).unpack_from


facts = _unpacking(BatchStruct)


class Position(ctypes.Structure):
    _fields_ = [
        ("size_bytes", ctypes.c_size_t),
        ("epoch", ctypes.c_uint64),
        ("base", ctypes.c_uint64),
        ("step", ctypes.c_uint64),
        ("n_given", ctypes.c_uint64),
        ("order", ctypes.c_uint64),
        ("ended", ctypes.c_int),
    ]


MAX_ARRAYS = 256


class Array(ctypes.Structure):
    _fields_ = [
        ("dtype", ctypes.c_int),
        ("n_dims", ctypes.c_uint32),
        ("shape", ctypes.c_uint64 * (1 + MAX_DIMS)),
        ("n_bytes", ctypes.c_uint64),
        ("data", ctypes.c_void_p),
        ("offsets", ctypes.c_void_p),
        ("text", ctypes.c_int),
        ("device_data", ctypes.c_void_p),
        ("n_rows", ctypes.c_uint64),
    ]


class Target(ctypes.Structure):
    _fields_ = [
        ("field", ctypes.c_char_p),
        ("dtype", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("n_bytes", ctypes.c_uint64),
        ("offsets", ctypes.c_void_p),
        ("n_offsets", ctypes.c_uint64),
    ]


class ProduceOptions(ctypes.Structure):
    _fields_ = [
        ("size_bytes", ctypes.c_size_t),
        ("socket", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("slot_bytes", ctypes.c_uint64),
        ("n_batches", ctypes.c_uint64),
        ("n_samples", ctypes.c_uint64),
        ("id", ctypes.c_uint64),
        ("incarnation", ctypes.c_uint64),
        ("n_rows", ctypes.c_uint32),
        ("resumable", ctypes.c_int),
        ("autostart", ctypes.c_int),
        ("program", ctypes.c_char_p),
    ]


class Fill(ctypes.Structure):
    _fields_ = [("epoch", ctypes.c_uint64), ("step", ctypes.c_uint64), ("room_bytes", ctypes.c_uint64)]


def _candidates():
    """Places where the library may be, best first."""
    if os.environ.get("BATCHD_LIBRARY"):
        return [os.environ["BATCHD_LIBRARY"]]
    here = pathlib.Path(__file__).resolve().parent
    folders = [here / "_lib"]  # of a wheel
    if os.environ.get("BATCHD_BUILD"):  # for developers of batchd
        folders.append(pathlib.Path(os.environ["BATCHD_BUILD"]))
    folders += [here.parents[2] / "build", pathlib.Path(sys.prefix) / "lib"]
    program = shutil.which("batchd")  # finds the PREFIX of an installation
    beside = [pathlib.Path(program).resolve().parents[1] / "lib"] if program else []
    return (
        [str(f / SONAME) for f in folders if (f / SONAME).exists()]
        + [SONAME]
        + [str(f / SONAME) for f in beside]
        + ["/usr/local/lib/" + SONAME]
    )


def _load():
    problems = []
    for name in _candidates():
        try:
            return ctypes.CDLL(name)
        except OSError as e:
            problems.append(f"{name}: {e}")
    archive = next((p for p in pathlib.Path(__file__).resolve().parents if p.is_file()), None)
    if archive:
        raise ImportError(
            f"batchd was imported out of the archive {archive}, but its C library and its daemon have to be files: unpack "
            "the archive, or let a tool unpack it at its start (shiv, pex with --venv)"
        )
    raise ImportError(
        f"batchd needs its C library {SONAME}: install the wheel that carries it (`make wheel`, then `pip install dist/batchd-*.whl`), or build and "
        "install the library (make && make install); where that was done with a PREFIX of its own, have its bin in $PATH or name the library in "
        "$BATCHD_LIBRARY. Tried " + "; ".join(problems)
    )


_c = _load()


def name():
    """Where the library is: a path, or a name alone if the system's own search found it."""
    return _c._name


def _function(name, result, *arguments):
    f = getattr(_c, "batchd_" + name)
    f.restype = result
    f.argtypes = arguments
    return f


_handle, _text = ctypes.c_void_p, ctypes.c_char_p
_ref, _unref = _function("ref", None, _handle), _function("unref", None, _handle)


class Loader:
    """A handle of an open loader, with a reference: one thread may close the loader while another begins a call, which
    keeps this object, and so the handle, until the call is over."""

    # No Python code: ctypes would make an ArgumentError of an exception that a signal's handler raises in it. So None, in
    # the place of a loader that another thread has closed, is one as well: call with loader._live().
    from_param = operator.attrgetter("_as_parameter_")

    def __init__(self, value):
        self._as_parameter_ = ctypes.c_void_p(value)
        _ref(self)

    def __del__(self, _unref=_unref):
        _unref(self)


options_init = _function("options_init", None, ctypes.POINTER(Options))
open = _function("open", ctypes.c_int, ctypes.POINTER(Options), ctypes.POINTER(_handle), _text, ctypes.c_size_t)
close = _function("close", None, _handle)
error = _function("error", _text, Loader)
code_name = _function("code_name", _text, ctypes.c_int)
get_info = _function("get_info", None, Loader, ctypes.POINTER(Info))
class_name = _function("class", _text, Loader, ctypes.c_uint32)
start = _function(
    "start", ctypes.c_int, Loader, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64)
)
push = _function("push", ctypes.c_int, Loader, ctypes.c_void_p, ctypes.c_uint32)
push_end = _function("push_end", ctypes.c_int, Loader)
sampling = _function("sampling", None, Loader, ctypes.c_int)
join = _function("join", ctypes.c_int, Loader, ctypes.c_int, ctypes.POINTER(Position), ctypes.c_int)
next = _function("next", ctypes.c_int, Loader, ctypes.c_void_p, ctypes.c_int)
release = _function(
    "release", ctypes.c_int, _handle, ctypes.c_uint32, ctypes.c_uint64
)  # no Python code in it: a destructor calls it (_arrays.slot_class)
n_leased = _function("n_leased", ctypes.c_uint32, Loader)
cuda_finish = _function("cuda_finish", ctypes.c_int, Loader, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
cuda_labels = _function("cuda_labels", ctypes.c_int, Loader, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
cuda_release = _function("cuda_release", ctypes.c_int, Loader, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p)
cuda_dlpack = _function(
    "cuda_dlpack", ctypes.c_int, Loader, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)
)
dlpack = _function(
    "dlpack",
    ctypes.c_int,
    Loader,
    ctypes.c_void_p,
    ctypes.POINTER(Array),
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_void_p),
)
cuda_finish_field = _function(
    "cuda_finish_field", ctypes.c_int, Loader, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p
)
cuda_array = _function(
    "cuda_array", ctypes.c_int, Loader, ctypes.c_void_p, ctypes.POINTER(Array), ctypes.c_void_p, ctypes.c_void_p
)
cuda_add_stream = _function("cuda_add_stream", ctypes.c_int, Loader, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p)
mixing = _function("mixing", ctypes.c_int, Loader, ctypes.c_int)
mix_table = _function("mix_table", ctypes.c_int, Loader, ctypes.c_void_p, ctypes.c_void_p)
finish = _function("finish", ctypes.c_int, Loader, ctypes.c_void_p, ctypes.c_void_p)
finish_field = _function("finish_field", ctypes.c_int, Loader, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p)
targets = _function("targets", ctypes.c_int, Loader, ctypes.c_void_p, ctypes.c_void_p)
cuda_targets = _function("cuda_targets", ctypes.c_int, Loader, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
token = _function("token", ctypes.c_int, Loader, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
resume = _function("resume", ctypes.c_int, Loader, _text, ctypes.POINTER(Position))
order = _function("order", ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint32)
arrays = _function(
    "arrays",
    ctypes.c_int,
    Loader,
    ctypes.c_void_p,
    ctypes.POINTER(Array),
    ctypes.c_uint32,
    ctypes.c_void_p,
    ctypes.c_void_p,
)
into = _function(
    "into", ctypes.c_int, Loader, ctypes.c_void_p, ctypes.POINTER(Target), ctypes.c_uint32, ctypes.c_void_p
)
get_field_at = _function("get_field_at", ctypes.c_int, Loader, ctypes.c_void_p, ctypes.c_uint32, ctypes.POINTER(Array))
produce_options_init = _function("produce_options_init", None, ctypes.POINTER(ProduceOptions))
produce_open = _function(
    "produce_open", ctypes.c_int, ctypes.POINTER(ProduceOptions), ctypes.POINTER(_handle), _text, ctypes.c_size_t
)
produce_next = _function("produce_next", ctypes.c_int, _handle, ctypes.POINTER(Fill), ctypes.c_int)
produce_lay = _function(
    "produce_lay", ctypes.c_int, _handle, ctypes.POINTER(Array), ctypes.c_uint32, _text, ctypes.c_size_t
)
produce_filled = _function("produce_filled", ctypes.c_int, _handle, ctypes.c_uint32)
produce_end_epoch_at = _function("produce_end_epoch_at", ctypes.c_int, _handle, ctypes.c_uint64)
produce_size = _function("produce_size", ctypes.c_size_t, ctypes.POINTER(Array), ctypes.c_uint32, ctypes.c_size_t)
produce_close = _function("produce_close", None, _handle, _text)
produce_error = _function("produce_error", _text, _handle)
_status = _function("status", ctypes.c_int, _text, ctypes.POINTER(ctypes.c_void_p), _text, ctypes.c_size_t)
_free = ctypes.CDLL(None).free
_free.argtypes = [ctypes.c_void_p]
_free.restype = None


def failure(code, text):
    """The exception for one of batchd.h's codes."""
    return errors.make(code_name(code).decode(), text.decode("utf-8", "replace"))


def status(socket=None):
    """The daemon's state as Python objects: the data that `batchctl status --json` prints. socket: as for DataLoader,
    but no daemon is started. Raises an Error with the reason if the daemon does not answer."""
    import json

    out, err = ctypes.c_void_p(), ctypes.create_string_buffer(4608)
    code = _status(os.fsencode(socket) if socket else None, ctypes.byref(out), err, len(err))
    if code < 0:
        raise failure(code, err.value)
    try:
        return json.loads(ctypes.string_at(out))
    finally:
        _free(out)

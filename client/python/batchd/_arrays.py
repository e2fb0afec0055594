"""Memory of a slot as tensors or arrays: torch if it is there, else numpy; JAX's (_jax.py), CuPy's or any library's
if the caller says so.

A view keeps its Slot alive, and the Slot gives the lease back when its last view is gone. Only the samples are views;
labels are a few bytes and users collect them in lists, so they are copied and hold no slot.
"""

import ctypes
import functools
import os

import numpy

from . import _cuda_other, _dlpack, _lib
from ._warn import warn


_KINDS = ("torch", "numpy", "jax", "cupy", "dlpack")


def choose(wanted):
    """The maker of arrays: wanted is one of _KINDS, or None for torch or numpy, the best that is installed
    ($BATCHD_ARRAYS may decide)."""
    wanted = wanted or os.environ.get("BATCHD_ARRAYS") or None
    if wanted not in (None, *_KINDS):
        raise ValueError(f"arrays must be one of {', '.join(map(repr, _KINDS))}, not {wanted!r}")
    if wanted == "jax":
        from ._jax import Jax

        return Jax()
    if wanted == "dlpack":
        return Dlpack()
    if wanted == "cupy":
        return Cupy()
    if wanted != "numpy":
        try:
            import torch

            return Torch(torch)
        except (ImportError, OSError) as e:  # OSError: from a library that torch loads
            if wanted:
                raise
            if getattr(e, "name", None) != "torch":
                _tell_once(e)
    return Numpy()


def check_layout(arrays, permutes, layout):
    """Refuses channels_last for arrays that have no strides."""
    if permutes and not arrays.has_strides:
        raise ValueError(
            f"layout={str(layout)!r} is a permuted view, which arrays={arrays.name!r} has not: give layout='NHWC', and permute it "
            "where you compute"
        )


@functools.lru_cache(maxsize=None)
def _tell_once_of(text):
    warn(
        f"torch is installed, but cannot be imported ({text}), so batches are numpy arrays: mend torch, or say arrays='numpy' (or "
        "BATCHD_ARRAYS=numpy) if that is fine",
    )


def _tell_once(error):
    _tell_once_of(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__)


class Numpy:
    name = "numpy"
    profiler = None
    keeps_late = False  # whether its arrays' memory may be read after the last variable that has them
    has_strides = True
    can_write = True
    makes_all = False  # whether it also makes its own arrays of those that a producer gave as numpy's

    def keep_out_of_graphs(self, *functions):
        """Does nothing: without torch there are no graphs."""

    def check_cpu(self):
        """Refuses, or warns of, batches in host memory."""

    def cuda(self, device, raw):
        raise RuntimeError(
            f"device={str(device)!r} needs a library that has arrays on a GPU: install torch, or give arrays='cupy', 'jax' or 'dlpack'"
        )

    def wrap(self, array):
        """The numpy array in the form that the user gets, sharing its memory."""
        return array

    def sharing(self, struct):
        """The same for arrays in the slot of the batch that is in the struct."""
        return self.wrap

    def rows(self, array):
        """An array that is cut into rows of different lengths."""
        return array

    def channels_first(self, array):
        """NHWC as a permuted view: torch's channels_last."""
        return array.swapaxes(-1, -2).swapaxes(-2, -3)

    def copy(self, array):
        return array.copy("K")


class Dlpack(Numpy):
    """Arrays that any library imports. Copies and labels are numpy's, which have the same methods."""

    name = "dlpack"
    has_strides = False
    makes_all = True

    def sharing(self, struct):
        return lambda array: _dlpack.Array(array, array.dtype.name, struct).kept()

    def share_as(self, array, name, struct):
        """An array in a slot, of a type that numpy lacks."""
        return _dlpack.Array(array, name, struct).kept()

    def copy(self, array):
        if isinstance(array, _dlpack.DeviceArray):
            _cuda_other.refuse_copy()
        return numpy.array(array)

    def cuda(self, device, raw):
        _cuda_other.check_raw(self.name, raw)
        return _cuda_other.Stored(self.name, _cuda_other.ordinal(device) or 0, lambda array: array, lambda array: array)


class Cupy(Numpy):
    """CuPy's arrays on a GPU; numpy's for what is in host memory."""

    name = "cupy"

    def __init__(self):
        try:
            import cupy
        except ImportError as e:
            raise ImportError(
                f"arrays='cupy' needs CuPy, which cannot be imported ({e}): pip install cupy-cuda12x"
            ) from e
        self._cupy = cupy

    def copy(self, array):
        return array.copy("K")

    def check_cpu(self):
        raise ValueError("arrays='cupy' is for batches on a GPU: give device='cuda', or arrays='numpy'")

    def cuda(self, device, raw):
        number = _cuda_other.ordinal(device)
        if number is None:
            number = self._cupy.cuda.Device().id
        return _cuda_other.Cupy(self._cupy, number, raw)


class Torch:
    name = "torch"
    keeps_late = False
    has_strides = can_write = True
    makes_all = False

    def __init__(self, torch):
        self._torch = torch
        self.wrap = torch.from_numpy  # three times as fast as torch.frombuffer
        try:
            torch.from_numpy(numpy.zeros(1))
        except RuntimeError:  # a torch that was built for another numpy
            self.wrap = self._wrap_by_buffer
        if not hasattr(torch, "uint16"):
            self._wrap_known, self.wrap = self.wrap, self._wrap_or_keep
        self.rows = self.wrap  # of an array that is cut into rows of different lengths
        profiler = torch.autograd.profiler
        self.profiler = profiler if hasattr(profiler, "_is_profiler_enabled") else None

    def sharing(self, struct):
        return self.wrap

    def channels_first(self, tensor):
        return tensor.movedim(-1, -3)

    def keep_out_of_graphs(self, *functions):
        """For torch.compile of a function that contains the loop: Dynamo runs these functions as they are, and traces
        nothing that they call. That is the effect of torch.compiler.disable, without the seconds that importing Dynamo
        takes and without a wrapper around each call."""
        for function in functions:
            if hasattr(function, "_torchdynamo_disable"):
                return
            function._torchdynamo_disable, function._torchdynamo_disable_msg = True, "batches come from C"
            try:
                from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy

                set_code_exec_strategy(function.__code__, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP))
            except (ImportError, AttributeError, TypeError):
                pass  # an older torch traces some of it: slower, but right

    def _wrap_by_buffer(self, array):
        return self._torch.frombuffer(array, dtype=getattr(self._torch, array.dtype.name)).view(array.shape)

    def _wrap_or_keep(self, array):
        """torch before 2.3 has uint8 as its only unsigned type: arrays of the others stay numpy arrays."""
        return self._wrap_known(array) if hasattr(self._torch, array.dtype.name) else array

    def copy(self, tensor):
        return tensor.clone() if hasattr(tensor, "clone") else tensor.copy()

    def check_cpu(self):
        """Tensors may lie anywhere."""

    def cuda(self, device, raw):
        """The maker of tensors from batches on this device. Raises an error with the reason where there is none."""
        from ._cuda import Delivery

        asked = device
        try:
            device = self._torch.device(device)
        except RuntimeError:
            device = None
        if device is None or device.type != "cuda":
            raise ValueError(f"device must be 'cpu' or 'cuda[:n]', not {str(asked)!r}")
        if not self._torch.cuda.is_available():
            raise RuntimeError(
                f"device='{device}': torch {self._torch.__version__} can use no GPU here: {_why_no_cuda(self._torch)} (`batchctl doctor` "
                "tells what stands in the way besides)"
            )
        return Delivery(self._torch, self._torch.cuda.current_device() if device.index is None else device.index, raw)


def _why_no_cuda(torch):
    """The reason in torch's own words."""
    try:
        torch.cuda.init()
    except (AssertionError, RuntimeError) as e:
        return str(e).strip().splitlines()[0]
    return "torch.cuda.is_available() is False"


def slot_class(n_bytes):
    """The type of a slot's memory: a buffer that gives its lease back, if it has one, when its last view is gone. In a
    forked child the C library refuses that, so a tensor that dies there takes nothing from its parent."""

    class Slot(ctypes.c_char * n_bytes):
        # Python finds this member in the type and calls the function that the instance keeps in it. A method would not
        # survive Ctrl-C: a Python function first runs the handlers of pending signals; an exception that they raise in
        # a destructor is lost, and the slot with it.
        __slots__ = ("__del__",)

    return Slot


def loan(memory, struct):
    """A call by which memory comes to own the batch in struct."""
    lease = functools.partial(_lib.release, struct.handle, struct.slot, struct.generation)
    return functools.partial(setattr, memory, "__del__", lease)

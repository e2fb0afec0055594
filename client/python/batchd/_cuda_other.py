"""Batches on a GPU for libraries other than torch.

CuPy's arrays are made as torch's are (_cuda.py). JAX and DLPack have no memory that another library may write to, so
they get what is stored, as raw=True gives it: the loan is the array's. Small arrays beside it are copied from host
memory.
"""

import ctypes

import numpy

from . import _cuda, _dlpack, _lib
from .errors import Error


def ordinal(device):
    """The number in "cuda:1", None for "cuda"."""
    kind, _, number = str(device).partition(":")
    if kind != "cuda" or (number and not number.isdigit()) or str(device).endswith(":"):
        raise ValueError(f"device must be 'cpu' or 'cuda[:n]', not {str(device)!r}")
    return int(number) if number else None


class Cupy(_cuda.Delivery):
    def __init__(self, cupy, ordinal, raw):
        super().__init__(None, ordinal, raw)
        self._cupy = cupy

    def _device(self, ordinal):
        return f"cuda:{ordinal}"

    def _stream(self):
        with self._cupy.cuda.Device(self.ordinal):
            return self._cupy.cuda.get_current_stream().ptr

    def _type(self, name):
        if name == "bfloat16":
            raise TypeError("CuPy has no bfloat16: give dtype='float16' or 'float32', or arrays='torch'")
        return numpy.dtype(name)

    def _new(self, shape, dtype):
        with self._cupy.cuda.Device(self.ordinal):
            return self._cupy.empty(shape, dtype)

    @staticmethod
    def _at(array):
        return array.data.ptr

    def _import(self, struct):
        return self._cupy.from_dlpack(_dlpack.Export(self._handle, struct, self.ordinal))

    @staticmethod
    def _handle_of(stream):
        return stream.ptr

    @staticmethod
    def _record(array, stream):
        """CuPy leaves the use of its memory on several streams to its users."""

    def _there(self, values):
        with self._cupy.cuda.Device(self.ordinal):
            return self._cupy.asarray(values)

    @staticmethod
    def _part(whole, first, end, dtype, shape):
        return whole[first:end].view(dtype).reshape(shape)

    def _cannot_finish(self, reason):
        if not self.raw and not self._info.served:
            raise RuntimeError(
                f"arrays='cupy' needs libbatchd's kernel to finish images: {reason or 'this libbatchd was built without it'}; give "
                "raw=True, which has them as they are stored, or arrays='torch'"
            )


class Stored(_cuda.Delivery):
    """name: of the loader's arrays; take: makes an array of a DeviceArray; put: of a numpy array."""

    def __init__(self, name, ordinal, take, put):
        super().__init__(None, ordinal, True)
        self._name, self._take, self._put = name, take, put

    def _device(self, ordinal):
        return f"cuda:{ordinal}"

    def _stream(self):
        return 1  # the legacy default stream: only a failed delivery is given back on it

    def _type(self, name):
        return name

    def opened(self, handle, info):
        if info.served:
            raise ValueError(
                f"arrays={self._name!r} with device='cuda' takes no batches of producers: leave device out, or give arrays='torch' "
                "or 'cupy'"
            )
        super().opened(handle, info)

    def _cannot_finish(self, reason):
        """Nothing is finished."""

    def _import(self, struct):
        i = self._info
        shape, dtype = (struct.n_rows, *i.stored_shape[: i.n_dims]), _lib.DTYPES[i.stored_dtype]
        return self._take(_dlpack.DeviceArray(self._handle, struct, self.ordinal, shape, dtype))

    @staticmethod
    def _at(array):
        return None

    def copied(self, array):
        return array

    def check_copy(self):
        if self._name == "dlpack":
            refuse_copy()

    def add_stream(self, images, stream):
        raise ValueError(
            f"record_stream is for arrays of torch and CuPy: with arrays={self._name!r} the library that takes the batch sees to its "
            "own streams"
        )

    def _labels(self, at, rows, stream, mix):
        array = _lib.Array()
        names = [f.name for f in self._info.fields[: self._info.n_fields]]
        self._check(_lib.get_field_at(self._handle, at, names.index(b"label"), ctypes.byref(array)))
        return self._put(host_copy(array))

    def _take_other(self, at, number, array, stream, mix=None):
        return self._put(host_copy(array))

    def _take_stack(self, at, arrays, stream, mix=None):
        return self._put(numpy.stack([host_copy(array) for _, array in arrays]))


def host_copy(array):
    """The bytes that the daemon keeps in host memory as well."""
    shape = tuple(array.shape[: array.n_dims])
    text = ctypes.string_at(array.data, array.n_bytes)
    return numpy.frombuffer(text, _lib.DTYPES[array.dtype]).reshape(shape).copy()


def check_raw(name, raw):
    if not raw:
        raise ValueError(
            f"arrays={name!r} with device='cuda' has batches as they are stored: give raw=True, and make numbers of the pixels in "
            "your computation (loader.normalize has mean and std)"
        )


def refuse_copy():
    raise Error(
        "all slots but one are held by batches that you kept, and arrays='dlpack' has no memory on the GPU to copy one to: drop "
        "them, or ask for more slots (n_slots)"
    )

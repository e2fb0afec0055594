"""Batches as JAX's arrays, on its CPU device.

JAX takes memory without a copy by DLPack if it begins at a multiple of 64 bytes, and copies it otherwise. The batch goes
back when the last array, and the last computation that was queued with it, is over: libbatchd's deleter ends the loan in
whatever thread that is.
"""

import numpy

from . import _arrays, _cuda_other, _dlpack, _tree
from ._warn import warn


class Jax(_arrays.Numpy):
    name = "jax"
    keeps_late = True  # a computation is queued, and its arrays live until it is over
    has_strides = can_write = False
    makes_all = True

    def __init__(self):
        try:
            import jax
            import jax.dlpack
        except ImportError as e:
            raise ImportError(f"arrays='jax' needs JAX, which cannot be imported ({e}): pip install jax") from e

        self._jax = jax
        self._from_dlpack = jax.dlpack.from_dlpack
        self._device = jax.local_devices(backend="cpu")[0]

    def check_cpu(self):
        if self._jax.default_backend() != "cpu":
            warn(
                f"arrays='jax' makes arrays on JAX's CPU device, and computations with them run there, not on {self._jax.default_backend()}: give "
                "arrays='numpy', which a jitted function or jax.device_put takes to your device, or device='cuda'"
            )

    def wrap(self, array):
        return self._jax.device_put(self._known(array), self._device)

    def sharing(self, struct):
        return lambda array: self.share_as(array, array.dtype.name, struct)

    def share_as(self, array, name, struct):
        """An array in a slot, of a type that numpy may lack."""
        if name not in _tree.CARRIERS and self._known(array) is not array:
            return self.wrap(array)
        if name.startswith("float8"):  # which JAX does not import
            return self.wrap(carried(array.copy(), name))
        return self._from_dlpack(_dlpack.Array(array, name, struct))

    def _known(self, array):
        """The array in the type that JAX has for it: 32 bits for 64, unless jax_enable_x64 is set."""
        if array.dtype.itemsize < 8:
            return array
        dtype = self._jax.dtypes.canonicalize_dtype(array.dtype)
        return array if dtype == array.dtype else array.astype(dtype)

    def copy(self, array):
        if array.devices() == {self._device}:
            return self.wrap(numpy.array(array))
        return self._jax.numpy.array(array, copy=True)

    def cuda(self, device, raw):
        """XLA keeps a batch until the computations that read it are over, and only then calls its deleter."""
        number = _cuda_other.ordinal(device)
        _cuda_other.check_raw(self.name, raw)
        try:
            found = self._jax.local_devices(backend="cuda")
        except RuntimeError as e:
            raise RuntimeError(f"device={str(device)!r}: JAX can use no GPU here: {str(e).splitlines()[0]}") from e
        device = found[0] if number is None else next((d for d in found if d.local_hardware_id == number), None)
        if device is None:
            raise RuntimeError(f"device='cuda:{number}': JAX knows {', '.join(map(str, found))}")

        def put(array):
            return self._jax.device_put(self._known(array), device)

        return _cuda_other.Stored(self.name, device.local_hardware_id, self._from_dlpack, put)


def carried(array, name):
    """An array of another type's bits as that type, which numpy has from ml_dtypes."""
    import ml_dtypes

    return array.view(getattr(ml_dtypes, name))

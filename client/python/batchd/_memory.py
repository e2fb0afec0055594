"""Arrays of this process as a data set: copied once into sealed memory, which the daemon maps and gathers from.

Each array becomes a memfd with the content of a .npy file. Its seals say that it neither shrinks nor changes. Ranks that
hand over equal arrays share the copy of the first, which a hash of the content tells.
"""

import fcntl
import hashlib
import io
import mmap
import os
import weakref

import numpy

from . import _array_instead, _free_memory, _object_instead

ADD_SEALS, ALL_SEALS = 1033, 0x1 | 0x2 | 0x4 | 0x8  # linux/fcntl.h; Python names them from 3.9 on
_NAMES = ("data", "label")


def _named(value):
    """{name: array}, or None if this is no data in memory."""
    if isinstance(value, dict):
        return value if value and all(map(_array_instead.is_array, value.values())) else None
    if _object_instead.of_torch(value, "TensorDataset"):
        changed = _object_instead.override_of_torchs(value, "TensorDataset")
        if changed:
            why = f": its class is a TensorDataset with a {changed} of its own"
            raise TypeError(_object_instead.foreign(value, why))
        value = value.tensors
    if not isinstance(value, tuple) or not value or not all(map(_array_instead.is_array, value)):
        return None
    return {(_NAMES[i] if i < len(_NAMES) else f"field{i}"): array for i, array in enumerate(value)}


def _by_text(arrays):
    """The same with texts as names."""
    named = {str(name): array for name, array in arrays.items()}
    if len(named) < len(arrays):
        raise ValueError(
            f"dataset has keys that are the same name as texts: {', '.join(map(repr, arrays))}; rename one"
        )
    return named


def _as_numpy(name, value):
    if isinstance(value, numpy.ma.MaskedArray) or type(value).__name__ == "MaskedTensor":
        fill = "filled(...)" if isinstance(value, numpy.ndarray) else "to_tensor(...)"
        raise TypeError(
            f"{name} is a {type(value).__name__}, and its mask would be lost: hand over .{fill} with a value for what is masked, "
            "or its rows without those, or the mask as a field of its own"
        )
    if not isinstance(value, numpy.ndarray):
        if str(value.dtype) == "torch.bfloat16":
            raise TypeError(
                f"{name} is bfloat16, which numpy and data sets in memory lack: hand over {name}.view(torch.uint16), and "
                "take batches as .view(torch.bfloat16); or hand over .float() or .half()"
            )
        try:
            value = value.detach().cpu().numpy()
        except (TypeError, RuntimeError) as e:
            raise TypeError(f"{name} cannot become an array: {e}") from None
    value = value.astype(value.dtype.newbyteorder("="), copy=False)
    if value.dtype.kind not in "biufc" or value.dtype.itemsize > 16 or value.dtype == numpy.longdouble:
        raise TypeError(f"{name} has dtype {value.dtype}: expected numbers or bool")
    if value.ndim == 0 or len(value) == 0:
        raise ValueError(
            f"{name} has {'no first dimension' if value.ndim == 0 else 'no rows'}: its rows are the samples"
        )
    return value


def _header(array):
    out = io.BytesIO()
    described = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
    numpy.lib.format.write_array_header_1_0(out, described)
    return out.getvalue()


def _copy(name, array, digest):
    """A sealed memfd with the array, whatever its strides."""
    header = _header(array)
    fd = os.memfd_create(f"batchd:{name}"[:200], os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        n = len(header) + array.nbytes
        os.posix_fallocate(fd, 0, n)  # too little memory is an error here, not SIGBUS below
        with mmap.mmap(fd, n) as memory:
            memory[: len(header)] = header
            to = numpy.frombuffer(memory, array.dtype, array.size, len(header)).reshape(array.shape)
            numpy.copyto(to, array)
            digest.update(memory)
            del to
        fcntl.fcntl(fd, ADD_SEALS, ALL_SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check_room(arrays):
    """Refuses arrays whose copies this process could not have: memory that runs out there ends it, without an error."""
    n, available = sum(array.nbytes for array in arrays.values()), _free_memory.available()
    if available is None or n <= available // 8 * 7:
        return
    files = [os.fspath(a.filename) for a in arrays.values() if isinstance(a, numpy.memmap) and a.filename]
    npy = ",".join(f for f in files if f.endswith(".npy"))
    raise MemoryError(
        f"the arrays {', '.join(arrays)} have {n} bytes, and their copy for the daemon may take at most seven eighths of the "
        f"{available} bytes of memory that this process can have: "
        + (
            f"hand over 'npy:{npy}', which the daemon reads from its file"
            if npy
            else "save them by numpy.save, and hand over 'npy:FILE'"
        )
    )


def _close(fds):
    while fds:
        os.close(fds.pop())


def _fields_of(value, arrays):
    """The fields that make batches of the form of the data; None: the loader's own default does."""
    if isinstance(value, dict):
        return {name: str(name) for name in value}
    return None if tuple(arrays) == _NAMES else tuple(arrays)


def hand_over(value, owner, fields):
    """(text, fields): the text of a data set of these arrays, whose memory stays open as long as owner lives, None if
    this is no data in memory; and the caller's fields, or those that make batches of the same form as the data."""
    arrays = _named(value)
    if arrays is None:
        instead = _array_instead.advice(value) if isinstance(value, (list, tuple, dict)) else None
        if instead:
            raise TypeError(instead)
        return None, fields
    arrays = {name: _as_numpy(name, array) for name, array in _by_text(arrays).items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"arrays of one data set have equally many rows, not {lengths}")
    for name in arrays:
        if name == "id":
            raise ValueError("'id' cannot name a field, as it names the data set itself: call it sample_id")
        if not name or any(c in ",=\"'\\" or not " " < c <= "~" for c in name):
            raise ValueError(
                f"{name!r} cannot name a field: printable ASCII without space, comma, quote, = and backslash"
            )
    _check_room(arrays)
    fds, digest = [], hashlib.blake2b(digest_size=16)
    weakref.finalize(owner, _close, fds)
    for name, array in arrays.items():
        digest.update(name.encode() + b"\0")
        fds.append(_copy(name, array, digest))
    text = f"memory:id={digest.hexdigest()}," + ",".join(f"{name}={fd}" for name, fd in zip(arrays, fds))
    return text, _fields_of(value, arrays) if fields is None else fields

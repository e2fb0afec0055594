"""Batches into memory that the caller keeps (DataLoader.next_into): its requirements, and the copy on the CPU.

An object with torch's methods counts as a tensor, so that numpy alone is enough where torch is not installed.
"""

import sys

import numpy

PAIRS = "next_into has one tensor of labels, and this mix makes pairs of them: give num_classes"


def check(name, target, n_rows, shape, dtype, device, host=False):
    """Raises an error for a target that a batch cannot be written into. name: of the argument; n_rows: of the largest
    batch; device: torch's GPU, None for the CPU; host: the field stays in host memory, wherever batches go."""
    found = _look(name, target, dtype, device, host)
    if len(found) != 1 + len(shape) or found[1:] != shape or found[0] < n_rows:
        raise ValueError(f"{name} has shape {found}, and a batch needs {(n_rows, *shape)}, or more rows")
    _check_contiguous(name, target)


def check_stack(name, target, n_views, n_rows, shape, dtype, device):
    """The same for views that are stacked in one target."""
    found = _look(name, target, dtype, device, False)
    if len(found) != 2 + len(shape) or found[0] != n_views or found[2:] != shape or found[1] < n_rows:
        raise ValueError(f"{name} has shape {found}, and a batch needs {(n_views, n_rows, *shape)}, or more rows")
    _check_contiguous(name, target)


def channels_last(name, target, n_rows, shape):
    """The view of a target in torch's channels_last format that is contiguous. shape: of a row of it."""
    if not isinstance(target, numpy.ndarray) and not hasattr(target, "data_ptr"):
        return target  # which check refuses
    found, wanted = tuple(target.shape), (shape[2], *shape[:2])
    if len(found) < 4 or found[-3:] != wanted:
        raise ValueError(f"{name} has shape {found}, and a batch needs {(n_rows, *wanted)}, or more rows")
    if isinstance(target, numpy.ndarray):
        view = numpy.moveaxis(target, -3, -1)
        suits = view.flags.c_contiguous
    else:
        view = target.movedim(-3, -1)
        suits = view.is_contiguous()
    if not suits:
        raise ValueError(
            f"{name} is not in the memory format channels_last: make it with memory_format=torch.channels_last"
        )
    return view


def _look(name, target, dtype, device, host):
    """The target's shape, if it is an array of this type in the right memory."""
    if isinstance(target, numpy.ndarray):
        place, has = "cpu", target.dtype.name
        if not target.flags.writeable:
            raise ValueError(f"{name} cannot be written: the array is read-only")
    elif hasattr(target, "data_ptr"):
        place, has = str(target.device), str(target.dtype).removeprefix("torch.")
    else:
        raise TypeError(f"{name} is a {type(target).__name__}; next_into writes into torch tensors or numpy arrays")
    if host and place != "cpu":
        raise ValueError(f"{name} is on {place}, and ragged fields come in host memory: make it on the CPU")
    if place != str(device or "cpu"):
        raise ValueError(
            f"{name} is on {place}, and this loader's batches are on {device or 'the CPU'}: "
            + (
                f"make it with device={str(device)!r}"
                if device
                else "make it on the CPU, or the loader with device='cuda'"
            )
        )
    if has != dtype:
        raise TypeError(
            f"{name} is {has}, and this loader's batches are {dtype}: make it so, or the loader with another dtype"
        )
    return tuple(target.shape)


def _check_contiguous(name, target):
    contiguous = target.flags.c_contiguous if isinstance(target, numpy.ndarray) else target.is_contiguous()
    if not contiguous:
        raise ValueError(
            f"{name} is not contiguous: make it without a memory_format, transpose or slice of columns; or the loader with "
            "layout='channels_last', if it is for that format"
        )


def write(target, rows, arrays):
    """Copies the array `rows` to the first rows of target."""
    n = len(rows)
    if isinstance(target, numpy.ndarray):
        numpy.copyto(target[:n], rows)
        return
    wrap = arrays.wrap if arrays.name == "torch" else sys.modules["torch"].from_numpy
    target.detach()[:n].copy_(wrap(rows))  # detached, so that an input may want gradients


def address(target):
    """Where a contiguous tensor or array begins."""
    return target.ctypes.data if isinstance(target, numpy.ndarray) else target.data_ptr()


def note(torch, target):
    """Tells autograd that target has been written, which autograd does not see when libbatchd's kernel wrote it:
    backward then refuses to use the previous content."""
    increment = getattr(getattr(torch.autograd, "graph", None), "increment_version", None)
    if increment is not None:
        increment(target)

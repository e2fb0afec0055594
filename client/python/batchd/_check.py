"""Converts options as users write them for the C library, or raises an exception that names the option and the
remedy."""

import difflib
import inspect
import os

from . import _object_instead, _paths

_KINDS = (
    "imagefolder:DIR",
    "files:LIST",
    "tar:SHARDS",
    "mds:SHARDS",
    "zip:FILE",
    "arrow:FILES",
    "npy:FILE[,FILE]",
    "npz:FILE",
    "idx:FILE[,FILE]",
    "cifar:FILE[,FILE...]",
    "tokens:FILE[,FILE...],length=T",
    "blend:[WEIGHT*]DATASET;;[WEIGHT*]DATASET...",
    "random:...",
    "serve:NAME",
)  # as in proto/sources.h
_PLACES = f"it is {', '.join(map(repr, _KINDS))}, a name from the daemon's configuration, or arrays in memory: (x, y), {{'x': x, 'y': y}}"
_NO_WORKERS = "leave it out: there are no worker processes"
# What asks for nothing, and so is taken.
_NOTHING = {
    "generator": (None,),
    "in_order": (None, True),
    "multiprocessing_context": (None,),
    "persistent_workers": (None, False),
    "pin_memory": (None, False),
    "pin_memory_device": (None, ""),
    "prefetch_factor": (None,),
    "worker_init_fn": (None,),
}
# Arguments that only torch's loader has.
TORCHS_OWN = {
    "collate_fn": "it is an argument only",
    "generator": "give seed",
    "in_order": "leave it out: batches come in order",
    "multiprocessing_context": _NO_WORKERS,
    "persistent_workers": _NO_WORKERS,
    "pin_memory": "leave it out: device='cuda' has batches on the GPU, from pinned memory",
    "pin_memory_device": "give device",
    "prefetch_factor": "leave it out, or give n_slots",
    "worker_init_fn": _NO_WORKERS,
}


# Of torch's other functions.
_ELSEWHERE = {"memory_format": "give layout=torch.channels_last"}


def advice(name):
    """What to do about an argument or attribute that only torch's loader has; None: torch has none of that name
    either."""
    return TORCHS_OWN.get(name)


def no_others(others, function):
    """Refuses arguments that `function` does not have; torch's are taken where they ask for nothing."""
    problems = []
    for name, value in others.items():
        if any(value is nothing or value == nothing for nothing in _NOTHING.get(name, ())):
            continue
        close = difflib.get_close_matches(name, inspect.signature(function).parameters, 1)
        advice = (
            TORCHS_OWN.get(name)
            or _ELSEWHERE.get(name)
            or (f"did you mean {close[0]}?" if close else "help(batchd.DataLoader) has them all")
        )
        problems.append(f"no argument {name} ({advice})")
    if problems:
        raise TypeError("batchd.DataLoader has " + ", ".join(problems))


def collate(function):
    """What collate_fn asks for: None, where it is what torch's loader does by itself with single samples."""
    if function is None or getattr(function, "__module__", "") == "torch.utils.data._utils.collate":
        return None
    if not callable(function):
        raise TypeError(f"collate_fn must be a function that takes a batch, not {function!r}")
    return function


def dataset(value, length=None):
    """The data set as text."""
    if isinstance(value, (str, bytes, os.PathLike)):
        return _paths.with_kind(value, length)
    raise TypeError(_object_instead.advice(value) or f"dataset must be a text, not {type(value).__name__}: {_PLACES}")


_RESAMPLED = 1 << 30  # BATCHD_SHUFFLE_RESAMPLED


def shuffle(value):
    """As C has it: 0, 1, or the size of a window, with BATCHD_SHUFFLE_RESAMPLED or without."""
    if isinstance(value, str):
        name, colon, size = value.partition(":")
        least = {"window": 2, "resampled": 1}.get(name)
        if least and (not colon or size.isdigit() and least <= int(size) < _RESAMPLED):
            return (_RESAMPLED if name == "resampled" else 0) + (int(size) if colon else 10000)
        raise ValueError(
            "shuffle must be True, False, 'window', 'window:SAMPLES' from 2 on, 'resampled' or 'resampled:WINDOW', "
            f"not {value!r}"
        )
    return int(bool(value))


def text(what, value):
    """As bytes for C, or None."""
    if value is None:
        return None
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise TypeError(f"{what} must be a text, not {value!r}")
    encoded = os.fsencode(value)
    if b"\0" in encoded:
        raise ValueError(f"{what} has a NUL byte in it: {value!r}")
    return encoded


def choice(what, value, names):
    """The index of value in names, ignoring case."""
    name = str(value)
    for known in names:
        if name.lower() == known.lower():
            return names.index(known)
    raise ValueError(f"{what} must be one of {', '.join(names)}, not {value!r}")


def layout(given):
    """(the C library's name of a layout, whether batches are permuted to torch's channels_last)"""
    name = str(given).removeprefix("torch.").lower()
    return {"channels_last": ("NHWC", True), "contiguous_format": ("NCHW", False)}.get(name, (given, False))


def dtype_name(dtype):
    """ "float32" from that text, numpy.float32, numpy.dtype("float32") or torch.float32."""
    if isinstance(dtype, str):
        return dtype
    name = str(dtype)
    if name.startswith("torch."):
        return name[6:]
    return getattr(dtype, "name", None) or getattr(dtype, "__name__", name)


def number(what, value, least=0, most=2**64 - 1):
    """A whole number of any type. True and False are arguments of another option, in its place."""
    try:
        if isinstance(value, (str, bytes, bool)):
            raise TypeError
        n = int(value)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{what} must be a whole number, not {value!r}") from None
    if n != value or n < least:
        raise ValueError(f"{what} must be a whole number from {least} on, not {value!r}")
    if n > most:
        raise ValueError(f"{what} must be a whole number from {least} to {most}, not {value!r}")
    return n


def repeats(value):
    """A fraction, as timm's num_repeats may be, has no order of the daemon's."""
    most = 2**16
    try:
        return number("repeats", value, 1, most)
    except ValueError as e:
        if not 1 < value < most:
            raise
        raise ValueError(
            f"{e}. For a fraction, give timm's sampler of n samples: sampler=timm.data.distributed_sampler.RepeatAugSampler("
            f"range(n), world_size, rank, num_repeats={value!r}), and leave shuffle, repeats and epoch_rows out"
        ) from None


def milliseconds(what, value, least=0, most=2**32 - 1):
    """Seconds as milliseconds; infinity becomes the largest number possible."""
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        ms = float(value) * 1000
    except (TypeError, ValueError):
        raise TypeError(f"{what} must be a number of seconds, not {value!r}") from None
    if not ms >= least:  # nor NaN
        raise ValueError(f"{what} must be a number of seconds from {least / 1000:g} on, not {value!r}")
    return round(min(ms, most))

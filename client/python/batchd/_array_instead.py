"""What to write instead of things that are nearly arrays in memory: lists of samples, data frames, single arrays."""

import numbers
import os
import sys

import numpy


def is_array(value):
    torch = sys.modules.get("torch")
    return isinstance(value, numpy.ndarray) or (torch is not None and isinstance(value, torch.Tensor))


def _is_arraylike(value):
    """An array of another library's (JAX, CuPy), a column of pandas' or polars', or numbers in a list."""
    if isinstance(value, (str, bytes, dict)) or is_array(value):
        return False
    if isinstance(value, (list, tuple, range)):
        return bool(value) and all(isinstance(x, numbers.Number) for x in value)
    return hasattr(value, "__array__") or hasattr(value, "__dlpack__")


def _stack(value, part):
    """The text that makes one array of a part of each sample."""
    if isinstance(value, numbers.Number) or isinstance(value, numpy.generic):
        return f"numpy.array([{part} for sample in dataset])"
    return f"{'numpy' if isinstance(value, numpy.ndarray) else 'torch'}.stack([{part} for sample in dataset])"


def _samples(value):
    """For a list of samples, each a tuple or dictionary of arrays and numbers."""
    first = value[0]
    if len(first) == 2 and isinstance(first, (tuple, list)) and isinstance(first[0], (str, os.PathLike)):
        return (
            "dataset is a list of pairs that begin with a path. If these are images and whole numbers as labels, write them to a list, "
            "open('samples.txt', 'w').writelines(f'{os.path.abspath(path)}\\t{label}\\n' for path, label in dataset), and name that, "
            "'files:samples.txt'"
        )
    keys = list(first) if isinstance(first, dict) else list(range(len(first)))
    if not keys or not all(is_array(first[k]) or isinstance(first[k], (numbers.Number, numpy.generic)) for k in keys):
        return None
    columns = [_stack(first[k], f"sample[{k!r}]") for k in keys]
    if isinstance(first, dict):
        made = "{" + ", ".join(f"{k!r}: {column}" for k, column in zip(keys, columns)) + "}"
    else:
        made = "(" + ", ".join(columns) + ("," if len(columns) == 1 else "") + ")"
    return f"dataset is a list of {len(value)} samples: hand over its columns, {made}"


def _list(value):
    if all(map(is_array, value)):
        what = "arrays" if isinstance(value[0], numpy.ndarray) else "tensors"
        return (
            f"dataset is a list of {len(value)} {what}, which may be its samples or its fields: write ({_stack(value[0], 'sample')},) if "
            "each is a sample, or tuple(dataset) if each is a field with a row for each sample"
        )
    if isinstance(value[0], (tuple, dict, list)) and all(
        type(x) is type(value[0]) and len(x) == len(value[0]) for x in value
    ):
        return _samples(value)
    return "dataset is a list of numbers: write (numpy.asarray(dataset),)" if _is_arraylike(value) else None


def _fields(value):
    """For a tuple or dictionary that is one of arrays but for some of its fields."""
    items = list(value.items() if isinstance(value, dict) else enumerate(value))
    if isinstance(value, tuple) and all(isinstance(x, str) for _, x in items):
        return f"dataset is a tuple of texts: several data sets are a list, {list(value)!r}"
    for key, x in items:
        if _is_arraylike(x):
            return (
                f"dataset[{key!r}] is a {type(x).__name__}, and its fields are numpy arrays or tensors: write numpy.asarray(dataset[{key!r}]) "
                "in its place"
            )
        if isinstance(x, (tuple, list, dict)) and x and all(map(is_array, x.values() if isinstance(x, dict) else x)):
            inner = "a list of arrays is stacked to one" if isinstance(x, list) else "fields do not nest"
            return f"dataset[{key!r}] is a {type(x).__name__} of arrays: {inner}; write each field as one array, (x, y, z) or {{'x': x, 'y': y}}"
    if isinstance(value, dict) and all(
        isinstance(k, str) and ":" in k and isinstance(x, numbers.Number) for k, x in items
    ):
        return "dataset is a dictionary of data sets and weights: write batchd.blend(dataset)"
    if any(is_array(x) for _, x in items):
        key, x = next((key, x) for key, x in items if not is_array(x))
        return f"dataset[{key!r}] is a {type(x).__name__}, and fields of a data set in memory are numpy arrays or tensors of numbers"
    return None


def advice(value):
    """The error for such a thing, with what to write; None: it is none."""
    if isinstance(value, list) and value:
        return _list(value)
    if isinstance(value, (tuple, dict)) and value:
        return _fields(value)
    kind = type(value).__name__
    if is_array(value):
        return f"dataset is one {kind}: write (dataset,), a tuple of the only field, whose rows are the samples"
    if kind == "DataFrame" and hasattr(value, "columns"):
        return "dataset is a DataFrame: hand over its columns of numbers, {name: dataset[name].to_numpy() for name in dataset.columns}"
    parts = getattr(value, "datasets", None)
    if kind == "StackDataset" and isinstance(parts, (tuple, dict)):
        if parts and all(map(is_array, parts.values() if isinstance(parts, dict) else parts)):
            return "dataset is a StackDataset of arrays: hand over dataset.datasets, which has them"
    if _is_arraylike(value):
        return f"dataset is a {kind}: write (numpy.asarray(dataset),), a tuple of the only field, whose rows are the samples"
    return None

"""A batch of any structure as arrays and a line of JSON that says how they belong together, and back.

Structures: dict, list, tuple and named tuple, nested; leaves: torch tensors, numpy arrays, bytes, and JSON's own types
(numbers, texts, None). In the JSON an array is {"a": number} (torch) or {"n": number} (numpy), bytes are {"b": number},
containers and values as made below.
"""

import collections
import json
import sys

import numpy

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
    "float8_e4m3fn",
    "float8_e5m2",
)
_CODES = {name: code for code, name in enumerate(DTYPES)}
# Types that numpy lacks are carried as integers of the same size.
CARRIERS = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}
_MOST_DIMS = 8


def _is_tensor(value):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


class Leaf:
    """One array of a batch: its place in the structure, its type and its memory."""

    __slots__ = ("path", "value", "code", "shape")

    def __init__(self, path, value, dtype):
        self.path, self.value, self.shape = path, value, tuple(value.shape)
        if dtype not in _CODES:
            raise TypeError(
                f"{path} has dtype {dtype}; batchd.serve sends {', '.join(DTYPES)}"
                + (" (texts go as a list of str)" if dtype.startswith(("str", "bytes", "object")) else "")
            )
        if len(self.shape) > _MOST_DIMS:
            raise ValueError(f"{path} has {len(self.shape)} dimensions; at most {_MOST_DIMS} can be sent")
        self.code = _CODES[dtype]

    def __str__(self):
        return f"{self.path} ({DTYPES[self.code]}, shape {self.shape})"


def flatten(batch):
    """(text, leaves, rows) of a batch. rows: of its first array, else of its first list, else 1."""
    leaves, rows = [], []

    def add(path, value, dtype, kind):
        leaves.append(Leaf(path, value, dtype))
        if value.ndim:
            rows.append(value.shape[0])
        return {kind: len(leaves) - 1}

    def walk(path, value):
        if _is_tensor(value):
            if value.is_sparse or value.is_quantized:
                raise TypeError(f"{path} is a sparse or quantised tensor; send it dense")
            return add(path, value.detach(), str(value.dtype)[6:], "a")
        if isinstance(value, numpy.ndarray):
            return add(path, value, value.dtype.name, "n")
        if isinstance(value, numpy.generic):
            value = value.item()
        if value is None or isinstance(value, (bool, int, float, str)):
            return {"v": value}
        if isinstance(value, (bytes, bytearray)):
            return {"b": add(path, numpy.frombuffer(value, "uint8"), "uint8", "n")["n"]}
        if isinstance(value, collections.abc.Mapping):
            for key in value:
                if not isinstance(key, (str, int)):
                    raise TypeError(f"{path} has the key {key!r}; keys must be texts or whole numbers")
            return {"d": [[key, walk(f"{path}[{key!r}]", item)] for key, item in value.items()]}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return {
                "f": [
                    type(value).__name__,
                    list(value._fields),
                    [walk(f"{path}.{name}", item) for name, item in zip(value._fields, value)],
                ]
            }
        if isinstance(value, (list, tuple)):
            return {
                "l" if isinstance(value, list) else "t": [walk(f"{path}[{i}]", item) for i, item in enumerate(value)]
            }
        raise TypeError(
            f"{path} is a {type(value).__module__}.{type(value).__qualname__}; a batch for batchd.serve is made of tensors, arrays, "
            "numbers, texts, bytes, None, and dicts, lists and tuples of them"
        )

    tree = walk("batch", batch)
    if not rows:
        rows.append(len(batch) if isinstance(batch, (list, tuple)) else 1)
    return json.dumps(tree, separators=(",", ":")).encode(), leaves, max(1, rows[0])


_TUPLES = {}


def _named(name, fields):
    key = name, tuple(fields)
    if key not in _TUPLES:
        _TUPLES[key] = collections.namedtuple(name, fields, rename=True)
    return _TUPLES[key]


def builder(text):
    """A function that makes the batch of a list of leaves; each is made by make(number, kind)."""

    def compile(node):
        ((kind, body),) = node.items()
        if kind in ("a", "n"):
            return lambda make: make(body, kind)
        if kind == "b":
            return lambda make: make(body, "n").tobytes()
        if kind == "v":
            return lambda make: body
        if kind == "d":
            parts = [(key, compile(item)) for key, item in body]
            return lambda make: {key: part(make) for key, part in parts}
        if kind == "f":
            cls, parts = _named(body[0], body[1]), [compile(item) for item in body[2]]
            return lambda make: cls(*[part(make) for part in parts])
        parts = [compile(item) for item in body]
        if kind == "t":
            return lambda make: tuple([part(make) for part in parts])
        return lambda make: [part(make) for part in parts]

    return compile(json.loads(text))

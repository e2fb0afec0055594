"""A batch of any structure as arrays and a line of JSON that says how they belong together, and back.

Structures: dict, list, tuple and named tuple, nested; leaves: torch tensors, numpy arrays, bytes, and JSON's own types
(numbers, texts, None). In the JSON an array is {"a": number} (torch) or {"n": number} (numpy), bytes are {"b": number},
containers and values as made below.

Ragged arrays, which have offsets: a list of texts {"s": number}, a list of bytes {"y": number}, a batchd.Ragged
{"ra": number} or {"rn": number}, and a list of arrays that differ in their first dimension only {"ga": number} or
{"gn": number}. client/link/names.c finds all of them by the keys of the outermost dictionary.
"""

import collections
import json
import sys
import typing

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
ARRAYS = ("a", "n", "s", "y", "ra", "rn", "ga", "gn")
_MOST_DIMS = 8
_MOST_LISTS = 64  # lists that become ragged arrays; further texts stay in the JSON, further arrays one by one
_MANY = 32  # arrays of a list that become one even where they are of one shape
_encode = json.JSONEncoder(separators=(",", ":")).encode


class NotStacked(Exception):
    """torch.stack does not write these rows to a given place."""


class Rows:
    """Tensors of one type for torch.stack, in the place of the tensor that it would make, with that tensor's attributes."""

    __slots__ = ("_rows", "dtype", "shape", "nbytes")
    is_sparse = is_quantized = False

    def __init__(self, rows):
        first = rows[0]
        self._rows, self.dtype, self.shape = rows, first.dtype, (len(rows), *first.shape)
        self.nbytes = len(rows) * first.nbytes

    @property
    def ndim(self):
        return len(self.shape)

    def detach(self):
        return self

    def stack(self, to):
        """Writes them to this tensor. Raises NotStacked where they differ in shape, or one needs a gradient."""
        try:
            sys.modules["torch"].stack(self._rows, out=to)
        except RuntimeError as e:
            raise NotStacked from e


def _is_tensor(value):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, (torch.Tensor, Rows))


class Leaf:
    """One array of a batch: its place in the structure, its type and its memory."""

    __slots__ = ("path", "value", "code", "shape", "offsets", "text")

    def __init__(self, path, value, dtype, offsets=None, text=False):
        """value: an array, or a list of pieces of a ragged one, whose offsets (int64) are given."""
        self.path, self.value, self.offsets, self.text = path, value, offsets, text
        if isinstance(value, list):
            self.shape = (int(offsets[-1]), *value[0].shape[1:])
        else:
            self.shape = tuple(value.shape)
        if dtype not in _CODES:
            raise TypeError(
                f"{path} has dtype {dtype}; batchd.serve sends {', '.join(DTYPES)}"
                + (" (texts go as a list of str)" if dtype.startswith(("str", "bytes", "object")) else "")
            )
        if len(self.shape) > _MOST_DIMS:
            raise ValueError(f"{path} has {len(self.shape)} dimensions; at most {_MOST_DIMS} can be sent")
        self.code = _CODES[dtype]

    @property
    def n_bytes(self):
        return sum(piece.nbytes for piece in self.value) if isinstance(self.value, list) else self.value.nbytes

    def __str__(self):
        return f"{self.path} ({DTYPES[self.code]}, shape {self.shape})"


class Ragged(typing.NamedTuple):
    """A ragged field in two arrays: row i consists of values[offsets[i]:offsets[i + 1]]."""

    values: typing.Any
    offsets: typing.Any


def _sums(lengths, n):
    offsets = numpy.zeros(n + 1, "int64")
    numpy.cumsum(numpy.fromiter(lengths, "int64", n), out=offsets[1:])
    return offsets


def _is_masked(value):
    return isinstance(value, numpy.ma.MaskedArray) or type(value).__name__ == "MaskedTensor"


def _pieces(value):
    """(arrays, dtype, kind) of a list of arrays that differ in their first dimension only; None: it is something
    else."""
    if len(value) < 2:
        return None
    tensors = all(map(_is_tensor, value))
    if any(map(_is_masked, value)):
        return None  # which is refused with its place
    if not tensors and not all(isinstance(item, numpy.ndarray) for item in value):
        return None
    first = value[0]
    if not first.ndim or any(item.dtype != first.dtype or not item.ndim for item in value):
        return None
    if any(item.shape[1:] != first.shape[1:] for item in value):
        return None
    if len(value) < _MANY and all(item.shape == first.shape for item in value):
        return None
    if tensors and any(item.is_sparse or item.is_quantized for item in value):
        return None
    return ([t.detach() for t in value], str(first.dtype)[6:], "ga") if tensors else (value, first.dtype.name, "gn")


def _ragged(path, value):
    """(values, dtype, kind, offsets) of a batchd.Ragged."""
    if _is_masked(value.values) or _is_masked(value.offsets):
        raise TypeError(f"{path} is a batchd.Ragged of a masked array, whose mask would be lost: fill it first")
    values = value.values.detach() if _is_tensor(value.values) else numpy.asarray(value.values)
    offsets = numpy.asarray(value.offsets)
    if offsets.ndim != 1 or not len(offsets) or offsets.dtype.kind not in "iu" or not values.ndim:
        raise TypeError(f"{path} is a batchd.Ragged whose offsets are no row of whole numbers, one more than rows")
    offsets = offsets.astype("int64")
    if (numpy.diff(offsets) < 0).any() or offsets[0] < 0 or offsets[-1] > len(values):
        raise ValueError(f"{path} is a batchd.Ragged whose offsets do not rise from 0 to {len(values)} at most")
    values, offsets = values[int(offsets[0]) : int(offsets[-1])], offsets - offsets[0]
    if _is_tensor(values):
        return values, str(values.dtype)[6:], "ra", offsets
    return values, values.dtype.name, "rn", offsets


def flatten(batch):
    """(text, leaves, rows) of a batch. rows: of its first array, else of its first ragged array or list, else 1."""
    leaves, rows, lists = [], [], []

    def add_ragged(path, value, dtype, kind, offsets, text=False):
        leaves.append(Leaf(path, value, dtype, offsets, text))
        lists.append(len(offsets) - 1)
        return {kind: len(leaves) - 1}

    def add_list(path, value):
        """A list as one ragged array; None: it is none."""
        if not value or len(lists) >= _MOST_LISTS:
            return None
        first = type(value[0])
        if first in (str, bytes) and all(type(item) is first for item in value):
            try:
                rows_of = [item.encode() for item in value] if first is str else value
            except UnicodeEncodeError:  # half a pair of surrogates, which only JSON carries
                return None
            whole = numpy.frombuffer(b"".join(rows_of), "uint8")
            kind = "s" if first is str else "y"
            return add_ragged(path, whole, "uint8", kind, _sums(map(len, rows_of), len(rows_of)), first is str)
        found = _pieces(value)
        if found is None:
            return None
        pieces, dtype, kind = found
        return add_ragged(path, pieces, dtype, kind, _sums((p.shape[0] for p in pieces), len(pieces)))

    def add(path, value, dtype, kind):
        leaves.append(Leaf(path, value, dtype))
        if value.ndim:
            rows.append(value.shape[0])
        return {kind: len(leaves) - 1}

    def walk(path, value):
        if _is_masked(value):
            raise TypeError(
                f"{path} is a {type(value).__name__}, and its mask would be lost: send it with a value for what is masked "
                "(numpy: .filled(...), torch: .to_tensor(...)), and the mask beside it if trainers need it"
            )
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
        if isinstance(value, Ragged):
            return add_ragged(path, *_ragged(path, value))
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
        if isinstance(value, list) and (ragged := add_list(path, value)) is not None:
            return ragged
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
        rows.append(lists[0] if lists else len(batch) if isinstance(batch, (list, tuple)) else 1)
    return _encode(tree).encode(), leaves, max(1, rows[0])


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
        if kind in ARRAYS:
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

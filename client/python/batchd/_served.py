"""The trainer's side of a served data set: batches of any structure as views of a slot."""

import ctypes
import json
import sys
import typing
import weakref

import numpy

from . import _arrays, _fields, _into, _lib, _tree, errors

_COPIED = 4096  # bytes: smaller arrays are copied, so that lists of labels hold no slots
_KEPT = 64  # layouts remembered
_ROWS = "rows"  # of an array: it is cut into rows of different lengths
loaders = weakref.WeakSet()  # of this process


class Reader:
    """Makes the batches of one DataLoader."""

    def __init__(self, loader):
        i = loader._info
        self._arrays = loader._arrays
        self._torch = sys.modules.get("torch") if loader._arrays.name == "torch" else None
        self._n_bytes = loader._bytes_of(i.shape, i.n_dims, i.dtype)
        self._slot_class = _arrays.slot_class(self._n_bytes)
        self._table = (_lib.Array * _lib.MAX_ARRAYS)()
        self._text, self._n_text = ctypes.c_void_p(), ctypes.c_size_t()
        self._layouts, self._builders, self._last = {}, {}, None

    def give(self, loader):
        """The batch in the loader's struct. One that does not fit its slot is copied: a trainer that kept it would keep
        the daemon's memory for the next one as large."""
        s = loader._struct
        build, leaves = self._layout(s.data, self._read(loader))
        memory, large = self._memory(s.data, leaves)
        if loader._cuda is not None:
            return self._give_on_gpu(loader, s, build, leaves, memory, large)
        if large:
            loader._give_back()
        else:
            loader._lend(memory)
        held = large or loader._must_copy(any(leaf.size > _COPIED for leaf in leaves))

        def one(leaf, number, kind):
            return self._make(loader, memory, leaf, kind, held)

        return build(lambda number, kind: self._ragged(leaves[number], number, kind, one, s.data))

    def _memory(self, at, leaves):
        """(The batch's memory, whether that is not its slot's)"""
        end = max((leaf.offset + leaf.size for leaf in leaves), default=0)
        if end <= self._n_bytes:
            return self._slot_class.from_address(at), False
        return (ctypes.c_char * end).from_address(at), True

    def write(self, loader, targets):
        """Writes the batch in the loader's struct into targets (Targets) after all of them have been checked; the batch
        stays in the struct until then."""
        s = loader._struct
        build, leaves = self._layout(s.data, self._read(loader))
        (memory, _), cuda = self._memory(s.data, leaves), loader._cuda
        jobs = []

        def add(path, target, value):
            if not isinstance(value, (list, _Leaf)) and hasattr(value, "shape"):
                value = _Offsets(numpy.asarray(value))
            jobs.append((target, value))
            if isinstance(value, list):
                return
            shape, dtype, on_gpu = _kind(path, value)
            device = cuda.device if cuda is not None and on_gpu else None
            _into.check(path, target, shape[0] if shape else 1, shape[1:], dtype, device, host=not on_gpu)

        def one(leaf, number, kind):
            return _Leaf(memory, leaf, number, kind)

        def make(number, kind):
            made = self._ragged(leaves[number], number, kind, one, s.data)
            return _Rows(made) if isinstance(made, list) else made

        targets.put(build(make), add)
        for target, value in jobs:
            if isinstance(value, list):
                target[:] = value
            elif cuda is not None and value.kind == "a":
                cuda.write_array(s, self._table[value.number], target)
            else:
                _into.write(target, value.array(), loader._arrays)
        if cuda is not None:
            cuda.give_back(s)
        else:
            loader._give_back()
        return s.n_rows

    def _read(self, loader):
        s = loader._struct
        n = _lib.arrays(
            s.handle,
            loader._struct_at,
            self._table,
            _lib.MAX_ARRAYS,
            ctypes.byref(self._text),
            ctypes.byref(self._n_text),
        )
        if n < 0:
            raise _lib.failure(n, _lib.error(s.handle))
        return n

    def _give_on_gpu(self, loader, s, build, leaves, memory, large):
        """Tensors on the GPU; arrays that the producer gave as numpy's are copied to numpy arrays."""
        at = s.data

        def one(leaf, number, kind):
            if kind in ("n", _ROWS):
                array = numpy.ndarray(leaf.shape, leaf.dtype, memory, leaf.offset)
                return _of_its_type(array.copy(), leaf.name)
            return give(self._table[number], leaf.shape, leaf.offset, leaf.name)

        def make(number, kind):
            return self._ragged(leaves[number], number, kind, one, at)

        try:
            with loader._cuda.arrays(s, loader._copy, large) as give:
                return build(make)
        finally:
            s.generation = 0

    def _layout(self, at, n):
        """(builder, leaves) of a batch with this head; most batches of a producer have the same."""
        head = ctypes.string_at(at, self._text.value - at + self._n_text.value)
        self._last = head
        layout = self._layouts.get(head)
        if layout is None:
            leaves = [_describe(a, at) for a in self._table[:n]]
            layout = self._builder(head[len(head) - self._n_text.value :]), leaves
            if any(leaf.rows is not None for leaf in leaves):
                return layout  # of this batch alone
            if len(self._layouts) >= _KEPT:
                self._layouts.clear()
            self._layouts[head] = layout
        return layout

    def fields(self):
        """{key: Field} of the last batch, if it was a dictionary."""
        if self._last is None:
            return {}
        tree = json.loads(self._last[len(self._last) - self._n_text.value :])
        found = {}
        for key, node in tree.get("d", ()):
            ((kind, number),) = node.items()
            if kind in _tree.ARRAYS:
                a = self._table[number]
                ragged = bool(a.offsets)
                shape = tuple(a.shape[1 : a.n_dims])
                found[key] = _fields.Field(_tree.DTYPES[a.dtype], shape, ragged, kind == "s")
        return found

    def _builder(self, text):
        if text not in self._builders:
            if len(self._builders) >= _KEPT:
                self._builders.clear()
            self._builders[text] = _tree.builder(text)
        return self._builders[text]

    def _ragged(self, leaf, number, kind, one, at):
        """What a batch has of a leaf: an array that `one` makes, or what offsets make of it. Offsets are checked as
        copied: the producer could write over its own."""
        if leaf.rows is None:
            if kind not in ("a", "n"):
                raise errors.make("PROTOCOL", f"array {number} of the producer's batch has no offsets")
            return one(leaf, number, kind)
        offsets = numpy.frombuffer(ctypes.string_at(leaf.offsets, 8 * (leaf.rows + 1)), "int64").copy()
        n = leaf.shape[0]
        if offsets[0] != 0 or offsets[-1] != n or (numpy.diff(offsets) < 0).any():
            raise errors.make("PROTOCOL", f"the offsets of array {number} have been overwritten")
        if kind in ("s", "y"):
            if leaf.name != "uint8" or len(leaf.shape) != 1:
                raise errors.make("PROTOCOL", f"array {number} of the producer's batch is no text")
            whole, at_row = ctypes.string_at(at + leaf.offset, n), offsets.tolist()
            rows = [whole[i:j] for i, j in zip(at_row, at_row[1:])]
            return [row.decode("utf-8", "replace") for row in rows] if kind == "s" else rows
        if kind[0] == "g":
            array = one(leaf, number, _ROWS if self._arrays.makes_all else kind[-1])
            at_row = offsets.tolist()
            return [array[i:j] for i, j in zip(at_row, at_row[1:])]
        array = one(leaf, number, kind[-1])
        wrap = self._arrays.wrap if kind == "ra" or self._arrays.makes_all else numpy.asarray
        return _tree.Ragged(array, wrap(offsets))

    def _make(self, loader, memory, leaf, kind, held):
        array = numpy.ndarray(leaf.shape, leaf.dtype, memory, leaf.offset)
        copied = held or leaf.size <= _COPIED
        if copied:
            array = array.copy()
        if self._arrays.makes_all and kind != _ROWS:
            if not copied:
                return self._arrays.share_as(array, leaf.name, loader._struct)
            return self._arrays.wrap(_of_its_type(array, leaf.name))
        if kind in ("n", _ROWS):
            return _of_its_type(array, leaf.name)
        if self._torch is None:
            if leaf.name in _tree.CARRIERS:
                raise TypeError(f"a batch holds {leaf.name}, which numpy does not know: use arrays='torch'")
            return array
        tensor = self._torch.from_numpy(array)
        return tensor.view(getattr(self._torch, leaf.name)) if leaf.name in _tree.CARRIERS else tensor


def _of_its_type(array, name):
    """The numpy array that the producer gave: of a type that numpy has from ml_dtypes (JAX's arrays), the slot has the bits."""
    if name not in _tree.CARRIERS:
        return array
    try:
        import ml_dtypes

        return array.view(getattr(ml_dtypes, name))
    except (ImportError, AttributeError):
        raise TypeError(
            f"a batch holds numpy arrays of {name}, which numpy knows by the package ml_dtypes only: install it here, or let "
            "the producer make float32 or torch tensors of them"
        ) from None


class _Array(typing.NamedTuple):
    """One array of a batch. `dtype`: numpy's; `offset`: in the slot; `size`: bytes; `offsets`: their address, and
    `rows`, of a ragged one, else None."""

    dtype: typing.Any
    shape: tuple
    offset: int
    size: int
    name: str
    offsets: typing.Any
    rows: typing.Any


def _describe(a, at):
    name = _tree.DTYPES[a.dtype]
    return _Array(
        numpy.dtype(_tree.CARRIERS.get(name, name)),
        tuple(a.shape[: a.n_dims]),
        (a.data or at) - at,
        a.n_bytes,
        name,
        a.offsets,
        a.n_rows if a.offsets else None,
    )


class _Leaf:
    """An array of a batch that next_into writes, in the slot."""

    def __init__(self, memory, leaf, number, kind):
        self._memory, self.number, self.kind = memory, number, kind
        self.dtype, self.shape, self._offset, self.name = leaf.dtype, leaf.shape, leaf.offset, leaf.name

    def array(self):
        return numpy.ndarray(self.shape, self.dtype, self._memory, self._offset)

    def __getitem__(self, rows):
        """Rows of a ragged array, for a list."""
        if self.name in _tree.CARRIERS:
            raise TypeError(f"a ragged array is {self.name}, which next_into does not write: iterate over the loader")
        return self.array()[rows].copy()

    def tobytes(self):
        return self.array().tobytes()


class _Offsets(typing.NamedTuple):
    """Offsets of a ragged array, a copy, as a _Leaf is written."""

    values: numpy.ndarray
    name: str = "int64"
    kind: str = "n"

    @property
    def shape(self):
        return self.values.shape

    def array(self):
        return self.values


def _kind(path, value):
    """(shape, dtype, whether it comes on the loader's GPU) of what a target is to take."""
    if not isinstance(value, (_Leaf, _Offsets)):
        raise TypeError(
            f"{path} is a {type(value).__name__} in this batch, which next_into cannot write: leave it out, or give None"
        )
    if value.name in _tree.CARRIERS:
        raise TypeError(f"{path} is {value.name}, which next_into does not write: iterate over the loader")
    return value.shape, value.name, value.kind == "a"


class Targets:
    """Targets of next_into, in the structure of the producer's batches: what they have is known when a batch has
    come."""

    def __init__(self, batch, labels):
        self._batch = batch if labels is None else (batch, labels)

    def put(self, made, put):
        """Calls put(path, target, value) for each part that has a target. made: the batch."""
        self._walk("batch", self._batch, made, put)

    def _walk(self, path, target, value, put):
        if target is None:
            return
        if isinstance(target, dict):
            if not isinstance(value, dict):
                kind = "array" if isinstance(value, _Leaf) else type(value).__name__
                raise TypeError(f"{path} is a {kind} in this batch, and its target is a dictionary")
            for key, inner in target.items():
                if key not in value:
                    keys = ", ".join(map(repr, value))
                    raise ValueError(f"{path}[{key!r}] has a target, and this batch has no such key: it has {keys}")
                self._walk(f"{path}[{key!r}]", inner, value[key], put)
        elif isinstance(value, (list, tuple)) and not _is_rows(target, value):
            if not isinstance(target, (list, tuple)) or len(target) != len(value):
                raise TypeError(
                    f"{path} is a {type(value).__name__} of {len(value)} in this batch: give as many targets, None for "
                    "what is left out"
                )
            for i, (inner, part) in enumerate(zip(target, value)):
                self._walk(f"{path}[{i}]", inner, part, put)
        else:
            put(path, target, value)


class _Rows(list):
    """The rows of a ragged array, which a list takes as they are."""


def _is_rows(target, value):
    """Whether a list takes a list's content: texts, bytes, numbers, rows of a ragged array."""
    return isinstance(target, list) and (
        isinstance(value, _Rows) or not any(isinstance(v, (_Leaf, dict, list, tuple)) for v in value)
    )


def check_options(given):
    """Refuses options that only the producer can decide; given: {name: whether the caller gave it}."""
    if given["packed"]:
        raise ValueError("packed is the producer's business: let it make batchd.Ragged, and leave it out here")
    if given["join"]:
        raise ValueError(
            "join='start': a producer makes its batches once, so no trainer gets those from before it came: leave join out, or give "
            "join='next', for the group's next batch, or join='epoch' for its next epoch"
        )
    for name, is_given in given.items():
        if is_given:
            raise ValueError(
                f"{name} is the producer's business: give it to what batchd.serve is called with, and leave it out here"
            )

"""Batches of named fields: which of them a loader gives, in which form, and the batches themselves.

A dense field is an array over the slot's memory. Of a ragged field every row has as many values as its sample; texts
and bytes are ragged uint8.
"""

import collections.abc
import ctypes
import typing

import numpy

from . import _arrays, _into, _lib, _mix
from ._tree import Ragged

_COPIED = 4096  # bytes: smaller arrays are copied, so that lists of them hold no slots


class Field(typing.NamedTuple):
    """What a loader says about a field. `shape`: of a row, or of one value of a ragged field; `most_values`: of a ragged
    field, in all rows of a batch together; `text`, `bytes`: its rows are `str` or `bytes`."""

    dtype: str
    shape: tuple
    ragged: bool
    text: bool
    most_values: int = 0
    bytes: bool = False


class Wish:
    """The caller's `fields` and `packed`. `names`: of the fields that the daemon has to deliver, None for all."""

    def __init__(self, fields, packed):
        self.keys = None  # (key, name) pairs of a dictionary
        self.names = None
        if fields is not None:
            self._take(fields)
        self._packed = packed
        if not isinstance(packed, bool):
            self._packed = set(_names("packed", packed))
            self._check_packed(self.names)

    def _take(self, fields):
        if isinstance(fields, collections.abc.Mapping):
            self.keys = list(fields.items())
            names = [name for _, name in self.keys]
        else:
            names = fields
        names = _names("fields", names)
        if self.keys is None and len(set(names)) < len(names):
            raise ValueError(f"fields has a name twice: {', '.join(names)}")
        if not names:
            raise ValueError("fields is empty: name at least one, or leave it out for all")
        self.names = names

    def _check_packed(self, names):
        unknown = self._packed - set(names) if names is not None else ()
        if unknown:
            raise ValueError(f"packed has {', '.join(sorted(unknown))}, which fields has not")

    @property
    def wanted(self):
        """The names for the daemon, each once; None: all."""
        return None if self.names is None else list(dict.fromkeys(self.names))

    def packs(self, name):
        return self._packed if isinstance(self._packed, bool) else name in self._packed

    def check(self, known):
        """Refuses names of `packed` that the data set has not; known: {name: Field}."""
        if not isinstance(self._packed, bool):
            for name in sorted(self._packed):
                if name not in known or not known[name].ragged:
                    raise ValueError(
                        f"packed has {name!r}, which is no ragged field: "
                        + (", ".join(n for n, f in known.items() if f.ragged) or "this data set has none")
                    )

    def build(self, parts):
        """The batch of {name: array}."""
        if self.keys is not None:
            return {key: parts[name] for key, name in self.keys}
        return parts if self.names is None else tuple(parts[name] for name in self.names)


def _names(option, given):
    if isinstance(given, (str, bytes)):
        raise TypeError(f"{option} must be a tuple of names, or a dictionary for fields: write {option}=({given!r},)")
    names = list(given)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{option} must have names of fields, not {name!r}")
    return names


def describe(info):
    """{name: Field} of a loader, in the data set's order."""
    return {
        f.name.decode("ascii", "replace"): Field(
            _lib.DTYPES[f.dtype], tuple(f.shape[: f.n_dims]), bool(f.ragged), bool(f.text), f.most_values, bool(f.bytes)
        )
        for f in info.fields[: info.n_fields]
    }


def is_plain(known):
    """Whether a data set is one of images, or arrays, with labels: its batches are (images, labels)."""
    names = list(known)
    return len(names) == 2 and names[1] == "label" and not any(f.ragged for f in known.values())


class Reader:
    """Makes the batches of one DataLoader. form: of the views, which are the first fields; None: there is one."""

    def __init__(self, loader, known, wish, form=None):
        self._known, self._wish = known, wish
        self._names = list(known)
        self._cuda = loader._cuda
        self._views = self._names[: sum(f.view > 0 for f in loader._info.fields[: len(known)])]
        self._form = form if self._views else None
        self._stacks = self._form.stacks if self._form else []
        self._check_stacks()
        self._others = self._names[len(self._views) :]
        # What the views are called where a batch is a dictionary: a caller's name for the image is none of the others.
        self._image = next((n for n in wish.names or () if n not in self._others), None) or self._names[0]
        self._pair = self._form is not None and wish.names is None and self._others in ([], ["label"])
        self._arrays = loader._arrays
        self._table = [_lib.Array() for _ in known]
        self._dtypes = [numpy.dtype(f.dtype) for f in known.values()]
        self._most = [f.most_values for f in loader._info.fields[: len(known)]]
        self._n_rows = loader._info.group_batch_size
        self._slot_class = None
        self._first = next((k for k, f in enumerate(known.values()) if not f.ragged), None)

    def _check_stacks(self):
        for begin, end in self._stacks:
            first, *others = self._views[begin:end]
            for name in others:
                ours, theirs = self._known[first].shape, self._known[name].shape
                if ours != theirs:
                    raise ValueError(
                        f"transform: views that are stacked have one shape, and {first!r} has {ours}, {name!r} {theirs}: "
                        "leave stack out, which makes a list, or end their pipelines with the same size"
                    )

    # ---- for next_into ----

    names = property(lambda self: self._names)
    others = property(lambda self: self._others)
    image = property(lambda self: self._image)
    is_pair = property(lambda self: self._pair)
    wish = property(lambda self: self._wish)
    form = property(lambda self: self._form)

    def is_view(self, k):
        return k < len(self._views)

    def dense(self, loader, k):
        """(shape, dtype, device) of a row of a dense field as the trainer gets it."""
        name, field, info = self._names[k], self._known[self._names[k]], loader._info
        device = None if self._cuda is None else self._cuda.device
        if k == self._first:
            return loader._shape, _lib.DTYPES[info.dtype], device
        if name == "label" and loader._mixes:
            if not info.n_mix_classes:
                raise TypeError(_into.PAIRS)
            return (info.n_mix_classes,), "float32", device
        if self._cuda is not None and info.fields[k].view:
            return self._cuda.shape_of_view(field.shape), _lib.DTYPES[info.dtype], device
        if info.needs_finish and info.fields[k].view:
            return _mix.shape_of_view(info, k), _lib.DTYPES[info.dtype], device
        return field.shape, field.dtype, device

    def write(self, loader, s, b, targets):
        """Writes the batch into targets; it stays in the struct until all of it is written."""
        b.indices = loader._indices_beside(s)
        self._n = s.n_rows
        if self._cuda is not None:
            self._cuda.write_fields(s, targets, b.mix)
        else:
            table = targets.without(())
            code = _lib.into(s.handle, ctypes.addressof(s), table, len(table), None)
            if code < 0:
                raise _lib.failure(code, _lib.error(s.handle))
        targets.write_lists(s)
        if self._cuda is not None:
            self._cuda.give_back(s)
        else:
            loader._give_back()
        return s.n_rows

    def rows(self, s, k):
        """A ragged field of a batch as a list of rows, copied."""
        code = _lib.get_field_at(s.handle, ctypes.addressof(s), k, ctypes.byref(self._table[k]))
        if code < 0:
            raise _lib.failure(code, _lib.error(s.handle))
        memory = (ctypes.c_char * max(1, self._table[k].n_bytes)).from_address(self._table[k].data)
        return self._lists(k, self._known[self._names[k]], memory, self._table[k].data, True)

    # ---- batches ----

    def give(self, loader, s, b):
        """The batch in the loader's struct."""
        self._n = s.n_rows
        for number, array in enumerate(self._table):
            code = _lib.get_field_at(s.handle, loader._struct_at, number, ctypes.byref(array))
            if code < 0:
                raise _lib.failure(code, _lib.error(s.handle))
        b.indices = loader._indices_beside(s)
        if loader._cuda is not None:
            parts, stack = self._give_on_gpu(loader, s, b)
        else:
            parts, stack = self._give(loader, s, b)
        if loader._permutes:
            parts, stack = self._permuted(parts, stack)
        return self._wish.build(parts) if self._form is None else self._fold(parts, stack)

    def _permuted(self, parts, stack):
        turn = self._arrays.channels_first
        turned = {name: turn(parts[name]) for name in self._views if parts[name] is not None}
        return {**parts, **turned}, lambda begin, end: turn(stack(begin, end))

    def _fold(self, parts, stack):
        """The batch with the views as their transform has them."""
        views = self._form.build([parts[name] for name in self._views], stack)
        others = {name: parts[name] for name in self._others}
        if self._pair:
            return (views, *others.values()) if others else views
        if self._wish.names is None and self._form.is_dict:
            return {**views, **others}
        return self._wish.build({self._image: views, **others})

    def _give(self, loader, s, b):
        base = s.data - s.row * loader._row_bytes
        if self._slot_class is None:
            self._slot_class = _arrays.slot_class(self._slot_bytes(s, base))
        memory = self._slot_class.from_address(base)
        mixed = self._mixed(loader, s, b) if loader._mixes else {}
        stacks = self._mixed_stacks(loader, s) if mixed else {}
        loader._lend(memory)
        copies = [self._is_copied(k, name, f) for k, (name, f) in enumerate(self._known.items())]
        held = bool(mixed) or (not all(copies) and loader._must_copy())
        parts = {}
        for k, (name, field) in enumerate(self._known.items()):
            copied = held or copies[k]
            if name in mixed:
                parts[name] = mixed[name]
            elif field.ragged:
                parts[name] = self._ragged(loader, k, name, field, memory, base, copied)
            else:
                array = self._view(k, memory, base)
                parts[name] = self._arrays.wrap(array.copy()) if copied else loader._lent(array)
        if mixed:
            return parts, lambda begin, end: stacks[begin]
        return parts, lambda begin, end: self._stack(loader, begin, end, memory, base, held)

    def _stack(self, loader, begin, end, memory, base, held):
        """Views begin to end - 1 as one array, which lie at equal distances in the slot."""
        a, dtype = self._table[begin], self._dtypes[begin]
        shape = tuple(a.shape[: a.n_dims])
        if end - begin > 1:
            step = self._table[begin + 1].data - a.data
        else:
            step = a.n_bytes
        strides = numpy.ndarray(shape, dtype, (ctypes.c_char * max(1, a.n_bytes))()).strides
        array = numpy.ndarray((end - begin, *shape), dtype, memory, a.data - base, (step, *strides))
        held = held or not (array.flags.c_contiguous or self._arrays.has_strides)
        return self._arrays.wrap(array.copy()) if held else loader._lent(array)

    def _mixed(self, loader, s, b):
        """The fields that a mix makes: the images, and the labels if there are any. None: a view that is in a stack."""
        stacked = {k for begin, end in self._stacks for k in range(begin, end)}
        made = {
            name: None if k in stacked else self._arrays.wrap(loader._finisher.views(s, loader, k, k + 1)[0])
            for k, name in enumerate(self._views)
        }
        if "label" in self._known:
            made["label"] = loader._wrap_targets(
                _mix.targets(s, loader._labels_beside(s), b.mix, loader._info.n_mix_classes)
            )
        return made

    def _mixed_stacks(self, loader, s):
        return {begin: self._arrays.wrap(loader._finisher.views(s, loader, begin, end)) for begin, end in self._stacks}

    def _give_on_gpu(self, loader, s, b):
        """Dense fields on the GPU, ragged ones in host memory. The first dense field comes last: raw images own the
        loan from then on."""
        parts = {}
        try:
            for k, (name, field) in enumerate(self._known.items()):
                if field.ragged:
                    memory = (ctypes.c_char * max(1, self._table[k].n_bytes)).from_address(self._table[k].data)
                    parts[name] = self._ragged(loader, k, name, field, memory, self._table[k].data, True)
            dense = [(k, name, self._table[k]) for k, name in enumerate(self._names) if not self._known[name].ragged]
            made, stacks = loader._cuda.take_fields(s, dense, self._stacks, b.mix)
        finally:
            s.generation = 0
        first = dense[0][1] if dense else None
        if first in made and loader._must_copy():
            made[first] = loader._copy_of(made[first])
        parts.update(made)
        parts = {name: parts.get(name) for name in self._names}  # None: in a stack
        return parts, lambda begin, end: stacks[begin]

    def _is_copied(self, k, name, field):
        """Whether the field is a copy in any case, so that it holds no slot."""
        if field.ragged:
            return not self._wish.packs(name) or self._table[k].n_bytes <= _COPIED
        return name == "label" or (k != self._first and self._table[k].n_bytes <= _COPIED)

    def _view(self, k, memory, base):
        a = self._table[k]
        return numpy.ndarray(tuple(a.shape[: a.n_dims]), self._dtypes[k], memory, a.data - base)

    def _offsets(self, k):
        found = numpy.ctypeslib.as_array((ctypes.c_int64 * (self._n + 1)).from_address(self._table[k].offsets))
        return found - found[0]

    def _ragged(self, loader, k, name, field, memory, base, copied):
        if not self._wish.packs(name):
            return self._lists(k, field, memory, base, copied)
        values = self._view(k, memory, base)
        values = self._arrays.wrap(values.copy()) if copied else loader._lent(values)
        return Ragged(values, self._arrays.wrap(self._offsets(k)))

    def _lists(self, k, field, memory, base, copied):
        a, at = self._table[k], self._offsets(k).tolist()
        if field.text or field.bytes:
            whole = ctypes.string_at(a.data, a.n_bytes)
            rows = [whole[i:j] for i, j in zip(at, at[1:])]
            return [row.decode("utf-8", "replace") for row in rows] if field.text else rows
        values = self._view(k, memory, base)
        values = self._arrays.rows(values.copy() if copied else values)
        return [values[i:j] for i, j in zip(at, at[1:])]

    def _slot_bytes(self, s, base):
        """How far the fields of a whole batch reach, from this one's places."""
        end = 1
        for k, (name, field) in enumerate(self._known.items()):
            a, item = self._table[k], self._dtypes[k].itemsize
            for n in field.shape:
                item *= n
            if field.ragged:
                first = ctypes.c_int64.from_address(a.offsets).value
                end = max(end, a.data - first * item - base + self._most[k] * item)
            else:
                end = max(end, a.data - s.row * item - base + self._n_rows * item)
        return end

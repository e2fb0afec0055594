"""DataLoader.next_into for batches of fields: which target stands for which field, and whether it suits.

Targets come in the structure of a loop's batch. A ragged field is written to a Ragged(values, offsets) of the caller's,
or to a list, whose content the rows replace.
"""

import collections.abc
import math
import typing

import numpy

from . import _into, _lib


class Part(typing.NamedTuple):
    """One target. `number`: of the field, or of the first of the views that are stacked in it."""

    path: str
    number: int
    target: typing.Any
    n_stacked: int = 0


class Targets:
    """Checked targets of one call. `dense`: (number, tensor) of fields that are not ragged; `lists`: (number, list) of
    fields that come as a list of rows."""

    def __init__(self, reader, loader, batch, labels):
        self._reader, self._loader = reader, loader
        self._table, self.dense, self.lists = [], [], []
        parts = [part for part in _parts(reader, batch, labels) if part.target is not None]
        if not parts:
            raise TypeError(f"next_into has no target: name at least one of {', '.join(reader.names)}")
        for part in parts:
            self._add(part)

    def without(self, numbers):
        """libbatchd's targets, but those of some fields."""
        table = [entry for k, entry in self._table if k not in numbers]
        return (_lib.Target * len(table))(*table)

    def _add(self, part):
        name = self._reader.names[part.number]
        field = self._loader.fields[name]
        if field.ragged:
            self._add_ragged(part, name, field)
            return
        shape, dtype, device = self._reader.dense(self._loader, part.number)
        n, target = self._loader.batch_size, part.target
        if self._loader._permutes and self._reader.is_view(part.number):
            target = _into.channels_last(part.path, target, n, shape)
        if part.n_stacked:
            _into.check_stack(part.path, target, part.n_stacked, n, shape, dtype, device)
        else:
            _into.check(part.path, target, n, shape, dtype, device)
        for i in range(max(1, part.n_stacked)):
            self._add_dense(part.number + i, dtype, target[i] if part.n_stacked else target)

    def _add_dense(self, number, dtype, target):
        self.dense.append((number, target))
        self._point(number, dtype, target)

    def _add_ragged(self, part, name, field):
        if isinstance(part.target, list):
            self.lists.append((part.number, part.target))
            return
        if not isinstance(part.target, tuple) or len(part.target) != 2:
            raise TypeError(
                f"{part.path} is a {type(part.target).__name__}, and field {name!r} is ragged: give a list, or "
                f"batchd.Ragged(values, offsets) with room for {field.most_values} values and "
                f"{self._loader.batch_size + 1} offsets"
            )
        values, offsets = part.target
        _into.check(f"{part.path}.values", values, field.most_values, field.shape, field.dtype, None, host=True)
        _into.check(f"{part.path}.offsets", offsets, self._loader.batch_size + 1, (), "int64", None, host=True)
        self._point(part.number, field.dtype, values, offsets)

    def _point(self, number, dtype, target, offsets=None):
        name, at = self._reader.names[number].encode(), _into.address(target)
        room = (None, 0) if offsets is None else (_into.address(offsets), len(offsets))
        self._table.append((number, _lib.Target(name, _lib.DTYPES.index(dtype), at, _n_bytes(target, dtype), *room)))

    def write_lists(self, struct):
        """Replaces the content of lists by rows that are copies."""
        rows = [(target, self._reader.rows(struct, number)) for number, target in self.lists]
        for target, found in rows:
            target[:] = found


def _n_bytes(target, dtype):
    return math.prod(target.shape) * (2 if dtype == "bfloat16" else numpy.dtype(dtype).itemsize)


# ---- structure ----


def _parts(reader, batch, labels):
    """Part after part of the targets, which have the structure of a loop's batch."""
    wish, form = reader.wish, reader.form
    if reader.is_pair:
        yield from _views_of(reader, "images", batch)
        yield Part("labels", reader.names.index("label"), labels) if labels is not None else Part("labels", 0, None)
        return
    if labels is not None:
        if wish.keys is not None or wish.names is None or len(wish.names) != 2:
            raise TypeError(f"next_into takes one argument here, {_wanted(reader)}")
        batch = (batch, labels)
    for key, target in _items(reader, batch):
        name = dict(wish.keys)[key] if wish.keys is not None else key
        path = f"batch[{key!r}]" if isinstance(batch, collections.abc.Mapping) else f"{key!r}"
        if form is not None and name == reader.image:
            yield from _views_of(reader, path, target)
        elif form is not None and form.is_dict and wish.names is None and name not in reader.others:
            yield from _views_of(reader, "batch", {key: target})
        else:
            yield Part(path, reader.names.index(name), target)


def _keys(reader):
    if reader.wish.names is not None:
        return [key for key, _ in reader.wish.keys] if reader.wish.keys is not None else reader.wish.names
    if reader.form is None:
        return reader.names
    return [*(reader.form.keys if reader.form.is_dict else [reader.image]), *reader.others]


def _wanted(reader):
    keys = ", ".join(map(repr, _keys(reader)))
    tuples = reader.wish.keys is None and reader.wish.names is not None
    return f"a tuple of targets for {keys}" if tuples else f"a dictionary of targets with keys among {keys}"


def _items(reader, batch):
    """(key or name, target) pairs; a tuple has the order of `fields`, and None for what is left out."""
    keys = _keys(reader)
    if isinstance(batch, collections.abc.Mapping):
        for key in batch:
            if key not in keys:
                raise ValueError(f"next_into: batches have no {key!r}; give {_wanted(reader)}")
        return list(batch.items())
    if reader.wish.keys is not None or reader.wish.names is None or not isinstance(batch, (tuple, list)):
        if len(keys) > 1 or reader.wish.keys is not None or reader.wish.names is None:
            raise TypeError(f"next_into: a {type(batch).__name__} names no fields; give {_wanted(reader)}")
        batch = (batch,)
    if len(batch) != len(keys):
        raise ValueError(f"next_into: {len(batch)} targets; give {_wanted(reader)}, None for what is left out")
    return list(zip(keys, batch))


def _views_of(reader, path, given):
    for where, begin, n, target in reader.form.spread(path, given):
        yield Part(where, begin, target, n)


# ---- plain batches by name ----


def of_plain(known, batch, labels):
    """(images, labels) of a dictionary of targets, for a loader of images, or arrays, with labels."""
    names = list(known)
    if labels is not None:
        raise TypeError("next_into: labels is a key of the dictionary: give one argument")
    for key in batch:
        if key not in names:
            raise ValueError(f"next_into: batches have no {key!r}; give a dictionary with {names[0]!r} and 'label'")
    if names[0] not in batch:
        raise ValueError(f"next_into needs a target for {names[0]!r}; fields=('label',) makes a loader of labels alone")
    return batch[names[0]], batch.get(names[1])

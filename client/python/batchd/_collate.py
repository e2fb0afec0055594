"""A torch DataLoader's batches before they are collated: a producer collates them into its slot, without a copy.

torch's default_collate does the work, on its own table of functions, in which the one for tensors is replaced by one that
notes the rows (_tree.Rows) for torch.stack. What torch.stack would not make of them, torch makes as it always does, and
the result is copied. Imports torch, and raises ImportError if it is older than that table.
"""

import collections.abc
import operator

import torch
from torch.utils.data import DataLoader, default_collate, get_worker_info
from torch.utils.data._utils.collate import collate, collate_tensor_fn, default_collate_fn_map

from . import _tree

_dtype = operator.attrgetter("dtype")


def loader_of_samples(loader):
    """The DataLoader with Samples for batches; itself, where it has workers or a collate_fn of its own, or is of a class
    of its own."""
    if (
        type(loader) is not DataLoader
        or loader.num_workers
        or loader.batch_sampler is None
        or loader.collate_fn is not default_collate
        or get_worker_info() is not None
    ):
        return loader
    reader = object.__new__(DataLoader)
    reader.__dict__.update(loader.__dict__)
    reader.__dict__["collate_fn"] = Samples
    return reader


class Samples:
    """A batch's samples."""

    __slots__ = ("_samples",)

    def __init__(self, samples):
        self._samples = samples

    def collated(self):
        """The batch, as the DataLoader gives it."""
        return default_collate(self._samples)

    def noted(self):
        """The batch with Rows for those of its tensors that torch.stack would make."""
        samples = self._samples
        if type(samples) is not list or not samples or not _is_plain(samples[0]):
            return self.collated()
        if default_collate_fn_map.get(torch.Tensor) is not collate_tensor_fn:
            return self.collated()
        return collate(samples, collate_fn_map={**default_collate_fn_map, torch.Tensor: _note})


def _is_plain(sample):
    """Whether its containers are Python's own: others might look at the tensors that are put into them."""
    kind = type(sample)
    if kind is dict:
        return all(map(_is_plain, sample.values()))
    if kind is list or kind is tuple:
        return all(map(_is_plain, sample))
    return kind is str or kind is bytes or not isinstance(sample, (collections.abc.Mapping, collections.abc.Sequence))


def _note(rows, *, collate_fn_map=None):
    """In the place of collate_tensor_fn, with its arguments."""
    first = rows[0]
    if (
        type(rows) in (list, tuple)
        and set(map(type, rows)) == {torch.Tensor}
        and set(map(_dtype, rows)) == {first.dtype}
        and first.layout is torch.strided
        and first.device.type == "cpu"
        and not first.is_nested
        and not first.is_quantized
    ):
        return _tree.Rows(rows)
    return collate_tensor_fn(rows, collate_fn_map=collate_fn_map)

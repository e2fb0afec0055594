"""Facts about a batch besides its tensors, and positions between two batches."""

import typing

from .errors import Error


class Place(typing.NamedTuple):
    """A position between two batches: `step` is the next batch's. `over`: the epoch has no more. `order`: with a
    batch_sampler, a hash of its batches so far. `finished`: the iteration has raised StopIteration, which comes after
    the last batch."""

    epoch: int
    base: int = 0
    step: int = 0
    over: bool = False
    order: int = 0
    finished: bool = False


class Batch:
    """Facts about a batch besides its tensors. `indices`: sample numbers, int64 array; `n_padding`: number of rows at
    the end that only repeat samples so that all ranks get the same number; `n_replaced`: rows that stand for an
    undecodable sample; `n_skipped`: share, batches that this trainer has missed just before this one (policy "skip");
    `apart`: share, made for this trainer while most of its group is somewhere else; `mix`: with mix=, how
    each row was made, a structured array as batchd.h describes it, else None; `token`: for a checkpoint, as in
    DataLoader.state_dict()."""

    __slots__ = (
        "epoch",
        "base",
        "step",
        "global_batch",
        "n_rows",
        "n_padding",
        "n_replaced",
        "n_skipped",
        "apart",
        "last",
        "wait_s",
        "indices",
        "mix",
        "_order",
        "_loader",
        "_generation",
        "_data",
        "_row",
    )

    def __init__(self, facts, loader):
        """facts: _lib.facts of the struct; loader: a weak reference. `indices` and `mix` come with the tensors."""
        (
            _,
            self._data,
            _,
            _,
            self.n_rows,
            self.n_padding,
            self.n_replaced,
            _,
            self._generation,
            self.epoch,
            self.base,
            self.step,
            wait_ns,
            last,
            _,
            _,
            self.global_batch,
            self._order,
            self._row,
            self.n_skipped,
            apart,
            _,
        ) = facts
        self.wait_s, self.last, self.apart, self._loader = wait_ns * 1e-9, bool(last), bool(apart), loader

    @property
    def token(self):
        loader = self._loader()
        if loader is None:
            raise Error("the loader of this batch is gone; take the token while it is there")
        return loader._state(Place(self.epoch, self.base, self.step + 1, self.last, self._order), self.global_batch)

    # Names that users try first.
    @property
    def padding(self):
        return self.n_padding

    @property
    def replaced(self):
        return self.n_replaced

    def __repr__(self):
        return (
            f"<batch {self.step} of epoch {self.epoch}: {self.n_rows} rows, {self.n_padding} padding, "
            f"{self.n_replaced} replaced>"
        )

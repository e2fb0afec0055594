"""Orders for `sampler=`."""

import hashlib
import weakref

import numpy

from ._ranks import ranks as _ranks

_loaders = weakref.WeakKeyDictionary()  # {sampler: weak reference to the loader that it belongs to}


class WeightedSampler:
    """Draws samples by their weights, each rank its part of one draw: epoch e has what
    torch.utils.data.WeightedRandomSampler(weights, num_samples, replacement) draws from a generator seeded with seed + e,
    dealt out to the ranks as DistributedSampler deals out samples. Needs torch.

    weights       one number for each sample, none below 0; they need not add up to 1
    labels        instead of weights: balances classes, so that each class is drawn equally often, whatever its size
    num_samples   of an epoch, of all ranks together; None: as many as there are weights
    replacement   False: no sample comes twice in an epoch, and num_samples is at most the number of weights above 0
    seed          of the draws; the loader's own decides the augmentation
    rank, world_size  None: those of the loader that it is given to; without a loader, as DataLoader finds its own

    Epochs repeat, so a checkpoint in the middle of one goes on there. As sampler= it has its place in the whole draw, so
    the checkpoint of one rank is right for all, also with another batch size or world size."""

    def __init__(
        self, weights=None, *, labels=None, num_samples=None, replacement=True, seed=0, rank=None, world_size=None
    ):
        if (weights is None) == (labels is None):
            raise TypeError(
                "WeightedSampler takes either weights, one for each sample, or labels, whose classes it balances"
            )
        if isinstance(weights if labels is None else labels, numpy.ma.MaskedArray):
            raise TypeError(
                "WeightedSampler: the mask of a masked array would be lost: hand over weights.filled(0), which are never drawn, or labels "
                "without those that are masked"
            )
        weights = _balanced(labels) if weights is None else numpy.asarray(weights, numpy.float64)
        if weights.ndim != 1 or not weights.size:
            raise ValueError(f"weights has shape {weights.shape}; expected a list with one weight for each sample")
        wrong = numpy.flatnonzero(~(numpy.isfinite(weights) & (weights >= 0)))
        if wrong.size:
            raise ValueError(f"weights[{wrong[0]}] is {weights[wrong[0]]:g}; expected a number that is not below 0")
        n, n_drawn = int(numpy.count_nonzero(weights)), weights.size if num_samples is None else int(num_samples)
        if n == 0:
            raise ValueError("all weights are 0, so there is no sample to draw")
        if n_drawn < 1 or (not replacement and n_drawn > n):
            raise ValueError(
                f"num_samples is {n_drawn}; expected 1 or more"
                + ("" if replacement else f", and without replacement at most the {n} samples with weights above 0")
            )
        self.num_samples, self.replacement, self.seed, self.epoch = n_drawn, bool(replacement), int(seed), 0
        self._weights, self._weights_id, self._asked = weights, None, (rank, world_size)

    def set_epoch(self, epoch):
        self.epoch = int(epoch)

    def _hear(self, loader):
        """The loader's ranks are this sampler's, unless it was given its own."""
        heard = _loaders.get(self, lambda: None)()
        if heard is not None and heard is not loader and heard._handle is not None and None in self._asked:
            old, new = (heard.rank, heard.world_size), (loader.rank, loader.world_size)
            if old != new:
                raise ValueError(
                    f"this WeightedSampler has the part of rank {old[0]} of {old[1]} in another loader, so it cannot have that "
                    f"of rank {new[0]} of {new[1]} here: make one for each loader"
                )
        _loaders[self] = weakref.ref(loader)

    def _place(self):
        rank, world_size = self._asked
        loader = _loaders.get(self, lambda: None)()
        if loader is not None:
            rank = loader.rank if rank is None else rank
            world_size = loader.world_size if world_size is None else world_size
        rank, world_size = _ranks(rank, world_size, "shard")
        return max(rank, 0), world_size

    def __len__(self):
        return -(-self.num_samples // self._place()[1])

    def __iter__(self):
        return self._behind(0)

    def _behind(self, n):
        """This rank's part of what is left of the draw when all ranks together have had n samples of it."""
        import torch

        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        drawn = torch.multinomial(
            torch.from_numpy(self._weights), self.num_samples, self.replacement, generator=generator
        ).numpy()
        rank, world_size = self._place()
        n = min(n, len(drawn))
        whole = n + -(-(len(drawn) - n) // world_size) * world_size  # padded from the draw's beginning
        return iter(numpy.resize(drawn, whole)[n + rank :: world_size].tolist())

    def _id(self):
        """Text that is the same for samplers whose epochs are the same."""
        if self._weights_id is None:
            self._weights_id = hashlib.blake2b(self._weights.tobytes(), digest_size=8).hexdigest()
        return f"{self._weights_id},{self.num_samples},{int(self.replacement)},{self.seed}"


def _balanced(labels):
    """Weights that give every class the same sum."""
    labels = numpy.asarray(labels)
    if labels.ndim != 1 or not labels.size:
        raise ValueError(f"labels has shape {labels.shape}; expected a list with one label for each sample")
    _, classes, counts = numpy.unique(labels, return_inverse=True, return_counts=True)
    return 1.0 / counts[classes]

"""Orders for `sampler=`."""

import numpy

from ._ranks import ranks as _ranks


class WeightedSampler:
    """Draws samples by their weights, each rank its part of one draw: epoch e has what
    torch.utils.data.WeightedRandomSampler(weights, num_samples, replacement) draws from a generator seeded with seed + e,
    dealt out to the ranks as DistributedSampler deals out samples. Needs torch.

    weights       one number for each sample, none below 0; they need not add up to 1
    labels        instead of weights: balances classes, so that each class is drawn equally often, whatever its size
    num_samples   of an epoch, of all ranks together; None: as many as there are weights
    replacement   False: no sample comes twice in an epoch, and num_samples is at most the number of weights above 0
    seed          of the draws; the loader's own decides the augmentation
    rank, world_size  None: as for DataLoader

    Epochs repeat, so a checkpoint in the middle of one goes on there, with the same world size."""

    def __init__(
        self, weights=None, *, labels=None, num_samples=None, replacement=True, seed=0, rank=None, world_size=None
    ):
        if (weights is None) == (labels is None):
            raise TypeError(
                "WeightedSampler takes either weights, one for each sample, or labels, whose classes it balances"
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
        self._weights, self._asked = weights, (rank, world_size)

    def set_epoch(self, epoch):
        self.epoch = int(epoch)

    def _place(self):
        rank, world_size = _ranks(*self._asked, "shard")
        return max(rank, 0), world_size

    def __len__(self):
        return -(-self.num_samples // self._place()[1])

    def __iter__(self):
        import torch

        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        drawn = torch.multinomial(
            torch.from_numpy(self._weights), self.num_samples, self.replacement, generator=generator
        ).numpy()
        rank, world_size = self._place()
        return iter(numpy.resize(drawn, len(self) * world_size)[rank::world_size].tolist())  # padded from its beginning


def _balanced(labels):
    """Weights that give every class the same sum."""
    labels = numpy.asarray(labels)
    if labels.ndim != 1 or not labels.size:
        raise ValueError(f"labels has shape {labels.shape}; expected a list with one label for each sample")
    _, classes, counts = numpy.unique(labels, return_inverse=True, return_counts=True)
    return 1.0 / counts[classes]

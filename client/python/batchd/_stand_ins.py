"""What frameworks ask a loader for and find there: a data set, and a sampler."""

import weakref

from .errors import Error


class Dataset:
    """Stands for the data set where a framework asks a loader for it: a length and class names."""

    __slots__ = ("_loader", "_n", "_spec", "__weakref__")

    def __init__(self, loader):
        for name, value in (
            ("_loader", loader._me),  # not a cycle: an unreferenced loader closes at once
            ("_n", loader._info.n_samples),
            ("_spec", loader._spec),
        ):
            object.__setattr__(self, name, value)

    def __len__(self):
        return self._n

    def __getitem__(self, i):
        raise TypeError(
            "there are no single samples here, only batches: take one from the loader, or a subset's from another loader with sampler=[...]"
        )

    def __setattr__(self, name, value):
        raise ValueError(
            f"{name} of a loader's data set cannot be assigned, it would change nothing: the daemon makes the batches. Make another loader"
            f"{' with transform=' if name in ('transform', 'transforms') else ''}"
        )

    def __getattr__(self, name):
        hint = ""
        if name in ("samples", "targets", "imgs"):
            hint = ", which only the daemon knows; torchvision.datasets.ImageFolder counts samples and classes in the same order"
        raise AttributeError(f"{self!r} has no {name}{hint}")

    @property
    def classes(self):
        loader = self._loader()
        if loader is None:
            raise Error("the loader of this data set is gone: keep it for as long as you ask its data set")
        return loader.classes

    @property
    def class_to_idx(self):
        return {name: i for i, name in enumerate(self.classes)}

    def __repr__(self):
        return f"<batchd data set {self._spec!r}, {self._n} samples>"


class Sampler:
    """Stands for the sampler: frameworks call set_epoch on it, and some take its length."""

    def __init__(self, loader):
        self._loader = weakref.proxy(loader)

    def set_epoch(self, epoch):
        self._loader.set_epoch(epoch)

    def __len__(self):
        self._loader._settle()
        info = self._loader._info
        return info.n_samples_rank if self._loader.batch_sampler is None else info.n_samples

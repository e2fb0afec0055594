"""The caller's samplers, and the epoch that they share with the loader."""

import weakref


class OwnSampler:
    """The caller's sampler, as loader.sampler: the loader also learns of set_epoch calls on it."""

    def __init__(self, sampler, loader):
        self.__dict__.update(_sampler=sampler, _loader=weakref.ref(loader))

    def set_epoch(self, epoch):
        (self._loader() or self._sampler).set_epoch(epoch)  # the loader's set_epoch reaches the sampler

    def __iter__(self):
        return iter(self._sampler)

    def __len__(self):
        return len(self._sampler)

    def __getattr__(self, name):
        return getattr(self._sampler, name)

    def __setattr__(self, name, value):
        setattr(self._sampler, name, value)

    def __repr__(self):
        return repr(self._sampler)

    @property
    def __class__(self):  # for isinstance
        return type(self._sampler)


class Epochs:
    """Keeps the caller's samplers and the loader at one epoch, whichever of them set_epoch is called on. A direct call
    on a sampler is detected by its `epoch`, an attribute of torch's samplers and most others."""

    def __init__(self, *samplers):
        self._samplers = [s for s in samplers if hasattr(s, "set_epoch")]
        self._known = [0] * len(self._samplers)

    @staticmethod
    def _of(sampler):
        epoch = getattr(sampler, "epoch", None)
        return epoch if type(epoch) is int and epoch >= 0 else None

    def told(self):
        """The epoch that a sampler was set to since the last call, or None."""
        found = None
        for i, sampler in enumerate(self._samplers):
            epoch = self._of(sampler)
            if epoch is not None and epoch != self._known[i]:
                self._known[i] = found = epoch
        return found

    def tell(self, epoch, all_of_them=True):
        """all_of_them: also the samplers that do not reveal their epoch."""
        for i, sampler in enumerate(self._samplers):
            if all_of_them or self._of(sampler) not in (None, epoch):
                sampler.set_epoch(epoch)
            self._known[i] = self._of(sampler)

"""The caller's samplers, the epoch that they share with the loader, and where they are in it."""

import weakref

from .samplers import WeightedSampler


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


class Draw:
    """Where a loader is in the draw that its batchd.WeightedSampler deals out to the ranks. All ranks know the whole draw,
    so a state has the number of its samples that all of them together have had, which is the same for every rank."""

    def __init__(self, sampler, loader):
        self._sampler, self._loader = sampler, weakref.ref(loader)
        self._restored = None  # (epoch, step, samples had by then) of a state, while its epoch lasts

    def _had(self, place):
        epoch, step, had = self._restored or (None, 0, 0)
        if epoch != place.epoch or place.step < step:
            step = had = 0
        return had + (place.step - step) * self._loader().batch_size * self._sampler._place()[1]

    def state(self, place):
        return {"of": self._sampler._id(), "n": min(self._had(place), self._sampler.num_samples)}

    def check(self, state):
        if state["of"] != self._sampler._id():
            raise ValueError(
                "the state was saved with a WeightedSampler that draws other samples: weights, num_samples, replacement and "
                "seed must be the same"
            )

    def restore(self, place, state):
        """state: as it was saved; None: the loader that saved it had no WeightedSampler, or knew of no such states."""
        self._restored = None if state is None else (place.epoch, place.step, int(state["n"]))

    def can_begin(self, place):
        return not place.step or (self._restored is not None and self._restored[:2] == (place.epoch, place.step))

    def begin(self, place):
        """This rank's samples from there to the epoch's end."""
        if not place.step:
            self._restored = None
        return self._sampler._behind(self._had(place))


def draw(sampler, loader):
    """The Draw of a sampler that deals out one; None: it is another kind."""
    sampler = sampler.__dict__["_sampler"] if type(sampler) is OwnSampler else sampler
    return Draw(sampler, loader) if getattr(type(sampler), "__iter__", None) is WeightedSampler.__iter__ else None


def hear(loader, sampler, batch_sampler):
    """Tells samplers of ours that deal out a draw which loader's ranks they deal it to."""
    for found in (sampler, batch_sampler, getattr(batch_sampler, "sampler", None)):
        found = found.__dict__["_sampler"] if type(found) is OwnSampler else found
        if isinstance(found, WeightedSampler):
            found._hear(loader)

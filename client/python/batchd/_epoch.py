"""One iteration over a loader: its position, and the caller's own batches that are sent ahead."""

import ctypes
import operator
import reprlib

from . import _draws, _lib
from ._delivery import standing
from .errors import Error

# As torch's loader names it: profilers' viewers count waiting by the two ends of the name.
_PROFILED = "enumerate(DataLoader)#batchd.__next__"


class _Over(Exception):
    """The epoch is over."""


def _is_bool(value):
    return isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool")


def _is_number(value):
    """Whether this can be a sample's number. Bools have __index__, too, but a mask is no list of numbers."""
    if _is_bool(value):
        return False
    try:
        operator.index(value)  # which arrays have, and refuse
        return True
    except (TypeError, RuntimeError):
        return False


def _shown(value):
    """A wrong sample number as an error shows it; an array may be the whole order."""
    return reprlib.repr(value) + (", a mask's element" if _is_bool(value) else "")


class Batches:
    """A sampler's indices in batches, as torch's BatchSampler has them."""

    def __init__(self, sampler, batch_size, drop_last):
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, bool(drop_last)

    def __iter__(self):
        return self.of(self.sampler)

    def of(self, indices):
        batch = []
        for i in indices:
            batch.append(i)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self):
        n = len(self.sampler)
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


def longest(batches):
    """The rows of the longest of batches that stand in a list or array; None: they are made as they are read."""
    if not isinstance(batches, (list, tuple)) and not hasattr(batches, "tolist"):
        return None
    single = next((b for b in batches if not hasattr(b, "__len__") or getattr(b, "shape", None) == ()), None)
    if single is not None:
        raise TypeError(
            f"batch_sampler has {single!r} for a batch, which is a list of sample numbers: sampler= takes single ones"
        )
    return max(map(len, batches), default=1)


class Epoch:
    """One iteration."""

    def __init__(self, loader):
        self._loader = loader
        self._done = False
        self._ended = None  # the reason, if it was not the epoch's end
        self._profiler = loader._arrays.profiler
        self._shown = None  # its entry for Accelerate
        self._at = None  # its position; it takes its epoch when its first batch is requested
        try:
            self._prepare()
        except ConnectionError:
            pass  # __next__ raises it

    def _prepare(self):
        """Batches are made while the caller gets ready, and made again if set_epoch then selects others."""
        self._loader._begin()

    def _begin(self):
        return self._loader._begin()

    def __iter__(self):
        return self

    def __len__(self):
        return len(self._loader)

    def __next__(self):
        profiler = self._profiler
        if profiler is not None and profiler._is_profiler_enabled:
            return self._next_profiled(None)
        return self._next_of(None, None)

    def fill(self, targets):
        """Writes the next batch into the caller's targets; returns its number of rows."""
        profiler = self._profiler
        if profiler is not None and profiler._is_profiler_enabled:
            return self._next_profiled(targets)
        return self._next_of(targets, None)

    def _next_profiled(self, targets):
        with self._profiler.record_function(_PROFILED):
            return self._next_of(targets, self._profiler.record_function)

    def _next_of(self, targets, ranges):
        """ranges: a profiler's, which shows what part of the call is the wait for a batch; None: there is none. Only the
        epoch's end raises StopIteration: one that comes out of a sampler or collate_fn would end a loop without a word.

        An exception of a signal's handler may come before any line. Until the last one the batch is the next one again, and
        behind it the caller has it."""
        if self._done:
            raise StopIteration
        loader = self._loader
        known = loader.__dict__  # see Delivery
        turn, held, before = known["_turn"], False, []
        try:
            held = turn.acquire()
            batch = self._next_in_turn(known, targets, ranges, before)
            return (known["_hand_over"] and known["_hand_over"].pop()(), turn.release(), batch)[-1]
        except _Over:
            turn.release()
            raise StopIteration from None
        except BaseException as e:
            if before:
                self._done = False
                loader._undo(*before)
            if held and turn._is_owned():
                turn.release()
            if isinstance(e, StopIteration):
                raise RuntimeError(
                    "a sampler, collate_fn or another function of this loader's raised StopIteration, which is not the "
                    "epoch's end: a bare next() in it is the usual cause"
                ) from e
            raise

    def _next_in_turn(self, known, targets, ranges, before):
        """known: the loader's attributes. before: takes how it stands, to be undone if the batch does not reach the
        caller."""
        loader = self._loader
        if self._done:  # another thread has reached the end meanwhile
            raise _Over
        if self._ended is not None:
            self._check_ended()
        if known["_handle"] is None:
            loader._live()
        if self._at is None:
            at = self._begin()
            self._is_empty = at.over
            self._shown = loader._show(self)
            self._at = at
        known["_hand_over"] = None
        before.append(standing(known))
        if self._is_empty:
            code = _lib.END
        elif ranges is None:
            code = self._fetch()
        else:
            with ranges("batchd.wait"):
                code = self._fetch()
        if known["_listener"].events:
            loader._tell()
        if code == _lib.END:
            self._is_empty = True
            self._end()
            raise _Over
        if ranges is None:
            batch = self._give(known, targets, before)
        else:
            with ranges("batchd.finish"):
                batch = self._give(known, targets, before)
        self._at = known["_at"]
        if known["_may_be_alone"] and loader.last_batch.step == loader._info.n_batches // 2:
            loader._look_for_ranks()
        if self._shown is not None:
            self._shown.gave(loader.last_batch, self._is_last(loader.last_batch))
        return batch

    def _give(self, known, targets, before):
        loader = self._loader
        batch = loader._give(targets)
        if known["_collate"] is None or targets is not None:
            return batch
        try:
            return loader._collate(batch)
        except Exception as e:  # as with torch's loader the next batch follows
            if hasattr(e, "add_note"):
                e.add_note("collate_fn gets a whole batch here, in the form of one without it, and no list of samples")
            before.clear()
            if loader._hand_over:
                loader._hand_over.pop()()
            raise

    def _is_last(self, batch):
        """Whether this is known to be the epoch's last batch."""
        info = self._loader._info
        return batch.last or (info.served and batch.step + 1 == info.n_batches)

    def _end(self):
        loader = self._loader
        if self._shown is not None:
            self._shown.end()
        if loader._served is not None and loader.last_batch is not None and loader.last_batch.epoch == self._at.epoch:
            loader.last_batch.last = True  # not known when it came
        loader._move(self._at._replace(over=True, finished=True))
        self._done = True
        if loader._may_be_alone:
            loader._look_for_ranks(True)

    def _fetch(self):
        return self._loader._wait(self)

    def _check_ended(self):
        if self._ended is not None:
            raise Error(f"this iteration is over before its epoch's end: {self._ended}")


class OwnEpoch(Epoch):
    """One iteration over the caller's own index batches, sent a window ahead."""

    def _prepare(self):
        """Does nothing yet: the sampler is read once, for the epoch that the iteration gets."""

    def _begin(self):
        loader = self._loader
        told = loader._epochs.told()
        if told is not None:
            loader._wanted = told
        place = loader._next_place()
        if place.over:
            return place
        loader._epochs.tell(place.epoch, all_of_them=False)
        draws = loader._restored_draws if (place.epoch, place.step) == loader._draws_begin else None
        loader._drew_from = place.epoch, draws or _draws.before(loader.batch_sampler)
        loader._restored_draws = None
        self._n_read = 0  # batches of the caller's
        if loader._draw is not None and loader._draw.can_begin(place):
            self._n_read = place.step
            self._batches = loader.batch_sampler.of(loader._draw.begin(place))
        else:
            self._batches = _draws.iterate(loader.batch_sampler, draws)
            self._skip(place)
        self._held_back = None
        self._all_pushed = self._torn = False
        loader._started = None  # batches sent for an earlier iteration do not belong to this one
        return super()._begin()

    def _skip(self, place):
        """Passes over the batches that were given out before the checkpoint. On the rank that saved it they have to be the
        same ones; another rank has had as many of its own."""
        order = 0
        for i in range(place.step):
            batch = next(self._batches, None)
            if batch is None:
                raise ValueError(
                    f"{self._loader._own_order} has {i} batches, but the state was saved after batch {place.step} of its epoch"
                )
            indices = self._indices(batch)
            order = _lib.order(order, ctypes.addressof(indices), len(indices))
        if order != place.order and self._loader._order_of == self._loader.rank:
            self._raise_other_batches()
        self._loader._set_order(place, order)

    def _raise_other_batches(self):
        raise ValueError(
            f"{self._loader._own_order} gives other batches than it gave before the state was saved: it must repeat an "
            "epoch's batches (seed it with the epoch, as DistributedSampler does), of the same size"
        )

    def _fetch(self):
        if not self._all_pushed:
            self._push()
        return super()._fetch()

    def _is_last(self, batch):
        return self._all_pushed and batch.step + 1 == self._n_read

    def _push(self):
        loader = self._loader
        while True:
            if self._held_back is None:
                self._held_back = self._draw_whole()
                if self._held_back is None:
                    self._all_pushed = True
                    _lib.push_end(loader._live())
                    return
            buffer = self._held_back
            code = _lib.push(loader._live(), ctypes.addressof(buffer), len(buffer))
            if code == _lib.AGAIN:
                return
            if code < 0:
                loader._raise(code)
            self._held_back = None

    def _draw_whole(self):
        """An exception in the middle of a sampler ends a generator, which then looks like the epoch's end, and may have
        cost a batch."""
        if self._torn:
            raise Error(
                f"an exception has interrupted {self._loader._own_order} in this iteration, so its next batch is not known: "
                "begin another iteration, after loader.load_state_dict(loader.state_dict()) to go on from here"
            )
        self._torn = True
        drawn = self._draw()
        self._torn = False
        return drawn

    def _draw(self):
        """The sampler's next indices; None: it has no more. The time counts as the order's, not as the trainer's."""
        handle = self._loader._live()
        _lib.sampling(handle, 1)
        try:
            batch = next(self._batches, None)
            return None if batch is None else self._indices(batch)
        finally:
            _lib.sampling(handle, 0)

    def _indices(self, batch):
        loader = self._loader
        n = loader._info.n_samples
        numbers = batch.tolist() if hasattr(batch, "tolist") else list(batch)
        if set(map(type, numbers)) - {int}:
            for row, i in enumerate(numbers):
                if not _is_number(i):
                    raise TypeError(
                        f"{self._where(row)} chose {_shown(i)}, which is no sample number: they are whole numbers from 0 to "
                        f"{n - 1}"
                    )
        indices = list(map(operator.index, numbers))
        if not 1 <= len(indices) <= loader.batch_size:
            raise ValueError(
                f"batch_sampler made a batch of {len(indices)} where 1 to {loader.batch_size} rows are possible"
            )
        for i in indices:
            if not 0 <= i < n:
                raise IndexError(
                    f"{self._where(indices.index(i))} chose sample {i} of {n}: they are numbered from 0 to {n - 1}"
                )
        self._n_read += 1
        return (ctypes.c_uint64 * len(indices))(*indices)

    def _where(self, row):
        """Names the sampler of the caller's that gave a wrong index, and the place in it."""
        if isinstance(self._loader.batch_sampler, Batches):
            return f"sampler, at position {self._n_read * self._loader.batch_size + row},"
        return f"batch_sampler, in batch {self._n_read} at position {row},"

"""Where a loader is: the epoch and batch at which an iteration begins, tokens that hold them, and moving there.

An epoch's order is fixed by (seed, epoch). `base` samples of it have been consumed by all ranks before this loader's
step 0; every step consumes batch_size * world_size more. Tokens, which hold the position of a training run, are made
and read by the C library.
"""

import ctypes
import weakref

from . import _check, _draws, _epoch, _lib, _specs, _watch
from ._batch import Place
from ._delivery import UNTRIED
from ._warn import warn


class Position:
    """The part of a DataLoader that knows its place."""

    def set_epoch(self, epoch):
        """Sets the epoch of the next iteration, or of one that has begun but not been asked for a batch. A position
        restored by load_state_dict holds for its own epoch only. With join it has no effect, and warns once."""
        epoch = _check.number("epoch", epoch)
        if self._join is not None:
            if not self._warned_epoch:
                self._warned_epoch = True
                warn(
                    f"set_epoch has no effect on a loader with join={_lib.JOINS[self._join]!r}: its epochs are its share group's "
                    "(last_batch.epoch)"
                )
            return
        epoch = self._as_restored(epoch)
        self._wanted = epoch
        # A framework may name the epoch that it is in the middle of; that does not move the position.
        self._announced = not (epoch == self._at.epoch and self._at.step and not self._at.over)
        self._epochs.tell(epoch)

    def _as_restored(self, epoch):
        """A loop that iterates several times behind one set_epoch (Lightning's CombinedLoader, for its shorter loaders) has
        epochs that have counted up from the one it named. To go on, it names that one again, which then means the place of
        the restored state; any other begins from its start."""
        if self._resume is None or self._resumed_name is None:
            self._name = epoch
            return epoch
        self._name = epoch
        if epoch == self._resumed_name:
            return self._resume.epoch
        self._resume = self._resumed_name = None
        return epoch

    def _next_place(self):
        """Where the next iteration begins."""
        epoch = self._counted if self._wanted is None else self._wanted
        if self._resume is not None and self._resume.epoch == epoch:
            return self._resume
        return Place(epoch)

    def _move(self, place):
        """The iteration has reached this place: it has given a batch, or has ended. From its first batch on it counts
        as an epoch."""
        known = self.__dict__  # see Delivery
        known["_at"] = place
        known["_counted"] = place.epoch + 1
        known["_resume"] = known["_to_join"] = None
        known["_announced"] = known["_announced"] and place.finished
        if known["_wanted"] == place.epoch:
            known["_wanted"], known["_announced"] = None, False

    def state_dict(self):
        """Where a resumed training continues: behind the last batch that this loader gave out. Plain numbers and text,
        the same on all ranks. `token` has the position; the other fields are for people, except `finished`. A state
        saved behind an epoch's last batch, but before the loop over it ended, gives a resumed loop first an iteration
        without batches, as torchdata's loader does."""
        with self._turn:
            return self._state(self._next_place() if self._announced else self._at, self._n_global)

    def _state(self, place, n_global):
        b = _lib.BatchStruct(
            size_bytes=ctypes.sizeof(_lib.BatchStruct),
            epoch=place.epoch,
            base=place.base,
            step=place.step - 1,
            last=place.over,
            n_given=n_global,
            order=0 if self._draw is not None else place.order,
        )
        text = ctypes.create_string_buffer(_lib.TOKEN_BYTES)
        code = _lib.token(self._live(), ctypes.addressof(b), ctypes.addressof(text), len(text))
        if code < 0:
            self._raise(code)
        draws = self._draws_at(place)
        return {
            **({"sampler": draws} if draws else {}),
            **self._own_order_at(place),
            **({"named": self._name} if self._name is not None and self._name < place.epoch else {}),
            "version": 2,
            "epoch": place.epoch,
            "last": bool(place.over),
            "finished": bool(place.finished),
            "global_batch": n_global,
            "token": text.value.decode("ascii"),
        }

    def _draws_at(self, place):
        """What a resumed training has to give back to a random sampler of torch's."""
        if self.batch_sampler is None:
            return None
        if self._restored_draws is not None:
            return self._restored_draws
        epoch, state = self._drew_from
        is_begun = epoch is not None and (epoch != place.epoch or (place.step and not place.over))
        return state if is_begun else _draws.before(self.batch_sampler)

    def _own_order_at(self, place):
        """What a state says besides where the order is the caller's. The order's hash is of one rank's batches, which this
        names; a batchd.WeightedSampler's draw is one for all ranks."""
        if self.batch_sampler is None:
            return {}
        if self._draw is not None:
            return {"draw": self._draw.state(place)}
        rank = self._order_of if place == self._at else self.rank
        return {"saved_by": {"rank": rank, "world_size": self.world_size, "batch_size": self.batch_size}}

    def _check_own_order(self, state):
        """Whether an epoch of the caller's own order can go on here from the middle. If it cannot, that is said on every
        rank, so that none trains on alone."""
        saved, draw = state.get("saved_by"), state.get("draw")
        if draw is not None:
            if self._draw is None:
                raise ValueError(
                    "the state was saved with a batchd.WeightedSampler as sampler=, and this loader has another order"
                )
            self._draw.check(draw)
        elif saved is not None:
            then, now = (saved["batch_size"], saved["world_size"]), (self.batch_size, self.world_size)
            if then != now:
                raise ValueError(
                    f"the state was saved in the middle of an epoch with batch_size={then[0]} and world_size={then[1]}, and this "
                    f"loader has batch_size={now[0]} and world_size={now[1]}: an order of your own goes on with the same ones "
                    "only. A state from an epoch's end, the loader's own orders and batchd.WeightedSampler go on with any"
                )
            if saved["rank"] != self.rank and state.get("sampler"):
                raise ValueError(
                    f"the state is rank {saved['rank']}'s, whose random sampler drew an order of its own, and this is rank "
                    f"{self.rank}: with such a sampler each rank saves its own state"
                )

    def _set_order(self, place, order):
        """The order's hash of this rank's batches up to a restored place; the state may have had another rank's."""
        self._order_of = self.rank
        if order != place.order:
            self._at = self._resume = place._replace(order=order)
            token = self._state(self._at, self._n_global)["token"]
            p = _lib.Position(size_bytes=ctypes.sizeof(_lib.Position))
            code = _lib.resume(self._live(), token.encode(), ctypes.byref(p))
            if code < 0:
                self._raise(code)

    def load_state_dict(self, state):
        """Continues behind the batch that `state` describes, also with another batch size or world size. Raises
        InvalidError, which names the difference, if data set, seed or shuffle are not the same, and ValueError if
        `state` is not from a DataLoader. set_epoch with the same epoch keeps the position; another epoch begins from
        its start."""
        if not isinstance(state, dict) or state.get("version") != 2 or not isinstance(state.get("token"), str):
            raise ValueError("this is no state of a batchd.DataLoader")
        if self.batch_sampler is not None and not state.get("last"):
            self._check_own_order(state)
        p = _lib.Position(size_bytes=ctypes.sizeof(_lib.Position))
        code = _lib.resume(self._live(), state["token"].encode("utf-8", "replace"), ctypes.byref(p))
        self._tell()
        if code < 0:
            self._raise(code)
        self._end_iteration("load_state_dict has put the loader somewhere else since")
        self._n_global = p.n_given
        self._drew_from = None, None
        draws = state.get("sampler")
        if p.ended and draws and _draws.go_on(self.batch_sampler, draws):
            draws = None
        self._restored_draws, self._draws_begin = draws, (p.epoch, 0 if p.ended else p.step)
        self._wanted, self._announced, self._counted = None, False, p.epoch
        self._epochs.told()
        self._name = self._resumed_name = state.get("named")
        self.last_batch = None
        if p.ended:
            # The next epoch follows. If the old epoch is named explicitly, or in the rest of the loop in which the
            # state was saved, no batch is left to give.
            self._at = self._resume = Place(p.epoch - 1, over=True, finished=bool(state.get("finished", True)))
            if not self._at.finished:
                self._counted = p.epoch - 1
        else:
            self._at = self._resume = Place(p.epoch, p.base, p.step, order=p.order)
            self._order_of = state.get("saved_by", {}).get("rank", self.rank)
            if self._draw is not None:
                self._draw.restore(self._at, state.get("draw"))

    def _iterate(self, me):
        """A new iteration. me: the loader as the iteration refers to it; a proxy does not keep the loader alive."""
        self._live()
        self._settle()
        self._end_iteration("another iteration over the same loader has begun since: two at a time need two loaders")
        iterator = (_epoch.OwnEpoch if self.batch_sampler is not None else _epoch.Epoch)(me)
        self._iterator = weakref.ref(iterator)
        if self._watcher is None and self.world_size > 1 and self._on_stall != "ignore":
            self._watcher = _watch.start(self)
        return iterator

    def _iterate_from(self, n):
        """An iteration without its first n batches."""
        if self.batch_sampler is not None:
            iterator = iter(self)
            for _ in range(n):
                next(iterator, None)
            return iterator
        self._settle()
        place = self._next_place()
        self._resume = place._replace(step=place.step + n)
        return iter(self)

    def _end_iteration(self, why):
        """Ends the last iterator, which from then on raises an error with this reason: if its loop just ended, that
        would look like an epoch."""
        iterator = self._iterator and self._iterator()
        if iterator is not None and not iterator._done:
            iterator._ended = why

    def _begin(self):
        """Starts the making of batches from where the next iteration begins, unless that has been done; returns the
        place."""
        with self._turn:
            return self._begin_in_turn()

    def _begin_in_turn(self):
        self._two_slots = UNTRIED
        if self._to_join is not None and self._resume is None and self._wanted is None:
            if self._joined is None or self._struct.generation:
                self._started, self._joined = None, self._join_group()
            return self._joined
        place = self._next_place()
        if not place.over and (place != self._started or self._struct.generation):
            self._joined = None
            self._start(place)
            self._tell_again(place)
        return place

    def _tell_again(self, place):
        """Of a loop that makes new draws in a separate epoch, as nanoGPT's get_batch does, and gets the last one's draws."""
        if self._warned_again or not place.epoch or place.base or place.step or not _specs.is_endless(self._spec):
            return
        self._warned_again = True
        warn(
            f"epoch {place.epoch} of {self._spec!r} begins with the windows that the epochs before began with: an epoch of "
            "windows=random has no end, and the same windows each time. Take all batches from one iterator, iter(loader), or give "
            "another seed"
        )

    def _join_group(self):
        """Moves to where the share group is: the place of this trainer's first batch."""
        self._drop_fetched(self._live())
        p = _lib.Position(size_bytes=ctypes.sizeof(_lib.Position))
        code = _lib.AGAIN
        while code == _lib.AGAIN:  # a signal's Python handler has run by now
            code = _lib.join(self._live(), self._to_join, ctypes.byref(p), _lib.UNTIL_SIGNAL)
        if code < 0:
            self._raise(code)
        return Place(p.epoch, p.base, p.step)

    def _start(self, place):
        self._drop_fetched(self._live())
        self._started = None
        code = _lib.start(self._live(), place.epoch, place.base, place.step, None)
        if code < 0:
            self._raise(code)
        self._started = place

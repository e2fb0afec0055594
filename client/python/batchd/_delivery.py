"""Batches as they reach the caller: the wait for one, views and copies of its memory, and the warnings about it."""

import ctypes
import functools
import math
import operator
import shlex
import time
import weakref

import numpy

from . import _arrays, _into, _lib, _mix, _served, _targets
from ._batch import Batch, Place
from ._warn import warn
from .errors import Error

UNTRIED, _TRIED, _LETS_GO, _KEEPS = range(4)  # what is known about a loop that has two slots
_NAMED = 5  # bad samples named in a warning
_INT64 = numpy.dtype("int64")
# Attributes of a loader that say which batches its caller has had, and what was noted about them.
_MOVED = (
    "_at",
    "_counted",
    "_resume",
    "_to_join",
    "_announced",
    "_wanted",
    "_n_global",
    "_two_slots",
    "last_batch",
    "n_skipped",
)
standing = operator.itemgetter(*_MOVED)  # what the delivery of a batch changes, of a loader's __dict__
_BESIDE = 256  # slots' labels and indices remembered


class Delivery:
    """The part of a DataLoader that gives out batches.

    A batch of some rows of numbers is ready within a few microseconds, of which a method's `self._name` would be a part:
    reading an attribute of a class with __getattr__, and setting one of a class with __setattr__, takes many times as long
    as an entry of its __dict__. So what runs for each batch uses the dictionary."""

    def next_into(self, images, labels=None):
        """Writes the next batch into tensors of the caller's. Returns its number of rows: those are written first,
        later rows keep their content. None: the epoch is over, and the next call begins the next one. For static
        buffers and CUDA graphs: nothing is allocated and no slot is kept.

            images = torch.empty(64, 3, 224, 224, device="cuda")
            labels = torch.empty(64, dtype=torch.int64, device="cuda")
            while loader.next_into(images, labels):
                graph.replay()

        Takes torch's tensors, pinned ones too, or numpy's arrays for a loader with device="cpu"; with device="cuda"
        torch's on that GPU, written on torch's current stream. They are contiguous, have at least batch_size rows, and
        the dtype, shape and memory format that iteration gives. A graph's
        replay computes with all rows: use drop_last=True, or mask the others. labels=None: they are left out. Raises
        ValueError or TypeError for unsuitable tensors.

        Where a loop's batches are dictionaries, tuples of fields or several views, `images` has that structure with
        tensors in it, and what it leaves out (None in a tuple) is not written. A ragged field is written to a
        batchd.Ragged(values, offsets) in host memory, with room for loader.fields[name].most_values values and
        batch_size + 1 offsets, or to a list, whose content the rows (str, bytes or copied arrays) replace.

            batch = {"image": images, "text": [], "boxes": batchd.Ragged(values, offsets)}
            while n := loader.next_into(batch):
                step(batch["image"][:n], batch["text"])

        A served data set's producer says with each batch what it has: targets have the batch's own structure, or leave
        parts of it out, and a batch that does not fit them is an error that names the part.

        The epoch, its order and last_batch are as in a loop, and state_dict() is after this batch. A call
        continues the iteration that an earlier call began; a loop, load_state_dict or set_epoch with another epoch ends
        that iteration, as a loop would end another. A batch that could not be written, for example because of Ctrl-C,
        is the next batch again."""
        with self._turn:
            targets = self._targets(images, labels)
            iteration = self._filling_iteration()
            try:
                return iteration.fill(targets)
            except StopIteration:
                self._filling = None
                return None

    def _targets(self, images, labels):
        """The checked targets of one call."""
        if self._cuda is not None and self._arrays.name != "torch":
            raise TypeError("next_into on a GPU writes into torch's tensors: make the loader with arrays='torch'")
        if self._served is not None:
            return _served.Targets(images, labels)
        if self._reader is not None:
            return _targets.Targets(self._reader, self, images, labels)
        if isinstance(images, dict):
            images, labels = _targets.of_plain(self._known, images, labels)
        if self._permutes:
            images = _into.channels_last("images", images, self.batch_size, self._shape)
        self._check_targets(images, labels)
        return images, labels

    def _check_targets(self, images, labels):
        device = None if self._cuda is None else self._cuda.device
        _into.check("images", images, self.batch_size, self._shape, _lib.DTYPES[self._info.dtype], device)
        if labels is not None:
            shape, dtype = self._label_shape, _lib.DTYPES[self._info.label_dtype]
            if self._mixes and self._info.n_mix_classes:
                shape, dtype = (self._info.n_mix_classes,), "float32"
            elif self._mixes:
                raise TypeError(_into.PAIRS)
            _into.check("labels", labels, self.batch_size, shape, dtype, device)

    def _filling_iteration(self):
        """The iteration that next_into continues."""
        i = self._filling
        moved = i is not None and i._at is not None and self._wanted not in (None, i._at.epoch)
        if i is None or i._done or i._ended is not None or moved:
            i = self._filling = self._iterate(weakref.proxy(self))
        return i

    def _lend(self, memory):
        """Memory will own the batch in the struct once the caller has it."""
        known = self.__dict__
        known["_hand_over"] = [_arrays.loan(memory, known["_struct"])]

    def _give_back(self):
        """The batch in the struct has been copied, and goes back once the caller has the copy."""
        s = self._struct
        self._hand_over = [functools.partial(_lib.release, s.handle, s.slot, s.generation)]

    def _undo(self, before):
        """The batch that was made has not reached the caller: it is the next one again. before: `standing` then."""
        if self._hand_over:
            self._struct.generation = self._fetched
            self._hand_over = None
        self.__dict__.update(zip(_MOVED, before))

    def _drop_fetched(self, handle):
        """Gives back a batch that had come when a signal's handler raised, and that no caller received."""
        generation, self._struct.generation = self._struct.generation, 0
        if generation:
            _lib.release(handle, self._struct.slot, generation)

    def _wait(self, iterator):
        """Blocks for the next batch: OK or END; self._struct has it, until its generation is 0. So a batch that comes
        together with Ctrl-C is still there at the next call."""
        known = self.__dict__
        s = known["_struct"]
        if s.generation:
            s.n_leased = _lib.n_leased(s.handle)  # some may have gone since
            return _lib.OK
        handle = s.handle = known["_handle"] or self._live()
        if known["_window"] == 2:
            self._look_at_two_slots()
        began = time.monotonic() if known["_timeout"] else 0
        while True:
            code = _lib.next(handle, known["_struct_at"], known["_timeout_ms"])
            known["_beat"] = time.monotonic()
            if code == _lib.OK or code == _lib.END:
                known["_started"] = known["_joined"] = None
                return code
            if code != _lib.AGAIN:
                self._raise(code)
            iterator._check_ended()  # by another thread
            # A signal's Python handler has run by now; KeyboardInterrupt would have propagated already.
            if self._listener.events:
                self._tell()
            if self.timeout and time.monotonic() - began >= self.timeout:
                raise TimeoutError(
                    f"no batch within {self.timeout} s; `batchctl status --socket {self.socket}` says who waits "
                    "for whom"
                )

    def _look_at_two_slots(self):
        """With two slots a loop's own variable holds one while the next batch comes, so copying cannot be the rule.
        An iteration's second batch is a copy; at the third request the number of slots still held tells whether the
        loop lets go of its batches. With both slots held the loader would wait for ever."""
        held = _lib.n_leased(self._struct.handle)
        if held == 2:
            raise Error(
                "both of this loader's slots are held by batches that you kept: drop or clone them, or ask for more "
                "(n_slots)"
            )
        if self._two_slots == _TRIED:
            self._two_slots = _KEEPS if held or self._arrays.keeps_late else _LETS_GO

    def _must_copy(self, matters=True):
        """Whether the batch that has come takes the last slot; matters: warn the caller, once."""
        known = self.__dict__
        window, s = known["_window"], known["_struct"]
        n = s.n_leased if known["_cuda"] is None else _lib.n_leased(s.handle)  # a batch on a GPU may be back already
        if n < window or known["_two_slots"] == _LETS_GO:
            return False
        if window == 2 and self._two_slots == UNTRIED:
            self._two_slots = _TRIED
        elif matters:
            self._warn_copies()
        return True

    def _give(self, targets):
        """The batch in self._struct as (images, labels), with last_batch set; or, with targets, writes into them and
        returns the number of rows."""
        known = self.__dict__
        s = known["_struct"]
        b = Batch(_lib.facts(s), known["_me"])
        known["_fetched"] = b._generation
        b.mix = self._mix_table(s) if known["_mixing"] is not None else None
        known["_timing"].note(b.wait_s, b.n_rows)
        if known["_served"] is not None:
            b.indices = numpy.empty(0, _INT64)
            batch = self._served.give(self) if targets is None else self._served.write(self, targets)
        elif known["_reader"] is not None:
            batch = self._reader.give(self, s, b) if targets is None else self._reader.write(self, s, b, targets)
        elif targets is not None:
            batch = self._write(s, b, *targets)
        else:
            batch = self._images_and_labels(s, b)
        if b.n_replaced and not known["_warned_replaced"]:
            self._note_replaced()
        if b.apart == known["_was_together"]:
            self._note_apart(b.apart)
        known["n_skipped"] += b.n_skipped
        known["last_batch"] = b
        known["_n_global"] = b.global_batch
        self._move(Place(b.epoch, b.base, b.step + 1, b.last, b._order))
        s.generation = 0  # the hand-over has it
        return batch

    def _mix_table(self, s):
        """The batch's table, with mixing turned on or off as the script has it now."""
        on = bool(self._mixing.mixup_enabled)
        if on != self._mixing_told:
            _mix.turn(s, on)
            self._mixing_told = on
        return _mix.table(s)

    def _images_and_labels(self, s, b):
        known = self.__dict__
        if known["_cuda"] is not None:
            images, labels = self._take_from_gpu(s, b)
        elif known["_mixes"]:
            images, labels = self._take_mixed(s, b)
        else:
            images, labels = self._take(b)
        if known["_permutes"]:
            images = self._arrays.channels_first(images)
        if (s.n_leased >= known["_window"] or known["_cuda"] is not None) and self._must_copy():
            images = self._copy_of(images)
        return images, labels

    def _note_apart(self, apart):
        """Warns once: a trainer that was with its group no longer is."""
        self._was_together = not apart
        if apart and not self._warned_apart and _lib.POLICIES[self._info.policy] == "detach":
            self._warned_apart = True
            warn(
                "this trainer is too slow for its share group: its batches are made for it alone now, until it has caught up "
                "(policy='detach'; with 'wait' the others would wait for it)"
            )

    def _note_replaced(self):
        """Warns once: the bad samples that the daemon has found so far."""
        self._warned_replaced = True
        n, n_files, names = 0, 1, []
        try:
            for entry in _lib.status(self.socket)["loaders"]:
                if entry.get("id") == f"{self._info.loader_id:016x}":
                    n, n_files = entry.get("n_bad", 0), entry.get("n_bad_files", 1)
                    names = [bad["error"] for bad in entry.get("bad", [])]
        except Exception:  # then only the text is poorer
            pass
        what = f"{n} of {self._info.n_samples} samples cannot" if n > 1 else "a sample cannot"
        some = (
            f": {'; '.join(names[:_NAMED])}{'; ...' if len(names) > _NAMED or n > len(names) else ''}" if names else ""
        )
        handed_over = "arrow:table=" in self._spec or self._spec.startswith("memory:")  # no command finds it
        find = f"`batchctl verify {shlex.quote(self._spec)}` names all such files: mend or remove them"
        find = "Mend or remove them" if handed_over or not n_files else find
        warn(
            f"{what} be decoded so far, and others take {'their' if n > 1 else 'its'} place (last_batch.n_replaced){some}. "
            f"{find}; bad_data in the daemon's configuration says how many are allowed"
        )

    def _look(self, b):
        """A batch's memory; its images as an array over it; its labels and indices as arrays that must not outlive the
        batch: they hold no memory."""
        known = self.__dict__
        at = b._data
        if b._row:  # a slice of the group's batch: the slot begins before it
            at -= b._row * known["_row_bytes"]
        beside = known["_beside"].get((b._data, b.n_rows)) or self._look_beside(b, at)
        memory = known["_slot_class"].from_address(at)
        images = numpy.ndarray((b.n_rows, *known["_shape"]), known["_dtype"], memory, b._data - at)
        return memory, images, beside

    def _look_beside(self, b, at):
        """A slot's labels and indices; its next batch has them in the same place."""
        n, s = b.n_rows, self._struct
        if self._slot_class is None:
            self._measure(s)
        if len(self._beside) >= _BESIDE:
            self._beside.clear()
        memory = self._slot_class.from_address(at)
        self._beside[b._data, n] = beside = (
            numpy.ndarray((n, *self._label_shape), self._label_dtype, memory, s.labels - at),
            numpy.ndarray((n,), _INT64, memory, s.indices - at),
        )
        return beside

    def _take(self, b):
        memory, images, (labels, indices) = self._look(b)
        self._lend(memory)
        b.indices = indices.copy()
        known = self.__dict__
        return known["_lent"](images), known["_arrays"].wrap(labels.copy())

    def _take_mixed(self, s, b):
        b.indices = self._indices_beside(s)
        images = self._arrays.wrap(self._finisher.images(s, self))
        targets = _mix.targets(s, self._labels_beside(s), b.mix, self._info.n_mix_classes)
        self._give_back()
        return images, self._wrap_targets(targets)

    def _labels_beside(self, s):
        """The batch's labels, copied; None: it has none."""
        if not s.labels:
            return None
        n = self._label_dtype.itemsize * s.n_rows * math.prod(self._label_shape)
        whole = numpy.frombuffer(ctypes.string_at(s.labels, n), self._label_dtype)
        return whole.reshape((s.n_rows,) + self._label_shape).copy()

    def _wrap_targets(self, targets):
        return tuple(map(self._arrays.wrap, targets)) if isinstance(targets, tuple) else self._arrays.wrap(targets)

    def _write(self, s, b, images, labels):
        """Writes into the caller's memory. The batch stays in the struct until all of it is written."""
        n = s.n_rows
        if self._cuda is not None:
            b.indices = self._indices_beside(s)
            self._cuda.write(s, images, labels, b.mix)
            return n
        if self._mixes:
            b.indices = self._indices_beside(s)
            self._finisher.images_into(s, _into.address(images))
            if labels is not None:
                _mix.targets_into(s, _into.address(labels))
            self._give_back()
            return n
        _, x, (y, indices) = self._look(b)
        b.indices = indices.copy()
        _into.write(images, x, self._arrays)
        if labels is not None:
            _into.write(labels, y, self._arrays)
        self._give_back()
        return n

    @staticmethod
    def _indices_beside(s):
        return numpy.ctypeslib.as_array((ctypes.c_int64 * s.n_rows).from_address(s.indices)).copy()

    def _take_from_gpu(self, s, b):
        b.indices = self._indices_beside(s)
        try:
            return self._cuda.take(s, b.mix)
        finally:
            s.generation = 0

    def _measure(self, s):
        """The size of a slot's memory, computed from the first batch."""
        i = self._info
        rows = i.group_batch_size
        label_bytes = self._bytes_of(i.label_shape, i.n_label_dims, i.label_dtype)
        at = s.data - s.row * self._row_bytes
        self._slot_class = _arrays.slot_class(
            max(
                rows * self._row_bytes,
                s.labels - at + (rows - s.row) * label_bytes,
                s.indices - at + 8 * (rows - s.row),
            )
        )

    @staticmethod
    def _bytes_of(shape, n_dims, dtype):
        name = _lib.DTYPES[dtype]
        n = 2 if name == "bfloat16" else numpy.dtype(name).itemsize  # which numpy does not have
        for i in range(n_dims):
            n *= shape[i]
        return n

    def _copy(self, images):
        self._warn_copies()
        return self._copy_of(images)

    def _copy_of(self, images):
        copy = self._arrays.copy(images)
        return copy if self._cuda is None else self._cuda.copied(copy)

    def _warn_copies(self):
        if self._cuda is not None:
            self._cuda.check_copy()
        if not self._warned:
            self._warned = True
            n = self._info.window - 1
            warn(
                f"{n} batch{' is' if n == 1 else 'es are'} held while only {self._info.window} slots exist, so this and later "
                "batches are copied; drop batches when you are done with them, or ask for more slots (n_slots)"
            )

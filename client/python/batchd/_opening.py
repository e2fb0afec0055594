"""How a loader opens, once or again, what it learns then, and what the C library reports from then on."""

import ctypes
import os
import sys
import time

import numpy

from . import _agree, _fields, _lib, _served
from ._ranks import node_ranks, process_group, ranks
from ._warn import warn
from .errors import Error, FencedError, MismatchError, ProducerError
from .progress import Announcement, Bar, Listener

_SETTLE_S = 10


class Opening:
    """The part of a DataLoader that holds the C library's loader."""

    def _open(self):
        """Opens the C loader and sets everything that depends on its answer."""
        handle, err = ctypes.c_void_p(), ctypes.create_string_buffer(4608)
        listener = self._listener = Listener()
        self._options.on_progress, self._options.on_event = listener.on_progress, listener.on_event
        with Bar(
            self._progress,
            self._options.rank <= 0,
            Announcement(self._spec, self._options.socket or os.environb.get(b"BATCHD_SOCKET")),
        ) as listener.bar, listener:
            code = _lib.open(ctypes.byref(self._options), ctypes.byref(handle), err, len(err))
        listener.bar = None
        if listener.interrupted is not None and code == _lib.OK:
            _lib.close(handle)
        listener.check()
        if code < 0:
            raise self._explained(_lib.failure(code, err.value))
        self._handle = _lib.Loader(handle.value)
        self._struct = _lib.BatchStruct(size_bytes=ctypes.sizeof(_lib.BatchStruct))
        self._struct_at = ctypes.byref(self._struct)
        self._lent = self._arrays.sharing(self._struct)
        # The Place that the C loader was told to begin at, as long as no batch has come from there.
        self._started = None
        self._mixing_told = True  # what the C loader was told of mixup_enabled
        self._joined = None  # the same where the share group chose it
        self._closed_by(self._learn)
        self._agree()
        self._tell()
        self._tell_left_out()

    def _tell_left_out(self):
        """Warns, on one rank, of samples that are none."""
        if self._info.n_left_out and self._options.rank <= 0:
            warn(
                f"{self._info.left_out.decode('utf-8', 'replace')}. Mend them, or name other fields; bad_data in the "
                "daemon's configuration says how many are allowed"
            )

    def _explained(self, failure):
        """An error of opening, with what only this process knows: the daemon hears of a producer with its first batch."""
        if not isinstance(failure, ProducerError):
            return failure
        text, serve, more = str(failure), sys.modules.get("batchd.serve"), None
        if serve is not None and "no producer named" in text:
            more = serve.is_silent(self._spec.partition(":")[2].partition(",")[0])
        if self._earlier(text):
            more = (
                "that trainer is an earlier loader of this process, which lives as long as a variable has it (in a notebook, where "
                "a cell ran before): call its close(), or del it, before batchd.serve"
            )
        return type(failure)(f"{text}; {more}") if more else failure

    def _agree(self):
        """Ranks on other machines must have the same data, of the same batchd."""
        o, i = self._options, self._info
        if i.served or o.mode != _lib.MODES.index("shard") or o.world_size == 1:
            return
        asked = (
            o.batch_size,
            o.seed,
            o.shuffle,
            o.drop_last,
            o.transform,
            o.job,
            o.own_batches,
            o.repeats,
            o.epoch_rows,
        )
        try:
            _agree.check(
                (self._spec, *asked), (i.content_id, i.n_samples), i.daemon_version.decode(), int(o.incarnation)
            )
        except Error:
            self.close()
            raise

    def _learn(self):
        """Copies the C loader's facts; some change when another daemon serves it."""
        i = self._info = _lib.Info(size_bytes=ctypes.sizeof(_lib.Info))
        _lib.get_info(self._live(), ctypes.byref(i))
        self._fix(rank=i.rank, world_size=i.world_size, job=i.job.decode("utf-8", "replace"))
        self._shape = tuple(i.shape[: i.n_dims])
        self._label_shape = tuple(i.label_shape[: i.n_label_dims])
        # Ranks that the environment names, of which more than one are on this machine.
        o = self._options
        shard = o.mode == _lib.MODES.index("shard") and not (o.own_batches or i.served)
        self._may_be_alone = self._may_be_alone and self._follows and o.node_world_size > 1 and shard
        self._dtype = numpy.dtype(_lib.DTYPES[i.dtype]) if self._cuda is None else None
        self._label_dtype = numpy.dtype(_lib.DTYPES[i.label_dtype])
        self._slot_class, self._beside, self._window = None, {}, i.window
        self._row_bytes = self._bytes_of(i.shape, i.n_dims, i.dtype)
        self._permutes = self._channels_last and _lib.LAYOUTS[i.layout] == "NHWC"
        known = {} if i.served else _fields.describe(i)
        self._wish.check(known)
        plain = self._wish.names is None and _fields.is_plain(known) and self._form is None
        self._known = known
        self._reader = None if i.served or plain else _fields.Reader(self, known, self._wish, self._form)
        self._served = _served.Reader(self) if i.served else None
        if i.served:
            _served.loaders.add(self)
            _served.check_options(self._for_producer)
            if self._join is None and self._to_join is not None:
                self._to_join = _lib.JOINS.index("next")  # a producer makes its batches only once
            self._fix(batch_size=i.batch_size)
        if self._cuda is not None:
            self._cuda.opened(self._live(), i)

    def _open_first(self):
        """Before there is a process group each rank believes to be alone. So those that open a job of one name at one
        moment turn each other out, and come again; one that is turned out later finds its rank in _settle."""
        guessed = self._follows and self._options.world_size == 1
        self._open_with_others(FencedError if guessed else ())

    def _earlier(self, text):
        """The loaders of this process that a refused one's error is about."""
        return [
            other
            for other in _served.loaders
            if other is not self and other._handle is not None and f"feeds job '{other.job}' already" in text
        ]

    def _replaces(self, failure):
        """A notebook's cell that serves and loads, run again: its variables have the earlier run's loader, which has got the
        new producer. If that loader's iteration is over, this one takes its place."""
        earlier, serve = self._earlier(str(failure)), sys.modules.get("batchd.serve")
        name = self._spec.partition(":")[2].partition(",")[0]
        if not earlier or serve is None or not all(other._is_left() for other in earlier):
            return False
        if not serve.wait_for_newest(name, (self._options.producer_timeout_ms or 60000) / 1000):
            return False
        for other in earlier:
            other.close()
        return True

    def _is_left(self):
        """Whether this loader, of a job of its own, has been iterated, and no iteration goes on."""
        iterator = self._iterator and self._iterator()
        return self._options.job is None and self._iterator is not None and (iterator is None or iterator._done)

    def _look_for_ranks(self, at_end=False):
        """Warns at the end of the first epoch if no other rank of this machine has been seen at it: a loader that one rank
        alone makes, to evaluate, is that rank's part."""
        try:
            sessions = _lib.status(self.socket)["sessions"]
        except Exception:  # then there is nothing to tell
            return
        if any(s["job"] == self.job and s["rank"] != self.rank for s in sessions):
            self._may_be_alone = False
        elif at_end:
            self._may_be_alone = False
            n, of = self._info.n_samples_rank, self._info.n_samples
            warn(
                f"rank {self.rank} of {self.world_size} has had its part of {self._spec!r}, {n} of {of} samples, and no other "
                "rank has opened this loader: for one rank alone, as to evaluate, make it with rank=0, world_size=1"
            )

    def _settle(self):
        """A loader that was made before the process group (frameworks pass such loaders to trainers) has found itself
        alone. Once there is a group, it is opened again with this process's rank."""
        if self._handle is None or not self._follows or process_group() is None:
            return
        with self._turn:
            self._open_anew()

    def _open_anew(self):
        mode = _lib.MODES[self._options.mode]
        asked, wanted = (self._options.rank, self._options.world_size), ranks(None, None, mode)
        if wanted == asked:
            return
        state = self._state(self._resume, self._n_global) if self._resume is not None else None
        kept = self._counted, self._wanted, self._announced
        self._end_iteration("the process group was made since")
        self._drop_fetched(self._live())
        self.close()
        self._options.rank, self._options.world_size = wanted
        self._may_be_alone = True
        self._options.node_rank, self._options.node_world_size = node_ranks(wanted[1])
        self._fill_share_options(*self._share)
        self._open_with_others(MismatchError)
        if state is not None:
            self.load_state_dict(state)
        self._counted, self._wanted, self._announced = kept

    def _open_with_others(self, passing):
        """Other ranks may be in a job of this name, each alone, until they have come here too. passing: the errors that
        this may cause, which are taken for lasting only after a while."""
        deadline = None  # counted from the first refusal: the opening before it may have made an index
        replaced = None
        while True:
            try:
                return self._open()
            except ProducerError as e:
                # The daemon may not know yet that the earlier loader is closed.
                waits = replaced is not None and "already" in str(e) and time.monotonic() < replaced + _SETTLE_S
                if not waits and (replaced is not None or not self._replaces(e)):
                    raise
                replaced = replaced or time.monotonic()
            except passing:
                deadline = deadline or time.monotonic() + _SETTLE_S
                if self._options.job is None or time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def _live(self):
        """The C loader, for one call: a signal's handler or another thread may close this loader at any moment, so
        self._handle may be None in the next expression."""
        handle = self._handle
        if handle is None:
            raise Error("this loader is closed")
        return handle

    def _raise(self, code):
        self._listener.check()
        raise _lib.failure(code, b"this loader is closed" if code == _lib.CLOSED else _lib.error(self._live()))

    def _tell(self):
        """Reports events of the last call as warnings; a wait for the daemon as a line on the terminal."""
        events, self._listener.events[:] = tuple(self._listener.events), ()
        if events and events[-1][0] == _lib.EVENT_LOST and sys.stderr is not None:
            sys.stderr.write(
                f"batchd: {events[-1][1]}; waiting for it, for {self._options.reconnect_ms / 1000:g} s at most\n"
            )
            sys.stderr.flush()
        for event, text in events:
            if event == _lib.EVENT_OWN and self._options.rank <= 0 and sys.stderr is not None:
                sys.stderr.write(f"batchd: {text}\n")
                sys.stderr.flush()
            if event == _lib.EVENT_BACK:
                self._learn()
            if event in (_lib.EVENT_BACK, _lib.EVENT_CHANGED) or (
                event == _lib.EVENT_STALLED and self._on_stall == "warn"
            ):
                warn(text)

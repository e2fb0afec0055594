"""serve: a data set that only Python can make, for every trainer on the machine.

    # one process                                             # every trainer
    batchd.serve(torch_loader, name="speech")                 for batch in batchd.DataLoader("serve:speech"): ...

The producer iterates once per epoch and writes each batch into a slot of the daemon, from where trainers read it
without a copy.
"""

import contextlib
import ctypes
import hashlib
import inspect
import itertools
import os
import pickle
import random
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
import weakref

import numpy

from . import _check, _lib, _tree
from ._warn import warn
from .errors import Error, FencedError, InvalidError, LostError, ShutdownError

_RETRY_S = (0.05, 0.1, 0.2, 0.5, 1.0)
_END = object()
_HOLD_S = 30.0  # how long a background producer that fails at once waits for a trainer to tell


class Interrupted(SystemExit, KeyboardInterrupt):
    """Ctrl-C while serving: a script that does not catch it ends with the shell's code for that, without a
    traceback."""


class _Over(Exception):
    """There are no more epochs."""


def serve(
    data,
    name,
    *,
    epochs=None,
    seed=None,
    resumable=None,
    skip="sampler",
    slot_bytes=None,
    id=None,
    incarnation=None,
    socket=None,
    autostart=True,
    reconnect=30.0,
    background=False,
):
    """Feeds batches to the trainers that open batchd.DataLoader("serve:NAME"), until the epochs are over or for ever.

    data          the source, iterated once per epoch, of ready batches: a torch DataLoader, any other iterable, or a
                  function that returns one. It gets the epoch as its parameter `epoch`, or as its first one where that
                  has no default; otherwise it is called without arguments. Before each epoch, set_epoch(epoch) is called on it,
                  its dataset, its sampler and its batch_sampler where they have it. A batch may be any nesting of
                  dicts, lists and tuples of tensors, arrays, numbers, texts and bytes. A list of texts, of bytes, or of
                  arrays of different length, and a batchd.Ragged, travel as one ragged array each, which a trainer in C
                  finds by its key; a trainer in Python gets what was given
    name          the name that trainers use; a newer producer of the same name (of the same user) takes over
    epochs        number of epochs; None: for ever (an iterator, which can be iterated only once, has one)
    seed          makes epochs reproducible: torch, numpy and random are seeded with seed + epoch before each. None:
                  they are left alone
    resumable     whether an epoch's batches are the same each time it is made, so that trainers may begin in its middle
                  (after a checkpoint, or when a producer or the daemon was restarted). None: with a seed, or a sampler
                  that has set_epoch or does not shuffle
    skip          how to get to the middle: "sampler" leaves a map-style DataLoader's first batches unread, which is
                  quick, but random augmentation continues from another state; "iterate" makes them and drops them
    slot_bytes    room for a batch; None: half as much again as the first batch takes (for large batches a twentieth).
                  A larger batch, up to limits.batch_bytes in the daemon's configuration, comes in memory of its own,
                  which costs each trainer a copy; when trainers open the name again, slots have its size
    id            any text that identifies the samples; trainers' checkpoints refuse a different id
    incarnation   refused while a producer of the same name with a higher one lives. Default: TORCHELASTIC_RESTART_COUNT
    socket, autostart  of the daemon, and whether one is started where none runs, as for DataLoader
    reconnect     seconds to wait for a daemon that went away
    background    True: in a process of its own, which ends with this one; returns a Producer at once. "fork": that
                  process is forked from this one and has all its state, except its threads: their locks stay locked.
                  "fresh": it is a new interpreter, to which `data` is pickled (by cloudpickle where that has been
                  imported, as Ray does). True takes "fork" where there are no other threads, else "fresh" where that is
                  possible

    One process serves on each machine, not each rank of a job: of several producers of one name the last one stays. In
    shard mode batch k of an epoch goes to rank k % world_size of the job's trainers on its machine (LOCAL_RANK of
    LOCAL_WORLD_SIZE); with several machines each producer has to make its machine's part. An incomplete last round is
    dropped, wherever the ranks are. Raises the exceptions of `data`, after the trainers have got the traceback; returns
    when the epochs are over. Ctrl-C raises a KeyboardInterrupt that ends a script without a traceback.
    """
    _check_data(data)
    if skip not in ("sampler", "iterate"):
        raise ValueError(f"skip must be 'sampler' or 'iterate', not {skip!r}")
    if not str(name):
        raise ValueError("name must be a text that trainers find the producer by, not an empty one")
    for what, value, least in (
        ("epochs", epochs, 1),
        ("seed", seed, 0),
        ("slot_bytes", slot_bytes, 1),
        ("incarnation", incarnation, 0),
    ):
        if value is not None:
            _check.number(what, value, least)
    _check.milliseconds("reconnect", reconnect)
    _check.text("socket", socket)
    settings = dict(
        epochs=epochs,
        seed=seed,
        resumable=resumable,
        skip=skip,
        slot_bytes=slot_bytes,
        id=id,
        incarnation=incarnation,
        socket=socket,
        autostart=autostart,
        reconnect=reconnect,
    )
    if background not in (False, True, None, "fork", "fresh"):
        raise ValueError(f"background must be True, False, 'fork' or 'fresh', not {background!r}")
    if background:
        return Producer(data, name, settings, background)
    try:
        return _serve(data, name, announce=True, **settings)
    except KeyboardInterrupt:
        sys.stderr.write(f"batchd: {str(name)!r} is not served any more\n")
        raise Interrupted(128 + signal.SIGINT) from None


def _check_data(data):
    """Checks here, as the user would not see an error of a process in the background."""
    kind = type(data).__name__
    if not callable(data) and not hasattr(data, "__iter__") and not hasattr(data, "__getitem__"):
        raise TypeError(f"batchd.serve: {kind} is neither an iterable of batches nor a function that makes one")
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not hasattr(data, "__iter__"):
        raise TypeError(f"batchd.serve: {kind} has samples by number, not batches: give a torch DataLoader over it")
    if isinstance(data, (str, bytes)):
        raise TypeError(f"batchd.serve: {data[:40]!r} is a text, not an iterable of batches")


def _serve(
    data,
    name,
    *,
    epochs,
    seed,
    resumable,
    skip,
    slot_bytes,
    id,
    incarnation,
    socket,
    autostart,
    reconnect,
    hold_s=0,
    announce=False,
):
    source = _Source(data, epochs, seed, skip)
    feeder = _Feeder(name, socket, autostart, reconnect, incarnation)
    try:
        first = source.peek()
        text, leaves, rows = _tree.flatten(first)
        feeder.describe(
            source,
            leaves,
            text,
            rows,
            slot_bytes,
            id,
            source.is_reproducible() if resumable is None else bool(resumable),
        )
        del first, leaves
    except Exception:
        feeder.fail_at_once(traceback.format_exc(), hold_s)
        raise
    feeder.run(source, announce)


# ---- the source ----


class _Skipping:
    """A batch_sampler without its first batches."""

    def __init__(self, batch_sampler, n):
        self._batch_sampler, self._n = batch_sampler, n

    def __iter__(self):
        return itertools.islice(iter(self._batch_sampler), self._n, None)

    def __len__(self):
        return max(0, len(self._batch_sampler) - self._n)


class _Source:
    """The user's data, at a position in an epoch."""

    def __init__(self, data, epochs, seed, skip):
        self._data, self._seed, self._skip = data, seed, skip
        self._is_function = callable(data) and not hasattr(data, "__iter__") and not hasattr(data, "__getitem__")
        self._once = not self._is_function and iter_is_self(data)
        self.epochs = 1 if self._once and epochs is None else epochs
        self._call = _by_epoch(data) if self._is_function else None
        self._epoch = None  # the epoch that is being iterated
        self._step = 0  # of the next batch
        self._length = None  # known at its end
        self._first = 0  # number of batches skipped at its start, unread
        self._iterator = None
        self._waiting = []  # a batch that peek has read ahead

    # -- properties --

    def n_batches(self):
        with contextlib.suppress(Exception):
            return 0 if self._is_function else len(self._data)
        return 0

    def n_samples(self):
        with contextlib.suppress(Exception):
            return len(self._data.dataset)
        return 0

    def is_reproducible(self):
        """Whether an epoch is the same each time, as far as can be seen."""
        sampler = getattr(self._data, "sampler", None)
        return (
            self._seed is not None
            or isinstance(self._data, (list, tuple))
            or hasattr(sampler, "set_epoch")
            or type(sampler).__name__ == "SequentialSampler"
        )

    # -- epochs --

    def _seed_all(self, epoch):
        if self._seed is None:
            return
        random.seed(self._seed + epoch)
        numpy.random.seed((self._seed + epoch) % 2**32)
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.manual_seed(self._seed + epoch)

    def _set_epoch(self, epoch):
        batch_sampler = getattr(self._data, "batch_sampler", None)
        seen = []
        for thing in (
            self._data,
            getattr(self._data, "dataset", None),
            getattr(self._data, "sampler", None),
            batch_sampler,
            getattr(batch_sampler, "sampler", None),
        ):
            if thing is not None and hasattr(thing, "set_epoch") and all(thing is not other for other in seen):
                seen.append(thing)
                thing.set_epoch(epoch)

    def _skip_by_sampler(self, step):
        """The DataLoader without its first batches, or None where that is not possible."""
        torch = sys.modules.get("torch")
        if self._skip != "sampler" or torch is None or not isinstance(self._data, torch.utils.data.DataLoader):
            return None
        loader = self._data
        if (
            loader.batch_sampler is None
            or isinstance(loader.dataset, torch.utils.data.IterableDataset)
            or loader.persistent_workers
        ):
            return None
        shorter = object.__new__(type(loader))
        shorter.__dict__.update(loader.__dict__)
        shorter.__dict__["batch_sampler"] = _Skipping(loader.batch_sampler, step)
        shorter.__dict__["_iterator"] = None
        return shorter

    def _begin(self, epoch, step):
        if self.epochs is not None and epoch >= self.epochs:
            raise _Over
        if self._once and self._epoch is not None:
            raise InvalidError(
                f"batch {step} of epoch {epoch} was asked for, but an iterator can be gone through only once: serve a list, a DataLoader, or a "
                "function that makes an iterator"
            )
        self._iterator, self._waiting = None, []  # ends the workers of the previous epoch
        self._epoch, self._step, self._first, self._length = epoch, 0, 0, None
        self._set_epoch(epoch)
        self._seed_all(epoch)
        data = self._data
        if self._is_function:
            data = self._call(epoch)
        elif step:
            shorter = self._skip_by_sampler(step)
            if shorter is not None:
                data, self._step, self._first = shorter, step, step
        self._iterator = iter(_uncollated(data))

    def _next(self):
        if self._waiting:
            batch = self._waiting.pop()
        else:
            batch = next(self._iterator, _END)
        if batch is _END:
            self._length = self._step
        else:
            self._step += 1
        return batch

    def peek(self):
        """The very first batch, which stays the next."""
        self._begin(0, 0)
        batch = next(self._iterator, _END)
        if batch is _END:
            raise ValueError("batchd.serve: there is not a single batch to serve")
        if _is_uncollated(batch):
            batch = batch.collated()
        self._waiting.append(batch)
        return batch

    def at(self, epoch, step):
        """Batch `step` of `epoch`, perhaps not collated yet, or _END."""
        if (
            epoch != self._epoch
            or step < self._step
            and self._length is None
            or self._length is not None
            and step < self._length
        ):
            self._begin(epoch, step)
        while self._length is None and self._step < step:
            self._next()
        return self._next() if self._length is None else _END

    def length(self):
        """The counted length of the epoch that is over; 0 where no batch was counted."""
        return 0 if self._length == self._first else self._length


def iter_is_self(data):
    return hasattr(data, "__next__")


def _uncollated(data):
    """The data, as an iterable of _collate.Samples where it is a DataLoader that collates as torch does."""
    torch = sys.modules.get("torch")
    if torch is None or type(data) is not torch.utils.data.DataLoader:
        return data
    try:
        from . import _collate
    except ImportError:  # an old torch
        return data
    return _collate.loader_of_samples(data)


def _is_uncollated(batch):
    _collate = sys.modules.get(f"{__package__}._collate")
    return _collate is not None and type(batch) is _collate.Samples


def _by_epoch(function):
    """A call of the function by the epoch, which goes to a parameter of that name, or to the first one if it has no
    default: any other has a meaning of its own."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    if any(p.name == "epoch" and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) for p in parameters):
        return lambda epoch: function(epoch=epoch)
    first = parameters[0] if parameters else None
    if first is not None and first.kind in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        if first.name == "epoch" or first.default is first.empty:
            return function
    return lambda epoch: function()


# ---- the daemon's side ----


def _program():
    return os.path.basename(sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "python").encode()[:64]


class _Feeder:
    """The C producer: opens it, opens it again after the daemon went away, and fills its slots."""

    def __init__(self, name, socket, autostart, reconnect, incarnation):
        o = self._options = _lib.ProduceOptions()
        _lib.produce_options_init(ctypes.byref(o))
        if incarnation is None:
            incarnation = int(os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0)
        o.name = str(name).encode()
        o.socket = os.fsencode(socket) if socket is not None else None
        o.autostart, o.incarnation, o.program = bool(autostart), incarnation, _program()
        self._name, self._reconnect_s = str(name), reconnect
        self._handle = None
        self._fill = _lib.Fill()
        self._table = (_lib.Array * _lib.MAX_ARRAYS)()
        self._large = ""  # the last batch that did not fit its slot

    def describe(self, source, leaves, text, rows, slot_bytes, id, resumable):
        """Sets the options that follow from the first batch."""
        o = self._options
        self._fill_table(leaves)
        size = _lib.produce_size(self._table, len(leaves), len(text))
        if not size:
            raise ValueError(
                f"batchd.serve: a batch has at most {_lib.MAX_ARRAYS} arrays, and a mebibyte of texts and numbers"
            )
        if slot_bytes is not None and slot_bytes < size:
            raise InvalidError(f"slot_bytes={slot_bytes}: the first batch alone takes {size}")
        o.slot_bytes = int(slot_bytes) if slot_bytes else size + (size // 2 + 4096 if size < 1 << 24 else size // 20)
        o.n_batches, o.n_samples, o.n_rows, o.resumable = source.n_batches(), source.n_samples(), rows, resumable
        what = repr(
            (id, o.n_samples, [(leaf.path, leaf.code, leaf.shape[1:]) for leaf in leaves] if id is None else None)
        )
        o.id = int.from_bytes(hashlib.blake2b(what.encode(), digest_size=8).digest(), "little")

    def _open(self):
        handle, err = ctypes.c_void_p(), ctypes.create_string_buffer(4608)
        code = _lib.produce_open(ctypes.byref(self._options), ctypes.byref(handle), err, len(err))
        if code < 0:
            raise _lib.failure(code, err.value)
        self._handle = handle.value

    def _close(self, why):
        handle, self._handle = self._handle, None
        if handle is not None:
            _lib.produce_close(handle, why.encode("utf-8", "replace").replace(b"\0", b"?"))

    def _check(self, code):
        if code < 0:
            failure = _lib.failure(code, _lib.produce_error(self._handle))
            raise type(failure)(f"{failure} ({self._large})") if failure.code == "LIMIT" and self._large else failure
        return code

    def fail_at_once(self, why, hold_s):
        """Tells the trainers that wait already; if hold_s is not 0, waits up to hold_s seconds for a trainer first."""
        self._options.slot_bytes = 4096
        with contextlib.suppress(Error, OSError):
            self._open()
            if hold_s:
                _lib.produce_next(self._handle, ctypes.byref(self._fill), int(hold_s * 1000))
        self._close(why)

    def run(self, source, announce):
        why = "it was stopped"
        try:
            self._open()
            if announce:
                n = self._options.n_batches
                sys.stderr.write(
                    f"batchd: serving {self._name!r}{f', {n} batches an epoch' if n else ''}, to batchd.DataLoader('serve:{self._name}')\n"
                )
            while True:
                try:
                    self._serve(source)
                except (LostError, ShutdownError) as e:
                    self._reopen(e)
        except _Over:
            why = f"it has ended: there {'was one epoch' if source.epochs == 1 else f'were {source.epochs} epochs'}"
        except KeyboardInterrupt:
            why = "it was stopped (KeyboardInterrupt)"
            raise
        except SystemExit as e:
            why = f"it was stopped (exit {e.code})"
            raise
        except BaseException:
            why = "it failed:\n" + traceback.format_exc()
            raise
        finally:
            self._close(why)

    def _reopen(self, error):
        began = time.monotonic()
        self._close("")
        for attempt in itertools.count():
            try:
                return self._open()
            except ConnectionError as e:
                if time.monotonic() - began >= self._reconnect_s:
                    raise error from e
            time.sleep(_RETRY_S[min(attempt, len(_RETRY_S) - 1)])

    def _serve(self, source):
        fill = self._fill
        while True:
            _Stop.look()
            if self._check(_lib.produce_next(self._handle, ctypes.byref(fill), _lib.UNTIL_SIGNAL)) == _lib.AGAIN:
                continue  # a signal's Python handler has run by now
            batch = source.at(fill.epoch, fill.step)
            _Stop.look()
            if batch is _END:
                self._check(_lib.produce_end_epoch_at(self._handle, source.length()))
            else:
                self._put(batch)
            del batch  # before the wait for the next batch, which may reuse its memory

    def _fill_table(self, leaves):
        if len(leaves) > _lib.MAX_ARRAYS:
            raise ValueError(f"batchd.serve: a batch of {len(leaves)} arrays; at most {_lib.MAX_ARRAYS} can be sent")
        for entry, leaf in zip(self._table, leaves):
            entry.dtype, entry.n_dims = leaf.code, len(leaf.shape)
            entry.shape[: len(leaf.shape)] = leaf.shape
            entry.offsets = None if leaf.offsets is None else leaf.offsets.ctypes.data
            entry.n_rows = 0 if leaf.offsets is None else len(leaf.offsets) - 1
            entry.text = leaf.text

    def _put(self, batch):
        if _is_uncollated(batch):
            try:
                return self._write_batch(batch.noted())
            except _tree.NotStacked:
                batch = batch.collated()
        self._write_batch(batch)

    def _write_batch(self, batch):
        text, leaves, rows = _tree.flatten(batch)
        self._fill_table(leaves)
        self._check(_lib.produce_lay(self._handle, self._table, len(leaves), text, len(text)))
        self._note_large(leaves, text)
        for entry, leaf in zip(self._table, leaves):
            if entry.n_bytes:
                _write(entry, leaf)
        self._check(_lib.produce_filled(self._handle, rows))

    def _note_large(self, leaves, text):
        """The text for the error if the daemon refuses the batch."""
        size = _lib.produce_size(self._table, len(leaves), len(text))
        if size > self._fill.room_bytes and leaves:
            largest = max(leaves, key=lambda leaf: leaf.n_bytes)
            self._large = f"batch {self._fill.step} of epoch {self._fill.epoch}, whose largest part is {largest}, {largest.n_bytes} bytes"


def _write(entry, leaf):
    """Copies one array, or the pieces of a ragged one, to its place."""
    memory = (ctypes.c_char * entry.n_bytes).from_address(entry.data)
    name = _tree.DTYPES[leaf.code]
    pieces = leaf.value if isinstance(leaf.value, list) else [leaf.value]
    if isinstance(pieces[0], numpy.ndarray):
        whole = numpy.ndarray(leaf.shape, pieces[0].dtype.newbyteorder("="), memory)
    else:
        torch = sys.modules["torch"]
        whole = torch.frombuffer(memory, dtype=getattr(torch, name)).view(leaf.shape)
    if not isinstance(leaf.value, list):
        _copy(whole, leaf.value)
        return
    at = leaf.offsets.tolist()
    for i, piece in enumerate(pieces):
        _copy(whole[at[i] : at[i + 1]], piece)


def _copy(to, array):
    if isinstance(array, numpy.ndarray):
        numpy.copyto(to, array)
    elif isinstance(array, _tree.Rows):
        array.stack(to)
    else:
        to.copy_(array)


# ---- in the background ----

_PR_SET_PDEATHSIG = 1
_SYS_PIDFD_OPEN = 434
_STOP_S = 5.0
_LOOK_S = 1.0
# Libraries with threads of their own, which Python does not list: a forked child lacks them and would wait for them.
_NOT_TO_BE_FORKED = ("ray._raylet", "grpc._cython.cygrpc")
# Others have them once they are used (JAX, polars, TensorFlow), and name them. Those of OpenMP and BLAS, which do not, and
# these start again in a child or are not missed there.
_MAY_BE_MISSING = ("pt_", "jemalloc_bg", "batchd")
_FRESH = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); from batchd.serve import _in_fresh; _in_fresh()"
)


class _Stop:
    """How a producer in the background is asked to end: SIGTERM raises SystemExit. While the process forks, an
    exception would be printed and forgotten, so it is raised when the fork is over."""

    asked = False
    forking = False

    @classmethod
    def on_signal(cls, *_):
        cls.asked = True
        if not cls.forking:
            sys.exit(0)

    @classmethod
    def look(cls):
        if cls.asked:
            sys.exit(0)


def _end_with(parent):
    """Kills this process when its parent ends. PR_SET_PDEATHSIG would not do: it also fires when only the parent's
    thread that started this process ends."""
    try:
        fd = (
            os.pidfd_open(parent)
            if hasattr(os, "pidfd_open")
            else ctypes.CDLL(None, use_errno=True).syscall(_SYS_PIDFD_OPEN, parent, 0)
        )
    except OSError:
        fd = -1
    if os.getppid() != parent:
        os._exit(0)  # it ended before the watch began

    def watch():
        if fd >= 0:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            poll.poll()
        while os.getppid() == parent:  # where there are no pidfds
            time.sleep(_LOOK_S)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="batchd-parent", daemon=True).start()


def _fork_in_producer(fork=os.fork):
    """os.fork of a producer in the background. DataLoader's workers check for their parent only now and then, and a
    worker that was forked just before the parent died never notices. So the kernel kills them with the thread that
    forks them, if that is the main thread, which lives as long as the process."""
    parent, with_parent = os.getpid(), threading.current_thread() is threading.main_thread()
    _Stop.forking = True
    pid = fork()
    _Stop.forking = False
    if pid == 0 and with_parent:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(0)
    if pid:
        _Stop.look()
    return pid


def _without_stops(show):
    """What sys.unraisablehook shows, without the exception of _Stop.on_signal: in a destructor or a callback of weakref's it
    goes no further, and _Stop.look ends the process instead."""

    def hook(unraisable):
        if not (_Stop.asked and isinstance(unraisable.exc_value, SystemExit)):
            show(unraisable)

    return hook


def _become_producer(parent):
    _end_with(parent)
    sys.unraisablehook = _without_stops(sys.unraisablehook)
    os.fork = _fork_in_producer
    signal.signal(signal.SIGTERM, _Stop.on_signal)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the parent, too, which ends this process


def _in_child(parent, data, name, settings):
    _become_producer(parent)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)  # as DataLoader's workers do: the parent's OpenMP threads are missing here
    _serve_in_background(data, name, settings)


def _serve_in_background(data, name, settings):
    try:
        _serve(data, name, hold_s=_HOLD_S, **settings)
    except FencedError as e:  # a newer producer of the name, which is no mistake of this one's
        sys.stderr.write(f"batchd: {str(name)!r} is not served by process {os.getpid()} any more: {e}\n")
        sys.exit(1)


def _in_fresh():
    """The code that a new interpreter runs; standard input has its arguments."""
    parent, argv, name, settings, states = pickle.load(sys.stdin.buffer)
    pickled = sys.stdin.buffer.read()
    sys.argv = argv
    _become_producer(parent)
    try:
        data = pickle.loads(pickled)
        _restore_random_states(states)
    except Exception:
        feeder = _Feeder(
            name, settings["socket"], settings["autostart"], settings["reconnect"], settings["incarnation"]
        )
        feeder.fail_at_once(traceback.format_exc(), _HOLD_S)
        raise
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
    _serve_in_background(data, name, settings)


def _random_states():
    """This process's random states, for a fresh producer: a forked one would have them, and a script may have seeded
    them."""
    torch = sys.modules.get("torch")
    return random.getstate(), numpy.random.get_state(), torch.get_rng_state().numpy() if torch is not None else None


def _restore_random_states(states):
    random.setstate(states[0])
    numpy.random.set_state(states[1])
    if states[2] is not None:
        import torch

        torch.set_rng_state(torch.from_numpy(states[2]))


def _pickled(data):
    """Pickles for a fresh interpreter, which has not imported the user's script."""
    for module in ("cloudpickle", "ray.cloudpickle"):  # by value, lambdas and the script's own classes as well
        if module in sys.modules:
            return sys.modules[module].dumps(data)
    pickled = pickle.dumps(data)
    if b"__main__" in pickled:
        raise pickle.PicklingError("it is made of things defined in the script itself; move them to a module")
    return pickled


def _native_threads(known):
    """Names of the kernel's threads of this process that a library has named; known: native ids of Python's."""
    names = {}
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):
            with open(f"/proc/self/task/{task}/comm") as f:
                names[int(task)] = f.read().strip()
    unnamed = {names.get(os.getpid()), os.path.basename(sys.executable)[:15]}
    return sorted(
        {n for t, n in names.items() if t not in known and n not in unnamed and not n.startswith(_MAY_BE_MISSING)}
    )


def _other_threads():
    """Names of threads that would be missing in a forked child."""
    ours = ("batchd-watch",)
    threads = threading.enumerate()
    names = [t.name for t in threads if t is not threading.current_thread() and t.name not in ours]
    names += _native_threads({t.native_id for t in threads})
    return names + [name for name in _NOT_TO_BE_FORKED if name in sys.modules]


class _FreshProcess:
    """A new interpreter, with the part of multiprocessing's Process interface that is used here."""

    def __init__(self, pickled, name, settings):
        self._process = subprocess.Popen([sys.executable, "-c", _FRESH], stdin=subprocess.PIPE)
        self.pid = self._process.pid
        try:
            with self._process.stdin as pipe:
                pipe.write(pickle.dumps([os.path.abspath(p) for p in sys.path]))
                pipe.write(pickle.dumps((os.getpid(), sys.argv, name, settings, _random_states())))
                pipe.write(pickled)
        except BrokenPipeError:
            raise Error(
                f"the producer's interpreter {sys.executable} ended at once, with code {self._process.wait()}"
            ) from None

    def is_alive(self):
        return self._process.poll() is None

    def join(self, timeout=None):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)

    def terminate(self):
        self._process.terminate()

    def kill(self):
        self._process.kill()


_started = weakref.WeakSet()  # the producers of this process


def is_silent(name):
    """What to say of a producer of this process's that lives and has not come; None: there is none."""
    for producer in _started:
        if producer.name == name and producer._owner == os.getpid() and producer.is_alive():
            return (
                f"its process {producer.pid} is alive and has made no batch in {time.monotonic() - producer.began:.0f} s: if it "
                "was forked, a library whose threads it lacks may wait for them for ever (background='fresh' starts a new "
                "interpreter); if its first batch takes longer, give producer_timeout"
            )
    return None


def wait_for_newest(name, seconds):
    """Waits until, of the producers of that name that this process has started, the newest alone lives, as the others do
    until it has taken over. Whether it does."""
    ours = sorted((p for p in _started if p.name == name and p._owner == os.getpid()), key=lambda p: p.began)
    deadline = time.monotonic() + seconds
    while any(p.is_alive() for p in ours[:-1]) and time.monotonic() < deadline:
        time.sleep(_RETRY_S[0])
    return bool(ours) and ours[-1].is_alive() and not any(p.is_alive() for p in ours[:-1])


class Producer:
    """A producer in a process of its own. It ends when its epochs are over, when stop() is called, and when this
    process ends."""

    def __init__(self, data, name, settings, how):
        self.name = str(name)
        self._owner = os.getpid()
        self.began = time.monotonic()
        self._process = self._start_fresh(data, settings, how) or self._fork(data, settings)
        import atexit

        atexit.register(self.stop)
        _started.add(self)

    def _start_fresh(self, data, settings, how):
        """Returns None if the producer has to be forked."""
        others = _other_threads()
        if how == "fork" or (how != "fresh" and not others):
            return None
        try:
            return _FreshProcess(_pickled(data), self.name, settings)
        except (pickle.PicklingError, TypeError, AttributeError, NotImplementedError) as e:
            if how == "fresh":
                raise TypeError(
                    f"batchd.serve(background='fresh'): {type(data).__name__} cannot be sent to another interpreter: {e}"
                ) from e
            warn(
                f"batchd.serve(background=True) forks a process with other threads ({', '.join(others[:3])}), and what they have locked stays locked "
                f"there: if no batch comes, that is why. A fresh interpreter would do, but the data cannot be sent there ({e}); or serve in a "
                "process of its own",
            )
            return None

    def _fork(self, data, settings):
        import multiprocessing

        # Not a daemon process: those may have no children, and DataLoader workers are children. It dies with its parent
        # all the same.
        process = multiprocessing.get_context("fork").Process(
            target=_in_child, args=(os.getpid(), data, self.name, settings), name=f"batchd-{self.name}", daemon=False
        )
        process.start()
        return process

    @property
    def pid(self):
        return self._process.pid

    def is_alive(self):
        return self._process.is_alive()

    def join(self, timeout=None):
        """Waits for its end, at most timeout seconds; None: no limit."""
        self._process.join(timeout)

    def stop(self):
        """Ends it. Trainers still get the batches that are made, and then its reason."""
        if os.getpid() == self._owner and self._process.is_alive():
            self._process.terminate()
            self._process.join(_STOP_S)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.stop()

    def __repr__(self):
        return f"<batchd producer {self.name!r}, pid {self.pid}{'' if self.is_alive() else ', ended'}>"

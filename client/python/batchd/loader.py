"""DataLoader: like torch's, as far as a training loop sees it, with batches that batchd has ready.

Its arguments become the C library's options in _options.py, _opening.py holds the C library's loader, _position.py has
its place, and _delivery.py gives out its batches.
"""

import difflib
import inspect
import os
import threading
import time
import types
import weakref

from . import (
    _accelerate,
    _arrays,
    _blend,
    _check,
    _epoch,
    _fields,
    _hf,
    _lib,
    _memory,
    _mix,
    _served,
    _shards,
    _specs,
    _timing,
    _uses,
    _verdict,
)
from ._batch import Batch as Batch, Place
from ._delivery import UNTRIED, Delivery
from ._opening import Opening
from ._options import Options
from ._own_sampler import Epochs, OwnSampler, draw, hear
from ._position import Position
from ._stand_ins import Dataset, Sampler

_STALL = ("warn", "error", "ignore")


class _Default(int):
    """A default value that can be told from the same number given by the caller."""


_BATCH_SIZE = _Default(64)
# Attributes that a loader has of itself, and those in which OpenCLIP keeps what it counts.
_KEPT = ("last_batch", "n_skipped", "num_batches", "num_samples")


def device_is_cpu(device):
    return device is None or str(device).split(":")[0] == "cpu"


def _permuted(shape):
    """Of a row, as it comes with layout="channels_last"."""
    return (shape[2], *shape[:2])


class _Fixed:
    """An attribute for which an assignment would have no effect: reading gives its value if there is one, assigning is
    refused as by torch's loader."""

    def __init__(self, name):
        self._name = name

    def __get__(self, loader, owner=None):
        if loader is None:
            return self
        try:
            return loader.__dict__[self._name]
        except KeyError:
            raise AttributeError(self._name) from None  # which __getattr__ explains

    def __set__(self, loader, value):
        raise ValueError(
            f"{self._name} cannot be changed once the loader is made: "
            + (
                f"make another loader with {self._name}="
                if self._name in _OPTIONS
                else _check.advice(self._name) or "the daemon decides it"
            )
        )


class DataLoader(Options, Opening, Position, Delivery):
    """Batches of a data set, made by the batchd daemon of this machine.

    dataset       a path of which the kind is clear, or with its kind: "imagefolder:DIR", "files:LIST", "tar:SHARDS", "mds:SHARDS", "zip:FILE", "arrow:FILES", "npy:FILE[,FILE]", "npz:FILE", "idx:FILE[,FILE]",
                  "cifar:FILE[,FILE...]",
                  "tokens:FILE[,FILE...]", "blend:DATASET;;DATASET", "random:...", "serve:NAME" or a name from the daemon's configuration; or arrays and tensors in memory, handed
                  over once: (x, y), {"x": x, "y": y}, a TensorDataset; or a datasets.Dataset of HuggingFace's, whose Arrow
                  files the daemon reads, in its own order (select, shuffle, filter). A list of data sets of files is
                  one that has their samples one after the other; batchd.blend gives them weights
    batch_size    rows of a batch (default 64); with batch_sampler the most that a batch may have (default: the
                  sampler's own, or of a list of batches its longest)
    shuffle, seed, drop_last  the order is that of torch's DistributedSampler with the same settings
                  (shuffle="window" or "window:SAMPLES", by default 10000: shards in a random order, and samples at
                  random from a window that moves over them, for data that is read best in sequence;
                  shuffle="resampled" or "resampled:WINDOW": the same, with shards drawn with replacement)
    sampler       any iterable of sample indices, instead of shuffle; batch_sampler: of lists of them, instead of
                  drop_last as well. A sample that comes more than once is augmented differently each time, on every rank
    repeats       repeated augmentation: each sample comes so many times in an epoch, one after the other in the epoch's
                  order, so that ranks side by side have the same sample, and is augmented differently each time
    epoch_rows    where an epoch ends: its rows, of all ranks together; None: all. repeats=3 with
                  epoch_rows=n // 256 * 256 are the epochs of torchvision's RASampler and timm's RepeatAugSampler
    transform     "train224", "val224", a list of [op, args...] as torchvision names them, or torchvision's own objects,
                  Compose included; None: the data set's default (train224 for images). A list of such pipelines,
                  batchd.views or a dictionary makes several views of each image: images is a list or dictionary of them
    image_mode    how image files are read, by Pillow's modes: "RGB" (default); "L": one channel of 8 bits; "I;16", "I"
                  or "F": one channel of 16-bit numbers, 32-bit numbers or floats, from 16-bit and float PNG, TIFF and
                  PNM files. These three need transform; it is the same as ["Convert", mode] as its first op
    decode        "full", or "draft" for Pillow's Image.draft("RGB", size): a JPEG is decoded at 1/2, 1/4 or 1/8 of its
                  size where that has at least the pixels of a row, the largest of several views; ("draft", size) names
                  another size. The transform then works on that smaller image. Other formats come in full. The same as
                  ["Draft"] or ["Draft", size] as the transform's first op
    dtype, layout of images: "float32" (default), "float16" or "uint8" (torch and numpy dtypes work as well); "NCHW"
                  (default), "NHWC", or "channels_last" (or torch.channels_last): NHWC in memory, and [rows, 3, height,
                  width] to see, in torch's memory format. Data without images comes as it is stored, and takes neither.
                  With uint8 the
                  caller normalises: `normalize` has (mean, std). Images of mode I;16, I or F are "uint16", "int32" or
                  "float32", and floats after ToDtype
    rank, world_size  default: torch.distributed if initialised (also later), else RANK and WORLD_SIZE, else (mode "shard")
                  what srun, Open MPI or MPICH set, else alone. For
                  a served data set ("serve:NAME"), whose producer serves one machine: among the job's trainers on this
                  machine (LOCAL_RANK of LOCAL_WORLD_SIZE, or the equivalents of Open MPI, MPICH or Slurm), unless one
                  of the two is given
    job           trainers with the same job share one loader; default: a name that fits this run (torchrun) or this
                  process
    mode          "shard": each rank gets its part of the epoch; "share": every trainer gets every batch. With
                  world_size=n the n trainers begin together and keep step; without it up to 64 trainers (8 if one has
                  its batches on a GPU) come and go as they like
    policy        share: what happens when a trainer is so far behind that no slot is left for the others. "wait": they
                  wait for it (default with a world_size); "skip": it misses the oldest batches, last_batch.n_skipped
                  has their number; "detach": it continues where it was, with batches made for it alone, until it has
                  caught up (default without). The same for all of a job
    join          share without world_size: where a trainer without a position of its own begins. "next": with the
                  group's next batch; "epoch": with the next epoch's first, for which it waits until the group gets
                  there (within `timeout`); "start": with this epoch's first, from where it catches up, in batches made
                  for it alone, from the caches where they hold them. With join the group sets the epochs, and set_epoch
                  has no effect. None: as set by set_epoch or load_state_dict, else as "start"; of a producer's batches,
                  which are made once, as "next", and "start" is refused
    group_batch_size  share: rows of the group's batches, the same for all of a job; each trainer takes them in slices
                  of its own batch_size, which has to divide it, without a copy: the slices are the batches that it
                  would get alone. None: batch_size
    num_workers   threads that the daemon should use for this loader; None: the daemon decides
    device        "cpu", or "cuda[:n]": batches arrive in the GPU's memory, put there by the daemon where this process
                  can map its memory (`transport`; a warning says where not, and why); one kernel then makes the images
                  on torch's current stream. Allows dtype "bfloat16" too. For a served data set: its tensors
    raw           with a GPU: images are the daemon's memory itself, uint8 NHWC (arrays as stored), without a copy. They
                  go back when the last tensor over them is gone and the work queued by then is done; autograd keeps
                  what backward needs. Do not write into them. Call record_stream for every stream other than the one
                  that was current when the batch came. Streams must outlive the tensors: a driver may end the
                  process that asks about a stream that was destroyed. With group_batch_size a slice may begin at any
                  row: clone it for a library that wants 256-byte alignment
    n_slots       batches ahead, those that you hold included; None: the daemon decides
    writable      True maps batches writable from the start, which in-place system calls (readinto) need; ordinary
                  in-place arithmetic works either way, and no other process ever sees it
    timeout       seconds to wait for a batch before TimeoutError; 0: no limit
    reconnect     seconds to wait for a daemon that went away before the error is raised; the loader continues exactly
                  where it was
    on_stall      what to do when another rank of the job is stalled (stopped, or hanging): "warn", "error"
                  (StalledError instead of the next batch, which the call after it gives), or "ignore"
    incarnation   of the job; a higher one ends all sessions of a lower one. Default: TORCHELASTIC_RESTART_COUNT
    arrays        "torch", "numpy", "jax", "dlpack" (batchd.Array, which any library's from_dlpack takes without a copy)
                  or, with device="cuda", "cupy"; None: torch if it is installed, else numpy ($BATCHD_ARRAYS). On a GPU
                  "jax" and "dlpack" need raw=True
    socket        of the daemon; the loader waits for a daemon that is being restarted. None: $BATCHD_SOCKET, your
                  daemon's, the system's, or a daemon is started for you (autostart)
    progress      a bar on the terminal while the daemon indexes the data; None: if there is a terminal
    apply_exif    turn images upright by their EXIF orientation; None: those of HuggingFace's data sets alone, as its
                  package does
    producer_timeout  seconds to wait for the producer of a served data set ("serve:NAME"; None: 60)
    fields        names of the data set's fields: ("image", "text") makes batches tuples in that order, {"pixel_values":
                  "image", ...} dictionaries. Fields that are not named cost nothing: without the image nothing is
                  decoded. The same for all of a job. None: (images, labels), or a dictionary of all fields where the
                  data set has others. `fields` of the loader describes them. For shards, names or values are
                  extensions: {"image": "jpg;png", "text": "txt", "label": "cls"}
    packed        ragged fields as batchd.Ragged(values, offsets), without a copy where they are large: True for all, or
                  their names. Otherwise texts are a list of str, bytes a list of bytes, and others a list of arrays
    collate_fn    called in this process with each batch as described above, which is no list of samples as torch's gets;
                  what it returns is the batch. What it does not touch stays without a copy. torch's default_collate does
                  nothing here
    mix           how rows of a batch are mixed while numbers are made of their pixels: batchd.MixUp(alpha, num_classes),
                  batchd.CutMix, batchd.RandomChoice([...]), the same of torchvision.transforms.v2, or timm.data.Mixup
                  (also given as collate_fn). Labels become soft targets, float32 [rows, num_classes]; without
                  num_classes they become (labels, partners' labels, weight of the first). raw=True keeps images and
                  labels clean. last_batch.mix has what was drawn; it depends on seed, epoch and position only
    mixup_off_epoch  from this epoch on rows are not mixed; 0: never. timm's mixup_enabled works as well, of the Mixup
                  object or of the loader (loader.mixup_enabled = False)
    length        of a "tokens:" data set: the tokens of x, and of y, which is one token ahead

    Each iteration is an epoch. set_epoch(e) before its first batch sets its number, otherwise epochs count up from 0.
    An iterator that was asked for no batch does not count. A new iteration ends the one before: two at a time need two
    loaders. Your own sampler and the loader share one epoch, whichever of them set_epoch is called on. last_batch has
    the last batch's sample indices, and more (batchd.Batch). Threads may take batches of one iteration in turn, and any
    thread may close the loader: the others then get an error.
    Images are views of memory on loan from the daemon, which goes back when the last tensor over it is gone. A loop
    that keeps all its slots gets copies instead.
    For loops that must not allocate, next_into fills tensors of the caller's, as CUDA graphs need.
    A loader is not picklable and does not work in forked children: make it in the process that iterates over it.
    """

    def __init__(
        self,
        dataset,
        batch_size=_BATCH_SIZE,
        shuffle=False,
        *,
        seed=0,
        drop_last=False,
        repeats=1,
        epoch_rows=None,
        sampler=None,
        batch_sampler=None,
        transform=None,
        image_mode=None,
        decode="full",
        dtype=None,
        layout=None,
        rank=None,
        world_size=None,
        job=None,
        mode="shard",
        num_workers=None,
        device="cpu",
        socket=None,
        n_slots=None,
        apply_exif=None,
        writable=False,
        timeout=0,
        reconnect=30.0,
        incarnation=None,
        arrays=None,
        autostart=True,
        progress=None,
        raw=False,
        policy=None,
        join=None,
        group_batch_size=None,
        on_stall="warn",
        producer_timeout=None,
        fields=None,
        packed=False,
        collate_fn=None,
        mix=None,
        mixup_off_epoch=0,
        length=None,
        **others,
    ):
        self._handle = None
        self._turn = threading.RLock()  # of the threads that share an iterator; a signal's handler may enter too
        _check.no_others(others, DataLoader.__init__)
        if sampler is not None:
            if shuffle or batch_sampler is not None:
                raise ValueError(
                    f"sampler decides the order itself: leave {'shuffle' if shuffle else 'batch_sampler'} out"
                )
            self._epochs = Epochs(sampler)
            if hasattr(sampler, "set_epoch"):
                sampler = OwnSampler(sampler, self)
            batch_sampler = _epoch.Batches(sampler, self._check_batch_size(batch_size, None), drop_last)
        else:
            self._epochs = Epochs(batch_sampler, getattr(batch_sampler, "sampler", None))
        self._me = weakref.ref(self)
        self._for_producer = {
            "join": join == "start",
            "batch_size": batch_size is not _BATCH_SIZE and batch_size is not None,
            "shuffle": shuffle,
            "drop_last": drop_last,
            "batch_sampler": batch_sampler is not None,
            "transform": transform is not None,
            "image_mode": image_mode is not None,
            "decode": decode not in (None, "full"),
            "dtype": dtype is not None,
            "layout": layout is not None,
            "seed": seed != 0,
            "num_workers": num_workers,
            "fields": fields is not None,
            "packed": bool(packed),
        }
        name = None if dtype is None else _check.dtype_name(dtype)
        asked_layout, (layout, channels_last) = layout, _check.layout(layout)
        if raw:
            _uses.check_raw(name, layout)
        beside_raw = job is not None  # it is uint8 and NHWC, and all trainers of its job have to say so
        used = {
            "dtype": None if raw or (beside_raw and name == "uint8") else name,
            "layout": asked_layout
            if channels_last or not (raw or (beside_raw and str(layout).upper() == "NHWC"))
            else None,
            "image_mode": image_mode,
            "decode": None if decode == "full" else decode,
            "apply_exif": apply_exif or None,
            "packed": True if packed is True else None,
        }
        dtype, layout = "float32" if dtype is None else dtype, "NCHW" if layout is None else layout
        collate_fn = _check.collate(collate_fn)
        if collate_fn is not None and mix is None and _mix.is_mix(collate_fn):
            collate_fn, mix = None, collate_fn
        self._mixing = _mix.switch(mix)
        mix = _mix.text(mix, _check.number("mixup_off_epoch", mixup_off_epoch))
        if mix is not None and not raw and _check.dtype_name(dtype) == "uint8":
            raise ValueError(
                "mix makes floats of pixels: leave dtype='uint8' out, or give raw=True for clean pixels and last_batch.mix"
            )
        self._mixes = mix is not None and not raw
        self._finisher = _mix.Finisher() if self._mixes and device_is_cpu(device) else None
        self._collate = collate_fn  # no attribute of torch's name, by which frameworks would take the loader apart
        self._iterator = None
        self._filling = None  # the iteration of next_into; it holds no reference to the loader
        self._arrays = _arrays.choose(arrays)
        _arrays.check_layout(self._arrays, channels_last, asked_layout)
        if writable and not self._arrays.can_write:
            raise ValueError(
                f"writable=True is for writing into batches, and arrays={self._arrays.name!r} cannot be written to: leave it out"
            )
        self._channels_last = channels_last
        self._arrays.keep_out_of_graphs(
            DataLoader.__iter__,
            DataLoader.set_epoch,
            DataLoader.state_dict,
            DataLoader.next_into,
            _epoch.Epoch.__next__,
        )
        self._cuda = self._check_device(device, raw)
        if raw:
            dtype, layout = "uint8", "NHWC"
        self._has_pictures = True  # as far as the name of a data set tells
        in_memory, fields, classes = _hf.hand_over(dataset, self, fields, image_mode)
        if in_memory is None:
            in_memory, fields = _memory.hand_over(dataset, self, fields)
        if in_memory:
            _specs.complete(in_memory, length, seed, shuffle)
            self._spec, fields = _shards.with_fields(in_memory, fields)
        else:
            self._spec, fields = _blend.complete(dataset, length, seed, shuffle, fields)
        fields = _specs.fields(_blend.first(self._spec)) if fields is None else fields
        if self._spec.startswith("serve:"):  # others that are served show it when they are open
            _served.check_options(self._for_producer)
        self._wish = _fields.Wish(fields, packed)
        self._fix(batch_sampler=batch_sampler, drop_last=bool(drop_last), num_workers=num_workers or 0)
        self.timeout = timeout
        if batch_sampler is not None and sampler is None and (shuffle or drop_last):
            raise ValueError("batch_sampler decides order and sizes itself: leave shuffle and drop_last out")
        if batch_sampler is not None and (repeats != 1 or epoch_rows is not None):
            raise ValueError(
                f"your own sampler decides itself how often a sample comes: leave {'repeats' if repeats != 1 else 'epoch_rows'} out"
            )
        self._fix(batch_size=self._check_batch_size(batch_size, batch_sampler))
        self._progress = progress
        self._may_be_alone = True  # whether other ranks of the job are still to be seen
        self._follows = rank is None and world_size is None  # also a process group that is made later
        self._share = policy, join, group_batch_size
        self._fill_options(types.SimpleNamespace(**locals()))
        self._fill_share_options(*self._share)
        self._on_stall = _STALL[_check.choice("on_stall", on_stall, _STALL)]
        self._options.stall_error = self._on_stall == "error"
        self._beat = self._opened = time.monotonic()
        self._watcher = None
        _accelerate.adapt(DataLoader)
        self._open_first()
        if not self._info.served:
            self._closed_by(_uses.check, self._spec, self._info, self._known, used)
        if epoch_rows is not None and epoch_rows > self._info.n_samples * repeats:
            most = self._info.n_samples * repeats
            self.close()
            raise ValueError(f"epoch_rows is {epoch_rows}, and an epoch has {most} rows: each sample {repeats} times")
        self._draw = draw(sampler, self)
        self._own_order = "batch_sampler" if sampler is None else "sampler"
        self._order_of = self.rank  # the rank whose batches _at.order is of
        try:
            hear(self, sampler, batch_sampler)
        except ValueError:
            self.close()
            raise
        self._fix(dataset=Dataset(self), sampler=Sampler(self) if sampler is None else sampler)
        # Where the next iteration begins. An iteration takes its epoch with its first batch; only then do these change.
        self._counted = 0  # its epoch, unless set_epoch names it
        self._wanted = None  # set_epoch's argument
        self._name = None  # the same, as long as no other follows; epochs may have counted up since
        self._resumed_name = None  # the same when a restored state was saved, if they had
        self._resume = None  # a _Place where the iteration of its epoch begins
        self._at = Place(0)  # behind the last batch given out: where a resumed training continues
        self._announced = False  # set_epoch has named another epoch than _at's since, where a training then continues
        self._drew_from = None, None  # the epoch begun last, and what a random sampler of torch's drew it from
        self._restored_draws = None  # the same of a restored state, until its epoch begins
        self._draws_begin = None  # that epoch, and the step in it
        self._n_global = 0
        self._hand_over = self._fetched = None  # the last step of a batch's delivery, in a list; its generation
        self._two_slots = UNTRIED
        self._warned = False
        self._warned_apart = self._warned_epoch = self._warned_replaced = self._was_together = False
        self._warned_again = False
        self._classes = classes
        self.last_batch = None
        self._timing = _timing.Timing()
        self.n_skipped = 0  # share, policy "skip": batches missed in all

    # ---- its arguments ----

    def _closed_by(self, check, *arguments):
        """Calls a check that needs the open loader, which an exception closes."""
        try:
            check(*arguments)
        except Exception:
            self.close()
            raise

    def _check_device(self, device, raw):
        if device_is_cpu(device):
            if raw:
                raise ValueError("raw=True is for batches on a GPU: give device='cuda'")
            self._arrays.check_cpu()
            return None
        return self._arrays.cuda(device, bool(raw))

    def _check_batch_size(self, batch_size, batch_sampler):
        if batch_sampler is None:
            if batch_size is None and not self._spec.startswith("serve:"):
                raise ValueError(
                    "batch_size=None: there are no single samples here, only batches; batch_size=1 makes batches of one"
                )
            batch_size = _BATCH_SIZE if batch_size is None else batch_size
        elif batch_size is None or batch_size is _BATCH_SIZE:
            batch_size = getattr(batch_sampler, "batch_size", None)
            if batch_size is None:
                batch_size = _epoch.longest(batch_sampler)
            if batch_size is None:
                raise ValueError(
                    "batch_sampler does not say how large its batches get: give batch_size, the most rows one may have"
                )
        return int(_check.number("batch_size", batch_size, 1, 2**32 - 1))

    def close(self):
        """Ends the session. Tensors made from its batches stay valid. Any thread may call it: a thread that waits for a
        batch gets an error."""
        if self._handle is not None:
            _verdict.say_at_end(self, self._opened)
        handle, self._handle = self._handle, None
        if handle is not None:
            # If the lock is taken, another thread, or the code that a signal's handler interrupted, is about to give it
            # to its caller.
            if not self._turn._is_owned() and self._turn.acquire(blocking=False):
                try:
                    self._drop_fetched(handle)
                finally:
                    self._turn.release()
            _lib.close(handle)

    def __del__(self, _release=_lib.release, _close=_lib.close):
        # Bound here: when a script ends with the loader in a global, this package's modules may be empty already.
        handle, self._handle = getattr(self, "_handle", None), None
        if handle is not None:
            if self._struct.generation:
                _release(handle, self._struct.slot, self._struct.generation)
            _close(handle)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __reduce_ex__(self, protocol):
        raise TypeError(
            "a batchd.DataLoader cannot be pickled or copied: it is a connection. "
            "Make one in the process that iterates over it"
        )

    def __repr__(self):
        if "_info" not in self.__dict__:  # not opened, or not yet
            return "<batchd.DataLoader, not open>"
        return (
            f"<batchd.DataLoader {self._spec!r}, {self._info.n_samples} samples, rank {self.rank} of {self.world_size}, "
            f"batches of {self.batch_size}{'' if self._handle else ', closed'}>"
        )

    # ---- what it is ----

    def __setattr__(self, name, value):
        """An attribute that would have no effect is refused. A subclass may keep what it likes."""
        if name[0] != "_" and type(self) is DataLoader and not hasattr(DataLoader, name) and name not in _KEPT:
            close = difflib.get_close_matches(name, [n for n in dir(DataLoader) if n[0] != "_"], 1)
            raise AttributeError(
                f"a batchd.DataLoader has no {name}, and assigning it would change nothing"
                + (f" (did you mean {close[0]}?)" if close else "; keep it in your own variable")
            )
        object.__setattr__(self, name, value)

    def _fix(self, **values):
        """Sets attributes that users may not set."""
        self.__dict__.update(values)

    def __getattr__(self, name):
        advice = _check.advice(name)
        if advice:
            raise AttributeError(
                f"a batchd.DataLoader has no {name} ({advice}): it is no torch.utils.data.DataLoader, and frameworks get it as it is"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __len__(self):
        """Number of batches in a whole epoch for this rank. Raises TypeError if the producer of a served data set does
        not know it."""
        self._settle()
        if self._served is not None and not self._info.n_batches:
            raise TypeError(
                f"the number of batches in an epoch of {self._spec!r} is not known: its producer serves an iterable without a length"
            )
        return len(self.batch_sampler) if self.batch_sampler is not None else self._info.n_batches

    @property
    def timeout(self):
        """Seconds to wait for a batch before TimeoutError; 0: no limit. May be assigned."""
        return self._timeout

    @timeout.setter
    def timeout(self, timeout):
        timeout = timeout or 0
        self._timeout_ms = _check.milliseconds("timeout", timeout, most=2**31 - 1) if timeout else _lib.UNTIL_SIGNAL
        self._timeout = timeout

    @property
    def mixup_enabled(self):
        """Whether rows are mixed. May be assigned; timm's Mixup that was given as mix has the same switch, and each batch
        looks at it as it is given out. False without mix."""
        return self._mixing is not None and bool(self._mixing.mixup_enabled)

    @mixup_enabled.setter
    def mixup_enabled(self, on):
        if self._mixing is not None:
            self._mixing.mixup_enabled = on
        elif on:
            raise ValueError("mixup_enabled: this loader was made without mix=, so there is nothing to turn on")

    @property
    def classes(self):
        """Class names (str) in the order of their labels, or []."""
        if self._classes is None:
            with self._turn:
                names = [_lib.class_name(self._live(), i) for i in range(self._info.n_classes)]
                if None in names:
                    self._raise(_lib.AGAIN)
                self._classes = [os.fsdecode(n) for n in names]
        return self._classes

    @property
    def normalize(self):
        """(mean, std) of the pipeline's Normalize, in units of 0..1, when dtype is uint8 and normalising is left to
        you; else None. Where views differ in it: {name of the field: (mean, std) or None}."""
        i = self._info
        if _lib.DTYPES[i.dtype] != "uint8":
            return None
        found = {
            f.name.decode(): (tuple(f.mean), tuple(f.std)) if f.has_normalize else None
            for f in i.fields[: i.n_fields]
            if f.view
        }
        return found if len(set(found.values())) > 1 else next(iter(found.values()), None)

    @property
    def transport(self):
        """How batches arrive. "memfd": in shared memory of the CPU; on a GPU "cuda-ipc" or "cuda-vmm-fd": in the
        daemon's memory there, mapped by CUDA IPC (the daemon's own user) or as a descriptor (other users, containers);
        "copy": copied by this process, for a reason that a warning gives."""
        return _lib.TRANSPORTS[self._info.device_path]

    @property
    def socket(self):
        """The address on which the daemon listens."""
        return os.fsdecode(self._info.socket)

    def verdict(self, period="last_minute"):
        """Whether the input limits this trainer, where, and what would help: one line of text, with the numbers as
        attributes (help(batchd.Verdict)). period: "last_5s", "last_minute", or "since_start" of the connection."""
        self._live()
        return _verdict.ask(self.socket, self.job, self.rank, period)

    def timing(self):
        """What its input costs this loop, for a logger: a dictionary of `batches` and `rows` so far, `data_time` (the
        wait for the last batch) and `step_time` (from the batch before to it), `wait_s` (all waits), `wait_p50_s` and
        `wait_p99_s` (of the last 1024 batches), `wait_share` (the part of the time since the first call for a batch that
        was spent in waits) and `rows_per_s`. Times are in seconds."""
        return self._timing.dict()

    def __iter__(self):
        return self._iterate(self)

    def __getitem__(self, index):
        """Only for its TypeError: torch's DataLoader would ask a data set in this way."""
        raise TypeError(
            "a batchd.DataLoader gives batches in its own order, none by an index: iterate over it. It takes the place of "
            "torch.utils.data.DataLoader, so write nothing around it; one image at a time is batchd.load's"
        )

    @property
    def fields(self):
        """{name: batchd.Field} of what batches consist of. For a served data set: of the last batch, if its producer
        makes dictionaries."""
        if self._served is not None:
            return self._served.fields()
        if not self._permutes:
            return dict(self._known)
        views = {f.name.decode() for f in self._info.fields[: self._info.n_fields] if f.view}
        return {name: f._replace(shape=_permuted(f.shape)) if name in views else f for name, f in self._known.items()}

    def record_stream(self, images, stream):
        """raw: work on another torch stream reads `images` too; their memory goes back only after the work that the
        stream was given while they lived. (A batch that would have taken the last slot comes as a copy, for which this
        is torch's own record_stream.) `stream` must outlive them. Raises ValueError if `images` are no raw images
        of this loader, and for more than 8 streams."""
        if self._cuda is None:
            raise ValueError("record_stream is for raw images on a GPU")
        self._cuda.add_stream(images, stream)

    def _show(self, iterator):
        """Tells Accelerate, if the script has it, of an iteration over a loader of ours."""
        return _accelerate.begin(iterator, DataLoader, self.world_size, self.batch_size)


_OPTIONS = tuple(n for n in inspect.signature(DataLoader.__init__).parameters if n not in ("self", "others"))
for _name in (*_OPTIONS, "rank", "world_size", "job", *_check.TORCHS_OWN):
    # An attribute with a property of its own may be assigned, or refuses that itself.
    if not hasattr(DataLoader, _name):
        setattr(DataLoader, _name, _Fixed(_name))

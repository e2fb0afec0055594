"""DataLoader: like torch's, as far as a training loop sees it, with batches that batchd has ready.

Positions: an epoch's order is fixed by (seed, epoch). `base` samples of it have been consumed by all ranks before this
loader's step 0; every step consumes batch_size * world_size more. Tokens, which hold the position of a training run,
are made and read by the C library.
"""

import ctypes
import dataclasses
import inspect
import math
import os
import sys
import threading
import time
import typing
import warnings
import weakref

import numpy

from . import (
    _accelerate,
    _agree,
    _arrays,
    _blend,
    _check,
    _draft,
    _draws,
    _epoch,
    _fields,
    _hf,
    _image_mode,
    _into,
    _lib,
    _memory,
    _mix,
    _served,
    _shards,
    _specs,
    _targets,
    _timing,
    _verdict,
    _views,
    _watch,
)
from ._ranks import node_ranks as _node_ranks, process_group as _process_group, ranks as _ranks
from .errors import Error, MismatchError
from .progress import Announcement, Bar, Listener

_STALL = ("warn", "error", "ignore")
_INT64 = numpy.dtype("int64")


class _Default(int):
    """A default value that can be told from the same number given by the caller."""


_BATCH_SIZE = _Default(64)
_SETTLE_S = 10
_UNTRIED, _TRIED, _LETS_GO, _KEEPS = range(4)  # what is known about a loop that has two slots
_NAMED = 5  # bad samples named in a warning


def _warn(text):
    """Warns at the caller's line that led here, however deep in this package the call is."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__package__") == __package__:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, RuntimeWarning, stacklevel=level)


class _Place(typing.NamedTuple):
    """A position between two batches: `step` is the next batch's. `over`: the epoch has no more. `order`: with a
    batch_sampler, a hash of its batches so far. `finished`: the iteration has raised StopIteration, which comes after
    the last batch."""

    epoch: int
    base: int = 0
    step: int = 0
    over: bool = False
    order: int = 0
    finished: bool = False


class Batch:
    """Facts about a batch besides its tensors. `indices`: sample numbers, int64 array; `n_padding`: number of rows at
    the end that only repeat samples so that all ranks get the same number; `n_replaced`: rows that stand for an
    undecodable sample; `n_skipped`: share, batches that this trainer has missed just before this one (policy "skip");
    `apart`: share, made for this trainer while most of its group is somewhere else; `replayed`: one of the last
    batches again, for `batchctl headroom` (it stands where the last new one did); `mix`: with mix=, how each row was
    made, a structured array as batchd.h describes it, else None; `token`: for a checkpoint, as in
    DataLoader.state_dict()."""

    __slots__ = (
        "epoch",
        "base",
        "step",
        "global_batch",
        "n_rows",
        "n_padding",
        "n_replaced",
        "n_skipped",
        "apart",
        "replayed",
        "last",
        "wait_s",
        "indices",
        "mix",
        "_order",
        "_loader",
    )

    @property
    def token(self):
        loader = self._loader()
        if loader is None:
            raise Error("the loader of this batch is gone; take the token while it is there")
        return loader._state(_Place(self.epoch, self.base, self.step + 1, self.last, self._order), self.global_batch)

    # Names that users try first.
    @property
    def padding(self):
        return self.n_padding

    @property
    def replaced(self):
        return self.n_replaced

    def __repr__(self):
        return (
            f"<batch {self.step} of epoch {self.epoch}: {self.n_rows} rows, {self.n_padding} padding, "
            f"{self.n_replaced} replaced>"
        )


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


class _OwnSampler:
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


class _Epochs:
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


def device_is_cpu(device):
    return device is None or str(device).split(":")[0] == "cpu"


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


@dataclasses.dataclass(frozen=True)
class _Options:
    """Arguments of DataLoader as the caller gave them, of which the C library's options are made."""

    shuffle: typing.Any
    seed: typing.Any
    transform: typing.Any
    image_mode: typing.Any
    decode: typing.Any
    dtype: typing.Any
    layout: typing.Any
    rank: typing.Any
    world_size: typing.Any
    job: typing.Any
    mode: typing.Any
    num_workers: typing.Any
    socket: typing.Any
    n_slots: typing.Any
    apply_exif: typing.Any
    writable: typing.Any
    incarnation: typing.Any
    autostart: typing.Any
    reconnect: typing.Any
    producer_timeout: typing.Any
    repeats: typing.Any
    epoch_rows: typing.Any
    mix: typing.Any
    headroom: typing.Any

    @classmethod
    def among(cls, arguments):
        return cls(**{field.name: arguments[field.name] for field in dataclasses.fields(cls)})


class DataLoader:
    """Batches of a data set, made by the batchd daemon of this machine.

    dataset       "imagefolder:DIR", "files:LIST", "tar:SHARDS", "mds:SHARDS", "zip:FILE", "arrow:FILES", "npy:FILE[,FILE]", "npz:FILE", "idx:FILE[,FILE]",
                  "cifar:FILE[,FILE...]",
                  "tokens:FILE[,FILE...]", "blend:DATASET;;DATASET", "random:...", "serve:NAME" or a name from the daemon's configuration; or arrays and tensors in memory, handed
                  over once: (x, y), {"x": x, "y": y}, a TensorDataset; or a datasets.Dataset of HuggingFace's, whose Arrow
                  files the daemon reads, in its own order (select, shuffle, filter). A list of data sets of files is
                  one that has their samples one after the other; batchd.blend gives them weights
    batch_size    rows of a batch (default 64); with batch_sampler the most that a batch may have (default: the
                  sampler's own)
    shuffle, seed, drop_last  the order is that of torch's DistributedSampler with the same settings
                  (shuffle="window" or "window:SAMPLES", by default 10000: shards in a random order, and samples at
                  random from a window that moves over them, for data that is read best in sequence;
                  shuffle="resampled" or "resampled:WINDOW": the same, with shards drawn with replacement)
    sampler       any iterable of sample indices, instead of shuffle; batch_sampler: of lists of them, instead of
                  drop_last as well. A sample that comes more than once is augmented anew each time, on every rank
    repeats       repeated augmentation: each sample comes so many times in an epoch, one behind the other in the epoch's
                  order, so that ranks side by side have the same sample, and is augmented anew each time
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
    dtype, layout "float32", "float16" or "uint8" (torch and numpy dtypes work as well); "NCHW" or "NHWC". With uint8
                  the caller normalises: `normalize` has (mean, std). Images of mode I;16, I or F are "uint16", "int32" or
                  "float32", and floats behind ToDtype
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
                  has no effect. None: as set by set_epoch or load_state_dict, else as "start"
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
                  that was current when the batch came. Streams must outlive the tensors: a batch whose stream was
                  destroyed goes back after a wait for all of this process's work on the GPU. With group_batch_size a
                  slice may begin at any row: clone it for a library that wants 256-byte alignment
    n_slots       batches ahead, those that you hold included; None: the daemon decides
    writable      True maps batches writable from the start, which in-place system calls (readinto) need; ordinary
                  in-place arithmetic works either way, and no other process ever sees it
    timeout       seconds to wait for a batch before TimeoutError; 0: no limit
    reconnect     seconds to wait for a daemon that went away before the error is raised; the loader continues exactly
                  where it was
    on_stall      what to do when another rank of the job is stalled (stopped, or hanging): "warn", "error"
                  (StalledError from the next wait for a batch), or "ignore"
    incarnation   of the job; a higher one ends all sessions of a lower one. Default: TORCHELASTIC_RESTART_COUNT
    arrays        "torch" or "numpy"; None: torch if it is installed ($BATCHD_ARRAYS)
    socket        of the daemon; the loader waits for a daemon that is being restarted. None: $BATCHD_SOCKET, your
                  daemon's, the system's, or a daemon is started for you (autostart)
    progress      a bar on the terminal while the daemon indexes the data; None: if there is a terminal
    apply_exif    turn images upright by their EXIF orientation
    producer_timeout  seconds to wait for the producer of a served data set ("serve:NAME")
    fields        names of the data set's fields: ("image", "text") makes batches tuples in that order, {"pixel_values":
                  "image", ...} dictionaries. Fields that are not named cost nothing: without the image nothing is
                  decoded. The same for all of a job. None: (images, labels), or a dictionary of all fields where the
                  data set has others. `fields` of the loader describes them. For shards, names or values are
                  extensions: {"image": "jpg;png", "text": "txt", "label": "cls"}
    packed        ragged fields as batchd.Ragged(values, offsets), without a copy where they are large: True for all, or
                  their names. Otherwise texts are a list of str, bytes a list of bytes, and others a list of arrays
    collate_fn    called in this process with each batch as described above; what it returns is the batch. What it does
                  not touch stays without a copy
    mix           how rows of a batch are mixed while numbers are made of their pixels: batchd.MixUp(alpha, num_classes),
                  batchd.CutMix, batchd.RandomChoice([...]), the same of torchvision.transforms.v2, or timm.data.Mixup
                  (also given as collate_fn). Labels become soft targets, float32 [rows, num_classes]; without
                  num_classes they become (labels, partners' labels, weight of the first). raw=True keeps images and
                  labels clean. last_batch.mix has what was drawn; it depends on seed, epoch and position only
    mixup_off_epoch  from this epoch on rows are not mixed; 0: never
    length        of a "tokens:" data set: the tokens of x, and of y, which is one token ahead
    headroom      True allows `batchctl headroom` to measure this training: between two batches the loop gets some of
                  its last ones again, which last_batch.replayed tells, and then goes on where it was. They are extra
                  steps, unless the loop leaves its model as it is then. $BATCHD_HEADROOM=1 allows it, too

    Each iteration is an epoch. set_epoch(e) before its first batch sets its number, otherwise epochs count up from 0.
    An iterator that was asked for no batch does not count. A new iteration ends the one before: two at a time need two
    loaders. A sampler of yours and the loader share one epoch, whichever of them set_epoch is called on. last_batch has
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
        dtype="float32",
        layout="NCHW",
        rank=None,
        world_size=None,
        job=None,
        mode="shard",
        num_workers=None,
        device="cpu",
        socket=None,
        n_slots=None,
        apply_exif=False,
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
        producer_timeout=60,
        fields=None,
        packed=False,
        collate_fn=None,
        mix=None,
        mixup_off_epoch=0,
        length=None,
        headroom=False,
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
            self._epochs = _Epochs(sampler)
            if hasattr(sampler, "set_epoch"):
                sampler = _OwnSampler(sampler, self)
            batch_sampler = _epoch.Batches(sampler, self._check_batch_size(batch_size, None), drop_last)
        else:
            self._epochs = _Epochs(batch_sampler, getattr(batch_sampler, "sampler", None))
        self._me = weakref.ref(self)
        self._for_producer = {
            "batch_size": batch_size is not _BATCH_SIZE and batch_size is not None,
            "shuffle": shuffle,
            "drop_last": drop_last,
            "batch_sampler": batch_sampler is not None,
            "transform": transform is not None,
            "image_mode": image_mode is not None,
            "decode": decode not in (None, "full"),
            "dtype": _check.dtype_name(dtype) != "float32",
            "layout": str(layout).upper() != "NCHW",
            "seed": seed != 0,
            "num_workers": num_workers,
            "fields": fields is not None,
        }
        if collate_fn is not None and not callable(collate_fn):
            raise TypeError(f"collate_fn must be a function that takes a batch, not {collate_fn!r}")
        if collate_fn is not None and mix is None and _mix.is_mix(collate_fn):
            collate_fn, mix = None, collate_fn
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
        in_memory, fields, classes = _hf.hand_over(dataset, self, fields)
        if in_memory is None:
            in_memory, fields = _memory.hand_over(dataset, self, fields)
        if in_memory:
            self._spec, fields = _shards.with_fields(in_memory, fields)
        else:
            self._spec, fields = _blend.complete(dataset, length, seed, shuffle, fields)
        fields = _specs.fields(_blend.first(self._spec)) if fields is None else fields
        self._wish = _fields.Wish(fields, packed)
        self._fix(batch_sampler=batch_sampler, drop_last=bool(drop_last), num_workers=num_workers or 0)
        self.timeout = timeout
        if batch_sampler is not None and sampler is None and (shuffle or drop_last):
            raise ValueError("batch_sampler decides order and sizes itself: leave shuffle and drop_last out")
        if batch_sampler is not None and (repeats != 1 or epoch_rows is not None):
            raise ValueError(
                f"a sampler of yours decides itself how often a sample comes: leave {'repeats' if repeats != 1 else 'epoch_rows'} out"
            )
        self._fix(batch_size=self._check_batch_size(batch_size, batch_sampler))
        self._progress = progress
        self._follows = rank is None and world_size is None  # also a process group that is made later
        self._share = policy, join, group_batch_size
        self._fill_options(_Options.among(locals()))
        self._fill_share_options(*self._share)
        self._on_stall = _STALL[_check.choice("on_stall", on_stall, _STALL)]
        self._options.stall_error = self._on_stall == "error"
        self._beat = self._opened = time.monotonic()
        self._watcher = None
        _accelerate.adapt(DataLoader)
        self._open()
        if epoch_rows is not None and epoch_rows > self._info.n_samples * repeats:
            most = self._info.n_samples * repeats
            self.close()
            raise ValueError(f"epoch_rows is {epoch_rows}, and an epoch has {most} rows: each sample {repeats} times")
        self._fix(dataset=Dataset(self), sampler=Sampler(self) if sampler is None else sampler)
        # Where the next iteration begins. An iteration takes its epoch with its first batch; only then do these change.
        self._counted = 0  # its epoch, unless set_epoch names it
        self._wanted = None  # set_epoch's argument
        self._resume = None  # a _Place where the iteration of its epoch begins
        self._at = _Place(0)  # behind the last batch given out: where a resumed training continues
        self._announced = False  # set_epoch has named another epoch than _at's since, where a training then continues
        self._drew_from = None, None  # the epoch begun last, and what a random sampler of torch's drew it from
        self._restored_draws = None  # the same of a restored state, until its epoch begins
        self._n_global = 0
        self._two_slots = _UNTRIED
        self._warned = False
        self._warned_apart = self._warned_epoch = self._warned_replaced = self._was_together = False
        self._classes = classes
        self.last_batch = None
        self._timing = _timing.Timing()
        self.n_skipped = 0  # share, policy "skip": batches missed in all

    # ---- opening ----

    def _check_device(self, device, raw):
        if device_is_cpu(device):
            if raw:
                raise ValueError("raw=True is for batches on a GPU: give device='cuda'")
            return None
        if self._arrays.name != "torch":
            raise RuntimeError(f"device={str(device)!r} needs torch")
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
                raise ValueError(
                    "batch_sampler does not say how large its batches get: give batch_size, the most rows one may have"
                )
        return int(_check.number("batch_size", batch_size, 1, 2**32 - 1))

    def _fill_options(self, asked):
        o = self._options = _lib.Options()
        _lib.options_init(ctypes.byref(o))
        o.mode = _check.choice("mode", asked.mode, _lib.MODES)
        told = asked.rank is not None or asked.world_size is not None
        rank, world_size = _ranks(asked.rank, asked.world_size, _lib.MODES[o.mode])
        o.node_rank, o.node_world_size = _node_ranks(1 if told else world_size)
        o.dataset = _check.text("dataset", self._spec)
        text, self._form = _views.read(asked.transform)
        text = _draft.into(_image_mode.into(text, asked.image_mode), asked.decode, "train224")
        o.transform = _check.text("transform", text)
        o.mix = _check.text("mix", asked.mix)
        o.headroom = bool(asked.headroom)
        o.job = _check.text("job", asked.job if asked.job is None else str(asked.job))
        o.socket = _check.text("socket", asked.socket)
        o.dtype = _check.choice("dtype", _check.dtype_name(asked.dtype), _lib.DTYPES)
        o.layout = _check.choice("layout", asked.layout, _lib.LAYOUTS)
        o.batch_size = self.batch_size
        o.rank = _check.number("rank", rank, -1, 2**31 - 1)
        o.world_size = _check.number("world_size", world_size, 1, 2**32 - 1)
        o.num_workers = _check.number("num_workers", asked.num_workers or 0, 0, 2**32 - 1)
        o.n_slots = _check.number("n_slots", asked.n_slots or 0, 0, 2**32 - 1)
        o.seed = _check.number("seed", asked.seed)
        restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0
        o.incarnation = _check.number("incarnation", int(restarts) if asked.incarnation is None else asked.incarnation)
        o.own_batches, o.writable, o.autostart = (
            self.batch_sampler is not None,
            bool(asked.writable),
            bool(asked.autostart),
        )
        o.shuffle, o.drop_last, o.apply_exif = (
            _check.shuffle(asked.shuffle),
            self.drop_last and not o.own_batches,
            bool(asked.apply_exif),
        )
        o.repeats = _check.number("repeats", asked.repeats, 1, 2**16)
        o.epoch_rows = 0 if asked.epoch_rows is None else _check.number("epoch_rows", asked.epoch_rows, 1, 2**63 - 1)
        o.producer_timeout_ms = _check.milliseconds("producer_timeout", asked.producer_timeout, 1)
        if self._wish.wanted is not None:
            names = [_check.text("fields", name) for name in self._wish.wanted]
            o.fields, o.n_fields = (ctypes.c_char_p * len(names))(*names), len(names)
        o.reconnect_ms = _check.milliseconds("reconnect", asked.reconnect or 0)
        o.device = f"cuda:{self._cuda.ordinal}".encode() if self._cuda is not None else None
        o.program = os.path.basename(
            sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "python"
        ).encode()[:64]

    def _fill_share_options(self, policy, join, group_batch_size):
        o = self._options
        share, is_open = _lib.MODES[o.mode] == "share", o.world_size == 1
        for name, value in (("policy", policy), ("join", join), ("group_batch_size", group_batch_size)):
            if value is not None and not share:
                raise ValueError(f"{name} goes with mode='share'")
        if join is not None and not is_open:
            raise ValueError(
                "join is for trainers that come to a group at work: leave world_size out. One of known size begins when all "
                "of it are there"
            )
        o.policy = _check.choice("policy", policy, _lib.POLICIES) if policy is not None else 0
        o.group_batch_size = _check.number("group_batch_size", group_batch_size or 0, 0, 2**32 - 1)
        self._join = _check.choice("join", join, _lib.JOINS) if join is not None else None  # the user's argument
        self._to_join = (
            (self._join if join is not None else _lib.JOINS.index("start")) if share and is_open else None
        )  # still to be done

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
            raise _lib.failure(code, err.value)
        self._handle = _lib.Loader(handle.value)
        self._struct = _lib.BatchStruct(size_bytes=ctypes.sizeof(_lib.BatchStruct))
        self._struct_at = ctypes.byref(self._struct)
        self._started = (
            None  # the _Place that the C loader was told to begin at, as long as no batch has come from there
        )
        self._joined = None  # the same where the share group chose it
        self._learn()
        self._agree()
        self._tell()

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
        _lib.get_info(self._handle, ctypes.byref(i))
        self._fix(rank=i.rank, world_size=i.world_size, job=i.job.decode("utf-8", "replace"))
        self._shape = tuple(i.shape[: i.n_dims])
        self._label_shape = tuple(i.label_shape[: i.n_label_dims])
        self._dtype = numpy.dtype(_lib.DTYPES[i.dtype]) if self._cuda is None else None
        self._label_dtype = numpy.dtype(_lib.DTYPES[i.label_dtype])
        self._slot_class = None
        self._row_bytes = self._bytes_of(i.shape, i.n_dims, i.dtype)
        known = {} if i.served else _fields.describe(i)
        self._wish.check(known)
        plain = self._wish.names is None and _fields.is_plain(known) and self._form is None
        self._known = known
        self._reader = None if i.served or plain else _fields.Reader(self, known, self._wish, self._form)
        self._served = _served.Reader(self) if i.served else None
        if i.served:
            _served.check_options(self._for_producer)
            if self._join is None and self._to_join is not None:
                self._to_join = _lib.JOINS.index("next")  # a producer makes its batches only once
            self._fix(batch_size=i.batch_size)
        if self._cuda is not None:
            self._cuda.opened(self._handle, i)

    def _settle(self):
        """A loader that was made before the process group (frameworks pass such loaders to trainers) has found itself
        alone. Once there is a group, it is opened anew with this process's rank."""
        if self._handle is None or not self._follows or _process_group() is None:
            return
        with self._turn:
            self._open_anew()

    def _open_anew(self):
        mode = _lib.MODES[self._options.mode]
        asked, wanted = (self._options.rank, self._options.world_size), _ranks(None, None, mode)
        if wanted == asked:
            return
        state = self._state(self._resume, self._n_global) if self._resume is not None else None
        kept = self._counted, self._wanted, self._announced
        self._end_iteration("the process group was made since")
        self._drop_fetched(self._handle)
        self.close()
        self._options.rank, self._options.world_size = wanted
        self._options.node_rank, self._options.node_world_size = _node_ranks(wanted[1])
        self._fill_share_options(*self._share)
        self._open_with_others()
        if state is not None:
            self.load_state_dict(state)
        self._counted, self._wanted, self._announced = kept

    def _open_with_others(self):
        """Other ranks may still be in a job of this name, each alone, until they have come here too."""
        deadline = time.monotonic() + _SETTLE_S
        while True:
            try:
                return self._open()
            except MismatchError:
                if self._options.job is None or time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    @staticmethod
    def _bytes_of(shape, n_dims, dtype):
        name = _lib.DTYPES[dtype]
        n = 2 if name == "bfloat16" else numpy.dtype(name).itemsize  # which numpy does not have
        for i in range(n_dims):
            n *= shape[i]
        return n

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
        attributes (help(batchd.Verdict)). period: "last_minute", or "since_start" of the connection."""
        self._live()
        return _verdict.ask(self.socket, self.job, self.rank, period)

    def _live(self):
        if self._handle is None:
            raise Error("this loader is closed")
        return self._handle

    def _raise(self, code):
        self._listener.check()
        raise _lib.failure(code, _lib.error(self._handle) if code != _lib.CLOSED else b"this loader is closed")

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
            if event in (_lib.EVENT_BACK, _lib.EVENT_REOPENED):
                self._learn()
            if event in (_lib.EVENT_BACK, _lib.EVENT_CHANGED) or (
                event == _lib.EVENT_STALLED and self._on_stall == "warn"
            ):
                _warn(text)

    # ---- position ----

    def set_epoch(self, epoch):
        """Sets the epoch of the next iteration, or of one that has begun but not been asked for a batch. A position
        restored by load_state_dict holds for its own epoch only. With join it has no effect, and warns once."""
        epoch = _check.number("epoch", epoch)
        if self._join is not None:
            if not self._warned_epoch:
                self._warned_epoch = True
                _warn(
                    f"set_epoch has no effect on a loader with join={_lib.JOINS[self._join]!r}: its epochs are its share group's "
                    "(last_batch.epoch)"
                )
            return
        self._wanted = epoch
        # A framework may name the epoch that it is in the middle of; that does not move the position.
        self._announced = not (epoch == self._at.epoch and self._at.step and not self._at.over)
        self._epochs.tell(epoch)

    def _next_place(self):
        """Where the next iteration begins."""
        epoch = self._counted if self._wanted is None else self._wanted
        if self._resume is not None and self._resume.epoch == epoch:
            return self._resume
        return _Place(epoch)

    def _move(self, place):
        """The iteration has reached this place: it has given a batch, or has ended. From its first batch on it counts
        as an epoch."""
        self._at = place
        self._counted = place.epoch + 1
        self._resume = self._to_join = None
        self._announced = self._announced and place.finished
        if self._wanted == place.epoch:
            self._wanted, self._announced = None, False

    def timing(self):
        """What its input costs this loop, for a logger: a dictionary of `batches` and `rows` so far, `data_time` (the
        wait for the last batch) and `step_time` (from the batch before to it), `wait_s` (all waits), `wait_p50_s` and
        `wait_p99_s` (of the last 1024 batches), `wait_share` (the part of the time since the first call for a batch that
        was spent in waits) and `rows_per_s`. Times are in seconds."""
        return self._timing.dict()

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
            order=place.order,
        )
        text = ctypes.create_string_buffer(_lib.TOKEN_BYTES)
        code = _lib.token(self._live(), ctypes.addressof(b), ctypes.addressof(text), len(text))
        if code < 0:
            self._raise(code)
        draws = self._draws_at(place)
        return {
            **({"sampler": draws} if draws else {}),
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
        return state if is_begun else _draws.after(self.batch_sampler)

    def load_state_dict(self, state):
        """Continues behind the batch that `state` describes, also with another batch size or world size. Raises
        InvalidError, which names the difference, if data set, seed or shuffle are not the same, and ValueError if
        `state` is not from a DataLoader. set_epoch with the same epoch keeps the position; another epoch begins from
        its start."""
        if not isinstance(state, dict) or state.get("version") != 2 or not isinstance(state.get("token"), str):
            raise ValueError("this is no state of a batchd.DataLoader")
        p = _lib.Position(size_bytes=ctypes.sizeof(_lib.Position))
        code = _lib.resume(self._live(), state["token"].encode("utf-8", "replace"), ctypes.byref(p))
        self._tell()
        if code < 0:
            self._raise(code)
        self._end_iteration("load_state_dict has put the loader somewhere else since")
        self._n_global = p.n_given
        self._drew_from = None, None
        self._restored_draws = None if p.ended else state.get("sampler")
        if p.ended and state.get("sampler"):
            _draws.go_on(self.batch_sampler, state["sampler"])
        self._wanted, self._announced, self._counted = None, False, p.epoch
        self._epochs.told()
        self.last_batch = None
        if p.ended:
            # The next epoch follows. If the old epoch is named explicitly, or in the rest of the loop in which the
            # state was saved, no batch is left to give.
            self._at = self._resume = _Place(p.epoch - 1, over=True, finished=bool(state.get("finished", True)))
            if not self._at.finished:
                self._counted = p.epoch - 1
        else:
            self._at = self._resume = _Place(p.epoch, p.base, p.step, order=p.order)

    def __iter__(self):
        return self._iterate(self)

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

    # ---- batches ----

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
        the dtype and shape that iteration gives; layout="NHWC" fills memory that, permuted, is channels_last. A graph's
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

        The epoch, its order and last_batch are as in a loop, and state_dict() stands behind this batch. A call
        continues the iteration that an earlier call began; a loop, load_state_dict or set_epoch with another epoch ends
        that iteration, as a loop would end another. A batch that could not be written, for example because of Ctrl-C,
        is the next batch again."""
        with self._turn:
            targets = self._targets(images, labels)
            try:
                return self._filling_iteration().fill(targets)
            except StopIteration:
                self._filling = None
                return None

    def _targets(self, images, labels):
        """The checked targets of one call."""
        if self._served is not None:
            return _served.Targets(images, labels)
        if self._reader is not None:
            return _targets.Targets(self._reader, self, images, labels)
        if isinstance(images, dict):
            images, labels = _targets.of_plain(self._known, images, labels)
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

    def _begin(self):
        """Starts the making of batches from where the next iteration begins, unless that has been done; returns the
        place."""
        with self._turn:
            return self._begin_in_turn()

    def _begin_in_turn(self):
        self._two_slots = _UNTRIED
        if self._to_join is not None and self._resume is None and self._wanted is None:
            if self._joined is None or self._struct.generation:
                self._started, self._joined = None, self._join_group()
            return self._joined
        place = self._next_place()
        if not place.over and (place != self._started or self._struct.generation):
            self._joined = None
            self._start(place)
        return place

    def _join_group(self):
        """Moves to where the share group is: the place of this trainer's first batch."""
        self._drop_fetched(self._live())
        p = _lib.Position(size_bytes=ctypes.sizeof(_lib.Position))
        code = _lib.AGAIN
        while code == _lib.AGAIN:  # a signal's Python handler has run by now
            code = _lib.join(self._live(), self._to_join, ctypes.byref(p), _lib.UNTIL_SIGNAL)
        if code < 0:
            self._raise(code)
        return _Place(p.epoch, p.base, p.step)

    def _drop_fetched(self, handle):
        """Gives back a batch that had come when a signal's handler raised, and that no caller received."""
        generation, self._struct.generation = self._struct.generation, 0
        if generation:
            _lib.release(handle, self._struct.slot, generation)

    def _start(self, place):
        self._drop_fetched(self._live())
        self._started = None
        code = _lib.start(self._handle, place.epoch, place.base, place.step, None)
        if code < 0:
            self._raise(code)
        self._started = place

    def _wait(self, iterator):
        """Blocks for the next batch: OK or END; self._struct has it, until its generation is 0. So a batch that comes
        together with Ctrl-C is still there at the next call."""
        if self._struct.generation:
            return _lib.OK
        handle = self._struct.handle = self._live()
        if self._info.window == 2:
            self._look_at_two_slots()
        began = time.monotonic() if self.timeout else 0
        while True:
            code = _lib.next(handle, self._struct_at, self._timeout_ms)
            self._beat = time.monotonic()
            if code == _lib.OK or code == _lib.END:
                self._started = self._joined = None
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
            self._two_slots = _KEEPS if held else _LETS_GO

    def _must_copy(self, matters=True):
        """Whether the batch that has come takes the last slot; matters: warn the caller, once."""
        window = self._info.window
        if _lib.n_leased(self._struct.handle) < window or self._two_slots == _LETS_GO:
            return False
        if window == 2 and self._two_slots == _UNTRIED:
            self._two_slots = _TRIED
        elif matters:
            self._warn_copies()
        return True

    def _give(self, targets):
        """The batch in self._struct as (images, labels), with last_batch set; or, with targets, writes into them and
        returns the number of rows."""
        s = self._struct
        b = Batch()
        b.n_rows = s.n_rows
        b.epoch, b.base, b.step, b.last = s.epoch, s.base, s.step, bool(s.last)
        b.n_padding, b.n_replaced, b.wait_s, b.global_batch = s.n_padding, s.n_replaced, s.wait_ns * 1e-9, s.n_given
        b.n_skipped, b.apart = s.n_skipped, bool(s.apart)
        b._order, b._loader = s.order, self._me
        b.mix = _mix.table(s) if self._options.mix is not None else None
        b.replayed = bool(s.replayed)
        if b.replayed:
            self._timing.skip()
        else:
            self._timing.note(b.wait_s, b.n_rows)
        if self._served is not None:
            b.indices = numpy.empty(0, _INT64)
            batch = self._served.give(self) if targets is None else self._served.write(self, targets)
        elif self._reader is not None:
            batch = self._reader.give(self, s, b) if targets is None else self._reader.write(self, s, b, targets)
        elif targets is not None:
            batch = self._write(s, b, *targets)
        else:
            batch = self._images_and_labels(s, b)
        self.n_skipped += b.n_skipped
        if b.n_replaced and not self._warned_replaced:
            self._note_replaced()
        if b.apart != (not self._was_together):
            self._note_apart(b.apart)
        self.last_batch = b
        self._n_global = b.global_batch
        self._move(_Place(b.epoch, b.base, b.step + 1, b.last, b._order))
        return batch if self._collate is None or targets is not None else self._collate(batch)

    def _images_and_labels(self, s, b):
        take = self._take_from_gpu if self._cuda is not None else self._take_mixed if self._mixes else self._take
        images, labels = take(s, b)
        if self._must_copy():
            images = self._arrays.copy(images)
        return images, labels

    def _note_apart(self, apart):
        """Warns once: a trainer that was with its group no longer is."""
        self._was_together = not apart
        if apart and not self._warned_apart and _lib.POLICIES[self._info.policy] == "detach":
            self._warned_apart = True
            _warn(
                "this trainer is too slow for its share group: its batches are made for it alone now, until it has caught up "
                "(policy='detach'; with 'wait' the others would wait for it)"
            )

    def _note_replaced(self):
        """Warns once: the bad samples that the daemon has found so far."""
        self._warned_replaced = True
        n, names = 0, []
        try:
            for entry in _lib.status(self.socket)["loaders"]:
                if entry.get("id") == f"{self._info.loader_id:016x}":
                    n, names = entry.get("n_bad", 0), [bad["error"] for bad in entry.get("bad", [])]
        except Exception:  # then only the text is poorer
            pass
        what = f"{n} of {self._info.n_samples} samples cannot" if n > 1 else "a sample cannot"
        some = (
            f": {'; '.join(names[:_NAMED])}{'; ...' if len(names) > _NAMED or n > len(names) else ''}" if names else ""
        )
        _warn(
            f"{what} be decoded so far, and other samples stand for {'them' if n > 1 else 'it'} (last_batch.n_replaced){some}. `batchctl verify {self._spec}` "
            "names all such files: mend or remove them; the daemon's configuration says how many it bears (bad_data)"
        )

    def _look(self, s):
        """A slot's memory, and its images, labels and indices as arrays over it."""
        at, n = s.data, s.n_rows
        if self._slot_class is None:
            self._measure(s)
        if s.row:  # a slice of the group's batch: the slot begins before it
            at -= s.row * self._row_bytes
        memory = self._slot_class.from_address(at)
        return (
            memory,
            numpy.ndarray((n,) + self._shape, self._dtype, memory, s.data - at),
            numpy.ndarray((n,) + self._label_shape, self._label_dtype, memory, s.labels - at),
            numpy.ndarray((n,), _INT64, memory, s.indices - at),
        )

    def _take(self, s, b):
        memory, images, labels, indices = self._look(s)
        _arrays.lend(memory, s.handle, s)
        b.indices = indices.copy()
        labels = self._arrays.wrap(labels.copy())
        return self._arrays.wrap(images), labels

    def _take_mixed(self, s, b):
        b.indices = self._indices_beside(s)
        images = self._arrays.wrap(self._finisher.images(s, self))
        targets = _mix.targets(s, self._labels_beside(s), b.mix, self._info.n_mix_classes)
        self._drop_fetched(s.handle)
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
            self._drop_fetched(s.handle)
            return n
        _, x, y, indices = self._look(s)
        b.indices = indices.copy()
        _into.write(images, x, self._arrays)
        if labels is not None:
            _into.write(labels, y, self._arrays)
        self._drop_fetched(s.handle)
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

    @property
    def fields(self):
        """{name: batchd.Field} of what batches consist of. For a served data set: of the last batch, if its producer
        makes dictionaries."""
        return dict(self._known) if self._served is None else self._served.fields()

    def record_stream(self, images, stream):
        """raw: work on another torch stream reads `images` too; their memory goes back only after the work that the
        stream was given while they lived. `stream` must outlive them. Raises ValueError if `images` are no raw images
        of this loader, and for more than 8 streams."""
        if self._cuda is None:
            raise ValueError("record_stream is for raw images on a GPU")
        self._cuda.add_stream(images, stream)

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

    def _copy(self, images):
        self._warn_copies()
        return self._arrays.copy(images)

    def _show(self, iterator):
        """Tells Accelerate, if the script has it, of an iteration over a loader of ours."""
        return _accelerate.begin(iterator, DataLoader, self.world_size)

    def _warn_copies(self):
        if not self._warned:
            self._warned = True
            n = self._info.window - 1
            _warn(
                f"{n} batch{' is' if n == 1 else 'es are'} held while only {self._info.window} slots exist, so this and later "
                "batches are copied; drop batches when you are done with them, or ask for more slots (n_slots)"
            )


_OPTIONS = tuple(n for n in inspect.signature(DataLoader.__init__).parameters if n not in ("self", "others"))
for _name in (*_OPTIONS, "rank", "world_size", "job", *_check.TORCHS_OWN):
    # An attribute with a property of its own may be assigned, or refuses that itself.
    if not hasattr(DataLoader, _name):
        setattr(DataLoader, _name, _Fixed(_name))

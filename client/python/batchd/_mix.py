"""Mixing of rows: descriptions as the C library reads them, made of objects of this module, torchvision's and timm's,
which are read attribute by attribute; and the mixed batches themselves on the CPU."""

import ctypes
import math
import types
import weakref

import numpy

from . import _lib

_OUTLET = "give mix=batchd.MixUp(...), batchd.CutMix(...), batchd.RandomChoice([...]) or timm's Mixup, or mix in the training loop"
_KINDS = ("MixUp", "CutMix", "RandomChoice")
_MODULES = ("torchvision.transforms.v2", "timm.data.mixup", __name__)
_ITS_OWN = ("__init__", "__repr__", "extra_repr", "__class__", "__new__")  # of a subclass: they change no batch
TABLE = numpy.dtype(
    [
        ("partner", "u4"),
        ("kind", "u4"),
        ("weight", "f4"),
        ("partner_weight", "f4"),
        ("top", "u4"),
        ("bottom", "u4"),
        ("left", "u4"),
        ("right", "u4"),
    ]
)


class _Alpha:
    """alpha: of the Beta distribution that lambda is drawn from; num_classes: columns of the soft targets, None for
    pairs of labels."""

    def __init__(self, alpha=1.0, num_classes=None):
        self.alpha, self.num_classes = alpha, num_classes

    def __repr__(self):
        return f"batchd.{type(self).__name__}(alpha={self.alpha}, num_classes={self.num_classes})"


class MixUp(_Alpha):
    """Each row becomes row * lambda + (the row before) * (1 - lambda), as torchvision's v2.MixUp makes it."""


class CutMix(_Alpha):
    """Each row gets a box of the row before, as torchvision's v2.CutMix makes it."""


class RandomChoice:
    """Each batch is mixed by one of these, with the probabilities p (default: all the same). "none" is one, too."""

    def __init__(self, transforms, p=None):
        self.transforms, self.p = list(transforms), p

    def __repr__(self):
        return f"batchd.RandomChoice({self.transforms}, p={self.p})"


def is_mix(x):
    """Whether it is an object that mixes a batch, and no transform of one image."""
    module, name = type(x).__module__, type(x).__name__
    if module.startswith("timm.data.mixup"):
        return True
    if not module.startswith(("torchvision.transforms.", __name__)):
        return False
    return name in ("MixUp", "CutMix") or (name == "RandomChoice" and any(map(is_mix, x.transforms)))


def text(mix, off_epoch):
    """The option's value for the C library, or None."""
    if mix is None:
        if off_epoch:
            raise ValueError("mixup_off_epoch goes with mix=")
        return None
    if isinstance(mix, str):
        return mix + (f";targets:off_epoch={off_epoch}" if off_epoch else "")
    steps, classes = [], set()
    smoothing = _read(mix, 1, steps, classes)
    if len(classes) > 1:
        raise ValueError(f"mix: all of a choice must have the same num_classes, not {_either(classes)}")
    targets = []
    n = classes.pop()
    if n is not None:
        targets.append(f"classes={_whole('num_classes', n)}")
    if smoothing:
        targets.append(f"smoothing={smoothing!r}")
    if off_epoch:
        targets.append(f"off_epoch={_whole('mixup_off_epoch', off_epoch)}")
    return ";".join([f"targets:{','.join(targets)}"] * bool(targets) + steps)


def switch(mix):
    """What has mixup_enabled, which scripts turn off and on between batches: timm's object itself, else one of the loader's
    own. None: the loader does not mix."""
    if mix is None or hasattr(mix, "mixup_enabled"):
        return mix
    return types.SimpleNamespace(mixup_enabled=True)


def _either(values):
    return " and ".join(map(str, sorted(values, key=str)))


def _whole(name, value):
    if isinstance(value, bool) or int(value) != value:
        raise TypeError(f"mix: {name} must be a whole number, not {value!r}")
    return int(value)


def _number(name, value):
    try:
        v = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"mix: {name} must be a number, not {value!r}") from None
    return repr(v)


def _read(mix, p, steps, classes):
    """Adds the steps of one object, which has the weight p. Returns the label smoothing."""
    kind = _kind(mix)
    module, name = kind.__module__, kind.__name__
    if module.startswith("timm."):
        return _timm(mix, p, steps, classes)
    torchvisions = module.startswith("torchvision.transforms.v2")
    if mix == "none" or (name == "Identity" and module.startswith(("torchvision.", "torch.nn."))):
        steps.append(f"none:p={_number('p', p)}")
    elif name in _KINDS[:2] and (torchvisions or module == __name__):
        if torchvisions:
            _check_torchvision(mix)
        classes.add(mix.num_classes)
        steps.append(f"{name.lower()}:alpha={_number('alpha', mix.alpha)},p={_number('p', p)}")
    elif name == "RandomChoice" and (torchvisions or module == __name__):
        return _choice(mix, p, steps, classes)
    else:
        raise TypeError(f"mix: {mix!r} is nothing that can be read: {_OUTLET}")
    return 0


def _kind(mix):
    """The class of a library that an object is of, or of a subclass that overrides none of its methods."""
    mine = []
    for base in type(mix).__mro__:
        if not base.__module__.startswith(_MODULES):
            mine.append(base)
            continue
        changed = [m for b in mine for m in vars(b) if m not in _ITS_OWN and callable(getattr(base, m, None))]
        if changed:
            raise TypeError(
                f"mix: {type(mix).__name__} overrides {changed[0]} of {base.__name__}, so it may do something else: use "
                f"{base.__name__} itself, or mix in the training loop"
            )
        return base
    return type(mix)


def _check_torchvision(mix):
    if mix.num_classes is None:
        raise ValueError(
            f"mix: torchvision's {type(mix).__name__} without num_classes wants labels that are one-hot already; give num_classes, "
            f"or batchd.{type(mix).__name__}(alpha={mix.alpha}) for pairs of labels"
        )
    getter = getattr(mix, "_labels_getter", None)
    if getter is not None and getattr(getter, "__module__", "").partition(".")[0] not in ("torchvision",):
        raise TypeError(f"mix: {type(mix).__name__} has a labels_getter, and a batch has one label field: leave it out")


def _choice(mix, p, steps, classes):
    weights = [1 / len(mix.transforms)] * len(mix.transforms) if mix.p is None else [float(w) for w in mix.p]
    if not mix.transforms or len(weights) != len(mix.transforms):
        raise ValueError("mix: RandomChoice needs transforms, and as many p")
    total = math.fsum(weights)
    if not total > 0 or min(weights) < 0:
        raise ValueError(f"mix: RandomChoice needs p of 0 and above, not all 0: {weights}")
    for each, weight in zip(mix.transforms, weights):
        if _kind(each).__module__.startswith("timm."):
            raise ValueError(
                "mix: timm's Mixup has a choice of its own (switch_prob), so it is not one of a RandomChoice"
            )
        _read(each, p * weight / total, steps, classes)
    return 0


def _timm(mix, p, steps, classes):
    if _kind(mix).__name__ != "Mixup":
        raise TypeError(
            f"mix: timm's {type(mix).__name__} mixes bytes while it collates, which is not what Mixup does on a batch: use timm.data.Mixup"
        )
    if getattr(mix, "multi_label", False):  # timm before 1.0.31 has none
        raise ValueError("mix: timm's Mixup(multi_label=True) mixes dense targets, and a batch has class numbers")
    settings = [f"mixup_alpha={_number('mixup_alpha', mix.mixup_alpha)}"]
    settings.append(f"cutmix_alpha={_number('cutmix_alpha', mix.cutmix_alpha)}")
    if mix.cutmix_minmax is not None:
        least, most = mix.cutmix_minmax
        settings += [f"cutmix_min={_number('cutmix_minmax', least)}", f"cutmix_max={_number('cutmix_minmax', most)}"]
    settings += [f"prob={_number('prob', mix.mix_prob)}", f"switch_prob={_number('switch_prob', mix.switch_prob)}"]
    mode = mix.mode if mix.mode in ("elem", "pair") else "batch"  # as timm reads it
    settings += [f"mode={mode}", f"correct_lam={int(bool(mix.correct_lam))}", f"p={_number('p', p)}"]
    classes.add(mix.num_classes)
    steps.append("timm:" + ",".join(settings))
    return float(mix.label_smoothing)


# ---- batches ----


_ALIGN = 64  # bytes, for which JAX takes memory without a copy


class _Memory:
    """Memory for finished batches, which is used again when the last array over it is gone: fresh memory would cost as
    much as the work itself."""

    KEPT = 3

    def __init__(self):
        self._free = []
        self._class = None
        self._n_bytes = 0

    def take(self, n_bytes):
        """A buffer, aligned for anything."""
        if n_bytes > self._n_bytes:
            self._n_bytes, self._free = n_bytes, []
            self._class = type("Finished", (ctypes.c_char * n_bytes,), {})
        base = self._free.pop() if self._free else numpy.empty(self._n_bytes // 8 + 1 + _ALIGN // 8, "f8")
        memory = self._class.from_address(-(-base.ctypes.data // _ALIGN) * _ALIGN)
        weakref.finalize(memory, self._give_back, self._free, base).atexit = False
        return memory

    @classmethod
    def _give_back(cls, free, base):
        if len(free) < cls.KEPT:
            free.append(base)


def shape_of_view(info, k):
    """Of a row when it is finished."""
    row = tuple(info.fields[k].shape[: info.fields[k].n_dims])
    return row[2:] + row[:2] if info.stored_layout != info.layout else row  # NHWC


class Finisher:
    """Makes the mixed batches of one loader on the CPU."""

    def __init__(self):
        self._memories = {}  # of each view, or stack of views, by the number of its first

    def images(self, s, loader):
        """Finished images as an array of the loader's shape."""
        made = self._array(0, (s.n_rows,) + loader._shape, loader._dtype)
        self.images_into(s, made.ctypes.data)
        return made

    def views(self, s, loader, begin, end):
        """Views begin to end - 1, which have one shape, as an array [views, rows, ...]."""
        row = shape_of_view(loader._info, begin)
        made = self._array(begin, (end - begin, s.n_rows) + row, loader._dtype)
        for k in range(begin, end):
            _check(s, _lib.finish_field(s.handle, ctypes.addressof(s), k, made[k - begin].ctypes.data))
        return made

    def _array(self, key, shape, dtype):
        memory = self._memories.setdefault(key, _Memory()).take(dtype.itemsize * math.prod(shape))
        return numpy.ndarray(shape, dtype, memory)

    def images_into(self, s, at):
        _check(s, _lib.finish(s.handle, ctypes.addressof(s), at))


def turn(s, on):
    """Mixes the batches that are finished from now on, or does not."""
    _check(s, _lib.mixing(s.handle, on))


def table(s):
    """The batch's mix table."""
    rows = numpy.zeros(s.n_rows, TABLE)
    _check(s, _lib.mix_table(s.handle, ctypes.addressof(s), rows.ctypes.data))
    return rows


def targets(s, labels, rows, n_classes):
    """Soft targets, or the labels, the partners' labels and the weight of the first: (labels, labels, float32)."""
    if not n_classes:
        return labels, labels[rows["partner"]], rows["weight"].copy()
    made = numpy.empty((s.n_rows, n_classes), "f4")
    targets_into(s, made.ctypes.data)
    return made


def targets_into(s, at):
    _check(s, _lib.targets(s.handle, ctypes.addressof(s), at))


def _check(s, code):
    if code < 0:
        raise _lib.failure(code, _lib.error(s.handle))

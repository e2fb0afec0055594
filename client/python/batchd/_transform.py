"""Pipelines in the daemon's form: a name, or JSON with a list of ops, where objects of torchvision, timm and OpenCLIP may
stand for ops. What an object does is read from its attributes, as its library reads them. The daemon knows which ops
there are and checks their arguments."""

import enum
import inspect
import json
import numbers

from . import _instead, _timm, _timm_text, _upstream

# The daemon's data is pixels until ToTensor.
_NOTHING = ("ToImage", "PILToTensor", "ToPureTensor", "Identity", "ToPILImage")
_MAKE_TENSORS = ("ToImage", "PILToTensor", "ToTensor", "ToImageTensor")
_CONTAINERS = ("Compose", "Sequential", "ModuleList", "RandomApply", "RandomChoice", "RandomOrder")
_SEQUENCES = ("Compose", "Sequential", "ModuleList")
# Whose two generations round in different ways.
_GENERATIONS = ("RandAugment", "TrivialAugmentWide", "AutoAugment", "AugMix", "RandomAffine")
# Whose fill in words is no null.
_FILL_NUMBERS = ("Pad", "RandomCrop")
# A subclass that has its own version of one of these, or of anything else that its torchvision base has, does something else.
_METHODS = ("forward", "__call__", "transform", "make_params", "get_params", "_get_params", "_call_kernel")
_HARMLESS = (
    *("__init__", "__repr__", "extra_repr", "__doc__", "__module__", "__qualname__", "__dict__", "__weakref__"),
    *(
        "__annotations__",
        "__annotate__",
        "__annotations_cache__",
        "__parameters__",
        "__slots__",
        "__static_attributes__",
    ),
    *("__firstlineno__", "__hash__", "__eq__"),
)
_FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # by Pillow's numbers
_OUTLET = "do it in the training loop or in collate_fn, or share your own DataLoader by batchd.serve"


def text(transform):
    """The option's value for the C library."""
    if transform is None:
        return None
    if isinstance(transform, str):
        return _timm_text.in_json(transform)
    return json.dumps(_timm_text.expand(ops(transform)) or ["Identity"], default=_plain)


def ops(transform):
    """The ops of a pipeline that is no name; timm's texts, which depend on the ops around them, as they are."""
    _follow(transform, False)
    return _sequence(transform if isinstance(transform, (list, tuple)) else [transform])


def _follow(entry, on_tensors):
    """Refuses what torchvision does in another way to tensors than to images: it resizes those without antialiasing where
    antialias=None, and takes the fill of their type. on_tensors: what has made a tensor of the entry's input; False: nothing. Returns
    the same of the next one's."""
    name = type(entry).__name__
    if isinstance(entry, (list, tuple)) or name in _CONTAINERS:
        entries = entry if isinstance(entry, (list, tuple)) else getattr(entry, "transforms", entry)
        for inner in entries if hasattr(entries, "__iter__") else ():
            on_tensors = _follow(inner, on_tensors)
        return on_tensors
    if on_tensors and getattr(entry, "antialias", True) is None:
        raise ValueError(
            f"transform: {name}(antialias=None) after {on_tensors} is not what the daemon does: torchvision then resizes a "
            f"tensor without antialiasing. Put it before {on_tensors}, or give antialias=True; both change pixels"
        )
    fill = getattr(entry, "fill", None)
    if isinstance(fill, dict):
        _check_fill(name, fill, on_tensors)
    return on_tensors or (name if name in _MAKE_TENSORS else False)


def _check_fill(name, fill, on_tensors):
    """torchvision takes the fill of exactly the input's type, or that of "others"."""
    own = "PIL.Image" if not on_tensors else "torchvision.tv_tensors" if on_tensors.startswith("ToImage") else "torch"
    kinds = [key for key in fill if getattr(key, "__name__", "") == ("Tensor" if own == "torch" else "Image")]
    kinds = [key for key in kinds if key.__module__.startswith(own)]
    taken = fill[kinds[0]] if kinds else fill.get("others", _fill(fill))
    if taken != _fill(fill):
        raise ValueError(
            f"transform: {name}'s dictionary fills images with {_fill(fill)!r}, and torchvision fills what it gets here with {taken!r}: "
            f"give the fill that is meant alone, fill={taken!r} to keep what torchvision does"
        )


def _plain(value):
    if isinstance(value, enum.Enum):  # InterpolationMode
        return value.value
    for convert in (getattr(value, "tolist", None), getattr(value, "item", None)):
        if convert:
            return convert()
    raise TypeError(f"transform: {value!r} is no number, text or list")


def _sequence(entries):
    return [op for entry in entries for op in _ops(entry)]


def _alternatives(entries):
    """As many ops as there are entries."""
    found = [_ops(entry) for entry in entries]
    return [ops[0] if len(ops) == 1 else ["Compose", ops] if ops else "Identity" for ops in found]


def _ops(entry):
    """One entry of a list as ops: none, itself, or all of a Compose."""
    if isinstance(entry, str):
        return [entry]
    if isinstance(entry, (list, tuple)):
        return [[_words(x) for x in entry]]
    if isinstance(entry, dict):
        return [entry]
    if isinstance(entry, numbers.Number):
        raise TypeError(
            f'transform: {entry!r} is no op; one with arguments is a list of its own: [["Resize", 256], ...]'
        )
    return _object(entry)


def _words(argument):
    """An argument of an op in words: in lists of ops objects may stand as well."""
    if isinstance(argument, (list, tuple)) and any(map(_is_transform, argument)):
        return [op for x in argument for op in ([x] if not _is_transform(x) else _alternatives([x]))]
    if isinstance(argument, dict):
        return {name: _words(value) for name, value in argument.items()}
    return argument


def _is_transform(x):
    return callable(x) and not isinstance(x, type) and not hasattr(x, "tolist")


def _object(entry):
    kind = type(entry)
    if kind.__module__.startswith("timm.data."):
        return _timm.ops(entry, _from_torchvision)
    if (getattr(entry, "__module__", "") or "").startswith("open_clip."):
        return _from_open_clip(entry)
    if kind.__name__ == "Identity" and kind.__module__.startswith("torch.nn."):
        return []
    if kind.__name__ in ("Sequential", "ModuleList") and kind.__module__.startswith("torch.nn."):
        return _sequence(entry)
    return _from_torchvision(entry)


def _from_open_clip(entry):
    """What open_clip.image_transform is made of, beside torchvision's classes."""
    name = getattr(entry, "__name__", type(entry).__name__)
    if name == "_convert_to_rgb" or (name == "MaybeConvertMode" and entry.mode == "RGB"):
        return []  # pixels are RGB
    if name == "MaybeToTensor":
        return ["ToTensor"]
    if name == "color_jitter":
        return [["RandomApply", _sequence([entry.transf]), entry.p]]
    if name == "gray_scale":
        return [["RandomGrayscale", entry.p]]
    if name == "CenterCropOrPad":
        fill = list(entry.fill) if isinstance(entry.fill, (list, tuple)) else entry.fill
        return [["CenterCropOrPad", {"size": list(entry.size), "fill": fill}]]
    if name == "ResizeKeepRatio" and not (entry.random_scale_prob or entry.random_aspect_prob):
        given = {"size": list(entry.size), "longest": entry.longest, "interpolation": _filter(entry.interpolation)}
        return [["ResizeKeepRatio", given]]
    return _from_torchvision(entry)


def _base(kind):
    """torchvision's class that a class is, or is a harmless subclass of; otherwise None."""
    mine = []
    for base in kind.__mro__:
        if not base.__module__.startswith("torchvision.transforms."):
            mine.append(base)
            continue
        if base.__name__ in ("Transform", "_RandomApplyTransform") or base.__name__.startswith("_"):
            break  # a new op of the user's
        for m in (m for b in mine for m, value in vars(b).items() if not _is_torchvisions(value)):
            if m in _METHODS or (m not in _HARMLESS and hasattr(base, m)):
                raise _overrides(kind, m, base)
        return base
    return None


def _overrides(kind, method, base):
    return TypeError(
        f"transform: {kind.__name__} overrides {method} of torchvision's {base.__name__}, so it does something "
        f"that the daemon does not know: use {base.__name__} itself, {_OUTLET}"
    )


def _is_torchvisions(method):
    """v2 puts its first generation's get_params into every subclass."""
    return getattr(getattr(method, "__func__", method), "__module__", "").startswith("torchvision.")


def _from_torchvision(entry):
    if _upstream.is_to_tensor(entry):
        return ["ToTensor"]
    kind = _base(type(entry))
    if kind is None:
        found = ["RGB"] if _upstream.converts(entry) else _upstream.ops(entry, _sequence)
        if found is not None:
            return found
        raise TypeError(_instead.foreign(entry, _OUTLET))
    name = kind.__name__
    for method in _METHODS:
        if method in getattr(entry, "__dict__", ()):  # set on the object itself
            raise _overrides(type(entry), method, kind)
    if name == "Lambda" and _upstream.converts(entry.lambd):
        return ["RGB"]
    _instead.check(name)
    if name in _SEQUENCES:
        return _sequence(entry.transforms)
    if name in _NOTHING:
        return []
    if name in _READERS:
        return _READERS[name](entry)
    given = _arguments(entry, kind)
    if name in _GENERATIONS and ".v2." not in kind.__module__ and kind.__module__ != "torchvision.transforms.v2":
        given["v1"] = True
    op = [name, given]
    try:
        json.dumps(op, default=_plain)
    except TypeError:
        return [name]  # no op of the daemon has such arguments
    return [op]


# ---- torchvision's classes whose attributes are not the arguments in words ----


def _dtype(entry):
    """ToDtype, ConvertImageDtype; a dictionary has a dtype for each kind of input. torchvision takes the one of just the
    input's type: a plain tensor's is not that of the Image that ToImage makes."""
    dtype = entry.dtype
    if isinstance(dtype, dict):
        kinds = {getattr(k, "__name__", k): v for k, v in dtype.items()}
        if "Tensor" in kinds and kinds.get("Image", kinds.get("others")) != kinds["Tensor"]:
            raise TypeError(
                "transform: ToDtype's dictionary has another dtype for torch.Tensor than for tv_tensors.Image, and whether an image "
                "is one or the other depends on what comes before: give ToDtype the images' dtype alone, ToDtype(torch.float32, "
                "scale=True)"
            )
        dtype = kinds.get("Image", kinds.get("others"))
        if dtype is None:
            return []
    scale = bool(getattr(entry, "scale", True))
    if str(dtype) == "torch.uint8":
        return []
    return [["ToDtype", {"dtype": str(dtype), "scale": scale}]]


def _preset(entry):
    """The object that torchvision's weights return from transforms()."""
    resize, crop = (
        [n[0] if len(n) == 1 else list(n)] if isinstance(n, (list, tuple)) else [n]
        for n in (entry.resize_size, entry.crop_size)
    )
    return [
        ["Resize", {"size": resize[0], "interpolation": _filter(entry.interpolation)}],
        ["CenterCrop", crop[0]],
        "ToTensor",
        ["Normalize", {"mean": list(entry.mean), "std": list(entry.std)}],
    ]


def _apply(entry):
    inner = _sequence(entry.transforms)
    return [["RandomApply", {"transforms": inner, "p": entry.p}]] if inner else []


def _choice(entry):
    weights = getattr(entry, "p", None)
    weights = None if weights is None or len(set(weights)) == 1 else list(weights)
    return [["RandomChoice", {"transforms": _alternatives(entry.transforms), "p": weights}]]


def _order(entry):
    return [["RandomOrder", {"transforms": _alternatives(entry.transforms)}]]


def _erasing(entry):
    """v2 keeps a number as a list of one, and "random" as None; v1 keeps what it got."""
    value = entry.value
    value = "random" if value is None else value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value
    return [["RandomErasing", {"p": entry.p, "scale": entry.scale, "ratio": entry.ratio, "value": value}]]


_READERS = {
    "ToDtype": _dtype,
    "ConvertImageDtype": _dtype,
    "ConvertDtype": _dtype,
    "ImageClassification": _preset,
    "RandomApply": _apply,
    "RandomChoice": _choice,
    "RandomOrder": _order,
    "RandomErasing": _erasing,
}


# ---- arguments ----


def _filter(interpolation):
    """ "nearest" ... of an InterpolationMode, a text or Pillow's number."""
    value = interpolation.value if isinstance(interpolation, enum.Enum) else interpolation
    if isinstance(value, int) and 0 <= value < len(_FILTERS):
        return _FILTERS[value]
    return "nearest" if value == "nearest-exact" else value  # they are the same on Pillow's images


def _fill(fill):
    """v2 has a fill for each kind of input, if it is a dictionary: that of images."""
    if not isinstance(fill, dict):
        return fill
    kinds = {getattr(k, "__name__", k): v for k, v in fill.items()}
    return next((kinds[k] for k in ("Image", "others", "Tensor") if k in kinds), 0)


def _arguments(entry, kind):
    """The arguments of its constructor, which torchvision keeps in attributes of the same names."""
    given = {name: getattr(entry, name) for name in inspect.signature(kind.__init__).parameters if hasattr(entry, name)}
    if given.pop("antialias", None) is False:  # Pillow and the daemon always do it
        raise ValueError(
            f"transform: {kind.__name__}(antialias=False) is not what the daemon does: it resizes images, as Pillow does, always with "
            "antialiasing. Leave antialias out"
        )
    for name, read in (("interpolation", _filter), ("fill", _fill)):
        if name in given:
            given[name] = read(given[name])
    if given.get("fill", 0) is None and kind.__name__ in _FILL_NUMBERS:
        del given["fill"]  # torchvision's None is its default
    size, padding = given.get("size"), given.get("padding")
    if isinstance(size, (list, tuple)) and len(size) == 1:
        given["size"] = size[0]
    if kind.__name__ == "RandomCrop" and ".v2." in kind.__module__ and padding is not None:
        left, right, top, bottom = padding  # only here in this order
        given["padding"] = [left, top, right, bottom]
    return given

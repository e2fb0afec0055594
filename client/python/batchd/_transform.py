"""Pipelines in the daemon's form: a name, or JSON with a list of ops, where torchvision's own objects may stand for
ops. The daemon knows which ops there are and checks their arguments."""

import enum
import inspect
import json
import numbers

_NOTHING = ("ToImage", "PILToTensor", "ToPureTensor", "Identity")  # the daemon's data is pixels until ToTensor
_TO_DTYPE = ("ToDtype", "ConvertImageDtype")
# timm's classes that equal torchvision's under another name; objects that are already converted pass through them.
_TIMMS = {"MaybeToTensor": "ToTensor", "RandomResizedCropAndInterpolation": "RandomResizedCrop"}


def text(transform):
    """The option's value for the C library."""
    if transform is None or isinstance(transform, str):
        return transform
    entries = transform if isinstance(transform, (list, tuple)) else [transform]
    return json.dumps([op for entry in entries for op in _ops(entry)], default=_plain)


def _plain(value):
    if isinstance(value, enum.Enum):  # InterpolationMode
        return value.value
    for convert in (getattr(value, "tolist", None), getattr(value, "item", None)):
        if convert:
            return convert()
    raise TypeError(f"transform: {value!r} is no number, text or list")


def _ops(entry):
    """One entry of a list as ops: none, itself, or all of a Compose."""
    if isinstance(entry, (str, list, tuple, dict)):
        return [entry]
    if isinstance(entry, numbers.Number):
        raise TypeError(
            f'transform: {entry!r} is no op; one with arguments is a list of its own: [["Resize", 256], ...]'
        )
    kind = type(entry)
    name = kind.__name__
    if name in ("Compose", "Sequential"):
        return [op for inner in getattr(entry, "transforms", entry) for op in _ops(inner)]
    if kind.__module__ == "timm.data.transforms":
        if name == "MaybePILToTensor":
            return []
        name = _TIMMS.get(name, name)
    elif name == "Identity" and kind.__module__.startswith("torch.nn."):
        return []
    elif not kind.__module__.startswith("torchvision.transforms."):
        raise TypeError(
            f"transform: {str(entry)[:80]} is Python, which the daemon does not run: use torchvision's own transforms or their names, do it in "
            "the training loop, or share a DataLoader of yours by batchd.serve"
        )
    if name in _NOTHING or (name in _TO_DTYPE and str(entry.dtype) == "torch.uint8"):
        return []
    if name in _TO_DTYPE and str(entry.dtype) == "torch.float32" and getattr(entry, "scale", True):
        return ["ToTensor"]
    if name == "ImageClassification":
        return _preset(entry)
    op = [name, _arguments(entry, kind)]
    try:
        json.dumps(op, default=_plain)
    except TypeError:
        return [name]  # no op of the daemon has such arguments
    return [op]


def _preset(entry):
    """The ops of the object that torchvision's weights return from transforms()."""
    resize, crop = (
        [n[0] if len(n) == 1 else list(n)] if isinstance(n, (list, tuple)) else [n]
        for n in (entry.resize_size, entry.crop_size)
    )
    return [
        ["Resize", {"size": resize[0], "interpolation": entry.interpolation}],
        ["CenterCrop", crop[0]],
        "ToTensor",
        ["Normalize", {"mean": list(entry.mean), "std": list(entry.std)}],
    ]


def _arguments(entry, kind):
    """The arguments of its constructor, which torchvision keeps in attributes of the same names."""
    given = {name: getattr(entry, name) for name in inspect.signature(kind.__init__).parameters if hasattr(entry, name)}
    if given.pop("antialias", None) is False:  # Pillow and the daemon always do it
        raise ValueError(
            f"transform: {kind.__name__}(antialias=False) is not what the daemon does: it resizes pictures, as Pillow does, always with "
            "antialiasing. Leave antialias out"
        )
    size, padding = given.get("size"), given.get("padding")
    if isinstance(size, (list, tuple)) and len(size) == 1:
        given["size"] = size[0]
    if kind.__name__ == "RandomCrop" and ".v2." in kind.__module__ and padding is not None:
        left, right, top, bottom = padding  # only here in this order
        given["padding"] = [left, top, right, bottom]
    return given

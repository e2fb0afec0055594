"""timm's transforms as ops."""


def expand_strings(ops):
    return ops


def ops(entry, from_torchvision):
    """An object of timm.data."""
    name = type(entry).__name__
    if name in ("MaybePILToTensor", "ToNumpy"):
        return []
    if name == "MaybeToTensor":
        return ["ToTensor"]
    reader = _READERS.get(name)
    if reader is None or not _is_timms(entry):
        return from_torchvision(entry)
    return reader(entry)


def _is_timms(entry):
    """Not another class of the same name."""
    return type(entry).__module__ in ("timm.data.transforms", "timm.data.random_erasing", "timm.data.auto_augment")


def _filter(interpolation):
    """timm keeps "random" as the filters to choose from."""
    if isinstance(interpolation, (list, tuple)):
        return "random"
    return getattr(interpolation, "value", interpolation)


def _resized_crop(entry):
    given = {name: list(getattr(entry, name)) for name in ("size", "scale", "ratio")}
    return [["RandomResizedCrop", {**given, "interpolation": _filter(entry.interpolation)}]]


def _erasing(entry):
    if entry.num_splits > 1:
        raise ValueError(
            f"transform: RandomErasing(num_splits={entry.num_splits}) spares the first part of a batch, and the daemon makes "
            "one image at a time: leave num_splits out, or use timm's RandomErasing on the batch"
        )
    import math

    return [
        [
            "RandomErasing",
            {
                "p": entry.probability,
                "scale": [entry.min_area, entry.max_area],
                "ratio": [math.exp(x) for x in entry.log_aspect_ratio],
                "value": "random" if entry.per_pixel else "color" if entry.rand_color else 0,
                "count": [entry.min_count, entry.max_count],
            },
        ]
    ]


_READERS = {"RandomResizedCropAndInterpolation": _resized_crop, "RandomErasing": _erasing}

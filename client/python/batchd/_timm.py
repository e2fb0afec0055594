"""timm's transforms as ops: its objects, read attribute by attribute. _timm_text.py reads the texts that its options take."""

import copy
import math

from ._warn import warn


def ops(entry, from_torchvision):
    """An object of timm.data."""
    reader = _READERS.get(type(entry).__name__)
    return reader(entry) if reader else from_torchvision(entry)


def _filter(interpolation):
    """timm keeps "random" as the filters to choose from."""
    if isinstance(interpolation, (list, tuple)):
        return "random"
    value = getattr(interpolation, "value", interpolation)
    return ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")[value] if isinstance(value, int) else value


def _resized_crop(entry):
    given = {name: list(getattr(entry, name)) for name in ("size", "scale", "ratio")}
    return [["RandomResizedCrop", {**given, "interpolation": _filter(entry.interpolation)}]]


def _in_frame(entry):
    """CenterCropOrPad, RandomCropOrPad."""
    mode = getattr(entry, "padding_mode", "constant")  # timm 0.9.2 has no other
    given = {"size": list(entry.size), "fill": _fill(entry.fill), "padding_mode": mode}
    return [[type(entry).__name__, given]]


def _fill(fill):
    return list(fill) if isinstance(fill, (list, tuple)) else fill


def _random_pad(entry):
    return [["RandomPad", {"input_size": list(entry.input_size), "fill": _fill(entry.fill)}]]


def _keep_ratio(entry):
    given = {"size": list(entry.size), "longest": entry.longest, "interpolation": _filter(entry.interpolation)}
    drawn = getattr(entry, "random_scale_prob", 0) or getattr(entry, "random_aspect_prob", 0)  # timm 0.9.2 has neither
    if not drawn and given["interpolation"] != "random":
        return [["ResizeKeepRatio", given]]
    for name in ("scale_prob", "scale_range", "scale_area", "aspect_prob", "aspect_range"):
        value = getattr(entry, f"random_{name}")
        given[f"random_{name}"] = list(value) if isinstance(value, tuple) else value
    return [["RandomResizeKeepRatio", given]]


def _numbers(entry):
    """timm's ToTensor keeps bytes' values."""
    if str(entry.dtype) == "torch.uint8":
        return []
    raise ValueError(
        f"transform: timm's ToTensor({entry.dtype}) gives numbers from 0 to 255: leave it out, ask for dtype='uint8', and convert "
        "in the training loop; or use MaybeToTensor, which gives 0 to 1"
    )


def erasing_of_split(pipeline, n, first):
    """A pipeline of timm's with its RandomErasing as its batch of n splits gets it: those whose num_splits is n spare the
    first."""
    made = []
    for entry in getattr(pipeline, "transforms", pipeline if isinstance(pipeline, (list, tuple)) else [pipeline]):
        splits = getattr(entry, "num_splits", 0) if type(entry).__name__ == "RandomErasing" else 0
        if splits > 1 and splits != n:
            raise ValueError(
                f"aug_splits: RandomErasing(num_splits={splits}) spares another part of the batch than the first of {n} views: "
                f"give both the same number (timm: --aug-splits {n} --resplit)"
            )
        if splits > 1:
            entry = copy.copy(entry)
            entry.num_splits = 0
        if splits <= 1 or not first:
            made.append(entry)
    return made


def _erasing(entry):
    if entry.num_splits > 1:  # timm looks at it in a batch only
        warn(
            f"RandomErasing(num_splits={entry.num_splits}) erases every image, as timm's does where it gets one image at a time; "
            "timm spares the first part of a batch only in its own batches. For timm's augmentation splits, whose first view is "
            f"spared, give batchd.aug_splits(create_transform(..., separate=True), n={entry.num_splits})",
        )
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


def _one_op(op):
    return [op.name, float(op.prob), float(op.magnitude)]


def _options(steps):
    """What the ops of a policy have in common."""
    found = []
    for op in steps:
        deviation = op.magnitude_std
        found.append(
            {
                "fill": op.kwargs["fillcolor"],
                "interpolation": _filter(op.kwargs["resample"]),
                "magnitude_std": "uniform" if deviation == math.inf else deviation,
                "magnitude_max": op.magnitude_max or None,
                "translate_const": op.hparams.get("translate_const", 250),
                "translate_pct": op.hparams.get("translate_pct", 0.45),
            }
        )
    if any(x != found[0] for x in found):
        raise ValueError(
            "transform: the ops of this timm policy have different hparams; the daemon has one set of them for a policy. "
            "Make them with one call of timm's functions"
        )
    fill = found[0]["fill"]
    return {**found[0], "fill": list(fill) if isinstance(fill, (list, tuple)) else fill}


def _rand_augment(entry):
    weights = entry.choice_weights
    arguments = {
        "ops": [_one_op(op) for op in entry.ops],
        "num_layers": entry.num_layers,
        "choice_weights": None if weights is None else [float(w) for w in weights],
    }
    return [["TimmRandAugment", {**arguments, **_options(entry.ops)}]]


def _auto_augment(entry):
    policy = [[_one_op(op) for op in steps] for steps in entry.policy]
    return [["TimmAutoAugment", {"policy": policy, **_options([op for steps in entry.policy for op in steps])}]]


def _aug_mix(entry):
    given = {name: getattr(entry, name) for name in ("alpha", "width", "depth", "blended")}
    return [["TimmAugMix", {"ops": [_one_op(op) for op in entry.ops], **given, **_options(entry.ops)}]]


_READERS = {
    "MaybeToTensor": lambda entry: ["ToTensor"],
    "MaybePILToTensor": lambda entry: [],
    "ToNumpy": lambda entry: [],
    "RandomResizedCropAndInterpolation": _resized_crop,
    "CenterCropOrPad": _in_frame,
    "RandomCropOrPad": _in_frame,
    "RandomPad": _random_pad,
    "TrimBorder": lambda entry: [["TrimBorder", entry.border_size]],
    "ResizeKeepRatio": _keep_ratio,
    "ToTensor": _numbers,
    "RandomErasing": _erasing,
    "RandAugment": _rand_augment,
    "AutoAugment": _auto_augment,
    "AugMixAugment": _aug_mix,
}

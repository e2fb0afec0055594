"""timm's transforms as ops: its objects, read attribute by attribute, and the texts that its options take
("rand-m9-mstd0.5-inc1")."""

import copy
import math
import re

_MEAN = (0.485, 0.456, 0.406)
_IMAGE_SIZE = 224

# ---- texts ----

_COMMON = ["AutoContrast", "Equalize", "Invert", "Rotate"]
_MOVES = ["ShearX", "ShearY", "TranslateXRel", "TranslateYRel"]
_ENHANCE = ["Color", "Contrast", "Brightness", "Sharpness"]
_RAND = [*_COMMON, "Posterize", "Solarize", "SolarizeAdd", *_ENHANCE, *_MOVES]
_RAND_INCREASING = [
    *_COMMON,
    "PosterizeIncreasing",
    "SolarizeIncreasing",
    "SolarizeAdd",
    *(name + "Increasing" for name in _ENHANCE),
    *_MOVES,
]
_SETS = {
    "3a": dict.fromkeys(["SolarizeIncreasing", "Desaturate", "GaussianBlur"]),
    "3aw": {
        "SolarizeIncreasing": 6,
        "Desaturate": 6,
        "GaussianBlur": 6,
        "Rotate": 3,
        "ShearX": 2,
        "ShearY": 2,
        "PosterizeIncreasing": 1,
        "AutoContrast": 1,
        "ColorIncreasing": 1,
        "SharpnessIncreasing": 1,
        "ContrastIncreasing": 1,
        "BrightnessIncreasing": 1,
        "Equalize": 1,
        "Invert": 1,
    },
    "weights": {
        "Rotate": 3,
        "ShearX": 2,
        "ShearY": 2,
        "TranslateXRel": 1,
        "TranslateYRel": 1,
        "ColorIncreasing": 0.25,
        "SharpnessIncreasing": 0.25,
        "AutoContrast": 0.25,
        "SolarizeIncreasing": 0.05,
        "SolarizeAdd": 0.05,
        "ContrastIncreasing": 0.05,
        "BrightnessIncreasing": 0.05,
        "Equalize": 0.05,
        "PosterizeIncreasing": 0.05,
        "Invert": 0.05,
    },
}
_AUGMIX = [
    "AutoContrast",
    "ColorIncreasing",
    "ContrastIncreasing",
    "BrightnessIncreasing",
    "SharpnessIncreasing",
    "Equalize",
    "Rotate",
    "PosterizeIncreasing",
    "SolarizeIncreasing",
    *_MOVES,
]
# Sub-policies: name, probability, magnitude.
_V0 = """Equalize 0.8 1, ShearY 0.8 4; Color 0.4 9, Equalize 0.6 3; Color 0.4 1, Rotate 0.6 8; Solarize 0.8 3, Equalize
0.4 7; Solarize 0.4 2, Solarize 0.6 2; Color 0.2 0, Equalize 0.8 8; Equalize 0.4 8, SolarizeAdd 0.8 3; ShearX
0.2 9, Rotate 0.6 8; Color 0.6 1, Equalize 1 2; Invert 0.4 9, Rotate 0.6 0; Equalize 1 9, ShearY 0.6 3; Color
0.4 7, Equalize 0.6 0; Posterize 0.4 6, AutoContrast 0.4 7; Solarize 0.6 8, Color 0.6 9; Solarize 0.2 4, Rotate
0.8 9; Rotate 1 7, TranslateYRel 0.8 9; ShearX 0 0, Solarize 0.8 4; ShearY 0.8 0, Color 0.6 4; Color 1 0, Rotate
0.6 2; Equalize 0.8 4, Equalize 0 8; Equalize 1 4, AutoContrast 0.6 2; ShearY 0.4 7, SolarizeAdd 0.6 7;
Posterize 0.8 2, Solarize 0.6 10; Solarize 0.6 8, Equalize 0.6 1; Color 0.8 6, Rotate 0.4 5"""
_ORIGINAL = """PosterizeOriginal 0.4 8, Rotate 0.6 9; Solarize 0.6 5, AutoContrast 0.6 5; Equalize 0.8 8, Equalize 0.6 3;
PosterizeOriginal 0.6 7, PosterizeOriginal 0.6 6; Equalize 0.4 7, Solarize 0.2 4; Equalize 0.4 4, Rotate 0.8 8;
Solarize 0.6 3, Equalize 0.6 7; PosterizeOriginal 0.8 5, Equalize 1 2; Rotate 0.2 3, Solarize 0.6 8; Equalize
0.6 8, PosterizeOriginal 0.4 6; Rotate 0.8 8, Color 0.4 0; Rotate 0.4 9, Equalize 0.6 2; Equalize 0 7, Equalize
0.8 8; Invert 0.6 4, Equalize 1 8; Color 0.6 4, Contrast 1 8; Rotate 0.8 8, Color 1 2; Color 0.8 8, Solarize 0.8
7; Sharpness 0.4 7, Invert 0.6 8; ShearX 0.6 5, Equalize 1 9; Color 0.4 0, Equalize 0.6 3; Equalize 0.4 7,
Solarize 0.2 4; Solarize 0.6 5, AutoContrast 0.6 5; Invert 0.6 4, Equalize 1 8; Color 0.6 4, Contrast 1 8;
Equalize 0.8 8, Equalize 0.6 3"""
_POLICIES = {
    "v0": _V0,
    "v0r": re.sub(r"\bPosterize\b", "PosterizeIncreasing", _V0),
    "original": _ORIGINAL,
    "originalr": _ORIGINAL.replace("PosterizeOriginal", "PosterizeIncreasing"),
    "3a": "Solarize 1 5; Desaturate 1 10; GaussianBlurRand 1 10",
}
_TEXT = re.compile(r"(rand|augmix|v0r?|originalr?|3a)(-[a-z]+[0-9][0-9.]*|-t[0-9a-z]+)*")


def expand_strings(ops):
    """Puts ops in the place of timm's texts, with the image's size, mean and filter from the list's other ops, as timm's
    create_transform takes them from its options."""
    return [_expand(op, ops) if isinstance(op, str) and _TEXT.fullmatch(op) else op for op in ops]


def _expand(text, ops):
    size, mean, interpolation = _surroundings(ops)
    kind, *sections = text.split("-")
    options = {
        "fill": [min(255, round(255 * x)) for x in mean],
        "interpolation": interpolation,
        "translate_const": int(size * 0.45),
    }
    given = {}
    for section in sections:
        key, value = ("t", section[1:]) if section.startswith("t") else re.split(r"(\d.*)", section)[:2]
        given[key] = value
    if kind == "rand":
        name, arguments, known = _rand(given)
    elif kind == "augmix":
        name, arguments, known = _augmix(given)
        options["translate_pct"] = 0.3
    else:
        policy = [[_step(step) for step in steps.split(",")] for steps in _POLICIES[kind].split(";")]
        name, arguments, known = "TimmAutoAugment", {"policy": policy}, ("mstd",)
    for key in given:
        if key not in (*known, "mstd", "mmax"):
            raise ValueError(f"transform: timm's text {text!r} has '{key}', which '{kind}' does not take")
    if "mstd" in given:
        deviation = float(given["mstd"])
        options["magnitude_std"] = "uniform" if deviation > 100 and kind == "rand" else deviation
    elif kind == "augmix":
        options["magnitude_std"] = "uniform"
    if "mmax" in given:
        options["magnitude_max"] = int(given["mmax"])
    return [name, {**arguments, **options}]


def _step(words):
    name, p, magnitude = words.split()
    return [name, float(p), float(magnitude)]


def _rand(given):
    increasing = bool(int(given.get("inc", 0)))
    names = dict.fromkeys(_RAND_INCREASING if increasing else _RAND)
    names = _SETS.get(given.get("t"), names)
    weights = None if None in names.values() else list(names.values())
    p, magnitude = float(given.get("p", 0.5)), int(given.get("m", 10))
    arguments = {
        "ops": [[name, p, magnitude] for name in names],
        "num_layers": int(given.get("n", 2)),
        "choice_weights": weights,
    }
    return "TimmRandAugment", arguments, ("m", "n", "p", "inc", "t")


def _augmix(given):
    arguments = {
        "ops": [[name, 1.0, int(given.get("m", 3))] for name in _AUGMIX],
        "alpha": float(given.get("a", 1)),
        "width": int(given.get("w", 3)),
        "depth": int(given.get("d", -1)),
        "blended": bool(int(given.get("b", 0))),
    }
    return "TimmAugMix", arguments, ("m", "w", "d", "a", "b")


def _surroundings(ops):
    size, mean, interpolation = _IMAGE_SIZE, _MEAN, "bilinear"
    for op in ops:
        if not isinstance(op, (list, tuple)) or not op:
            continue
        named = op[-1] if isinstance(op[-1], dict) else {}
        first = named.get("size") or (op[1] if len(op) > 1 and not isinstance(op[1], dict) else None)
        if op[0] in ("RandomResizedCrop", "RandomCrop", "CenterCrop") and first:
            size = min(first) if isinstance(first, (list, tuple)) else first
            interpolation = named.get("interpolation", interpolation)
        if op[0] == "Normalize":
            mean = named.get("mean") or (op[1] if len(op) > 1 else mean)
            mean = list(mean) if hasattr(mean, "__len__") else [mean]
    return size, [float(x) for x in mean], interpolation


# ---- objects ----


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
    if entry.num_splits > 1:
        raise ValueError(
            f"transform: RandomErasing(num_splits={entry.num_splits}) spares the first part of a batch, and the daemon makes "
            f"one image at a time: give batchd.aug_splits(create_transform(..., separate=True), n={entry.num_splits}), whose "
            "first view it spares; leave num_splits out; or use timm's RandomErasing on the batch"
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

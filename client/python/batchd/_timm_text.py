"""timm's texts for policies ("rand-m9-mstd0.5-inc1"), read as timm reads them (timm/data/auto_augment.py) and written as ops
of the daemon. timm need not be installed.

A text is sections behind dashes, each a key and a number; of a section that comes twice the last one counts, but of
mstd and mmax the first. Stricter than timm is only what it skips in silence, a section without a number: that is an
error."""

import json
import numbers
import re

_KEYS = {
    "rand": {"m": int, "n": int, "p": float, "mstd": float, "mmax": int, "inc": int, "t": str},
    "augmix": {"m": int, "w": int, "d": int, "a": float, "b": int, "mstd": float},
    **dict.fromkeys(("v0", "v0r", "original", "originalr", "3a"), {"mstd": float}),
}
_FIRST = ("mstd", "mmax")
_UNIFORM_ABOVE = 100

# ---- timm's sets of changes and its sub-policies, in its order, because a draw is a position ----

_PLAIN = (
    "AutoContrast Equalize Invert Rotate Posterize Solarize SolarizeAdd Color Contrast Brightness Sharpness "
    "ShearX ShearY TranslateXRel TranslateYRel"
).split()
_GROWING = ("Posterize", "Solarize", "Color", "Contrast", "Brightness", "Sharpness")
_INCREASING = [name + "Increasing" * (name in _GROWING) for name in _PLAIN]
_MIXTURE = (
    "AutoContrast ColorIncreasing ContrastIncreasing BrightnessIncreasing SharpnessIncreasing Equalize Rotate "
    "PosterizeIncreasing SolarizeIncreasing ShearX ShearY TranslateXRel TranslateYRel"
).split()
_SETS = {  # with weights, or without
    "3a": dict.fromkeys(("SolarizeIncreasing", "Desaturate", "GaussianBlur")),
    "3aw": {
        **{"SolarizeIncreasing": 6, "Desaturate": 6, "GaussianBlur": 6, "Rotate": 3, "ShearX": 2, "ShearY": 2},
        **{"PosterizeIncreasing": 1, "AutoContrast": 1, "ColorIncreasing": 1, "SharpnessIncreasing": 1},
        **{"ContrastIncreasing": 1, "BrightnessIncreasing": 1, "Equalize": 1, "Invert": 1},
    },
    "weights": {
        **{"Rotate": 3, "ShearX": 2, "ShearY": 2, "TranslateXRel": 1, "TranslateYRel": 1, "ColorIncreasing": 0.25},
        **{"SharpnessIncreasing": 0.25, "AutoContrast": 0.25, "SolarizeIncreasing": 0.05, "SolarizeAdd": 0.05},
        **{"ContrastIncreasing": 0.05, "BrightnessIncreasing": 0.05, "Equalize": 0.05, "PosterizeIncreasing": 0.05},
        **{"Invert": 0.05},
    },
}
_V0 = """Equalize 0.8 1, ShearY 0.8 4; Color 0.4 9, Equalize 0.6 3; Color 0.4 1, Rotate 0.6 8;
Solarize 0.8 3, Equalize 0.4 7; Solarize 0.4 2, Solarize 0.6 2; Color 0.2 0, Equalize 0.8 8;
Equalize 0.4 8, SolarizeAdd 0.8 3; ShearX 0.2 9, Rotate 0.6 8; Color 0.6 1, Equalize 1 2;
Invert 0.4 9, Rotate 0.6 0; Equalize 1 9, ShearY 0.6 3; Color 0.4 7, Equalize 0.6 0;
Posterize 0.4 6, AutoContrast 0.4 7; Solarize 0.6 8, Color 0.6 9; Solarize 0.2 4, Rotate 0.8 9;
Rotate 1 7, TranslateYRel 0.8 9; ShearX 0 0, Solarize 0.8 4; ShearY 0.8 0, Color 0.6 4;
Color 1 0, Rotate 0.6 2; Equalize 0.8 4, Equalize 0 8; Equalize 1 4, AutoContrast 0.6 2;
ShearY 0.4 7, SolarizeAdd 0.6 7; Posterize 0.8 2, Solarize 0.6 10; Solarize 0.6 8, Equalize 0.6 1;
Color 0.8 6, Rotate 0.4 5"""
_ORIGINAL = """PosterizeOriginal 0.4 8, Rotate 0.6 9; Solarize 0.6 5, AutoContrast 0.6 5; Equalize 0.8 8, Equalize 0.6 3;
PosterizeOriginal 0.6 7, PosterizeOriginal 0.6 6; Equalize 0.4 7, Solarize 0.2 4; Equalize 0.4 4, Rotate 0.8 8;
Solarize 0.6 3, Equalize 0.6 7; PosterizeOriginal 0.8 5, Equalize 1 2; Rotate 0.2 3, Solarize 0.6 8;
Equalize 0.6 8, PosterizeOriginal 0.4 6; Rotate 0.8 8, Color 0.4 0; Rotate 0.4 9, Equalize 0.6 2;
Equalize 0 7, Equalize 0.8 8; Invert 0.6 4, Equalize 1 8; Color 0.6 4, Contrast 1 8;
Rotate 0.8 8, Color 1 2; Color 0.8 8, Solarize 0.8 7; Sharpness 0.4 7, Invert 0.6 8;
ShearX 0.6 5, Equalize 1 9; Color 0.4 0, Equalize 0.6 3; Equalize 0.4 7, Solarize 0.2 4;
Solarize 0.6 5, AutoContrast 0.6 5; Invert 0.6 4, Equalize 1 8; Color 0.6 4, Contrast 1 8;
Equalize 0.8 8, Equalize 0.6 3"""
_POLICIES = {
    "v0": _V0,
    "v0r": _V0.replace("Posterize", "PosterizeIncreasing"),
    "original": _ORIGINAL,
    "originalr": _ORIGINAL.replace("PosterizeOriginal", "PosterizeIncreasing"),
    "3a": "Solarize 1 5; Desaturate 1 10; GaussianBlurRand 1 10",
}

# ---- a pipeline ----


def is_text(entry):
    """Whether an entry of a pipeline is a text of timm's, right or wrong: its first word is "rand", "augmix" or a policy's
    name."""
    if isinstance(entry, list) and len(entry) == 1:
        entry = entry[0]
    return isinstance(entry, str) and entry.split("-")[0] in _KEYS


def expand(ops):
    """The ops, with those that they stand for in place of timm's texts."""
    return _expand(ops, _Surroundings(ops), "")


def in_json(transform):
    """The same in a transform that is a name, or JSON of a pipeline or of several views."""
    if is_text(transform):
        raise ValueError(
            f"transform: {transform!r} is one op of a pipeline: put it into a list, such as "
            f'[["RandomResizedCrop", 224], "{transform}", "ToTensor"]'
        )
    if transform.lstrip()[:1] not in ("[", "{") or not any(f'"{kind}' in transform for kind in _KEYS):
        return transform
    try:
        found = json.loads(transform)
    except ValueError:
        return transform  # the daemon says what is wrong with it
    return json.dumps(_expand_views(found))


def _expand_views(found):
    if isinstance(found, list):
        return expand(found)
    if not isinstance(found, dict):
        return found
    return {
        key: list(map(_expand_views, value)) if key == "views" else _expand_views(value) for key, value in found.items()
    }


def _expand(ops, around, parent):
    made = []
    for i, op in enumerate(ops, 1):
        position = f"{parent}{i}"
        if is_text(op):
            op = _op(op if isinstance(op, str) else op[0], around, position)
        elif isinstance(op, list) and op and op[0] in _CONTAINERS:
            op = [_expand_argument(x, around, position) for x in op]
        made.append(op)
    return made


def _expand_argument(argument, around, position):
    """Of a container: its list of ops, by position or by name."""
    if isinstance(argument, dict):
        return {k: _expand_argument(v, around, position) if k == "transforms" else v for k, v in argument.items()}
    return _expand(argument, around, f"{position}.") if isinstance(argument, (list, tuple)) else argument


# ---- what timm's create_transform takes from its options, and a pipeline has in its other ops ----

_CONTAINERS = ("Compose", "RandomApply", "RandomChoice", "RandomOrder", "SharedByViews")
_CROPS = ("RandomResizedCrop", "RandomCrop", "CenterCrop", "RandomCropOrPad", "CenterCropOrPad")
_FILTERS = {"RandomResizedCrop": 3, "Resize": 1, "ResizeKeepRatio": 2, "RandomResizeKeepRatio": 2}
_MOST_EDGE = 8192


def _argument(op, name, at):
    """By name or position; None: not given."""
    named = op[-1] if isinstance(op[-1], dict) else {}
    placed = op[1:-1] if named else op[1:]
    return named.get(name, placed[at] if at < len(placed) else None)


def _numbers(value):
    """A number or several as a list; [] for anything else."""
    value = value.tolist() if hasattr(value, "tolist") else value
    several = list(value) if isinstance(value, (list, tuple)) else [value]
    return several if all(isinstance(x, numbers.Real) for x in several) else []


class _Surroundings:
    """The crop's size (its shorter edge) and filter, and Normalize's mean."""

    def __init__(self, ops):
        self.size, self.mean, self.filter = 224, [0.485, 0.456, 0.406], "bilinear"
        self._look(ops)

    def _look(self, ops):
        for op in ops:
            if op in ("train224", "val224"):
                self.size, self.mean = 224, [0.485, 0.456, 0.406]
            elif isinstance(op, list) and op and op[0] in ("Compose", "SharedByViews"):
                inner = _argument(op, "transforms", 0)
                self._look(inner if isinstance(inner, (list, tuple)) else [])
            elif isinstance(op, list) and op and isinstance(op[0], str):
                self._note(op)

    def _note(self, op):
        edges = _numbers(_argument(op, "size", 0)) if op[0] in _CROPS else []
        if edges and 1 <= min(edges) <= _MOST_EDGE:
            self.size = int(min(edges))
        found = _argument(op, "interpolation", _FILTERS[op[0]]) if op[0] in _FILTERS else None
        found = getattr(found, "value", found)
        if isinstance(found, str):
            self.filter = found
        mean = _numbers(_argument(op, "mean", 0)) if op[0] == "Normalize" else []
        if len(mean) in (1, 3):
            self.mean = mean


# ---- a text ----


def _number(kind, digits):
    """None: it is none."""
    if kind is int:
        return int(digits) if re.fullmatch("[0-9]{1,15}", digits) else None
    return float(digits) if re.fullmatch(r"[0-9]+\.?[0-9]*", digits) and len(digits) <= 15 else None


def _sections(text, position):
    kind, *sections = text.split("-")
    keys, said = _KEYS[kind], {}

    def wrong(section, why):
        names = [*keys][:-1]
        takes = ", ".join(names) + " and " * bool(names) + [*keys][-1]
        return ValueError(f"transform: op {position}: timm's text {text!r}: {section!r} {why}; {kind!r} takes {takes}")

    for section in sections:
        if "t" in keys and section.startswith("t"):
            said["t"] = section[1:]
            continue
        key, digits = re.fullmatch("([^0-9]*)(.*)", section, re.DOTALL).groups()
        if key not in keys or key == "t":
            raise wrong(section, "is not known")
        value = _number(keys[key], digits)
        if value is None:
            raise wrong(section, "wants a whole number" if keys[key] is int else "wants a number")
        if key not in said or key not in _FIRST:
            said[key] = value
    return kind, said


def _changes(names, p, magnitude):
    return [[name, float(p), float(magnitude)] for name in names]


def _rand(said):
    chosen = _SETS.get(said.get("t"))  # timm: another name is as none
    names = chosen or (_INCREASING if said.get("inc") else _PLAIN)
    weights = [float(w) for w in chosen.values() if w] if chosen else []
    return {
        "ops": _changes(names, said.get("p", 0.5), said.get("m", 10)),
        "num_layers": said.get("n", 2),
        "choice_weights": weights or None,
    }


def _mixture(said):
    return {
        "ops": _changes(_MIXTURE, 1, said.get("m", 3)),
        "alpha": said.get("a", 1.0),
        "width": said.get("w", 3),
        "depth": said.get("d", -1),
        "blended": bool(said.get("b", 0)),
        "translate_pct": 0.3,
    }


def _policy(kind):
    return {
        "policy": [
            [[name, float(p), float(m)] for name, p, m in (step.split() for step in pair.split(","))]
            for pair in _POLICIES[kind].split(";")
        ]
    }


def _deviation(kind, said):
    if "mstd" not in said:
        return "uniform" if kind == "augmix" else 0.0
    return "uniform" if kind == "rand" and said["mstd"] > _UNIFORM_ABOVE else said["mstd"]


def _op(text, around, position):
    """[name, {arguments}] that means the same."""
    kind, said = _sections(text, position)
    name = {"rand": "TimmRandAugment", "augmix": "TimmAugMix"}.get(kind, "TimmAutoAugment")
    given = _rand(said) if kind == "rand" else _mixture(said) if kind == "augmix" else _policy(kind)
    fill = [round(max(0.0, min(255.0, 255.0 * x))) for x in around.mean]
    given |= {
        "fill": fill if len(fill) == 3 else fill[0],
        "interpolation": around.filter,
        "translate_const": int(around.size * 0.45),
        "magnitude_std": _deviation(kind, said),
    }
    return [name, {**given, "magnitude_max": float(said["mmax"])} if "mmax" in said else given]

"""Several data sets as one: lists of data sets, and blends with weights.

The C library and the daemon take them as one text, "blend:[seed=N;;][WEIGHT*]DATASET[;;[WEIGHT*]DATASET]...".
"""

import collections.abc
import os

from . import _check, _shards, _specs


class Blend:
    """What batchd.blend returns: `parts`, pairs of a data set and its weight (None: no weights), and a seed."""

    def __init__(self, parts, seed):
        self.parts, self.seed = parts, seed

    def __repr__(self):
        return f"batchd.blend({dict(self.parts)!r}, seed={self.seed!r})"


def _part(dataset, length=None):
    """The text of one of several data sets."""
    if not isinstance(dataset, (str, bytes, os.PathLike)):
        kind = type(dataset).__name__
        raise TypeError(
            f"dataset is a list with {kind} in it: each of several data sets must be a text, such as 'imagefolder:DIR'. "
            "Hand over a single data set without a list; make one of HuggingFace's by concatenate_datasets, or name what "
            "save_to_disk(DIR) has written as 'arrow:DIR'; batchd.serve shares any other Dataset or DataLoader"
        )
    text = _check.dataset(dataset, length)
    if ":" not in text:
        raise ValueError(
            f"{text!r} is one of several data sets, and each must say what it is, such as 'imagefolder:DIR'; a name from "
            "the daemon's configuration stands alone"
        )
    return text


def _weight(value):
    number = float(value)
    if not 1e-9 <= number < 1e9:
        raise ValueError(f"blend: a weight must be from 1e-9 to 1e9, not {value!r}; leave data sets without weight out")
    return f"{number:.9f}".rstrip("0").rstrip(".")


def blend(datasets, seed=None):
    """Several data sets as one, for DataLoader, with a weight each: blend({"imagefolder:/a": 0.7, "tar:/b": 0.3}).

    An epoch has as many samples as all data sets together. Each gives its share by weight, every one of its samples as
    often as any other, or once more; which ones come once more is drawn again for each epoch, by seed (default: the
    loader's). So a data set with a small weight is seen in part, and another part in the next epoch; one with a large
    weight comes several times, each time augmented again. Order, ranks and checkpoints are those of any data set.

    datasets: a mapping, or pairs of a data set and its weight, as a data set may come twice. All have the same fields."""
    pairs = datasets.items() if isinstance(datasets, collections.abc.Mapping) else datasets
    parts = [(_part(dataset), _weight(weight)) for dataset, weight in pairs]
    if not parts:
        raise ValueError("blend: no data sets")
    return Blend(parts, None if seed is None else _check.number("seed", seed))


def complete(dataset, length, seed, shuffle, fields):
    """The text of one data set, a list or a blend, and `fields` by the names that its samples have."""
    if isinstance(dataset, list):
        if not dataset:
            raise ValueError("dataset is an empty list")
        dataset = Blend([(_part(d, length), None) for d in dataset], None)
    if not isinstance(dataset, Blend):
        return _shards.with_fields(_specs.complete(_check.dataset(dataset, length), length, seed, shuffle), fields)
    if length is not None and not any(part.startswith("tokens:") for part, _ in dataset.parts):
        raise TypeError(_specs.NO_LENGTH)
    named, parts = fields, []
    for part, weight in dataset.parts:
        if ";;" in part or part.startswith("blend:"):
            raise ValueError(f"{part}: a data set of a blend has no ';;' in its name, and is no blend")
        is_tokens = part.startswith("tokens:")
        part, part_fields = _shards.with_fields(
            _specs.complete(part, length if is_tokens else None, seed, shuffle), fields
        )
        named = part_fields if part_fields is not fields else named
        parts.append(part if weight is None else f"{weight}*{part}")
    if dataset.seed is not None:
        parts.insert(0, f"seed={dataset.seed}")
    return "blend:" + ";;".join(parts), named


def first(spec):
    """The text of a blend's first data set, which has the form of all."""
    if not spec.startswith("blend:"):
        return spec
    parts = spec[6:].split(";;")
    part = parts[parts[0].startswith("seed=") and len(parts) > 1]
    weight, star, rest = part.partition("*")
    return rest if star and weight.replace(".", "", 1).isdigit() else part

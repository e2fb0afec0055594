"""Several pipelines for one image: how a transform names them, and how their rows become lists and dictionaries."""

import json

from . import _branches, _timm, _transform

MOST = 64


class Views:
    """What views() makes: pipelines whose results come as a list, or stacked."""

    def __init__(self, pipelines, n, stack):
        self.pipelines, self.n, self.stack = pipelines, n, stack

    def __len__(self):
        return len(self.pipelines) * self.n

    def __repr__(self):
        inner = ", ".join(map(repr, self.pipelines))
        return f"batchd.views({inner}, n={self.n}, stack={self.stack})"


def views(*pipelines, n=1, stack=False):
    """Several pipelines for each image, as the transform of a DataLoader or as a value of a dictionary of them:

        transform=batchd.views(augment, n=2)                                    # SimCLR, MoCo: images is a list of 2
        transform={"global": batchd.views(g1, g2), "local": batchd.views(l, n=8)}    # images["local"] is a list of 8

    Each pipeline is what a transform may be. n: how many times the pipelines come, one after the other. Every view draws
    its own random numbers, and an image is decoded once for all of its views. stack: the views have one shape and come as
    one tensor [views, rows, ...] in place of a list. An image has at most 64 views."""
    if not pipelines:
        raise TypeError("views: give at least one pipeline")
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ValueError(f"views: n must be a whole number from 1 on, not {n!r}")
    if len(pipelines) * n > MOST:
        raise ValueError(f"views: {len(pipelines) * n} views; an image can have {MOST} at most")
    return Views(list(pipelines), n, bool(stack))


def aug_splits(transform, n=3, stack=False):
    """timm's augmentation splits (AugMixDataset, --aug-splits), as the transform of a DataLoader: n views of each image,
    which share the crop and the flip; the first one is clean, each of the others is augmented differently.

        transform=batchd.aug_splits(create_transform(224, ..., is_training=True, use_prefetcher=False, separate=True), n=3)

    transform: three pipelines (base, augmentation, numbers), which may also be lists of ops. The base's draws are the same
    for all views. timm's RandomErasing(num_splits=n) among the numbers spares the first view, as it spares the first part
    of timm's batch. images is a list of n; with stack=True one tensor, and images.flatten(0, 1) is timm's batch."""
    if isinstance(n, bool) or not isinstance(n, int) or not 2 <= n <= MOST:
        raise ValueError(f"aug_splits: n must be a whole number from 2 to {MOST}, not {n!r}")
    if not isinstance(transform, (list, tuple)) or len(transform) != 3:
        raise TypeError(
            "aug_splits: give three pipelines (base, augmentation, numbers), as timm's create_transform(separate=True) returns"
        )
    base, augmentation = map(_transform.ops, transform[:2])
    erased = [_transform.ops(_timm.erasing_of_split(transform[2], n, first)) for first in (True, False)]
    shared = [["SharedByViews", base]] if base else []
    return Views([[*shared, *erased[0]], *[[*shared, *augmentation, *erased[1]]] * (n - 1)], 1, bool(stack))


class Form:
    """How the views of an image, in their order, become what a batch has of them: a list, a stacked tensor, or a
    dictionary of these and of single views."""

    def __init__(self, parts, is_dict):
        self._parts, self.is_dict = parts, is_dict  # (key, number of views or None for one that stands alone, stack)

    @property
    def n(self):
        return sum(1 if n is None else n for _, n, _ in self._parts)

    @property
    def stacks(self):
        """(begin, end) of the views that come as one tensor."""
        at, found = 0, []
        for _, n, stacked in self._parts:
            begin, at = at, at + (1 if n is None else n)
            if stacked:
                found.append((begin, at))
        return found

    @property
    def keys(self):
        return [key for key, _, _ in self._parts]

    def spread(self, path, given):
        """(path, number of the first view, views stacked there or 0, target) of targets in the structure that build
        makes; a dictionary may leave keys out."""
        if self.is_dict and not isinstance(given, dict):
            raise TypeError(f"{path} is a {type(given).__name__}, and the views are a dictionary of {self._list()}")
        if self.is_dict and set(given) - set(self.keys):
            raise ValueError(
                f"{path} has {sorted(map(str, set(given) - set(self.keys)))}, and the views are {self._list()}"
            )
        at = 0
        for key, n, stacked in self._parts:
            begin, at = at, at + (1 if n is None else n)
            where, target = (f"{path}[{key!r}]", given.get(key)) if self.is_dict else (path, given)
            if target is None:
                continue
            if n is None or stacked:
                yield where, begin, n if stacked else 0, target
                continue
            if not isinstance(target, (list, tuple)) or len(target) != n:
                raise TypeError(f"{where} must be a list of {n} targets, one for each view")
            for i, one in enumerate(target):
                yield f"{where}[{i}]", begin + i, 0, one

    def _list(self):
        return ", ".join(map(repr, self.keys))

    def build(self, made, stack):
        """made: the views in order; stack(begin, end): those of these numbers as one tensor."""
        at, built = 0, {}
        for key, n, stacked in self._parts:
            end = at + (1 if n is None else n)
            built[key] = made[at] if n is None else stack(at, end) if stacked else [made[k] for k in range(at, end)]
            at = end
        return built if self.is_dict else built[""]


def read(transform):
    """(the option's text for the C library, Form; None where the transform makes one view)"""
    views_of = _unwrap(transform)
    if isinstance(views_of, Views):
        return json.dumps({"": _value(views_of)}), Form([("", len(views_of), views_of.stack)], False)
    if not isinstance(views_of, dict):
        return _transform.text(transform), None
    if not views_of:
        raise ValueError("transform: a dictionary of views has at least one")
    text, parts = {}, []
    for key, value in views_of.items():
        if not isinstance(key, str) or not key or key.startswith("."):
            raise ValueError(f"transform: a view is named by a text that begins with no dot, not {key!r}")
        inner = _unwrap(value)
        if isinstance(inner, Views):
            parts.append((key, len(inner), inner.stack))
            text[key] = _value(inner)
        else:
            parts.append((key, None, False))
            text[key] = _pipeline(inner)
    return json.dumps(text), Form(parts, True)


def _value(views_of):
    return {"views": [_pipeline(p) for p in views_of.pipelines], "n": views_of.n}


def _pipeline(transform):
    """The text of one pipeline as JSON has it."""
    text = _transform.text(transform)
    if text is None:
        raise TypeError("transform: a view needs a pipeline of its own, not None")
    return json.loads(text) if text.lstrip().startswith("[") else text


def _unwrap(transform):
    """Views, for what stands for several pipelines: a list of whole pipelines, or an object of a well-known recipe.
    Anything else unchanged; a tuple of Compose objects is one pipeline, which timm's create_transform(separate=True)
    makes in parts."""
    if isinstance(transform, list) and len(transform) > 1 and all(map(_is_whole, transform)):
        return Views(list(transform), 1, False)
    kind = _kind(type(transform))
    if kind:
        found = _OBJECTS[kind](transform)
        return transform if found is None else found
    found = _branches.pipelines(transform, MOST)
    return transform if found is None else Views(found, 1, False)


def _kind(cls):
    """The name in _OBJECTS of a class, or of the base whose __call__ it has."""
    for base in cls.__mro__:
        if base.__name__ in _OBJECTS and not base.__module__.startswith("torchvision."):
            return base.__name__
        if "__call__" in vars(base):
            return None
    return None


def _is_whole(entry):
    """Whether an entry of a list is a pipeline by itself: a Compose, or a list that is no [op, arguments...]."""
    if isinstance(entry, (list, tuple)):
        return bool(entry) and not isinstance(entry[0], str)
    return type(entry).__name__ in ("Compose", "Sequential")


# ---- objects that call several pipelines, by their names in the recipes, as their __call__ reads them ----


def _two_crops(entry):
    """TwoCropsTransform of MoCo v3 (two pipelines), and of MoCo and SimSiam (one)."""
    pipelines = [getattr(entry, name, None) for name in ("base_transform1", "base_transform2")]
    if all(pipelines):
        return Views(pipelines, 1, False)
    base = getattr(entry, "base_transform", None)
    return Views([base], 2, False) if base is not None else None


def _contrastive(entry):
    """SimCLR's ContrastiveLearningViewGenerator."""
    base, n = getattr(entry, "base_transform", None), getattr(entry, "n_views", None)
    return Views([base], n, False) if base is not None and isinstance(n, int) and 1 <= n <= MOST else None


def _dino(entry):
    """DataAugmentationDINO: [global 1, global 2, local, local, ...], and DINOv2's class of this name."""
    if hasattr(entry, "geometric_augmentation_global"):
        return _dino_v2(entry)
    names = ("global_transfo1", "global_transfo2", "local_transfo", "local_crops_number")
    first, second, local, n = (getattr(entry, name, None) for name in names)
    if not (first and second and local) or not isinstance(n, int) or not 0 <= n <= MOST - 2:
        return None
    return Views([first, second] + [local] * n, 1, False)


def _dino_v2(entry):
    """A dictionary of "global_crops", two, and "local_crops". Its "global_crops_teacher" are the global crops again."""
    names = (
        "geometric_augmentation_local",
        "global_transfo1",
        "global_transfo2",
        "local_transfo",
        "local_crops_number",
    )
    place, first, second, local, n = (getattr(entry, name, None) for name in names)
    if not (place and first and second and local) or not isinstance(n, int) or not 0 <= n <= MOST - 2:
        return None
    large = entry.geometric_augmentation_global
    made = {"global_crops": Views([[large, first], [large, second]], 1, False)}
    return {**made, "local_crops": Views([[place, local]], n, False)} if n else made


def _ibot(entry):
    """DataAugmentationiBOT: [global 1, global 2, global 2, ..., local, local, ...]."""
    names = ("global_transfo1", "global_transfo2", "local_transfo", "global_crops_number", "local_crops_number")
    first, second, local, n_global, n = (getattr(entry, name, None) for name in names)
    if not (first and second and local) or not all(isinstance(x, int) and x >= 0 for x in (n_global, n)):
        return None
    return Views([first] + [second] * (n_global - 1) + [local] * n, 1, False) if 1 <= n_global + n <= MOST else None


def _one_view(entry):
    """lightly's MAETransform and AIMTransform: a list of one view."""
    inner = getattr(entry, "transform", None)
    return Views([inner], 1, False) if inner is not None else None


def _multi_view(entry):
    """lightly's MultiViewTransform, and solo-learn's FullTransformPipeline of crops."""
    inner = getattr(entry, "transforms", None)
    if not isinstance(inner, (list, tuple)) or not inner:
        return None
    counts = [(t.transform, t.num_crops) if type(t).__name__ == "NCropAugmentation" else (t, 1) for t in inner]
    found = [p for p, n in counts for _ in range(n)]
    return Views(found, 1, False) if len(found) <= MOST else None


_OBJECTS = {
    "MultiViewTransform": _multi_view,
    "FullTransformPipeline": _multi_view,
    "TwoCropsTransform": _two_crops,
    "TwoCropTransform": _two_crops,
    "ContrastiveLearningViewGenerator": _contrastive,
    "DataAugmentationDINO": _dino,
    "DataAugmentationiBOT": _ibot,
    "MAETransform": _one_view,
}

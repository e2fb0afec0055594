"""Objects that call several pipelines of theirs on one image (Transform of Barlow Twins, TrainTransform of VICReg ...), as
lists of pipelines.

Neither names nor attributes say what such an object does: it is called with marks in place of its pipelines, which note
the way of the image through them."""

import copy

from . import _upstream

_LIBRARIES = ("torchvision", "torch", "timm", "open_clip", "batchd", "builtins", "functools")


class _Made:
    """What marks make of the image: `way` has the pipelines that it went through."""

    def __init__(self, way):
        self.way, self.is_used = way, False

    def use(self):
        """An image that two pipelines share has been drawn once, which views cannot say."""
        if self.is_used:
            raise ValueError("used twice")
        self.is_used = True
        return self.way


class _Mark:
    """Stands for a pipeline."""

    def __init__(self, pipeline, picture):
        self._pipeline, self._picture = pipeline, picture

    def __call__(self, image):
        if isinstance(image, _Made):
            return _Made([*image.use(), self._pipeline])
        if image.mode != "RGB" or image.size != self._picture.size or image.tobytes() != self._picture.tobytes():
            raise ValueError("the image was changed on its way")
        return _Made([self._pipeline])


def _is_pipeline(value):
    return callable(value) and not isinstance(value, type)


def _marks(entry, picture):
    """Marks for those of its attributes that are pipelines, or lists of them."""
    marks = {}
    for name, value in vars(entry).items():
        if _is_pipeline(value):
            marks[name] = _Mark(value, picture)
        elif isinstance(value, (list, tuple)) and value and all(map(_is_pipeline, value)):
            marks[name] = [_Mark(one, picture) for one in value]
    return marks


def _ways(entry, marks, image, most):
    twin = copy.copy(entry)
    for name, mark in marks.items():
        setattr(twin, name, mark)
    made = twin(image)
    if not isinstance(made, (list, tuple)) or not 1 <= len(made) <= most:
        raise ValueError("no list of images")
    return [one.use() for one in made]


def pipelines(entry, most):
    """The pipelines, in the order of what the object returns, each a list of what the image goes through; None: it is
    something else, or has more than `most`."""
    kind = type(entry)
    if kind.__module__.partition(".")[0] in _LIBRARIES or not callable(entry) or not hasattr(entry, "__dict__"):
        return None
    picture = _upstream.picture()
    marks, found = _marks(entry, picture), []
    with _upstream.states():
        for seed in range(4) if marks else ():
            _upstream.seed_all(seed)
            try:
                found.append(_ways(entry, marks, picture.copy(), most))
            except Exception:  # whatever an object of the user's raises: it does more than that
                return None
    numbers = [[list(map(id, way)) for way in ways] for ways in found]
    return found[0] if found and all(n == numbers[0] for n in numbers) else None

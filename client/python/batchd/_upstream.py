"""Small classes of well-known recipes (DINO's utils.GaussianBlur, MoCo's Solarize, DeiT's gray_scale, lightly's
RandomSolarization ...) as ops.

They have no package that could be named, and copies of them differ. So neither a name nor attributes decide: the object is
run on a small picture, and is read as an op where it gives Pillow's result of that op, pixel by pixel, with the same draws
of Python's or numpy's generator. The generators' states are put back."""

import contextlib
import copy
import random
import sys

import numpy

_SEEDS = range(12)


class _Calls:
    """What a class does that calls its only attribute and nothing else, in several spellings."""

    def at_once(self, image):
        return self.pipeline(image)

    def by_a_name(self, image):
        made = self.pipeline(image)
        return made

    def with_anything(self, *args, **kwargs):
        return self.pipeline(*args, **kwargs)


class _Draws:
    """What a class draws from: Python's generator, numpy's, or both."""

    def __init__(self, unit, uniform):
        self.unit, self.uniform = unit, uniform


def _picture():
    """Every value in each channel, so that a threshold off by one is seen, and dark ones more often, so that equalizing
    changes it."""
    from PIL import Image

    generator = numpy.random.default_rng(3)
    dark = [(256 * generator.random(320) ** 3).astype(int) for _ in range(3)]
    planes = [generator.permutation(numpy.concatenate([numpy.arange(256), d])).reshape(24, 24) for d in dark]
    return Image.fromarray(numpy.stack(planes, -1).astype(numpy.uint8))


@contextlib.contextmanager
def _states():
    torch = sys.modules.get("torch")
    python, of_numpy = random.getstate(), numpy.random.get_state()
    of_torch = torch.get_rng_state() if torch else None
    try:
        yield
    finally:
        random.setstate(python)
        numpy.random.set_state(of_numpy)
        if torch:
            torch.set_rng_state(of_torch)


def _seed(seed):
    random.seed(seed)
    numpy.random.seed(seed)


def _makes(entry, model, draws, picture):
    for seed in _SEEDS:
        _seed(seed)
        made = entry(picture.copy())
        _seed(seed)
        wanted = model(entry, picture.copy(), draws)
        if getattr(made, "mode", None) != "RGB" or made.size != wanted.size or made.tobytes() != wanted.tobytes():
            return False
    return True


def _is(entry, model, chance):
    """Whether the object does what the model does, with its own probability and with 0 and 1."""
    known = [entry]
    for p in (0.0, 1.0) if chance else ():
        known.append(copy.copy(entry))
        setattr(known[-1], chance, p)
    picture = _picture()
    generators = [
        _Draws(random.random, random.uniform),
        _Draws(numpy.random.random_sample, numpy.random.uniform),
        _Draws(numpy.random.random_sample, random.uniform),  # SwAV
    ]
    with _states():
        for draws in generators:
            try:
                if all(_makes(one, model, draws, picture) for one in known):
                    return True
            except Exception:  # whatever a class of the user's raises: it is not this one
                return False
    return False


# ---- models: (object, picture, draws) -> picture ----


def _chance(name, change):
    return lambda entry, image, draws: change(entry, image, draws) if draws.unit() < getattr(entry, name) else image


def _blur(least, most):
    def change(entry, image, draws):
        from PIL import ImageFilter

        return image.filter(ImageFilter.GaussianBlur(draws.uniform(least(entry), most(entry))))

    return change


def _pillow(name, *attributes):
    def change(entry, image, draws):
        from PIL import ImageOps

        return getattr(ImageOps, name)(image, *(getattr(entry, a) for a in attributes))

    return change


def _rotate(entry, image, draws):
    return image.rotate(entry.angle)


def _inner(entry, image, draws):
    made = entry.transf(image)
    return made.convert("RGB") if made.mode == "L" else made


# The names of all attributes; the one that is a probability; what it may be: a model, and its op from (object, reader).
_KINDS = [
    (
        {"prob", "radius_min", "radius_max"},  # DINO, DeiT III, iBOT, SwAV
        "prob",
        _chance("prob", _blur(lambda e: e.radius_min, lambda e: e.radius_max)),
        lambda e, _: ["PillowGaussianBlur", [e.radius_min, e.radius_max], e.prob],
    ),
    (
        {"sigma"},  # MoCo, SimSiam, BYOL, solo-learn
        None,
        _blur(lambda e: e.sigma[0], lambda e: e.sigma[1]),
        lambda e, _: ["PillowGaussianBlur", list(e.sigma), 1.0],
    ),
    (
        {"prob", "sigmas"},  # lightly
        "prob",
        _chance("prob", _blur(lambda e: e.sigmas[0], lambda e: e.sigmas[1])),
        lambda e, _: ["PillowGaussianBlur", list(e.sigmas), e.prob],
    ),
    (
        {"prob", "threshold"},  # lightly
        "prob",
        _chance("prob", _pillow("solarize", "threshold")),
        lambda e, _: ["RandomSolarize", e.threshold, e.prob],
    ),
    (
        {"prob", "angle"},  # lightly
        "prob",
        _chance("prob", _rotate),
        lambda e, _: ["RandomApply", {"transforms": [["RandomRotation", [e.angle] * 2]], "p": e.prob}],
    ),
    ({"p"}, "p", _chance("p", _pillow("solarize")), lambda e, _: ["RandomSolarize", 128, e.p]),  # DINO, DeiT III
    ({"p"}, "p", _chance("p", _pillow("equalize")), lambda e, _: ["RandomEqualize", e.p]),
    ({"p"}, "p", _chance("p", _pillow("invert")), lambda e, _: ["RandomInvert", e.p]),
    (set(), None, _pillow("solarize"), lambda e, _: ["Solarize", 128]),  # MoCo v3, solo-learn
    (set(), None, _pillow("equalize"), lambda e, _: "Equalize"),  # solo-learn
    (
        {"p", "transf"},  # DeiT III's gray_scale, horizontal_flip
        "p",
        _chance("p", _inner),
        lambda e, read: ["RandomApply", {"transforms": read([e.transf]), "p": e.p}],
    ),
]


def _wraps(entry, attribute):
    """An object that calls its only attribute, a pipeline, and does nothing else (lightly's DINOViewTransform, the presets
    of torchvision's references)."""
    code = getattr(type(entry).__call__, "__code__", None) if callable(entry) else None
    return code is not None and code.co_names == (attribute,) and _form(code) in _CALLS


def _form(code):
    """All of a method but the names in it."""
    return code.co_code, code.co_argcount, code.co_kwonlyargcount, code.co_flags & 12, code.co_freevars


_CALLS = [_form(f.__code__) for f in (_Calls.at_once, _Calls.by_a_name, _Calls.with_anything)]


def is_to_tensor(entry):
    """Whether an object of a subclass of torchvision's ToTensor, with a __call__ of its own, makes ToTensor's numbers
    (DINOv2's MaybeToTensor)."""
    bases = [b for b in type(entry).__mro__ if b.__name__ == "ToTensor" and b.__module__.startswith("torchvision.")]
    if not bases or type(entry) is bases[0]:
        return False
    picture = _picture()
    want = numpy.asarray(picture).transpose(2, 0, 1).astype(numpy.float32) / 255
    with _states():
        try:
            made = entry(picture)
            return str(made.dtype) == "torch.float32" and numpy.array_equal(made.numpy(), want)
        except Exception:  # whatever a class of the user's raises: it is not this one
            return False


def ops(entry, read):
    """The ops of an object, or None. read(list of transforms) gives ops, too."""
    attributes = set(getattr(entry, "__dict__", ()))
    if isinstance(entry, type) or not hasattr(type(entry), "__dict__") or type(entry).__module__ == "builtins":
        return None
    if len(attributes) == 1 and (attribute := next(iter(attributes))) and _wraps(entry, attribute):
        return read([getattr(entry, attribute)])
    for names, chance, model, words in _KINDS:
        if attributes == names and _is(entry, model, chance):
            made = words(entry, read)
            return [made]
    return None

"""Small classes of well-known recipes (DINO's utils.GaussianBlur, MoCo's Solarize, DeiT's gray_scale, lightly's
RandomSolarization, VICReg's, I-JEPA's ...) as ops.

They have no package that could be named, and copies of them differ. So neither a name nor attributes decide: the object is
run on a small image, and is read as an op where it gives Pillow's result of that op, pixel by pixel, with the same draws
of Python's, numpy's or torch's generator. The generators' states are put back."""

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
    """What a class draws from: Python's generator, numpy's, torch's, or two of them."""

    def __init__(self, unit, uniform, happens=None):
        self.uniform = uniform
        self.happens = happens or (lambda p: unit() < p)


def _of_torch(torch):
    """I-JEPA, MSN; and classes that compare with p as torchvision's own do."""

    def unit():
        return torch.rand(1)

    def uniform(least, most):
        return float(least + unit() * (most - least))

    return [_Draws(unit, uniform), _Draws(unit, uniform, lambda p: bool(torch.bernoulli(torch.tensor(p)) != 0))]


def picture():
    """Every value in each channel, so that a threshold off by one is seen, and dark ones more often, so that equalizing
    changes it."""
    from PIL import Image

    generator = numpy.random.default_rng(3)
    dark = [(256 * generator.random(320) ** 3).astype(int) for _ in range(3)]
    planes = [generator.permutation(numpy.concatenate([numpy.arange(256), d])).reshape(24, 24) for d in dark]
    return Image.fromarray(numpy.stack(planes, -1).astype(numpy.uint8))


@contextlib.contextmanager
def states():
    """Puts back the states of the generators that a class may draw from."""
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


def seed_all(seed):
    random.seed(seed)
    numpy.random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.manual_seed(seed)  # and no GPU's


def _makes(entry, model, draws, image):
    for seed in _SEEDS:
        seed_all(seed)
        made = entry(image.copy())
        seed_all(seed)
        wanted = model(entry, image.copy(), draws)
        if getattr(made, "mode", None) != "RGB" or made.size != wanted.size or made.tobytes() != wanted.tobytes():
            return False
    return True


def _is(entry, model, chance):
    """Whether the object does what the model does, with its own probability and with 0 and 1."""
    known = [entry]
    for p in (0.0, 1.0) if chance else ():
        known.append(copy.copy(entry))
        setattr(known[-1], chance, p)
    image = picture()
    generators = [
        _Draws(random.random, random.uniform),
        _Draws(numpy.random.random_sample, numpy.random.uniform),
        _Draws(numpy.random.random_sample, random.uniform),  # SwAV
        *(_of_torch(sys.modules["torch"]) if "torch" in sys.modules else ()),
    ]
    with states():
        for draws in generators:
            try:
                if all(_makes(one, model, draws, image) for one in known):
                    return True
            except Exception:  # whatever a class of the user's raises: it is not this one
                return False
    return False


def converts(function):
    """Whether a function makes RGB of images of any mode, as Pillow does, and nothing else (CLIP's
    _convert_image_to_rgb)."""
    image = picture()
    with states():
        try:
            for mode in ("RGB", "L", "RGBA", "CMYK"):
                given = image.convert(mode)
                made = function(given.copy())
                if made.mode != "RGB" or made.tobytes() != given.convert("RGB").tobytes():
                    return False
            return True
        except Exception:  # whatever a function of the user's raises: it is not this one
            return False


# ---- models: (object, picture, draws) -> picture ----


def _chance(name, change):
    return lambda entry, image, draws: change(entry, image, draws) if draws.happens(getattr(entry, name)) else image


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


def _inner(name):
    def change(entry, image, draws):
        made = getattr(entry, name)(image)
        return made.convert("RGB") if made.mode == "L" else made

    return change


_SIGMAS = (0.1, 2.0)  # SimCLR's, where a class does not say them
_ANY_SIGMA = _blur(lambda e: _SIGMAS[0], lambda e: _SIGMAS[1])


def _applied(name):
    def words(entry, read):
        inner = read([getattr(entry, name)])
        return ["RandomApply", {"transforms": inner, "p": entry.p}] if inner else "Identity"

    return words


def _drawn(name):
    """Changes that a class makes with a probability, which its only attribute has."""
    return [
        ({name}, name, _chance(name, change), words)
        for change, words in (
            (_pillow("solarize"), lambda e, _: ["RandomSolarize", 128, getattr(e, name)]),  # DINO, DeiT III, VICReg
            (_ANY_SIGMA, lambda e, _: ["PillowGaussianBlur", list(_SIGMAS), getattr(e, name)]),  # Barlow Twins, VICReg
            (_pillow("equalize"), lambda e, _: ["RandomEqualize", getattr(e, name)]),
            (_pillow("invert"), lambda e, _: ["RandomInvert", getattr(e, name)]),
            (_pillow("mirror"), lambda e, _: ["RandomHorizontalFlip", getattr(e, name)]),
            (_pillow("flip"), lambda e, _: ["RandomVerticalFlip", getattr(e, name)]),
        )
    ]


# The names of all attributes; the one that is a probability; what it may be: a model, and its op from (object, reader).
_KINDS = [
    (
        {"prob", "radius_min", "radius_max"},  # DINO, DeiT III, iBOT, SwAV, I-JEPA, MSN
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
    *_drawn("p"),
    *_drawn("prob"),
    (set(), None, _pillow("solarize"), lambda e, _: ["Solarize", 128]),  # MoCo v3, solo-learn
    (set(), None, _pillow("equalize"), lambda e, _: "Equalize"),  # solo-learn
    (set(), None, _ANY_SIGMA, lambda e, _: ["PillowGaussianBlur", list(_SIGMAS), 1.0]),
    (
        {"p", "transf"},
        "p",
        _chance("p", _inner("transf")),
        _applied("transf"),
    ),  # DeiT III's gray_scale, horizontal_flip
    ({"p", "fn"}, "p", _chance("p", _inner("fn")), _applied("fn")),  # BYOL's RandomApply
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
    image = picture()
    want = numpy.asarray(image).transpose(2, 0, 1).astype(numpy.float32) / 255
    with states():
        try:
            made = entry(image)
            return str(made.dtype) == "torch.float32" and numpy.array_equal(made.numpy(), want)
        except Exception:  # whatever a class of the user's raises: it is not this one
            return False


def _attributes(entry):
    """Their names; of a torch module without those that every module has."""
    names = set(getattr(entry, "__dict__", ()))
    if "_modules" in names:
        names = {name for name in names - {"training"} if not name.startswith("_")} | set(entry._modules)
    return names


def ops(entry, read):
    """The ops of an object, or None. read(list of transforms) gives ops, too."""
    attributes = _attributes(entry)
    if isinstance(entry, type) or not hasattr(type(entry), "__dict__") or type(entry).__module__ == "builtins":
        return None
    if len(attributes) == 1 and (attribute := next(iter(attributes))) and _wraps(entry, attribute):
        return read([getattr(entry, attribute)])
    for names, chance, model, words in _KINDS:
        if attributes == names and _is(entry, model, chance):
            made = words(entry, read)
            return [made]
    return None

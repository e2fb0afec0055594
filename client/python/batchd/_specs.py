"""What the text of a data set alone decides: its completion by the loader's arguments, and the form of its batches."""

from . import _check

NO_LENGTH = "length is for token files, 'tokens:FILE' with windows of so many tokens: leave it out for other data sets"


def _parts(spec):
    return spec.split(":", 1)[1].split(",")


def fields(spec):
    """The fields of a batch where the caller names none: a tuple as the peers give it. None: the loader decides."""
    if spec.startswith("cifar:"):
        return "image", "label"  # CIFAR-100 has a coarse label besides
    if spec.startswith(("npy:", "idx:")) and not set(spec) & set(",="):
        return ("data",) if spec.startswith("npy:") else ("image",)  # one array, and no labels
    return ("x", "y") if spec.startswith("tokens:") and "form=whole" not in _parts(spec) else None


def is_endless(spec):
    """Whether its windows are drawn by their index alone, without an end, so that each epoch begins with the same ones."""
    return spec.startswith("tokens:") and "windows=random" in _parts(spec) and ",samples=" not in spec


def complete(spec, length, seed, shuffle):
    """spec with length= in it, and with the loader's seed where windows are drawn at random."""
    if not spec.startswith("tokens:"):
        if length is not None:
            raise TypeError(NO_LENGTH)
        return spec
    if length is not None:
        spec = f"{spec},length={_check.number('length', length, 1, 2**24)}"
    parts = _parts(spec)
    if "windows=random" in parts:
        if shuffle and not any(part.startswith("samples=") for part in parts):
            raise ValueError(
                "windows=random makes a new draw for each window, so there is no order to shuffle: leave shuffle out, or give samples=N"
            )
        if not any(part.startswith("seed=") for part in parts):
            spec = f"{spec},seed={_check.number('seed', seed)}"
    return spec

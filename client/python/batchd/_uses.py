"""Which options mean something for which kind of data set. One that would do nothing is refused: a script that gives it
expects something of it."""

from . import _blend, _lib

# "files": pictures in files, tables and archives; "rows": arrays that a transform makes pictures of; "stored": data without
# pictures, which arrives as it is stored.
_ARRAYS = ("memory", "npy", "npz", "idx", "cifar", "random", "tokens")
_TABLE = {
    "dtype": (
        ("files", "rows"),
        "it is what images become; arrays, tokens, texts and columns come as they are stored: leave it out, and convert in the loop "
        "(x.to(...)), in collate_fn or where the data is made",
    ),
    "layout": (
        ("files", "rows"),
        "it is how images lie in memory; arrays come as they are stored: leave it out, and use x.permute(...) or arrays that "
        "lie so already",
    ),
    "image_mode": (
        ("files", "rows"),
        "it is how images are read: leave it out, or give a transform that makes images of the arrays' rows",
    ),
    "decode": (("files",), "it is how JPEGs are decoded, and there are none: leave it out"),
    "apply_exif": (("files",), "it turns images by a tag of their files, and there are none: leave it out"),
    # For data of any kind that has a ragged field.
    "packed": ((), "it is for ragged fields (texts, lists of any length), and there are none: leave it out"),
}


def _are_arrays(spec):
    return _blend.first(spec).partition(":")[0] in _ARRAYS


def default_transform(spec):
    """What a data set gets without transform=; None: arrays get none, and a name from the configuration has its own."""
    return "train224" if ":" in spec and not _are_arrays(spec) else None


def _kind(spec, info):
    if _lib.LAYOUTS[info.layout] == "AS_STORED":
        return "stored"
    return "rows" if _are_arrays(spec) else "files"


def _is_so(option, value, known):
    """Whether the data is stored in just the way that the option asks for, or has what it is for."""
    fields = [field for name, field in known.items() if name != "label"] or list(known.values())
    if option == "packed":
        return any(field.ragged for field in fields)
    return option == "dtype" and all(field.dtype == value and not field.text for field in fields)


def _shown(spec):
    """The data set as the caller has given it."""
    if spec.startswith("memory:"):
        return "arrays in memory"
    return "a datasets.Dataset" if spec.startswith("arrow:table=") else f"the data set {spec.partition('#')[0]!r}"


def check_raw(dtype, layout):
    """raw=True has one dtype and one layout."""
    for option, value, has in (("dtype", dtype, "uint8"), ("layout", layout, "NHWC")):
        if value is not None and str(value).upper() != has.upper():
            raise ValueError(
                f"raw=True gives the GPU's memory as it is, {has}, and {option} asks for {value}: leave one of them out"
            )


def check(spec, info, known, given):
    """given: {option: its value, None where the caller has not given it}; known: {name: Field}."""
    kind = _kind(spec, info)
    for option, value in given.items():
        kinds, instead = _TABLE[option]
        if value is not None and kind not in kinds and not _is_so(option, value, known):
            raise TypeError(f"{option}={value!r} does nothing for {_shown(spec)}: {instead}")

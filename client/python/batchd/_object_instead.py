"""What to write instead of a Dataset object, whose code runs in Python and so not in the daemon.

The advice keeps samples, labels and order. An object is known by its class alone where nothing in it differs from what the
class does by itself; where something does, the advice has it or says what gets lost."""

import sys

from . import _array_instead

_METHODS = ("__getitem__", "__getitems__", "__len__", "__iter__", "_getitem")
_SERVE = (
    "share a torch DataLoader of it: batchd.serve(torch_loader, name='NAME') in one process, dataset 'serve:NAME' here"
)
_WRITE = "open('samples.txt', 'w').writelines(f'{{os.path.abspath(path)}}\\t{}\\n' for path, label in {})"
_MNIST = ("MNIST", "FashionMNIST", "KMNIST", "EMNIST", "CIFAR10", "CIFAR100")


def override(value, base):
    """The first of the methods making samples of which the object, of a subclass of base, has a version of its own; None: its
    samples are those of base."""
    kind, its_own = type(value), getattr(value, "__dict__", ())
    return next((m for m in _METHODS if m in its_own or getattr(kind, m, None) is not getattr(base, m, None)), None)


def of_torch(value, name):
    """Whether it is an object of this class of torch.utils.data, or of a subclass."""
    base = getattr(sys.modules.get("torch.utils.data"), name, None)
    return base is not None and isinstance(value, base)


def override_of_torchs(value, name):
    return override(value, getattr(sys.modules["torch.utils.data"], name))


def _is(value, module, *names):
    """Whether it is an object of one of a library's classes, and of no subclass."""
    return type(value).__module__ == module and type(value).__name__ in names


def _listed(samples, target_transform):
    label = "{label}" if target_transform is None else "{dataset.target_transform(label)}"
    return f"write its samples to a list, {_WRITE.format(label, samples)}, and name that, 'files:samples.txt'"


def _is_what_its_folder_gives(value):
    """Whether an ImageFolder has the samples and labels that another of the same folder has by itself."""
    folder = sys.modules["torchvision.datasets.folder"]
    try:
        classes, numbers = folder.find_classes(value.root)
        return value.samples == folder.make_dataset(value.root, numbers, folder.IMG_EXTENSIONS)
    except (OSError, AttributeError):
        return False


def _folder(value):
    """What to write for an ImageFolder."""
    target = getattr(value, "target_transform", None)
    samples = getattr(value, "samples", ())
    loader = getattr(value, "loader", None)
    if target is None and _is_what_its_folder_gives(value):
        instead = f"write 'imagefolder:{value.root}'"
    elif samples:
        instead = (
            f"its {'samples' if target is None else 'target_transform'} would be lost by 'imagefolder:{value.root}': "
            + _listed("dataset.samples", target)
        )
    else:
        return None
    if loader is not sys.modules["torchvision.datasets.folder"].default_loader:
        name = getattr(loader, "__qualname__", type(loader).__qualname__)
        return (
            f"its loader ({name}) is Python, which the daemon does not run: {_SERVE}. Only if the loader does no more than Pillow's "
            f"Image.open(path).convert(MODE): {instead}, with image_mode=MODE"
        )
    return instead + ", and give its transform as transform"


def _timm(value):
    """What to write for timm's ImageDataset of a folder, whose classes have an order of their own."""
    reader = getattr(value, "reader", None)  # versions have had other names for it and for the mode
    if not _is(reader, "timm.data.readers.reader_image_folder", "ReaderImageFolder") or value.load_bytes:
        return None
    if getattr(value, "input_img_mode", None) != "RGB" or getattr(value, "additional_features", None) is not None:
        return None
    listed = _listed("dataset.reader.samples", value.target_transform)
    return f"it numbers classes in its own order, which 'imagefolder:' does not: {listed}, and give its transform as transform"


def _arrays(value):
    """What to write for torchvision's MNIST and CIFAR."""
    labels = "dataset.targets"
    if value.target_transform is not None:
        labels = "[dataset.target_transform(int(label)) for label in dataset.targets]"
    return f"hand over its arrays, (dataset.data, torch.as_tensor({labels})), and give its transform as transform"


def _instead(value):
    """(what the object is, what to write) of a known kind; None."""
    kind = type(value).__name__
    if _is(value, "torchvision.datasets.folder", "ImageFolder"):
        what, instead = "an ImageFolder object", _folder(value)
    elif _is(value, "timm.data.dataset", "ImageDataset"):
        what, instead = "timm's ImageDataset", _timm(value)
    elif type(value).__module__.startswith("torchvision.datasets.") and kind in _MNIST:
        what, instead = f"a {kind} object", _arrays(value)
    elif of_torch(value, "TensorDataset") and not override_of_torchs(value, "TensorDataset"):
        what, instead = "a TensorDataset", "hand over the TensorDataset itself"
    else:
        return None
    return instead and (what, instead)


def _subset(value):
    known = _instead(value.dataset) if not override_of_torchs(value, "Subset") else None
    return known and (
        f"dataset is a Subset of {known[0]}: with dataset = subset.dataset, {known[1]}; the subset is sampler=subset.indices in its own "
        "order, or sampler=torch.utils.data.SubsetRandomSampler(subset.indices) shuffled; each of several ranks takes its part, "
        "such as sampler=subset.indices[rank::world_size]"
    )


def _concatenated(value):
    parts = list(map(_instead, value.datasets)) if not override_of_torchs(value, "ConcatDataset") else [None]
    if None in parts:
        return None
    transforms = [getattr(part, "transform", None) for part in value.datasets]
    if any(t is not transforms[0] for t in transforms):
        return f"dataset is a ConcatDataset of parts with different transforms, and a loader has one: {_SERVE}"
    if all("'imagefolder:" in instead and "would be lost" not in instead for _, instead in parts):
        folders = [f"imagefolder:{part.root}" for part in value.datasets]
        return f"dataset is a ConcatDataset object: write a list of data sets, {folders!r}, and give its transform as transform"
    if any("files:samples.txt" in instead for _, instead in parts):
        told = "; ".join(
            f"part {i} is {what}: with dataset = concatenated.datasets[{i}], {instead}"
            for i, (what, instead) in enumerate(parts)
        )
        return f"dataset is a ConcatDataset object: write a list of data sets, a file for each part. {told}"
    return None


def advice(value):
    """The error for an object that is no data set here, with the remedy. None: it is nothing that is known."""
    for name, found in (("Subset", _subset), ("ConcatDataset", _concatenated)):
        told = found(value) if of_torch(value, name) else None
        if told:
            return told
    known = _instead(value)
    if known:
        return f"dataset is {known[0]}: {known[1]}"
    told = _array_instead.advice(value)
    has_samples = hasattr(value, "__getitem__") or hasattr(value, "__iter__")
    if told or not has_samples or isinstance(value, (dict, list, tuple)):
        return told
    return foreign(value)


def foreign(value, why=""):
    """The error for an object whose code makes the samples."""
    return (
        f"dataset is a {type(value).__name__} object, whose code the daemon does not run{why}. If its samples are images from files "
        "or rows of arrays, and its code does nothing else to them or to their labels, name the files in a list, 'files:LIST', or "
        f"hand over the arrays, (x, y). Otherwise {_SERVE}"
    )

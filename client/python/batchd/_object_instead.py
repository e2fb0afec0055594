"""What to write instead of a Dataset object, whose code runs in Python and so not in the daemon."""

import sys


def _is_torchs(value, name):
    data = sys.modules.get("torch.utils.data")
    return data is not None and isinstance(value, getattr(data, name))


def _instead(value):
    """(what the object is, what to write) of a known kind; None."""
    kind = type(value).__name__
    if kind == "ImageFolder" and hasattr(value, "root"):
        return "an ImageFolder object", f"write 'imagefolder:{value.root}', and give its transform as transform"
    if _is_torchs(value, "TensorDataset"):
        return "a TensorDataset", "hand over the TensorDataset itself"
    if hasattr(value, "data") and hasattr(value, "targets"):  # torchvision's MNIST and CIFAR
        arrays = "(dataset.data, torch.as_tensor(dataset.targets))"
        return f"a {kind} object", f"hand over its arrays, {arrays}, and give its transform as transform"
    return None


def advice(value):
    """The error for an object that is no data set here, with the remedy. None: it is nothing that is known."""
    is_subset = _is_torchs(value, "Subset")
    known = _instead(value.dataset if is_subset else value)
    if known and is_subset:
        return (
            f"dataset is a Subset of {known[0]}: {known[1]}; the subset is sampler=subset.indices in its own order, or "
            "sampler=torch.utils.data.SubsetRandomSampler(subset.indices) shuffled"
        )
    if known:
        return f"dataset is {known[0]}: {known[1]}"
    if _is_torchs(value, "ConcatDataset"):
        return "dataset is a ConcatDataset object: write a list of data sets, ['imagefolder:DIR', 'tar:SHARDS', ...]"
    has_samples = hasattr(value, "__getitem__") or hasattr(value, "__iter__")
    if has_samples and not isinstance(value, (dict, list, tuple)):
        return (
            f"dataset is a {type(value).__name__} object, whose code the daemon does not run. If it reads pictures from "
            "files, name those: 'imagefolder:DIR' or 'files:LIST'. Otherwise share a torch DataLoader of it: "
            "batchd.serve(torch_loader, name='NAME') in one process, dataset 'serve:NAME' here"
        )
    return None

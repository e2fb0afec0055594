"""Dataset objects of torchvision, timm and torch: what the error says to write in their place gives the samples, labels and order
that the object itself gives."""

import os
import re

import numpy
import pytest

torch = pytest.importorskip("torch")

from PIL import Image  # noqa: E402

import batchd  # noqa: E402
from vision import import_torchvision  # noqa: E402

try:
    import_torchvision()
    from torchvision import datasets
    from torchvision.transforms import CenterCrop, Compose, ToTensor
except ImportError as e:
    pytest.skip(f"torchvision cannot be imported: {e}", allow_module_level=True)

data = torch.utils.data
FIXED = Compose([CenterCrop(8), ToTensor()])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Classes 1, 2 and 10, whose order is not that of numbers, and a file that a script leaves out. The folder is also
    the current one, in which the advice writes its list."""
    for c, name in enumerate(("1", "10", "2")):
        for i in range(3):
            os.makedirs(tmp_path / "pictures" / name, exist_ok=True)
            pixels = numpy.random.default_rng([c, i]).integers(0, 256, (8, 8, 3), dtype=numpy.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / name / f"{'mask' if i == 1 else 'p'}{i}.png")
    monkeypatch.chdir(tmp_path)
    return str(tmp_path / "pictures")


def refusal(dataset):
    with pytest.raises(TypeError) as error:
        batchd.DataLoader(dataset, 4, transform=FIXED)
    return str(error.value)


def follow(words, dataset):
    """Does what the text says, and gives what it says to hand over."""
    line = re.search(r"open\('samples.txt', 'w'\).writelines\(.*? in dataset[.a-z]*\)", words)
    if line:
        exec(line[0], {"os": os, "dataset": dataset})
    return re.search(r"'((imagefolder|files):[^']*)'", words[line.end() if line else 0 :])[1]


def check(spec, dataset, **options):
    """Each sample of the loader is the object's own."""
    with batchd.DataLoader(spec, len(dataset), transform=FIXED, **options) as loader:
        ((images, labels),) = loader
    assert len(images) == len(dataset)
    for i, (image, label) in enumerate(zip(images, labels.tolist())):
        assert label == dataset[i][1] and torch.equal(image, dataset[i][0])


FOLDERS = {
    "plain": {},
    "target_transform": {"target_transform": {0: 5, 1: 3, 2: 4}.get},
    "is_valid_file": {"is_valid_file": lambda path: "mask" not in path},
    "both": {"target_transform": lambda label: label * 2, "is_valid_file": lambda path: "mask" not in path},
}


@pytest.mark.parametrize("name", FOLDERS)
def test_the_advice_for_an_image_folder_keeps_samples_and_labels(daemon, folder, name):
    """The kind of data set where ImageFolder's own rules made the samples, else a list of them."""
    dataset = datasets.ImageFolder(folder, transform=FIXED, **FOLDERS[name])
    words = refusal(dataset)
    assert ("write 'imagefolder:" in words) == (name == "plain")
    check(follow(words, dataset), dataset)


def test_samples_that_a_script_has_changed_are_kept(daemon, folder):
    """A script that shortens `samples`, or turns them round, gets these."""
    for change in (lambda s: s[::2], lambda s: s[::-1]):
        dataset = datasets.ImageFolder(folder, transform=FIXED)
        dataset.samples = change(dataset.samples)
        check(follow(refusal(dataset), dataset), dataset)


def test_a_loader_of_the_scripts_own_is_named(daemon, folder):
    """Its pixels are not those of the files as RGB: batchd.serve keeps them, or image_mode where that is all that it
    does."""

    def grey(path):
        return Image.open(path).convert("L")

    dataset = datasets.ImageFolder(folder, transform=FIXED, loader=grey)
    words = refusal(dataset)
    assert re.search(r"its loader \(.*grey\) is Python.*batchd.serve.*Only if .*image_mode=MODE", words)
    check(follow(words, dataset), dataset, image_mode="L")


def test_an_empty_class_is_no_reason_for_the_folder_itself(daemon, folder):
    """imagefolder: refuses a folder with an empty class, as ImageFolder does without allow_empty."""
    os.mkdir(os.path.join(folder, "12"))
    dataset = datasets.ImageFolder(folder, transform=FIXED, allow_empty=True)
    check(follow(refusal(dataset), dataset), dataset)


def test_the_advice_for_a_list_of_paths_gives_its_pictures(daemon, folder):
    """(path, label) pairs, as scripts keep them."""
    dataset = datasets.ImageFolder(folder, transform=FIXED)
    pairs = dataset.samples[::-2]
    dataset.samples = pairs
    words = refusal(pairs)
    check(follow(words, pairs), dataset)


def test_the_advice_for_timms_folder_keeps_its_numbers(daemon, folder):
    """timm orders class names as people do (1, 2, 10)."""
    timm = pytest.importorskip("timm.data")
    for target_transform in (None, lambda label: 7 - label):
        dataset = timm.ImageDataset(folder, transform=FIXED, target_transform=target_transform)
        words = refusal(dataset)
        assert "timm's ImageDataset: it numbers classes in its own order" in words
        check(follow(words, dataset), dataset)
    assert "batchd.serve" in refusal(timm.ImageDataset(folder, input_img_mode="L"))


@pytest.mark.parametrize("kind", ["MNIST", "CIFAR10"])
@pytest.mark.parametrize("target_transform", [None, lambda label: 9 - label])
def test_the_advice_for_arrays_keeps_labels(daemon, kind, target_transform):
    """MNIST and CIFAR hold arrays; what target_transform does is in the labels that the advice hands over."""
    dataset = getattr(datasets, kind).__new__(getattr(datasets, kind))
    rng = numpy.random.default_rng(2)
    shape = (5, 28, 28) if kind == "MNIST" else (5, 32, 32, 3)
    dataset.data, dataset.targets = rng.integers(0, 256, shape, dtype=numpy.uint8), [3, 1, 4, 1, 5]
    if kind == "MNIST":
        dataset.data, dataset.targets = torch.from_numpy(dataset.data), torch.tensor(dataset.targets)
    dataset.transform, dataset.target_transform = FIXED, target_transform
    words = refusal(dataset)
    expression = re.search(r"hand over its arrays, (.*), and give its transform", words)[1]
    check(eval(expression, {"torch": torch, "dataset": dataset}), dataset)


def test_the_advice_for_a_subset_gives_the_subset(daemon, folder):
    """In its own order; the rest of the advice is that of the data set below."""
    whole = datasets.ImageFolder(folder, transform=FIXED)
    for dataset in (data.Subset(whole, [7, 3, 5]), data.random_split(whole, [6, 3])[1]):
        words = refusal(dataset)
        assert "a Subset of an ImageFolder object" in words and "sampler=subset.indices in its own order" in words
        spec = follow(words, whole)
        with batchd.DataLoader(spec, 3, transform=FIXED, sampler=dataset.indices) as loader:
            ((images, labels),) = loader
        assert labels.tolist() == [dataset[i][1] for i in range(3)]
        assert torch.equal(images, torch.stack([dataset[i][0] for i in range(3)]))
    assert "hand over the TensorDataset itself" in refusal(data.Subset(data.TensorDataset(torch.zeros(4)), [1]))


class Doubled(data.Subset):
    """The usual way to give a part of random_split a transform."""

    def __getitem__(self, i):
        return (self.dataset[self.indices[i]][0] * 2,)

    def __getitems__(self, indices):
        return [self[i] for i in indices]


class Concatenated(data.ConcatDataset):
    def __getitem__(self, i):
        return super().__getitem__(i)[::-1]


class Own(datasets.ImageFolder):
    def __getitem__(self, i):
        return super().__getitem__(i)[0], 0


class Samples:
    """A Dataset that a script has written, with torchvision's names."""

    data, targets = numpy.zeros((4, 32, 32, 3), numpy.uint8), [0, 1, 2, 3]

    def __len__(self):
        return 4

    def __getitem__(self, i):
        return self.data[i] + 1, self.targets[i]


def test_code_of_a_script_is_named_and_not_replaced(daemon, folder):
    """A class that changes samples is no class of the library: nothing is told that would lose the change."""
    rows = data.TensorDataset(torch.arange(4.0))
    whole = datasets.ImageFolder(folder)
    for dataset in (
        Doubled(rows, [1, 2]),
        Concatenated([rows, rows]),
        Own(folder),
        Samples(),
        data.Subset(Samples(), [1]),
        data.Subset(Own(folder), [1]),
        data.ConcatDataset([Samples(), whole]),
    ):
        words = refusal(dataset)
        assert f"dataset is a {type(dataset).__name__} object, whose code the daemon does not run" in words
        assert "batchd.serve" in words and "itself" not in words and "imagefolder:" not in words


def test_the_advice_for_concatenated_folders_is_a_list(daemon, folder):
    """Plain parts by their folders; a part with labels of its own by a list of its samples."""
    plain, turned = datasets.ImageFolder(folder), datasets.ImageFolder(folder, target_transform=lambda label: 2 - label)
    both = data.ConcatDataset([plain, plain])
    words = refusal(both)
    spec = eval(re.search(r"write a list of data sets, (\[.*?\])", words)[1])
    with batchd.DataLoader(spec, len(both), transform=FIXED) as loader:
        ((_, labels),) = loader
    assert labels.tolist() == [label for _, label in both]
    words = refusal(data.ConcatDataset([plain, turned]))
    assert "part 1 is an ImageFolder object" in words and "dataset.target_transform(label)" in words
    different = data.ConcatDataset([plain, datasets.ImageFolder(folder, transform=ToTensor())])
    assert "different transforms" in refusal(different)

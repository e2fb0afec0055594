"""Objects of popular recipes, as their repositories write them, handed to a loader: DINOv2's and iBOT's augmentations,
SwAV's blur, lightly's wrapper of ToTensor; and what objects of other libraries and slips of the pen are told."""

import json
import random
import types

import numpy as np
import pytest
from PIL import Image, ImageFilter
from vision import import_torchvision

import batchd
from batchd import _transform, _views

torch = pytest.importorskip("torch")
tv = import_torchvision().transforms
NORMALIZE = tv.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


# ---- DINOv2 (dinov2/data/transforms.py, augmentations.py) ----


class GaussianBlur(tv.RandomApply):
    def __init__(self, *, p=0.5, radius_min=0.1, radius_max=2.0):
        super().__init__(transforms=[tv.GaussianBlur(kernel_size=9, sigma=(radius_min, radius_max))], p=1 - p)


class MaybeToTensor(tv.ToTensor):
    def __call__(self, pic):
        return pic if isinstance(pic, torch.Tensor) else super().__call__(pic)


class Reversed(tv.ToTensor):
    def __call__(self, pic):
        return 1 - super().__call__(pic)


class DataAugmentationDINO:
    def __init__(self, n_local, size=32, local_size=16):
        def geometry(size, scale):
            bicubic = tv.InterpolationMode.BICUBIC
            crop = tv.RandomResizedCrop(size, scale=scale, interpolation=bicubic)
            return tv.Compose([crop, tv.RandomHorizontalFlip(p=0.5)])

        self.geometric_augmentation_global = geometry(size, (0.32, 1.0))
        self.geometric_augmentation_local = geometry(local_size, (0.05, 0.32))
        self.local_crops_number = n_local
        jitter = tv.RandomApply([tv.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8)
        color = tv.Compose([jitter, tv.RandomGrayscale(p=0.2)])
        second = tv.Compose([GaussianBlur(p=0.1), tv.RandomSolarize(threshold=128, p=0.2)])
        numbers = tv.Compose([MaybeToTensor(), NORMALIZE])
        self.global_transfo1 = tv.Compose([color, GaussianBlur(p=1.0), numbers])
        self.global_transfo2 = tv.Compose([color, second, numbers])
        self.local_transfo = tv.Compose([color, GaussianBlur(p=0.5), numbers])

    def __call__(self, image):
        large = [t(self.geometric_augmentation_global(image)) for t in (self.global_transfo1, self.global_transfo2)]
        small = [self.local_transfo(self.geometric_augmentation_local(image)) for _ in range(self.local_crops_number)]
        return {"global_crops": large, "global_crops_teacher": large, "local_crops": small, "offsets": ()}


def shapes(made):
    if isinstance(made, dict):
        return {key: shapes(value) for key, value in made.items()}
    return [tuple(x.shape) for x in made]


def test_dinov2s_augmentation_is_a_dictionary_of_views(daemon, samples):
    """The crops that its own object returns, under the same names; the teacher's are the global ones again."""
    entry = DataAugmentationDINO(4)
    with batchd.DataLoader(f"imagefolder:{samples}", 6, transform=entry) as loader:
        images, _ = next(iter(loader))
    own = entry(Image.new("RGB", (80, 60)))
    assert shapes(images) == {k: [(6, *s) for s in shapes(own[k])] for k in ("global_crops", "local_crops")}
    made = json.loads(_views.read(entry)[0])
    wanted = _transform.text([entry.geometric_augmentation_global, entry.global_transfo1])
    assert made["global_crops"]["views"][0] == json.loads(wanted) and made["local_crops"]["n"] == 4
    blur = next(op for op in made["global_crops"]["views"][0] if "GaussianBlur" in json.dumps(op))
    assert blur[1]["p"] == 0.0  # what its constructor makes of p=1.0, and torchvision then never blurs
    assert list(json.loads(_views.read(DataAugmentationDINO(0))[0])) == ["global_crops"]


def test_a_to_tensor_of_a_users_is_read_where_it_makes_the_same_numbers(daemon, photos):
    """DINOv2's MaybeToTensor, pixel by pixel; one that changes the numbers is refused by name."""
    pipeline = tv.Compose([tv.Resize(40), tv.CenterCrop(32), MaybeToTensor(), NORMALIZE])
    paths = sorted(p for p in photos.rglob("*") if p.is_file())[:4]
    with batchd.DataLoader(f"imagefolder:{photos}", 4, transform=pipeline, arrays="torch") as loader:
        images = next(iter(loader))[0].clone()
    for row, path in zip(images, paths):
        assert torch.equal(row, pipeline(Image.open(path).convert("RGB")))
    with pytest.raises(TypeError, match="Reversed overrides __call__ of torchvision's ToTensor"):
        _transform.text(tv.Compose([tv.CenterCrop(32), Reversed()]))


# ---- iBOT (loader.py, main_ibot.py), SwAV (multicropdataset.py), lightly ----


class DataAugmentationiBOT:
    def __init__(self, n_global, n_local):
        numbers = tv.Compose([tv.ToTensor(), NORMALIZE])
        self.global_transfo1 = tv.Compose([tv.RandomResizedCrop(32), numbers])
        self.global_transfo2 = tv.Compose([tv.RandomResizedCrop(32), tv.RandomGrayscale(1.0), numbers])
        self.local_transfo = tv.Compose([tv.RandomResizedCrop(16), numbers])
        self.global_crops_number, self.local_crops_number = n_global, n_local

    def __call__(self, image):
        crops = [
            self.global_transfo1(image),
            *(self.global_transfo2(image) for _ in range(self.global_crops_number - 1)),
        ]
        return crops + [self.local_transfo(image) for _ in range(self.local_crops_number)]


@pytest.mark.parametrize("n_global, n_local", [(2, 6), (3, 1), (1, 0)])
def test_ibots_augmentation_is_a_list_of_views(daemon, samples, n_global, n_local):
    entry = DataAugmentationiBOT(n_global, n_local)
    with batchd.DataLoader(f"imagefolder:{samples}", 5, transform=entry) as loader:
        images, _ = next(iter(loader))
    assert shapes(images) == [(5, *s) for s in shapes(entry(Image.new("RGB", (80, 60))))]
    grey = [
        i for i, view in enumerate(json.loads(_views.read(entry)[0])[""]["views"]) if "RandomGrayscale" in str(view)
    ]
    assert grey == list(range(1, n_global))


class PILRandomGaussianBlur:
    def __init__(self, p=0.5, radius_min=0.1, radius_max=2.0):
        self.prob, self.radius_min, self.radius_max = p, radius_min, radius_max

    def __call__(self, img):
        do_it = np.random.rand() <= self.prob
        if not do_it:
            return img
        return img.filter(ImageFilter.GaussianBlur(radius=random.uniform(self.radius_min, self.radius_max)))


def test_swavs_blur_draws_from_two_generators():
    made = json.loads(_transform.text(tv.Compose([tv.CenterCrop(32), PILRandomGaussianBlur(0.3, 0.5, 1.5)])))
    assert made[1] == ["PillowGaussianBlur", [0.5, 1.5], 0.3]


class ToTensor:
    """lightly.transforms.torchvision_v2_compatibility: hands everything on."""

    def __init__(self):
        v2 = tv.v2
        self.transform = v2.Compose([v2.ToImage(), v2.ToDtype(dtype=torch.float32, scale=True)])

    def __call__(self, *args, **kwargs):
        return self.transform(*args, **kwargs)


class MAETransform:
    def __init__(self):
        self.transform = tv.Compose([tv.RandomResizedCrop(32), ToTensor(), NORMALIZE])

    def __call__(self, image):
        return [self.transform(image)]


class Doubled(ToTensor):
    def __call__(self, *args, **kwargs):
        return 2 * self.transform(*args, **kwargs)


def test_lightlys_wrapper_and_its_list_of_one_view(daemon, samples):
    """The wrapper is what it wraps; one that does more is refused."""
    wrapped = _transform.text(tv.Compose([tv.CenterCrop(8), ToTensor()]))
    assert wrapped == _transform.text(tv.Compose([tv.CenterCrop(8), ToTensor().transform]))
    with batchd.DataLoader(f"imagefolder:{samples}", 5, transform=MAETransform()) as loader:
        assert shapes(next(iter(loader))[0]) == [(5, 3, 32, 32)]
    with pytest.raises(TypeError, match="Doubled .*is Python"):
        _transform.text(tv.Compose([tv.CenterCrop(8), Doubled()]))


# ---- what cannot be read ----


@pytest.mark.parametrize("attributes", [{}, {"p": 0.5}])
def test_an_object_that_does_nothing_is_no_equalizing(attributes):
    """Pictures of equally frequent values would not tell them apart."""
    entry = type("Nothing", (), {"__call__": lambda self, x: x})()
    vars(entry).update(attributes)
    with pytest.raises(TypeError, match="Nothing .*is Python"):
        _transform.text([tv.CenterCrop(8), entry])


def of_library(module, name):
    return type(name, (), {"__module__": module, "__call__": lambda self, x: x})()


class Convolution(torch.nn.Module):  # SimCLR's GaussianBlur
    def __init__(self):
        super().__init__()
        self.blur_h = torch.nn.Conv2d(3, 3, (3, 1))


Convolution.__name__ = "GaussianBlur"


class OpenCvs:  # BYOL's and PyContrast's
    def __init__(self):
        self.min, self.max, self.kernel_size = 0.1, 2.0, 23

    def __call__(self, sample):
        return np.array(sample)


OpenCvs.__name__ = "GaussianBlur"


@pytest.mark.parametrize(
    "entry, says",
    [
        (
            of_library("albumentations.core.composition", "Compose"),
            "albumentations.*RandomHorizontalFlip.*batchd.serve",
        ),
        (of_library("kornia.augmentation", "RandomHorizontalFlip"), "kornia.*on the loader's batches"),
        (of_library("fastai.vision.augment", "Flip"), "fastai.*batch_tfms"),
        (of_library("transformers.models.vit", "ViTImageProcessor"), "image_mean, processor.image_std"),
        (tv.RandomHorizontalFlip, r"RandomHorizontalFlip is a class.*write RandomHorizontalFlip\(...\)"),
        (None, "None stands where an operation is expected"),
        (types.FunctionType((lambda image: image).__code__, {}, "change"), "the function .*is Python.*batchd.serve"),
        (of_library("byol", "RandomApply"), r"RandomApply\(\[transform\], p\)"),
        (of_library("datasets", "DataAugmentationForBEiT"), "SharedByViews.*masks in the training loop"),
        (OpenCvs(), r'write \["RandomApply", \[\["GaussianBlur", 23, \[0.1, 2.0\]\]\], 0.5\]'),
        (Convolution(), r'write \["GaussianBlur", 3, \[0.1, 2.0\]\]'),
    ],
)
def test_what_is_refused_says_what_to_do(entry, says):
    """By name, on one line, without addresses in memory."""
    with pytest.raises(TypeError, match=says) as refused:
        _transform.text([tv.CenterCrop(8), entry, tv.ToTensor()])
    assert " at 0x" not in str(refused.value) and "\n" not in str(refused.value)

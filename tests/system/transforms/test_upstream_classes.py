"""Classes that recipes carry along (DINO's, MoCo's, DeiT III's, lightly's, solo-learn's): read where they do what an op
does, refused where they only look so."""

import json
import random

import numpy as np
import pytest
from carried import blurred, made
from PIL import Image, ImageFilter, ImageOps
from vision import import_torchvision

import batchd
from batchd import _transform, _views

torch = pytest.importorskip("torch")
tv = import_torchvision().transforms
NUMBERS = [tv.ToTensor(), tv.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]


def dino_blur(p=0.5, least=0.1, most=2.0):
    def call(self, image):
        happens = random.random() <= self.prob
        return blurred(image, random.uniform(self.radius_min, self.radius_max)) if happens else image

    return made("GaussianBlur", call, prob=p, radius_min=least, radius_max=most)


def moco_blur():
    return made("GaussianBlur", lambda self, x: blurred(x, random.uniform(*self.sigma)), sigma=[0.1, 2.0])


def numpys_blur():
    def call(self, image):
        return blurred(image, np.random.uniform(*self.sigmas)) if np.random.random_sample() < self.prob else image

    return made("GaussianBlur", call, prob=0.3, sigmas=(0.2, 2))


def solarization(p=0.2, change=ImageOps.solarize):
    return made("Solarization", lambda self, x: change(x) if random.random() < self.p else x, p=p)


def gray(p=0.2):
    call = lambda self, x: self.transf(x) if random.random() < self.p else x  # noqa: E731
    return made("gray_scale", call, p=p, transf=tv.Grayscale(3))


def numpys_solarization(threshold=99):
    def call(self, x):
        return ImageOps.solarize(x, threshold=self.threshold) if np.random.random_sample() < self.prob else x

    return made("RandomSolarization", call, prob=0.4, threshold=threshold)


def rotation():
    def call(self, image):
        return tv.functional.rotate(image, self.angle) if np.random.random_sample() < self.prob else image

    return made("RandomRotate", call, prob=0.5, angle=90)


class Wrapper:
    def __init__(self, transform):
        self.transform = transform

    def __call__(self, image):
        transformed = self.transform(image)
        return transformed


READ = {
    "DINO's blur": (dino_blur(), [["PillowGaussianBlur", [0.1, 2.0], 0.5]]),
    "DINO's blur, always": (dino_blur(1.0), [["PillowGaussianBlur", [0.1, 2.0], 1.0]]),
    "MoCo's blur": (moco_blur(), [["PillowGaussianBlur", [0.1, 2.0], 1.0]]),
    "lightly's blur": (numpys_blur(), [["PillowGaussianBlur", [0.2, 2], 0.3]]),
    "DINO's solarization": (solarization(), [["RandomSolarize", 128, 0.2]]),
    "lightly's solarization": (numpys_solarization(), [["RandomSolarize", 99, 0.4]]),
    "solo-learn's equalization": (solarization(0.1, ImageOps.equalize), [["RandomEqualize", 0.1]]),
    "MoCo's solarize": (made("Solarize", lambda self, x: ImageOps.solarize(x)), [["Solarize", 128]]),
    "lightly's rotation": (rotation(), [["RandomApply", {"transforms": [["RandomRotation", [90, 90]]], "p": 0.5}]]),
    "DeiT's grey": (
        gray(),
        [["RandomApply", {"transforms": [["Grayscale", {"num_output_channels": 3}]], "p": 0.2}]],
    ),
    "a wrapper": (Wrapper(tv.Compose([tv.Resize((9, 9)), moco_blur()])), None),
}


@pytest.mark.parametrize("name", READ)
def test_what_does_an_ops_work_is_read(name):
    """With any p, from Python's generator and from numpy's, whose states stay as they were."""
    entry, words = READ[name]
    random.seed(7)
    np.random.seed(7)
    torch.manual_seed(7)
    text = json.loads(_transform.text(tv.Compose([entry])))
    assert text == words if words else [op[0] for op in text] == ["Resize", "PillowGaussianBlur"]
    assert (random.random(), np.random.random(), torch.rand(1).item()) == (
        random.Random(7).random(),
        np.random.RandomState(7).random(),
        torch.rand(1, generator=torch.Generator().manual_seed(7)).item(),
    )


def wrong_calls():
    """Classes with the attributes of known ones, that do a little else."""
    yield solarization(change=lambda x: ImageOps.solarize(x, 127))
    yield made("Solarization", lambda self, x: x if random.random() < self.p else ImageOps.solarize(x), p=0.5)
    yield made("GaussianBlur", lambda self, x: blurred(x, self.sigma[1]), sigma=[0.1, 2.0])
    yield made(
        "GaussianBlur", lambda self, x: x.filter(ImageFilter.BoxBlur(random.uniform(*self.sigma))), sigma=[0.1, 2.0]
    )
    yield made(
        "GaussianBlur",
        lambda self, x: blurred(x, random.uniform(self.radius_min, 2)),
        prob=1.0,
        radius_min=0.1,
        radius_max=1.0,
    )
    yield made("Solarize", lambda self, x: ImageOps.solarize(x).rotate(90))
    yield made("Solarize", lambda self, x: 1 / 0)
    yield made("View", lambda self, x: -self.transform(x), transform=tv.CenterCrop(8))
    yield made("View", lambda self, x: [self.transform(x)], transform=tv.CenterCrop(8))
    yield made("View", lambda self, x: [self.transform(x), self.transform(x)][0], transform=tv.CenterCrop(8))


@pytest.mark.parametrize("entry", wrong_calls())
def test_what_only_looks_so_is_refused(entry):
    with pytest.raises(TypeError, match="is Python.*batchd.serve"):
        _transform.text(tv.Compose([entry]))


class DataAugmentationDINO:
    """As the recipe builds it, with classes of its own for blur and solarization."""

    def __init__(self, n_local=8):
        flip_and_colour = tv.Compose([
            tv.RandomHorizontalFlip(p=0.5),
            tv.RandomApply([tv.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1)], p=0.8),
            tv.RandomGrayscale(p=0.2),
        ])  # fmt: skip
        bicubic, normalize = tv.InterpolationMode.BICUBIC, tv.Compose(NUMBERS)
        large = tv.RandomResizedCrop(48, scale=(0.4, 1.0), interpolation=bicubic)
        small = tv.RandomResizedCrop(20, scale=(0.05, 0.4), interpolation=bicubic)
        self.global_transfo1 = tv.Compose([large, flip_and_colour, dino_blur(1.0), normalize])
        self.global_transfo2 = tv.Compose([large, flip_and_colour, dino_blur(0.1), solarization(), normalize])
        self.local_crops_number = n_local
        self.local_transfo = tv.Compose([small, flip_and_colour, dino_blur(0.5), normalize])

    def __call__(self, image):
        crops = [self.global_transfo1(image), self.global_transfo2(image)]
        return crops + [self.local_transfo(image) for _ in range(self.local_crops_number)]


def test_dinos_own_object_is_its_views(daemon, samples):
    """Ten views of two sizes, those that the same recipe in words makes."""
    loader = batchd.DataLoader(f"imagefolder:{samples}", 8, transform=DataAugmentationDINO(), arrays="torch")
    views, _ = next(iter(loader))
    theirs = DataAugmentationDINO()(Image.new("RGB", (60, 60)))
    assert [tuple(v.shape[1:]) for v in views] == [tuple(t.shape) for t in theirs]
    jitter = ["RandomApply", [["ColorJitter", 0.4, 0.4, 0.2, 0.1]], 0.8]
    colour = ["RandomHorizontalFlip", jitter, ["RandomGrayscale", 0.2]]
    end = ["ToTensor", ["Normalize", [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]]

    def crop(size, *scale):
        return ["RandomResizedCrop", size, {"scale": scale, "interpolation": "bicubic"}]

    words = batchd.views(
        [crop(48, 0.4, 1), *colour, ["PillowGaussianBlur", [0.1, 2], 1], *end],
        [crop(48, 0.4, 1), *colour, ["PillowGaussianBlur", [0.1, 2], 0.1], ["RandomSolarize", 128, 0.2], *end],
        *[[crop(20, 0.05, 0.4), *colour, ["PillowGaussianBlur", [0.1, 2], 0.5], *end]] * 8,
    )
    again, _ = next(iter(batchd.DataLoader(f"imagefolder:{samples}", 8, transform=words, job="words", arrays="torch")))
    assert all(torch.equal(a, b) for a, b in zip(views, again, strict=True))


class MultiViewTransform:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        return [transform(image) for transform in self.transforms]


class Named(MultiViewTransform):
    pass


class Changed(MultiViewTransform):
    def __call__(self, image):
        return super().__call__(image)[:1]


def test_lightlys_views_are_views():
    """And those of its subclasses without a __call__ of their own."""
    view = Wrapper(tv.Compose([tv.Resize((9, 9)), *NUMBERS]))
    for kind in (MultiViewTransform, Named):
        text, form = _views.read(kind([view] * 3))
        assert form.n == 3 and json.loads(text)[""]["views"][0][0][0] == "Resize"
    assert _views.read(Changed([view] * 3))[1].n == 1


def test_lightlys_own_transforms(daemon, samples):
    """Where lightly is installed: the whole objects, loaded."""
    transforms = pytest.importorskip("lightly.transforms", reason="needs lightly")
    for given in (
        transforms.DINOTransform(),
        transforms.SimCLRTransform(input_size=32),
        transforms.MoCoV2Transform(32),
    ):
        views, _ = next(iter(batchd.DataLoader(f"imagefolder:{samples}", 4, transform=given, arrays="torch")))
        theirs = given(Image.new("RGB", (300, 300)))
        assert [tuple(v.shape[1:]) for v in views] == [tuple(t.shape) for t in theirs]


class Preset:
    """As torchvision's references keep their presets (references/classification/presets.py)."""

    def __init__(self, *steps):
        self.transforms = tv.Compose(steps)

    def __call__(self, img):
        return self.transforms(img)


class WithTarget(Preset):
    """As its references for detection call them."""

    def __call__(self, img, target):
        return self.transforms(img, target)


class Twice(Preset):
    def __call__(self, img):
        return self.transforms(self.transforms(img))


class Otherwise(Preset):
    def __call__(self, img):
        return self.transforms(img) * 2


def test_a_preset_of_torchvisions_references_is_its_pipeline(daemon, photos):
    """ClassificationPresetEval, pixel by pixel what it makes itself; ClassificationPresetTrain, op by op. What looks like
    one and does more is refused."""
    floats = [tv.PILToTensor(), tv.ConvertImageDtype(torch.float), NUMBERS[1]]
    preset = Preset(tv.Resize(40), tv.CenterCrop(32), *floats)
    steps = [
        tv.RandomResizedCrop(32),
        tv.RandomHorizontalFlip(),
        tv.TrivialAugmentWide(),
        *floats,
        tv.RandomErasing(0.1),
    ]
    assert _transform.text(Preset(*steps)) == _transform.text(tv.Compose(steps))
    paths = sorted(p for p in photos.rglob("*") if p.is_file())[:4]
    seen = 0
    for images, _ in batchd.DataLoader(f"imagefolder:{photos}", 4, transform=preset, arrays="torch"):
        for ours, path in zip(images, paths[: 4 - seen]):
            assert torch.equal(ours, preset(Image.open(path).convert("RGB")))
            seen += 1
    assert seen == 4
    for kind in (WithTarget, Twice, Otherwise):
        with pytest.raises(TypeError, match="is Python"):
            _transform.text(kind(tv.Resize(32)))

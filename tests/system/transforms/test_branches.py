"""Classes of self-supervised recipes that bring several views, or changes of one image, along: Barlow Twins, VICReg,
I-JEPA, MSN, BYOL, CLIP. They are written here as their authors' behave."""

import json
import random

import numpy as np
import pytest
from carried import blurred, made
from PIL import Image, ImageOps
from vision import import_torchvision

import batchd
from batchd import _transform, _views

torch = pytest.importorskip("torch")
tv = import_torchvision().transforms
NUMBERS = [tv.ToTensor(), tv.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]


# ---- one image ----


def vicreg_blur(p, rand=np.random.rand):
    return made("GaussianBlur", lambda self, x: blurred(x, rand() * 1.9 + 0.1) if rand() < self.p else x, p=p)


def jepa_blur(p):
    def call(self, image):
        if torch.bernoulli(torch.tensor(self.prob)) == 0:
            return image
        radius = self.radius_min + torch.rand(1) * (self.radius_max - self.radius_min)
        return blurred(image, radius.item())

    return made("GaussianBlur", call, prob=p, radius_min=0.1, radius_max=1.5)


def msn_equalize(p):
    call = lambda self, x: x if torch.bernoulli(torch.tensor(self.prob)) == 0 else ImageOps.equalize(x)  # noqa: E731
    return made("Equalize", call, prob=p)


class RandomApply(torch.nn.Module):  # BYOL
    def __init__(self, fn, p):
        super().__init__()
        self.fn, self.p = fn, p

    def forward(self, x):
        return x if random.random() > self.p else self.fn(x)


def to_rgb(image):
    return image.convert("RGB")


JITTER = tv.ColorJitter(0.8, 0.8, 0.8, 0.2)
READ = {
    "VICReg's blur": (vicreg_blur(0.1), ["PillowGaussianBlur", [0.1, 2.0], 0.1]),
    "Barlow Twins' blur": (vicreg_blur(1.0, random.random), ["PillowGaussianBlur", [0.1, 2.0], 1.0]),
    "a blur without p": (
        made("GaussianBlur", lambda self, x: blurred(x, np.random.rand() * 1.9 + 0.1)),
        ["PillowGaussianBlur", [0.1, 2.0], 1.0],
    ),
    "I-JEPA's blur": (jepa_blur(0.5), ["PillowGaussianBlur", [0.1, 1.5], 0.5]),
    "MSN's equalization": (msn_equalize(0.2), ["RandomEqualize", 0.2]),
    "torch's numbers": (
        made("Solarization", lambda self, x: ImageOps.solarize(x) if torch.rand(1).item() < self.p else x, p=0.5),
        ["RandomSolarize", 128, 0.5],
    ),
    "a flip": (
        made("Flip", lambda self, x: ImageOps.mirror(x) if random.random() < self.p else x, p=0.3),
        ["RandomHorizontalFlip", 0.3],
    ),
    "DeiT's flip": (
        made(
            "horizontal_flip",
            lambda self, x: self.transf(x) if random.random() < self.p else x,
            p=0.2,
            transf=tv.RandomHorizontalFlip(p=1.0),
        ),
        ["RandomApply", {"transforms": [["RandomHorizontalFlip", {"p": 1.0}]], "p": 0.2}],
    ),
    "BYOL's container": (
        RandomApply(JITTER, p=0.3),
        ["RandomApply", {"transforms": json.loads(_transform.text(tv.Compose([JITTER]))), "p": 0.3}],
    ),
    "CLIP's conversion": (to_rgb, "RGB"),
    "the same in a Lambda": (tv.Lambda(lambda image: image.convert("RGB")), "RGB"),
}


@pytest.mark.parametrize("name", READ)
def test_a_class_is_the_op_whose_work_it_does(name):
    """The generators that it draws from stay as they were."""
    entry, op = READ[name]
    random.seed(7), np.random.seed(7), torch.manual_seed(7)
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    assert json.loads(_transform.text(tv.Compose([entry]))) == [op]
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == states


def other_things():
    yield vicreg_blur(0.5, lambda: random.random() * 0.9)
    yield made("GaussianBlur", lambda self, x: blurred(x, np.random.rand() * 1.9 + 0.2), p=0.5)
    yield made("Solarize", lambda self, x: ImageOps.solarize(x, float(torch.rand(1) * 256)), prob=0.2)  # MSN's
    yield lambda image: image.convert("L").convert("RGB")
    yield lambda image: image.convert("RGB").rotate(90)
    yield tv.Lambda(lambda image: image.transpose(Image.Transpose.ROTATE_90))


@pytest.mark.parametrize("entry", other_things())
def test_what_does_something_else_is_refused(entry):
    with pytest.raises(TypeError, match="batchd.serve"):
        _transform.text(tv.Compose([tv.CenterCrop(8), entry]))


@pytest.mark.parametrize("kind", ["folder", "grey"])
def test_clips_preprocessing_gives_its_own_pixels(daemon, photos, tmp_path, kind):
    """Its Compose with a function of its own in the middle, of grey files too."""
    pipeline = tv.Compose([tv.Resize(40, tv.InterpolationMode.BICUBIC), tv.CenterCrop(32), to_rgb, *NUMBERS])
    paths = sorted(p for p in photos.rglob("*") if p.is_file())[:3]
    (tmp_path / "x").mkdir()
    for i, path in enumerate(paths):
        Image.open(path).convert("L" if kind == "grey" else "RGB").save(tmp_path / "x" / f"{i}.png")
    with batchd.DataLoader(f"imagefolder:{tmp_path}", 3, transform=pipeline, arrays="torch") as loader:
        rows = next(iter(loader))[0]
        for i, row in enumerate(rows):
            assert torch.equal(row, pipeline(Image.open(tmp_path / "x" / f"{i}.png").convert("RGB")))


# ---- several ----


class Transform:
    """Barlow Twins', and VICReg's TrainTransform."""

    def __init__(self, size=24):
        steps = [tv.RandomResizedCrop(size), tv.RandomHorizontalFlip(p=0.5)]
        self.transform = tv.Compose([*steps, vicreg_blur(1.0), *NUMBERS])
        self.transform_prime = tv.Compose([*steps, vicreg_blur(0.1), *NUMBERS])

    def __call__(self, x):
        y1 = self.transform(x)
        y2 = self.transform_prime(x)
        return y1, y2


class MultiCrop:
    """As SwAV's data set keeps its pipelines, with a base that each crop has for itself."""

    def __init__(self):
        self.base = tv.RandomHorizontalFlip(0.3)
        self.trans = [tv.Compose([tv.RandomResizedCrop(size), *NUMBERS]) for size in (24, 24, 12)]

    def __call__(self, image):
        return [trans(self.base(image)) for trans in self.trans]


@pytest.mark.parametrize("entry", [Transform(), MultiCrop()])
def test_an_objects_own_list_is_its_views(daemon, samples, entry):
    """Shapes of its own result, and the rows of the same pipelines as batchd.views has them."""
    with batchd.DataLoader(f"imagefolder:{samples}", 5, transform=entry, arrays="torch") as loader:
        views = [view.clone() for view in next(iter(loader))[0]]
    assert [tuple(v.shape[1:]) for v in views] == [tuple(t.shape) for t in entry(Image.new("RGB", (60, 50)))]
    written = (
        batchd.views(entry.transform, entry.transform_prime)
        if isinstance(entry, Transform)
        else batchd.views(*[[entry.base, trans] for trans in entry.trans])
    )
    with batchd.DataLoader(f"imagefolder:{samples}", 5, transform=written, job="words", arrays="torch") as loader:
        assert all(torch.equal(a, b) for a, b in zip(views, next(iter(loader))[0], strict=True))


def crop(size=24):
    return tv.Compose([tv.RandomResizedCrop(size), tv.ToTensor()])


def shared(self, image):
    """Two crops of one flip: views have a flip of their own each."""
    image = self.base(image)
    return [self.crop(image), self.crop(image)]


@pytest.mark.parametrize(
    "entry",
    [
        made("Shared", shared, base=tv.RandomHorizontalFlip(), crop=crop()),
        made("Changed", lambda self, x: [self.t(x), self.t(x.rotate(90))], t=crop()),
        made("Stacked", lambda self, x: torch.stack([self.t(x), self.t(x)]), t=crop()),
        made("Masked", lambda self, x: (self.t(x), self.mask()), t=crop(), mask=lambda: 1),
        made("Chosen", lambda self, x: [(self.t if random.random() < 0.5 else self.u)(x)], t=crop(), u=crop()),
        made("Empty", lambda self, x: [], t=crop()),
        made("Twice", lambda self, x: [self.t(x)] * 2, t=crop()),
    ],
)
def test_what_does_more_than_call_its_pipelines_is_refused(entry):
    with pytest.raises(TypeError, match="is Python.*batchd.serve"):
        _views.read(entry)

"""torchvision's own transform objects as pipelines: with torchvision where it is installed, and without it by similar
classes."""

import enum
import json

import numpy
import pytest

import batchd
from batchd import _transform
from vision import import_torchvision


class Bilinear(enum.Enum):
    BILINEAR = "bilinear"


def fake(name, module="torchvision.transforms.transforms", **attributes):
    """An object like torchvision's: its arguments are its attributes."""
    code = f"def __init__(self, {', '.join(attributes)}): pass" if attributes else "def __init__(self): pass"
    space = {}
    exec(code, space)
    thing = type(name, (), {"__init__": space["__init__"], "__module__": module})(*attributes.values())
    thing.__dict__.update(attributes)
    return thing


V2 = "torchvision.transforms.v2._geometry"
TO_FLOAT = ["ToDtype", {"dtype": "torch.float32", "scale": True}]


def ops(transform):
    return json.loads(_transform.text(transform))


def test_names_and_lists_stay_what_they_are():
    """As without objects."""
    assert _transform.text(None) is None and _transform.text("train224") == "train224"
    assert ops(
        [
            "ToTensor",
            ("Resize", numpy.int64(3)),
            ["Normalize", numpy.float64(0.5), numpy.array([0.5, 0.25])],
            ["Resize", {"interpolation": Bilinear.BILINEAR}],
        ]
    ) == ["ToTensor", ["Resize", 3], ["Normalize", 0.5, [0.5, 0.25]], ["Resize", {"interpolation": "bilinear"}]]


def test_objects_become_ops_with_their_arguments():
    """Nested containers are flattened, enums become texts, and options of torchvision alone are left out."""
    nested = fake(
        "Compose",
        transforms=[
            fake("Resize", size=256, interpolation=Bilinear.BILINEAR, max_size=None, antialias="warn"),
            ["CenterCrop", 224],
        ],
    )
    assert ops(fake("Compose", transforms=[nested, fake("ToTensor"), "RandomHorizontalFlip"])) == [
        ["Resize", {"size": 256, "interpolation": "bilinear", "max_size": None}],
        ["CenterCrop", 224],
        ["ToTensor", {}],
        "RandomHorizontalFlip",
    ]
    assert ops(fake("CenterCrop", size=(3, 4))) == [["CenterCrop", {"size": [3, 4]}]]


def test_the_second_generations_objects_mean_the_same():
    """A size in a list of its own, paddings in another order, and a step that the daemon takes for ToTensor."""
    assert ops(
        [
            fake("ToImage", V2),
            fake("Resize", V2, size=[256]),
            fake("RandomCrop", V2, size=(9, 9), padding=[1, 3, 2, 4]),
            fake("RandomCrop", size=9, padding=[1, 2, 3, 4]),
            fake("ToDtype", V2, dtype="torch.float32", scale=True),
            fake("ToPureTensor", V2),
        ]
    ) == [
        ["Resize", {"size": 256}],
        ["RandomCrop", {"size": [9, 9], "padding": [1, 2, 3, 4]}],
        ["RandomCrop", {"size": 9, "padding": [1, 2, 3, 4]}],
        TO_FLOAT,
    ]
    assert ops([fake("PILToTensor"), fake("ConvertImageDtype", dtype="torch.float32")]) == [TO_FLOAT]


def test_presets_and_other_names_of_known_ops(daemon, samples):
    """The transforms() of weights, timm's equivalent classes, and steps without effect; the daemon accepts them."""
    timm = "timm.data.transforms"
    preset = fake(
        "ImageClassification",
        "torchvision.transforms._presets",
        crop_size=[56],
        resize_size=[64],
        mean=[0.5, 0.4, 0.3],
        std=[0.2, 0.2, 0.1],
        interpolation=Bilinear.BILINEAR,
        antialias=True,
    )
    assert ops(preset) == [
        ["Resize", {"size": 64, "interpolation": "bilinear"}],
        ["CenterCrop", 56],
        "ToTensor",
        ["Normalize", {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.2, 0.1]}],
    ]
    train = [
        fake(
            "RandomResizedCropAndInterpolation",
            timm,
            size=(32, 32),
            scale=(0.08, 1.0),
            ratio=(0.75, 1.33),
            interpolation="bicubic",
        ),
        fake("MaybePILToTensor", timm),
        fake("Identity", "torch.nn.modules.linear"),
        fake("MaybeToTensor", timm),
    ]
    assert ops(train) == [
        [
            "RandomResizedCrop",
            {"size": [32, 32], "scale": [0.08, 1.0], "ratio": [0.75, 1.33], "interpolation": "bicubic"},
        ],
        "ToTensor",
    ]
    for transform, size in ((preset, 56), (train, 32)):
        images, _ = next(iter(batchd.DataLoader(f"imagefolder:{samples}", 8, transform=transform)))
        assert tuple(images.shape) == (8, 3, size, size)


def test_resizing_without_antialiasing_is_refused():
    """The daemon resizes pictures; without antialiasing a tensor differs visibly."""
    for module in ("torchvision.transforms.transforms", V2):
        with pytest.raises(ValueError, match=r"Resize\(antialias=False\) is not what the daemon does"):
            ops(fake("Resize", module, size=64, antialias=False))
    assert ops(fake("Resize", V2, size=64, antialias=True)) == [["Resize", {"size": 64}]]


def test_what_the_daemon_cannot_do_is_named(daemon, samples):
    """Other transforms of torchvision fail in the daemon, which knows its ops; Python code fails with alternatives."""
    for transform, said in (
        (fake("RandomNewThing", size=[4, 4]), "'RandomNewThing' is not known to batchd"),
        (fake("ToDtype", V2, dtype="torch.float32", scale=False), "'scale' is false; expected true"),
        (fake("ToDtype", V2, dtype="torch.float16", scale=True), "'dtype' is .*half precision"),
    ):
        with pytest.raises(ValueError, match=said):
            batchd.DataLoader(f"imagefolder:{samples}", 8, transform=[["Resize", [8, 8]], transform])
    for transform in (lambda image: image, fake("Resize", "__main__", size=3), fake("Compose", transforms=[print])):
        with pytest.raises(TypeError, match="Python, which the daemon does not run"):
            batchd.DataLoader(f"imagefolder:{samples}", 8, transform=transform)
    with pytest.raises(TypeError, match="a list of its own"):
        batchd.DataLoader(f"imagefolder:{samples}", 8, transform=["Resize", 32])


def test_torchvisions_own_give_its_own_pixels(daemon, samples):
    """Both generations, from the same objects that an ImageFolder gets."""
    torch = pytest.importorskip("torch")
    try:
        torchvision = import_torchvision()
    except Exception as e:  # absent, or built for another torch
        pytest.skip(f"torchvision cannot be imported: {e}")
    from torchvision import transforms as v1
    from torchvision.transforms import v2

    mean, std = torch.tensor([0.485, 0.456, 0.406]), (0.229, 0.224, 0.225)
    to_tensor = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    for transform in (
        v1.Compose([v1.Resize(64), v1.CenterCrop(56), v1.ToTensor(), v1.Normalize(mean, std)]),
        v1.Compose(
            [v1.Resize((60, 70), v1.InterpolationMode.BICUBIC), v1.Pad((1, 2, 3, 4), fill=(5, 6, 7)), v1.ToTensor()]
        ),
        v2.Compose([v2.Resize(64), v2.CenterCrop(56), *to_tensor, v2.Normalize(mean.tolist(), std)]),
        v2.Compose(
            [v2.Resize((60, 70)), v2.RandomCrop((66, 74), padding=(1, 2, 3, 4)), v2.RandomHorizontalFlip(1), *to_tensor]
        ),
    ):
        judge = torchvision.datasets.ImageFolder(str(samples), transform)
        loader = batchd.DataLoader(f"imagefolder:{samples}", 16, transform=transform)
        for images, _ in loader:
            for image, i in zip(images, loader.last_batch.indices):
                assert torch.allclose(image, judge[int(i)][0], rtol=0, atol=1e-6)
    # Random transforms only have the same distribution; here only that they are accepted.
    for v, last in ((v1, [v1.ToTensor()]), (v2, to_tensor)):
        batchd.DataLoader(
            f"imagefolder:{samples}",
            8,
            transform=v.Compose(
                [
                    v.RandomResizedCrop(48, scale=(0.2, 1)),
                    v.RandomHorizontalFlip(),
                    v.ColorJitter(0.4, 0.4, 0.4, 0.1),
                    v.RandomGrayscale(0.2),
                    v.RandomVerticalFlip(),
                    v.RandomCrop(40, padding=4, padding_mode="reflect"),
                    v.Grayscale(3),
                    *last,
                ]
            ),
        ).close()

"""Objects of torchvision, timm and OpenCLIP as users pass them: read attribute by attribute, or refused by name. The
daemon accepts each reading."""

import json

import numpy
import pytest
from PIL import Image

import batchd
from batchd import _instead, _transform
from test_transforms import fake
from vision import import_torchvision

torch = pytest.importorskip("torch")
try:
    import_torchvision()
    from torchvision import transforms as v1
    from torchvision.transforms import v2
except Exception as e:  # absent, or built for another torch
    pytest.skip(f"torchvision cannot be imported: {e}", allow_module_level=True)


def ops(transform):
    return json.loads(_transform.text(transform))


def accepted(samples, transform, **options):
    """The first batch of a loader with it."""
    loader = batchd.DataLoader(f"imagefolder:{samples}", 4, transform=transform, arrays="numpy", **options)
    images, _ = next(iter(loader))
    return images


@pytest.mark.parametrize("v", [v1, v2], ids=["v1", "v2"])
def test_containers_of_both_generations(daemon, samples, v):
    """Lists, weights and probabilities; what runs as a whole stays a whole."""
    jitter = ["ColorJitter", {"brightness": [0.6, 1.4], "contrast": None, "saturation": None, "hue": None}]
    flips = [["RandomHorizontalFlip", {"p": 0.5}], ["RandomVerticalFlip", {"p": 0.5}]]
    transform = v.Compose(
        [
            v.RandomResizedCrop(32),
            v.RandomApply([v.ColorJitter(0.4), v.RandomGrayscale(0.2)], p=0.8),
            v.RandomChoice([v.Compose([v.RandomHorizontalFlip(), v.RandomVerticalFlip()]), torch.nn.Identity()]),
            v.RandomChoice([v.RandomHorizontalFlip(), v.RandomVerticalFlip()], p=[0.25, 0.75]),
            v.RandomOrder([v.RandomHorizontalFlip(), v.Compose([v.RandomVerticalFlip()])]),
            torch.nn.Sequential(v.RandomHorizontalFlip()),
        ]
    )
    assert ops(transform)[1:] == [
        ["RandomApply", {"transforms": [jitter, ["RandomGrayscale", {"p": 0.2}]], "p": 0.8}],
        ["RandomChoice", {"transforms": [["Compose", flips], "Identity"], "p": None}],
        ["RandomChoice", {"transforms": flips, "p": [0.25, 0.75]}],
        ["RandomOrder", {"transforms": flips}],
        flips[0],
    ]
    assert accepted(samples, transform, dtype="uint8").shape == (4, 3, 32, 32)


def test_apply_takes_module_lists_and_objects_in_words(daemon, samples):
    """nn.ModuleList, as scripted transforms have, and objects inside of a list in words."""
    transform = [
        ["RandomResizedCrop", 16],
        v1.RandomApply(torch.nn.ModuleList([v1.RandomGrayscale(1.0)]), p=0.5),
        ["RandomApply", [v2.RandomHorizontalFlip(), ["Grayscale", 3]], 0.3],
    ]
    assert ops(transform)[1:] == [
        ["RandomApply", {"transforms": [["RandomGrayscale", {"p": 1.0}]], "p": 0.5}],
        ["RandomApply", [["RandomHorizontalFlip", {"p": 0.5}], ["Grayscale", 3]], 0.3],
    ]
    assert accepted(samples, transform, dtype="uint8").shape == (4, 3, 16, 16)


@pytest.mark.parametrize("inner", [v2.Identity(), torch.nn.Identity(), v2.PILToTensor(), v2.Compose([v2.Identity()])])
def test_a_container_of_what_does_nothing_is_nothing(daemon, samples, inner):
    """Alone, and beside an op."""
    transform = [v2.CenterCrop(16), v2.RandomApply([inner], p=0.5)]
    assert ops(transform) == ops([v2.CenterCrop(16)])
    choice = v2.RandomChoice([inner, v2.RandomApply([inner]), v2.Grayscale(3)])
    assert accepted(samples, [*transform, choice], dtype="uint8").shape == (4, 3, 16, 16)


def test_policies_and_erasing_of_both_generations(daemon, samples):
    """The recipe of torchvision's references, as its presets build it; v1's policies say which they are."""
    bilinear = v2.InterpolationMode.BILINEAR
    for v in (v1, v2):
        first = {"v1": True} if v is v1 else {}
        to_tensor = [v.PILToTensor(), v.ConvertImageDtype(torch.float32)]
        for policy, words in (
            (
                v.RandAugment(magnitude=7, interpolation=bilinear),
                {"num_ops": 2, "magnitude": 7, "num_magnitude_bins": 31},
            ),
            (v.TrivialAugmentWide(interpolation=bilinear), {"num_magnitude_bins": 31}),
            (v.AutoAugment(v1.AutoAugmentPolicy.SVHN, interpolation=bilinear), {"policy": "svhn"}),
        ):
            transform = v.Compose(
                [
                    v.RandomResizedCrop(24, interpolation=bilinear, antialias=True),
                    policy,
                    *to_tensor,
                    v.Normalize((0.5, 0.4, 0.3), (0.2, 0.2, 0.2)),
                    v.RandomErasing(0.1),
                ]
            )
            read = ops(transform)
            assert read[1] == [
                type(policy).__name__,
                {**words, "interpolation": "bilinear", "fill": None, **first},
            ]
            assert read[2][0] == "ToDtype" and read[4][0] == "RandomErasing" and read[4][1]["value"] == 0
            assert accepted(samples, transform).dtype == numpy.float32
    for v in (v1, v2):
        assert ops(v.RandomErasing(value="random"))[0][1]["value"] == "random"
        assert ops(v.RandomErasing(value=(0.1, 0.2, 0.3)))[0][1]["value"] == [0.1, 0.2, 0.3]


def test_the_object_is_the_contract(daemon, samples):
    """Attributes count, not names: a subclass that only sets them is what its base is with them; p may be what it should
    not be; fill may be a dictionary, interpolation one of Pillow's numbers."""

    class Blurish(v1.RandomApply):  # DINOv2's GaussianBlur is made like this, and never applied
        def __init__(self, *, p=0.5):
            super().__init__([v1.RandomGrayscale(1.0)], p=1 - p)

    class Crop(v2.RandomCrop):
        """A harmless subclass."""

    assert ops(Blurish(p=1.0)) == [["RandomApply", {"transforms": [["RandomGrayscale", {"p": 1.0}]], "p": 0.0}]]
    assert ops(Crop((8, 9), padding=2))[0][0] == "RandomCrop"
    flip = v2.RandomHorizontalFlip()
    flip.p = 0.125
    assert ops(flip) == [["RandomHorizontalFlip", {"p": 0.125}]]
    from torchvision import tv_tensors

    pad = v2.Pad(3, fill={tv_tensors.Image: (1, 2, 3), tv_tensors.Mask: 255})
    assert ops(pad)[0][1]["fill"] == [1, 2, 3]
    assert ops(v2.Pad(3, fill={"others": 7}))[0][1]["fill"] == 7
    assert ops(v2.Resize((9, 8), interpolation=3))[0][1]["interpolation"] == "bicubic"
    both = {tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None}
    assert ops([v2.ToImage(), v2.ToDtype(both, scale=True)]) == [["ToDtype", {"dtype": "torch.float32", "scale": True}]]
    for kinds in ({torch.Tensor: torch.float32, "others": None}, {torch.Tensor: None, "others": torch.float32}):
        with pytest.raises(TypeError, match="another dtype for torch.Tensor than for tv_tensors.Image"):
            ops([v2.ToImage(), v2.ToDtype(kinds, scale=True)])
    for kinds in ({torch.Tensor: torch.float32, "others": torch.float32}, {"others": torch.float32}):
        assert ops([v2.ToDtype(kinds, scale=True)]) == [["ToDtype", {"dtype": "torch.float32", "scale": True}]]
    images = accepted(samples, v2.Compose([v2.Resize((8, 9), interpolation=3), Blurish(p=1.0), pad]), dtype="uint8")
    assert images.shape == (4, 3, 14, 15) and (images[:, :, 0, 0] == (1, 2, 3)).all()


def test_what_does_something_else_is_refused_by_name():
    """Overridden methods, new transforms, functions: with what to do instead."""

    class Flip(v2.RandomHorizontalFlip):
        def transform(self, inpt, params):
            return inpt

    class Jitter(v1.ColorJitter):
        @staticmethod
        def get_params(*ranges):
            return None

    class Own(v2.Transform):
        def transform(self, inpt, params):
            return inpt

    for transform, said in (
        (Flip(), "Flip overrides transform of torchvision's RandomHorizontalFlip"),
        (Jitter(), "Jitter overrides get_params of torchvision's ColorJitter"),
        (Own(), "Own.* is Python"),
        (v1.RandomApply([Flip()]), "Flip overrides transform"),
        (v1.Compose([lambda image: image]), "is Python.*batchd.serve"),
        ([["RandomApply", [print], 0.5]], "is Python.*batchd.serve"),
        (fake("GaussianBlur", "moco.loader", sigma=(0.1, 2.0)), r'is Python.*write \["PillowGaussianBlur"'),
        (fake("Solarization", "utils", p=0.2), r'is Python.*write \["RandomSolarize", 128, p\].*batchd.serve'),
    ):
        with pytest.raises(TypeError, match=said):
            _transform.text(transform)


def test_what_errors_say_to_write_is_accepted(daemon, samples):
    """The words that stand in for classes of well-known recipes are ops of the daemon."""
    for words in _instead._IN_WORDS.values():
        if words.startswith("["):
            op = json.loads(words.replace("p]", "0.5]"))
            assert accepted(samples, [["CenterCrop", 40], op], dtype="uint8").shape == (4, 3, 40, 40)


# ---- timm ----


def test_timms_erasing_and_crop_by_similar_classes():
    """Without timm: its attributes, by classes with its names."""
    erasing = fake(
        "RandomErasing",
        "timm.data.random_erasing",
        probability=0.25,
        min_area=0.02,
        max_area=0.5,
        log_aspect_ratio=(numpy.log(0.3), numpy.log(4.0)),
        min_count=1,
        max_count=3,
        num_splits=0,
        rand_color=False,
        per_pixel=True,
    )
    name, given = ops(erasing)[0]
    assert name == "RandomErasing" and given.pop("ratio") == pytest.approx([0.3, 4.0])
    assert given == {"p": 0.25, "scale": [0.02, 0.5], "value": "random", "count": [1, 3]}
    plain = ops(erasing)
    erasing.num_splits = 3
    with pytest.warns(RuntimeWarning, match="num_splits=3.*every image.*aug_splits"):
        assert ops(erasing) == plain
    filters = (v2.InterpolationMode.BILINEAR, v2.InterpolationMode.BICUBIC)
    crop = fake(
        "RandomResizedCropAndInterpolation",
        "timm.data.transforms",
        size=(8, 8),
        scale=(0.1, 1),
        ratio=(1, 1),
        interpolation=filters,
    )
    assert ops(crop)[0][1]["interpolation"] == "random"


def test_frames_of_timm_0_9_2(daemon, samples):
    """Its ResizeKeepRatio draws nothing and its CenterCropOrPad has one padding, so their objects lack the attributes that
    say so in later versions: crop_mode="border" of create_transform."""
    bicubic = v2.InterpolationMode.BICUBIC
    size = {"size": (32, 40), "fill": [1, 2, 3]}
    resize = fake("ResizeKeepRatio", "timm.data.transforms", **size, longest=1.0, interpolation=bicubic)
    frame = fake("CenterCropOrPad", "timm.data.transforms", **size)
    assert ops([resize, frame]) == [
        ["ResizeKeepRatio", {"size": [32, 40], "longest": 1.0, "interpolation": "bicubic"}],
        ["CenterCropOrPad", {"size": [32, 40], "fill": [1, 2, 3], "padding_mode": "constant"}],
    ]
    assert accepted(samples, [resize, frame], dtype="uint8").shape == (4, 3, 32, 40)


# ---- OpenCLIP ----


def test_open_clips_image_transform(daemon, samples):
    """What image_transform makes, by similar classes: for training, and for evaluation."""
    convert = fake("MaybeConvertMode", "open_clip.transform", mode="RGB")
    to_tensor = fake("MaybeToTensor", "open_clip.transform")
    bicubic = v1.InterpolationMode.BICUBIC
    normalize = v1.Normalize((0.48, 0.46, 0.41), (0.27, 0.26, 0.28))

    def _convert_to_rgb(image):
        return image

    _convert_to_rgb.__module__ = "open_clip.transform"
    train = v1.Compose(
        [v1.RandomResizedCrop(32, (0.9, 1.0), interpolation=bicubic), _convert_to_rgb, to_tensor, normalize]
    )
    val = v1.Compose([v1.Resize(40, interpolation=bicubic), v1.CenterCrop(32), convert, to_tensor, normalize])
    assert [op if isinstance(op, str) else op[0] for op in ops(train)] == ["RandomResizedCrop", "ToTensor", "Normalize"]
    assert [op if isinstance(op, str) else op[0] for op in ops(val)] == [
        "Resize",
        "CenterCrop",
        "ToTensor",
        "Normalize",
    ]
    for transform in (train, val):
        assert accepted(samples, transform).shape == (4, 3, 32, 32)
    with pytest.raises(TypeError, match="is Python"):
        ops(fake("MaybeConvertMode", "open_clip.transform", mode="L"))
    jitter = fake("color_jitter", "open_clip.transform", p=0.7, transf=v1.ColorJitter(brightness=0.4))
    assert ops(jitter)[0][0] == "RandomApply" and ops(jitter)[0][2] == 0.7
    assert ops(jitter)[0][1][0][0] == "ColorJitter"
    assert ops(fake("gray_scale", "open_clip.transform", p=0.3)) == [["RandomGrayscale", 0.3]]


ROWS = numpy.random.default_rng(5).integers(0, 256, (4, 8, 9, 3), dtype=numpy.uint8)


@pytest.mark.parametrize(
    "transform",
    [
        v1.PILToTensor(),
        v1.Compose([]),
        [],
        v2.ToImage(),
        v2.Identity(),
        torch.nn.Identity(),
        v2.Compose([v2.ToImage(), v2.ToPureTensor()]),
        torch.nn.Sequential(),
    ],
    ids=lambda t: type(t).__name__,
)
def test_a_pipeline_that_only_converts_gives_the_rows(daemon, transform):
    """Rows of one size need no op: the pixels are those of torchvision's PILToTensor."""
    with batchd.DataLoader((ROWS, numpy.arange(4)), 4, transform=transform, dtype="uint8") as loader:
        ((images, labels),) = loader
    wanted = torch.stack([v1.PILToTensor()(Image.fromarray(row)) for row in ROWS])
    assert images.dtype == torch.uint8 and torch.equal(images, wanted) and labels.tolist() == [0, 1, 2, 3]


def test_views_that_only_convert(daemon):
    """A view may be the picture as it is, beside others."""
    views = {"plain": v1.PILToTensor(), "flipped": v1.RandomHorizontalFlip(1.0)}
    with batchd.DataLoader((ROWS, numpy.arange(4)), 4, transform=views, dtype="uint8") as loader:
        ((images, _),) = loader
    wanted = torch.from_numpy(ROWS).permute(0, 3, 1, 2)
    assert torch.equal(images["plain"], wanted) and torch.equal(images["flipped"], wanted.flip(-1))


FILLED = [
    lambda fill: v2.Pad(2, fill=fill),
    lambda fill: v2.Pad((1, 2, 3, 0), fill=fill, padding_mode="constant"),
    lambda fill: v2.RandomCrop((20, 21), padding=8, fill=fill),
    lambda fill: v2.RandomCrop((20, 21), pad_if_needed=True, fill=fill),
    lambda fill: v2.RandomRotation((30, 30), fill=fill),
    lambda fill: v2.RandomAffine((10, 10), fill=fill),
    lambda fill: v1.RandomRotation((30, 30), fill=fill),
]


@pytest.mark.parametrize("made", range(len(FILLED)))
@pytest.mark.parametrize(
    "fill", [None, {torch.Tensor: 3, "others": None}, {"others": None}], ids=["None", "Tensor", "others"]
)
def test_no_fill_is_torchvisions_black(daemon, made, fill):
    """fill=None, alone or in v2's dictionary of kinds of input."""
    if isinstance(fill, dict) and made == len(FILLED) - 1:
        fill = None  # the first generation has no dictionaries
    transform = FILLED[made](fill)
    with batchd.DataLoader((ROWS,), 4, transform=[transform, ["CenterCrop", [10, 12]]], dtype="uint8") as loader:
        ((images,),) = loader
    with batchd.DataLoader((ROWS,), 4, transform=[FILLED[made](0), ["CenterCrop", [10, 12]]], dtype="uint8") as loader:
        ((black,),) = loader
    if fill is None and "Crop" not in type(transform).__name__:
        turned = [v1.functional.pil_to_tensor(v2.CenterCrop((10, 12))(transform(Image.fromarray(r)))) for r in ROWS]
        assert torch.equal(images, torch.stack(turned))
    assert torch.equal(images, black)


def test_a_fill_of_another_type_is_not_taken(daemon):
    """v2 looks for exactly the type of its input, which ToImage changes: it has the fill of "others" elsewhere."""
    from torchvision import tv_tensors

    kinds = {tv_tensors.Image: 200, "others": 7}
    end = [v2.ToImage(), v2.ToDtype(torch.uint8)]
    fitting = v2.Compose([v2.ToImage(), v2.Pad(2, fill=kinds), v2.ToDtype(torch.uint8)])
    with batchd.DataLoader((ROWS,), 4, transform=fitting, dtype="uint8") as loader:
        ((images,),) = loader
    assert torch.equal(images, torch.stack([fitting(Image.fromarray(r)) for r in ROWS]))
    for fill, first in ((kinds, []), ({torch.Tensor: 3, "others": 7}, [v2.PILToTensor()])):
        for pad in (v2.Pad(2, fill=fill), v2.RandomApply([v2.RandomRotation(30, fill=fill)], 1.0)):
            with pytest.raises(ValueError, match="dictionary fills images with .*, and torchvision fills what it gets"):
                ops([*first, pad, *end])
    assert ops([v2.Pad(2, fill={Image.Image: 9, "others": 7})])[0][1]["fill"] == 9


def test_antialias_none_behind_a_tensor_is_not_taken_for_true(daemon, samples):
    """There torchvision resizes without antialiasing; on pictures it antialiases whatever the argument says."""
    picture = Image.fromarray(numpy.random.default_rng(1).integers(0, 256, (64, 64, 3), dtype=numpy.uint8))
    resize = v2.Resize((9, 9), antialias=None)
    on_tensor = [v2.Compose([v2.ToImage(), v2.Resize((9, 9), antialias=a)])(picture) for a in (None, True)]
    assert not torch.equal(*on_tensor)
    assert resize(picture).tobytes() == v2.Resize((9, 9))(picture).tobytes()
    for made in (
        v2.Compose([v2.ToImage(), resize]),
        [v2.PILToTensor(), v1.Compose([v2.RandomApply([resize])])],
        v2.Compose([v2.Compose([v2.ToImage()]), v2.RandomResizedCrop(9, antialias=None)]),
        {"a": v2.Compose([v2.ToImage(), resize])},
    ):
        with pytest.raises(ValueError, match=r"\(antialias=None\) after (ToImage|PILToTensor) .*without antialiasing"):
            accepted(samples, made)
    assert accepted(samples, v2.Compose([resize, v2.ToImage()]), dtype="uint8").shape == (4, 3, 9, 9)


class Space(v1.RandAugment):
    def _augmentation_space(self, *args):
        return {}


class OldSpace(v1.TrivialAugmentWide):
    def _augmentation_space(self, *args):
        return {}


class Constant(v2.AutoAugment):
    _AUGMENTATION_SPACE = {}


class Documented(v1.CenterCrop):
    """Changes nothing."""

    purpose = "mine"

    def __repr__(self):
        return "mine"


def test_whatever_a_subclass_overrides_is_seen(samples, daemon):
    """RandAugment with another space of ops, and an object whose method was replaced, are not what their class is."""
    for entry, name in ((Space(), "_augmentation_space"), (OldSpace(), "_augmentation_space")):
        with pytest.raises(TypeError, match=f"overrides {name} of torchvision's"):
            ops(entry)
    with pytest.raises(TypeError, match="overrides _AUGMENTATION_SPACE of torchvision's AutoAugment"):
        ops(Constant())
    crop = v2.CenterCrop(4)
    crop.forward = lambda image: image
    with pytest.raises(TypeError, match="overrides forward of torchvision's CenterCrop"):
        ops(crop)
    assert ops(Documented(4)) == ops(v1.CenterCrop(4))

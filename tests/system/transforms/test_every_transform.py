"""Every class of torchvision.transforms (both generations) and of timm's transforms is either read, and its reading
accepted by the daemon, or refused by name with what to do instead. A class that these lists lack is new: read it or
refuse it. timm's create_transform is read as a whole, and gives timm's bytes where nothing is random."""

import inspect
import itertools
import json

import numpy as np
import pytest
from PIL import Image
from test_pixels import NO_PREFIX, Render, tool
from vision import import_torchvision

from batchd import _transform

torch = pytest.importorskip("torch")
vision = import_torchvision()
from torchvision import transforms as v1  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

BOTH = {
    "AugMix": {},
    "AutoAugment": {},
    "CenterCrop": {"size": 20},
    "ColorJitter": {"brightness": 0.4, "hue": 0.1},
    "Compose": {"transforms": [v1.RandomHorizontalFlip()]},
    "ConvertImageDtype": {"dtype": torch.float32},
    "ElasticTransform": {"sigma": 2.0},
    "GaussianBlur": {"kernel_size": 5},
    "Grayscale": {"num_output_channels": 3},
    "Normalize": {"mean": [0.5], "std": [0.5]},
    "PILToTensor": {},
    "Pad": {"padding": 3},
    "RandAugment": {},
    "RandomAdjustSharpness": {"sharpness_factor": 2},
    "RandomAffine": {"degrees": 10},
    "RandomApply": {"transforms": [v1.RandomHorizontalFlip()]},
    "RandomAutocontrast": {},
    "RandomChoice": {"transforms": [v1.RandomHorizontalFlip()]},
    "RandomCrop": {"size": 20},
    "RandomEqualize": {},
    "RandomErasing": {},
    "RandomGrayscale": {},
    "RandomHorizontalFlip": {},
    "RandomInvert": {},
    "RandomOrder": {"transforms": [v1.RandomHorizontalFlip()]},
    "RandomPerspective": {},
    "RandomPosterize": {"bits": 3},
    "RandomResizedCrop": {"size": 20},
    "RandomRotation": {"degrees": 10},
    "RandomSolarize": {"threshold": 128},
    "RandomVerticalFlip": {},
    "Resize": {"size": 22},
    "ToPILImage": {},
    "ToTensor": {},
    "TrivialAugmentWide": {},
}
READ = {
    v1: BOTH,
    v2: {
        **BOTH,
        "GaussianNoise": {},
        "Identity": {},
        "RGB": {},
        "RandomChannelPermutation": {},
        "RandomPhotometricDistort": {},
        "RandomResize": {"min_size": 20, "max_size": 30},
        "RandomShortestSize": {"min_size": 20},
        "RandomZoomOut": {},
        "ScaleJitter": {"target_size": (20, 20)},
        "ToDtype": {"dtype": torch.float32, "scale": True},
        "ToImage": {},
        "ToPureTensor": {},
    },
}
REFUSED = {
    "ClampBoundingBoxes": ({}, "boxes or key points"),
    "ClampKeyPoints": ({}, "boxes or key points"),
    "ConvertBoundingBoxFormat": ({"format": "XYXY"}, "boxes or key points"),
    "CutMix": ({"num_classes": 2}, "give it to the DataLoader as mix="),
    "FiveCrop": ({"size": 8}, "several images of one"),
    "JPEG": ({"quality": 50}, "store images of that quality"),
    "Lambda": ({"lambd": abs}, "is Python"),
    "LinearTransformation": (
        {"transformation_matrix": torch.eye(3), "mean_vector": torch.zeros(3)},
        "on the GPU",
    ),
    "MixUp": ({"num_classes": 2}, "give it to the DataLoader as mix="),
    "RandomIoUCrop": ({}, "boxes or key points"),
    "SanitizeBoundingBoxes": ({}, "boxes or key points"),
    "SanitizeKeyPoints": ({}, "boxes or key points"),
    "SetClampingMode": ({"clamping_mode": None}, "boxes or key points"),
    "TenCrop": ({"size": 8}, "several images of one"),
    "Transform": ({}, "is Python"),
    "UniformTemporalSubsample": ({"num_samples": 2}, "videos"),
}
NO_TRANSFORM = {"AutoAugmentPolicy", "InterpolationMode"}


def classes_of(module):
    return {n: c for n, c in vars(module).items() if inspect.isclass(c) and c.__module__.startswith("torchvision.")}


@pytest.fixture
def render(build, tmp_path):
    return Render(tool(build, "render"), tmp_path)


def is_numbers(name):
    return name in ("ConvertImageDtype", "Normalize", "RandomErasing", "ToDtype", "ToTensor")


@pytest.mark.parametrize("module", [v1, v2], ids=["v1", "v2"])
def test_every_class_of_torchvision_is_read_or_refused(render, module):
    picture = Image.new("RGB", (48, 40), (9, 90, 200))
    for name, kind in sorted(classes_of(module).items()):
        if name in NO_TRANSFORM:
            continue
        if name in REFUSED:
            arguments, text = REFUSED[name]
            with pytest.raises(TypeError, match=f"transform: .*{name}.*{text}.*batchd.serve"):
                _transform.text(kind(**arguments))
            continue
        assert name in READ[module], f"{name} is new in torchvision: read it, or refuse it by name"
        ops = json.loads(_transform.text(kind(**READ[module][name])))
        behind = [["ToTensor"]] if name in ("Normalize", "RandomErasing") else []
        crop = ["CenterCrop", 16]
        ops = [crop, *behind, *ops] if is_numbers(name) else [*ops, crop]
        made = render([NO_PREFIX, *ops], [picture], dtype="float32" if is_numbers(name) else "uint8")
        assert len(made) in (16 * 16 * 3, 16 * 16 * 3 * 4), name


@pytest.mark.parametrize("module", [v1, v2], ids=["v1", "v2"])
def test_the_lists_name_classes_that_are_there(module):
    missing = set(READ[module]) - set(classes_of(module))
    assert not missing


# ---- timm ----


def timms_classes():
    data = pytest.importorskip("timm.data", reason="needs timm")
    from timm.data import auto_augment, random_erasing, transforms

    found = {}
    for module in (transforms, auto_augment, random_erasing):
        found.update({n: c for n, c in vars(module).items() if inspect.isclass(c) and c.__module__ == module.__name__})
    return data, found


def test_every_class_of_timms_transforms_is_read_or_refused(render):
    """Constructed as create_transform would; AugmentOp is a part of the policies."""
    _, kinds = timms_classes()
    from timm.data import auto_augment

    read = {
        "AugMixAugment": lambda kind: auto_augment.augment_and_mix_transform("augmix-m3-w2", {"img_mean": (9, 9, 9)}),
        "AutoAugment": lambda kind: auto_augment.auto_augment_transform("original", {"img_mean": (9, 9, 9)}),
        "RandAugment": lambda kind: auto_augment.rand_augment_transform("rand-m9-mstd0.5", {"img_mean": (9, 9, 9)}),
        "CenterCropOrPad": lambda kind: kind(30, (1, 2, 3), "constant"),
        "MaybePILToTensor": lambda kind: kind(),
        "MaybeToTensor": lambda kind: kind(),
        "RandomCropOrPad": lambda kind: kind((30, 20), 7),
        "RandomErasing": lambda kind: kind(0.5, mode="pixel", device="cpu"),
        "RandomPad": lambda kind: kind((60, 60), 7),
        "RandomResizedCropAndInterpolation": lambda kind: kind(20, interpolation="random"),
        "ResizeKeepRatio": lambda kind: kind(30, random_scale_prob=0.5, random_aspect_prob=0.5),
        "ToNumpy": lambda kind: kind(),
        "ToTensor": lambda kind: kind(torch.uint8),
        "TrimBorder": lambda kind: kind(4),
    }
    picture, crop = Image.new("RGB", (48, 40), (9, 90, 200)), ["CenterCrop", 16]
    for name, kind in sorted(kinds.items()):
        if name == "AugmentOp":
            with pytest.raises(TypeError, match="transform: .*AugmentOp.*is Python"):
                _transform.text(kind("Invert"))
            continue
        assert name in read, f"{name} is new in timm: read it, or refuse it by name"
        ops = json.loads(_transform.text(read[name](kind)))
        numbers = name in ("MaybeToTensor", "RandomErasing")
        before = [crop, "ToTensor"] if name == "RandomErasing" else [crop] if numbers else []
        ops = [NO_PREFIX, *before, *ops, *([] if numbers else [crop])]
        made = render(ops, [picture], dtype="float32" if numbers else "uint8")
        assert len(made) == 16 * 16 * 3 * (4 if numbers else 1), name
    with pytest.raises(ValueError, match="ToTensor.*0 to 255.*MaybeToTensor"):
        _transform.text(kinds["ToTensor"]())


TRAINING = [
    {},
    {"hflip": 0.0, "vflip": 0.5, "color_jitter": 0.3, "color_jitter_prob": 0.8},
    {"auto_augment": "rand-m9-mstd0.5-inc1", "re_prob": 0.25, "re_mode": "pixel", "interpolation": "bicubic"},
    {"auto_augment": "augmix-m5-w4-d2", "re_prob": 0.1, "re_count": 2},
    {"auto_augment": "3a", "color_jitter": 0.3, "gaussian_blur_prob": 0.3, "grayscale_prob": 0.2},
    {"auto_augment": "originalr-mstd0.5", "scale": (0.3, 1.0), "ratio": (0.8, 1.2)},
    {"train_crop_mode": "rkrc"},
    {"train_crop_mode": "rkrr"},
    {"no_aug": True},
]


@pytest.mark.parametrize("options, prefetched", itertools.product(TRAINING, [True, False]))
def test_what_timm_makes_for_training_is_read(render, options, prefetched):
    """Every kind of augmentation that create_transform knows, with numbers or with bytes for its prefetcher."""
    data, _ = timms_classes()
    made = data.create_transform(
        (3, 32, 32), is_training=True, use_prefetcher=prefetched, normalize=not prefetched, **options
    )
    ops = [NO_PREFIX, *json.loads(_transform.text(made))]
    picture = Image.new("RGB", (64, 40), (9, 90, 200))
    if prefetched:
        assert len(render(ops, [picture])) == 32 * 32 * 3
        return
    numbers = [op for op in ops if op == "ToTensor" or op[0] in ("Normalize", "RandomErasing", "GaussianNoise")]
    assert len(numbers) >= 1
    assert len(render(ops, [picture], dtype="float32")) == 32 * 32 * 3 * 4


EVALUATION = [
    {"crop_mode": mode, "crop_pct": pct, "interpolation": interpolation}
    for mode in ("center", "squash", "border")
    for pct, interpolation in ((None, "bilinear"), (0.9, "bicubic"), (1.0, "lanczos"))
] + [{"crop_mode": "center", "crop_border_pixels": 3}]


@pytest.mark.parametrize("options", EVALUATION)
@pytest.mark.parametrize("size", [(64, 40), (31, 90), (50, 50)])
def test_what_timm_makes_for_evaluation_gives_its_bytes(render, options, size):
    """All crop modes: timm's own pixels."""
    data, _ = timms_classes()
    made = data.create_transform((3, 32, 32), is_training=False, use_prefetcher=True, **options)
    rng = np.random.default_rng(2)
    picture = Image.fromarray(rng.integers(0, 256, (size[1], size[0], 3), np.uint8))
    want = np.asarray(made(picture)).transpose(1, 2, 0)
    got = render([NO_PREFIX, *json.loads(_transform.text(made))], [picture])
    assert want.dtype == np.uint8 and got == np.ascontiguousarray(want).tobytes()


def test_torchvisions_presets_are_read(render):
    """weights.transforms() of a model: its own numbers."""
    preset = vision.models.ResNet50_Weights.IMAGENET1K_V2.transforms()
    picture = Image.fromarray(np.random.default_rng(2).integers(0, 256, (300, 400, 3), np.uint8))
    got = np.frombuffer(render([NO_PREFIX, *json.loads(_transform.text(preset))], [picture], "float32", "NCHW"), "<f4")
    assert np.array_equal(got.reshape(3, 224, 224), preset(picture).numpy())

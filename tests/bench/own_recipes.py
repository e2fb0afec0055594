#!/usr/bin/env python3
"""CPU time per image of a recipe in PyTorch: torchvision's and timm's own code on Pillow's pixels, in this process:
own_recipes.py RECIPE FILE... Prints seconds; exits with 2 where the recipe's library is missing."""

import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from vision import import_torchvision

import_torchvision()
import torch  # noqa: E402
from PIL import Image, ImageFilter  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

BILINEAR, BICUBIC = v2.InterpolationMode.BILINEAR, v2.InterpolationMode.BICUBIC
TENSOR = [
    v2.PILToTensor(),
    v2.ToDtype(torch.float32, scale=True),
    v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
]
CROP = [v2.RandomResizedCrop(224), v2.RandomHorizontalFlip()]


def blur(p):
    def change(image):
        return image.filter(ImageFilter.GaussianBlur(random.uniform(0.1, 2))) if random.random() < p else image

    return v2.Lambda(change)


def colour(*strengths):
    return [v2.RandomApply([v2.ColorJitter(*strengths)], 0.8), v2.RandomGrayscale(0.2)]


def one(*steps):
    return v2.Compose([*CROP, *steps, *TENSOR])


def views(*pipelines):
    return lambda image: [pipeline(image) for pipeline in pipelines]


def view(size, scale, p_blur, solarize=0.0):
    """Of DINO and MoCo v3."""
    crop = v2.RandomResizedCrop(size, scale=scale, interpolation=BICUBIC)
    return v2.Compose(
        [
            crop,
            v2.RandomHorizontalFlip(),
            *colour(0.4, 0.4, 0.2, 0.1),
            blur(p_blur),
            v2.RandomSolarize(128, solarize),
            *TENSOR,
        ]
    )


def timm(size=224, **options):
    from timm.data import create_transform

    return create_transform(size, True, **options)


def resnet_v2():
    crop = [v2.RandomResizedCrop(176), v2.RandomHorizontalFlip(), v2.TrivialAugmentWide(interpolation=BILINEAR)]
    return v2.Compose([*crop, *TENSOR, v2.RandomErasing(0.1)])


def three_augment():
    crop = [v2.RandomResizedCrop(224, interpolation=BICUBIC), v2.RandomHorizontalFlip()]
    one_of = v2.RandomChoice([v2.RandomGrayscale(1.0), v2.RandomSolarize(128, 1.0), blur(1.0)])
    return v2.Compose([*crop, one_of, v2.ColorJitter(0.3, 0.3, 0.3), *TENSOR])


def augmix_jsd():
    """timm's AugMixDataset."""
    base, augment, numbers = timm(auto_augment="augmix-m3-w3", re_prob=0.25, re_num_splits=3, separate=True)

    def make(image):
        image = base(image)
        return [numbers(image), *(numbers(augment(image)) for _ in range(2))]

    return make


def simclr():
    return one(*colour(0.8, 0.8, 0.8, 0.2), blur(0.5))


RECIPES = {
    "train224": one,
    "torchvision v2, 176": resnet_v2,
    "timm default": timm,
    "DeiT": lambda: timm(auto_augment="rand-m9-mstd0.5-inc1", interpolation="bicubic", re_prob=0.25, re_mode="pixel"),
    "3-Augment": three_augment,
    "MAE": lambda: v2.Compose(
        [v2.RandomResizedCrop(224, scale=(0.2, 1.0), interpolation=BICUBIC), v2.RandomHorizontalFlip(), *TENSOR]
    ),
    "TrivialAugmentWide": lambda: one(v2.TrivialAugmentWide(interpolation=BILINEAR)),
    "RandAugment": lambda: one(v2.RandAugment(interpolation=BILINEAR)),
    "AugMix": lambda: one(v2.AugMix()),
    "AugMix+JSD, 3 views": augmix_jsd,
    "SimCLR, 2 views": lambda: views(simclr(), simclr()),
    "MoCo v3, 2 views": lambda: views(view(224, (0.2, 1.0), 1.0), view(224, (0.2, 1.0), 0.1, 0.2)),
    "DINO, 2+8 crops": lambda: views(
        view(224, (0.4, 1.0), 1.0), view(224, (0.4, 1.0), 0.1, 0.2), *[view(96, (0.05, 0.4), 0.5)] * 8
    ),
}


def run(make, file):
    """timm's posterize may ask for 0 bits, which newer Pillow refuses: then with other draws."""
    while True:
        try:
            return make(Image.open(file).convert("RGB"))
        except ValueError as e:
            if "bits must be" not in str(e):
                raise


def main():
    torch.set_num_threads(1)
    try:
        make = RECIPES[sys.argv[1]]()
    except ImportError:
        sys.exit(2)
    files = sys.argv[2:]
    run(make, files[0])
    began = time.process_time()
    for file in files:
        run(make, file)
    print((time.process_time() - began) / len(files))


if __name__ == "__main__":
    main()

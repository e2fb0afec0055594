"""What every rank does without batchd: a torch DataLoader whose worker processes decode with Pillow and augment as torchvision does.

train224 and val224 are written out here because torchvision is often not there; where it is, tests/bench uses it too.
"""
import math
import os
import random

import numpy
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, DistributedSampler

MEAN = numpy.array([0.485, 0.456, 0.406], numpy.float32)
STD = numpy.array([0.229, 0.224, 0.225], numpy.float32)
EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp")


def random_crop_box(width, height, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3)):
    """RandomResizedCrop's rectangle (left, top, right, bottom), drawn as torchvision draws it."""
    area = width * height
    for _ in range(10):
        target = area * random.uniform(*scale)
        aspect = math.exp(random.uniform(math.log(ratio[0]), math.log(ratio[1])))
        w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            left, top = random.randint(0, width - w), random.randint(0, height - h)
            return left, top, left + w, top + h
    if width / height < ratio[0]:
        w, h = width, round(width / ratio[0])
    elif width / height > ratio[1]:
        w, h = round(height * ratio[1]), height
    else:
        w, h = width, height
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def to_tensor(image):
    """ToTensor and Normalize: float32, CHW."""
    array = (numpy.asarray(image, numpy.float32) / 255 - MEAN) / STD
    return torch.from_numpy(numpy.ascontiguousarray(array.transpose(2, 0, 1)))


def train224(image):
    image = image.crop(random_crop_box(*image.size)).resize((224, 224), Image.Resampling.BILINEAR)
    if random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return to_tensor(image)


def val224(image):
    width, height = image.size
    short = min(width, height)
    image = image.resize((256 * width // short, 256 * height // short), Image.Resampling.BILINEAR)
    left, top = round((image.width - 224) / 2), round((image.height - 224) / 2)
    return to_tensor(image.crop((left, top, left + 224, top + 224)))


class ImageFolder(Dataset):
    """torchvision's ImageFolder: one class per sub-folder, both in sorted order."""

    def __init__(self, root, transform):
        self.transform = transform
        self.classes = sorted(e.name for e in os.scandir(root) if e.is_dir())
        self.samples = []
        for label, name in enumerate(self.classes):
            for folder, _, files in sorted(os.walk(os.path.join(root, name), followlinks=True)):
                self.samples += [(os.path.join(folder, f), label) for f in sorted(files) if f.lower().endswith(EXTENSIONS)]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        with open(path, "rb") as file:
            return self.transform(Image.open(file).convert("RGB")), label


def one_thread(_worker):
    torch.set_num_threads(1)


def loader(root, batch_size, rank, world_size, num_workers, transform=train224, seed=0, shuffle=True):
    """The loader as a DDP script has it."""
    dataset = ImageFolder(root, transform)
    sampler = DistributedSampler(dataset, world_size, rank, shuffle=shuffle, seed=seed)
    return DataLoader(dataset, batch_size, sampler=sampler, num_workers=num_workers, worker_init_fn=one_thread,
                      persistent_workers=num_workers > 0)

"""The work of every rank without batchd: worker processes of its own decode with Pillow and augment as torchvision
does. They are those of torch's DataLoader, or without torch those of a loader that works the same way.

train224 and val224 are written out here because torchvision is often missing; where it is installed, tests/bench uses
it too.
"""

import collections
import itertools
import math
import mmap
import multiprocessing
import os
import random
import signal

import numpy
from PIL import Image

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
    return numpy.ascontiguousarray(array.transpose(2, 0, 1))


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


class ImageFolder:
    """torchvision's ImageFolder: one class per sub-folder, both in sorted order."""

    def __init__(self, root, transform):
        self.transform = transform
        self.classes = sorted(e.name for e in os.scandir(root) if e.is_dir())
        self.samples = []
        for label, name in enumerate(self.classes):
            for folder, _, files in sorted(os.walk(os.path.join(root, name), followlinks=True)):
                self.samples += [
                    (os.path.join(folder, f), label) for f in sorted(files) if f.lower().endswith(EXTENSIONS)
                ]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        with open(path, "rb") as file:
            return self.transform(Image.open(file).convert("RGB")), label


# ---- with torch ----


def one_thread(_worker):
    import torch

    torch.set_num_threads(1)


def loader(root, batch_size, rank, world_size, num_workers, transform=train224, seed=0, shuffle=True):
    """The loader as in a DDP script."""
    from torch.utils.data import DataLoader, DistributedSampler

    dataset = ImageFolder(root, transform)
    sampler = DistributedSampler(dataset, world_size, rank, shuffle=shuffle, seed=seed)
    return DataLoader(
        dataset,
        batch_size,
        sampler=sampler,
        num_workers=num_workers,
        worker_init_fn=one_thread,
        persistent_workers=num_workers > 0,
    )


# ---- without torch ----


class PlainLoader:
    """A small version of torch's DataLoader for one rank: worker processes make whole batches in shared memory, each
    two ahead of the loop.

    An iteration gives images and labels; set_epoch(epoch) selects another order, of which each rank has its part,
    padded as in DistributedSampler.
    """

    AHEAD = 2  # batches per worker; torch's prefetch_factor

    def __init__(self, root, batch_size, rank, world_size, num_workers, seed=0):
        self.batch_size, self.rank, self.world_size, self.seed, self.epoch = batch_size, rank, world_size, seed, 0
        self.n_slots = self.AHEAD * num_workers + 1
        self.slots = numpy.frombuffer(mmap.mmap(-1, 4 * self.n_slots * batch_size * 3 * 224 * 224), numpy.float32)
        self.slots = self.slots.reshape(self.n_slots, batch_size, 3, 224, 224)
        self.dataset = ImageFolder(root, train224)
        PlainLoader.forked = self  # inherited by the workers: they are forks, and share the slots
        self.crew = multiprocessing.get_context("fork").Pool(
            num_workers, signal.signal, (signal.SIGINT, signal.SIG_IGN)
        )

    def set_epoch(self, epoch):
        self.epoch = epoch

    @staticmethod
    def fill(slot, indices, seed):
        self = PlainLoader.forked
        random.seed(seed)
        labels = numpy.empty(len(indices), numpy.int64)
        for row, index in enumerate(indices):
            self.slots[slot, row], labels[row] = self.dataset[index]
        return labels

    def __iter__(self):
        order = list(range(len(self.dataset)))
        random.Random(self.seed + self.epoch).shuffle(order)
        order += order[: -len(order) % self.world_size]
        mine = order[self.rank :: self.world_size]
        batches = [mine[i : i + self.batch_size] for i in range(0, len(mine), self.batch_size)]
        pending, ahead = collections.deque(), enumerate(batches)
        for k in range(len(batches)):
            # The slot of batch k - 1 is free now: the reader asks for this batch.
            for i, indices in itertools.islice(ahead, self.n_slots - len(pending)):
                pending.append(
                    self.crew.apply_async(
                        self.fill, (i % self.n_slots, indices, f"{self.seed} {self.epoch} {self.rank} {i}")
                    )
                )
            labels = pending.popleft().get()
            yield self.slots[k % self.n_slots, : len(labels)], labels

    def close(self):
        """Waits for the workers to end, so that their CPU time counts."""
        self.crew.close()
        self.crew.join()

"""MoCo v3, two different pipelines: moco_v3.py FOLDER [--epochs 1] [--steps N] [--size 224]

Upstream (facebookresearch/moco-v3, main_moco.py) has these lines, which the loader replaces; an object such as its
TwoCropsTransform may also be given as it is, where it holds torchvision's transforms:

    augmentation1 = [transforms.RandomResizedCrop(224, scale=(args.crop_min, 1.)), transforms.RandomApply([
        transforms.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8), transforms.RandomGrayscale(p=0.2),
        transforms.RandomApply([moco.loader.GaussianBlur([.1, 2.])], p=1.0), transforms.RandomHorizontalFlip(), ...]
    augmentation2 = [... p=0.1), transforms.RandomApply([moco.loader.Solarize()], p=0.2), ...]
    datasets.ImageFolder(traindir, moco.loader.TwoCropsTransform(transforms.Compose(augmentation1), ...))
    train_sampler = torch.utils.data.distributed.DistributedSampler(train_dataset)
    torch.utils.data.DataLoader(train_dataset, ..., sampler=train_sampler, drop_last=True)
"""

import argparse
import copy
import itertools

import torch
from torch import nn
from torch.nn import functional

import batchd


def augment(size, blur, solarize, crop_min=0.08):
    return [
        ["RandomResizedCrop", size, [crop_min, 1.0]],
        ["RandomApply", [["ColorJitter", 0.4, 0.4, 0.2, 0.1]], 0.8],
        ["RandomGrayscale", 0.2],
        ["PillowGaussianBlur", [0.1, 2.0], blur],
        ["RandomSolarize", 128, solarize],
        "RandomHorizontalFlip",
        "ToTensor",
        ["Normalize", [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]],
    ]


def contrastive(q, k, temperature=1.0):
    logits = functional.normalize(q) @ functional.normalize(k).T / temperature
    return functional.cross_entropy(logits, torch.arange(len(q))) * 2 * temperature


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, help="of an epoch, for a quick look")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--size", type=int, default=224)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = batchd.DataLoader(
        f"imagefolder:{args.folder}",
        args.batch_size,
        shuffle=True,
        drop_last=True,
        transform=batchd.views(augment(args.size, 1.0, 0.0), augment(args.size, 0.1, 0.2)),
    )
    base = nn.Sequential(
        nn.Conv2d(3, 16, 5, 4), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(128, 32),
    )  # fmt: skip
    momentum, predictor = copy.deepcopy(base).requires_grad_(False), nn.Linear(32, 32)
    optimizer = torch.optim.AdamW([*base.parameters(), *predictor.parameters()], 1e-3)
    for epoch in range(args.epochs):
        loader.set_epoch(epoch)
        seen = set()
        for step, (images, _) in enumerate(itertools.islice(loader, args.steps)):
            with torch.no_grad():
                for slow, fast in zip(momentum.parameters(), base.parameters(), strict=True):
                    slow.lerp_(fast, 0.01)
                k1, k2 = momentum(images[0]), momentum(images[1])
            loss = contrastive(predictor(base(images[0])), k2) + contrastive(predictor(base(images[1])), k1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.update(loader.last_batch.indices.tolist())
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch} samples {len(seen)}")


if __name__ == "__main__":
    main()

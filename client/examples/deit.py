"""DeiT's recipe: deit.py FOLDER [--epochs 300] [--steps N]

RandAugment rand-m9-mstd0.5-inc1, RandomErasing of noise, Mixup 0.8 or CutMix 1.0, smoothed soft targets. Upstream
(facebookresearch/deit; datasets.py, main.py, engine.py) has these lines, which the loader replaces:

    dataset = datasets.ImageFolder(root, transform=create_transform(input_size=args.input_size, is_training=True, ...))
    sampler_train = RASampler(dataset_train, num_replicas=num_tasks, rank=global_rank, shuffle=True)
    data_loader_train = torch.utils.data.DataLoader(dataset_train, sampler=sampler_train,
        batch_size=args.batch_size, num_workers=args.num_workers, pin_memory=args.pin_mem, drop_last=True)
    mixup_fn = Mixup(mixup_alpha=args.mixup, cutmix_alpha=args.cutmix, ..., num_classes=args.nb_classes)
    samples, targets = mixup_fn(samples, targets)

RASampler's repeated augmentation is left out here: repeats=3 of the loader, as timm_train.py has it.
RandomErasing behind Normalize writes numbers that no pixel has, so floats and not bytes are copied for device="cuda".
"""

import argparse
import itertools
import os

import torch
from torch import nn

import batchd

NORMALIZE = ["Normalize", [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]


def train_ops(size):
    """datasets.py: create_transform(input_size=224, is_training=True, color_jitter=0.3, auto_augment=
    "rand-m9-mstd0.5-inc1", interpolation="bicubic", re_prob=0.25, re_mode="pixel", re_count=1), which works as well."""
    return [
        ["RandomResizedCrop", size, {"interpolation": "bicubic"}],
        "RandomHorizontalFlip",
        "rand-m9-mstd0.5-inc1",
        "ToTensor",
        NORMALIZE,
        ["RandomErasing", 0.25, [0.02, 1 / 3], [0.3, 1 / 0.3], "random"],
    ]


def model_of(n_classes):
    """Stands for timm.create_model("deit_small_patch16_224"); any network that takes such images does."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 7, 4, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, n_classes),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--steps", type=int, help="of an epoch, for a quick look")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--size", type=int, default=224)
    args = parser.parse_args()
    torch.manual_seed(0)
    n_classes = sum(entry.is_dir() for entry in os.scandir(args.folder))
    # main.py: mixup_fn = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, prob=1.0, switch_prob=0.5, mode="batch",
    # label_smoothing=0.1, num_classes=n), which works as well; engine.py: samples, targets = mixup_fn(samples, targets)
    mix = f"targets:classes={n_classes},smoothing=0.1;timm:mixup_alpha=0.8,cutmix_alpha=1,switch_prob=0.5,mode=batch"
    train = batchd.DataLoader(
        f"imagefolder:{args.folder}",
        args.batch_size,
        shuffle=True,
        drop_last=True,
        transform=train_ops(args.size),
        mix=mix,
    )
    model = model_of(n_classes)
    optimizer = torch.optim.AdamW(model.parameters(), 5e-4 * args.batch_size / 512, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    criterion = nn.CrossEntropyLoss()  # timm's SoftTargetCrossEntropy
    for epoch in range(args.epochs):
        train.set_epoch(epoch)  # also moves DistributedSampler's order on, which batchd's is
        for step, (images, targets) in enumerate(itertools.islice(train, args.steps)):
            loss = criterion(model(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        schedule.step()
    print(f"samples {train.last_batch.global_batch * args.batch_size}")


if __name__ == "__main__":
    main()

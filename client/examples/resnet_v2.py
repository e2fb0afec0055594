"""torchvision's ResNet-50 V2 recipe: resnet_v2.py FOLDER [--epochs 600] [--steps N]

TrivialAugmentWide, RandomErasing, MixUp or CutMix, label smoothing, repeated augmentation, as `--auto-augment ta_wide
--random-erase 0.1 --mixup-alpha 0.2 --cutmix-alpha 1.0 --label-smoothing 0.1 --train-crop-size 176 --ra-sampler
--ra-reps 4` of torchvision's references train it.
Upstream (pytorch/vision, references/classification/train.py) has these lines, which the loader replaces:

    dataset = torchvision.datasets.ImageFolder(traindir, presets.ClassificationPresetTrain(crop_size=..., ...))
    train_sampler = RASampler(dataset, shuffle=True, repetitions=args.ra_reps)
    mixup_cutmix = get_mixup_cutmix(mixup_alpha=..., cutmix_alpha=..., num_classes=num_classes, ...)
    data_loader = torch.utils.data.DataLoader(dataset, batch_size=args.batch_size, sampler=train_sampler,
        num_workers=args.workers, pin_memory=True, collate_fn=lambda batch: mixup_cutmix(*default_collate(batch)))

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
    """references/classification/presets.py: ClassificationPresetTrain(crop_size=176, auto_augment_policy="ta_wide",
    random_erase_prob=0.1); the object itself works as well: transform=preset.transforms."""
    return [
        ["RandomResizedCrop", size],
        "RandomHorizontalFlip",
        ["TrivialAugmentWide", {"interpolation": "bilinear"}],
        "ToTensor",
        NORMALIZE,
        ["RandomErasing", 0.1],
    ]


def model_of(n_classes):
    """Stands for torchvision.models.resnet50(); any network that takes such images does."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 7, 4, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, n_classes),
    )  # fmt: skip


def repeated(folder, times):
    """references/classification/sampler.py: RASampler(dataset, shuffle=True, repetitions=times). Each sample comes so many
    times in a row, and an epoch ends after a multiple of 256 rows; upstream has none of a smaller data set."""
    n = sum(len(files) for _, _, files in os.walk(folder))
    return {"repeats": times, "epoch_rows": n // 256 * 256 or n}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=600)
    parser.add_argument("--steps", type=int, help="of an epoch, for a quick look")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--size", type=int, default=176)
    parser.add_argument("--ra-reps", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    n_classes = sum(entry.is_dir() for entry in os.scandir(args.folder))
    # references/classification/train.py: mixup_cutmix = get_mixup_cutmix(mixup_alpha=0.2, cutmix_alpha=1.0, ...), and
    # def collate_fn(batch): return mixup_cutmix(*default_collate(batch))
    mix = batchd.RandomChoice([batchd.MixUp(0.2, n_classes), batchd.CutMix(1.0, n_classes)])
    train = batchd.DataLoader(
        f"imagefolder:{args.folder}",
        args.batch_size,
        shuffle=True,
        drop_last=True,
        transform=train_ops(args.size),
        mix=mix,
        **repeated(args.folder, args.ra_reps),
    )
    model = model_of(n_classes)
    optimizer = torch.optim.SGD(model.parameters(), 0.5 * args.batch_size / 1024, momentum=0.9, weight_decay=2e-5)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for epoch in range(args.epochs):
        train.set_epoch(epoch)  # also moves RASampler's order on, which batchd's is
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

"""DeiT III's 3-Augment: three_augment.py FOLDER [--epochs 800] [--steps N]

One of grey, solarize and blur, then colour jitter; Mixup 0.8 or CutMix 1.0; binary cross entropy on the mixed targets.
Upstream (facebookresearch/deit with --ThreeAugment --bce-loss; main.py, engine.py) has these lines, which the loader
replaces:

    data_loader_train = torch.utils.data.DataLoader(dataset_train, sampler=sampler_train,
        batch_size=args.batch_size, num_workers=args.num_workers, pin_memory=args.pin_mem, drop_last=True)
    data_loader_train.dataset.transform = new_data_aug_generator(args)
    mixup_fn = Mixup(mixup_alpha=args.mixup, cutmix_alpha=args.cutmix, ..., num_classes=args.nb_classes)
    samples, targets = mixup_fn(samples, targets)
"""

import argparse
import itertools
import os

import torch
from torch import nn

import batchd

NORMALIZE = ["Normalize", [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]


def train_ops(size):
    """augment.py: new_data_aug_generator, whose gray_scale, Solarization and GaussianBlur are classes of its own."""
    return [
        ["RandomResizedCrop", size, {"interpolation": "bicubic"}],
        "RandomHorizontalFlip",
        [
            "RandomChoice",
            [["RandomGrayscale", 1.0], ["RandomSolarize", 128, 1.0], ["PillowGaussianBlur", [0.1, 2.0], 1.0]],
        ],
        ["ColorJitter", 0.3, 0.3, 0.3],
        "ToTensor",
        NORMALIZE,
    ]


def model_of(n_classes):
    """Stands for timm.create_model("deit3_small_patch16_224"); any network that takes such images does."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 7, 4, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, n_classes),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=800)
    parser.add_argument("--steps", type=int, help="of an epoch, for a quick look")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--size", type=int, default=224)
    args = parser.parse_args()
    torch.manual_seed(0)
    n_classes = sum(entry.is_dir() for entry in os.scandir(args.folder))
    # main.py: mixup_fn = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.0, num_classes=n); engine.py: with
    # bce_loss, targets = targets.gt(0.0).type(targets.dtype)
    mix = f"targets:classes={n_classes};timm:mixup_alpha=0.8,cutmix_alpha=1"
    train = batchd.DataLoader(
        f"imagefolder:{args.folder}",
        args.batch_size,
        shuffle=True,
        drop_last=True,
        transform=train_ops(args.size),
        mix=mix,
    )
    model = model_of(n_classes)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3 * args.batch_size / 2048, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    for epoch in range(args.epochs):
        train.set_epoch(epoch)  # also moves DistributedSampler's order on, which batchd's is
        for step, (images, targets) in enumerate(itertools.islice(train, args.steps)):
            loss = nn.functional.binary_cross_entropy_with_logits(model(images), targets.gt(0.0).type(targets.dtype))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        schedule.step()
    print(f"samples {train.last_batch.global_batch * args.batch_size}")


if __name__ == "__main__":
    main()

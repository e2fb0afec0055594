"""SimCLR, two views of each image: simclr.py FOLDER [--epochs 1] [--steps N] [--size 224]

Upstream (sthalles/SimCLR, data_aug/contrastive_learning_dataset.py, run.py) has these lines, which the loader replaces:

    data_transforms = transforms.Compose([transforms.RandomResizedCrop(size=size), transforms.RandomHorizontalFlip(),
        transforms.RandomApply([color_jitter], p=0.8), transforms.RandomGrayscale(p=0.2),
        GaussianBlur(kernel_size=int(0.1 * size)), transforms.ToTensor()])
    datasets.ImageFolder(root, transform=ContrastiveLearningViewGenerator(data_transforms, n_views))
    torch.utils.data.DataLoader(train_dataset, batch_size, shuffle=True, num_workers=12, drop_last=True)
"""

import argparse
import itertools

import torch
from torch import nn
from torch.nn import functional

import batchd


def augment(size):
    return [
        ["RandomResizedCrop", size],
        "RandomHorizontalFlip",
        ["RandomApply", [["ColorJitter", 0.8, 0.8, 0.8, 0.2]], 0.8],
        ["RandomGrayscale", 0.2],
        ["PillowGaussianBlur", [0.1, 2.0], 0.5],
        "ToTensor",
    ]


def info_nce(features, n_views, temperature=0.07):
    """The views of an image are each other's positives; all other rows are negatives."""
    n = len(features) // n_views
    labels = torch.arange(n).repeat(n_views)
    features = functional.normalize(features)
    similarity = (features @ features.T / temperature).masked_fill(torch.eye(len(features), dtype=torch.bool), -1e9)
    positives = (labels[:, None] == labels[None]) & ~torch.eye(len(labels), dtype=torch.bool)
    return -(functional.log_softmax(similarity, 1) * positives).sum() / positives.sum()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, help="of an epoch, for a quick look")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--n-views", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = batchd.DataLoader(
        f"imagefolder:{args.folder}",
        args.batch_size,
        shuffle=True,
        drop_last=True,
        transform=batchd.views(augment(args.size), n=args.n_views),
    )
    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, 4), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 32),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(args.epochs):
        loader.set_epoch(epoch)
        seen = set()
        for step, (images, _) in enumerate(itertools.islice(loader, args.steps)):
            loss = info_nce(model(torch.cat(images)), args.n_views)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.update(loader.last_batch.indices.tolist())
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch} samples {len(seen)}")


if __name__ == "__main__":
    main()

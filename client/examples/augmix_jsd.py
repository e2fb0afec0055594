"""AugMix with the consistency loss of its paper: augmix_jsd.py FOLDER [--epochs 1] [--steps N] [--batch-size 64]

Three views of each image, which share its crop: one without a policy and two of AugMix, of which RandomErasing spares the
first. The loss is the first view's cross-entropy and the Jensen-Shannon divergence of all three predictions. FOLDER has
class folders. Upstream (huggingface/pytorch-image-models, train.py) has these options and lines, which the loader
replaces:

    --aug-splits 3 --jsd-loss --aa augmix-m3-w3 --reprob 0.25 --resplit
    dataset_train = AugMixDataset(dataset_train, num_splits=3)      # train_loss_fn = JsdCrossEntropy(num_splits=3)
    loader_train = create_loader(dataset_train, ..., num_aug_splits=3, re_split=True)

With timm the transform may be its own: create_transform(64, ..., separate=True) in place of the three lists. An image
is decoded once for its three views.
"""

import argparse
import itertools

import torch
from torch import nn
from torch.nn import functional

import batchd

BASE = [["RandomResizedCrop", 64], "RandomHorizontalFlip"]
NUMBERS = ["ToTensor", ["Normalize", [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]]
ERASING = ["RandomErasing", {"p": 0.25, "scale": [0.02, 1 / 3], "ratio": [0.3, 1 / 0.3]}]


def splits():
    """Without an object of timm's that says so, erasing of all but the first is a list of views."""
    clean, *augmented = batchd.aug_splits((BASE, ["augmix-m3-w3"], NUMBERS), n=3).pipelines
    return [clean, *([*view, ERASING] for view in augmented)]


def consistency(logits):
    """The mean divergence of each view's prediction from the mean of all."""
    views = [functional.softmax(x, 1) for x in logits]
    middle = torch.stack(views).mean(0).clamp(1e-7, 1).log()
    return sum(functional.kl_div(middle, view, reduction="batchmean") for view in views) / len(views)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, help="of an epoch, for a quick look")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--alpha", type=float, default=12.0, help="weight of the consistency loss")
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = batchd.DataLoader(f"imagefolder:{args.folder}", args.batch_size, shuffle=True, transform=splits())
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, len(loader.classes)),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    for epoch in range(args.epochs):
        loader.set_epoch(epoch)
        seen = 0
        for step, (views, labels) in enumerate(itertools.islice(loader, args.steps)):
            logits = model(torch.cat(views)).chunk(3)
            loss = functional.cross_entropy(logits[0], labels) + args.alpha * consistency(logits)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(labels) - loader.last_batch.n_padding
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch}: {seen} samples", flush=True)


if __name__ == "__main__":
    main()

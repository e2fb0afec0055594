"""CIFAR-10, a small residual network: cifar10.py FOLDER [--epochs 1] [--steps N] [--policy NAME]

Upstream (kuangliu/pytorch-cifar, main.py) has these lines, which the loaders replace:

    trainset = torchvision.datasets.CIFAR10(root="./data", train=True, download=True, transform=transform_train)
    trainloader = torch.utils.data.DataLoader(trainset, batch_size=128, shuffle=True, num_workers=2)

The network is a smaller one; upstream.py runs that main.py itself with our loaders.

FOLDER has the binary version (data_batch_*.bin, test_batch.bin); the pickled version goes through torchvision:
batchd.DataLoader((data.data, torch.tensor(data.targets)), transform=...).
"""

import argparse
import itertools

import torch
from torch import nn

import batchd

NORMALIZE = ["Normalize", [0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010]]
# With torch's loader: torchvision.transforms' RandomCrop(32, padding=4), RandomHorizontalFlip(), ...
TRAIN = [["RandomCrop", 32, {"padding": 4}], "RandomHorizontalFlip", "ToTensor", NORMALIZE]
# transforms.AutoAugment(AutoAugmentPolicy.CIFAR10) behind the flip; with Cutout(16) of its paper: RandomErasing behind Normalize
POLICIES = {
    "none": ([], []),
    "autoaugment": ([["AutoAugment", "cifar10"]], []),
    "autoaugment+cutout": (
        [["AutoAugment", "cifar10"]],
        [["RandomErasing", {"p": 1, "scale": [0.25, 0.25], "ratio": [1, 1]}]],
    ),
    "trivial": (["TrivialAugmentWide"], []),
}
TEST = ["ToTensor", NORMALIZE]


class Block(nn.Module):
    def __init__(self, n_in, n_out, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU(),
            nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False), nn.BatchNorm2d(n_out),
        )  # fmt: skip
        self.short = nn.Conv2d(n_in, n_out, 1, stride, bias=False)

    def forward(self, x):
        return torch.relu(self.body(x) + self.short(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, help="of an epoch, for a quick look")
    parser.add_argument("--policy", choices=POLICIES, default="none")
    parser.add_argument("--batch-size", type=int, default=128)
    args = parser.parse_args()
    torch.manual_seed(0)
    pixels, numbers = POLICIES[args.policy]
    # With torch's loader: DataLoader(datasets.CIFAR10(root, train=True, transform=...), 128, shuffle=True, num_workers=2)
    train = batchd.DataLoader(
        f"cifar:{args.folder}/data_batch_*.bin",
        args.batch_size,
        shuffle=True,
        drop_last=True,
        transform=[*TRAIN[:2], *pixels, *TRAIN[2:], *numbers],
    )
    test = batchd.DataLoader(f"cifar:{args.folder}/test_batch.bin", 100, transform=TEST)
    model = nn.Sequential(
        Block(3, 16, 1), Block(16, 32, 2), Block(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=5e-4)
    for epoch in range(args.epochs):
        train.set_epoch(epoch)
        model.train()
        seen = 0
        for step, (images, labels) in enumerate(itertools.islice(train, args.steps)):
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(labels)
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch}: {seen} samples", flush=True)
    model.eval()
    with torch.no_grad():
        right = sum((model(images).argmax(1) == labels).sum().item() for images, labels in test)
    print(f"accuracy {right / len(test.dataset):.4f}")


if __name__ == "__main__":
    main()

"""MNIST, a small convolutional network: mnist.py FOLDER [--epochs 1] [--steps N]

FOLDER has MNIST's four files as they are distributed, compressed or not (torchvision keeps them in MNIST/raw).

Upstream (pytorch/examples, mnist/main.py) has these lines, which the loaders replace:

    dataset1 = datasets.MNIST("../data", train=True, download=True, transform=transform)
    train_loader = torch.utils.data.DataLoader(dataset1, **train_kwargs)  # shuffled on a GPU only

The network is a smaller one; upstream.py runs that main.py itself with our loaders.
"""

import argparse
import itertools
import pathlib

import torch
from torch import nn

import batchd

# With torch's loader: transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
TRANSFORM = ["ToTensor", ["Normalize", [0.1307], [0.3081]]]


def files(folder, part):
    """The data set of one part, from whichever of the files there are."""
    found = []
    for name in (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"):
        path = pathlib.Path(folder) / name
        found.append(str(path if path.exists() else path.with_name(name + ".gz")))
    return "idx:" + ",".join(found)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, help="of an epoch, for a quick look")
    parser.add_argument("--batch-size", type=int, default=64)
    args = parser.parse_args()
    torch.manual_seed(1)
    # With torch's loader: DataLoader(datasets.MNIST(root, train=True, transform=...), 64, shuffle=True, num_workers=4)
    train = batchd.DataLoader(
        files(args.folder, "train"), args.batch_size, shuffle=True, drop_last=True, transform=TRANSFORM
    )
    test = batchd.DataLoader(files(args.folder, "t10k"), 1000, transform=TRANSFORM)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 5 * 5, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(args.epochs):
        train.set_epoch(epoch)
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
    with torch.no_grad():
        right = sum((model(images).argmax(1) == labels).sum().item() for images, labels in test)
    print(f"accuracy {right / len(test.dataset):.4f}")


if __name__ == "__main__":
    main()

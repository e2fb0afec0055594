"""DINO, two large and eight small crops: dino.py FOLDER [--epochs 1] [--steps N] [--size 224] [--local-size 96]

Upstream (facebookresearch/dino, main_dino.py) has these lines, which the loader replaces:

    transform = DataAugmentationDINO(args.global_crops_scale, args.local_crops_scale, args.local_crops_number)
    dataset = datasets.ImageFolder(args.data_path, transform=transform)
    sampler = torch.utils.data.DistributedSampler(dataset, shuffle=True)
    data_loader = torch.utils.data.DataLoader(dataset, sampler=sampler, batch_size=args.batch_size_per_gpu,
        num_workers=args.num_workers, pin_memory=True, drop_last=True)

The loop stays as it is: `for it, (images, _) in enumerate(loader)`, with the list [global 1, global 2, local 1, ...].
"""

import argparse
import copy
import itertools

import torch
from torch import nn
from torch.nn import functional

import batchd

OUT = 64  # 65536 there


def crop(size, scale, blur, solarize):
    return [
        ["RandomResizedCrop", {"size": size, "scale": scale, "interpolation": "bicubic"}],
        "RandomHorizontalFlip",
        ["RandomApply", [["ColorJitter", 0.4, 0.4, 0.2, 0.1]], 0.8],
        ["RandomGrayscale", 0.2],
        ["PillowGaussianBlur", [0.1, 2.0], blur],
        ["RandomSolarize", 128, solarize],
        "ToTensor",
        ["Normalize", [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]],
    ]


class Wrapper(nn.Module):
    """Crops of one size go through the network together, as MultiCropWrapper has it."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, crops):
        groups = [list(g) for _, g in itertools.groupby(crops, lambda c: c.shape[-1])]
        return torch.cat([self.body(torch.cat(g)) for g in groups])


def dino_loss(student, teacher, n_crops, center):
    teacher = functional.softmax((teacher - center) / 0.04, -1).chunk(2)
    student = functional.log_softmax(student / 0.1, -1).chunk(n_crops)
    pairs = [(t, s) for i, t in enumerate(teacher) for k, s in enumerate(student) if i != k]
    return sum(-(t * s).sum(-1).mean() for t, s in pairs) / len(pairs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, help="of an epoch, for a quick look")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--local-size", type=int, default=96)
    parser.add_argument("--local-crops", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(0)
    large = [crop(args.size, [0.4, 1.0], 1.0, 0.0), crop(args.size, [0.4, 1.0], 0.1, 0.2)]
    small = crop(args.local_size, [0.05, 0.4], 0.5, 0.0)
    loader = batchd.DataLoader(
        f"imagefolder:{args.folder}",
        args.batch_size,
        shuffle=True,
        drop_last=True,
        transform=batchd.views(*large, *[small] * args.local_crops),
    )
    student = Wrapper(
        nn.Sequential(
            nn.Conv2d(3, 16, 5, 4), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
            nn.Linear(128, OUT),
        )
    )  # fmt: skip
    teacher, center = copy.deepcopy(student).requires_grad_(False), torch.zeros(1, OUT)
    optimizer = torch.optim.AdamW(student.parameters(), 1e-3)
    for epoch in range(args.epochs):
        loader.set_epoch(epoch)
        seen = set()
        for step, (images, _) in enumerate(itertools.islice(loader, args.steps)):
            target = teacher(images[:2])  # only the 2 global views pass through the teacher
            loss = dino_loss(student(images), target, len(images), center)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                center = center * 0.9 + target.mean(0, keepdim=True) * 0.1
                for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
                    slow.lerp_(fast, 0.004)
            seen.update(loader.last_batch.indices.tolist())
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch} samples {len(seen)}")


if __name__ == "__main__":
    main()

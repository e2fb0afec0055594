"""MAE's pre-training: mae.py FOLDER [--epochs 1] [--steps N] [--size 224]

Upstream (facebookresearch/mae, main_pretrain.py) has these lines, which the loader replaces:

    transform_train = transforms.Compose([
        transforms.RandomResizedCrop(args.input_size, scale=(0.2, 1.0), interpolation=3),  # 3 is bicubic
        transforms.RandomHorizontalFlip(), transforms.ToTensor(),
        transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])])
    dataset_train = datasets.ImageFolder(os.path.join(args.data_path, 'train'), transform=transform_train)
    sampler_train = torch.utils.data.DistributedSampler(dataset_train, num_replicas=..., rank=..., shuffle=True)
    torch.utils.data.DataLoader(dataset_train, sampler=sampler_train, batch_size=..., num_workers=..., drop_last=True)
"""

import argparse
import itertools

import torch
from torch import nn

import batchd

PATCH = 16


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, help="of an epoch, for a quick look")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--size", type=int, default=224)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = batchd.DataLoader(
        f"imagefolder:{args.folder}",
        args.batch_size,
        shuffle=True,
        drop_last=True,
        transform=[
            ["RandomResizedCrop", args.size, {"scale": [0.2, 1.0], "interpolation": "bicubic"}],
            "RandomHorizontalFlip",
            "ToTensor",
            ["Normalize", [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]],
        ],
    )
    n, bytes_of_patch = (args.size // PATCH) ** 2, 3 * PATCH**2
    embed, place = nn.Linear(bytes_of_patch, 64), nn.Parameter(torch.randn(n, 64) * 0.02)
    mask = nn.Parameter(torch.zeros(64))
    body = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True), 2)
    head = nn.Linear(64, bytes_of_patch)
    parameters = [place, mask, *embed.parameters(), *body.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, 1e-3)
    for epoch in range(args.epochs):
        loader.set_epoch(epoch)
        seen = set()
        for step, (images, _) in enumerate(itertools.islice(loader, args.steps)):
            patches = nn.functional.unfold(images, PATCH, stride=PATCH).transpose(1, 2)
            hidden = torch.rand(patches.shape[:2]).argsort(1) < n * 3 // 4
            tokens = torch.where(hidden[..., None], mask, embed(patches)) + place
            loss = ((head(body(tokens)) - patches) ** 2).mean(-1)[hidden].mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.update(loader.last_batch.indices.tolist())
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch} samples {len(seen)}")


if __name__ == "__main__":
    main()

"""Two ranks train a small model on one GPU with DistributedDataParallel, from one batchd loader; run by
torch.distributed.run.

Proves that batches on the GPU are ordinary torch tensors to autograd and DDP: both ranks end with the same weights,
every sample was seen once an epoch, the loss decreased, and rank 0's first batch is the CPU loader's. Uses Gloo,
because NCCL does not support two ranks on one GPU. With TRAIN_DEVICE=cpu the same without a GPU, to check that it
runs."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import batchd

DEVICE = os.environ.get("TRAIN_DEVICE", "cuda")
NORMALIZE = [
    ["RandomResizedCrop", 64],
    "RandomHorizontalFlip",
    "ToTensor",
    ["Normalize", {"mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]}],
]


def main(folder):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if DEVICE == "cuda":
        torch.cuda.set_device(0)
    torch.manual_seed(0)
    options = dict(batch_size=8, shuffle=True, seed=1, transform=NORMALIZE, autostart=False)
    loader = batchd.DataLoader(f"imagefolder:{folder}", device=DEVICE, **options)
    if rank == 0:
        images, labels = next(iter(loader))
        with batchd.DataLoader(f"imagefolder:{folder}", job="compare", rank=0, world_size=2, **options) as cpu:
            want, want_labels = next(iter(cpu))
            assert images.device.type == DEVICE and images.dtype == torch.float32, images
            assert torch.equal(images.cpu(), torch.as_tensor(want)) and torch.equal(
                labels.cpu(), torch.as_tensor(want_labels)
            ), "not what the CPU loader gives"
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 5, 4),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 3, 2),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(32, len(loader.classes)),
    ).to(DEVICE)
    model = DistributedDataParallel(model, device_ids=[0] if DEVICE == "cuda" else None)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    losses, began, n = [], time.perf_counter(), 0
    for epoch in range(8):
        loader.set_epoch(epoch)
        total, seen = torch.zeros((), device=DEVICE), 0
        for images, labels in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.detach()
            seen += 1
            n += len(images)
        losses.append(float(total) / seen)
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    rate = n / (time.perf_counter() - began)
    weights = torch.cat([p.detach().flatten().cpu() for p in model.parameters()])
    others = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
    dist.all_gather(others, weights)
    assert all(torch.equal(weights, o) for o in others), "the ranks' weights differ"
    assert losses[-1] < losses[0] and torch.isfinite(weights).all(), losses
    if rank == 0:
        print(
            f"DDP, 2 ranks on one GPU: loss {losses[0]:.3f} -> {losses[-1]:.3f} in {len(losses)} epochs, {rate:.0f} images/s per rank, weights equal"
        )
    dist.barrier()
    loader.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else os.environ["DATA"])

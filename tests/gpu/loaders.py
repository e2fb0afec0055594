"""Three ways to a GPU with the same pictures, batch and arithmetic: loaders.py FOLDER SECONDS [WORKERS]

batchd with device="cuda"; torch's DataLoader with pin_memory and .to(non_blocking); the same from pageable memory. Each trains for a fixed step of matrix products in
turn; one line each, "NAME<tab>VALUE<tab>UNIT". Needs torch with CUDA, torchvision for torch's part."""
import os
import sys
import time

import torch

import batchd

BATCH = 128


def measure(name, batches, seconds):
    """Rows per second and the time a step waited for data, over `seconds` after a warm-up of 5 batches."""
    weight = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    rows, waited, began, first = 0, 0.0, None, time.perf_counter()
    it = iter(batches)
    for i in range(1 << 30):
        asked = time.perf_counter()
        images, labels = next(it)
        got = time.perf_counter()
        if i == 0:
            print(f"{name}, first batch\t{got - first:.4g}\ts", flush=True)
        if i == 5:
            torch.cuda.synchronize()
            began, rows, waited = time.perf_counter(), 0, 0.0
        x = images.flatten(1)[:, :4096].to(torch.bfloat16)
        for _ in range(4):
            x = x @ weight
        rows += len(images)
        waited += got - asked
        if began is not None and time.perf_counter() - began >= seconds:
            break
    torch.cuda.synchronize()
    batches.close()  # its workers are not to take part in what comes next
    took = time.perf_counter() - began
    print(f"{name}\t{rows / took:.6g}\timages/s", flush=True)
    print(f"{name}, waiting for data\t{waited / took * 100:.4g}\t% of the time", flush=True)


def endless(loader):
    epoch = 0
    while True:
        loader.set_epoch(epoch)
        yield from loader
        epoch += 1


def with_batchd(folder):
    return endless(batchd.DataLoader(f"imagefolder:{folder}", batch_size=BATCH, shuffle=True, transform="train224", device="cuda", drop_last=True,
                                     job=f"loaders-{os.getpid()}", rank=0, world_size=1, autostart=False))


def with_torch(folder, workers, pinned):
    from torchvision import datasets
    from torchvision.transforms import v2

    transform = v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True),
                            v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])
    loader = torch.utils.data.DataLoader(datasets.ImageFolder(folder, transform), BATCH, shuffle=True, num_workers=workers, pin_memory=pinned, drop_last=True,
                                         persistent_workers=True, prefetch_factor=4)
    while True:
        for images, labels in loader:
            yield images.to("cuda", non_blocking=pinned), labels.to("cuda", non_blocking=pinned)


def main(folder, seconds, workers):
    torch.zeros(1, device="cuda")
    for name, make in (("batchd, device=cuda", lambda: with_batchd(folder)),
                       ("DataLoader, pin_memory, non_blocking", lambda: with_torch(folder, workers, True)),
                       ("DataLoader, pageable", lambda: with_torch(folder, workers, False))):
        try:
            measure(name, make(), seconds)
        except ImportError as e:
            print(f"loaders: {name}: {e}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else os.cpu_count())

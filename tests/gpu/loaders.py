"""Three ways to a GPU with the same data, batch and arithmetic: loaders.py arrays|pictures FOLDER SECONDS [WORKERS]

batchd with device="cuda"; torch's DataLoader with pin_memory and .to(non_blocking); the same from pageable memory. Each
trains for a fixed step of matrix products in turn; one line each, "NAME<tab>VALUE<tab>UNIT". arrays: uint8 rows of one
.npy file in FOLDER (bench.py makes it), which all of them map. pictures: an image folder; torch's part needs
torchvision. Needs torch with CUDA; with TRAIN_DEVICE=cpu it runs without CUDA, to check that it runs."""

import os
import pathlib
import sys
import time

import numpy
import torch

import batchd

DEVICE = os.environ.get("TRAIN_DEVICE", "cuda")
SMALL = DEVICE == "cpu"
BATCH, WIDTH = (16, 64) if SMALL else (128, 4096)


def synchronize():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def measure(name, batches, seconds):
    """Rows per second and the time a step waited for data, over `seconds` after a warm-up of 5 batches."""
    weight = torch.randn(WIDTH, WIDTH, device=DEVICE, dtype=torch.bfloat16)
    rows, waited, began, first = 0, 0.0, None, time.perf_counter()
    it = iter(batches)
    for i in range(1 << 30):
        asked = time.perf_counter()
        images, labels = next(it)
        got = time.perf_counter()
        if i == 0:
            print(f"{name}, first batch\t{got - first:.4g}\ts", flush=True)
        if i == 5:
            synchronize()
            began, rows, waited = time.perf_counter(), 0, 0.0
            asked = got = began
        if images.dtype == torch.uint8:
            images = images.to(torch.float16) / 255
        x = images.flatten(1)[:, :WIDTH].to(torch.bfloat16)
        for _ in range(4):
            x = x @ weight
        rows += len(images)
        waited += got - asked
        if began is not None and time.perf_counter() - began >= seconds:
            break
    synchronize()
    took = time.perf_counter() - began
    batches.close()  # its workers must not take part in the next measurement
    print(f"{name}\t{rows / took:.6g}\timages/s", flush=True)
    print(f"{name}, waiting for data\t{waited / took * 100:.4g}\t% of the time", flush=True)


def endless(loader):
    epoch = 0
    with loader:
        while True:
            loader.set_epoch(epoch)
            yield from loader
            epoch += 1


def with_batchd(dataset, **options):
    return endless(
        batchd.DataLoader(
            dataset,
            batch_size=BATCH,
            shuffle=True,
            device=DEVICE,
            drop_last=True,
            job=f"loaders-{os.getpid()}",
            rank=0,
            world_size=1,
            autostart=False,
            **options,
        )
    )


def with_torch(dataset, workers, pinned):
    loader = torch.utils.data.DataLoader(
        dataset,
        BATCH,
        shuffle=True,
        num_workers=workers,
        pin_memory=pinned and not SMALL,
        drop_last=True,
        persistent_workers=True,
        prefetch_factor=4,
    )
    while True:
        for images, labels in loader:
            yield images.to(DEVICE, non_blocking=pinned), labels.to(DEVICE, non_blocking=pinned)


class Rows(torch.utils.data.Dataset):
    def __init__(self, folder):
        self.x, self.y = (numpy.load(folder / f"rows-{name}.npy", mmap_mode="r") for name in "xy")

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return torch.from_numpy(numpy.array(self.x[i])), int(self.y[i])


def pictures(folder):
    try:
        from torchvision import datasets
        from torchvision.transforms import v2
    except RuntimeError as e:  # a torchvision built for another torch
        raise ImportError(f"torchvision cannot be used: {e}") from None

    transform = v2.Compose(
        [
            v2.RandomResizedCrop(224),
            v2.RandomHorizontalFlip(),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )
    return datasets.ImageFolder(folder, transform)


def main(what, folder, seconds, workers):
    torch.zeros(1, device=DEVICE)
    if what == "arrays":
        ours, theirs = lambda: with_batchd(f"npy:{folder}/rows-x.npy,{folder}/rows-y.npy"), lambda: Rows(folder)
    else:
        ours, theirs = lambda: with_batchd(f"imagefolder:{folder}", transform="train224"), lambda: pictures(folder)
    for name, make in (
        ("batchd, device=cuda", ours),
        ("DataLoader, pin_memory, non_blocking", lambda: with_torch(theirs(), workers, True)),
        ("DataLoader, pageable", lambda: with_torch(theirs(), workers, False)),
    ):
        try:
            measure(name, make(), seconds)
        except ImportError as e:
            print(f"{name}: {e}", file=sys.stderr)


if __name__ == "__main__":
    main(
        sys.argv[1],
        pathlib.Path(sys.argv[2]).resolve(),
        float(sys.argv[3]),
        int(sys.argv[4]) if len(sys.argv) > 4 else os.cpu_count(),
    )

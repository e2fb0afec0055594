"""A real training step with synthetic data and with batchd's, in turn: train_step.py DATASET [STEPS]

torchvision's resnet50, channels_last, automatic mixed precision, batch 256. The whole step counts, including taking the
batch and converting it to floating point. Synthetic: one batch that stays on the GPU, converted in each step like
batchd's. DATASET has uint8 rows of 3x224x224. Lines "NAME<tab>VALUE<tab>UNIT". With TRAIN_DEVICE=cpu a small model and
few rows, to check that it runs."""

import os
import statistics
import sys
import time

import torch

import batchd

DEVICE = os.environ.get("TRAIN_DEVICE", "cuda")
SMALL = DEVICE == "cpu"
BATCH, TURNS = (4, 2) if SMALL else (256, 3)


def model():
    if SMALL:
        return torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 7, 8),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(4, 1000),
        )
    import torchvision

    return torchvision.models.resnet50().to(DEVICE, memory_format=torch.channels_last)


def endless(loader):
    epoch = 0
    while True:
        loader.set_epoch(epoch)
        yield from loader
        epoch += 1


class Trainer:
    def __init__(self):
        self.model = model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01, momentum=0.9)
        self.scaler = torch.amp.GradScaler(DEVICE, enabled=not SMALL)
        self.images = torch.randint(0, 256, (BATCH, 3, 224, 224), dtype=torch.uint8, device=DEVICE)
        self.labels = torch.randint(0, 1000, (BATCH,), device=DEVICE)

    def step(self, images, labels):
        images = images.to(memory_format=torch.channels_last).to(torch.float16 if not SMALL else torch.float32) / 255
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, dtype=torch.float16, enabled=not SMALL):
            loss = torch.nn.functional.cross_entropy(self.model(images), labels.long() % 1000)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def synthetic(self):
        return self.images, self.labels

    def timed(self, take, n):
        """Milliseconds of each step. The end of a step on the GPU is awaited one step late, so that the GPU always has
        work."""
        took, last = [], None
        began = time.perf_counter()
        for _ in range(n):
            self.step(*take())
            event = None
            if not SMALL:
                event = torch.cuda.Event()
                event.record()
            if last is not None:
                last.synchronize()
            last = event
            ended = time.perf_counter()
            took.append((ended - began) * 1e3)
            began = ended
        if not SMALL:
            torch.cuda.synchronize()
        return took[2:]  # the first two fill the queue


def say(name, values):
    values = sorted(values)
    print(f"{name}, middle\t{statistics.median(values):.5g}\tms")
    print(f"{name}, 99th percentile\t{values[len(values) * 99 // 100]:.5g}\tms")


def main(dataset, n_steps):
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    trainer = Trainer()
    with batchd.DataLoader(
        dataset, batch_size=BATCH, shuffle=True, device=DEVICE, drop_last=True, rank=0, world_size=1, autostart=False
    ) as loader:
        batches = endless(loader)
        trainer.timed(trainer.synthetic, 4 if SMALL else 20)  # cudnn searches for the fastest algorithm; clocks rise
        trainer.timed(lambda: next(batches), 4 if SMALL else 10)
        synthetic, streamed = [], []
        for _ in range(TURNS):
            synthetic += trainer.timed(trainer.synthetic, n_steps)
            streamed += trainer.timed(lambda: next(batches), n_steps)
        batches.close()
    say("step with synthetic data", synthetic)
    say("step with batchd's data", streamed)
    print(f"images\t{BATCH / statistics.median(streamed) * 1e3:.5g}\timages/s")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else (5 if SMALL else 30))

"""A real training step with batchd's pictures and with data that lies on the GPU, in turn: train_step.py FOLDER [STEPS]

torchvision's resnet50, channels_last, automatic mixed precision, batch 128. The whole step counts, from asking for the
batch on. FOLDER has JPEG files, which the daemon at $BATCHD_SOCKET keeps decoded; they come as float16 through
train224. By name:

    data on the GPU       one batch that stays there and needs no conversion
    batchd, NHWC          seen as NCHW, which is channels_last already: no conversion either
    batchd, NCHW          made channels_last in the step, a quarter as many steps

The times of all STEPS steps are in the mean. Lines "NAME<tab>VALUE<tab>UNIT". With TRAIN_DEVICE=cpu a small model and few
pictures, to check that it runs."""

import itertools
import statistics
import sys
import time

import torch
from rate import DEVICE, SMALL, network, say, synchronize

import batchd

BATCH, TURNS = (4, 2) if SMALL else (128, 4)
OUTLIER = 1.2  # times the median


class Trainer:
    def __init__(self):
        self.model = network().to(DEVICE, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01, momentum=0.9)
        self.scaler = torch.amp.GradScaler(DEVICE, enabled=not SMALL)

    def step(self, images, labels):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, dtype=torch.float16, enabled=not SMALL):
            loss = torch.nn.functional.cross_entropy(self.model(images), labels)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def timed(self, take, n):
        """The milliseconds of n steps together, and those of each. The end of a step on the GPU is awaited one step
        late, so that the GPU always has work."""
        took, last = [], None
        synchronize()
        began = before = time.perf_counter()
        for _ in range(n):
            self.step(*take())
            event = None if SMALL else torch.cuda.current_stream().record_event()
            if last is not None:
                last.synchronize()
            last, now = event, time.perf_counter()
            took.append((now - before) * 1e3)
            before = now
        synchronize()
        return (time.perf_counter() - began) * 1e3, took[2:]  # the first two fill the queue


def loader_of(folder, layout):
    return batchd.DataLoader(
        f"imagefolder:{folder}",
        batch_size=BATCH,
        shuffle=True,
        transform="train224",
        dtype="float32" if SMALL else "float16",
        layout=layout,
        device=DEVICE,
        drop_last=True,
        rank=0,
        world_size=1,
        job=f"step-{layout}",
        autostart=False,
    )


def batches_of(loader, finish):
    for epoch in itertools.count():
        loader.set_epoch(epoch)
        for images, labels in loader:
            yield finish(torch.as_tensor(images)), torch.as_tensor(labels)


class Taken:
    """The steps with one kind of data."""

    def __init__(self):
        self.n, self.ms, self.each = 0, 0.0, []

    def add(self, ms, each):
        self.n += len(each) + 2
        self.ms += ms
        self.each += each

    def say(self, name):
        each = sorted(self.each)
        middle = statistics.median(each)
        say(f"step with {name}, mean of all {self.n}", self.ms / self.n, "ms")
        say(f"step with {name}, middle", middle, "ms")
        say(f"step with {name}, 99th percentile", each[len(each) * 99 // 100], "ms")
        say(f"step with {name}, above {OUTLIER} x the middle", share_above(each, OUTLIER * middle), "% of the steps")


def share_above(values, limit):
    return sum(value > limit for value in values) / len(values) * 100


def main(folder, n_steps):
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    trainer = Trainer()
    with loader_of(folder, "NHWC") as nhwc, loader_of(folder, "NCHW") as nchw:
        takes = {
            "batchd, NHWC": batches_of(nhwc, lambda images: images.permute(0, 3, 1, 2)),
            "batchd, NCHW": batches_of(nchw, lambda images: images.contiguous(memory_format=torch.channels_last)),
        }
        for _ in range(2):  # the daemon keeps them decoded from now on
            for _ in nhwc:
                pass
        kept = [tensor.clone() for tensor in next(takes["batchd, NHWC"])]
        takes = {"data on the GPU": itertools.repeat(kept), **takes}
        taken = {name: Taken() for name in takes}
        for name, take in takes.items():  # cudnn searches for the fastest algorithms; clocks rise
            trainer.timed(lambda take=take: next(take), 3 if SMALL else 20)
        for turn in range(TURNS):
            for name, take in takes.items():
                if name != "batchd, NCHW" or turn == 1:
                    taken[name].add(*trainer.timed(lambda take=take: next(take), n_steps // TURNS))
        for name, found in taken.items():
            found.say(name)
        for take in takes.values():
            if hasattr(take, "close"):
                take.close()
    best = taken["batchd, NHWC"]
    say("images", BATCH * best.n / best.ms * 1e3, "images/s")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else (12 if SMALL else 200))

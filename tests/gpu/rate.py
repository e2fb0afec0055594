"""JPEG files to a training ResNet-50 on one GPU: rate.py threads|trainers|sharing FOLDER SECONDS MOST NUMBER...

torchvision's resnet50, channels_last, bfloat16, batch 256, SGD; each measurement lasts SECONDS and counts whole steps.

threads: the rate with one batch that stays on the GPU, then with batchd's batches (train224, float16) for each NUMBER of
decoding threads. Every picture is read and decoded again (no cache of decoded pictures), as with a data set that is larger
than memory.

trainers: for each NUMBER so many processes on one GPU, batch 128, with a batch of their own that stays on the GPU, then
with batches that they share, then with a part of the epoch each. sharing: the same without the last. All processes are
started at the beginning; those that take no part in a turn wait.

No measurement begins that would end more than MOST seconds after the start. Lines "NAME<tab>VALUE<tab>UNIT", those that
begin with "! " are remarks. The build is $BATCHD_BUILD. With TRAIN_DEVICE=cpu a small model on the processor, to check that
it runs. Exit status 1 if nothing was measured."""

import os
import select
import subprocess
import sys
import time

import batchd
import torch
from own_daemon import Daemon

DEVICE = os.environ.get("TRAIN_DEVICE", "cuda")
SMALL = DEVICE == "cpu"
BATCH, BATCH_OF_SEVERAL = (8, 4) if SMALL else (256, 128)  # four trainers of 256 need more than 80 GiB
WARM_S = 1 if SMALL else 6  # cudnn searches for the fastest algorithms, and the clocks rise


def say(name, value, unit):
    print(f"{name}\t{value:.5g}\t{unit}", flush=True)


def remark(text):
    print(f"! {text}", flush=True)


def own_daemon(*args, cache="decoded: off"):
    return Daemon(os.environ["BATCHD_BUILD"], *args, config=f"pin_memory: on\ncache:\n  {cache}\n")


def network():
    nn = torch.nn
    if SMALL:
        return nn.Sequential(
            nn.Conv2d(3, 4, 7, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1000)
        )
    import torchvision

    return torchvision.models.resnet50()


class Trainer:
    def __init__(self, batch_size=BATCH):
        self.batch_size = batch_size
        torch.manual_seed(0)
        torch.backends.cudnn.benchmark = True
        self.model = network().to(DEVICE, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01, momentum=0.9)

    def keep_batch_of(self, socket, folder, job):
        """One of batchd's: a GPU's clock depends on the data, too."""
        batches = batches_of(socket, folder, self.batch_size, rank=0, world_size=1, job=job)
        self.images, self.labels = (tensor.clone() for tensor in next(batches))
        synchronize()
        batches.close()

    def resident(self):
        """The batch that stays on the GPU."""
        return self.images, self.labels

    def step(self, images, labels):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=not SMALL):
            loss = torch.nn.functional.cross_entropy(self.model(images), labels)
        loss.backward()
        self.optimizer.step()

    def run(self, take, seconds, at_least=3, wave=1, step=None):
        """(images per second, share of the time that the trainer waited for data). The end of a step is awaited one
        step late, so that the GPU always has work. A multiple of `wave` steps; `step` takes the place of training."""
        last, n, waited = None, 0, 0.0
        synchronize()
        began = time.perf_counter()
        while n < at_least or n % wave or time.perf_counter() - began < seconds:
            asked = time.perf_counter()
            images, labels = take()
            waited += time.perf_counter() - asked
            (step or self.step)(images, labels)
            if not SMALL:
                event = torch.cuda.Event()
                event.record()
                if last is not None:
                    last.synchronize()
                last = event
            n += 1
        synchronize()
        took = time.perf_counter() - began
        return n * self.batch_size / took, waited / took


def synchronize():
    if not SMALL:
        torch.cuda.synchronize()


def batches_of(socket, folder, batch_size=BATCH, **options):
    """Batches without an end. Rows of NHWC that are seen as NCHW are channels_last already."""
    loader = batchd.DataLoader(
        f"imagefolder:{folder}",
        batch_size=batch_size,
        shuffle=True,
        transform="train224",
        dtype="float32" if SMALL else "float16",
        layout="NHWC",
        device=DEVICE,
        drop_last=True,
        socket=socket,
        autostart=False,
        **options,
    )
    epoch = 0
    with loader:
        while True:
            loader.set_epoch(epoch)
            for images, labels in loader:
                yield torch.as_tensor(images).permute(0, 3, 1, 2), torch.as_tensor(labels)
            epoch += 1


def by_threads(folder, seconds, deadline, numbers):
    trainer, n_cores, n_measured = Trainer(), len(os.sched_getaffinity(0)), 0
    with own_daemon() as daemon:
        trainer.keep_batch_of(daemon.socket, folder, "resident")
    trainer.run(trainer.resident, WARM_S)
    best, _ = trainer.run(trainer.resident, seconds / 2)
    say("data that stays on the GPU", best, "images/s")
    for n in numbers:
        if n > n_cores and not SMALL:
            continue
        if time.monotonic() + seconds + 4 > deadline:
            remark(f"{n} threads: no time left")
            break
        with own_daemon("--workers", str(n)) as daemon:
            batches = batches_of(daemon.socket, folder, rank=0, world_size=1, job=f"rate-{n}")
            take = lambda: next(batches)
            trainer.run(take, 2, at_least=5)
            used, began = daemon.processor_s(), time.perf_counter()
            rate, waited = trainer.run(take, seconds)
            n_images = rate * (time.perf_counter() - began)
            used = daemon.processor_s() - used
            batches.close()
        say(f"{n} threads", rate, "images/s")
        say(f"{n} threads, of the rate with data that stays on the GPU", rate / best * 100, "%")
        say(f"{n} threads, waiting for data", waited * 100, "% of the time")
        say(f"{n} threads, processor time of the daemon", used / n_images * 1e3, "ms an image")
        n_measured += 1
    return 0 if n_measured else 1


# ---- several trainers ----

# What a trainer is told to do in a turn, and how the result calls it.
TURNS = {"resident": "data on the GPU", "share": "batchd's data, shared", "shard": "batchd's data, a part each"}


def one_of_several(folder, seconds, socket, rank):
    """A process of by_trainers. Each line on standard input begins a turn: "idle", or a name of TURNS and the number of
    trainers that take part. After its measurement it goes on training until the next line, so that none of the others
    measures beside an idle GPU, or waits for a trainer that takes no more batches."""
    trainer = Trainer(BATCH_OF_SEVERAL)
    trainer.keep_batch_of(socket, folder, f"resident-{rank}")
    trainer.run(trainer.resident, 1)
    print("ready", flush=True)
    while line := sys.stdin.readline():
        turn, *world = line.split()
        if turn == "idle":
            continue
        take, batches = trainer.resident, None
        if turn != "resident":
            how = {"mode": turn, "rank": rank, "world_size": int(world[0]), "job": f"trainers-{turn}-{world[0]}"}
            batches = batches_of(socket, folder, trainer.batch_size, **how)
            take = lambda: next(batches)
        trainer.run(take, 1)
        rate, _ = trainer.run(take, seconds)
        print(f"done {rate:.6g}", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            trainer.step(*take())
            synchronize()
        if batches:
            batches.close()
    return 0


def said(process, word):
    for line in process.stdout:
        if line.split()[:1] == [word]:
            return line
    raise RuntimeError(f"a trainer ended with status {process.wait(5)} before it said {word}")


def tell(process, line):
    print(line, file=process.stdin, flush=True)


def end_all(trainers):
    """At the end of their input, as a process under MPS that is killed may take the others with it."""
    for p in trainers:
        p.stdin.close()
    until = time.monotonic() + 10
    for p in trainers:
        try:
            p.wait(max(until - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            remark("a trainer did not end and was killed")
            p.kill()
            p.wait()
        p.stdout.close()


def by_trainers(folder, seconds, deadline, numbers, turns=TURNS):
    n_measured = 0
    with own_daemon() as daemon:
        argv = [sys.executable, __file__, "one", folder, str(seconds), daemon.socket]
        trainers = [
            subprocess.Popen([*argv, str(rank)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for rank in range(max(numbers))
        ]
        try:
            for p in trainers:
                said(p, "ready")
            for n in numbers:
                sums = {}
                for turn, name in turns.items():
                    if time.monotonic() + seconds + 3 > deadline:
                        remark(f"{n} trainers, {name}: no time left")
                        continue
                    for p in trainers:
                        tell(p, f"{turn} {n}" if p in trainers[:n] else "idle")
                    sums[turn] = sum(float(said(p, "done").split()[1]) for p in trainers[:n])
                    say(f"{n} trainers, {name}, sum", sums[turn], "images/s")
                    if turn != "resident":
                        say(
                            f"{n} trainers, {name}, of the sum with data on the GPU",
                            sums[turn] / sums["resident"] * 100,
                            "%",
                        )
                        n_measured += 1
        finally:
            end_all(trainers)
    return 0 if n_measured else 1


def by_sharing_trainers(*args):
    return by_trainers(*args, turns={turn: name for turn, name in TURNS.items() if turn != "shard"})


def main(what, folder, seconds, *more):
    seconds = float(seconds)
    if what == "one":
        return one_of_several(folder, seconds, more[0], int(more[1]))
    measure = {"threads": by_threads, "trainers": by_trainers, "sharing": by_sharing_trainers}[what]
    return measure(folder, seconds, time.monotonic() + float(more[0]), [int(n) for n in more[1:]])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

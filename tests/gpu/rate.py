"""JPEG files to a training ResNet-50 on one GPU: rate.py threads|trainers FOLDER SECONDS MOST NUMBER...

torchvision's resnet50, channels_last, bfloat16, batch 256, SGD; each measurement lasts SECONDS and counts whole steps.

threads: the rate with one batch that stays on the GPU, then with batchd's batches (train224, float16) for each NUMBER of
decoding threads. Every picture is read and decoded again (no cache of decoded pictures), as with a data set that is larger
than memory. trainers: NUMBER processes that share the GPU and each batch, against as many with a batch of their own that
stays on the GPU.

No measurement begins that would end more than MOST seconds after the start. Lines "NAME<tab>VALUE<tab>UNIT". The build
is $BATCHD_BUILD. With TRAIN_DEVICE=cpu a small model on the processor, to check that it runs. Exit status 1 if nothing was
measured."""

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
BATCH = 8 if SMALL else 256
WARM_S = 1 if SMALL else 6  # cudnn searches for the fastest algorithms, and the clocks rise


def say(name, value, unit):
    print(f"{name}\t{value:.5g}\t{unit}", flush=True)


def own_daemon(*args):
    return Daemon(os.environ["BATCHD_BUILD"], *args, config="pin_memory: on\ncache:\n  decoded: off\n")


def network():
    nn = torch.nn
    if SMALL:
        return nn.Sequential(
            nn.Conv2d(3, 4, 7, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1000)
        )
    import torchvision

    return torchvision.models.resnet50()


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        torch.backends.cudnn.benchmark = True
        self.model = network().to(DEVICE, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01, momentum=0.9)

    def keep_batch_of(self, socket, folder, job):
        """One of batchd's: a GPU's clock depends on the data, too."""
        batches = batches_of(socket, folder, rank=0, world_size=1, job=job)
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

    def run(self, take, seconds, at_least=3):
        """(images per second, share of the time that the trainer waited for data). The end of a step is awaited one
        step late, so that the GPU always has work."""
        last, n, waited = None, 0, 0.0
        synchronize()
        began = time.perf_counter()
        while n < at_least or time.perf_counter() - began < seconds:
            asked = time.perf_counter()
            images, labels = take()
            waited += time.perf_counter() - asked
            self.step(images, labels)
            if not SMALL:
                event = torch.cuda.Event()
                event.record()
                if last is not None:
                    last.synchronize()
                last = event
            n += 1
        synchronize()
        took = time.perf_counter() - began
        return n * BATCH / took, waited / took


def synchronize():
    if not SMALL:
        torch.cuda.synchronize()


def batches_of(socket, folder, **options):
    """Batches without an end. Rows of NHWC that are seen as NCHW are channels_last already."""
    loader = batchd.DataLoader(
        f"imagefolder:{folder}",
        batch_size=BATCH,
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
            print(f"{n} threads: no time left", file=sys.stderr)
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


def one_of_several(folder, seconds, socket, rank, world):
    """A process of by_trainers. Each line on standard input begins a turn: "resident" or "batchd". After its measurement it goes on training until the next line, so that none of the others measures beside an idle GPU, or
    waits for a trainer that takes no more batches."""
    trainer = Trainer()
    trainer.keep_batch_of(socket, folder, f"resident-{rank}")
    trainer.run(trainer.resident, 1)
    print("ready", flush=True)
    while line := sys.stdin.readline():
        take = trainer.resident
        if line.strip() == "batchd":
            batches = batches_of(socket, folder, mode="share", rank=rank, world_size=world, job="trainers")
            take = lambda: next(batches)
            trainer.run(take, 1)
        rate, _ = trainer.run(take, seconds)
        print(f"done {rate:.6g}", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            trainer.step(*take())
            synchronize()
    return 0


def said(process, word):
    for line in process.stdout:
        if line.split()[:1] == [word]:
            return line
    raise RuntimeError(f"a trainer ended with status {process.wait(5)} before it said {word}")


def by_trainers(folder, seconds, deadline, numbers):
    n_measured = 0
    for n in numbers:
        if time.monotonic() + 3 * seconds + 15 > deadline:
            print(f"{n} trainers: no time left", file=sys.stderr)
            break
        sums = {}
        with own_daemon() as daemon:
            argv = [sys.executable, __file__, "one", folder, str(seconds), daemon.socket]
            trainers = [
                subprocess.Popen([*argv, str(rank), str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                for rank in range(n)
            ]
            try:
                for p in trainers:
                    said(p, "ready")
                for name, turn in (("data on the GPU", "resident"), ("batchd's data", "batchd")):
                    for p in trainers:
                        print(turn, file=p.stdin, flush=True)
                    sums[name] = sum(float(said(p, "done").split()[1]) for p in trainers)
            finally:
                for p in trainers:  # without a farewell: batches are on their way to each of them
                    p.kill()
                for p in trainers:
                    p.communicate()
        for name, total in sums.items():
            say(f"{n} trainers, {name}, sum", total, "images/s")
        say(
            f"{n} trainers, of the sum with data on the GPU", sums["batchd's data"] / sums["data on the GPU"] * 100, "%"
        )
        n_measured += 1
    return 0 if n_measured else 1


def main(what, folder, seconds, *more):
    seconds = float(seconds)
    if what == "one":
        return one_of_several(folder, seconds, more[0], int(more[1]), int(more[2]))
    measure = {"threads": by_threads, "trainers": by_trainers}[what]
    return measure(folder, seconds, time.monotonic() + float(more[0]), [int(n) for n in more[1:]])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

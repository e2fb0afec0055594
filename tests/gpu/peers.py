"""JPEG files to one GPU by batchd and by the best that torch can do, in turn: peers.py FOLDER SECONDS MOST WORKERS

All make the same batches of the same files: 256 RandomResizedCrops of 224 with antialiasing, flipped, float16,
normalised, channels_last, on the GPU; nothing is kept decoded. Each is measured alone and, where it is fast enough to
feed it, before a training ResNet-50 (rate.py). DataLoader has WORKERS processes that decode and crop into uint8, and
normalises on the GPU; or they only read, and torchvision's decode_jpeg decodes on the GPU, with its JPEG engines where
it has any. Then: how fast decode_jpeg is alone, and what it takes from a training step beside it.

No measurement begins that would end more than MOST seconds after the start. Lines "NAME<tab>VALUE<tab>UNIT", those that
begin with "! " are remarks. With TRAIN_DEVICE=cpu a small model on the processor, to check that it runs.

    peers.py decode FOLDER RATE SECONDS

decodes at this rate after a line on standard input, and prints the rate that it reached: the other process beside a
step."""

import contextlib
import pathlib
import queue
import subprocess
import sys
import threading
import time

import torch
from rate import BATCH, DEVICE, SMALL, WARM_S, Trainer, batches_of, own_daemon, remark, said, say, synchronize

FLOAT = torch.float32 if SMALL else torch.float16
MEAN, STD = ([255 * v for v in values] for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
WORTH_TRAINING = 0.8  # of the rate of the training step: below that, the step gets the rate that the loader has alone


def torchvision():
    """Its modules io, datasets and v2."""
    try:
        from torchvision import datasets, io
        from torchvision.transforms import v2
    except RuntimeError as e:  # a torchvision built for another torch
        raise ImportError(f"torchvision cannot be used: {e}") from None
    return io, datasets, v2


def normalised(images):
    """uint8, or floats of 0 to 255, NCHW on the GPU."""
    channels = lambda values: torch.tensor(values, device=DEVICE, dtype=FLOAT).view(1, 3, 1, 1)
    images = images.to(memory_format=torch.channels_last).to(FLOAT)
    return images.sub_(channels(MEAN)).div_(channels(STD))


# ---- workers that decode ----


def dataset(folder, how):
    io, datasets, v2 = torchvision()
    crop = [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()]
    if how == "Pillow":
        return datasets.ImageFolder(folder, v2.Compose([*crop, v2.PILToTensor()]))
    if how == "tensors":
        decoded = lambda path: io.decode_jpeg(io.read_file(path), io.ImageReadMode.RGB)
        return datasets.ImageFolder(folder, v2.Compose(crop), loader=decoded)
    return datasets.ImageFolder(folder, loader=io.read_file)


def loader_of(data, workers, **options):
    """Its epoch does not end while it is measured: a DataLoader begins each with empty hands."""
    sampler = torch.utils.data.RandomSampler(data, replacement=True, num_samples=1 << 24)
    return torch.utils.data.DataLoader(data, BATCH, sampler=sampler, num_workers=workers, **options)


def decoded_by_workers(folder, workers, how):
    for images, labels in loader_of(dataset(folder, how), workers, pin_memory=not SMALL):
        yield normalised(images.to(DEVICE, non_blocking=True)), labels.to(DEVICE, non_blocking=True)


# ---- decoding on the GPU ----


def packed(samples):
    """One tensor of all files' bytes: each tensor that a worker hands over costs a descriptor."""
    files, labels = zip(*samples)
    return torch.cat(files), [len(file) for file in files], torch.tensor(labels)


def decode(files):
    io, _, _ = torchvision()
    return io.decode_jpeg(files, io.ImageReadMode.RGB, device=DEVICE)


def cropped(pictures):
    """Pictures have different sizes, so that each is resized by itself; the rest is done for all at once."""
    _, _, v2 = torchvision()
    out = torch.empty(len(pictures), 3, 224, 224, device=DEVICE)
    crop = v2.RandomResizedCrop(224, antialias=True)
    for i, picture in enumerate(pictures):
        box = crop.make_params([picture])
        part = picture[None, :, box["top"] : box["top"] + box["height"], box["left"] : box["left"] + box["width"]]
        out[i] = torch.nn.functional.interpolate(part.float(), (224, 224), mode="bilinear", antialias=True)[0]
    flipped = (torch.rand(len(pictures)) < 0.5).to(DEVICE, non_blocking=True).view(-1, 1, 1, 1)
    return normalised(torch.where(flipped, out.flip(-1), out))


class Ahead:
    """Batches that another thread decodes on a stream of its own, two ahead."""

    def __init__(self, folder, workers):
        self.loader = loader_of(dataset(folder, "files"), workers, collate_fn=packed)
        self.ready, self.ended = queue.Queue(2), threading.Event()
        self.thread = threading.Thread(target=self.make, daemon=True)
        self.thread.start()

    def put(self, found):
        while not self.ended.is_set():
            with contextlib.suppress(queue.Full):
                return self.ready.put(found, timeout=0.1)

    def make(self):
        try:
            with on_stream_of_its_own():
                for data, lengths, labels in self.loader:
                    batch = cropped(decode(list(data.split(lengths)))), labels.to(DEVICE, non_blocking=True)
                    self.put((batch, event()))
                    if self.ended.is_set():
                        return
        except Exception as e:
            self.put((e, None))

    def __next__(self):
        batch, made = self.ready.get()
        if isinstance(batch, Exception):
            raise batch
        if made:
            made.wait()
            for tensor in batch:
                tensor.record_stream(torch.cuda.current_stream())
        return batch

    def close(self):
        self.ended.set()
        self.thread.join()


def on_stream_of_its_own():
    return contextlib.nullcontext() if SMALL else torch.cuda.stream(torch.cuda.Stream())


def event():
    return None if SMALL else torch.cuda.current_stream().record_event()


# ---- each of them in turn ----


class Peers:
    def __init__(self, folder, seconds, deadline, workers):
        self.folder, self.seconds, self.deadline, self.workers = folder, seconds, deadline, workers
        self.trainer = Trainer()
        with own_daemon() as daemon:
            self.trainer.keep_batch_of(daemon.socket, folder, "resident")
        self.trainer.run(self.trainer.resident, WARM_S / 2)
        self.best, _ = self.trainer.run(self.trainer.resident, seconds)
        say("ResNet-50, data that stays on the GPU", self.best, "images/s")

    def trial(self, name, seconds, measure, *args):
        """One that fails is a remark, and the next one is measured."""
        if time.monotonic() + seconds > self.deadline:
            return remark(f"{name}: no time left")
        try:
            measure(name, *args)
        except Exception as e:
            remark(f"{name}: {type(e).__name__}: {e}")

    def loader(self, name, make, wave=1, train=True):
        """Workers begin together, so that their batches come in waves of as many: whole waves are measured."""
        batches = make()
        take = lambda: next(batches)
        try:
            self.trainer.run(take, 0, wave=wave, step=lambda *_: None)
            rate, _ = self.trainer.run(take, self.seconds, wave=wave, step=lambda *_: None)
            say(f"{name}", rate, "images/s")
            if not train or rate < WORTH_TRAINING * self.best:
                return
            self.trainer.run(take, 0.5)
            rate, waited = self.trainer.run(take, self.seconds, wave=wave)
            say(f"{name}, to ResNet-50", rate, "images/s")
            say(f"{name}, to ResNet-50, of the rate with data that stays on the GPU", rate / self.best * 100, "%")
            say(f"{name}, to ResNet-50, waiting for data", waited * 100, "% of the time")
        finally:
            batches.close()

    def ours(self, name, cache, train):
        with own_daemon("--workers", str(self.workers), cache=cache) as daemon:
            make = lambda: batches_of(daemon.socket, self.folder, rank=0, world_size=1, job="peers")
            self.loader(name, make, train=train)

    def decoding(self, name, n, files):
        """As fast as decode_jpeg goes. Then, for another second, nvidia-smi tells how busy the JPEG engines are."""

        def decoded(seconds):
            began, k = time.perf_counter(), 0
            while time.perf_counter() - began < seconds:
                decode(files[k * n % len(files) :][:n])
                k += 1
            synchronize()
            return k * n / (time.perf_counter() - began)

        decoded(0.2)
        say(name, decoded(self.seconds), "images/s")
        engines = Engines()
        decoded(1)
        engines.say(f"{name}, JPEG engines busy")

    def beside(self, name, files, how):
        """At the rate of the training step alone, which is what the step would need."""
        with how(self.folder, files, self.best, self.seconds + 1) as other:
            rate, _ = self.trainer.run(self.trainer.resident, self.seconds)
            decoded = other()
        say(f"{name}, ResNet-50 with data that stays on the GPU", rate, "images/s")
        say(f"{name}, of its rate alone", rate / self.best * 100, "%")
        say(f"{name}, decoded meanwhile", decoded, "images/s")

    def all(self):
        n = f"{self.workers} workers"
        self.trial(f"batchd, {self.workers} threads", 2 * self.seconds + 2, self.ours, "decoded: off", True)
        name = f"batchd, {self.workers} threads, without its index of JPEG files"
        self.trial(name, self.seconds + 2, self.ours, "decoded: off\n  jpeg: off", False)
        try:
            torchvision()
        except ImportError as e:
            return remark(e)
        files = encoded(self.folder)
        for size in (8,) if SMALL else (256, 64):
            self.trial(f"decode_jpeg on the GPU alone, {size} at once", self.seconds + 2, self.decoding, size, files)
        self.trial(
            f"DataLoader reads with {n}, decode_jpeg on the GPU",
            2 * self.seconds + 4,
            self.loader,
            lambda: Ahead(self.folder, self.workers),
            self.workers,
        )
        for name, how in (("the same process", in_this_process), ("another process", in_another_process)):
            self.trial(f"decode_jpeg in {name}", self.seconds + 8, self.beside, files, how)
        for how in ("tensors", "Pillow"):
            self.trial(
                f"DataLoader, {n}, {'torchvision on tensors' if how == 'tensors' else how}, uint8",
                2 * self.seconds + 6,
                self.loader,
                lambda how=how: decoded_by_workers(self.folder, self.workers, how),
                self.workers,
            )


class Engines:
    """The greatest share of the time that the GPU's JPEG engines were in use, as nvidia-smi tells it."""

    def __init__(self):
        self.shares, self.ended = [], threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()

    def look(self):
        argv = ["nvidia-smi", "--id=0", "--query-gpu=utilization.jpeg", "--format=csv,noheader,nounits"]
        while not self.ended.wait(0.1):
            try:
                said = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=True).stdout
                self.shares.append(float(said))
            except (OSError, ValueError, subprocess.SubprocessError) as e:
                self.failed = e
                return

    def say(self, name):
        self.ended.set()
        self.thread.join()
        if self.shares:
            say(name, max(self.shares), "% of the time")
        else:
            remark(f"{name}: not told by nvidia-smi: {getattr(self, 'failed', 'no time')}")


def encoded(folder):
    files = sorted(pathlib.Path(folder).glob("*/*.jpg"))[: 64 if SMALL else 1024]
    return [torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8) for file in files]


def paced(files, rate, ended):
    """Decodes batches of 256 at this many images per second, or as fast as it goes, until `ended` says so. Its rate."""
    n, began = 0, time.perf_counter()
    while not ended():
        decode(files[n % len(files) :][:BATCH])
        n += BATCH
        while not ended() and (ahead := began + n / rate - time.perf_counter()) > 0:
            time.sleep(min(ahead, 0.05))
    synchronize()
    return n / (time.perf_counter() - began)


@contextlib.contextmanager
def in_this_process(_folder, files, rate, _seconds):
    ended, found = threading.Event(), []

    def work():
        try:
            with on_stream_of_its_own():
                found.append(paced(files, rate, ended.is_set))
        except Exception as e:
            found.append(e)

    def finish():
        ended.set()
        thread.join()
        if isinstance(found[0], Exception):
            raise found[0]
        return found[0]

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield finish
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def in_another_process(folder, _files, rate, seconds):
    argv = [sys.executable, __file__, "decode", folder, str(rate), str(seconds)]
    p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        said(p, "ready")
        print("go", file=p.stdin, flush=True)
        yield lambda: float(said(p, "done").split()[1])
    finally:
        p.kill()
        p.communicate()


def other_process(folder, rate, seconds):
    files = encoded(folder)
    decode(files[:BATCH])
    synchronize()
    print("ready", flush=True)
    sys.stdin.readline()
    until = time.perf_counter() + seconds
    print(f"done {paced(files, rate, lambda: time.perf_counter() > until):.6g}", flush=True)


def main(folder, seconds, most, workers):
    Peers(folder, float(seconds), time.monotonic() + float(most), int(workers)).all()


if __name__ == "__main__":
    if sys.argv[1] == "decode":
        other_process(sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))
    else:
        main(*sys.argv[1:])

"""One rank of the demonstration's training job, as torchrun would start it: RANK and WORLD_SIZE are in the environment.

Prints its events, one JSON object a line: {"event": "ready" | "open" | "batch" | "epoch" | "done", ...}. demo.py reads
them.
"""

import argparse
import json
import os
import resource
import signal
import sys
import time

import models


def say(event, **facts):
    print(json.dumps({"event": event, **facts}), flush=True)


def cpu_s():
    """CPU time of this process and of the worker processes that it has waited for."""
    used = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        used += usage.ru_utime + usage.ru_stime
    return used


def from_batchd(args):
    """(set_epoch, batches, close): batches yields images, labels, the indices of samples that count, rows of padding."""
    import batchd

    loader = batchd.DataLoader(
        f"imagefolder:{args.data}",
        batch_size=args.batch_size,
        shuffle=True,
        seed=args.seed,
        transform="train224",
        job="demo",
    )
    say("open", n_samples=len(loader.dataset))

    def batches():
        for images, labels in loader:
            last = loader.last_batch
            indices = [int(i) for i in last.indices]
            n_padding = int(last.n_padding)
            yield images, labels, indices[: len(indices) - n_padding], n_padding

    return loader.set_epoch, batches, loader.close


def from_own_workers(args):
    """The same from this rank's own worker processes. Neither loader marks padding."""
    import baseline

    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    with_torch = "torch" in sys.modules
    loader = (baseline.loader if with_torch else baseline.PlainLoader)(
        args.data, args.batch_size, rank, world_size, args.num_workers, seed=args.seed
    )

    def batches():
        for images, labels in loader:
            yield images, labels, [None] * len(labels), 0

    # torch's loader ends its workers when it is freed.
    return (
        (loader.sampler.set_epoch, batches, lambda: None) if with_torch else (loader.set_epoch, batches, loader.close)
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--loader", choices=("batchd", "own"), required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--rendezvous", required=True)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--classes", type=int, required=True)
    parser.add_argument("--num-workers", type=int, default=1)
    args = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # demo.py ends its ranks itself

    model = models.make(args.classes, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), args.rendezvous)
    say("ready", model=model.name)
    sys.stdin.readline()  # the signal to begin: starting Python and torch is not part of the measurement
    before = cpu_s()
    set_epoch, batches, close = (from_batchd if args.loader == "batchd" else from_own_workers)(args)
    for epoch in range(args.epochs):
        set_epoch(epoch)
        began = time.monotonic()
        n_batches = n_rows = n_padding = right = 0
        loss, indices, training_s = 0.0, [], 0.0
        for images, labels, real, padding in batches():
            n_batches, n_rows, n_padding = n_batches + 1, n_rows + len(labels), n_padding + padding
            indices += real
            start = time.thread_time()
            batch_loss, batch_right = model.step(images, labels)
            training_s += time.thread_time() - start
            loss, right = loss + batch_loss, right + batch_right
            say("batch", epoch=epoch, batches=n_batches, rows=n_rows, loss=loss / n_rows)
        say(
            "epoch",
            epoch=epoch,
            batches=n_batches,
            rows=n_rows,
            padding=n_padding,
            indices=indices,
            loss=loss,
            right=right,
            seconds=time.monotonic() - began,
            training_s=training_s,
        )
    model.finish()
    close()
    del batches, set_epoch, close  # ends worker processes, so that their CPU time counts
    say("done", cpu_s=cpu_s() - before)


if __name__ == "__main__":
    main()

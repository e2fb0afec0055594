"""The cost of PyTorch's hand-over of a ready 38.5 MB batch from a worker process: torch_handover.py N. Prints JSON, as
handover.c does.

The worker's share is its CPU time per batch: collating 64 samples that are in memory into shared memory (one copy), and
the message.
"""

import json
import os
import statistics
import sys
import time

import torch

import clock


class Same(torch.utils.data.Dataset):
    """The same sample again and again."""

    def __init__(self, n):
        self.n, self.sample = n, torch.zeros(3, 224, 224)

    def __len__(self):
        return self.n

    def __getitem__(self, _):
        return self.sample


def main():
    n = int(sys.argv[1])
    torch.set_num_threads(1)
    walls, cpus = [], []
    batches = iter(torch.utils.data.DataLoader(Same(64 * (n + 8)), batch_size=64, num_workers=1, prefetch_factor=4))
    for _ in range(4):
        next(batches)
    worker = [pid for pid in clock.family(os.getpid()) if pid != os.getpid()]
    before = clock.cpu_s(worker)
    for _ in range(n):
        time.sleep(0.15)
        wall, cpu = time.perf_counter(), time.thread_time()
        batch = next(batches)
        del batch
        cpus.append(time.thread_time() - cpu)
        walls.append(time.perf_counter() - wall)
    print(
        json.dumps(
            {
                "batches": n,
                "wall_us": statistics.median(walls) * 1e6,
                "cpu_us": statistics.median(cpus) * 1e6,
                "worker_cpu_us": (clock.cpu_s(worker) - before) / n * 1e6,
            }
        )
    )


if __name__ == "__main__":
    main()

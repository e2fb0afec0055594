"""Data sets for test_serve.py, the same in the test and in the processes it starts; and the comparison of their
batches."""

import collections
import hashlib
import os
import signal
import threading

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset, get_worker_info

Pair = collections.namedtuple("Pair", "left right")


def plain(n=100, batch_size=8, **more):
    """(images, labels), 13 batches; the last has 4 rows."""
    images = torch.arange(n * 3 * 4 * 4, dtype=torch.float32).view(n, 3, 4, 4)
    return DataLoader(TensorDataset(images, torch.arange(n)), batch_size=batch_size, **more)


class Sentences(Dataset):
    """Token lists of different lengths, as from a tokenizer."""

    def __len__(self):
        return 60

    def __getitem__(self, i):
        return {"id": i, "tokens": list(range(i, i + 3 + i * 7 % 11)), "text": f"sentence {i} ü"}


class Stream(IterableDataset):
    """Samples that cannot be counted or started in the middle, a part of them for each worker."""

    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for i in range(first, 45, step):
            yield {"id": i, "sound": torch.full((3,), float(i))}


def stream(num_workers=0):
    return DataLoader(Stream(), batch_size=4, num_workers=num_workers)


def collate(samples):
    longest = max(len(s["tokens"]) for s in samples)
    ids = torch.zeros(len(samples), longest, dtype=torch.int64)
    for row, s in enumerate(samples):
        ids[row, : len(s["tokens"])] = torch.tensor(s["tokens"])
    return {
        "input_ids": ids,
        "attention_mask": (ids > 0),
        "text": [s["text"] for s in samples],
        "id": [s["id"] for s in samples],
    }


def sentences(num_workers=0):
    """Dicts with a new shuffle each epoch, padded to the longest of the batch."""
    data = Sentences()
    sampler = DistributedSampler(data, 1, 0, shuffle=True, seed=5)
    return DataLoader(data, batch_size=7, sampler=sampler, collate_fn=collate, num_workers=num_workers)


def odd():
    """A list of batches with every type that can be sent."""
    return [
        {
            "bf16": torch.full((2, 3), i + 0.5, dtype=torch.bfloat16),
            "u8": torch.arange(6, dtype=torch.uint8).view(2, 3) + i,
            "half": torch.ones(2, dtype=torch.float16) * i,
            "complex": torch.ones(2, dtype=torch.complex64) * 1j * i,
            "numpy": np.arange(6, dtype=">i4").reshape(2, 3).T + i,
            "sliced": torch.arange(24).view(2, 12)[:, ::3],
            "flags": np.array([True, False]),
            "scalar": torch.tensor(i),
            "empty": torch.empty(2, 0),
            "nothing": None,
            "f": 0.1 * i,
            "name": f"b{i}\n",
            "bytes": b"\0\xff" * i,
            "nested": [(1, torch.ones(2) * i), {"deep": [torch.zeros(1)]}],
            "pair": Pair(torch.ones(2), "right"),
            3: "three",
        }
        for i in range(4)
    ]


def digest(batch):
    """Structure, types and bytes of a batch as one text."""
    h = hashlib.blake2b(digest_size=12)

    def walk(value):
        if isinstance(value, torch.Tensor):
            h.update(f"T{value.dtype}{tuple(value.shape)}".encode())
            h.update(
                value.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
                if value.numel() and value.ndim
                else repr(value.tolist()).encode()
            )
        elif isinstance(value, np.ndarray):
            h.update(f"N{value.dtype.name}{value.shape}".encode())
            h.update(np.ascontiguousarray(value, value.dtype.newbyteorder("=")).tobytes())
        elif isinstance(value, dict):
            h.update(b"D")
            for key, item in value.items():
                h.update(repr(key).encode())
                walk(item)
        elif isinstance(value, (list, tuple)):
            h.update(f"{'L' if isinstance(value, list) else 'T'}{getattr(value, '_fields', '')}{len(value)}".encode())
            for item in value:
                walk(item)
        else:
            h.update(repr(value).encode())

    walk(batch)
    return h.hexdigest()


def epoch_of(loader, epoch):
    """The digests of an epoch, as torch itself gives it."""
    for thing in (loader, getattr(loader, "sampler", None)):
        if hasattr(thing, "set_epoch"):
            thing.set_epoch(epoch)
    return [digest(b) for b in loader]


LOCK = threading.Lock()


class Locked(Dataset):
    """Samples that are made under a lock of the process."""

    def __len__(self):
        return 12

    def __getitem__(self, i):
        with LOCK:
            return torch.tensor(i)


def locked():
    return DataLoader(Locked(), batch_size=4, shuffle=True)


def hanging():
    """Makes no batch, ever."""
    signal.pause()
    yield


class Stops:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(100):  # where its handler runs
            pass


def stopping_in_a_destructor():
    Stops()
    yield {"x": np.zeros(3)}

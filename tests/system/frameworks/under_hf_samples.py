"""The example of HuggingFace's Trainer on pictures in class folders, alone or on several ranks: each rank trains on the
rows that DistributedSampler deals out to it, and evaluates its part of the others. argv: the script, pictures, a folder."""

import torchvision_ops  # noqa: F401
import os
import pathlib
import runpy
import sys

from torch.utils.data import DistributedSampler

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import recorded  # noqa: E402

script, pictures, folder = sys.argv[1:4]
EPOCHS, SIZE = 2, 4
rank, world = (int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1)))
batches = []
recorded.note(batches)
options = ["--epochs", EPOCHS, "--batch-size", SIZE, "--out", f"{folder}/out"]
sys.argv = [script, pictures, *map(str, options)]
runpy.run_path(script, run_name="__main__")

n = sum(path.is_file() for path in pathlib.Path(pictures).rglob("*"))
n_eval = -(-n * 15 // 100)
run = recorded.Run(batches, "")
for number, n_rows, epochs, shuffle in ((0, n - n_eval, EPOCHS, True), (1, n_eval, 1, False)):
    sampler = DistributedSampler(range(n_rows), world, rank, shuffle=shuffle, seed=42)
    got = run.loader(number)
    assert len(got) == epochs, (number, got)
    for epoch, (rows, padding) in enumerate(got):
        sampler.set_epoch(epoch)
        assert rows == list(sampler), (number, epoch, rows)
        assert padding == (rank >= n_rows % world > 0), (number, epoch, padding)
print("held")

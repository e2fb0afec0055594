"""The first minutes with batchd. It needs what `pip install batchd` brings, nothing else:

python quickstart.py [FOLDER]                        FOLDER: images in one sub-folder per class; else some are made
torchrun --nproc-per-node=2 quickstart.py            the same with two ranks, which share one loader

Read it from top to bottom, or paste it into a notebook cell by cell (# %%).
"""

# %% Images: your own folder, or 200 that batchctl draws.
import os
import pathlib
import subprocess
import sys
import tempfile
import time

began = time.monotonic()
rank = int(os.environ.get("RANK", 0))
if len(sys.argv) > 1:
    folder = pathlib.Path(sys.argv[1])
else:
    folder = pathlib.Path(tempfile.gettempdir(), f"batchd-quickstart-{os.getuid()}")
    if rank == 0 and not (folder / "done").exists():
        folder.mkdir(exist_ok=True)
        batchctl = pathlib.Path(sys.executable).with_name("batchctl")
        command = str(batchctl) if batchctl.exists() else "batchctl"
        subprocess.run([command, "sample-data", "--quiet", "--force", str(folder / "pictures")], check=True)
        (folder / "done").touch()
    while not (folder / "done").exists():
        time.sleep(0.05)
    folder = folder / "pictures"

# %% A loader. The first one starts a daemon for you; it ends by itself five minutes after its last loader.
import batchd  # noqa: E402

loader = batchd.DataLoader(f"imagefolder:{folder}", batch_size=16, shuffle=True, seed=0, transform="train224")

# %% Batches, as tensors where torch is installed, else as numpy arrays, in memory that the daemon has filled.
images, labels = next(iter(loader))
print(
    f"rank {rank}: first batch {tuple(images.shape)} of {images.dtype} after {time.monotonic() - began:.2f} s",
    flush=True,
)

# %% Two epochs, in the order of torch's DistributedSampler.
for epoch in range(2):
    loader.set_epoch(epoch)
    epoch_began, n_images = time.monotonic(), 0
    for images, labels in loader:
        n_images += len(images)
    seconds = time.monotonic() - epoch_began
    print(f"rank {rank}: epoch {epoch}: {n_images} images, {n_images / seconds:.0f} images/s", flush=True)

# %% What the daemon does meanwhile: `batchctl status`, `batchctl top`. What stands in the way: `python -m batchd doctor`.

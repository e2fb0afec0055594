"""Lightning on two ranks: epochs 0, 1, 2 in torch's order, and a checkpoint of every step resumes to the batches that would have followed. argv: a folder."""

import torchvision_ops  # noqa: F401
import glob
import logging
import os
import sys
import warnings

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DistributedSampler

import batchd

N, BATCH, EPOCHS, STEPS = 24, 4, 3, 3
warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.seen = []

    def training_step(self, batch, index):
        images, labels = batch
        b = self.trainer.train_dataloader.last_batch
        self.seen.append((self.current_epoch, b.epoch, b.step, b.indices.tolist(), images.sum().item()))
        return self.layer(images).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.001)


def fit(checkpoint=None, **options):
    # Made before the trainer, which then makes the process group.
    loader = batchd.DataLoader(f"random:length={N},shape=2", BATCH, shuffle=True, seed=5)
    model = Model()
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        **options,
    )
    trainer.fit(model, loader, ckpt_path=checkpoint)
    loader.close()
    return model.seen


folder = sys.argv[1]
full = fit(callbacks=[ModelCheckpoint(folder, filename="{step}", every_n_train_steps=1, save_top_k=-1)])
rank = int(os.environ["RANK"])
for epoch in range(EPOCHS):
    sampler = DistributedSampler(range(N), 2, rank, shuffle=True, seed=5)
    sampler.set_epoch(epoch)
    mine = full[epoch * STEPS : (epoch + 1) * STEPS]
    assert [(e, f, s) for e, f, s, _, _ in mine] == [(epoch, epoch, s) for s in range(STEPS)], full
    assert [i for _, _, _, indices, _ in mine for i in indices] == list(sampler)
assert len(full) == EPOCHS * STEPS

checkpoints = sorted(
    glob.glob(os.path.join(folder, "*.ckpt")), key=lambda name: int(name.rpartition("=")[2].partition(".")[0])
)
assert len(checkpoints) == EPOCHS * STEPS, checkpoints
for step, checkpoint in enumerate(checkpoints, 1):
    rest = fit(checkpoint, enable_checkpointing=False)
    assert rest == full[step:], (step, rest, full[step:])
if rank == 0:
    print("held")

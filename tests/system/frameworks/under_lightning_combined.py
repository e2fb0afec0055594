"""Lightning's CombinedLoader, which iterates its shorter loader again in each of the trainer's epochs: a checkpoint of every
step resumes to the batches that would have followed. argv: a folder."""

import torchvision_ops  # noqa: F401
import glob
import logging
import os
import sys
import warnings

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

import batchd

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Model(lightning.LightningModule):
    def __init__(self, loaders):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.loaders, self.seen = loaders, []

    def training_step(self, batch, index):
        places = [(b.epoch, b.step, b.indices.tolist()) for b in (x.last_batch for x in self.loaders.values())]
        self.seen.append((self.current_epoch, places, [images.sum().item() for images, _ in batch.values()]))
        return self.layer(batch["a"][0]).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.001)


def fit(checkpoint=None, **options):
    loaders = {
        name: batchd.DataLoader(f"random:length={n},shape=2", 4, shuffle=True, seed=5)
        for name, n in (("a", 24), ("b", 48))
    }
    model = Model(loaders)
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    trainer.fit(model, loaders, ckpt_path=checkpoint)
    for loader in loaders.values():
        loader.close()
    return model.seen


folder = sys.argv[1]
full = fit(callbacks=[ModelCheckpoint(folder, filename="{step}", every_n_train_steps=1, save_top_k=-1)])
assert len(full) == 24, full
checkpoints = sorted(
    glob.glob(os.path.join(folder, "*.ckpt")), key=lambda name: int(name.rpartition("=")[2].partition(".")[0])
)
for step, checkpoint in enumerate(checkpoints, 1):
    rest = fit(checkpoint, enable_checkpointing=False)
    assert rest == full[step:], (step, rest[:2], full[step : step + 2])
print("held")

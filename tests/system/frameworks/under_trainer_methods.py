"""transformers' Trainer, alone and on several ranks, with loaders made in its methods only, behind Trainer.__init__: metrics
count each row once, whatever their number, and the loss is the rows' mean. argv: a folder."""

import torchvision_ops  # noqa: F401
import inspect
import os
import sys

import numpy
import torch
from transformers import Trainer, TrainingArguments

import batchd

rank, world = (int(os.environ.get(name, alone)) for name, alone in (("RANK", 0), ("WORLD_SIZE", 1)))


class Dictionaries:
    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        for images, labels in self.loader:
            yield {"x": images, "labels": labels, "index": torch.from_numpy(self.loader.last_batch.indices.copy())}

    def __len__(self):
        return len(self.loader)

    def set_epoch(self, epoch):
        self.loader.set_epoch(epoch)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x, labels, index):
        out = self.layer(x)
        return {"loss": out.mean(), "logits": index.float().unsqueeze(1) + 0 * out}


class Ours(Trainer):
    n = None

    def get_train_dataloader(self):
        return Dictionaries(batchd.DataLoader("random:length=40,shape=2", 4, shuffle=True))

    def get_eval_dataloader(self, dataset=None):
        return Dictionaries(batchd.DataLoader(f"random:length={self.n},shape=2", 8))


arguments = TrainingArguments(
    sys.argv[1],
    num_train_epochs=1,
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
    save_strategy="no",
    logging_strategy="no",
    ddp_backend="gloo" if world > 1 else None,
)
trainer = Ours(
    Model(),
    arguments,
    compute_metrics=lambda p: {"n": len(p.predictions), "distinct": len(numpy.unique(p.predictions))},
)
trainer.train()
assert "use_gather_object" in inspect.signature(trainer.accelerator.gather_for_metrics).parameters
for n in (97, 99, 16, 7, 1):
    trainer.n = n
    metrics = trainer.evaluate()
    assert (metrics["eval_n"], metrics["eval_distinct"]) == (n, n), metrics
trainer.n = 10 * world  # each rank has a batch of 8 rows and one of 2
loss = trainer.evaluate()["eval_loss"]
with batchd.DataLoader(
    f"random:length={trainer.n},shape=2", trainer.n, rank=0, world_size=1
) as loader, torch.no_grad():
    ((x, _),) = loader
    mean = trainer.model.layer(x).mean().item()
assert abs(loss - mean) < 1e-6, (loss, mean)
if rank == 0:
    print("held")

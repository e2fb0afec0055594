"""transformers' Trainer on two ranks, with the loader wrapped in an object that makes dictionaries: epochs, metrics
without padding, and a resume from a checkpoint. argv: a folder."""

import torchvision_ops  # noqa: F401
import os
import sys

import numpy
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import batchd

N, EPOCHS, STEPS = 24, 3, 3
rank = int(os.environ["RANK"])


class Dictionaries:
    """README: your own object with __iter__, __len__ and set_epoch."""

    def __init__(self, loader, seen=None):
        self.loader, self.seen = loader, seen

    def __iter__(self):
        for images, labels in self.loader:
            if self.seen is not None:
                b = self.loader.last_batch
                self.seen.append((b.epoch, b.step, b.indices.tolist()))
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


class KeepPlace(TrainerCallback):
    def __init__(self, loader):
        self.loader = loader

    def on_save(self, arguments, state, control, **more):
        torch.save(self.loader.state_dict(), os.path.join(arguments.output_dir, f"place-{state.global_step}"))


class Ours(Trainer):
    def get_train_dataloader(self):
        return self.ours

    def get_eval_dataloader(self, dataset=None):
        return Dictionaries(batchd.DataLoader("random:length=99,shape=2", 10))


def trainer(seen):
    loader = batchd.DataLoader(f"random:length={N},shape=2", 4, shuffle=True, seed=5)
    arguments = TrainingArguments(
        sys.argv[1],
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=4,
        save_steps=4,
        save_strategy="steps",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        ignore_data_skip=True,
        save_total_limit=None,
        logging_strategy="no",
        ddp_backend="gloo",
    )
    t = Ours(
        Model(),
        arguments,
        callbacks=[KeepPlace(loader)],
        compute_metrics=lambda p: {"n": len(p.predictions), "distinct": len(numpy.unique(p.predictions))},
    )
    t.ours = Dictionaries(loader, seen)
    return t, loader


full = []
t, _ = trainer(full)
t.train()
assert [(e, s) for e, s, _ in full] == [(e, s) for e in range(EPOCHS) for s in range(STEPS)], full
metrics = t.evaluate()
assert (metrics["eval_n"], metrics["eval_distinct"]) == (99, 99), metrics

rest = []
t, loader = trainer(rest)
assert get_last_checkpoint(sys.argv[1]).endswith("checkpoint-9")
checkpoint = os.path.join(sys.argv[1], "checkpoint-4")
loader.load_state_dict(torch.load(os.path.join(sys.argv[1], "place-4")))
t.train(resume_from_checkpoint=checkpoint)
assert rest == full[4:], (rest, full[4:])
if rank == 0:
    print("held")

"""Accelerate on any number of ranks: metrics without padding, accumulation that ends with the epoch, the same schedule
as with torch's loader, and skipping."""

import torchvision_ops  # noqa: F401
import torch
from accelerate import Accelerator
from torch.utils.data import TensorDataset

import batchd

N = 97
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
ranks = accelerator.num_processes


def rows(loader):
    return torch.from_numpy(loader.last_batch.indices.copy())


def train(loader, epochs, steps_per_epoch):
    """Where gradients were synchronised, and the learning rate after each step."""
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1, steps_per_epoch=steps_per_epoch, epochs=epochs)
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    synchronised, rates = [], []
    for epoch in range(epochs):
        for step, (images, _) in enumerate(loader):
            with accelerator.accumulate(model):
                accelerator.backward(model(images).sum())
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            rates.append(schedule.get_last_lr()[0])
            if accelerator.sync_gradients:
                synchronised.append((epoch, step))
    return synchronised, rates


# Gathering gives every sample once: of tensors, of nested ones, of objects; a value that is not one per row stays.
loader = accelerator.prepare(batchd.DataLoader(f"random:length={N},shape=2,classes=9", 10, shuffle=True))
tensors, objects, means = [], [], []
for images, labels in loader:
    indices, nested = accelerator.gather_for_metrics((rows(loader), {"labels": labels}))
    assert len(nested["labels"]) == len(indices)
    tensors += indices.tolist()
    objects += accelerator.gather_for_metrics([str(i) for i in rows(loader).tolist()], use_gather_object=True)
    means += accelerator.gather_for_metrics(images.mean().reshape(1)).tolist()
assert sorted(tensors) == sorted(map(int, objects)) == list(range(N)) and len(means) == ranks * len(loader)
assert not accelerator.gradient_state.in_dataloader

# An evaluation in the middle, an evaluation that is broken off, and a loader of one rank leave the outer loop's state
# unchanged.
for step, _ in enumerate(loader):
    if step == 1:
        small = batchd.DataLoader("random:length=9,shape=2", 2)
        assert sum(len(accelerator.gather_for_metrics(labels)) for _, labels in small) == 9
        for _ in small:
            break
        for _ in (whole := batchd.DataLoader("random:length=9,shape=2", 9, rank=0, world_size=1)):
            assert len(accelerator.gather_for_metrics(rows(whole))) == 9 * ranks
    assert accelerator.gradient_state.in_dataloader and accelerator.gradient_state.end_of_dataloader == (
        step + 1 == len(loader)
    )

# The same with the caller's own order, which has no padding.
own = batchd.DataLoader(
    f"random:length={N},shape=2", 10, sampler=range(accelerator.process_index, N - N % ranks, ranks)
)
seen = []
for _ in own:
    seen += accelerator.gather_for_metrics(rows(own)).tolist()
assert sorted(seen) == list(range(N - N % ranks))

# torch's loader, which Accelerate shards itself, has the same number of steps; README describes the schedule.
judge = torch.utils.data.DataLoader(TensorDataset(torch.zeros(N, 2), torch.zeros(N)), 10)
whole_steps = len(judge)
judge = accelerator.prepare(judge)
if ranks <= 2:  # with more ranks the numbers of steps differ by rounding
    assert train(loader, 2, len(loader) * ranks) == train(judge, 2, whole_steps)
synchronised, _ = train(loader, 2, len(loader) * ranks)
assert synchronised == [
    (e, s) for e in range(2) for s in range(len(loader)) if s % 4 == 3 or s + 1 == len(loader)
], synchronised

# Skipping starts the epoch at that batch; the next epoch is complete.
loader.set_epoch(7)
assert [loader.last_batch.step for _ in accelerator.skip_first_batches(loader, 2)] == list(
    range(2, len(loader))
) and loader.last_batch.epoch == 7
assert sum(1 for _ in loader) == len(loader) and loader.last_batch.epoch == 8
assert len(list(accelerator.skip_first_batches(own, 2))) == len(own) - 2 == len(accelerator.skip_first_batches(own, 2))
assert accelerator.prepare_data_loader(loader) is loader

if accelerator.is_main_process:
    print("held")

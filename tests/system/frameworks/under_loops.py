"""timm's and ignite's loops, and torchvision's and timm's pipelines as they are given to ImageFolder. argv: a folder of pictures."""

import torchvision_ops  # noqa: F401
import sys

import timm.data
import torch
import torchvision
from ignite.engine import Engine, Events
from timm.data.distributed_sampler import RepeatAugSampler
from torch.utils.data import DistributedSampler
from torchvision.transforms import v2
from torchvision.transforms import transforms as v1

import batchd

folder = sys.argv[1]


# timm's loop calls loader.sampler.set_epoch where there is one; its own sampler for repeated augmentation, on two ranks.
class Samples:
    def __len__(self):
        return 600


for rank in range(2):
    judge, sampler = (
        RepeatAugSampler(Samples(), 2, rank, shuffle=True, num_repeats=3, selected_round=0) for _ in range(2)
    )
    loader = batchd.DataLoader("random:length=600,shape=2", 16, sampler=sampler, rank=rank, world_size=2, job="repeats")
    for epoch in range(3, 5):
        judge.set_epoch(epoch)
        if hasattr(loader, "sampler") and hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        found = [i for _ in loader for i in loader.last_batch.indices.tolist()]
        assert found == list(map(int, judge)) and loader.last_batch.epoch == epoch

# ignite iterates the loader again each epoch, and continues after its end when it was given another epoch length.
loader = batchd.DataLoader("random:length=24,shape=2", 4, shuffle=True, seed=5)
seen = []
engine = Engine(
    lambda engine, batch: seen.append(
        (engine.state.epoch - 1, loader.last_batch.epoch, loader.last_batch.indices.tolist())
    )
)
engine.add_event_handler(Events.EPOCH_STARTED, lambda engine: loader.set_epoch(engine.state.epoch - 1))
engine.run(loader, max_epochs=3)
for epoch in range(3):
    sampler = DistributedSampler(range(24), 1, 0, shuffle=True, seed=5)
    sampler.set_epoch(epoch)
    mine = [(e, i) for outer, e, i in seen if outer == epoch]
    assert {e for e, _ in mine} == {epoch} and [i for _, part in mine for i in part] == list(sampler)

# Pipelines given as objects: v1's pixels are torchvision's own; README says how far v2's differ.
to_tensor = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
normalize = dict(mean=[0.485, 0.456, 0.406], std=(0.229, 0.224, 0.225))
for transform, tolerance in (
    (v1.Compose([v1.Resize(64), v1.CenterCrop(56), v1.ToTensor(), v1.Normalize(**normalize)]), 1e-6),
    (torchvision.models.ResNet50_Weights.IMAGENET1K_V2.transforms(crop_size=56, resize_size=64), 1e-6),
    (timm.data.create_transform(56, interpolation="bicubic", crop_pct=0.875), 1e-6),
    (v2.Compose([v2.Resize(64), v2.CenterCrop(56), *to_tensor, v2.Normalize(**normalize)]), 1e-6),
    (
        v2.Compose(
            [v2.ToImage(), v2.Resize(64, antialias=True), v2.CenterCrop(56), v2.ToDtype(torch.float32, scale=True)]
        ),
        1.01 / 255,
    ),
):
    judge = torchvision.datasets.ImageFolder(folder, transform)
    loader = batchd.DataLoader(f"imagefolder:{folder}", 16, transform=transform)
    for images, _ in loader:
        for image, i in zip(images, loader.last_batch.indices):
            assert torch.allclose(image, judge[int(i)][0], rtol=0, atol=tolerance), (
                transform,
                (image - judge[int(i)][0]).abs().max(),
            )
for transform in (v1.Resize(64, antialias=False), v2.Resize(64, antialias=False)):
    try:
        batchd.DataLoader(f"imagefolder:{folder}", 16, transform=[transform, "ToTensor"])
        raise AssertionError("antialias=False was taken")
    except ValueError as e:
        assert "antialias=False" in str(e)
batchd.DataLoader(
    f"imagefolder:{folder}",
    16,
    transform=timm.data.create_transform(56, is_training=True, interpolation="bilinear", color_jitter=0.4),
).close()
print("held")

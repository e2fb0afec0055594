"""torchvision for these scripts, which have to import this first: its wheels for a GPU cannot load their operators beside a torch without, and its import then
fails for want of two of them. Its transforms, which is all that is used here, need none."""

import sys

import torch

try:
    import torchvision
except RuntimeError:
    for name in [n for n in sys.modules if n.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision  # noqa: F401

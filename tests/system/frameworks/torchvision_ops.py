"""torchvision for these scripts, which have to import this first: its wheels for a GPU cannot load their operators
beside a torch without CUDA, and its import then fails because two of them are missing. These scripts use only its
transforms, which need no operators."""

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

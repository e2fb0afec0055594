"""Transforms of torchvision that are no ops of the daemon, and what to write instead."""

_BATCH = "mixes rows of a batch, which a pipeline for one image cannot: apply it to the loader's batches"
_BOXES = (
    "works on boxes or key points, and a loader makes pictures and labels: leave it out, or do it in the training loop"
)
_VIEWS = "makes several pictures of one: give one pipeline for each picture"
_INSTEAD = {
    "CutMix": _BATCH,
    "MixUp": _BATCH,
    "ClampBoundingBoxes": _BOXES,
    "ClampKeyPoints": _BOXES,
    "ConvertBoundingBoxFormat": _BOXES,
    "RandomIoUCrop": _BOXES,
    "SanitizeBoundingBoxes": _BOXES,
    "SanitizeKeyPoints": _BOXES,
    "SetClampingMode": _BOXES,
    "FiveCrop": _VIEWS,
    "TenCrop": _VIEWS,
    "JPEG": "compresses a picture and decodes it again, which no op does: store pictures of that quality",
    "Lambda": "is Python, which the daemon does not run: use torchvision's own transforms or their names",
    "LinearTransformation": "multiplies all numbers of a picture by a matrix: do it on the GPU, with the loader's batches",
    "UniformTemporalSubsample": "is for videos, and a loader makes pictures",
}
_OUTLET = "; or share a DataLoader of yours by batchd.serve"


def check(name):
    if name in _INSTEAD:
        raise TypeError(f"transform: {name} {_INSTEAD[name]}{_OUTLET}")

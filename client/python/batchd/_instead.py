"""Transforms that are no ops of the daemon, and what to write instead."""

_BATCH = "mixes rows of a batch, which a pipeline for one image cannot: give it to the DataLoader as mix="
_BOXES = (
    "works on boxes or key points, and a loader makes images and labels: leave it out, or do it in the training loop"
)
_VIEWS = "makes several images of one: give one pipeline for each image"
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
    "JPEG": "compresses an image and decodes it again, which no op does: store images of that quality",
    "Lambda": "is Python, which the daemon does not run: use torchvision's own transforms or their names, or do it in the training loop or in collate_fn",
    "LinearTransformation": "multiplies all numbers of an image by a matrix: do it on the GPU, with the loader's batches",
    "UniformTemporalSubsample": "is for videos, and a loader makes images",
}
_OUTLET = "; or share your own DataLoader by batchd.serve"


def check(name):
    if name in _INSTEAD:
        raise TypeError(f"transform: {name} {_INSTEAD[name]}{_OUTLET}")


# What classes of well-known recipes are in words, by their names there (MoCo, DINO, SimCLR, DeiT).
_IN_WORDS = {
    "GaussianBlur": '["PillowGaussianBlur", [0.1, 2.0], p]',
    "PILRandomGaussianBlur": '["PillowGaussianBlur", [0.1, 2.0], p]',
    "RandomApply": "torchvision.transforms.RandomApply([transform], p)",
    "Solarize": '["RandomSolarize", 128, p]',
    "Solarization": '["RandomSolarize", 128, p]',
    "gray_scale": '["RandomGrayscale", p]',
    "RandomGaussianBlur": '["PillowGaussianBlur", [0.1, 2.0], p]',
    "TwoCropsTransform": "batchd.views(base_transform, n=2)",
    "DataAugmentationDINO": "batchd.views(global1, global2, *[local] * 8)",
    "DataAugmentationForBEiT": 'batchd.views([["SharedByViews", [crop for the patches]], ...], [["SharedByViews", [crop for the '
    "tokens]], ...]), draw the masks in the training loop",
    "SimMIMTransform": "its transform_img, draw the masks in the training loop",
    "MaskTransform": "its transform_img, draw the masks in the training loop",
}
# Libraries whose objects work on something else than one Pillow image, by the first word of their modules.
_SERVE = "or share your own DataLoader that uses it by batchd.serve"
_LIBRARIES = {
    "albumentations": "albumentations' own Python on numpy arrays: write torchvision's classes or their names (HorizontalFlip is "
    f"RandomHorizontalFlip, RandomResizedCrop has torchvision's name), {_SERVE}",
    "fastai": f"fastai's own Python: give its batch_tfms the loader's batches, {_SERVE}",
    "fastcore": f"fastai's own Python: give its batch_tfms the loader's batches, {_SERVE}",
    "imgaug": f"imgaug's own Python on numpy arrays: write torchvision's classes or their names, {_SERVE}",
    "keras": f"made for tensors of Keras: write torchvision's classes or their names, {_SERVE}",
    "kornia": "made for batches of tensors: give the loader what comes before it, and call it on the loader's batches, on a GPU if "
    f"there is one (images = augment(images)), {_SERVE}",
    "monai": f"MONAI's own Python: write torchvision's classes or their names, {_SERVE}",
    "transformers": "an image processor: write what it does in words, with its size, image_mean and image_std, such as "
    '[["RandomResizedCrop", size], "ToTensor", ["Normalize", processor.image_mean, processor.image_std]], or use torchvision\'s classes',
}


def foreign(entry, outlet):
    """The message for an object that is not known."""
    if entry is None:
        return "transform: None stands where an operation is expected: leave it out"
    if isinstance(entry, type):
        return f"transform: {entry.__name__} is a class, and an object of it is expected: write {entry.__name__}(...)"
    kind = type(entry)
    if kind.__module__ == "batchd._views":
        return (
            "transform: views stand inside of other views: name all pipelines in one call, batchd.views(a, a, b) in place of "
            "batchd.views(batchd.views(a, n=2), b), or give a dictionary of views"
        )
    module = kind.__module__.partition(".")[0]
    name = getattr(entry, "__qualname__", kind.__qualname__)
    if module in _LIBRARIES:
        return f"transform: {name} of {module} is {_LIBRARIES[module]}"
    words = _blur(entry) if kind.__name__ == "GaussianBlur" else _IN_WORDS.get(kind.__name__)
    instead = f"write {words}" if words else "use torchvision's own transforms or their names"
    what = f"the function {name}" if hasattr(entry, "__qualname__") else f"{name} of the module {kind.__module__}"
    return f"transform: {what} is Python, which the daemon does not run: {instead}, {outlet}"


def _blur(entry):
    """In words: SimCLR's and BYOL's blurs are convolutions with a kernel, which torchvision's is within 1/255 and OpenCV's
    about so. Other classes of this name are Pillow's."""
    size, least, most = (getattr(entry, name, None) for name in ("kernel_size", "min", "max"))
    if hasattr(entry, "blur_h"):  # SimCLR
        size = getattr(entry, "k", None) or max(entry.blur_h.kernel_size)
        return f'["GaussianBlur", {size}, [0.1, 2.0]]'
    if isinstance(size, int) and None not in (least, most):  # BYOL, PyContrast: OpenCV, half of the pictures
        return f'["RandomApply", [["GaussianBlur", {size | 1}, [{least}, {most}]]], 0.5]'
    return _IN_WORDS["GaussianBlur"]

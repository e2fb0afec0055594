"""The other loaders, each as its documentation recommends for CPU-only loading. All make the same: batches of float32
NCHW, normalised, with labels.

A peer is a class with: __init__(options), which raises when it cannot run here; version; epoch(e), a generator of the
batches of one epoch.
"""

import glob
import os
import pathlib
import sys

import numpy

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "demo"), str(TESTS / "support")]

from vision import import_torchvision  # noqa: E402

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Options:
    """What to load: data, transform ("train224" or "val224"), batch_size, workers, and scratch, a folder for the files
    that a peer must prepare."""

    def __init__(self, **named):
        self.__dict__.update(named)


class Torch:
    """PyTorch's DataLoader over Pillow; torchvision's transforms where it can be imported, otherwise the same written
    out (tests/demo/baseline.py)."""

    def __init__(self, o):
        import baseline
        import torch
        import PIL

        torch.set_num_threads(1)
        self.version = f"torch {torch.__version__}, Pillow {PIL.__version__}"
        transform = getattr(baseline, o.transform)
        try:
            transform = self.torchvision_transform(o.transform)
        except ImportError:
            self.version += ", no torchvision"
        self.loader = baseline.loader(
            o.data, o.batch_size, 0, 1, o.workers, transform, shuffle=o.transform == "train224"
        )

    def torchvision_transform(self, name):
        import torch

        torchvision = import_torchvision()
        v2 = torchvision.transforms.v2
        self.version += f", torchvision {torchvision.__version__}"
        first = (
            [v2.RandomResizedCrop(224), v2.RandomHorizontalFlip()]
            if name == "train224"
            else [v2.Resize(256), v2.CenterCrop(224)]
        )
        return v2.Compose([*first, v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])

    def epoch(self, e):
        self.loader.sampler.set_epoch(e)
        yield from self.loader


class Dali:
    """NVIDIA DALI's CPU pipeline."""

    def __init__(self, o):
        import nvidia.dali
        from nvidia.dali import fn, pipeline_def, types as dali

        self.version = f"DALI {nvidia.dali.__version__}"
        n = sum(len(files) for _, _, files in os.walk(o.data))

        @pipeline_def(batch_size=o.batch_size, num_threads=o.workers, device_id=None, prefetch_queue_depth=2)
        def pipeline():
            files, labels = fn.readers.file(file_root=o.data, random_shuffle=o.transform == "train224", name="reader")
            if o.transform == "train224":
                images = fn.decoders.image_random_crop(
                    files, device="cpu", random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3]
                )
                images = fn.resize(images, size=[224, 224], interp_type=dali.INTERP_LINEAR, antialias=True)
                mirror = fn.random.coin_flip()
            else:
                images = fn.decoders.image(files, device="cpu")
                images = fn.resize(images, resize_shorter=256, interp_type=dali.INTERP_LINEAR, antialias=True)
                mirror = 0
            images = fn.crop_mirror_normalize(
                images,
                dtype=dali.FLOAT,
                output_layout="CHW",
                crop=(224, 224),
                mirror=mirror,
                mean=[255 * m for m in MEAN],
                std=[255 * s for s in STD],
            )
            return images, labels

        self.pipeline = pipeline()
        self.pipeline.build()
        self.n_batches = -(-n // o.batch_size)

    def epoch(self, _):
        for _ in range(self.n_batches):
            images, labels = self.pipeline.run()
            yield images.as_tensor(), labels.as_tensor()


class Spdl:
    """SPDL: FFmpeg's decoder and scaler on a thread pool."""

    def __init__(self, o):
        import importlib.metadata
        import random
        import spdl.io
        from spdl.pipeline import PipelineBuilder

        self.version = f"SPDL {importlib.metadata.version('spdl')}"
        self.io, self.builder, self.o, self.random = spdl.io, PipelineBuilder, o, random
        classes = sorted(os.listdir(o.data))
        self.samples = [
            (f, c)
            for c, name in enumerate(classes)
            for f in sorted(glob.glob(os.path.join(glob.escape(o.data), name, "*")))
        ]

    def crop(self):
        """RandomResizedCrop and a flip as an FFmpeg filter; iw and ih are the picture's size."""
        r = self.random
        area, aspect = r.uniform(0.08, 1.0), numpy.exp(r.uniform(numpy.log(3 / 4), numpy.log(4 / 3)))
        flip = ",hflip" if r.random() < 0.5 else ""
        return (
            f"crop=w='min(iw,sqrt(iw*ih*{area * aspect:.6f}))':h='min(ih,sqrt(iw*ih*{area / aspect:.6f}))'"
            f":x='(iw-ow)*{r.random():.6f}':y='(ih-oh)*{r.random():.6f}',scale=224:224:flags=bilinear{flip},format=pix_fmts=rgb24"
        )

    def load(self, sample):
        path, label = sample
        if self.o.transform == "train224":
            filters = self.crop()
        else:
            filters = "scale=w='if(gt(iw,ih),-1,256)':h='if(gt(iw,ih),256,-1)':flags=bilinear,crop=224:224,format=pix_fmts=rgb24"
        return self.io.to_numpy(self.io.load_image(path, filter_desc=filters)), label

    def batch(self, samples):
        images = numpy.empty((len(samples), 3, 224, 224), numpy.float32)
        for row, (image, _) in zip(images, samples):
            numpy.multiply(
                image.transpose(2, 0, 1), 1 / (255 * numpy.array(STD, numpy.float32))[:, None, None], out=row
            )
            row -= (numpy.array(MEAN, numpy.float32) / numpy.array(STD, numpy.float32))[:, None, None]
        return images, numpy.array([label for _, label in samples])

    def epoch(self, e):
        samples = list(self.samples)
        if self.o.transform == "train224":
            self.random.Random(e).shuffle(samples)
        pipeline = (
            self.builder()
            .add_source(samples)
            .pipe(self.load, concurrency=self.o.workers)
            .aggregate(self.o.batch_size)
            .pipe(self.batch)
            .add_sink(2)
            .build(num_threads=self.o.workers)
        )
        with pipeline.auto_stop():
            yield from pipeline.get_iterator()


class Ffcv:
    """FFCV, on its own copy of the data: JPEG re-encoded at quality 90 into one file."""

    def __init__(self, o):
        import importlib.metadata
        import torch
        from ffcv.fields import IntField, RGBImageField
        from ffcv.fields.basics import IntDecoder
        from ffcv.fields.rgb_image import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
        from ffcv.loader import Loader, OrderOption
        from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage
        from ffcv.writer import DatasetWriter

        import baseline

        torch.set_num_threads(1)
        self.version = f"FFCV {importlib.metadata.version('ffcv')}"
        beton = os.path.join(o.scratch, "ffcv.beton")
        if not os.path.exists(beton):
            fields = {"image": RGBImageField(write_mode="jpg", jpeg_quality=90), "label": IntField()}
            DatasetWriter(beton, fields, num_workers=o.workers).from_indexed_dataset(
                Raw(baseline.ImageFolder(o.data, None))
            )
        train = o.transform == "train224"
        decoder = (
            RandomResizedCropRGBImageDecoder((224, 224)) if train else CenterCropRGBImageDecoder((224, 224), 224 / 256)
        )
        normalize = NormalizeImage(255 * numpy.array(MEAN), 255 * numpy.array(STD), numpy.float32)
        pipelines = {
            "image": [
                decoder,
                *([RandomHorizontalFlip()] if train else []),
                normalize,
                ToTensor(),
                ToTorchImage(convert_back_int16=False),
            ],
            "label": [IntDecoder(), ToTensor()],
        }
        self.loader = Loader(
            beton,
            batch_size=o.batch_size,
            num_workers=o.workers,
            os_cache=True,
            drop_last=False,
            pipelines=pipelines,
            order=OrderOption.RANDOM if train else OrderOption.SEQUENTIAL,
        )

    def epoch(self, _):
        yield from self.loader


class Raw:
    """Pictures and labels of an image folder, for FFCV's writer."""

    def __init__(self, folder):
        self.samples = folder.samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        from PIL import Image

        path, label = self.samples[i]
        return Image.open(path).convert("RGB"), label


PEERS = {"PyTorch": Torch, "DALI": Dali, "SPDL": Spdl, "FFCV": Ffcv}

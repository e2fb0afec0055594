"""Training batches from the batchd daemon, without copies.

    loader = batchd.DataLoader("imagefolder:/data/train", batch_size=64, shuffle=True)
    for images, labels in loader: ...

help(batchd.DataLoader) and help(batchd.serve) describe every argument.
"""

from ._lib import status
from ._verdict import Verdict
from ._version import VERSION as __version__
from .errors import (
    AccessError,
    BadDataError,
    BehindError,
    ConnectError,
    Error,
    FencedError,
    ForkedError,
    GpuError,
    InvalidError,
    LimitError,
    LostError,
    MismatchError,
    NotFoundError,
    ProducerError,
    ProtocolError,
    ShutdownError,
    StalledError,
)
from ._dlpack import Array
from ._fields import Field, Ragged
from ._batch import Batch
from ._blend import blend
from ._load import load
from ._mix import CutMix, MixUp, RandomChoice
from ._views import aug_splits, views
from .loader import DataLoader
from .samplers import WeightedSampler
from .serve import Producer, serve

__all__ = [
    "DataLoader",
    "Batch",
    "Array",
    "Field",
    "Ragged",
    "WeightedSampler",
    "MixUp",
    "CutMix",
    "RandomChoice",
    "Producer",
    "load",
    "blend",
    "serve",
    "aug_splits",
    "views",
    "status",
    "Verdict",
    "Error",
    "AccessError",
    "BadDataError",
    "BehindError",
    "ConnectError",
    "FencedError",
    "ForkedError",
    "GpuError",
    "InvalidError",
    "LimitError",
    "LostError",
    "MismatchError",
    "NotFoundError",
    "ProducerError",
    "ProtocolError",
    "ShutdownError",
    "StalledError",
]

"""Training batches from the batchd daemon, without copies.

    loader = batchd.DataLoader("imagefolder:/data/train", batch_size=64, shuffle=True)
    for images, labels in loader: ...
"""
from ._lib import status
from ._version import VERSION as __version__
from .errors import (AccessError, BadDataError, BehindError, ConnectError, Error, FencedError, ForkedError, GpuError, InvalidError, LimitError,
                     LostError, MismatchError, NotFoundError, ProtocolError, ShutdownError, StalledError)
from .loader import Batch, DataLoader

__all__ = ["DataLoader", "Batch", "status", "Error", "AccessError", "BadDataError", "BehindError", "ConnectError", "FencedError",
           "ForkedError", "GpuError", "InvalidError", "LimitError", "LostError", "MismatchError", "NotFoundError", "ProtocolError", "ShutdownError",
           "StalledError"]

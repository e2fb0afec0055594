"""Time from a trainer's first call to its first batch: first_batch.py batchd|PyTorch 'JSON of peers.Options'. Imports
happen before the clock starts."""

import json
import sys
import time

from peers import Options, Torch

name, options = sys.argv[1], Options(**json.loads(sys.argv[2]))
if name == "batchd":
    from ours import Batchd as Loader
    import batchd  # noqa: F401

    try:
        import torch  # noqa: F401 a trainer has loaded it long before
    except ImportError:
        pass
else:
    Loader = Torch
    Torch(options)
began = time.perf_counter()
next(iter(Loader(options).epoch(0)))
print(json.dumps({"ms": 1000 * (time.perf_counter() - began)}))

"""Loaders of plain arrays, for comparison with "npy:" data sets: PyTorch's way, and the single gather copy that no
loader can avoid."""

import numpy


class TensorDataset:
    """torch.utils.data.DataLoader over a TensorDataset, num_workers=0: the usual code for features that fit into
    memory."""

    def __init__(self, o):
        import torch

        torch.set_num_threads(1)
        self.version = f"torch {torch.__version__}"
        features, labels = (torch.from_numpy(numpy.load(path)) for path in o.files)
        data = torch.utils.data.TensorDataset(features, labels)
        self.loader = torch.utils.data.DataLoader(data, o.batch_size, shuffle=True, num_workers=0)

    def epoch(self, _):
        yield from self.loader


class Gather:
    """One numpy.take per batch into the same buffer."""

    def __init__(self, o):
        self.version = f"numpy {numpy.__version__}"
        self.features, self.labels = (numpy.load(path) for path in o.files)
        self.batch_size = o.batch_size

    def epoch(self, e):
        order = numpy.random.default_rng(e).permutation(len(self.features))
        out = numpy.empty((self.batch_size, *self.features.shape[1:]), self.features.dtype)
        for i in range(0, len(order), self.batch_size):
            rows = order[i : i + self.batch_size]
            numpy.take(self.features, rows, 0, out[: len(rows)])
            yield out[: len(rows)], self.labels[rows]


ARRAYS = {"TensorDataset": TensorDataset, "gather": Gather}

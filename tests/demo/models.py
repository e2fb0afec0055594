"""Two small classifiers for the demonstration: a convolutional one that PyTorch trains on all ranks together, and a softmax regression in numpy.

Small on purpose: the demonstration is about loading, and most of the CPU should go there.
Both take float32 NCHW images and int64 labels; step() returns (sum of losses, number of right answers).
"""
import os

import numpy


class TorchModel:
    name = "PyTorch: small convolutional network under DistributedDataParallel"

    def __init__(self, n_classes, rank, world_size, rendezvous):
        import torch
        import torch.distributed

        self.torch = torch
        torch.set_num_threads(1)
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            torch.nn.AvgPool2d(4), torch.nn.Conv2d(3, 24, 5, stride=2, padding=2), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(24, 48, 3, padding=1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(),
            torch.nn.Linear(48 * 16, n_classes))
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        torch.distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world_size)
        self.net = torch.nn.parallel.DistributedDataParallel(net)
        self.optimizer = torch.optim.Adam(self.net.parameters(), 2e-3)

    def step(self, images, labels):
        self.optimizer.zero_grad()
        scores = self.net(images)
        loss = self.torch.nn.functional.cross_entropy(scores, labels)
        loss.backward()
        self.optimizer.step()
        return loss.item() * len(labels), int((scores.detach().argmax(1) == labels).sum())

    def finish(self):
        del self.net
        self.torch.distributed.barrier()  # gloo does not like a peer that is still talking when its group goes
        self.torch.distributed.destroy_process_group()


class NumpyModel:
    name = "numpy: softmax regression on pooled pixels, every rank its own"

    def __init__(self, n_classes, *_):
        self.weights = numpy.zeros((3 * 14 * 14 + 1, n_classes), numpy.float32)
        self.velocity = numpy.zeros_like(self.weights)

    def step(self, images, labels):
        images, labels = numpy.asarray(images), numpy.asarray(labels)
        n = len(labels)
        pooled = images.reshape(n, 3, 14, 16, 14, 16).mean((3, 5)).reshape(n, -1)
        features = numpy.hstack([pooled, numpy.ones((n, 1), numpy.float32)])
        scores = features @ self.weights
        scores -= scores.max(1, keepdims=True)
        chances = numpy.exp(scores)
        chances /= chances.sum(1, keepdims=True)
        loss = -numpy.log(chances[numpy.arange(n), labels] + 1e-9).sum()
        right = int((scores.argmax(1) == labels).sum())
        chances[numpy.arange(n), labels] -= 1
        self.velocity = 0.9 * self.velocity - 0.02 / n * (features.T @ chances)
        self.weights += self.velocity
        return float(loss), right

    def finish(self):
        pass


def make(n_classes, rank, world_size, rendezvous):
    try:
        import torch.distributed
        return TorchModel(n_classes, rank, world_size, rendezvous) if torch.distributed.is_available() else NumpyModel(n_classes)
    except ImportError:
        return NumpyModel(n_classes)

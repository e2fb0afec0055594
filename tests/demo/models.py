"""Two small classifiers for the demonstration: a convolutional one that PyTorch trains on all ranks together, and a
regression on colours in numpy.

Small on purpose: the demonstration is about loading, and most of the CPU should be used for that. Both take float32
NCHW images and int64 labels; step() returns (sum of losses, number of right answers).
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
            torch.nn.AvgPool2d(4),
            torch.nn.Conv2d(3, 24, 5, stride=2, padding=2),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(24, 48, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(4),
            torch.nn.Flatten(),
            torch.nn.Linear(48 * 16, n_classes),
        )
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world_size
        )
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
        self.torch.distributed.barrier()  # gloo fails if a peer still communicates when its group ends
        self.torch.distributed.destroy_process_group()


class NumpyModel:
    """Classifies a picture by its share of each hue. That ignores positions, so it learns within an epoch, faster than
    from pixels."""

    name = "numpy: softmax regression on hues, every rank its own (PyTorch would train a small convolutional network)"
    N_HUES = 24
    MEAN = numpy.array([0.485, 0.456, 0.406], numpy.float32).reshape(3, 1, 1)
    STD = numpy.array([0.229, 0.224, 0.225], numpy.float32).reshape(3, 1, 1)

    def __init__(self, n_classes, *_):
        self.weights = numpy.zeros((self.N_HUES + 1, n_classes), numpy.float32)
        self.n_steps, self.mean, self.square = 0, numpy.zeros_like(self.weights), numpy.zeros_like(self.weights)

    def features(self, images):
        """The share of each hue among a picture's pooled colours; pale colours count less."""
        pooled = images.reshape(len(images), 3, 14, 16, 14, 16).mean((3, 5)) * self.STD + self.MEAN
        red, green, blue = pooled.transpose(1, 0, 2, 3)
        angle = numpy.arctan2((green - blue) * numpy.sqrt(0.75), red - (green + blue) / 2)
        hues = ((angle / (2 * numpy.pi) + 0.5) * self.N_HUES).astype(int) % self.N_HUES
        amounts = (pooled.max(1) - pooled.min(1)) ** 2
        shares = numpy.stack([numpy.bincount(h.ravel(), a.ravel(), self.N_HUES) for h, a in zip(hues, amounts)])
        shares /= shares.sum(1, keepdims=True) + 1e-3
        return numpy.hstack([shares, numpy.ones((len(images), 1))]).astype(numpy.float32)

    def descend(self, gradient):
        """One step of Adam."""
        self.n_steps += 1
        self.mean = 0.9 * self.mean + 0.1 * gradient
        self.square = 0.99 * self.square + 0.01 * gradient**2
        self.weights -= (
            0.2 * self.mean / (1 - 0.9**self.n_steps) / (numpy.sqrt(self.square / (1 - 0.99**self.n_steps)) + 1e-4)
        )

    def step(self, images, labels):
        images, labels = numpy.asarray(images), numpy.asarray(labels)
        rows = numpy.arange(len(labels))
        features = self.features(images)
        scores = features @ self.weights
        scores -= scores.max(1, keepdims=True)
        chances = numpy.exp(scores)
        chances /= chances.sum(1, keepdims=True)
        loss = -numpy.log(chances[rows, labels] + 1e-9).sum()
        right = int((scores.argmax(1) == labels).sum())
        chances[rows, labels] -= 1
        self.descend(features.T @ chances / len(labels))
        return float(loss), right

    def finish(self):
        pass


def make(n_classes, rank, world_size, rendezvous):
    try:
        import torch.distributed

        return (
            TorchModel(n_classes, rank, world_size, rendezvous)
            if torch.distributed.is_available()
            else NumpyModel(n_classes)
        )
    except ImportError:
        return NumpyModel(n_classes)

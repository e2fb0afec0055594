"""The AugMix example: its views are what they should be, and its loss is timm's."""

import importlib.util

import pytest
from daemons import REPO
from vision import import_torchvision

import batchd

torch = pytest.importorskip("torch")


def example():
    spec = importlib.util.spec_from_file_location("augmix_jsd", REPO / "client" / "examples" / "augmix_jsd.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_views_are_one_clean_and_two_of_augmix(daemon, samples):
    """Three pictures of each sample; AugMix leaves its traces in two."""
    loader = batchd.DataLoader(f"imagefolder:{samples}", 16, transform=example().splits(), arrays="torch")
    views, labels = next(iter(loader))
    assert [tuple(v.shape) for v in views] == [(16, 3, 64, 64)] * 3 and labels.shape == (16,)
    for row in range(16):
        assert len({v[row].numpy().tobytes() for v in views}) == 3


def test_the_loss_is_timms():
    """timm's JsdCrossEntropy over the same predictions."""
    import_torchvision()
    timm_loss = pytest.importorskip("timm.loss", reason="needs timm")
    torch.manual_seed(1)
    logits, labels = torch.randn(24, 5), torch.randint(0, 5, (8,))
    want = timm_loss.JsdCrossEntropy(num_splits=3, alpha=12, smoothing=0)(logits, labels)
    views = logits.chunk(3)
    got = torch.nn.functional.cross_entropy(views[0], labels) + 12 * example().consistency(views)
    assert torch.allclose(want, got, atol=1e-5)

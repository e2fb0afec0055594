"""Contrastive training on image-text pairs in WebDataset's shards, in the shape of OpenCLIP's loop.

    torchrun --nproc-per-node 2 pairs_tar.py '/data/cc3m/{00000..00331}.tar'

The loader replaces the two lines of webdataset that stand beside it; upstream.py runs OpenCLIP's own training with a
loader in place of its get_wds_dataset. Each pair comes once per epoch on any number of ranks, and state_dict goes on
in mid-epoch.
"""

import sys

import torch

import batchd


class Towers(torch.nn.Module):
    """A small stand-in for CLIP: an image and a bag of bytes each become a unit vector."""

    def __init__(self, width=64):
        super().__init__()
        self.image = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 7, 4),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(4),
            torch.nn.Flatten(),
            torch.nn.Linear(256, width),
        )
        self.text = torch.nn.EmbeddingBag(256, width)
        self.scale = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, images, texts):
        words = [torch.tensor(list(t.encode()) or [0]) for t in texts]
        offsets = torch.tensor([0, *(len(w) for w in words[:-1])]).cumsum(0)
        x = torch.nn.functional.normalize(self.image(images), dim=1)
        y = torch.nn.functional.normalize(self.text(torch.cat(words), offsets), dim=1)
        return self.scale.exp() * x @ y.T


def main(shards, epochs=2, batch_size=32):
    # dataset = wds.WebDataset(shards, ...).decode("pil").to_tuple("jpg;png", "txt").map_tuple(transform, None)
    # loader = wds.WebLoader(dataset, batch_size=batch_size, num_workers=8)
    loader = batchd.DataLoader(
        f"tar:{shards}",
        fields={"image": "jpg;png;webp", "text": "txt"},
        batch_size=batch_size,
        shuffle=True,
        drop_last=True,
        transform="train224",
    )
    model = Towers()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        for batch in loader:
            logits = model(batch["image"], batch["text"])
            target = torch.arange(len(logits))
            loss = (
                torch.nn.functional.cross_entropy(logits, target) + torch.nn.functional.cross_entropy(logits.T, target)
            ) / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:2])

"""A small GPT on a file of tokens, as nanoGPT trains: train_tokens.py TRAIN.BIN [--steps 100] [--out CHECKPOINT]

A small script in the manner of karpathy/nanoGPT, whose train.py has these lines, which the loader replaces:

    data = np.memmap(os.path.join(data_dir, 'train.bin'), dtype=np.uint16, mode='r')  # get_batch
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy((data[i:i+block_size]).astype(np.int64)) for i in ix])  # y: one token on
    X, Y = get_batch('train')

upstream.py runs that train.py itself with our loader.

A checkpoint has the loader's position besides: a run that is resumed draws the windows that the other would have drawn.
"""

import argparse
import os

import torch
from torch import nn

import batchd


class GPT(nn.Module):
    def __init__(self, n_vocab, length, width=64, heads=4, layers=2):
        super().__init__()
        self.tokens, self.places = nn.Embedding(n_vocab, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, n_vocab, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, x, y):
        h = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        logits = self.head(self.body(h, self.mask, is_causal=True))
        return nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--vocab", type=int, default=50304)
    parser.add_argument("--out", help="checkpoint to write, and to go on from if it is there")
    args = parser.parse_args()
    torch.manual_seed(1337)
    # nanoGPT: x, y = get_batch("train")
    loader = batchd.DataLoader(f"tokens:{args.file},windows=random", args.batch_size, length=args.length, seed=1337)
    model = GPT(args.vocab, args.length)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    first = 0
    if args.out and os.path.exists(args.out):
        state = torch.load(args.out)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["loader"])
        first = state["step"]
    for step, (x, y) in zip(range(first, args.steps), loader):
        loss = model(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.6f}", flush=True)
    if args.out:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader.state_dict()}
        torch.save({**state, "step": args.steps}, args.out)


if __name__ == "__main__":
    main()

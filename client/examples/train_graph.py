"""A training step as a CUDA graph, with input tensors that batchd fills: nothing is allocated per step. train_graph.py
[DATASET [EPOCHS]]

Without a GPU the same loop runs on the CPU, step by step."""

import sys

import torch

import batchd

BATCH = 32
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
dataset = sys.argv[1] if len(sys.argv) > 1 else "random:length=4096,shape=3x64x64,dtype=float32"
epochs = int(sys.argv[2]) if len(sys.argv) > 2 else 2

# drop_last: a graph computes with all rows, and an incomplete last batch would keep rows of the one before.
loader = batchd.DataLoader(
    dataset,
    BATCH,
    shuffle=True,
    drop_last=True,
    device=device,
    transform=None
    if dataset.startswith("random:")
    else [["RandomResizedCrop", 64], "RandomHorizontalFlip", "ToTensor"],
)
images = torch.empty(BATCH, 3, 64, 64, device=device)
labels = torch.empty(BATCH, dtype=torch.int64, device=device)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 5, 4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(1000)
).to(device)
model(images.zero_())  # creates the parameters of the lazy layer
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loss = torch.zeros((), device=device)


def step():
    optimizer.zero_grad(set_to_none=True)
    found = torch.nn.functional.cross_entropy(model(images), labels.remainder(1000))
    found.backward()
    optimizer.step()
    loss.copy_(found.detach())


def capture():
    """The step as a graph. It first runs a few times on another stream, as torch requires."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


labels.zero_()
run = capture() if device.type == "cuda" else step
for epoch in range(epochs):
    loader.set_epoch(epoch)
    n_steps = 0
    while loader.next_into(images, labels):  # writes the batch before what is queued next on this stream
        run()
        n_steps += 1
    print(f"epoch {epoch}: {n_steps} steps, loss {loss.item():.3f}")

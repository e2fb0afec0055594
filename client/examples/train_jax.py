"""Trains a small convolutional network with JAX, on the images of a folder (DIR/CLASS/*.jpg), without torch:

    python train_jax.py DIR --epochs 5

Batches are JAX's arrays over the daemon's memory. Where JAX computes on a GPU or a TPU, they are numpy's, which the jitted
step takes to its device.
"""

import argparse
import functools

import jax
import jax.numpy as jnp

import batchd

SIZE = 64
parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--lr", type=float, default=0.05)
args = parser.parse_args()

augment = [["RandomResizedCrop", SIZE, {"scale": [0.5, 1]}], "RandomHorizontalFlip", "ToTensor"]
loader = batchd.DataLoader(
    f"imagefolder:{args.folder}",
    batch_size=args.batch_size,
    shuffle=True,
    drop_last=True,  # one shape, so one compilation
    transform=[*augment, ["Normalize", {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}]],
    layout="NHWC",
    n_slots=8,  # the computations of several batches are queued
    arrays="jax" if jax.default_backend() == "cpu" else "numpy",
)
n_classes = len(loader.classes)


def init(key):
    shapes = {"a": (3, 3, 3, 16), "b": (3, 3, 16, 32), "c": (3, 3, 32, 64), "out": (64, n_classes)}
    keys = jax.random.split(key, len(shapes))
    he = jax.nn.initializers.he_normal()
    return {name: he(k, shape) for k, (name, shape) in zip(keys, shapes.items())}


def loss_of(params, images, labels):
    x = images
    for name in "abc":
        x = jax.lax.conv_general_dilated(x, params[name], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x)
    logits = x.mean((1, 2)) @ params["out"]
    right = (logits.argmax(1) == labels).mean()
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean(), right


@functools.partial(jax.jit, donate_argnums=0)
def step(state, images, labels):
    params, speed = state
    (loss, right), gradient = jax.value_and_grad(loss_of, has_aux=True)(params, images, labels)
    speed = jax.tree.map(lambda v, g: 0.9 * v + g, speed, gradient)
    return (jax.tree.map(lambda p, v: p - args.lr * v, params, speed), speed), loss, right


params = init(jax.random.key(0))
state = params, jax.tree.map(jnp.zeros_like, params)
for epoch in range(args.epochs):
    loader.set_epoch(epoch)
    told = []
    for images, labels in loader:
        state, *numbers = step(state, images, labels)
        told.append(numbers)
    loss, accuracy = jnp.array(told).mean(0)
    print(f"epoch {epoch}: {len(told) * args.batch_size} samples, loss {loss:.3f}, accuracy {accuracy:.3f}")

"""timm's default training, on any model of timm's: timm_train.py FOLDER [--model test_vit] [--aa POLICY] ...

FOLDER has train/ and val/ with class folders. Upstream (huggingface/pytorch-image-models, train.py) has these lines,
which the loaders replace:

    dataset_train = create_dataset('', root=args.data_dir, split='train', ...)
    loader_train = create_loader(dataset_train, input_size=..., batch_size=..., is_training=True, auto_augment=args.aa,
                                 re_prob=args.reprob, num_aug_repeats=args.aug_repeats, ...)

create_transform, which create_loader calls with the same names, makes the transforms here. They are read as they are:
random interpolation, ColorJitter, policies by their texts, and RandomErasing behind Normalize. On a GPU, device='cuda' is
what timm's prefetcher does, and Normalize runs there. With RandomErasing, whose numbers no pixel has, floats go to the GPU.
"""

import argparse
import itertools
import os

import timm
import torch
from timm.data import create_transform, resolve_model_data_config

import batchd


def loaders(args, config):
    size = config["input_size"]
    train = create_transform(
        size,
        is_training=True,
        auto_augment=args.aa,
        re_prob=args.reprob,
        re_mode="pixel",
        mean=config["mean"],
        std=config["std"],
    )
    evaluation = create_transform(
        size,
        interpolation=config["interpolation"],
        mean=config["mean"],
        std=config["std"],
        crop_pct=config["crop_pct"],
        crop_mode=config["crop_mode"],
    )
    folder = f"imagefolder:{args.folder}"
    n = sum(len(files) for _, _, files in os.walk(os.path.join(args.folder, "train")))
    # --aug-repeats 3 of timm: RepeatAugSampler
    repeats = {"repeats": args.aug_repeats, "epoch_rows": n // 256 * 256 or n} if args.aug_repeats > 1 else {}
    return (
        batchd.DataLoader(f"{folder}/train", args.batch_size, shuffle=True, transform=train, **repeats),
        batchd.DataLoader(f"{folder}/val", args.batch_size, transform=evaluation),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--model", default="test_vit")
    parser.add_argument("--aa", help="a policy as timm writes it: rand-m9-mstd0.5-inc1, augmix-m5-w4-d2, original ...")
    parser.add_argument("--reprob", type=float, default=0.0)
    parser.add_argument("--aug-repeats", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, help="of an epoch, for a quick look")
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    names = [d.name for d in os.scandir(os.path.join(args.folder, "train")) if d.is_dir()]
    model = timm.create_model(args.model, num_classes=len(names))
    train, evaluation = loaders(args, resolve_model_data_config(model))
    optimizer = torch.optim.AdamW(model.parameters(), args.lr)
    for epoch in range(args.epochs):
        train.set_epoch(epoch)
        model.train()
        seen = 0
        for step, (images, labels) in enumerate(itertools.islice(train, args.steps)):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(labels)
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch}: {seen} samples", flush=True)
    model.eval()
    right = total = 0
    with torch.no_grad():
        for images, labels in evaluation:
            n = len(labels) - evaluation.last_batch.n_padding
            right += (model(images).argmax(1) == labels)[:n].sum().item()
            total += n
    print(f"accuracy {right / total:.4f}")


if __name__ == "__main__":
    main()

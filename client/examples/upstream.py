"""Runs another project's training script with its loader lines replaced: upstream.py [--diff] SCRIPT [its arguments]

    cd nanoGPT && python upstream.py train.py config/train_shakespeare_char.py

| project | SCRIPT | the lines that are replaced |
|---|---|---|
| karpathy/nanoGPT | train.py | get_batch |
| kuangliu/pytorch-cifar | main.py | trainloader, testloader |
| pytorch/examples | mnist/main.py | train_loader, test_loader |
| huggingface/transformers | run_image_classification.py | set_transform, Trainer's loaders |
| mlfoundations/open_clip | open_clip_train/main.py | get_wds_dataset |

All other lines run as upstream wrote them. --diff shows the two scripts' difference and runs neither. A script that
lacks one of these statements, because upstream has changed it, is refused.
"""

import ast
import difflib
import os
import sys
import textwrap

KEPT = "# upstream's own lines\n"

# Of each project: how a statement begins, in ast.unparse's spelling, and what stands in its place.
PROJECTS = {
    "nanoGPT": {
        "def get_batch(": """\
            import batchd
            loaders = {}
            def get_batch(split):
                if split not in loaders:
                    alone = {} if split == "train" else {"rank": 0, "world_size": 1}  # one process evaluates
                    tokens = f"tokens:{data_dir}/{split}.bin,windows=random"
                    loader = batchd.DataLoader(tokens, batch_size, length=block_size, seed=1337, **alone)
                    loaders[split] = iter(loader)
                x, y = next(loaders[split])
                return x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            """,
    },
    "pytorch-cifar": {
        "trainloader =": """\
            import batchd
            trainloader = batchd.DataLoader(
                (trainset.data, torch.tensor(trainset.targets)), batch_size=128, shuffle=True, transform=transform_train)
            """,
        "testloader =": """\
            testloader = batchd.DataLoader(
                (testset.data, torch.tensor(testset.targets)), batch_size=100, shuffle=False, transform=transform_test)
            """,
    },
    "MNIST of pytorch/examples": {
        "train_loader =": """\
            import batchd
            shuffle = train_kwargs.get("shuffle", False)
            train_loader = batchd.DataLoader(
                (dataset1.data, dataset1.targets), args.batch_size, shuffle=shuffle, transform=transform)
            """,
        "test_loader =": """\
            test_loader = batchd.DataLoader((dataset2.data, dataset2.targets), args.test_batch_size, transform=transform)
            """,
    },
    "image classification of transformers": {
        "def main(": """\
            import batchd

            class Trainer(Trainer):
                def loader(self, data, batch_size, transform, **options):
                    fields = {"pixel_values": "image", "labels": "label"}
                    return batchd.DataLoader(data, batch_size, transform=transform, fields=fields, **options)

                def get_train_dataloader(self):
                    size = self.args.per_device_train_batch_size
                    return self.loader(
                        self.train_dataset, size, self.train_transform, shuffle=True, seed=self.args.seed)

                def get_eval_dataloader(self, eval_dataset=None):
                    data = self.eval_dataset if eval_dataset is None else eval_dataset
                    return self.loader(data, self.args.per_device_eval_batch_size, self.val_transform)


            """
        + KEPT,
        "dataset['train'].set_transform(": "Trainer.train_transform = _train_transforms\n",
        "dataset['validation'].set_transform(": "Trainer.val_transform = _val_transforms\n",
    },
    "OpenCLIP": {
        "from open_clip_train.data import": KEPT
        + """\
            import inspect
            import types
            import batchd
            import open_clip_train.data
            import open_clip_train.train

            # Since 2026 its loop takes dictionaries, which a task prepares.
            by_name = "prepare_batch(" in inspect.getsource(open_clip_train.train)

            def get_wds_dataset(args, preprocess_img, is_train, epoch=0, floor=False, tokenizer=None, **more):
                if any(more.values()):
                    raise TypeError(f"these lines have no {', '.join(name for name, value in more.items() if value)}")
                # One process evaluates, but all of them make its loader.
                alone = {} if is_train else {"rank": 0, "world_size": 1, "job": f"val-{os.getpid()}"}
                loader = batchd.DataLoader(
                    f"tar:{args.train_data if is_train else args.val_data}", args.batch_size, transform=preprocess_img,
                    fields={"image": "jpg;png;jpeg;webp", "text": "txt"}, shuffle=is_train, drop_last=is_train,
                    collate_fn=lambda batch: in_its_form(batch["image"], tokenizer(batch["text"])), seed=args.seed, **alone)
                loader.num_batches, loader.num_samples = len(loader), len(loader.dataset)
                shared_epoch = types.SimpleNamespace(set_value=loader.set_epoch)
                return open_clip_train.data.DataInfo(loader, shared_epoch=shared_epoch)

            def in_its_form(image, text):
                return {"image": image, "text": text} if by_name else (image, text)

            open_clip_train.data.get_wds_dataset  # AttributeError where upstream has it no more
            open_clip_train.data.get_wds_dataset = get_wds_dataset
            """,
    },
}


def spans(source, beginnings):
    """{beginning: (first line, line after)} of the statements that begin so, each of which is there once; else None."""
    found = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt):
            text = ast.unparse(node)
            for beginning in beginnings:
                if text.startswith(beginning):
                    if beginning in found:
                        return None
                    found[beginning] = (node.lineno - 1, node.end_lineno)
    return found if len(found) == len(beginnings) else None


def replaced(source, edits):
    """The script with edits made; None if it lacks one of the statements."""
    found = spans(source, edits)
    if found is None:
        return None
    lines = source.splitlines(keepends=True)
    for beginning, (first, behind) in sorted(found.items(), key=lambda item: -item[1][0]):
        own = lines[first:behind]
        indent = own[0][: len(own[0]) - len(own[0].lstrip())]
        before, kept, behind_own = edits[beginning].partition(KEPT)
        ours = [textwrap.indent(textwrap.dedent(text), indent).splitlines(True) for text in (before, behind_own)]
        lines[first:behind] = [*ours[0], *(own if kept else []), *ours[1]]
    return "".join(lines)


def with_batchd(source):
    """(project, the script with our lines) of a known script; None of another."""
    for project, edits in PROJECTS.items():
        text = replaced(source, edits)
        if text is not None:
            return project, text
    return None


def main():
    shows = sys.argv[1:2] == ["--diff"]
    del sys.argv[0 : 1 + shows]
    if not sys.argv or sys.argv[0] in ("-h", "--help"):
        sys.exit(__doc__)
    path = sys.argv[0]
    with open(path) as f:
        source = f.read()
    known = with_batchd(source)
    if known is None:
        sys.exit(f"{path}: no script whose loader lines are known here: {', '.join(PROJECTS)}")
    project, text = known
    if shows:
        names = f"{project}: {path}", f"{path} with batchd"
        sys.stdout.writelines(difflib.unified_diff(source.splitlines(True), text.splitlines(True), *names))
        return
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    sys.modules["__main__"].__file__ = path
    exec(compile(text, path, "exec"), sys.modules["__main__"].__dict__)


if __name__ == "__main__":
    main()

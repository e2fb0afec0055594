"""Fine-tunes an image classifier with HuggingFace's Trainer: image_classification.py DATA [--model NAME] [--steps N]

DATA is a folder of datasets.save_to_disk, or a folder of class folders. A small script in the manner of transformers'
examples/pytorch/image-classification/run_image_classification.py, which has these lines, which the loaders replace:

    _train_transforms = Compose([RandomResizedCrop(size), RandomHorizontalFlip(), ToTensor(), normalize])
    example_batch["pixel_values"] = [_train_transforms(pil_img.convert("RGB")) for pil_img in example_batch["image"]]
    dataset["train"].set_transform(train_transforms)    # and val_transforms: Resize, CenterCrop, ToTensor, normalize
    Trainer(..., data_collator=collate_fn)              # which stacks pixel_values

There, each worker process decodes and augments; here, the daemon does. upstream.py runs that script itself so.
"""

import argparse
import os

import datasets
import torch
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

import batchd

SIZE = 224


def load(folder):
    """The training and the validation part, with an index of their own rows each."""
    if os.path.exists(os.path.join(folder, "state.json")):
        data = datasets.load_from_disk(folder)
    else:
        data = datasets.load_dataset("imagefolder", data_dir=folder, split="train")
    return data.train_test_split(0.15, seed=42)


class BatchdTrainer(Trainer):
    def loader(self, data, batch_size, transform, **options):
        normalize = ["ToTensor", ["Normalize", [0.5] * 3, [0.5] * 3]]
        fields = {"pixel_values": "image", "labels": "label"}
        return batchd.DataLoader(data, batch_size, transform=transform + normalize, fields=fields, **options)

    def get_train_dataloader(self):
        transform = [["RandomResizedCrop", SIZE], "RandomHorizontalFlip"]
        size = self.args.per_device_train_batch_size
        return self.loader(self.train_dataset, size, transform, shuffle=True, seed=self.args.seed)

    def get_eval_dataloader(self, eval_dataset=None):
        transform = [["Resize", [SIZE, SIZE]], ["CenterCrop", SIZE]]  # ViT's image processor names height and width
        return self.loader(eval_dataset or self.eval_dataset, self.args.per_device_eval_batch_size, transform)


def model_for(name, labels):
    names = dict(
        num_labels=len(labels), id2label=dict(enumerate(labels)), label2id={n: i for i, n in enumerate(labels)}
    )
    if name is not None:
        return ViTForImageClassification.from_pretrained(name, ignore_mismatched_sizes=True, **names)
    small = ViTConfig(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, image_size=SIZE, **names
    )
    return ViTForImageClassification(small)


def accuracy(predicted):
    return {"accuracy": float((predicted.predictions.argmax(1) == predicted.label_ids).mean())}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--model", help="such as google/vit-base-patch16-224-in21k; a small new one if left out")
    parser.add_argument("--steps", type=int, default=-1, help="in all, for a quick look")
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--out", default="outputs")
    args = parser.parse_args()
    torch.manual_seed(1)
    data = load(args.data)
    trainer = BatchdTrainer(
        model=model_for(args.model, data["train"].features["label"].names),
        args=TrainingArguments(
            args.out,
            per_device_train_batch_size=args.batch_size,
            per_device_eval_batch_size=args.batch_size,
            num_train_epochs=args.epochs,
            max_steps=args.steps,
            learning_rate=1e-3,
            logging_steps=5,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            remove_unused_columns=False,
        ),
        train_dataset=data["train"],
        eval_dataset=data["test"],
        compute_metrics=accuracy,
    )
    trainer.train()
    print(f"accuracy {trainer.evaluate()['eval_accuracy']:.4f}")


if __name__ == "__main__":
    main()

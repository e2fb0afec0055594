"""A Ray Train loop with batchd: python ray_train.py [DATASET] [WORKERS]

Ray starts the workers and sets torch's variables, so each worker's loader knows its rank. The first worker of a machine
starts the machine's daemon; a cluster needs the wheel in the workers' environment, and nothing else.
"""

import sys

import ray.train
from ray.train.torch import TorchTrainer


def train_loop_per_worker(config):
    import batchd

    loader = batchd.DataLoader(config["dataset"], batch_size=4, shuffle=True, seed=3, arrays="torch")
    samples = []
    for images, labels in loader:  # the order of torch's DistributedSampler: each rank has a part of its own
        samples += [int(i) for i in loader.last_batch.indices]
    print(f"rank {loader.rank} of {loader.world_size}: samples {samples}", flush=True)
    ray.train.report({"samples": len(samples)})


if __name__ == "__main__":
    dataset = sys.argv[1] if len(sys.argv) > 1 else "random:length=40,shape=3"
    workers = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    trainer = TorchTrainer(
        train_loop_per_worker,
        train_loop_config={"dataset": dataset},
        scaling_config=ray.train.ScalingConfig(num_workers=workers, use_gpu=False),
    )
    print(trainer.fit().metrics)

"""Batches that a Python process makes, for three DDP ranks and for three trials. Meanwhile the producers and the daemon
are killed, newer producers replace older ones, and ranks and trials leave in the middle of an epoch. Ranks continue
from their states, trials with the next batch. Every batch is the one that its epoch and step name, in order, and every
rank gets the same number of batches per epoch, whether or not the producer announces that number."""

import random
import time
import warnings

import crew
import trials

WORLD, N_BATCHES = 3, 23
PRODUCER = """
import sys, time, numpy as np, batchd
name, socket, counted = sys.argv[1:]
class Data:
    def set_epoch(self, epoch):
        self.epoch = epoch
    def __iter__(self):
        for i in range(23):
            time.sleep(0.002 if i % 7 else 0.01)
            yield {"at": np.array([self.epoch, i]), "rows": np.full((4, 5 + i % 3), self.epoch * 100 + i, "f4"), "text": f"{self.epoch}/{i}"}
if counted == "counted":
    Data.__len__ = lambda self: 23
print("here", flush=True)
while True:
    try:
        batchd.serve(Data(), name, resumable=True, id="d", slot_bytes=8192, socket=socket, reconnect=60)
    except ConnectionError:
        time.sleep(0.02)  # it was to begin while the daemon was away
"""


def trainer(batchd, daemon, name, mode, rank):
    def check(loader, batch, epoch, step):
        k = step * WORLD + rank if mode == "shard" else step
        if (
            batch["at"].tolist() != [epoch, k]
            or not (batch["rows"] == epoch * 100 + k).all()
            or batch["text"] != f"{epoch}/{k}"
        ):
            raise crew.Failure(f"batch {step} of epoch {epoch} is that of {batch['at'].tolist()}")

    def check_length(before, at):
        if (
            before
            and at == (before[0] + 1, 0)
            and before[1] + 1 != (N_BATCHES // WORLD if mode == "shard" else N_BATCHES)
        ):
            raise crew.Failure(f"epoch {before[0]} had {before[1] + 1} batches")

    def follow(self, loader, state):
        while not self.stopping and not self.leaving:
            for batch in loader:
                before = self.at
                check(loader, batch, *self.had(loader))
                check_length(before, self.at)
                state[0] = loader.state_dict() if mode == "shard" else None
                time.sleep(0.001 * rank)
                if self.stopping or self.leaving:
                    return

    def work(self):
        state, who = (
            [None],
            {"rank": rank, "world_size": WORLD, "n_slots": 2}
            if mode == "shard"
            else {"mode": "share", "rank": -1, "world_size": 1},
        )
        while not self.stopping:
            if self.leaving:
                time.sleep(0.1)  # about an epoch
            self.leaving = False
            try:
                with batchd.DataLoader(
                    f"serve:{name}",
                    arrays="numpy",
                    job=name,
                    socket=str(daemon.socket),
                    reconnect=crew.PATIENCE_S,
                    progress=False,
                    **who,
                ) as loader:
                    if state[0]:
                        loader.load_state_dict(state[0])
                    elif mode == "share":
                        self.at = None
                    follow(self, loader, state)
            except (
                batchd.ProducerError,
                batchd.errors.ConnectError,
                batchd.errors.LostError,
                batchd.errors.ShutdownError,
            ):
                time.sleep(0.02)

    return trials.Thread(f"rank {rank} of {name}", work, leaving=False)


def scenario(args, folder, progress):
    rng = random.Random(args.seed)
    batchd = trials.package(args.build)
    warnings.simplefilter("ignore")
    daemon = crew.Daemon(args.build, folder)
    names = {"shard": "ranks", "share": "trials"}

    def begin(mode):
        return trials.Process(PRODUCER, names[mode], daemon.socket, rng.choice(("counted", "uncounted")))

    producers = {mode: begin(mode) for mode in names}
    everybody = [trainer(batchd, daemon, name, mode, rank) for mode, name in names.items() for rank in range(WORLD)]
    did = {"producer_kills": 0, "departures": 0, "takeovers": 0, "daemon_kills": 0}
    trials.wait_for(everybody, 10)
    for n in range(args.rounds):
        mode, what = rng.choice(list(names)), list(did)[n % len(did)]
        did[what] += 1
        if what == "daemon_kills":
            trials.restart(daemon, rng)
        elif what == "producer_kills":
            producers[mode].kill()
            time.sleep(rng.choice((0, 0.05)))
            producers[mode] = begin(mode)
        elif what == "departures":
            for t in rng.sample(everybody, 2):
                t.leaving = True
        else:
            old, producers[mode] = producers[mode], begin(mode)
            producers[mode].wait_for_line()
            trials.wait_for(everybody, 5)
            old.kill()
        trials.wait_for(everybody, 30)  # past the end of an epoch
        progress(n + 1)
    trials.stop(everybody)
    for p in producers.values():
        p.kill()
    daemon.wait_until_empty()
    daemon.stop()
    return {**did, "batches": sum(t.n_batches for t in everybody)}


if __name__ == "__main__":
    crew.main("producers", __doc__, 300, 6, scenario)

"""Three share groups, one for each policy. Their trials come and go, begin anywhere and take slices of any size.
Meanwhile other trials are killed while they hold batches, and the daemon is killed too. Every batch that a trial gets
is the golden one. No trial misses a batch, except with "skip", where it is told how many; and only with "wait" does a
trial that keeps its batches hold up the others."""

import random
import time
import warnings

import crew
import trials

GROUP_BATCH, SIZES = 48, (8, 16, 24, 48)
POLICIES = ("wait", "skip", "detach")
VICTIM = """
import sys, time, batchd
socket, data, policy = sys.argv[1:]
loader = batchd.DataLoader(data, 16, group_batch_size=48, mode="share", rank=-1, world_size=1, job=policy, policy=policy, shuffle=True, seed=7, join="next",
                           arrays="numpy", socket=socket)
held = [images for (images, labels), _ in zip(loader, range(4))]
print("held", flush=True)
time.sleep(3600)
"""


def trial(batchd, daemon, data, policy, rng):
    """A trainer that runs one trial after the other."""

    def open_one(size, how):
        while True:  # the daemon may be down at the moment, and opening a loader does not wait for it
            try:
                return batchd.DataLoader(
                    data.name,
                    size,
                    group_batch_size=GROUP_BATCH,
                    mode="share",
                    rank=-1,
                    world_size=1,
                    job=policy,
                    policy=policy,
                    shuffle=True,
                    seed=data.seed,
                    join=how,
                    arrays="numpy",
                    socket=str(daemon.socket),
                    reconnect=crew.PATIENCE_S,
                )
            except (batchd.errors.ConnectError, batchd.errors.LostError, batchd.errors.ShutdownError):
                time.sleep(0.01)

    def work(self):
        while not self.stopping:
            size, left, pause, hold = rng.choice(SIZES), rng.randrange(1, 250), rng.choice((0, 0, 0.002, 0.01)), []
            self.at = None
            with open_one(size, rng.choice((None, "next", "epoch", "start"))) as loader:
                while left > 0 and not self.stopping:
                    for images, labels in loader:
                        epoch, step = self.had(loader, may_skip=policy == "skip")
                        golden = data.order(0, 1, epoch)[step * size : (step + 1) * size]
                        if (
                            loader.last_batch.indices.tolist() != golden.tolist()
                            or images.tobytes() != data.x[golden].tobytes()
                        ):
                            raise crew.Failure(f"batch {step} of {size} of epoch {epoch} is not the golden one")
                        left, hold = left - 1, (hold + [images])[-2:]
                        time.sleep(pause)
                        if left <= 0 or self.stopping:
                            break

    return trials.Thread(f"a trial with policy {policy}", work)


def scenario(args, folder, progress):
    rng = random.Random(args.seed)
    batchd = trials.package(args.build)
    warnings.simplefilter("ignore")
    daemon = crew.Daemon(
        args.build, folder, "linger: 0s\nstall_after: 500ms\n"
    )  # trials that wait for an epoch wait this long for a victim
    data = crew.Data(folder, 2003)
    groups = {p: [trial(batchd, daemon, data, p, random.Random(rng.random())) for _ in range(3)] for p in POLICIES}
    everybody = [t for group in groups.values() for t in group]
    for n in range(args.rounds):
        victims = {p: trials.Process(VICTIM, daemon.socket, data.name, p) for p in POLICIES}
        for victim in victims.values():
            victim.wait_for_line()
        trials.wait_for(groups["skip"] + groups["detach"], 40)
        for victim in victims.values():
            victim.kill()
        trials.wait_for(everybody, 5)
        if rng.random() < 0.7:
            trials.restart(daemon, rng)
            trials.wait_for(everybody, 5)
        progress(n + 1)
    trials.stop(everybody)
    daemon.wait_until_empty()
    daemon.stop()
    return {"rounds": args.rounds, "batches": sum(t.n_batches for t in everybody)}


if __name__ == "__main__":
    crew.main("trials", __doc__, 300, 3, scenario)

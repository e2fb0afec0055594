"""Three share groups, one for each policy, whose trials come and go, begin wherever they like and take slices of any size, while others of them are killed with
batches in their hands and the daemon is killed under them all. Nobody gets a batch that is not the golden one, misses one (but with "skip", told how many), or,
but with "wait", is held up by who holds on to its batches."""

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
    """A trainer that is one trial after the other."""

    def open_one(size, how):
        while True:  # the daemon may just be away, and a loader that is opened does not wait for it
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
    )  # those who wait for an epoch wait so long for a victim
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
    crew.until("all slots, sessions and loaders are gone", daemon.is_empty)
    daemon.stop()
    return {"rounds": args.rounds, "batches": sum(t.n_batches for t in everybody)}


if __name__ == "__main__":
    crew.main("trials", __doc__, 300, 3, scenario)

"""SIGKILL of trainers while they hold three batches. Each is followed by a trainer that continues after the last batch
that the killed one printed.

Beside it work three more ranks of the job and a share group of two. No trainer may miss or repeat a batch or see it
change, and all of them continue while the killed one is gone. At the end the daemon has as many descriptors, threads,
slabs and charges as before."""

import random
import time

import crew


def scenario(args, folder, progress):
    rng = random.Random(args.seed)
    daemon = crew.Daemon(args.build, folder)
    data = crew.Data(folder, 2003)
    warm = crew.Trainer(daemon, data, job="warm").start()
    warm.wait_for(3)
    warm.kill()
    daemon.wait_until_empty()
    before = daemon.settled_footprint()

    ranks = [crew.Trainer(daemon, data, job="kills", rank=r, world_size=4).start() for r in range(4)]
    group = [
        crew.Trainer(daemon, data, job="group", mode="share", rank=r, world_size=2, batch_size=16).start()
        for r in range(2)
    ]
    victim, others = ranks[0], ranks[1:] + group
    for n in range(args.rounds):
        victim.wait_for(rng.randint(4, 9))
        time.sleep(rng.random() * 0.003)
        victim.kill()
        for trainer in others:
            trainer.wait_for(2)  # with the victim's slots still quarantined or just freed
        victim.start()
        progress(n + 1)
    for trainer in [victim] + others:
        trainer.kill()
    daemon.wait_until_empty()
    crew.until(f"descriptors, threads and slabs {before} again", lambda: daemon.footprint() == before)
    daemon.stop()
    return {
        "kills": args.rounds,
        "victim_batches": victim.n_batches,
        "others_batches": sum(t.n_batches for t in others),
    }


if __name__ == "__main__":
    crew.main("trainer_kills", __doc__, 1000, 15, scenario)

"""SIGKILL of the daemon while four ranks hold batches, then a restart: each rank ends up with the golden list, and the
batches that it held stay readable and unchanged."""

import random
import time

import crew


def scenario(args, folder, progress):
    rng = random.Random(args.seed)
    daemon = crew.Daemon(args.build, folder)
    data = crew.Data(folder, 2003)
    ranks = [crew.Trainer(daemon, data, job="crash", rank=r, world_size=4).start() for r in range(4)]
    for n in range(args.rounds):
        for trainer in ranks:
            trainer.wait_for(rng.randint(1, 5))
        time.sleep(rng.random() * 0.003)
        daemon.kill()
        time.sleep(rng.choice((0, 0, 0.02)))
        daemon.start()
        progress(n + 1)
    for trainer in ranks:
        trainer.wait_for(5)
        trainer.kill()
    daemon.wait_until_empty()
    daemon.stop()
    return {"kills": args.rounds, "batches": sum(t.n_batches for t in ranks)}


if __name__ == "__main__":
    crew.main("daemon_kills", __doc__, 500, 6, scenario)

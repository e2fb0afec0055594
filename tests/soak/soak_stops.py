"""SIGSTOP of one of four ranks while it holds batches: the other ranks and a second job continue undisturbed. After
SIGCONT the stopped rank still has its batches, unchanged, and gets the rest of its list."""

import random

import crew


def scenario(args, folder, progress):
    rng = random.Random(args.seed)
    daemon = crew.Daemon(args.build, folder)
    data = crew.Data(folder, 2003)
    ranks = [crew.Trainer(daemon, data, job="stops", rank=r, world_size=4).start() for r in range(4)]
    other = crew.Trainer(daemon, data, job="other").start()
    for n in range(args.rounds):
        stuck = rng.choice(ranks)
        stuck.wait_for(rng.randint(1, 6))
        stuck.stop()
        for trainer in ranks + [other]:
            if trainer is not stuck:
                trainer.wait_for(40)  # more than there are slots, so that slots are reused meanwhile
        stuck.go_on()
        stuck.wait_for(4)
        progress(n + 1)
    for trainer in ranks + [other]:
        trainer.kill()
    daemon.wait_until_empty()
    daemon.stop()
    return {"stops": args.rounds, "batches": sum(t.n_batches for t in ranks)}


if __name__ == "__main__":
    crew.main("stops", __doc__, 200, 4, scenario)

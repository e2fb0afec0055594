"""Two ranks and a share group of two read tiny samples for very many epochs, while a short-lived trainer comes and goes
all the time: the daemon's memory stays flat. A round is a million samples; a day of training on ImageNet on one machine
reads about 200 million."""

import subprocess
import threading

import numpy

import crew

N = 100_000
BATCH = 1000


class Reader:
    """A trainer that prints one line per epoch."""

    def __init__(self, daemon, dataset, job, mode, rank, world_size):
        self.n_epochs, self.per_epoch = 0, N // (world_size if mode == "shard" else 1)
        self.process = subprocess.Popen(
            [
                daemon.build / "tests/soak/trainer",
                daemon.socket,
                dataset,
                job,
                mode,
                str(rank),
                str(world_size),
                str(BATCH),
                "1",
                "0",
                "0",
                str(1 << 30),
                "1",
                "-1",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            epoch, n = map(int, line.split())
            if epoch == self.n_epochs and n == (self.per_epoch + BATCH - 1) // BATCH:
                self.n_epochs += 1

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def scenario(args, folder, progress):
    daemon = crew.Daemon(args.build, folder, "linger: 0s\nmemory: 512MiB\n")
    data = crew.Data(folder, 203)
    numpy.save(folder / "tiny.npy", numpy.arange(N, dtype=numpy.int32))
    dataset = f"npy:{folder}/tiny.npy"
    readers = [Reader(daemon, dataset, "ranks", "shard", r, 2) for r in range(2)]
    readers += [Reader(daemon, dataset, "group", "share", r, 2) for r in range(2)]
    visitor = crew.Trainer(daemon, data, job="visitor")
    rss, n_visits = [], 0

    def made():
        return sum(r.n_epochs * r.per_epoch for r in readers[:3])

    while made() < args.rounds * 1_000_000:
        visitor.start()
        before = made()
        visitor.wait_for(4)
        visitor.kill()
        n_visits += 1
        crew.until("the readers read on", lambda: made() > before)
        rss.append(daemon.rss_bytes())
        progress(min(made() // 1_000_000, args.rounds))
        dead = [r for r in readers if r.process.poll() is not None]
        if dead:
            raise crew.Failure(f"a reader exited with {dead[0].process.returncode}")
    for reader in readers:
        reader.end()
    daemon.wait_until_empty()
    daemon.stop()
    third = len(rss) // 3
    early, late = (sorted(part)[len(part) // 2] for part in (rss[third : 2 * third] or rss, rss[-third:] or rss))
    # In a short run the allocator's size has not settled yet: plans of 0.8 MB come and go.
    if late > early + ((2 << 20) if args.rounds >= 1000 else (16 << 20)):
        raise crew.Failure(
            f"resident memory grew from {early >> 10} KiB in the second third to {late >> 10} KiB in the last"
        )
    return {"samples": made(), "visits": n_visits, "rss_early_KiB": early >> 10, "rss_late_KiB": late >> 10}


if __name__ == "__main__":
    crew.main("samples", __doc__, 2000, 40, scenario)

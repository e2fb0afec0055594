"""Every bottleneck of tests/system/bottlenecks.py made again and again, each time with a daemon and a trainer of its own:
the verdict has to name the right one each time. Prints a table of the shares. BOTTLENECKS="slow disk,small budget" makes
only these; --quick makes two, as test_bottlenecks.py makes each once."""

import os
import sys

import crew
import trials

NAMES = ("busy", "read", "decode", "transform", "gpu_copy", "order", "producer", "peer", "memory", "idle")


class Starter:
    """A daemon for each run, which ends before the next begins."""

    def __init__(self, folder, build):
        self._folder, self._build, self._running, self._n = folder, build, None, 0

    def __call__(self, *args, config=None, env=None):
        folder = self._folder / f"daemon-{self._n}"
        folder.mkdir()
        self._n += 1
        self._running = crew.daemons.Daemon(folder, args, config, env, self._build)
        os.environ["BATCHD_SOCKET"] = str(self._running.socket)

    def stop(self):
        if self._running:
            self._running.stop()
        self._running = None


def scenario(args, folder, progress):
    trials.package(args.build)
    import bottlenecks

    start = Starter(folder, args.build)
    place = bottlenecks.Place(folder, start)
    only = os.environ.get("BOTTLENECKS", "slow trainer,slow producer" if args.quick else "")
    chosen = [name for name in bottlenecks.ALL if not only or name in only.split(",")]
    shares, failures, skipped = {name: [] for name in chosen}, [], set()
    for n in range(args.rounds):
        for name in chosen:
            try:
                verdict = bottlenecks.ALL[name][0](place)
            except bottlenecks.Missing as e:
                skipped.add(f"{name} ({e})")
                continue
            finally:
                start.stop()
            shares[name].append(verdict.shares)
            why = bottlenecks.wrong(name, verdict)
            if why:
                failures.append(name)
                sys.stderr.write(f"{name}, round {n}: {why}: {verdict} {said(verdict.shares)}\n")
        progress(n + 1)
    if not args.json:
        table(shares, failures)
    if failures:
        raise crew.Failure(f"{len(failures)} of {sum(map(len, shares.values()))} verdicts were wrong")
    return {"verdicts": sum(map(len, shares.values())), **({"skipped": ", ".join(sorted(skipped))} if skipped else {})}


def said(shares):
    return ", ".join(f"{k} {v:.2f}" for k, v in shares.items() if v >= 0.005)


def table(shares, failures):
    """For each bottleneck: how often it was named, and the least and greatest share of every state."""
    for name, runs in shares.items():
        ranges = [(s, min(r[s] for r in runs), max(r[s] for r in runs)) for s in NAMES if runs]
        text = ", ".join(f"{s} {low:.2f}-{high:.2f}" for s, low, high in ranges if high >= 0.005)
        print(f"{name:22} {len(runs) - failures.count(name):3} of {len(runs)}: {text}")


if __name__ == "__main__":
    crew.main("verdicts", __doc__, 20, 1, scenario)

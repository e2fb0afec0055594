"""Hostile peers, one kind after the other, beside two trainers: a storm of hellos at 10,000 a second, connections that say nothing, that end their side, that send
descriptors nobody asked for, and that never read what they ask for. A round is a second of each.

What is measured: batches a second of both trainers, which work 2 ms on each batch, as a share of what they get with nobody else there (the lower of before and
after), and how long somebody well-behaved waits from connect to Welcome. The peers run at nice 19, so that the processor time that making a storm takes is not
the trainers'; what the daemon spends on it is, and is reported. The short run asserts the golden lists only; the full one 90 % and a p99 below 50 ms as well."""
import json
import os
import subprocess
import time

import crew

KINDS = {"hello": 10000, "silent": 2000, "half": 2000, "fds": 2000, "unread": 200}  # a second
CONFIG = "linger: 0s\nlimits:\n  sessions: 1024\n  sessions_per_user: 1024\n  pending: 512\n  fds_per_user: 4096\n"
P99_US, SHARE = 50_000, 0.9


def cpu_s(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def storm(daemon, kind, rate, seconds, nice):
    return subprocess.Popen([daemon.build / "tests/soak/storm", daemon.socket, kind, str(rate), str(seconds)], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=lambda: os.nice(nice))


def result_of(process):
    out, err = process.communicate(timeout=crew.PATIENCE_S + 600)
    if process.returncode:
        raise crew.Failure(f"storm exited with {process.returncode}: {err}")
    return json.loads(out)


def window(daemon, trainers, seconds, kind=None):
    """Batches a second, share of a processor that the daemon took, what the probe saw, what the peers did."""
    peers = storm(daemon, kind, KINDS[kind], seconds + 0.4, 19) if kind else None
    time.sleep(0.2)
    before, cpu, began = sum(t.n_batches for t in trainers), cpu_s(daemon.pid), time.monotonic()
    seen = result_of(storm(daemon, "probe", 50, seconds, 0))
    took = time.monotonic() - began
    rate, cpu = (sum(t.n_batches for t in trainers) - before) / took, (cpu_s(daemon.pid) - cpu) / took
    did = result_of(peers) if peers else {}
    for trainer in trainers:
        trainer.check()
    return rate, cpu, seen, did


def scenario(args, folder, progress):
    daemon = crew.Daemon(args.build, folder, CONFIG)
    data = crew.Data(folder, 2003)
    trainers = [crew.Trainer(daemon, data, job=f"job{i}").start() for i in range(2)]
    for trainer in trainers:
        trainer.wait_for(20)
    full = args.rounds > 1 and not args.quick
    alone = [window(daemon, trainers, args.rounds)]
    rows = {}
    for kind in KINDS:
        rows[kind] = window(daemon, trainers, args.rounds, kind)
    alone.append(window(daemon, trainers, args.rounds))
    for trainer in trainers:
        trainer.wait_for(5)
        trainer.kill()
    crew.until("all slots, sessions and loaders are gone", daemon.is_empty)
    daemon.stop()
    base = min(rate for rate, *_ in alone)
    table = {when: f"{rate:.0f} batches/s, batchd {100 * cpu:.0f} % of a CPU, hello median {seen['median_us']} us, p99 {seen['p99_us']} us"
             for when, (rate, cpu, seen, _) in zip(("before", "after"), alone)}
    wrong = []
    for kind, (rate, cpu, seen, did) in rows.items():
        table[kind] = (f"{did['connections'] / did['seconds']:.0f} peers/s" + (f" ({did['answered']} of {did['connections']} answered)" if kind == "hello" else "") +
                       f": {rate:.0f} batches/s ({100 * rate / base:.0f} %), batchd {100 * cpu:.0f} % of a CPU, hello median {seen['median_us']} us, "
                       f"p99 {seen['p99_us']} us, max {seen['max_us']} us")
        if rate < SHARE * base:
            wrong.append(f"beside {kind} the trainers get {100 * rate / base:.0f} %")
        if seen["p99_us"] > P99_US:
            wrong.append(f"beside {kind} a hello takes {seen['p99_us']} us (p99)")
    if full and wrong:
        raise crew.Failure("; ".join(wrong) + f" -- {table}")
    progress(args.rounds)
    return table


if __name__ == "__main__":
    crew.main("storm", __doc__, 10, 1, scenario)

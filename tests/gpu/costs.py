"""Parts of bench.py: what batchd costs the machine and the GPU. Each takes the Bench."""

import concurrent.futures
import contextlib
import ctypes
import subprocess
import time

MIB, PICTURE = 1 << 20, 224 * 224 * 3
N_ATTACHES, AT_ONCE = 60, 4
# A job's batches do not outlive it, and every picture is decoded each time.
FORGETFUL = "pin_memory: on\nlinger: 0s\ncache:\n  decoded: off\n"


@contextlib.contextmanager
def used_memory(bench):
    """A function that says how many MiB of the GPU are in use, by cuMemGetInfo in a context of this process, which
    exists all the time."""
    cuda = ctypes.CDLL(bench.env.get("BATCHD_LIBCUDA", "libcuda.so.1"))

    def call(name, *args):
        result = getattr(cuda, name)(*args)
        if result:
            raise OSError(f"{name} says {result}")

    def used():
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return (total.value - free.value) / MIB

    context = ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    try:
        yield used
    finally:
        call("cuCtxSetCurrent", None)
        call("cuDevicePrimaryCtxRelease_v2", 0)


def decoded_and_when(daemon):
    return sum(loader.get("samples_decoded", 0) for loader in daemon.status()["loaders"]), time.monotonic()


def until(bench, seconds, true):
    """Waits until it is true; False if that takes longer."""
    until = time.monotonic() + bench.left(seconds)
    while not (found := true()) and time.monotonic() < until:
        time.sleep(0.02)
    return found


def copies_beside_decoding(bench):
    """The driver's copies out of the daemon's kind of memory, alone and while all threads of a daemon decode."""
    group = "Copies to the GPU while all threads decode"
    folder, _, _ = bench.many_pictures()
    copying = [bench.tool("h2d"), "--kind", "memfd", *(["--small"] if bench.fake else [])]
    alone = bench.run(copying, 30)
    with bench.daemon(config=FORGETFUL) as d:
        argv = [bench.build / "batchctl", "bench", folder, "--transform", "train224", "--dtype", "uint8", "--seconds"]
        taker = subprocess.Popen(
            [str(a) for a in [*argv, "60", "--quiet", "--socket", d.socket]],
            env=bench.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            least = 64 if bench.fake else 4096
            if not until(bench, 20, lambda: decoded_and_when(d)[0] >= least or taker.poll() is not None):
                return bench.fault("no pictures are decoded")
            before, began = decoded_and_when(d)
            beside = bench.run(copying, 30)
            after, ended = decoded_and_when(d)
        finally:
            taker.terminate()
            taker.wait()
    for how, found in (("alone", alone), ("while all threads decode", beside)):
        for what, (value, unit) in found.items():
            if unit == "GB/s":
                bench.put(group, f"{what}, {how}", value, unit)
    bench.put(group, "decoded meanwhile", (after - before) / (ended - began), "images/s")
    best = lambda found: max((value for value, unit in found.values() if unit == "GB/s"), default=0)
    if best(alone) and best(beside):
        share = best(beside) / best(alone) * 100
        bench.claim(
            "copies to the GPU while all threads decode, of their rate alone", "at least 90 %", share, "%", share >= 90
        )


def processor_time(bench):
    """Of each of the daemon's threads, while one trainer takes batches as fast as they come."""
    group, seconds = "Processor time of the daemon, batches as fast as they come", 0.3 if bench.fake else 2
    with bench.daemon() as d:
        t = d.start(
            "--steps", 1000000, "--ms", 0, "--dataset", bench.rows_of_file(), "--batch", 16 if bench.fake else 256
        )
        bench.until_attached(t)
        used, copies, began = d.threads_s(), d.copies()[0], time.monotonic()
        time.sleep(seconds)
        used_later, copies_later, took = d.threads_s(), d.copies()[0], time.monotonic() - began
        t.kill()
        t.communicate()
    n = copies_later - copies
    if not n:
        return bench.fault("no batch was copied")
    size = (16 if bench.fake else 256) * PICTURE
    bench.put(group, "to the GPU", n * size / took / 1e9, "GB/s")
    for name in sorted(used_later):
        spent = used_later[name] - used.get(name, 0)
        bench.put(group, f"threads {name}, of one processor", spent / took * 100, "%")
        bench.put(group, f"threads {name}, for each batch", spent / n * 1e6, "us")


def attaches_and_leaves(bench):
    """Trainers that come, take a batch and go, some at a time: what is left of them in the GPU's memory?"""
    n, group = 8 if bench.fake else N_ATTACHES, "Memory of the GPU after trainers came and went, by cuMemGetInfo"
    with used_memory(bench) as used, bench.daemon(config=FORGETFUL) as d:
        dataset, times = bench.rows_of_file(), []

        def come_and_go(i):
            args = ["--dataset", dataset, "--batch", 16 if bench.fake else 64, "--job", f"come-{i}"]
            found = d.step(60, *args, "--rank", 0, "--world", 1, "--warm", 0, "--steps", 1, "--ms", 0)
            if "attach and first batch finished" in found:
                times.append(found["attach and first batch finished"][0])

        def settled():
            """Every slab is closed, and the memory that is in use is the same twice."""
            before = used()
            time.sleep(0.1)
            return not any(gpu.get("slab_bytes") for gpu in d.status()["gpus"]) and used() == before

        memory = []
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for part in (range(AT_ONCE), range(AT_ONCE, AT_ONCE + n)):
                list(pool.map(come_and_go, part))
                if not until(bench, 10, settled):
                    bench.note(f"after {len(part)} trainers some of their memory is still held")
                memory.append(used())
        pageable = d.copies()[1]
    if len(times) != AT_ONCE + n:
        return bench.fault(f"{AT_ONCE + n - len(times)} of {AT_ONCE + n} trainers had no batch")
    bench.put(group, f"after {AT_ONCE} trainers", memory[0], "MiB")
    bench.put(group, f"after {n} more", memory[1], "MiB")
    bench.put(group, f"attach and first batch, {AT_ONCE} at a time, slowest", max(times), "ms")
    bench.put(group, "pageable copies", pageable, "copies")
    more = memory[1] - memory[0]
    bench.claim(f"memory of the GPU that {n} trainers leave behind", "at most 16 MiB", more, "MiB", more <= 16)

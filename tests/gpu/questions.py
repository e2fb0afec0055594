"""Questions to the driver that need no batch: questions.py [QUESTION...]

What it says of a destroyed stream, and whether the context is whole after that (batchd takes CONTEXT_IS_DESTROYED for
the end of the context); whether the GPU reads pageable memory of the host; how long memory that comes as a descriptor takes
to import, to map and to open for access, by size; how long a copy waits while another thread of the same context pins
memory in pieces. No answer is required, so the lines are those of the conformance program (cases/main.c) of the kinds
"open" and "time". Each question is asked in a process of its own, because a driver may crash or hang. Exit status 1 if
one did, except for a destroyed stream, where a crash is an answer.

Only the standard library is needed. $BATCHD_LIBCUDA names another driver, as for batchd."""

import array
import ctypes
import mmap
import os
import socket
import subprocess
import sys
import threading
import time

QUESTION_S = 15
LIBRARY = os.environ.get("BATCHD_LIBCUDA") or "libcuda.so.1"
FAKE = "fakecuda" in LIBRARY
MB = 1 << 20
c_int, c_void_p, c_size_t, c_uint64 = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64
# cuda.h's numbers
PINNED, DEVICE, POSIX_FD, READ_WRITE, NON_BLOCKING = 1, 1, 1, 3, 1


class Location(ctypes.Structure):  # CUmemLocation
    _fields_ = [("type", c_int), ("id", c_int)]


class Properties(ctypes.Structure):  # CUmemAllocationProp
    _fields_ = [
        ("type", c_int),
        ("handle_types", c_int),
        ("location", Location),
        ("win32", c_void_p),
        ("compression", ctypes.c_ubyte),
        ("rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    ]


class Access(ctypes.Structure):  # CUmemAccessDesc
    _fields_ = [("location", Location), ("flags", c_int)]


def name(result):
    """ "INVALID_VALUE (1)", say."""
    text = ctypes.c_char_p()
    cuda.cuGetErrorName(result, ctypes.byref(text))
    return f"{(text.value or b'?').decode().replace('CUDA_ERROR_', '')} ({result})" if result else "works"


def must(result, what):
    if result:
        raise RuntimeError(f"{what}: {name(result)}")


def begin():
    context = c_void_p()
    must(cuda.cuInit(0), "cuInit")
    must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "cuDevicePrimaryCtxRetain")
    must(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    return context


def answer(what, value):
    print(f"open  {what} = {value}", flush=True)


def took(what, seconds):
    print(f"time  {what} = {seconds * 1e3:.4g} ms", flush=True)


def pageable_memory():
    value = c_int()
    begin()
    for number, what in (
        (88, "pageable memory access"),
        (100, "by the host's page tables"),
        (89, "concurrent managed"),
    ):
        r = cuda.cuDeviceGetAttribute(ctypes.byref(value), number, 0)
        answer(f"attribute {number}, {what}", name(r) if r else value.value)


def destroyed():
    stream = c_void_p()
    begin()
    must(cuda.cuStreamCreate(ctypes.byref(stream), NON_BLOCKING), "cuStreamCreate")
    must(cuda.cuStreamDestroy_v2(stream), "cuStreamDestroy")
    return stream


def is_a_destroyed_stream_capturing():
    status = c_int()
    answer("cuStreamIsCapturing", name(cuda.cuStreamIsCapturing(destroyed(), ctypes.byref(status))))
    answer("cuCtxSynchronize after that", name(cuda.cuCtxSynchronize()))


def is_a_destroyed_stream_idle():
    answer("cuStreamQuery", name(cuda.cuStreamQuery(destroyed())))
    answer("cuCtxSynchronize after that", name(cuda.cuCtxSynchronize()))


def memory_by_descriptor():
    """The exporter is a process of its own, forked before either of them initialises CUDA."""
    sizes = (2, 64) if FAKE else (2, 64, 1024, 8192)
    here, there = socket.socketpair()
    pid = os.fork()
    if not pid:
        here.close()
        try:
            export(there, sizes)
        finally:
            os._exit(0)
    there.close()
    begin()
    for size in sizes:
        word, fds, _, _ = socket.recv_fds(here, 1, 1)
        if not fds:
            answer(f"{size} MiB", "cannot be made" if word else "the exporter has ended")
        else:
            import_one(fds[0], size)
        here.sendall(b"x")
    os.waitpid(pid, 0)


def export(there, sizes):
    begin()
    for size in sizes:
        handle, fd = c_uint64(), c_int()
        wanted = Properties(type=PINNED, handle_types=POSIX_FD, location=Location(DEVICE, 0))
        r = cuda.cuMemCreate(ctypes.byref(handle), c_size_t(size * MB), ctypes.byref(wanted), c_uint64(0))
        r = r or cuda.cuMemExportToShareableHandle(ctypes.byref(fd), handle, POSIX_FD, c_uint64(0))
        if r:
            there.sendall(b"n")
        else:
            socket.send_fds(there, [b"y"], [fd.value])
        there.recv(1)


def import_one(fd, size):
    handle, address, n = c_uint64(), c_uint64(), c_size_t(size * MB)
    access, zero = Access(Location(DEVICE, 0), READ_WRITE), c_uint64(0)
    t0 = time.perf_counter()
    must(cuda.cuMemImportFromShareableHandle(ctypes.byref(handle), c_void_p(fd), POSIX_FD), "import")
    t1 = time.perf_counter()
    must(cuda.cuMemAddressReserve(ctypes.byref(address), n, c_size_t(0), zero, zero), "cuMemAddressReserve")
    must(cuda.cuMemMap(address, n, c_size_t(0), handle, zero), "cuMemMap")
    t2 = time.perf_counter()
    must(cuda.cuMemSetAccess(address, n, ctypes.byref(access), c_size_t(1)), "cuMemSetAccess")
    t3 = time.perf_counter()
    cuda.cuMemUnmap(address, n)
    cuda.cuMemRelease(handle)
    cuda.cuMemAddressFree(address, n)
    os.close(fd)
    for what, seconds in (("import", t1 - t0), ("reserve and map", t2 - t1), ("access", t3 - t2), ("all", t3 - t0)):
        took(f"{size} MiB: {what}", seconds)


def pinning_beside_copies():
    """4 KiB copies of one thread, while another thread of the same context registers pieces of present pages."""
    context = begin()
    n_all, pieces = (4 * MB, (2,)) if FAKE else (1024 * MB, (128, 64, 32, 8))
    memory = mmap.mmap(-1, n_all)
    for _ in range(n_all // MB):
        memory.write(b"1" * MB)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    host, device, stream = c_void_p(), c_uint64(), c_void_p()
    must(cuda.cuMemHostAlloc(ctypes.byref(host), c_size_t(4096), 0), "cuMemHostAlloc")
    must(cuda.cuMemAlloc_v2(ctypes.byref(device), c_size_t(4096)), "cuMemAlloc")
    must(cuda.cuStreamCreate(ctypes.byref(stream), NON_BLOCKING), "cuStreamCreate")
    copies = {"alone": array.array("d")}
    phase, ending, wrong = ["alone"], threading.Event(), []

    def copier():
        cuda.cuCtxSetCurrent(context)
        while not ending.is_set():
            now, began = phase[0], time.perf_counter()
            r = cuda.cuMemcpyHtoDAsync_v2(device, host, c_size_t(4096), stream) or cuda.cuStreamSynchronize(stream)
            copies.setdefault(now, array.array("d")).append(time.perf_counter() - began)
            if r:
                wrong.append(f"copy: {name(r)}")
                return

    thread = threading.Thread(target=copier)
    thread.start()
    time.sleep(0.3)
    for n_mb in pieces:
        phase[0], pinned = f"while another thread pins {n_mb} MiB at a time", []
        for at in range(0, n_all, n_mb * MB):
            began = time.perf_counter()
            r = cuda.cuMemHostRegister_v2(c_void_p(start + at), c_size_t(n_mb * MB), 0)
            if r:
                wrong.append(f"pinning: {name(r)}")
                break
            pinned.append(time.perf_counter() - began)
            time.sleep(0.001)  # as the daemon does
        phase[0] = "alone"
        for i in range(len(pinned)):
            cuda.cuMemHostUnregister(c_void_p(start + i * n_mb * MB))
        took(f"{n_mb} MiB pinned, worst", max(pinned, default=0))
        took(f"{n_mb} MiB pinned at a time, all {n_all // MB} MiB", sum(pinned))
    ending.set()
    thread.join()
    for when, seconds in copies.items():
        took(f"4 KiB copy, worst, {when}", max(seconds, default=0))
    for text in wrong:
        answer("went wrong", text)


QUESTIONS = (
    pageable_memory,
    is_a_destroyed_stream_capturing,
    is_a_destroyed_stream_idle,
    memory_by_descriptor,
    pinning_beside_copies,
)
MAY_CRASH = (is_a_destroyed_stream_capturing, is_a_destroyed_stream_idle)  # NVIDIA documents no result for it


def main(names):
    n_failed = 0
    for question in QUESTIONS:
        if names and question.__name__ not in names:
            continue
        print(f"# {question.__name__.replace('_', ' ')}", flush=True)
        p = subprocess.Popen([sys.executable, __file__, "--ask", question.__name__], stdin=subprocess.DEVNULL)
        try:
            status = p.wait(QUESTION_S)
        except subprocess.TimeoutExpired:
            p.kill()  # it is not waited for: a process that hangs in the driver may not end even so
            status = f"no end within {QUESTION_S} s"
        if status:
            n_failed += question not in MAY_CRASH
            print(f"open  {question.__name__.replace('_', ' ')}: it ended = {status}", flush=True)
    return 1 if n_failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ask"]:
        cuda = ctypes.CDLL(LIBRARY)
        globals()[sys.argv[2]]()
    else:
        sys.exit(main(sys.argv[1:]))

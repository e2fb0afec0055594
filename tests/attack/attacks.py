"""Attacks on a daemon from outside, packet by packet. Each is a function that gets a `Field` (daemons and folders of
its own) and returns None when the daemon held, or a description of how it broke. Users: alice, the victim, and bob, the
attacker."""

import base64
import ctypes
import fcntl
import hashlib
import json
import mmap
import os
import pathlib
import pickle
import signal
import socket
import struct
import sys
import time
import zlib

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "system")]

from daemons import Daemon  # noqa: E402
from wire import PRODUCED, TAKEN, VERSION, Client, HungUp  # noqa: E402

ALICE, BOB = 64001, 64002
CLONE_NEWNS, MS_BIND, MS_PRIVATE, MS_REC = 0x00020000, 0x1000, 1 << 18, 0x4000
MIB = 1 << 20
SPARE_BYTES = 64 * MIB  # that a daemon may use besides its budget

# Grey, 256 x 256, one level. The other one differs in a single byte, so that the decoder states of both are the same
# places.
_FLAT = (
    "c-s4a<NpH&0WUXCHwH#V1_nkTWcYuZ!I?pTn}?5wOMs7;Pe@QeSVBWeLQG7;P+3)0!^+s!#?sir+`%Kp&%q_!)!ZT=H!wUtDLo_I&bP3#Af+NEH9h(N0S0akka3KRf(-wUFvtT9XJrHf1}I=;VrF4wW9"
    "Q)H;sz?%D!{<R$jr>d!pzFb!UB}71<Et92(k((8alEG2PU#B6^a-&PF%>L?6mQqXwbzED#l4gO`Kd};u4Zls%q*Qnp!5NX66=_R?aT2ZtfnQUcn)uVc`*xQOPN(Y3Ui6S;Zx#W#tu>Rn0A}ZS5VMU6Uq"
    "HnL2IyjG40*Enc#8+42=DS8dw7W$U)>J9h3mboj{8W5-XNJay^vm8;jT-?(|};iJb-o<4j2;^nK4pFV&2`tAFVpTGX!V&DMz$DU!at4QD|8bu=&h5x?^0O}SR!T"
)
DARK = zlib.decompress(base64.b85decode(_FLAT))
LIGHT = DARK[:328] + b"\xab" + DARK[329:]
CROP = '[["CenterCrop",[16,16]],"ToTensor"]'


class Skip(Exception):
    """The attack cannot be tried on this machine."""


# ---- the field ----


class Field:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.chmod(0o755)
        self.daemons = []

    def daemon(self, config="", args=(), name="d"):
        folder = self.folder / f"{name}{len(self.daemons)}"
        folder.mkdir()
        folder.chmod(0o755)
        index_cache = self.folder / "indexes"
        index_cache.mkdir(exist_ok=True)
        open_to_all = f"socket_mode: 0666\nindex_cache: {index_cache}\n"
        self.daemons.append(Daemon(folder, ("--workers", "2", *args), config=open_to_all + config))
        return self.daemons[-1]

    def images(self, name, files, owner=None, mode=0o755):
        """A folder of pictures: {path: bytes}."""
        root = self.folder / name
        for path, data in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(data)
        root.chmod(mode)
        if owner is not None:
            for path in [root, *root.rglob("*")]:
                os.chown(path, owner, owner)
        return root

    def end(self):
        for d in self.daemons:
            d.kill()


def need_root(*, mounts=False):
    if os.geteuid() != 0:
        raise Skip("needs root, to be two users")
    if mounts and in_child(lambda: unshare_mounts() or True, may_fail=True) is None:
        raise Skip("needs the right to mount")


def unshare_mounts():
    if _libc.unshare(CLONE_NEWNS) or _libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None):
        raise OSError(ctypes.get_errno(), "unshare")


def mount(what, where, kind=None, flags=0):
    if _libc.mount(str(what).encode(), str(where).encode(), kind and kind.encode(), flags, None):
        raise OSError(ctypes.get_errno(), "mount")


_libc = ctypes.CDLL(None, use_errno=True)


def become(uid, groups=()):
    os.setgroups(list(groups))
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def in_child(work, uid=None, may_fail=False):
    """The result of work(), or the exception that it raises, in a process of its own, as another user if given."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if uid is not None:
                become(uid)
            result = (True, work())
        except BaseException as e:
            result = (False, e)
        with os.fdopen(into, "wb") as f:
            pickle.dump(
                result
                if result[0] or isinstance(result[1], (OSError, Skip))
                else (False, HungUpElsewhere(repr(result[1]))),
                f,
            )
        os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as f:
        data = f.read()
    os.waitpid(child, 0)
    good, result = pickle.loads(data)
    if not good and may_fail:
        return None
    if not good:
        raise result
    return result


class HungUpElsewhere(Exception):
    pass


def refused(work):
    """The code of the error with which the daemon ends work(); None: no error."""
    try:
        work()
    except HungUp as end:
        return end.error.get("code", "hung up")
    return None


def serves(daemon):
    """Whether the daemon is alive, and delivers batches to a well-behaved client."""
    if daemon.process.poll() is not None:
        return False
    c = Client(daemon.socket, timeout=200)
    c.open(dataset="random:length=100,shape=4", job="witness")
    c.seek()
    for _ in range(5):
        c.give_back(c.batch())
    c.close()
    return True


def check_serves(daemon, what="the daemon does not serve any more"):
    try:
        return None if serves(daemon) else f"the daemon has died ({daemon.process.returncode})"
    except (OSError, HungUp) as e:
        return f"{what}: {e}"


def cpu_ns(daemon):
    """Processor time of all its threads."""
    total = 0
    for task in pathlib.Path(f"/proc/{daemon.pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except FileNotFoundError:
            pass
    return total


def peak_bytes(daemon):
    for line in pathlib.Path(f"/proc/{daemon.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise AssertionError


def status(daemon):
    c = Client(daemon.socket)
    c.send("status")
    text = b""
    while True:
        part = c.expect("status")
        text += part.get("json", b"")
        if not part.get("more"):
            c.close()
            return json.loads(text)


def until(condition, seconds=200):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def directory(path):
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


# ---- attacks that crash a daemon or slow it down ----


def leases_are_counted(field):
    """1: 260 seeks without a release, in a share group in lockstep, then Close: the lease counter of a slot wraps."""
    d = field.daemon()
    options = dict(dataset="random:length=1000,shape=4", mode=1, world_size=2, policy=1, n_slots=2)
    clients = [Client(d.socket) for _ in range(2)]
    for rank, c in enumerate(clients):
        c.open(rank=rank, **options)
        c.seek()
    greedy = clients[0]
    try:
        greedy.batch()
        for _ in range(260):
            greedy.seek()
            greedy.batch()
        greedy.send("close")
        greedy.until_hung_up()
    except (HungUp, OSError):
        pass
    return check_serves(d)


def slabs_have_no_holes(field):
    """01, 8: a trainer of a share group reads all of its mapping: what the slab takes beside what is charged for it."""
    d = field.daemon("memory: 256MiB\n")
    trainers = [Client(d.socket) for _ in range(3)]
    for c in trainers:
        opened = c.open(dataset="random:length=1000,shape=262144", batch_size=1, mode=1)

        def read(fd=c.fds[0], n_bytes=opened["slab_bytes"]):
            with mmap.mmap(fd, n_bytes, mmap.MAP_SHARED, mmap.PROT_READ) as mapping:
                sum(mapping[at] for at in range(0, n_bytes, mmap.PAGESIZE))

        child = os.fork()  # it ends with SIGBUS where the memory ends
        if child == 0:
            try:
                read()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        took = os.fstat(c.fds[0]).st_blocks * 512
        charged = status(d)["memory"]["slots_bytes"]
        if took > charged:
            return f"the slab takes {took // MIB} MiB, and {charged // MIB} are charged"
        c.seek()
        c.give_back(c.batch())
    return check_serves(d)


def idle_ranks_cost_nothing(field):
    """2: idle sessions of world size 4096: work per batch of another trainer, in processor time."""
    d = field.daemon()

    def cost(job):
        c = Client(d.socket)
        c.open(dataset="random:length=100000,shape=3072", batch_size=64, job=job)
        c.seek()
        for _ in range(32):
            c.give_back(c.batch())
        began = cpu_ns(d)
        for _ in range(200):
            c.give_back(c.batch())
        spent = cpu_ns(d) - began
        c.close()
        return spent

    alone = min(cost(f"alone{i}") for i in range(2))
    idle = [Client(d.socket) for _ in range(8)]
    for i, c in enumerate(idle):
        c.open(dataset="random:length=1,shape=1", world_size=4096, rank=0, job=f"idle{i}")
    beside = min(cost(f"beside{i}") for i in range(2))
    for c in idle:
        c.close()
    return (
        f"a batch costs {beside / alone:.1f} times the processor time beside 8 idle sessions"
        if beside > 2.5 * alone
        else None
    )


def memory_is_bounded_for_lists(field):
    """5: a `files:` list of 512 MiB of holes."""
    d = field.daemon("memory: 64MiB\n")
    folder = field.images("lists", {"0.jpg": DARK})
    with open(folder / "list.txt", "wb") as f:
        f.truncate(512 * MIB)
    with open(folder / "list.txt", "rb") as f:
        refused(lambda: Client(d.socket, 60).open([f.fileno(), directory(folder)], dataset=f"files:{folder}/list.txt"))
    return over_budget(d)


def memory_is_bounded_for_plans(field):
    """5: a shuffled order of 10^8 samples, which need no file."""
    d = field.daemon("memory: 64MiB\n")
    c = Client(d.socket, 120)

    def go():
        c.open(dataset="random:length=100000000,shape=1", shuffle=True)
        c.seek()
        c.batch()

    refused(go)
    return over_budget(d)


def memory_is_bounded_for_scratch(field):
    """5: pictures in the middle of a pipeline that are far larger than the batch."""
    return _make_one(field, DARK, '[["Resize",[5000,5000]],["Resize",[4999,4999]],["Resize",[16,16]],"ToTensor"]')


def memory_is_bounded_for_bombs(field):
    """5: a progressive arithmetic JPEG of 25 million pixels in four layers, in 150 bytes."""
    side = struct.pack(">H", 5000)
    layers = bytes([1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0, 4, 0x11, 0])
    bomb = b"\xff\xd8\xff\xdb\0\x43\0" + bytes([1] * 64) + b"\xff\xca\0\x14\x08" + side + side + b"\x04" + layers
    bomb += b"\xff\xda\0\x0e\x04\1\0\2\0\3\0\4\0\0\0\0" + b"\xff\xd9"
    return _make_one(field, bomb, CROP)


def _make_one(field, picture, transform):
    d = field.daemon("memory: 64MiB\n")
    folder = field.images("pictures", {f"cat/{i}.jpg": picture for i in range(4)})
    c = Client(d.socket, 120)

    def go():
        c.open([directory(folder)], dataset=f"imagefolder:{folder}", transform=transform, dtype=2)
        c.seek()
        for _ in range(4):
            c.give_back(c.batch())

    refused(go)
    return over_budget(d)


def over_budget(d):
    dead = check_serves(d)
    peak = peak_bytes(d) if d.process.poll() is None else 0
    return dead or (f"{peak // MIB} MiB with a budget of 64 MiB" if peak > 64 * MIB + SPARE_BYTES else None)


def long_rows_leave_workers(field):
    """8: rows that take long: how many of them are made while another user's ten batches wait."""
    d = field.daemon()
    steps = ",".join(f'["Resize",[{1000 + i % 2},1000]]' for i in range(12))
    folder = field.images("pictures", {f"cat/{i}.jpg": DARK for i in range(4)})
    slow = Client(d.socket, 120)
    slow.open(
        [directory(folder)],
        dataset=f"imagefolder:{folder}",
        transform=f'[{steps},["CenterCrop",[16,16]],"ToTensor"]',
        dtype=2,
        n_slots=16,
        batch_size=8,
        job="slow",
    )
    slow.seek()
    if not until(lambda: status(d)["workers"]["busy"] == 2):
        return "the slow rows were never begun"

    def made():
        return next(row for row in status(d)["loaders"] if row["job"] == "slow")["samples_decoded"]

    victim = Client(d.socket, 120)
    victim.open(dataset="random:length=100000,shape=4", n_slots=2, job="victim")
    victim.seek()
    victim.give_back(victim.batch())
    rows = 9
    for _ in range(5):  # the client itself may have to wait for a processor
        if rows <= 8:
            break
        before = made()
        for _ in range(10):
            victim.give_back(victim.batch())
        rows = made() - before
    return f"{rows} of the slow rows were made while 10 small batches were waited for" if rows > 8 else None


def leases_on_files_spin_no_thread(field):
    """11: files whose owner holds a write lease: opening them says EAGAIN for 45 s."""
    d = field.daemon("cache:\n  decoded: off\n")
    folder = field.images("leased", {f"cat/{i}.jpg": DARK for i in range(16)})
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    held = [os.open(path, os.O_RDWR) for path in sorted((folder / "cat").iterdir())]
    root = directory(folder)
    for fd in held:
        try:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as e:
            raise Skip(f"no leases here: {e}") from None
    c = Client(d.socket)
    c.open([root], dataset=f"imagefolder:{folder}", transform=CROP, dtype=2, n_slots=16)
    c.seek()
    time.sleep(0.3)
    began = cpu_ns(d)
    time.sleep(1)
    spent = (cpu_ns(d) - began) / 1e9
    for fd in held:
        os.close(fd)
    return f"{spent:.2f} s of processor time in a second of waiting for leases" if spent > 0.1 else None


def ring_goes_forward_only(field):
    """16: `taken` of the ring goes back."""
    d = field.daemon()
    c = Client(d.socket)
    c.open(dataset="random:length=1000,shape=4")
    c.seek()
    if not until(lambda: c.word(PRODUCED) >= 2):
        return "no batch came"

    def go():
        for taken in [2, 1, 2, 0, 2, 1] * 2000:
            c.set_word(TAKEN, taken)
            c.send("wake")
            c.drain()
            time.sleep(0.001)

    code = refused(go)
    return check_serves(d) or (None if code else "it was believed each time")


def kept_files_are_no_trap(field):
    """A kept cache file of one TiB of holes: one opening reads all of it, and all others wait."""
    kept = field.folder / "kept"
    kept.mkdir()
    config = f"cache:\n  decoded: off\n  directory: {kept}\n"
    folder = field.images("pictures", {"cat/0.jpg": DARK})

    def go(d):
        c = Client(d.socket, 200)
        c.open([directory(folder)], dataset=f"imagefolder:{folder}", transform=CROP, dtype=2)
        c.seek()
        c.give_back(c.batch())
        c.send("close")
        c.until_hung_up()

    first = field.daemon(config)
    go(first)
    first.stop()
    files = list(kept.iterdir())
    if not files:
        return "nothing was kept"
    for path in files:
        os.truncate(path, 1 << 40)
    try:
        go(field.daemon(config))
    except socket.timeout:
        return "the opening was not answered"
    return None


def kept_files_are_bounded(field):
    """22: one kept list for each opened folder, without limit."""
    d = field.daemon("cache:\n  disk: 1MiB\n")
    roots = [field.images(f"set{i}", {"cat/0.jpg": DARK}) for i in range(300)]
    time.sleep(0.05)  # a folder that changed a moment ago is not kept
    for i, root in enumerate(roots):
        c = Client(d.socket)
        c.open([directory(root)], dataset=f"imagefolder:{root}", job=f"job{i}")
        c.send("close")
        c.until_hung_up()
    size = sum(path.stat().st_blocks * 512 for path in (field.folder / "indexes").iterdir())
    return f"{size // 1024} KiB were kept where 1 MiB may be" if size > MIB else None


def a_late_hello_is_heard(field):
    """23: a client says Hello while the daemon is stopped; its timer is due before the daemon reads the socket."""
    d = field.daemon("limits:\n  hello_timeout: 2s\n")
    late = Client(d.socket, program=None)
    Client(d.socket)  # after the first one: both have been accepted
    d.process.send_signal(signal.SIGSTOP)
    late.send("hello", version=VERSION, program="late")
    time.sleep(2.2)
    d.process.send_signal(signal.SIGCONT)
    code = refused(lambda: late.expect("welcome"))
    return f"it was refused with code {code}" if code else None


# ---- attacks that let one user read or change another's data ----


def folders_are_checked_when_read(field):
    """3: a folder that bob may not search takes the place of one that his list names, after the list was opened."""
    need_root()
    d = field.daemon()
    work = field.images("bobs", {"list.txt": b"sub/0.jpg 0\n"}, owner=BOB)
    secret = field.images("bobs/secret", {"0.jpg": DARK}, mode=0o700)
    os.chmod(secret / "0.jpg", 0o644)

    def attack():
        c = Client(d.socket)
        with open(work / "list.txt", "rb") as f:
            if refused(
                lambda: c.open([f.fileno(), directory(work)], dataset=f"files:{work}/list.txt", transform=CROP, dtype=2)
            ):
                return False
        os.rename(secret, work / "sub")
        return _gets_pixels(c)

    return "bob has the pixels of a folder that he may not search" if in_child(attack, BOB) else None


def mounts_are_checked_when_read(field):
    """3: the same with a mount of bob's own that leads there."""
    need_root(mounts=True)
    d = field.daemon()
    work = field.images("bobs", {"list.txt": b"sub/0.jpg 0\n"}, owner=BOB)
    secret = field.images("alices", {"0.jpg": DARK}, owner=ALICE, mode=0o700)
    os.chmod(secret / "0.jpg", 0o644)

    def attack():
        unshare_mounts()
        opened, mounted = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            os.read(opened[0], 1)
            (work / "sub").mkdir()
            mount(secret, work / "sub", flags=MS_BIND)
            os.write(mounted[1], b"x")
            os._exit(0)
        become(BOB)
        c = Client(d.socket)
        with open(work / "list.txt", "rb") as f:
            if refused(
                lambda: c.open([f.fileno(), directory(work)], dataset=f"files:{work}/list.txt", transform=CROP, dtype=2)
            ):
                os.write(opened[1], b"x")
                return False
        os.write(opened[1], b"x")
        os.read(mounted[0], 1)
        return _gets_pixels(c)

    return "bob has the pixels of a folder that he may not search" if in_child(attack) else None


def _gets_pixels(c):
    try:
        c.seek()
        return not c.batch().get("n_replaced")
    except HungUp:
        return False


def many_groups_deny_as_well(field):
    """21: a file that denies its group, and a peer with more groups than the daemon checks."""
    need_root()
    d = field.daemon()
    group = 65130
    folder = field.images("bobs", {"cat/0.jpg": DARK})
    os.chown(folder / "cat/0.jpg", 0, group)
    os.chmod(folder / "cat/0.jpg", 0o604)

    def attack():
        become(BOB, groups=range(group - 100, group + 1))
        try:
            (folder / "cat/0.jpg").read_bytes()
            return False  # the kernel allows it: no attack
        except PermissionError:
            pass
        c = Client(d.socket)
        if refused(lambda: c.open([directory(folder)], dataset=f"imagefolder:{folder}", transform=CROP, dtype=2)):
            return False
        return _gets_pixels(c)

    return "bob has the pixels of a file that denies one of his groups" if in_child(attack) else None


def caches_are_the_users_own(field):
    """4: bob leaves an index for alice's file: same inode, time and size on a file system of his own, same claimed path."""
    need_root(mounts=True)
    alone, after = field.daemon("cache:\n  decoded: off\n"), field.daemon("cache:\n  decoded: off\n")

    def attack():
        unshare_mounts()
        for name, picture in [("a", LIGHT), ("b", DARK)]:
            root = field.folder / name
            root.mkdir()
            mount("tmpfs", root, "tmpfs")
            (root / "cat").mkdir()
            (root / "cat/0.jpg").write_bytes(picture)
            os.utime(root / "cat/0.jpg", ns=(10**18, 10**18))
        inodes = {os.stat(field.folder / name / "cat/0.jpg").st_ino for name in "ab"}
        if len(inodes) != 1:
            raise Skip("the inodes are not the same here")
        expected = in_child(lambda: _pixels(alone, field.folder / "a"), ALICE)
        in_child(lambda: _pixels(after, field.folder / "b"), BOB)
        return in_child(lambda: _pixels(after, field.folder / "a"), ALICE) != expected

    return "alice gets other pixels after bob has trained" if in_child(attack) else None


def _pixels(d, root):
    """The result of two epochs over the folder under a path that has nothing to do with it."""
    c = Client(d.socket)
    opened = c.open([directory(root)], dataset="imagefolder:/t/a", transform=CROP, dtype=2)
    c.seek()
    seen = []
    for _ in range(3):
        batch = c.batch()
        at = batch.get("slot", 0) * opened["slot_bytes"]
        # CROP as float32; read from the file, which grows as slots are made
        seen.append(hashlib.sha1(os.pread(c.fds[0], 3 * 16 * 16 * 4, at)).hexdigest())
        c.give_back(batch)
    c.send("close")
    c.until_hung_up()
    return seen


def same_path_is_not_same_data(field):
    """9: two containers of one uid with different volumes at one path."""
    d = field.daemon()
    one = field.images("one", {f"cat/{i}.jpg": DARK for i in range(4)})
    two = field.images("two", {"cat/0.jpg": DARK})
    first, second = Client(d.socket), Client(d.socket)
    options = dict(dataset="imagefolder:/data", mode=1, rank=-1)
    first.open([directory(one)], **options)
    code = refused(lambda: second.open([directory(two)], **options))
    return (
        None
        if code == 4
        else f"the second is given the first one's {second.opened and second.opened['n_samples']} samples"
    )


def root_elsewhere_is_not_trusted(field):
    """10: root of another mount namespace names a path of the host, without a descriptor."""
    need_root(mounts=True)
    d = field.daemon()
    secret = field.images("alices", {"cat/0.jpg": DARK}, owner=ALICE, mode=0o700)

    def over_there():
        unshare_mounts()
        mount("tmpfs", secret, "tmpfs")
        c = Client(d.socket)
        return refused(lambda: c.open(dataset=f"imagefolder:{secret}", transform=CROP, dtype=2))

    return None if in_child(over_there) == 6 else "a path was opened for it in the daemon's namespace"


def status_tells_nothing_of_others(field):
    """17: data sets, jobs and programs of another user."""
    need_root()
    d = field.daemon()
    opened, over = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(over[1])
        become(ALICE)
        c = Client(d.socket, program="alices-program")
        c.open(dataset="random:length=10,shape=17x1", job="alices-job")
        os.write(opened[1], b"x")
        os.read(over[0], 1)
        os._exit(0)
    os.read(opened[0], 1)
    text = json.dumps(in_child(lambda: status(d), BOB))
    os.close(over[1])
    os.waitpid(child, 0)
    told = [what for what in ("alices-program", "alices-job", "shape=17x1") if what in text]
    return f"bob is told {', '.join(told)}" if told else None


ATTACKS = [
    leases_are_counted,
    slabs_have_no_holes,
    idle_ranks_cost_nothing,
    folders_are_checked_when_read,
    mounts_are_checked_when_read,
    caches_are_the_users_own,
    memory_is_bounded_for_lists,
    memory_is_bounded_for_plans,
    memory_is_bounded_for_scratch,
    memory_is_bounded_for_bombs,
    long_rows_leave_workers,
    same_path_is_not_same_data,
    root_elsewhere_is_not_trusted,
    leases_on_files_spin_no_thread,
    ring_goes_forward_only,
    status_tells_nothing_of_others,
    many_groups_deny_as_well,
    kept_files_are_bounded,
    kept_files_are_no_trap,
    a_late_hello_is_heard,
]

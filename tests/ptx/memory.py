"""The memory that instructions read and write, and the counts of its use.

Accesses that a GPU answers with an error, or silently tolerates, are a Fault here: addresses outside of all
allocations, or not aligned to the size of the access; writing read-only memory; reading shared or local memory that was
never written; and races: two threads of a block at one byte of shared memory, one of them writing, with no barrier
between.

The counts: for every byte of global memory how often a launch read and wrote it; for every instruction its requests
(one per warp), and the 32-byte sectors of global memory, or the passes over the 32 banks of shared memory, that they
took.

Addresses come as an array of uint64, one for each active lane; unit is the size of one value, count the number of
values that each lane moves."""

from dataclasses import dataclass

import numpy as np

WARP, SECTOR, BANKS = 32, 32, 32
UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class Fault(Exception):
    """An access that no launch may make; names the kernel, the line, the block and the thread."""


class Wrong(Exception):
    """The same where only the lane is known (-1: none); launch.py turns it into a Fault."""

    def __init__(self, what, lane):
        super().__init__(what)
        self.lane = int(lane)


@dataclass
class Traffic:
    """The traffic of one instruction. best_passes: the fewest that this many bytes can take."""

    text: str
    space: str
    writes: bool
    requests: int = 0
    bytes: int = 0
    sectors: int = 0
    passes: int = 0
    best_passes: int = 0


def refuse(wrong, lanes, what):
    """wrong: for each lane; what: for one of those lanes, the message."""
    if wrong.any():
        first = np.flatnonzero(wrong)[0]
        raise Wrong(what(first), lanes[first])


def check_alignment(addresses, n, lanes):
    refuse(
        addresses % np.uint64(n) != 0,
        lanes,
        lambda i: f"0x{addresses[i]:x} is not aligned to the {n} bytes that are moved at once",
    )


def as_indices(addresses, n, size, lanes):
    """Of memory of `size` bytes whose addresses begin at 0."""
    check_alignment(addresses, n, lanes)
    refuse(
        (addresses >= size) | (addresses + np.uint64(n) > size),
        lanes,
        lambda i: f"{n} bytes at 0x{addresses[i]:x} of a memory of {size} bytes",
    )
    return addresses.astype(np.int64)


def pick(memory, at, unit, count):
    return [memory.view(UNSIGNED[unit])[at // unit + i] for i in range(count)]


def put(memory, at, unit, values):
    for i, value in enumerate(values):
        memory.view(UNSIGNED[unit])[at // unit + i] = value


class Constant:
    """Parameters, or .const variables: one piece for all threads."""

    def __init__(self, contents):
        self.size = len(contents)
        self.all = np.frombuffer(bytes(contents) + bytes(16 - len(contents) % 16), np.uint8)

    def load(self, addresses, unit, count, lanes):
        return pick(self.all, as_indices(addresses, unit * count, self.size, lanes), unit, count)


# ---- global memory ----


class Buffer:
    """Memory that a launch may use: .bytes, an array, at address .address for the launch."""

    def __init__(self, address, contents, writable):
        self.address, self.size, self.writable = address, len(contents), writable
        before = address % 16
        self.all = np.zeros((before + self.size + 15) // 16 * 16, np.uint8)  # from an aligned address on
        self.bytes = self.all[before : before + self.size]
        self.bytes[:] = contents
        self.ends = {False: np.zeros(self.size + 1, np.int64), True: np.zeros(self.size + 1, np.int64)}

    def note(self, at, n, writes):
        np.add.at(self.ends[writes], at, 1)
        np.add.at(self.ends[writes], at + n, -1)

    def reads(self):
        """How often each byte was read."""
        return np.cumsum(self.ends[False])[:-1]

    def writes(self):
        return np.cumsum(self.ends[True])[:-1]


class Global:
    """All buffers. They are far apart, so that a wrong address seldom hits another one."""

    def __init__(self):
        self.buffers = []
        self.next = 0x7F00_0000_0000

    def buffer(self, contents, offset=0, writable=False):
        """At an address that is `offset` more than a multiple of 512. contents: bytes; or their number, with arbitrary
        values."""
        if isinstance(contents, int):
            contents = np.random.default_rng(contents).integers(0, 256, contents, np.uint8)
        b = Buffer(self.next + offset, np.frombuffer(bytes(contents), np.uint8), writable)
        self.buffers.append(b)
        self.next += (b.size + 0x100000) // 512 * 512
        return b

    def _by_buffer(self, addresses, n, lanes):
        """Each buffer, which of the lanes access it, and at which index of its .all."""
        check_alignment(addresses, n, lanes)
        lost = np.ones(len(addresses), bool)
        for b in self.buffers:
            here = (addresses >= b.address) & (addresses <= b.address + b.size - n) & (b.size >= n)
            if here.any():
                lost &= ~here
                yield b, here, (addresses[here] - np.uint64(b.address - b.address % 16)).astype(np.int64)
        refuse(
            lost,
            lanes,
            lambda i: f"{n} bytes at 0x{addresses[i]:x}, outside of all buffers: {self._near(int(addresses[i]))}",
        )

    def _near(self, address):
        nearest = min(self.buffers, key=lambda b: min(abs(address - b.address), abs(address - b.address - b.size)))
        return f"the nearest has {nearest.size}, and this is {address - nearest.address:+} from its first"

    def load(self, addresses, unit, count, lanes):
        result = [np.zeros(len(addresses), UNSIGNED[unit]) for _ in range(count)]
        for b, here, at in self._by_buffer(addresses, unit * count, lanes):
            b.note(at - b.address % 16, unit * count, False)
            for all_of_it, part in zip(result, pick(b.all, at, unit, count)):
                all_of_it[here] = part
        return result

    def store(self, addresses, unit, values, lanes):
        for b, here, at in self._by_buffer(addresses, unit * len(values), lanes):
            refuse(here & (not b.writable), lanes, lambda i: "writes to memory that is for reading only")
            b.note(at - b.address % 16, unit * len(values), True)
            put(b.all, at, unit, [value[here] for value in values])

    def count(self, traffic, addresses, n, lanes):
        traffic.sectors += len(
            np.unique((lanes // WARP).astype(np.uint64) << np.uint64(48) | addresses // np.uint64(SECTOR))
        )


# ---- shared and local memory ----


class Private:
    """Memory of which each block (.shared) or each thread (.local) has its own."""

    NOBODY, SEVERAL = -1, -2

    def __init__(self, size, n_owners, lanes_per_owner):
        self.size, self.lanes_per_owner = size, lanes_per_owner
        self.stride = -(-size // 16) * 16
        self.all = np.zeros(self.stride * n_owners, np.uint8)
        self.known = np.zeros(len(self.all), bool)
        # The lane that wrote or read since the last barrier.
        self.writer, self.reader = (np.full(len(self.all), self.NOBODY, np.int32) for _ in range(2))

    def _place(self, addresses, n, lanes):
        """Indices, and of every byte the index and the lane."""
        at = as_indices(addresses, n, self.size, lanes) + lanes // self.lanes_per_owner * self.stride
        return at, (at[:, None] + np.arange(n)).ravel(), np.repeat(lanes, n)

    def load(self, addresses, unit, count, lanes):
        at, each, who = self._place(addresses, unit * count, lanes)
        refuse(~self.known[each], who, lambda i: f"byte {each[i] % self.stride} is read and was never written")
        self._refuse_race(each, who, self.writer, "written")
        before = self.reader[each]
        self.reader[each] = who
        several = (before != self.NOBODY) & (before != who) | (self.reader[each] != who)
        self.reader[each[several]] = self.SEVERAL
        return pick(self.all, at, unit, count)

    def store(self, addresses, unit, values, lanes):
        at, each, who = self._place(addresses, unit * len(values), lanes)
        self._refuse_race(each, who, self.writer, "written")
        self._refuse_race(each, who, self.reader, "read")
        self.writer[each] = who
        self._refuse_race(each, who, self.writer, "written")  # by another lane of the same instruction
        self.known[each] = True
        put(self.all, at, unit, values)

    def _refuse_race(self, each, who, others, did):
        def describe(i):
            other = others[each[i]]
            other = f"thread {other % self.lanes_per_owner}" if other >= 0 else "several threads"
            return f"a race: byte {each[i] % self.stride} was {did} by {other}, and there was no barrier since"

        refuse((others[each] != self.NOBODY) & (others[each] != who), who, describe)

    def barrier(self, owner):
        for lanes in (self.writer, self.reader):
            lanes[owner * self.stride : (owner + 1) * self.stride] = self.NOBODY

    def count(self, traffic, addresses, n, lanes):
        """8 bytes per lane are moved half a warp at a time, 16 bytes a quarter; lanes that access the same word share
        it."""
        words = max(n // 4, 1)
        group = np.repeat(lanes * words // WARP, words)
        word = (addresses.astype(np.int64)[:, None] // 4 + np.arange(words)).ravel()
        wanted = np.unique(group << 32 | word)
        banks, times = np.unique(wanted >> 32 << 8 | wanted % BANKS, return_counts=True)
        first = np.flatnonzero(np.diff(banks >> 8, prepend=-1))
        traffic.passes += int(np.maximum.reduceat(times, first).sum())
        traffic.best_passes += len(first)

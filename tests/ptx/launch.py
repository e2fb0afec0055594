"""A launch: all threads of all blocks in step, lane by lane in arrays.

Threads that diverge at a branch continue as groups. The group that is furthest behind in the text always runs, until it
meets another group or a barrier, so the groups join again where a GPU's threads do."""

from dataclasses import dataclass, field

import numpy as np

from . import operations
from .memory import WARP, Constant, Fault, Private, Traffic, Wrong
from .syntax import Unsupported

REGISTERS = {1: bool, 2: np.uint16, 4: np.uint32, 8: np.uint64}
EVERYBODY = slice(None)
RUNS = -1


@dataclass
class Report:
    """The record of a launch. steps: instructions, each once for a group; traffic: of each instruction that moves data,
    in order of execution."""

    steps: int = 0
    traffic: dict = field(default_factory=dict)

    def of(self, space, writes):
        return [t for t in self.traffic.values() if (t.space, t.writes) == (space, writes)]


class Program:
    """A kernel prepared for launches, any number of times."""

    def __init__(self, module, name):
        self.kernel, self.name = module.kernels[name], name
        self.sizes = dict.fromkeys(("param", "const", "shared", "local"), 0)
        self.constants = b""
        places = {}
        for v in self.kernel.parameters + module.variables + self.kernel.variables:
            if v.space not in self.sizes:
                raise Unsupported(f"{v.name}: a variable in .{v.space}")
            places[v.name] = -(-self.sizes[v.space] // v.align) * v.align
            self.sizes[v.space] = places[v.name] + v.size
            if v.space == "const":
                self.constants = self.constants.ljust(places[v.name], b"\0") + v.value.ljust(v.size, b"\0")
        self.parameters = [(places[p.name], p.size) for p in self.kernel.parameters]
        self.steps = [self._step(i, places) for i in self.kernel.instructions]

    def _step(self, i, places):
        if i.name == "bra" and i.modifiers in ((), ("uni",)) and i.operands[0].name in self.kernel.labels:
            return "branch", self.kernel.labels[i.operands[0].name]
        if i.name in ("ret", "exit") and not i.modifiers:
            return "end", None
        if i.name in ("bar", "barrier") and i.modifiers == ("sync",) and len(i.operands) == 1:
            return "barrier", None
        return "run", operations.compile(i, places)

    def launch(self, memory, n_blocks, n_threads, *parameters, most_steps=1_000_000):
        """Runs to the end and returns a Report, or raises a Fault. A parameter is a number, or the bytes of a struct."""
        return _Launch(self, memory, n_blocks, n_threads, parameters, most_steps).run()


class _Launch:
    def __init__(self, program, memory, n_blocks, n_threads, parameters, most_steps):
        if (
            n_threads % WARP
            or not 0 < n_threads <= program.kernel.threads
            or n_blocks < 1
            or len(parameters) != len(program.parameters)
        ):
            raise ValueError(f"{program.name}: {n_blocks} blocks of {n_threads} threads, {len(parameters)} parameters")
        self.program, self.n_blocks, self.n_threads, self.most_steps = program, n_blocks, n_threads, most_steps
        self.lanes = np.arange(n_blocks * n_threads)
        self.block, self.thread = (
            (self.lanes // n_threads).astype(np.uint32),
            (self.lanes % n_threads).astype(np.uint32),
        )
        self.registers = {}
        self.report = Report()
        self.shared = Private(program.sizes["shared"], n_blocks, n_threads)
        self.spaces = {
            "param": Constant(self._arguments(parameters)),
            "const": Constant(program.constants),
            "global": memory,
            "shared": self.shared,
            "local": Private(program.sizes["local"], len(self.lanes), 1),
        }
        self.groups = {0: self.lanes}  # where each group continues
        self.waits_at = np.full(len(self.lanes), RUNS)  # the barrier at which a lane waits

    def _arguments(self, parameters):
        arguments = bytearray(self.program.sizes["param"])
        for value, (at, size) in zip(parameters, self.program.parameters):
            value = value if isinstance(value, bytes) else value.to_bytes(size, "little")
            if len(value) != size:
                raise ValueError(f"{self.program.name}: a parameter of {len(value)} bytes where one of {size} belongs")
            arguments[at : at + size] = value
        return arguments

    # ---- called by operations.py ----

    def register(self, name):
        """A register that was never written holds any value but 0; nvcc reads such registers where the value makes no
        difference."""
        if name not in self.registers:
            size = self.program.kernel.registers[name]
            self.registers[name] = np.full(len(self.lanes), 0x5AA5_5AA5_5AA5_5AA5 % (1 << 8 * size), REGISTERS[size])
        return self.registers[name]

    def load(self, i, space, addresses, unit, count, lanes):
        space, addresses, who = self._access(i, space, addresses, unit * count, lanes, False)
        return space.load(addresses, unit, count, who)

    def store(self, i, space, addresses, unit, values, lanes):
        space, addresses, who = self._access(i, space, addresses, unit * len(values), lanes, True)
        space.store(addresses, unit, [np.broadcast_to(v, len(who)) for v in values], who)

    def _access(self, i, space, addresses, n, lanes, writes):
        who = self.lanes[lanes]
        addresses = np.broadcast_to(addresses, len(who))
        if space is None:  # a generic address contains its space
            space, addresses = operations.specific(i, addresses)
        if space in ("global", "shared"):
            traffic = self.report.traffic.setdefault((i.line, i.text), Traffic(i.text, space, writes))
            traffic.requests += len(np.unique(who // WARP))
            traffic.bytes += n * len(who)
            self.spaces[space].count(traffic, addresses, n, who)
        return self.spaces[space], addresses, who

    # ---- groups ----

    def run(self):
        with np.errstate(all="ignore"):
            while self.groups:
                at = min(self.groups)
                self._go_on(at, self.groups.pop(at))
        waiting = np.flatnonzero(self.waits_at != RUNS)
        if len(waiting):
            self._refuse_barrier(waiting[0] // self.n_threads)
        return self.report

    def _join(self, at, lanes):
        if len(lanes) and at < len(self.program.steps):
            self.groups[at] = np.union1d(self.groups[at], lanes) if at in self.groups else lanes

    def _go_on(self, at, group):
        """Runs until the group diverges, waits, ends, or reaches another group."""
        while at not in self.groups and at < len(self.program.steps):
            i, (kind, what) = self.program.kernel.instructions[at], self.program.steps[at]
            self.report.steps += 1
            if self.report.steps > self.most_steps:
                raise self._fault(i, f"still running after {self.most_steps} instructions")
            active = group[self.register(i.predicate)[group] != i.negated] if i.predicate else group
            if kind == "run":
                self._execute(i, what, active)
            elif len(active):
                self._join(at + 1, np.setdiff1d(group, active, assume_unique=True))
                if kind == "branch":
                    self._join(what, active)
                elif kind == "barrier":
                    self._wait(at, active)
                return
            at += 1
        self._join(at, group)

    def _execute(self, i, function, active):
        try:
            if len(active):
                function(self, EVERYBODY if len(active) == len(self.lanes) else active)
        except Wrong as wrong:
            raise self._fault(i, str(wrong), wrong.lane) from None

    def _fault(self, i, what, lane=-1):
        who = f"block {lane // self.n_threads}, thread {lane % self.n_threads}: " if lane >= 0 else ""
        return Fault(f"{self.program.name}: line {i.line}: {i.text}: {who}{what}")

    # ---- barriers ----

    def _wait(self, at, lanes):
        self.waits_at[lanes] = at
        places = self.waits_at.reshape(self.n_blocks, self.n_threads)
        for block in np.flatnonzero((places != RUNS).all(axis=1)):
            if (places[block] != at).any():
                self._refuse_barrier(block)
            places[block] = RUNS
            self.shared.barrier(block)
            self._join(at + 1, self.lanes[block * self.n_threads : (block + 1) * self.n_threads])

    def _refuse_barrier(self, block):
        places = self.waits_at[block * self.n_threads : (block + 1) * self.n_threads]
        at = places[places != RUNS][0]
        other = np.flatnonzero(places != at)[0]
        line = self.program.kernel.instructions[places[other]].line
        raise self._fault(
            self.program.kernel.instructions[at],
            f"block {block} has parted before a barrier: its thread {other} "
            + ("has ended" if places[other] == RUNS else f"waits at that of line {line}"),
        )

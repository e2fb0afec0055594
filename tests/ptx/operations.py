"""The effect of each instruction: an instruction becomes function(launch, lanes), which executes it for those lanes at
once. lanes: slice(None), or an array of indices.

Registers hold bits, in unsigned arrays of their width, predicates in arrays of bool. Operands are read as arrays of the
type that the instruction names: one value for each lane, or a single one for all of them. Branches, barriers and ends
are in launch.py."""

import numpy as np

from . import arithmetic
from .memory import UNSIGNED, Wrong
from .syntax import SIZES, Address, Immediate, Register, Symbol, Vector

SIGNED = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
WINDOWS = {"global": 0, "shared": 1 << 60, "local": 2 << 60}  # where they begin among generic addresses
OPERATIONS = {}


def compile(instruction, places):
    """places: the addresses of variables and parameters, by name."""
    build = OPERATIONS.get(instruction.name)
    if not build:
        raise instruction.unsupported("unknown instruction")
    o = Operands(instruction, places)
    function = build(o)
    if o.words:
        raise instruction.unsupported(f"unknown .{o.words[0]}")
    return function


def operation(*names):
    def register(build):
        OPERATIONS.update(dict.fromkeys(names, build))
        return build

    return register


def dtype(kind):
    """Halves are bits; only cvt interprets them."""
    if kind == "pred":
        return np.dtype(bool)
    if kind == "f32":
        return np.dtype(np.float32)
    return np.dtype((SIGNED if kind[0] == "s" else UNSIGNED)[SIZES[kind]])


class Operands:
    """An instruction while it is compiled. Its modifiers (words) are taken one by one; a remaining modifier is
    unsupported."""

    def __init__(self, instruction, places):
        self.i, self.name, self.words, self.places = instruction, instruction.name, list(instruction.modifiers), places

    def __getitem__(self, n):
        if n >= len(self.i.operands):
            raise self.unsupported("too few operands")
        return self.i.operands[n]

    def unsupported(self, why):
        return self.i.unsupported(why)

    def take(self, *wanted, must=False):
        for w in wanted:
            if w in self.words:
                self.words.remove(w)
                return w
        if must:
            raise self.unsupported(f"none of .{', .'.join(wanted)}")
        return None

    def type(self, *kinds):
        """The last remaining type: one of those given, or any type that begins so ("u")."""
        if (
            not self.words
            or self.words[-1] not in SIZES
            or not (self.words[-1] in kinds or self.words[-1].rstrip("0123456789") in kinds)
        ):
            raise self.unsupported("unknown type")
        return self.words.pop()

    def nearest(self):
        """Without .rn, a compiler of the PTX may fuse a float operation with its neighbour: then the result is not
        defined to the bit."""
        self.take("rn", must=True)

    def reader(self, operand, t):
        """function(launch, lanes) -> values. Of a register wider than the type it takes the lower part."""
        if isinstance(operand, Register):

            def read(m, lanes):
                v = m.register(operand.name)[lanes]
                return (v if v.dtype.itemsize == t.itemsize else v.astype(UNSIGNED[t.itemsize])).view(t)

            return read
        if isinstance(operand, Symbol) and operand.name in SPECIAL and t == np.uint32:
            return SPECIAL[operand.name]
        if isinstance(operand, Immediate):
            value = np.array([operand.value % (1 << 8 * t.itemsize)], UNSIGNED[t.itemsize]).view(t)
        elif isinstance(operand, Symbol) and operand.name in self.places:
            value = np.array([self.places[operand.name]], UNSIGNED[t.itemsize])
        else:
            raise self.unsupported("unknown operand")
        return lambda m, lanes: value

    def writer(self, operand):
        """function(launch, lanes, values). A value narrower than the register is extended as its own type says."""
        if operand == Symbol("_"):
            return lambda m, lanes, v: None
        if not isinstance(operand, Register):
            raise self.unsupported("unknown destination")

        def write(m, lanes, v):
            r = m.register(operand.name)
            if v.dtype.itemsize != r.dtype.itemsize:
                v = v.astype((SIGNED if v.dtype.kind == "i" else UNSIGNED)[r.dtype.itemsize])
            r[lanes] = v.view(r.dtype)

        return write

    def function(self, kinds, result, f):
        """destination = f(sources): kinds of the sources in turn, and of the result."""
        if len(self.i.operands) != 1 + len(kinds):
            raise self.unsupported("wrong number of operands")
        sources, to, t = (
            [self.reader(self[n + 1], dtype(kind)) for n, kind in enumerate(kinds)],
            self.writer(self[0]),
            dtype(result),
        )

        def run(m, lanes):
            to(m, lanes, f(*(source(m, lanes) for source in sources)).astype(t, copy=False))

        return run


SPECIAL = {
    "%tid.x": lambda m, lanes: m.thread[lanes],
    "%ctaid.x": lambda m, lanes: m.block[lanes],
    "%ntid.x": lambda m, lanes: np.array([m.n_threads], np.uint32),
    "%nctaid.x": lambda m, lanes: np.array([m.n_blocks], np.uint32),
}


# ---- arithmetic ----

FLOATS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
INTEGERS = {"add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum}


@operation("add", "sub", "mul", "div", "rem", "min", "max", "mad")
def calculate(o):
    kind = o.type("u", "s", "f32")
    if kind == "f32" and o.name in FLOATS:
        o.nearest()
        return o.function([kind] * 2, kind, lambda a, b: arithmetic.float32(FLOATS[o.name](a, b)))
    if kind != "f32" and o.name in INTEGERS:
        return o.function([kind] * 2, kind, INTEGERS[o.name])
    if kind != "f32" and o.name in ("mul", "mad"):
        return product(o, kind)
    if kind[0] == "u" and o.name in ("div", "rem"):
        return quotient(o, kind)
    raise o.unsupported("unknown type")


def product(o, kind):
    part, size = o.take("lo", "hi", "wide", must=True), SIZES[kind]
    if part != "lo" and size == 8:
        raise o.unsupported("unknown type")
    result = f"{kind[0]}{16 * size}" if part == "wide" else kind

    def multiply(a, b):
        if part == "lo":
            return a * b
        whole = a.astype(dtype(f"{kind[0]}{16 * size}")) * b
        return whole if part == "wide" else whole >> 8 * size

    if o.name == "mad":
        return o.function([kind, kind, result], result, lambda a, b, c: multiply(a, b).astype(dtype(result)) + c)
    return o.function([kind] * 2, result, multiply)


def quotient(o, kind):
    def divide(a, b):
        if not b.all():
            raise Wrong("a division by zero", -1)
        return a // b if o.name == "div" else a % b

    return o.function([kind] * 2, kind, divide)


@operation("fma")
def fma(o):
    o.nearest()
    return o.function(["f32"] * 3, o.type("f32"), arithmetic.fma)


@operation("neg")
def negate(o):
    kind = o.type("s")
    return o.function([kind], kind, np.negative)


# ---- bits ----


@operation("and", "or", "xor", "not")
def logic(o):
    kind = o.type("b", "pred")
    f = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert}[o.name]
    return o.function([kind] * f.nin, kind, f)


@operation("shl", "shr")
def shift(o):
    kind = o.type("b", "u", "s")
    return o.function([kind, "u32"], kind, arithmetic.shift_left if o.name == "shl" else arithmetic.shift_right)


@operation("shf")
def funnel(o):
    kind, left = o.type("b32"), o.take("l", "r", must=True) == "l"
    o.take("wrap", must=True)
    return o.function([kind, kind, "u32"], kind, lambda low, high, n: arithmetic.funnel(low, high, n, left))


@operation("bfe")
def extract(o):
    kind = o.type("u")
    return o.function([kind, "u32", "u32"], kind, arithmetic.extract)


@operation("prmt")
def permute(o):
    kind = o.type("b32")
    return o.function([kind] * 3, kind, arithmetic.permute)


# ---- choices ----

COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


@operation("setp")
def compare(o):
    kind = o.type("b", "u", "s")
    return o.function([kind] * 2, "pred", COMPARISONS[o.take(*COMPARISONS, must=True)])


@operation("selp")
def select(o):
    kind = o.type("b", "u", "s", "f32")
    return o.function([kind, kind, "pred"], kind, lambda a, b, p: np.where(p, a, b))


# ---- moves and conversions ----


@operation("mov")
def move(o):
    kind = o.type("b", "u", "s", "f32", "pred")
    if isinstance(o[1], Vector):
        return join(o, kind)
    if isinstance(o[0], Vector):
        return part(o, kind)
    return o.function([kind], kind, lambda v: v)


def join(o, kind):
    """A register from its parts, the lowest first."""
    whole, bits = dtype(kind), 8 * SIZES[kind] // len(o[1].parts)
    sources, to = [o.reader(each, dtype(f"b{bits}")) for each in o[1].parts], o.writer(o[0])

    def run(m, lanes):
        to(m, lanes, sum(source(m, lanes).astype(whole) << whole.type(bits * n) for n, source in enumerate(sources)))

    return run


def part(o, kind):
    whole, bits = dtype(kind), 8 * SIZES[kind] // len(o[0].parts)
    source, targets = o.reader(o[1], whole), [o.writer(each) for each in o[0].parts]

    def run(m, lanes):
        v = source(m, lanes)
        for n, to in enumerate(targets):
            to(m, lanes, (v >> whole.type(bits * n)).astype(dtype(f"b{bits}")))

    return run


HALVES = {"f16": arithmetic.to_float16, "bf16": arithmetic.to_bfloat16}


@operation("cvt")
def convert(o):
    source = o.type("u", "s", "f32", "f16")
    if source == "f16":  # every half is a float32
        if o.type("f32") != "f32":
            raise o.unsupported("unknown conversion")
        return o.function([source], "f32", lambda v: v.view(np.float16).astype(np.float32))
    to = o.type("u", "s", *(["f16", "bf16", "f16x2", "bf16x2"] if source == "f32" else ["f32"]))
    if to in HALVES:
        o.nearest()
        return o.function([source], to, HALVES[to])
    if to.endswith("x2"):  # of two numbers; the first becomes the upper half
        o.nearest()
        half = HALVES[to[:-2]]
        return o.function([source] * 2, to, lambda high, low: half(high).astype(np.uint32) << np.uint32(16) | half(low))
    if source == "f32":
        raise o.unsupported("unknown conversion")
    if to == "f32":
        o.nearest()
    return o.function([source], to, lambda v: v)


@operation("cvta")
def convert_address(o):
    kind, space, to = o.type("u64"), o.take(*WINDOWS, must=True), o.take("to")
    window = np.uint64(WINDOWS[space])
    return o.function([kind], kind, (lambda a: a - window) if to else (lambda a: a + window))


# ---- memory ----

# Hints affect timing and caches, not results.
HINTS = ("nc", "ca", "cg", "cs", "volatile", "L1::no_allocate", "L1::evict_first", "L2::128B", "L2::256B")


def place(o, operand):
    """The space (None: generic), and function(launch, lanes) -> addresses."""
    while o.take(*HINTS):
        pass
    if not isinstance(operand, Address):
        raise o.unsupported("no address")
    base, offset = o.reader(operand.base, np.dtype(np.uint64)), np.uint64(operand.offset % (1 << 64))
    return o.take("param", "const", "global", "shared", "local"), lambda m, lanes: base(m, lanes) + offset


def moved(o, operand):
    """The type of the data, and the operands for it: one, or as many as .v2 and .v4 say."""
    t, many = dtype(o.type("b", "u", "s", "f32")), o.take("v2", "v4")
    parts = operand.parts if isinstance(operand, Vector) else (operand,)
    if len(parts) != int(many[1] if many else 1):
        raise o.unsupported("wrong number of operands")
    return t, parts


@operation("ld")
def load(o):
    t, parts = moved(o, o[0])
    space, where = place(o, o[1])
    targets = [o.writer(each) for each in parts]

    def run(m, lanes):
        for to, v in zip(targets, m.load(o.i, space, where(m, lanes), t.itemsize, len(targets), lanes)):
            to(m, lanes, v.view(t))

    return run


@operation("st")
def store(o):
    t, parts = moved(o, o[1])
    space, where = place(o, o[0])
    sources = [o.reader(each, np.dtype(UNSIGNED[t.itemsize])) for each in parts]
    if space in ("param", "const"):
        raise o.unsupported("no place to write to")

    def run(m, lanes):
        m.store(o.i, space, where(m, lanes), t.itemsize, [source(m, lanes) for source in sources], lanes)

    return run


def specific(instruction, addresses):
    """The space that generic addresses lead to, and their addresses in it."""
    windows = addresses >> np.uint64(60)
    for space, begin in WINDOWS.items():
        if (windows == begin >> 60).all():
            return space, addresses - np.uint64(begin)
    raise instruction.unsupported("generic addresses in several spaces")

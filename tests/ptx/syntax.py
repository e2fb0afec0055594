"""PTX text as data: as nvcc and people write it, instruction by instruction. operations.py has the meanings."""

import bisect
import math
import re
from dataclasses import dataclass, field

SIZES = {
    "pred": 1,
    "b8": 1,
    "u8": 1,
    "s8": 1,
    "b16": 2,
    "u16": 2,
    "s16": 2,
    "f16": 2,
    "bf16": 2,
    "b32": 4,
    "u32": 4,
    "s32": 4,
    "f32": 4,
    "f16x2": 4,
    "bf16x2": 4,
    "b64": 8,
    "u64": 8,
    "s64": 8,
    "f64": 8,
}  # bytes


class Unsupported(Exception):
    """PTX that this interpreter does not know; the message has the place and the text."""


@dataclass(frozen=True)
class Register:
    name: str


@dataclass(frozen=True)
class Immediate:
    value: int  # of a floating-point number its bits


@dataclass(frozen=True)
class Symbol:
    name: str  # of a variable, a parameter, a label or a special register


@dataclass(frozen=True)
class Address:
    base: object  # Register, Symbol or Immediate
    offset: int


@dataclass(frozen=True)
class Vector:
    parts: tuple


@dataclass(frozen=True)
class Instruction:
    line: int
    text: str
    predicate: str | None  # a register's name
    negated: bool  # runs where the predicate is false
    name: str  # "ld"
    modifiers: tuple  # ("global", "v4", "u32")
    operands: tuple

    def unsupported(self, why="unknown"):
        return Unsupported(f"line {self.line}: {why}: {self.text}")


@dataclass(frozen=True)
class Variable:
    name: str
    space: str
    align: int
    size: int  # bytes
    value: bytes = b""  # its initial bytes; the rest is zeros


@dataclass
class Kernel:
    name: str
    threads: int = 1024  # the largest allowed size of a block
    parameters: list = field(default_factory=list)  # of Variable
    registers: dict = field(default_factory=dict)  # name -> bytes
    variables: list = field(default_factory=list)  # of Variable, .shared and .local
    instructions: list = field(default_factory=list)
    labels: dict = field(default_factory=dict)  # name -> index of an instruction


@dataclass
class Module:
    target: str = ""
    kernels: dict = field(default_factory=dict)  # name -> Kernel
    variables: list = field(default_factory=list)  # of Variable, those outside of kernels


NAME = r"[A-Za-z_$%][\w$]*"
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
HEADER = re.compile(r"\.(version|target|address_size)[ \t]+([^\n]*)")
ENTRY = re.compile(rf"(?:\.visible\s+)?\.entry\s+({NAME})\s*(?:\(([^)]*)\))?([^{{]*)\{{")
STATEMENT = re.compile(rf"(?P<brace>[{{}}])|(?P<label>{NAME}):(?!:)|(?P<text>[^;]*);")
VARIABLE = re.compile(
    rf"(?:\.(?:visible|weak)\s+)?\.(param|shared|local|global|const)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+({NAME})"
    r"\s*(?:\[(\d+)\])?\s*(?:=\s*(.*))?",
    re.S,
)
REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)", re.S)
INSTRUCTION = re.compile(rf"(?:@(!?)({NAME})\s+)?([a-z]\w*)((?:\.[\w:]+)*)\s*(.*)", re.S)
OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,{\[]+")
NUMBER = re.compile(r"0[fF]([\da-fA-F]{8})|0[dD]([\da-fA-F]{16})|(-?)(?:0[xX]([\da-fA-F]+)|0([0-7]+)|(\d+))U?")


def parse(text):
    return _Parser(text).module


class _Parser:
    def __init__(self, text):
        self.text = COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
        self.ends = [m.start() for m in re.finditer("\n", self.text)]
        self.module = Module()
        self.at = 0
        while self.more():
            if header := self.take(HEADER):
                if header[1] == "target":
                    self.module.target = header[2].split(",")[0].strip()
            elif entry := self.take(ENTRY):
                self.kernel(entry)
            elif (statement := self.take(STATEMENT)) and statement["text"]:
                self.module.variables.append(self.variable(statement["text"].strip()))
            else:
                raise self.unsupported(self.text[self.at : self.at + 80])

    def more(self):
        """Moves to a position in the text; its line is named in messages."""
        self.at = re.compile(r"\s*").match(self.text, self.at).end()
        self.line = bisect.bisect_left(self.ends, self.at) + 1
        return self.at < len(self.text)

    def take(self, pattern):
        m = pattern.match(self.text, self.at)
        if m:
            self.at = m.end()
        return m

    def unsupported(self, text):
        return Unsupported(f"line {self.line}: unknown: {' '.join(text.split())}")

    def variable(self, text):
        m = VARIABLE.fullmatch(text)
        if not m or m[3] not in SIZES:
            raise self.unsupported(text)
        unit = SIZES[m[3]]
        value = b"".join(
            (number(v.strip()) % (1 << 8 * unit)).to_bytes(unit, "little") for v in re.findall(r"[^{},]+", m[6] or "")
        )
        return Variable(m[4], m[1], int(m[2] or unit), unit * int(m[5] or 1), value)

    def kernel(self, entry):
        self.k = k = Kernel(entry[1])
        self.module.kernels[k.name] = k
        k.parameters = [self.variable(p.strip()) for p in (entry[2] or "").split(",") if p.strip()]
        for name, value in re.findall(r"\.(\w+)([^.]*)", entry[3]):
            if name in ("maxntid", "reqntid"):
                k.threads = math.prod(int(n) for n in re.findall(r"\d+", value))
            elif name not in ("minnctapersm", "maxnreg"):
                raise self.unsupported(entry[3])
        depth = 1  # depth of braces that begin a statement, which are scopes; other braces are vectors
        while depth:
            s = self.more() and self.take(STATEMENT)
            if not s:
                raise self.unsupported(f"{k.name} has no end")
            if s["brace"]:
                depth += 1 if s["brace"] == "{" else -1
            elif s["label"]:
                k.labels[s["label"]] = len(k.instructions)
            elif s["text"].startswith(".reg"):
                self.declare(s["text"])
            elif s["text"].startswith((".shared", ".local")):
                k.variables.append(self.variable(s["text"].strip()))
            elif s["text"].strip() and not s["text"].startswith(".pragma"):
                k.instructions.append(self.instruction(s["text"].strip()))

    def declare(self, text):
        kind, names = REGISTERS.fullmatch(text).groups()
        for name in names.split(","):
            first, many = re.fullmatch(rf"\s*({NAME})(?:<(\d+)>)?\s*", name).groups()
            for each in [f"{first}{i}" for i in range(int(many))] if many else [first]:
                if self.k.registers.setdefault(each, SIZES[kind]) != SIZES[kind]:
                    raise self.unsupported(text)  # one name for two things, each in a scope of its own

    def instruction(self, text):
        m = INSTRUCTION.fullmatch(text)
        if not m:
            raise self.unsupported(text)
        operands = tuple(self.operand(part.strip()) for part in OPERAND.findall(m[5]) if part.strip())
        return Instruction(
            self.line, " ".join(text.split()), m[2], bool(m[1]), m[3], tuple(m[4].split(".")[1:]), operands
        )

    def operand(self, text):
        if text.startswith("{"):
            return Vector(tuple(self.operand(part.strip()) for part in text[1:-1].split(",")))
        if text.startswith("["):
            m = re.fullmatch(rf"\[\s*({NAME}|\d+)\s*(?:\+?\s*(-?\d+))?\s*\]", text)
            if not m:
                raise self.unsupported(text)
            return Address(self.operand(m[1]), int(m[2] or 0))
        if NUMBER.fullmatch(text):
            return Immediate(number(text))
        if text in self.k.registers:
            return Register(text)
        if not re.fullmatch(rf"{NAME}(\.[xyz])?", text):
            raise self.unsupported(text)
        return Symbol(text)


def number(text):
    m = NUMBER.fullmatch(text)
    if not m:
        raise Unsupported(f"not a number: {text}")
    single, double, minus, hexadecimal, octal, decimal = m.groups()
    if single or double:
        return int(single or double, 16)
    value = int(hexadecimal, 16) if hexadecimal else int(octal, 8) if octal else int(decimal)
    return -value if minus else value

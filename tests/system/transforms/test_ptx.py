"""The PTX interpreter (tests/ptx) by itself: its arithmetic against libm, torch and plain Python, every rule that it
enforces violated once, its counts on patterns with known answers. And the conformance program's kernels, which
otherwise no compiler sees before a driver does."""

import ctypes
import ctypes.util
import os
import random
import shutil
import struct
import subprocess

import numpy as np
import ptx
import pytest

# The test numbers overflow, as they would on a GPU.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
HEAD = ".version 7.0\n.target sm_70\n.address_size 64\n"
# The beginning of every kernel below: the thread's number among all threads in %r0, its place in each of two arrays of
# words in %rd2 and %rd3.
BEGIN = """
    .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .f32 %f<9>;
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r0, %r1, %r2, %r3;
    ld.param.u64 %rd0, [to]; ld.param.u64 %rd1, [from]; mul.wide.u32 %rd4, %r0, 4; add.u64 %rd2, %rd0, %rd4; add.u64 %rd3, %rd1, %rd4;
"""


def program(body, variables="", outside=""):
    text = f"{HEAD}{outside}.visible .entry kernel(.param .u64 to, .param .u64 from)\n{{ {variables} {BEGIN} {body} ret; }}"
    return ptx.Program(ptx.parse(text), "kernel")


def run(body, source, n_blocks=1, variables="", outside="", n_threads=None, words=None):
    """Words in, words out, one for each thread; and the report."""
    memory = ptx.Global()
    source = np.asarray(source, np.uint32)
    n_threads = n_threads or len(source) // n_blocks
    a, b = memory.buffer(source.tobytes()), memory.buffer(4 * (words or n_blocks * n_threads), writable=True)
    report = program(body, variables, outside).launch(
        memory, n_blocks, n_threads, b.address, a.address, most_steps=10_000
    )
    return b.bytes.view(np.uint32), report


SHARED = ".shared .align 8 .b32 s[64];"


def fails(message, body, source=range(64), **more):
    with pytest.raises(ptx.Fault, match=message):
        run(body, source, **more)


def floats(n, seed):
    """Floats of all sizes, with subnormals, zeros, infinities and short mantissas, which make ties."""
    r = np.random.default_rng(seed)
    bits = r.integers(0, 1 << 32, n, np.uint32)
    bits[::3] &= np.uint32(0xFFF00000)
    bits[1::7] &= np.uint32(0x807FFFFF)
    bits[:6] = np.array([0, 0x80000000, 0x7F800000, 0xFF800000, 1, 0x7F7FFFFF], np.uint32)
    return bits.view(np.float32)


# ---- arithmetic ----


def test_fma_rounds_once():
    """Against libm: random numbers, and sums that are next to a tie of the second rounding."""
    fmaf = ctypes.CDLL(ctypes.util.find_library("m")).fmaf
    fmaf.restype, fmaf.argtypes = ctypes.c_float, [ctypes.c_float] * 3
    r = np.random.default_rng(5)
    big = r.integers(1 << 23, 1 << 24, 20000).astype(np.float32)  # products have up to 48 bits
    ties = (2 * r.integers(2048, 2896, 20000) + 1).astype(
        np.float32
    )  # products are odd and have 25 bits: in the middle of two floats
    a = np.concatenate([floats(20000, 1), big, ties])
    b = np.concatenate([floats(20000, 2), big[::-1], ties[::-1]])
    c = np.concatenate(
        [floats(20000, 3), -(big * big[::-1]), r.choice([0, 2**-40, -(2**-40), 1, 0.5], 20000).astype(np.float32)]
    )
    ours = ptx.arithmetic.fma(a, b, c)
    theirs = np.array([fmaf(x, y, z) for x, y, z in zip(a, b, c)], np.float32)
    numbers = ~np.isnan(theirs)
    assert numbers.sum() > 50000
    assert (ours.view(np.uint32)[numbers] == theirs.view(np.uint32)[numbers]).all()
    assert (ours.view(np.uint32)[~numbers] == 0x7FFFFFFF).all()
    twice = (a.astype(np.float64) * b + c).astype(np.float32)
    assert (twice[numbers] != theirs[numbers]).sum() > 1000  # so these numbers do distinguish the two


def test_halves_are_torchs():
    torch = pytest.importorskip("torch")
    v = np.concatenate([floats(200000, 4), np.arange(0x33000000, 0x47900000, 0x800, np.uint32).view(np.float32)])
    v = v[~np.isnan(v)]
    for ours, theirs in ((ptx.arithmetic.to_float16, torch.float16), (ptx.arithmetic.to_bfloat16, torch.bfloat16)):
        assert (ours(v) == torch.from_numpy(v).to(theirs).view(torch.int16).numpy().view(np.uint16)).all()
        assert (ours(np.array([np.nan, -np.nan], np.float32)) == 0x7FFF).all()


def test_float_instructions_round_to_nearest():
    x = floats(64, 6)
    x = np.where(np.isnan(x), np.float32(3), x)
    for name, wanted in (("add", x + x[::-1]), ("sub", x - x[::-1]), ("mul", x * x[::-1]), ("div", x / x[::-1])):
        got, _ = run(
            f"""ld.global.f32 %f0, [%rd3]; mov.u32 %r4, 63; sub.u32 %r4, %r4, %r0; mad.wide.u32 %rd5, %r4, 4, %rd1; ld.global.f32 %f1, [%rd5];
                         {name}.rn.f32 %f2, %f0, %f1; st.global.f32 [%rd2], %f2;""",
            x.view(np.uint32),
        )
        assert (got == np.where(np.isnan(wanted), np.uint32(0x7FFFFFFF), wanted.view(np.uint32))).all(), name


def signed(v, bits=32):
    return v - (1 << bits) if v >> (bits - 1) & 1 else v


def permuted(a, b, s):
    both = (b << 32 | a).to_bytes(8, "little")
    chosen = [(both[s >> 4 * i & 7], s >> 4 * i & 8) for i in range(4)]
    return int.from_bytes(bytes((255 if byte >> 7 else 0) if sign else byte for byte, sign in chosen), "little")


@pytest.mark.parametrize(
    "instruction, wanted",
    [
        ("add.s32 %r6, %r4, %r5", lambda a, b: a + b),
        ("sub.s32 %r6, %r4, %r5", lambda a, b: a - b),
        ("mul.lo.s32 %r6, %r4, %r5", lambda a, b: a * b),
        ("mul.hi.u32 %r6, %r4, %r5", lambda a, b: a * b >> 32),
        ("mul.hi.s32 %r6, %r4, %r5", lambda a, b: signed(a) * signed(b) >> 32),
        ("mad.lo.u32 %r6, %r4, %r5, %r4", lambda a, b: a * b + a),
        ("mul.wide.u32 %rd5, %r4, %r5; shr.u64 %rd5, %rd5, 13; cvt.u32.u64 %r6, %rd5", lambda a, b: a * b >> 13),
        (
            "mul.wide.s32 %rd5, %r4, -3; shr.s64 %rd5, %rd5, 33; cvt.u32.u64 %r6, %rd5",
            lambda a, b: signed(a) * -3 >> 33,
        ),
        ("or.b32 %r5, %r5, 1; div.u32 %r6, %r4, %r5", lambda a, b: a // (b | 1)),
        ("or.b32 %r5, %r5, 1; rem.u32 %r6, %r4, %r5", lambda a, b: a % (b | 1)),
        ("min.s32 %r6, %r4, %r5", lambda a, b: min(a, b, key=signed)),
        ("max.u32 %r6, %r4, %r5", max),
        ("and.b32 %r6, %r4, 65280; xor.b32 %r6, %r6, %r5; not.b32 %r6, %r6", lambda a, b: ~(a & 65280 ^ b)),
        ("neg.s32 %r6, %r4", lambda a, b: -a),
        ("and.b32 %r5, %r5, 63; shl.b32 %r6, %r4, %r5", lambda a, b: a << (b & 63)),
        ("and.b32 %r5, %r5, 63; shr.u32 %r6, %r4, %r5", lambda a, b: a >> (b & 63)),
        ("and.b32 %r5, %r5, 63; shr.s32 %r6, %r4, %r5", lambda a, b: signed(a) >> (b & 63)),
        ("shf.l.wrap.b32 %r6, %r4, %r5, %r5", lambda a, b: (b << 32 | a) << (b & 31) >> 32),
        ("shf.r.wrap.b32 %r6, %r4, %r5, %r4", lambda a, b: (b << 32 | a) >> (a & 31)),
        ("bfe.u32 %r6, %r4, 8, 8", lambda a, b: a >> 8 & 255),
        ("bfe.u32 %r6, %r4, %r5, 9", lambda a, b: a >> (b & 255) & 511),
        ("prmt.b32 %r6, %r4, %r5, 0x5410", lambda a, b: b << 16 | a & 65535),
        ("prmt.b32 %r6, %r4, 0, 291", lambda a, b: int.from_bytes(a.to_bytes(4, "little"), "big")),
        ("prmt.b32 %r6, %r4, %r5, %r5", lambda a, b: permuted(a, b, b)),
        ("setp.lt.s32 %p0, %r4, %r5; selp.b32 %r6, %r4, 7, %p0", lambda a, b: a if signed(a) < signed(b) else 7),
        ("setp.lt.u32 %p0, %r4, %r5; not.pred %p1, %p0; selp.b32 %r6, %r4, %r5, %p1", max),
        (
            "mov.u32 %r6, 9; setp.gt.u32 %p0, %r4, %r5; @%p0 mov.u32 %r6, %r4; @!%p0 add.u32 %r6, %r6, 1",
            lambda a, b: a if a > b else 10,
        ),
        (
            "mov.b64 %rd5, {%r4, %r5}; shr.u64 %rd5, %rd5, 16; mov.b64 {%r6, %r7}, %rd5",
            lambda a, b: (b << 32 | a) >> 16,
        ),
        (
            "cvt.u16.u32 %h0, %r4; cvt.u32.u16 %r5, %h0; mov.b32 %r6, {%h0, %h0}; sub.u32 %r6, %r6, %r5",
            lambda a, b: (a & 65535) << 16,
        ),
        ("cvt.u16.u32 %h0, %r4; cvt.s32.s16 %r6, %h0", lambda a, b: signed(a & 65535, 16)),
        ("cvt.rn.f32.u32 %f0, %r4; mov.b32 %r6, %f0", lambda a, b: struct.unpack("I", np.float32(a).tobytes())[0]),
    ],
)
def test_integers(instruction, wanted):
    r = random.Random(7)
    values = [
        r.choice([0, 1, 0x80000000, 0xFFFFFFFF, r.getrandbits(32), r.getrandbits(8), r.getrandbits(6)])
        for _ in range(128)
    ]
    got, _ = run(
        f"ld.global.u32 %r4, [%rd3]; ld.global.u32 %r5, [%rd3+256]; {instruction}; st.global.u32 [%rd2], %r6;",
        values,
        n_threads=64,
    )
    assert [int(v) for v in got] == [wanted(a, b) & 0xFFFFFFFF for a, b in zip(values, values[64:])]


def test_halves_in_words():
    """cvt.rn.f16x2.f32: the first source is the upper half."""
    x = np.linspace(-70000, 70000, 64, dtype=np.float32)
    got, _ = run(
        "ld.global.f32 %f0, [%rd3]; cvt.rn.f16x2.f32 %r4, 0f3F800000, %f0; st.global.b32 [%rd2], %r4;",
        x.view(np.uint32),
    )
    assert (got >> 16 == 0x3C00).all()
    assert (got & 0xFFFF == x.astype(np.float16).view(np.uint16)).all()


# ---- control flow ----


def test_threads_part_and_meet():
    """Loops of a different length in every thread; a finished thread waits at the loop's end."""
    steps = [0] * 96
    for i in range(96):
        n = i + 1
        while n != 1:
            n, steps[i] = (n // 2 if n % 2 == 0 else 3 * n + 1), steps[i] + 1
    got, report = run(
        """
        ld.global.u32 %r4, [%rd3]; mov.u32 %r5, 0;
        NEXT: setp.eq.u32 %p0, %r4, 1; @%p0 bra DONE;
        and.b32 %r6, %r4, 1; setp.eq.u32 %p1, %r6, 0; @%p1 bra EVEN;
        mad.lo.u32 %r4, %r4, 3, 1; bra.uni JOIN;
        EVEN: shr.u32 %r4, %r4, 1;
        JOIN: add.u32 %r5, %r5, 1; bra NEXT;
        DONE: st.global.u32 [%rd2], %r5;""",
        range(1, 97),
        n_blocks=3,
    )
    assert list(got) == steps
    assert [t.requests for t in report.of("global", True)] == [3]  # together again: one request for each warp


def test_shared_memory_and_barriers():
    """Each block reverses its part, twice, in the same memory."""
    got, _ = run(
        """
        mov.u64 %rd7, part; shl.b32 %r4, %r3, 2; cvt.u64.u32 %rd5, %r4; add.u64 %rd5, %rd7, %rd5; mov.u32 %r5, 252; sub.u32 %r5, %r5, %r4; cvt.u64.u32 %rd6, %r5;
        add.u64 %rd6, %rd6, %rd7; ld.global.u32 %r6, [%rd3]; mov.u32 %r7, 0;
        TURN: st.shared.u32 [%rd5], %r6; bar.sync 0; ld.shared.u32 %r6, [%rd6]; bar.sync 0;
        add.u32 %r6, %r6, 1000; add.u32 %r7, %r7, 1; setp.lt.u32 %p0, %r7, 3; @%p0 bra TURN;
        st.global.u32 [%rd2], %r6;""",
        range(192),
        n_blocks=3,
        variables=".shared .align 4 .b8 part[256];",
    )
    assert (got.reshape(3, 64) == np.arange(192).reshape(3, 64)[:, ::-1] + 3000).all()


def test_other_spaces():
    """Local memory of every thread, constants, generic addresses, bytes with and without sign."""
    got, _ = run(
        """
        mov.u64 %rd5, mine; st.local.u32 [%rd5], %r0; mov.u32 %r4, 0xfe; st.local.u8 [%rd5+1], %r4; cvta.local.u64 %rd6, %rd5; ld.s8 %r5, [%rd6+1];
        ld.local.u32 %r6, [%rd5]; and.b32 %r7, %r0, 1; mul.wide.u32 %rd7, %r7, 4; mov.u64 %rd8, table; add.u64 %rd8, %rd8, %rd7; ld.const.u32 %r8, [%rd8];
        add.u32 %r6, %r6, %r5; add.u32 %r6, %r6, %r8; st.global.u32 [%rd2], %r6;""",
        range(64),
        variables=".local .align 4 .b8 mine[8];",
        outside=".const .align 4 .u32 table[2] = {5, 0x10};\n",
    )
    assert [int(v) for v in got] == [0xFE00 + i - 2 + (0x10 if i & 1 else 5) for i in range(64)]


# ---- refusals ----


def test_addresses():
    fails(
        r"kernel: line 10: ld.global.u32 .*block 0, thread 63: 4 bytes at 0x\w+, outside of all buffers: .* has 256, and this is \+256 ",
        "\nld.global.u32 %r4, [%rd3+4];",
    )
    fails(
        "block 1, thread 0: .* -4 from its first",
        "mul.lo.u32 %r4, %r1, 132; cvt.u64.u32 %rd5, %r4; sub.u64 %rd5, %rd3, %rd5; ld.global.u32 %r4, [%rd5];",
        n_blocks=2,
    )
    fails(r"thread 0: 0x\w+ is not aligned to the 4 bytes", "ld.global.u32 %r4, [%rd3+2];")
    fails(r"thread 1: 0x\w+ is not aligned to the 16 bytes", "ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd3];")
    fails("for reading only", "st.global.u32 [%rd3], %r0;")
    fails(
        "thread 62: 8 bytes at 0x100 of a memory of 256 bytes",
        "setp.eq.u32 %p0, %r0, 62; @%p0 st.shared.v2.u32 [256], {%r0, %r0};",
        variables=SHARED,
    )


def test_uninitialised_shared_memory():
    fails(
        "thread 63: byte 252 is read and was never written",
        "cvt.u32.u64 %r4, %rd4; setp.lt.u32 %p0, %r0, 63; @%p0 st.shared.u32 [%r4], %r0; bar.sync 0; ld.shared.u32 %r5, [%r4];",
        variables=SHARED,
    )


def test_races():
    place = "cvt.u32.u64 %r4, %rd4; xor.b32 %r5, %r4, 4;"
    fails(
        "thread 0: a race: byte 4 was written by thread 1",
        place + "st.shared.u32 [%r4], %r0; ld.shared.u32 %r6, [%r5];",
        variables=SHARED,
    )
    run(place + "st.shared.u32 [%r4], %r0; bar.sync 0; ld.shared.u32 %r6, [%r5];", range(64), variables=SHARED)
    fails(
        "thread 0: a race: byte 4 was read by thread 0|thread 0: a race: byte 4 was read by thread 1",
        place + "st.shared.u32 [%r4], %r0; bar.sync 0; ld.shared.u32 %r6, [%r4]; st.shared.u32 [%r5], %r6;",
        variables=SHARED,
    )
    fails(
        "was read by several threads",
        place
        + "st.shared.u32 [%r4], %r0; bar.sync 0; ld.shared.u32 %r6, [%r4]; ld.shared.u32 %r6, [%r5]; st.shared.u32 [%r4], %r6;",
        variables=SHARED,
    )
    fails(
        "was written by thread 31", "st.shared.u8 [3], %r0;", range(32), variables=SHARED
    )  # all threads of one warp at once
    run(
        place + "st.shared.u32 [%r4], %r0; ld.shared.u32 %r6, [%r4]; st.shared.u32 [%r4], %r6;",
        range(64),
        variables=SHARED,
    )  # each thread at its own


def test_barriers_that_not_all_come_to():
    fails(
        "block 0 has parted before a barrier: its thread 40 has ended",
        "setp.ge.u32 %p0, %r0, 40; @%p0 ret; bar.sync 0;",
    )
    fails(
        "line 10: .*waits at that of line 12",
        "setp.ge.u32 %p0, %r0, 40; @%p0 bra OTHER;\nbar.sync 0; bra END;\nOTHER:\nbar.sync 0;\nEND:",
    )


def test_other_mistakes():
    fails("still running after 10000 instructions", "AGAIN: bra AGAIN;")
    fails("a division by zero", "div.u32 %r4, %r0, %r0;")


@pytest.mark.parametrize(
    "line, message",
    [
        ("frobnicate.u32 %r4, %r0;", "line 10: unknown instruction: frobnicate.u32 %r4, %r0"),
        ("add.sat.s32 %r4, %r0, %r0;", "unknown .sat: add.sat.s32"),
        ("add.f32 %f0, %f1, %f1;", "none of .rn: add.f32"),
        ("fma.rn.ftz.f32 %f0, %f1, %f1, %f1;", "unknown .ftz"),
        ("add.rn.f64 %rd5, %rd5, %rd5;", "unknown type"),
        ("div.s32 %r4, %r0, %r0;", "unknown type: div.s32"),
        ("mov.u32 %r4, %laneid;", "unknown operand"),
        ("mov.u32 %r4, %tid.y;", "unknown operand"),
        ("ld.global.v4.u32 {%r4, %r5}, [%rd3];", "wrong number of operands"),
        ("atom.global.add.u32 %r4, [%rd2], %r0;", "unknown instruction: atom"),
        ("bra NOWHERE;", "unknown instruction: bra NOWHERE"),
    ],
)
def test_unknown_instructions_are_named(line, message):
    with pytest.raises((ptx.Unsupported), match=message):
        program("\n" + line)


# ---- counts ----


def traffic(body, space, n_threads=32, words=None, **more):
    _, report = run(body, range(words or n_threads), n_threads=n_threads, words=words, **more)
    (t,) = report.of(space, True)
    return t


def test_sectors_of_global_memory():
    whole = traffic("st.global.u32 [%rd2], %r0;", "global", 64)
    assert (whole.requests, whole.bytes, whole.sectors) == (2, 256, 8)
    apart = traffic("mad.wide.u32 %rd5, %r0, 32, %rd0; st.global.u32 [%rd5], %r0;", "global", 32, 256)
    assert (apart.requests, apart.bytes, apart.sectors) == (1, 128, 32)
    wide = traffic(
        "mad.wide.u32 %rd5, %r0, 16, %rd0; st.global.v4.u32 [%rd5], {%r0, %r0, %r0, %r0};", "global", 32, 128
    )
    assert (wide.requests, wide.bytes, wide.sectors) == (1, 512, 16)
    shifted = traffic("setp.lt.u32 %p0, %r0, 31; @%p0 st.global.u32 [%rd2+4], %r0;", "global")
    assert (shifted.requests, shifted.bytes, shifted.sectors) == (1, 124, 4)


@pytest.mark.parametrize(
    "stride, words, passes, best",
    [
        (4, 1, 1, 1),
        (8, 1, 2, 1),
        (12, 1, 1, 1),
        (128, 1, 32, 1),
        (0, 1, 1, 1),
        (8, 2, 2, 2),
        (16, 2, 4, 2),
        (24, 2, 2, 2),
        (16, 4, 4, 4),
        (32, 4, 8, 4),
        (48, 4, 4, 4),
        (64, 4, 16, 4),
    ],
)
def test_banks_of_shared_memory(stride, words, passes, best):
    values = {1: "u32 %r5", 2: "v2.u32 {%r5, %r6}", 4: "v4.u32 {%r5, %r6, %r7, %r8}"}[words]
    kind, names = values.split(" ", 1)
    _, report = run(
        f"""mov.u32 %r4, 0; FILL: setp.eq.u32 %p0, %r0, 0; @%p0 st.shared.u32 [%r4], %r0; add.u32 %r4, %r4, 4; setp.lt.u32 %p1, %r4, 4096; @%p1 bra FILL; bar.sync 0;
                        mul.lo.u32 %r4, %r0, {stride}; ld.shared.{kind} {names}, [%r4];""",
        range(32),
        variables=".shared .align 16 .b8 s[4096];",
    )
    (t,) = report.of("shared", False)
    assert (t.requests, t.passes, t.best_passes) == (1, passes, best)


def test_reads_and_writes_of_every_byte():
    memory = ptx.Global()
    a, b = memory.buffer(bytes(256), offset=4), memory.buffer(256, writable=True)
    program(
        "ld.global.u32 %r4, [%rd3]; st.global.u8 [%rd2+1], %r4; setp.lt.u32 %p0, %r0, 2; @%p0 st.global.u16 [%rd2], %r4;"
    ).launch(memory, 2, 32, b.address, a.address)
    assert (a.reads() == 1).all() and (a.writes() == 0).all() and (b.reads() == 0).all()
    assert list(b.writes()[:12]) == [1, 2, 0, 0, 1, 2, 0, 0, 0, 1, 0, 0]


# ---- the conformance program's kernels ----


@pytest.fixture(scope="module")
def conformance(build):
    """Their text as stored in the program."""
    path = build / "tests" / "gpu" / "conformance"
    if not path.exists():
        pytest.skip("needs `make tests`: tests/gpu/conformance")
    contents = path.read_bytes()
    begin = contents.index(b".version 7.0\n")
    return contents[begin : contents.index(b"\0", begin)].decode()


@pytest.mark.parametrize("n_blocks, n", [(1, 64), (3, 1000), (8, 5)])
def test_conformance_add(conformance, n_blocks, n):
    memory = ptx.Global()
    values = np.random.default_rng(n).integers(0, 1 << 32, n, np.uint32)
    a, b = memory.buffer(values.tobytes()), memory.buffer(4 * n, writable=True)
    ptx.Program(ptx.parse(conformance), "conformance_add").launch(memory, n_blocks, 64, b.address, a.address, 12345, n)
    assert (b.bytes.view(np.uint32) == values + np.uint32(12345)).all()
    assert (b.writes() == 1).all() and (a.reads() == 1).all()


def test_conformance_fma(conformance):
    memory = ptx.Global()
    to = memory.buffer(4 * 64, writable=True)
    ptx.Program(ptx.parse(conformance), "conformance_fma").launch(memory, 1, 64, to.address, 2)
    wanted = np.arange(64, dtype=np.float32)
    for _ in range(16):
        wanted = ptx.arithmetic.fma(
            wanted, np.full(64, 0x3F800001, np.uint32).view(np.float32), np.full(64, 0.5, np.float32)
        )
    assert (to.bytes.view(np.float32) == wanted).all()


@pytest.mark.parametrize("n_blocks, n, rounds", [(1, 64, 1), (3, 100, 2), (8, 5, 3), (2, 100, 0)])
def test_conformance_copy(conformance, n_blocks, n, rounds):
    """Each round reads and writes every piece of 16 bytes once: a measurement divides by this number of bytes."""
    memory = ptx.Global()
    values = np.random.default_rng(n).integers(0, 1 << 32, 4 * n, np.uint32)
    a, b = memory.buffer(values.tobytes()), memory.buffer(16 * n, writable=True)
    ptx.Program(ptx.parse(conformance), "conformance_copy").launch(
        memory, n_blocks, 64, b.address, a.address, n, rounds
    )
    assert not rounds or (b.bytes.view(np.uint32) == values).all()
    assert (b.writes() == rounds).all() and (a.reads() == rounds).all()


def test_conformance_kernels_assemble(conformance, tmp_path):
    """For every GPU that this machine's toolkit supports; otherwise a driver would be the first to compile them."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    ptxas, nvcc = (shutil.which(tool, path=f"{home}/bin:{os.environ['PATH']}") for tool in ("ptxas", "nvcc"))
    if not ptxas or not nvcc:
        pytest.skip("there is no ptxas here (of the CUDA toolkit)")
    (tmp_path / "kernels.ptx").write_text(conformance)
    archs = subprocess.run(
        [nvcc, "--list-gpu-code"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    ).stdout.split()
    assert len(archs) > 3
    for arch in archs:
        p = subprocess.run(
            [ptxas, f"-arch={arch}", "-o", str(tmp_path / "out"), str(tmp_path / "kernels.ptx")],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert p.returncode == 0, f"{arch}: {p.stderr}"

"""Lossless WebP pictures with any number of Huffman groups, as no encoder writes them."""

import struct


class Bits:
    """A stream of bits, lowest bit of a byte first."""

    def __init__(self):
        self.value, self.n, self.parts = 0, 0, []

    def put(self, value, n):
        self.value |= value << self.n
        self.n += n
        if self.n >= 4096:
            whole = self.n // 8
            self.parts.append((self.value & ((1 << 8 * whole) - 1)).to_bytes(whole, "little"))
            self.value >>= 8 * whole
            self.n -= 8 * whole

    def done(self):
        return b"".join(self.parts) + self.value.to_bytes((self.n + 7) // 8, "little")


def put_one_symbol(bits, symbol=0):
    """A code of one symbol, which takes no bits in the data."""
    bits.put(0b101, 3)  # simple, one symbol, of eight bits
    bits.put(symbol, 8)


def put_flat_code(bits, *, limited):
    """Eight bits for each of the symbols 0 to 255. limited: the alphabet is larger."""
    bits.put(0, 1)
    bits.put(12 - 4, 4)  # lengths of the codes for lengths, up to that of length 8, which is the only one
    for length in [0] * 11 + [1]:
        bits.put(length, 3)
    bits.put(int(limited), 1)
    if limited:
        bits.put(3, 3)  # eight bits follow
        bits.put(256 - 2, 8)


def put_flat_symbol(bits, symbol):
    bits.put(int(f"{symbol:08b}"[::-1], 2), 8)


def stream(edge, numbers, *, bare=False):
    """A square picture of one colour for every 4 x 4 pixels. numbers: of the group of each of these tiles, row by row;
    the colour is the number. bare: without a header, as a transparency chunk has it."""
    assert len(numbers) == (edge // 4) ** 2
    bits = Bits()
    if not bare:
        bits.put(0x2F, 8)
        bits.put(edge - 1, 14)
        bits.put(edge - 1, 14)
        bits.put(0, 4)
    bits.put(0, 1)  # no transform
    bits.put(0, 1)  # no colour cache
    bits.put(1, 1)  # groups:
    bits.put(0, 3)  # of 4 x 4 pixels
    bits.put(0, 1)  # in the picture of their numbers, no colour cache
    put_flat_code(bits, limited=True)  # green
    put_flat_code(bits, limited=False)  # red
    for _ in ("blue", "alpha", "distance"):
        put_one_symbol(bits)
    for number in numbers:
        put_flat_symbol(bits, number & 255)
        put_flat_symbol(bits, number >> 8)
    for number in range(max(numbers) + 1):
        put_one_symbol(bits, number & 255)
        put_one_symbol(bits, number >> 8)
        for _ in ("blue", "alpha", "distance"):
            put_one_symbol(bits)
    return bits.done()


def chunk(name, data):
    return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def riff(*chunks):
    return chunk(b"RIFF", b"WEBP" + b"".join(chunks))


def triple(n):
    return n.to_bytes(3, "little")


def extended(flags, edge):
    return chunk(b"VP8X", bytes([flags, 0, 0, 0]) + triple(edge - 1) * 2)


def plain(edge, numbers):
    return riff(chunk(b"VP8L", stream(edge, numbers)))


def animated(edge, numbers):
    frame = triple(0) * 2 + triple(edge - 1) * 2 + triple(100) + b"\0" + chunk(b"VP8L", stream(edge, numbers))
    return riff(extended(0x02, edge), chunk(b"ANIM", bytes(6)), chunk(b"ANMF", frame))


def transparent(lossy, edge, numbers):
    """lossy: the bytes of a lossy WebP of that size, which gets this transparency."""
    at = lossy.index(b"VP8 ")
    return riff(extended(0x10, edge), chunk(b"ALPH", b"\1" + stream(edge, numbers, bare=True)), lossy[at:])

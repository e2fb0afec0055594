"""Arithmetic that numpy does not have: one rounding for a product and a sum, the GPU's halves, bits picked from words.
Arrays in, arrays out."""

import numpy as np

NAN32, NAN16 = np.uint32(0x7FFFFFFF), np.uint16(0x7FFF)  # the GPU's result for every NaN


def float32(v):
    """A result with the GPU's NaN in place of the host's."""
    nan = np.isnan(v)
    if nan.any():
        v = np.where(nan, NAN32.view(np.float32), v)
    return v


def fma(a, b, c):
    """a * b + c in float32, rounded once.

    In float64 the product is exact. The sum is rounded there to odd (an inexact one gets the neighbour whose last bit
    is set), so that the second rounding, to float32, never meets a tie made by the first."""
    product, c = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    s = product + c
    part = s - product
    error = (product - (s - part)) + (c - part)  # of that addition, exact
    bits = s.view(np.int64)
    to_odd = (error != 0) & np.isfinite(s) & (bits & 1 == 0)
    if to_odd.any():
        bits = bits + np.where(to_odd, np.where((error > 0) == (s > 0), 1, -1), 0)
    return float32(bits.view(np.float64).astype(np.float32))


def to_float16(v):
    return np.where(np.isnan(v), NAN16, v.astype(np.float16).view(np.uint16))


def to_bfloat16(v):
    bits = v.view(np.uint32).astype(np.uint64)
    return np.where(np.isnan(v), NAN16, (bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16))


def permute(a, b, selector):
    """prmt: four bytes out of the eight of b and a, each chosen by 4 bits of the selector; the highest of these bits
    repeats the byte's sign."""
    both = b.astype(np.uint64) << 32 | a
    result = np.zeros_like(both)
    for i in range(4):
        choice = (selector >> 4 * i & 15).astype(np.uint64)
        byte = both >> 8 * (choice & 7) & 0xFF
        result |= np.where(choice & 8, (byte >> 7) * 0xFF, byte) << 8 * i
    return result.astype(np.uint32)


def shift_left(v, n):
    bits = 8 * v.dtype.itemsize
    return np.where(n < bits, v << np.minimum(n, bits - 1).astype(v.dtype), v.dtype.type(0))


def shift_right(v, n):
    """The sign bits that are shifted in: those of a signed type's values."""
    bits = 8 * v.dtype.itemsize
    shifted = v >> np.minimum(n, bits - 1).astype(v.dtype)
    return shifted if v.dtype.kind == "i" else np.where(n < bits, shifted, v.dtype.type(0))


def funnel(low, high, n, left):
    """The upper (left) or lower word of high:low, shifted by n modulo 32."""
    both, n = high.astype(np.uint64) << 32 | low, (n & 31).astype(np.uint64)
    return (both << n >> 32 if left else both >> n).astype(np.uint32)


def extract(v, at, n):
    """bfe of an unsigned type: n bits from bit at; at and n modulo 256."""
    at, n = (at & 255).astype(np.uint64), (n & 255).astype(np.uint64)
    mask = np.where(n < 64, (np.uint64(1) << np.minimum(n, 63)) - 1, ~np.uint64(0))
    return (np.where(at < 64, v.astype(np.uint64) >> np.minimum(at, 63), 0) & mask).astype(v.dtype)

"""Files of formats that Pillow reads in more kinds than it writes."""

import struct

BMP_HEADERS = (12, 40, 52, 56, 64, 108, 124)


def bmp(width, height, bits, rows, *, header=40, compression=0, masks=(), palette=b"", colors=0, gap=0, offset=None):
    """rows: the pixels' bytes as they lie in the file; palette: its bytes; gap: bytes before the pixels."""
    if header == 12:
        info = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        info = struct.pack(
            "<IiiHHIIiiII", header, width, height, 1, bits, compression, len(rows), 2835, 2835, colors, colors
        )
        inside = b"".join(struct.pack("<I", m) for m in masks)
        info += inside[: header - 40] if header >= 52 else b""
        info += bytes(header - len(info))
        info += inside if header == 40 else b""
    at = 14 + len(info) + len(palette) + gap if offset is None else offset
    return struct.pack("<2sIHHI", b"BM", at + len(rows), 0, 0, at) + info + palette + bytes(gap) + rows


def bmp_stride(width, bits):
    return (width * bits + 31) // 32 * 4

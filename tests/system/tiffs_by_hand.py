"""TIFFs of any layout: strips or tiles, planes, both byte orders, BigTIFF, each way of packing, predictors."""

import struct
import zlib

import numpy as np

PLAIN, LZW, DEFLATE, PACKBITS = 1, 5, 8, 32773


def lzw(data):
    """Real codes, with a table as the format has it."""
    out, value, n = bytearray(), 0, 0

    def put(code, width):
        nonlocal value, n
        value, n = value << width | code, n + width
        while n >= 8:
            n -= 8
            out.append(value >> n & 255)
            value &= (1 << n) - 1

    table, width, word, count = {}, 9, b"", 258
    put(256, 9)
    for i in range(len(data)):
        longer = word + data[i : i + 1]
        if len(longer) == 1 or longer in table:
            word = longer
            continue
        put(table[word] if len(word) > 1 else word[0], width)
        table[longer] = count
        count += 1
        if count == 4094:
            put(256, width)
            table, width, count = {}, 9, 258
        elif count == 1 << width and width < 12:
            width += 1
        word = data[i : i + 1]
    if word:
        put(table[word] if len(word) > 1 else word[0], width)
        count += 1
        if count == 1 << width and width < 12:
            width += 1
    put(257, width)
    if n:
        out.append(value << (8 - n) & 255)
    return bytes(out)


def packbits(data):
    out, at = bytearray(), 0
    while at < len(data):
        run = 1
        while run < 128 and data[at : at + run + 1] == data[at : at + 1] * (run + 1):
            run += 1
        if run > 1:
            out += bytes([257 - run]) + data[at : at + 1]
            at += run
        else:
            n = min(100, len(data) - at)
            out += bytes([n - 1]) + data[at : at + n]
            at += n
    return bytes(out)


PACKERS = {PLAIN: bytes, LZW: lzw, DEFLATE: zlib.compress, 32946: zlib.compress, PACKBITS: packbits}


def _row(samples, bits, order):
    """samples: of one row, [width, samples]."""
    if bits >= 8:
        return samples.astype(samples.dtype.newbyteorder(order)).tobytes()
    flat = samples.reshape(-1)
    places = np.unpackbits(flat.astype(np.uint8)[:, None], axis=1)[:, 8 - bits :].reshape(-1)
    return np.packbits(places).tobytes()


def _predicted(chunk, predictor):
    if predictor == 2:
        before = np.concatenate([np.zeros_like(chunk[:, :1]), chunk[:, :-1]], 1)
        return chunk - before
    return chunk


def _float_row(samples):
    planes = np.frombuffer(samples.astype(">f4").tobytes(), np.uint8).reshape(-1, 4).T.reshape(-1).copy()
    step = samples.shape[1]
    planes[step:] = planes[step:] - planes[:-step]
    return planes.tobytes()


def tiff(
    pixels,
    photometric,
    *,
    bits=None,
    order="<",
    big=False,
    tile=None,
    rows=None,
    planes=False,
    compression=PLAIN,
    predictor=1,
    extra=(),
    sample_format=1,
    colors=None,
    fill=1,
    orientation=None,
    tags=(),
    pack=None,
):
    """pixels: [height, width, samples]; tile: (width, height); tags: further (number, type, values); pack: makes bytes of a
    chunk's pixels, in place of the compression's own."""
    height, width, n_samples = pixels.shape
    bits = bits or pixels.dtype.itemsize * 8
    w, h = tile or (width, rows or height)
    chunks = []
    for c in range(n_samples) if planes else [slice(None)]:
        for y in range(0, height, h):
            for x in range(0, width, w):
                part = pixels[y : y + h, x : x + w, c]
                part = part[:, :, None] if planes else part
                if tile:
                    pad = ((0, h - part.shape[0]), (0, w - part.shape[1]), (0, 0))
                    part = np.pad(part, pad, mode="edge")
                if pack:
                    chunks.append(pack(part))
                    continue
                if predictor == 3:
                    raw = b"".join(_float_row(r) for r in part)
                else:
                    raw = b"".join(_row(r, bits, order) for r in _predicted(part, predictor))
                raw = PACKERS[compression](raw)
                if fill == 2:
                    raw = bytes(int(f"{b:08b}"[::-1], 2) for b in raw)
                chunks.append(raw)
    entries = {
        256: (4, [width]),
        257: (4, [height]),
        258: (3, [bits] * n_samples),
        259: (3, [compression]),
        262: (3, [photometric]),
        266: (3, [fill]),
        277: (3, [n_samples]),
        284: (3, [2 if planes else 1]),
        324 if tile else 273: (4, chunks),
        325 if tile else 279: (4, [len(c) for c in chunks]),
        339: (3, [sample_format] * n_samples),
    }
    if tile:
        entries.update({322: (4, [w]), 323: (4, [h])})
    else:
        entries[278] = (4, [h])
    if predictor != 1:
        entries[317] = (3, [predictor])
    if extra:
        entries[338] = (3, list(extra))
    if colors is not None:
        entries[320] = (3, list(colors))
    if orientation:
        entries[274] = (3, [orientation])
    entries.update({number: (kind, values) for number, kind, values in tags})
    return _file(entries, order, big)


def _file(entries, order, big):
    mark = b"II" if order == "<" else b"MM"
    head = mark + struct.pack(order + ("HHHQ" if big else "HL"), *((43, 8, 0, 16) if big else (42, 8)))
    n_entry, n_inline = (20, 8) if big else (12, 4)
    n_directory = (8 if big else 2) + n_entry * len(entries) + (8 if big else 4)
    at, body, directory = len(head) + n_directory, b"", b""
    for number in sorted(entries):
        kind, values = entries[number]
        if values and isinstance(values[0], bytes) and kind == 4:  # the chunks: their offsets
            offsets = []
            for chunk in values:
                offsets.append(at + len(body))
                body += chunk + bytes(len(chunk) % 2)
            values = offsets
        if kind in (1, 7):
            data, n = values, len(values)
        else:
            data, n = struct.pack(order + {3: "H", 4: "L"}[kind] * len(values), *values), len(values)
        if len(data) > n_inline:
            where = struct.pack(order + ("Q" if big else "L"), at + len(body))
            body += data + bytes(len(data) % 2)
        else:
            where = data + bytes(n_inline - len(data))
        directory += struct.pack(order + ("HHQ" if big else "HHL"), number, kind, n) + where
    count = struct.pack(order + ("Q" if big else "H"), len(entries))
    return head + count + directory + bytes(8 if big else 4) + body

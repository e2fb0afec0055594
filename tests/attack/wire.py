"""The wire without libbatchd: messages encoded according to proto/*.proto, packet by packet, for messages that an
honest client never sends."""

import array
import mmap
import pathlib
import re
import select
import socket
import struct
import time

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto" / "batchd.proto"
VERSION = int(re.search(r"WIRE_VERSION = (\d+)", PROTO.with_name("wire.h").read_text())[1])
LENGTH = {"string", "bytes"}
PACKET = 65536

# The ring, as proto/README.md draws it.
PRODUCED, TAKEN, RELEASES_PRODUCED, RELEASES_TAKEN, WAITING = 0, 64, 128, 192, 256
BATCH, BATCH_BYTES, RELEASE, RELEASE_BYTES, ENTRIES = 4096, 256, 20480, 64, 64
LOOK_S = 0.05


def _definitions(text):
    """{message: {field: (number, type, repeated)}} of the messages in a .proto file."""
    text = re.sub(r"//[^\n]*", "", text)
    messages = {}
    for name, body in re.findall(r"message (\w+) \{((?:[^{}]|\{[^{}]*\})*)\}", text):
        fields = re.findall(r"(repeated )?(\w+) (\w+) = (\d+);", body)
        messages[name] = {field: (int(number), kind, bool(repeated)) for repeated, kind, field, number in fields}
    return messages


SOURCE_PROTO = PROTO.with_name("source.proto").read_text()
MESSAGES = _definitions(PROTO.read_text() + SOURCE_PROTO)
ENUMERATORS = {name: int(number) for name, number in re.findall(r"^  ([A-Z_]+) = (\d+);", SOURCE_PROTO, re.M)}


def _varint(n):
    out = bytearray()
    n &= (1 << 64) - 1
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def encode(message, values):
    out = b""
    for field, value in values.items():
        number, kind, repeated = MESSAGES[message][field]
        for v in value if repeated else [value]:
            if kind in MESSAGES:
                v = encode(kind, v)
            elif kind in LENGTH:
                v = v.encode() if isinstance(v, str) else v
            else:
                out += _varint(number << 3) + _varint((v << 1) ^ (v >> 63) if kind == "sint32" else int(v))
                continue
            out += _varint(number << 3 | 2) + _varint(len(v)) + v
    return out


def _take_varint(data, at):
    n = shift = 0
    while True:
        byte = data[at]
        at += 1
        n |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return n, at


def decode(message, data):
    """Numbers, bytes and messages by field; missing fields are left out."""
    by_number = {number: (field, kind, repeated) for field, (number, kind, repeated) in MESSAGES[message].items()}
    values, at = {}, 0
    while at < len(data):
        key, at = _take_varint(data, at)
        field, kind, repeated = by_number.get(key >> 3, (None, None, False))
        if key & 7 == 0:
            value, at = _take_varint(data, at)
        elif key & 7 == 2:
            n, at = _take_varint(data, at)
            value, at = data[at : at + n], at + n
            value = (
                decode(kind, value)
                if kind in MESSAGES
                else value.decode(errors="replace")
                if kind == "string"
                else value
            )
        else:
            n = 4 if key & 7 == 5 else 8
            value, at = data[at : at + n], at + n
        if field:
            values[field] = values.get(field, []) + [value] if repeated else value
    return values


def sources(dataset):
    """A data set's text as a message: of the kinds that are attacked."""
    kind, colon, rest = dataset.partition(":")
    if not colon:
        return {"name": dataset}
    source = {"kind": ENUMERATORS[kind.upper()]}
    if kind == "random":
        pairs = [option.partition("=") for option in rest.split(",")]
        source["option"] = [{"name": name, "value": value} for name, _, value in pairs]
    else:
        source["part"] = [
            {"role": ENUMERATORS[{"imagefolder": "FOLDER", "files": "LIST", "npy": "FILE"}[kind]], "path": rest}
        ]
    return {"source": [source]}


class HungUp(Exception):
    """The daemon has closed the connection; its error, if it sent one, is in `error`."""

    def __init__(self, error=None):
        super().__init__(error or "without a word")
        self.error = error or {}


class Client:
    """One connection. Sends exactly what the caller gives, valid or not."""

    def __init__(self, path, timeout=30, program="attack"):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(timeout)
        self.socket.connect(str(path))
        self.seeks, self.fds, self.opened, self.error = 0, [], None, None
        self.ring, self.taken, self.released = None, 0, 0
        if program:
            self.send("hello", version=VERSION, program=program)
            self.expect("welcome")

    def send(self, body, fds=(), **values):
        kind = MESSAGES["ClientMessage"][body][1]
        data = encode("ClientMessage", {body: values})
        assert kind in MESSAGES
        beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            self.socket.sendmsg([data], beside)
        except (BrokenPipeError, ConnectionResetError):
            raise HungUp(self._last_words()) from None

    def receive(self, wait=True):
        """(body, values) of the next message; None: there is none yet (only without wait)."""
        if not wait and not select.select([self.socket], [], [], 0)[0]:
            return None
        try:
            data, beside, _, _ = self.socket.recvmsg(PACKET, 1024)
        except ConnectionResetError:
            data, beside = b"", []
        for level, kind, raw in beside:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self.fds += struct.unpack(f"{len(raw) // 4}i", raw[: len(raw) // 4 * 4])
        if not data:
            raise HungUp(self.error)
        ((body, values),) = decode("ServerMessage", data).items()
        if body == "error":
            self.error = values
        return body, values

    def _last_words(self):
        try:
            while True:
                self.receive()
        except HungUp as end:
            return end.error
        except OSError:
            return self.error

    def expect(self, *bodies):
        """The next message of these kinds; others are skipped."""
        while True:
            body, values = self.receive()
            if body in bodies:
                return values

    def open(self, fds=(), **options):
        """Opens, and returns Opened; HungUp with the daemon's error if it refuses."""
        options["sources"] = sources(options.pop("dataset"))
        self.send("open", fds, **{"batch_size": 1, "world_size": 1, "job": "job", "ring": 1, **options})
        self.opened = self.expect("opened")
        self.ring = mmap.mmap(self.fds[1], 0)
        return self.opened

    def seek(self, epoch=0, step=0):
        self.seeks += 1
        self.send("seek", seek=self.seeks, epoch=epoch, step=step)

    def word(self, at):
        return struct.unpack_from("<I", self.ring, at)[0]

    def set_word(self, at, value):
        struct.pack_into("<I", self.ring, at, value & 0xFFFFFFFF)

    def _take(self):
        if self.word(PRODUCED) == self.taken:
            return None
        at = BATCH + self.taken % ENTRIES * BATCH_BYTES
        ((body, values),) = decode("ServerMessage", self.ring[at + 4 : at + 4 + self.word(at)]).items()
        assert body == "batch"
        self.taken += 1
        self.set_word(TAKEN, self.taken)
        self.set_word(WAITING, 0)
        self.send("wake")
        return values

    def batch(self):
        """The next batch of the last seek. Python has no order between words of the page, so this looks at the ring
        again and again beside its waiting for a Wake."""
        end = time.monotonic() + self.socket.gettimeout()
        while time.monotonic() < end:
            got = self._take()
            if got is None:
                self.set_word(WAITING, 1)
                if select.select([self.socket], [], [], LOOK_S)[0]:
                    self.receive()
            elif got.get("seek") == self.seeks:
                return got
        raise TimeoutError("no batch")

    def give_back(self, batch):
        """In the ring, and wakes the daemon, whatever it sleeps for."""
        told = {"slot": batch.get("slot", 0), "generation": batch.get("generation", 0)}
        if self.released - self.word(RELEASES_TAKEN) >= ENTRIES:
            self.send("release", **told)
            return
        data = encode("ClientMessage", {"release": told})
        at = RELEASE + self.released % ENTRIES * RELEASE_BYTES
        struct.pack_into(f"<I{len(data)}s", self.ring, at, len(data), data)
        self.released += 1
        self.set_word(RELEASES_PRODUCED, self.released)
        self.send("wake")

    def drain(self):
        """Reads the messages that have arrived."""
        while self.receive(wait=False) is not None:
            pass

    def until_hung_up(self):
        """The daemon's last error; {} for a hang-up without an error."""
        try:
            while True:
                self.receive()
        except HungUp as end:
            return end.error

    def close(self):
        self.socket.close()

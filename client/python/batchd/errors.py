"""Errors as exceptions: one class per code of batchd.h, also derived from a fitting exception of Python where there is
one."""


class Error(RuntimeError):
    """Base of all. `code`: the name in batchd.h, such as "NOT_FOUND"."""

    code = "INTERNAL"


class InvalidError(Error, ValueError):
    """An option or request makes no sense."""

    code = "INVALID"


class MismatchError(Error, ValueError):
    """The job exists and was opened with other options; the message names the first that differs."""

    code = "MISMATCH"


class NotFoundError(Error, FileNotFoundError):
    """There is no data set of this name, or no such path."""

    code = "NOT_FOUND"


class AccessError(Error, PermissionError):
    """This user may not read the data or use the daemon."""

    code = "ACCESS"


class LimitError(Error):
    """Over a limit of the daemon's configuration; the message names it."""

    code = "LIMIT"


class BadDataError(Error):
    """Too many samples could not be decoded; the message lists files."""

    code = "BAD_DATA"


class FencedError(Error):
    """A newer process took this job's rank."""

    code = "FENCED"


class BehindError(Error):
    """Share mode: the batch asked for has left the window."""

    code = "BEHIND"


class ShutdownError(Error, ConnectionError):
    """The daemon is stopping."""

    code = "SHUTDOWN"


class ConnectError(Error, ConnectionError):
    """No daemon answers, and none could be started."""

    code = "CONNECT"


class LostError(Error, ConnectionError):
    """The daemon went away. Batches still held stay readable."""

    code = "LOST"


class ForkedError(Error):
    """Used in a child of the process that opened the loader."""

    code = "FORKED"


class GpuError(Error):
    """There is no such GPU, or it failed: in the daemon, which restarts (the loader continues by itself), or in this
    process; the message says which."""

    code = "GPU"


class StalledError(Error):
    """Another trainer of the job is stalled (on_stall="error"); the message says which and why. The loader can still be
    used."""

    code = "STALLED"


class ProducerError(Error):
    """The producer of a served data set failed (the message has its traceback), has ended, or never came."""

    code = "PRODUCER"


class ProtocolError(Error):
    """Daemon and library cannot understand each other."""

    code = "PROTOCOL"


_BY_CODE = {
    c.code: c
    for c in (
        InvalidError,
        MismatchError,
        NotFoundError,
        AccessError,
        LimitError,
        BadDataError,
        FencedError,
        BehindError,
        ShutdownError,
        ConnectError,
        LostError,
        ForkedError,
        GpuError,
        ProducerError,
        StalledError,
        ProtocolError,
    )
}


def make(code, text):
    """The exception for a code's name. VERSION becomes a ProtocolError; NOMEM becomes Python's MemoryError."""
    if code == "NOMEM":
        return MemoryError(text)
    if code == "VERSION":
        code = "PROTOCOL"
    e = _BY_CODE.get(code, Error)(text)
    if type(e) is Error:
        e.code = code
    return e

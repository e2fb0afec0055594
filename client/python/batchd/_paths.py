"""Paths without a kind ("/data/train", a pathlib.Path) as data sets, where what lies there leaves one kind only."""

import os

_BY_ENDING = {
    ".npy": "npy",
    ".npz": "npz",
    ".tar": "tar",
    ".zip": "zip",
    ".mds": "mds",
    ".mds.zstd": "mds",
    ".arrow": "arrow",
    ".txt": "files",
    ".csv": "files",
    ".tsv": "files",
    ".lst": "files",
}
_SHARDS = ("tar", "mds", "arrow")  # which a folder of them names


def _by_ending(name):
    return next((kind for ending, kind in _BY_ENDING.items() if name.endswith(ending)), None)


def _in_folder(path):
    with os.scandir(path) as entries:
        visible = [entry for entry in entries if not entry.name.startswith(".")]
    kinds = {_by_ending(entry.name) for entry in visible if entry.is_file()} & set(_SHARDS)
    if any(entry.is_dir() for entry in visible):
        kinds.add("imagefolder")
    return sorted(kinds) or ["imagefolder"]  # whose error says what belongs into it


def with_kind(value, length=None):
    """The text of a data set. Of a path without a kind, the kind goes before it; one that may be several is an error, and what
    is no known kind of file is the C library's to refuse, unless it has windows of a `length`."""
    text = os.fsdecode(value)
    is_path = isinstance(value, os.PathLike)
    if not is_path and (":" in text or "\0" in text or not ("/" in text or os.path.exists(text))):
        return text
    try:
        kinds = _in_folder(text) if os.path.isdir(text) else [_by_ending(text)] if os.path.isfile(text) else []
    except OSError:  # the library names the reason
        kinds = []
    if len(kinds) > 1:
        written = " or ".join(repr(f"{kind}:{text}") for kind in kinds)
        raise ValueError(f"dataset {text!r} is a folder with more than one kind of data: write {written}")
    if kinds == [None] and length is not None:
        kinds = ["tokens"]
    if kinds and kinds[0]:
        return f"{kinds[0]}:{text}"
    return text if "/" in text or not is_path else f"./{text}"

"""HuggingFace data sets: the Arrow files behind a datasets.Dataset, which the daemon reads by itself. What no file has goes
to the daemon as a table in memory (_hf_memory).

This process only tells which files, which columns, and which of their rows are the samples, in which order: what select,
shuffle, filter and train_test_split have made. No row is read here, except for the paths of images that the files name
instead of having them.
"""

import hashlib
import os
import re
import sys
import weakref

import numpy

from . import _hf_memory, _image_mode, _object_instead

_SAVE = "write it once (dataset.save_to_disk(DIR)) and hand over datasets.load_from_disk(DIR)"
_MOST_PATTERN = 3500  # bytes, of the 4096 that a pattern may have


class _NotInFiles(TypeError):
    """The samples are not what the files have, and no step that the daemon follows leads from there to them."""


def _datasets():
    """The package, if it has made an object in this process."""
    return sys.modules.get("datasets")


def _check_kind(value, package):
    name = type(value).__name__
    if isinstance(value, package.IterableDataset):
        raise TypeError(
            "dataset is an IterableDataset, which has no samples by number: load it without streaming=True, or share a "
            "DataLoader of it: batchd.serve(DataLoader(dataset, ...), name='NAME')"
        )
    if isinstance(value, (package.DatasetDict, package.IterableDatasetDict)):
        raise TypeError(f"dataset is a {name} of several: choose one, such as dataset[{next(iter(value), 'train')!r}]")
    if not isinstance(value, package.Dataset):
        return False
    changed = _object_instead.override(value, package.Dataset)
    if changed:
        why = f": its class is a datasets.Dataset with a {changed} of its own"
        raise TypeError(_object_instead.foreign(value, why))
    return True


def _check_format(value):
    kind = value.format["type"]
    if kind == "custom":
        raise TypeError(
            "dataset has a transform (set_transform, with_transform), a function of this process: give torchvision's or "
            "timm's transforms as transform=, and hand over dataset.with_format(None)"
        )
    options = value.format["format_kwargs"]
    if options:
        told = ", ".join(f"{name}={option!r}" for name, option in options.items())
        raise TypeError(
            f"dataset has a format with {told}, which the daemon does not follow: columns come in their own types. Change those by "
            f"dataset.cast_column(...), or convert in collate_fn, and hand over dataset.with_format({kind!r})"
        )


def _columns(value):
    """The names of the columns that the package gives, in its order."""
    asked = value.format["columns"] or value.column_names
    chosen = [name for name in value.column_names if name in asked]
    return chosen + [n for n in value.column_names if n not in asked] if value.format["output_all_columns"] else chosen


# ---- columns ----


def _choose(value, fields):
    """({field: column}, fields): what the daemon makes fields of, and the caller's fields by the names of them."""
    columns = _columns(value)
    features = {name: value.features[name] for name in columns}
    kinds = {name: type(feature).__name__ for name, feature in features.items()}
    images = [name for name in columns if kinds[name] == "Image"]
    labels = [name for name in columns if kinds[name] == "ClassLabel"] or [n for n in columns if n == "label"]
    told = ", ".join(f"{name} ({kind})" for name, kind in kinds.items())
    if fields is None:
        if not images:
            return {name: name for name in columns}, {name: name for name in columns}
        if len(images) > 1 or len(labels) != 1:
            raise ValueError(
                f"dataset has {len(images)} columns of images and {len(labels)} of labels: name the columns as fields, such "
                f"as fields={{'image': {images[0]!r}, 'label': ...}}; its columns: {told}"
            )
        return {"image": images[0], "label": labels[0]}, None
    if isinstance(fields, dict):
        wanted = list(fields.values())
    else:
        wanted = [fields] if isinstance(fields, str) else list(fields)
    for name in wanted:
        if name not in columns:
            raise ValueError(f"fields has {name!r}, which the data set does not have; its columns: {told}")
    if not isinstance(fields, dict):
        return {name: name for name in dict.fromkeys(wanted)}, fields
    # The names decide what the daemon makes of bytes, and of which field it knows the classes.
    by_column = {name: f"column{i}" for i, name in enumerate(dict.fromkeys(wanted))}
    for name, found in (("image", images), ("label", labels)):
        among = [column for column in found if column in by_column]
        if len(among) == 1:
            by_column[among[0]] = name
    return {field: name for name, field in by_column.items()}, {key: by_column[name] for key, name in fields.items()}


def _check_modes(value, named, image_mode):
    """Refuses columns that the package converts to a mode in which the images would not be read here."""
    for column in dict.fromkeys(named.values()):
        mode = getattr(value.features[column], "mode", None)
        if mode not in (None, "RGB", image_mode):
            cast = f"dataset.cast_column({column!r}, datasets.Image())"
            if mode not in _image_mode.MODES:
                raise ValueError(
                    f"column {column!r} is Image(mode={mode!r}), and images are read as {', '.join(_image_mode.MODES)}: hand over "
                    f"{cast} to get RGB instead, or share a DataLoader of it by batchd.serve"
                )
            raise ValueError(
                f"column {column!r} is Image(mode={mode!r}): read its images so by image_mode={mode!r}, or hand over {cast} to get "
                "RGB instead"
            )


def _column_list(named):
    for name in [*named, *named.values()]:
        if not name or len(name) > 63 or any(c in ",=#/\"'\\" or not "!" <= c <= "~" for c in name):
            raise ValueError(
                f"column {name!r} cannot be named to the daemon (printable ASCII without space, comma, quote, =, #, / and "
                f"backslash, at most 63 characters): dataset.rename_column({name!r}, ...)"
            )
    return ",".join(f"{field}={column}" for field, column in named.items())


# ---- files and rows ----


class _File:
    """An Arrow file: the number of its rows, and its columns' types."""

    def __init__(self, path):
        import pyarrow

        self.path = os.path.realpath(path)
        with pyarrow.memory_map(self.path) as memory:
            try:
                reader = pyarrow.ipc.open_stream(memory)
            except pyarrow.ArrowInvalid:
                reader = pyarrow.ipc.open_file(memory)
            self.schema = reader.schema
            self.n_rows = reader.read_all().num_rows


def _blocks(value):
    """The tables that the data set consists of, one after the other."""
    tables = getattr(value.data, "blocks", None)
    if tables is None:
        return [value.data]
    if any(len(row) > 1 for row in tables):
        raise _NotInFiles(f"dataset has columns from different tables (add_column, axis=1): {_SAVE}")
    return [row[0] for row in tables]


def _view(block, file):
    """(first, n, {column: the file's column}): what a table shows of its file."""
    first, n = 0, file.n_rows
    names = {name: name for name in file.schema.names}
    for step, arguments, options in block.replays:
        if step == "slice":
            offset, length = (*arguments, *options.values(), None)[:2]
            first, n = first + min(offset, n), max(0, n - offset) if length is None else min(length, max(0, n - offset))
        elif step == "rename_columns":
            names = dict(zip(arguments[0], names.values()))
        elif step == "select":
            names = {name: names[name] for name in arguments[0]}
        elif step in ("drop", "drop_columns"):
            names = {name: column for name, column in names.items() if name not in arguments[0]}
        elif step not in ("cast", "replace_schema_metadata"):
            raise _NotInFiles(
                f"dataset is a table that was changed by {step}, which is not read from its file: {_SAVE}"
            )
    return first, n, names


def _add_block(block, files, named, views):
    path = os.path.realpath(block.path)
    file = files.get(path) or files.setdefault(path, _File(path))
    first, n, names = _view(block, file)
    columns = {field: names[column] for field, column in named.items()}
    if views and columns != views[0][3]:
        raise _NotInFiles(f"dataset is made of tables whose columns had different names: {_SAVE}")
    for field, column in named.items():
        is_now, was = block.schema.field(column).type, file.schema.field(columns[field]).type
        is_picture = field == "image" and str(was) in ("binary", "large_binary")  # and was cast to Image
        if is_now != was and not is_picture:
            raise _NotInFiles(f"column {column!r} was cast from {was} to {is_now} when it was opened: {_SAVE}")
    views.append((path, first, n, columns))


def _groups(files):
    """The files by folder: {folder: [name, ...]}."""
    groups = {}
    for path in files:
        folder, name = os.path.split(path)
        groups.setdefault(folder, []).append(name)
    return groups


def _numbered(names):
    """ "train-{00000..00299}-of-00300.arrow" for such names; None: they are others."""
    parts = [re.fullmatch(r"(.*?-)(\d+)((?:-of-\d+)?\.arrow)", name) for name in names]
    if not all(parts) or len({(p[1], len(p[2]), p[3]) for p in parts}) > 1:
        return None
    numbers = [int(p[2]) for p in parts]
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return None
    return f"{parts[0][1]}{{{parts[0][2]}..{parts[-1][2]}}}{parts[0][3]}"


def _pattern(folder, names):
    for text in (folder, *names):
        if any(c in "*?[]{}," for c in text) or "::" in text or "//" in text:
            raise ValueError(
                f"{os.path.join(folder, text)}: the path has one of * ? [ ] {{ }} , or :: in it: rename it"
            )
    if len(names) == 1:
        return os.path.join(folder, names[0])
    pattern = os.path.join(folder, _numbered(names) or "{" + ",".join(names) + "}")
    if len(pattern) > _MOST_PATTERN:
        raise _NotInFiles(f"dataset has {len(names)} files, whose names do not fit a request: {_SAVE}")
    return pattern


def _rows(value, views, starts, n_all):
    """The number of each sample's row among all rows of the files; None: sample i is row i."""
    parts = [(starts[path] + first, n) for path, first, n, _ in views]
    indices = None if value._indices is None else value._indices.column(0).to_numpy()
    at = 0
    for start, n in parts:
        if start != at:
            break
        at += n
    else:
        if at == n_all and indices is None:
            return None
    rows = numpy.concatenate([numpy.arange(start, start + n, dtype=numpy.uint64) for start, n in parts])
    return rows if indices is None else rows[indices]


def _hand_over_rows(rows, owner):
    bytes_ = numpy.ascontiguousarray(rows, dtype="<u8").tobytes()
    fd = os.memfd_create("batchd:rows", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    weakref.finalize(owner, os.close, fd)
    with open(fd, "wb", closefd=False) as out:
        out.write(bytes_)
    return f"rows={hashlib.blake2b(bytes_, digest_size=16).hexdigest()}:{fd},"


# ---- images in files of their own ----


def _image_paths(value, column):
    """The paths of the images that the files do not have."""
    paths = []
    for chunk in value.data.column(column).chunks:  # of structs, also where the file has plain bytes
        if chunk.field("bytes").null_count:
            paths += [row["path"] for row in chunk.to_pylist() if row and row["bytes"] is None and row["path"]]
    return paths


def _images(value, named):
    """ "images=FOLDER," of the folder that has them all."""
    paths = []
    for column in named.values():
        if type(value.features[column]).__name__ == "Image":
            paths = _image_paths(value, column)
    absolute = {os.path.isabs(path) for path in paths}
    far = next((path for path in paths if "://" in path), None)
    if far is not None:
        raise ValueError(f"dataset has images that are no files of this machine, such as {far!r}: {_SAVE}")
    if not paths:
        return ""
    if len(absolute) > 1:
        raise ValueError(f"dataset has images with absolute and with relative paths: {_SAVE}")
    folder = os.path.commonpath([os.path.dirname(path) for path in paths]) if absolute == {True} else os.getcwd()
    if folder != os.path.realpath(folder):
        raise ValueError(
            f"the images' folder {folder} is reached by a symbolic link; load the data set by {os.path.realpath(folder)}"
        )
    if "," in folder:
        raise ValueError(f"the images' folder {folder} has a comma in its name: rename it")
    return f"images={folder},"


# ---- the whole ----


def class_names(value, named):
    """The names of the classes of the field "label"; None: it has none."""
    return list(getattr(value.features.get(named.get("label")), "names", ())) or None


def _in_files(value, owner, named):
    """The text of a data set that lies in files."""
    files, views = {}, []
    for block in _blocks(value):
        if not hasattr(block, "path"):
            raise _NotInFiles("dataset is a table in memory")
        _add_block(block, files, named, views)
    groups = _groups(files)
    if len(groups) > 4:
        raise _NotInFiles(f"dataset has files in {len(groups)} folders, and at most 4 are read: {_SAVE}")
    patterns = "::".join(_pattern(folder, names) for folder, names in groups.items())
    starts, n_all = {}, 0
    for folder, names in groups.items():
        for name in names:
            path = os.path.join(folder, name)
            starts[path], n_all = n_all, n_all + files[path].n_rows
    rows = _rows(value, views, starts, n_all)
    listed = _column_list(views[0][3])
    return (
        "arrow:"
        + ("" if rows is None else _hand_over_rows(rows, owner))
        + _images(value, named)
        + f"{patterns}#{listed}"
    )


def _in_memory(value, owner, named):
    """The text of a data set that is handed over as a table."""
    columns = list(dict.fromkeys(named.values()))
    table, rows = _hf_memory.hand_over(value, columns, owner, _SAVE)
    rows = "" if rows is None else _hand_over_rows(rows, owner)
    return f"arrow:{table}{rows}{_images(value, named)}#{_column_list(named)}"


def hand_over(value, owner, fields, image_mode=None):
    """(text, fields, classes): the text of a data set that the daemon reads, None if `value` is no HuggingFace data set;
    the caller's fields by the names in it; the names of its classes."""
    package = _datasets()
    if package is None or not hasattr(package, "Dataset") or not _check_kind(value, package):
        return None, fields, None
    _check_format(value)
    if not len(value):
        raise ValueError("dataset has no rows")
    named, fields = _choose(value, fields)
    _check_modes(value, named, image_mode)
    _column_list(named)
    kinds = {type(value.features[column]).__name__ for column in named.values()}
    owner._has_pictures = "Image" in kinds or "image" in named  # bytes of that name are one
    try:
        text = _in_files(value, owner, named)
    except _NotInFiles:
        text = _in_memory(value, owner, named)
    return text, fields, class_names(value, named)

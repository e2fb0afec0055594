"""Fields of shards, archives and tables: which files of a sample, columns or arrays become which fields.

The daemon is told in the data set's name, "tar:SHARDS#NAME=EXTENSION,...". Without such a list it is made of the
caller's `fields`, whose names or values are extensions then, as webdataset has them.
"""

import collections.abc

_KINDS = ("tar:", "mds:", "zip:", "arrow:", "npz:")
# The daemon's own where there is no list (member-spec.c).
_EXTENSIONS = {"image": "jpg;jpeg;png;webp;bmp;ppm;pgm;pbm;pnm;gif;tif;tiff", "label": "cls", "text": "txt;text"}


def _has_list(dataset):
    return "=" in dataset.rpartition("#")[2] and "/" not in dataset.rpartition("#")[2] and "#" in dataset


def _check_texts(items, expected):
    if not all(isinstance(part, str) for item in items for part in item):
        raise TypeError(f"fields: expected names and {expected}")


def _is_table(dataset):
    return dataset.startswith("files:") and dataset.lower().endswith((".csv", ".tsv"))


def _with_columns(dataset, fields):
    """Of a table. Its image "image" has a column anyway, and "label" is in the column that the table has for it."""
    is_dictionary = isinstance(fields, collections.abc.Mapping)
    fields = fields if is_dictionary else list(fields)
    items = list(fields.items()) if is_dictionary else [(name, name) for name in fields]
    _check_texts(items, "columns as texts, such as {'image': 'path', 'score': 'score', 'hot': 'cat;dog'}")
    own = ("image", "label")
    if all(column in own for _, column in items):
        return dataset, fields
    names = [column if column in own else name for name, column in items]
    columns = dict.fromkeys(f"{n}={column}" for n, (_, column) in zip(names, items) if column != "image")
    keyed = {key: name for (key, _), name in zip(items, names)}
    return dataset + "#" + ",".join(columns), keyed if is_dictionary else names


def with_fields(dataset, fields):
    """The data set's name with a list of fields, and `fields` by the names in that list."""
    is_table = _is_table(dataset)
    if fields is None or isinstance(fields, str) or not (is_table or dataset.startswith(_KINDS)) or _has_list(dataset):
        return dataset, fields
    if is_table:
        return _with_columns(dataset, fields)
    if isinstance(fields, collections.abc.Mapping):
        items, fields = list(fields.items()), {name: name for name in fields}
    else:
        fields = list(fields)
        items = [(name, name) for name in fields]
    _check_texts(items, "extensions as texts, such as {'image': 'jpg;png', 'text': 'txt'}")
    extensions = _EXTENSIONS if dataset.startswith(("tar:", "zip:")) else {}  # others: their own columns
    return dataset + "#" + ",".join(f"{name}={extensions.get(e, e)}" for name, e in items), fields

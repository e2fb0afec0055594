"""Fields of shards: which files of a sample become which fields.

The daemon is told in the data set's name, "tar:SHARDS#NAME=EXTENSION,...". Without such a list it is made of the
caller's `fields`, whose names or values are extensions then, as webdataset has them.
"""

import collections.abc

_KINDS = ("tar:", "mds:", "zip:", "arrow:")
# The daemon's own where there is no list (member-spec.c).
_EXTENSIONS = {"image": "jpg;jpeg;png;webp;bmp;ppm;pgm;pbm;pnm;gif;tif;tiff", "label": "cls", "text": "txt;text"}


def _has_list(dataset):
    return "=" in dataset.rpartition("#")[2] and "/" not in dataset.rpartition("#")[2] and "#" in dataset


def with_fields(dataset, fields):
    """The data set's name with a list of fields, and `fields` by the names in that list."""
    if fields is None or isinstance(fields, str) or not dataset.startswith(_KINDS) or _has_list(dataset):
        return dataset, fields
    if isinstance(fields, collections.abc.Mapping):
        items, fields = list(fields.items()), {name: name for name in fields}
    else:
        fields = list(fields)
        items = [(name, name) for name in fields]
    if not all(isinstance(part, str) for item in items for part in item):
        raise TypeError("fields: expected names and extensions as texts, such as {'image': 'jpg;png', 'text': 'txt'}")
    extensions = _EXTENSIONS if dataset.startswith(("tar:", "zip:")) else {}  # mds and arrow: their own columns
    return dataset + "#" + ",".join(f"{name}={extensions.get(e, e)}" for name, e in items), fields

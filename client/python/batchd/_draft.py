"""The option decode: the size in which JPEGs are decoded, as the pipeline's first op."""

import json


_RECIPES = ("train224", "val224")  # what a name among a pipeline's ops may be


def into(text, decode, default):
    """The option transform's text for the C library, with the draft in it. default: what the data set has without a
    transform; None: what the daemon's configuration says."""
    op = _op(decode)
    if op is None:
        return text
    if not text and not default:
        raise ValueError(
            f"decode={decode!r} needs transform=: arrays have no JPEGs to decode, and a name from the daemon's configuration may "
            'have a transform of its own, which begins with ["Draft"] there'
        )
    return json.dumps(_with(_read(text or default), {"decode": op}), default=_plain)


def _plain(value):
    """Of numpy's numbers and arrays."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise ValueError(f"decode: {value!r} is no size in pixels")


def _op(decode):
    if decode is None or decode == "full":
        return None
    if decode == "draft":
        return ["Draft"]
    if isinstance(decode, (tuple, list)) and len(decode) == 2 and decode[0] == "draft":
        size = decode[1]
        return ["Draft", list(size) if isinstance(size, (tuple, list)) else size]
    raise ValueError(f"decode must be 'full', 'draft' or ('draft', size), not {decode!r}")


def _read(text):
    return json.loads(text) if text.lstrip()[:1] in ("[", "{") else text


def _with(pipeline, op):
    """A pipeline, or views of an image, each with op before the others."""
    if isinstance(pipeline, list):
        return [op, *pipeline]
    if isinstance(pipeline, str):
        if pipeline not in _RECIPES:
            raise ValueError(
                f"decode does not go with transform={pipeline!r}, a name from the daemon's configuration: begin it there "
                f"with {json.dumps(op['decode'], default=_plain)}, or give the operations here"
            )
        return [op, pipeline]
    views = pipeline.get("views")
    if isinstance(views, list):
        return {**pipeline, "views": [_with(view, op) for view in views]}
    return {name: _with(view, op) for name, view in pipeline.items()}

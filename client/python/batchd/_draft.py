"""The option decode: the size in which JPEGs are decoded, as the pipeline's first op."""

import json


def into(text, decode, default):
    """The option transform's text for the C library, with the draft in it."""
    op = _op(decode)
    return text if op is None else json.dumps(_with(_read(text or default), op))


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
        return [op, pipeline]
    views = pipeline.get("views")
    if isinstance(views, list):
        return {**pipeline, "views": [_with(view, op) for view in views]}
    return {name: _with(view, op) for name, view in pipeline.items()}

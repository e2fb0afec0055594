"""The option image_mode: Pillow's mode in which images are read, as the pipeline's first op."""

import json

MODES = ("L", "RGB", "I;16", "I", "F")


def into(text, mode, default="train224"):
    """The option transform's text for the C library, with the mode in it. default: what the data set has without one, which is
    for RGB; None: nothing that is known."""
    if mode is None:
        return text
    if mode not in MODES:
        raise ValueError(f"image_mode must be {', '.join(map(repr, MODES[:-1]))} or {MODES[-1]!r}, not {mode!r}")
    form = (text or "").lstrip()[:1]
    if form not in ("[", "{"):
        if mode == "RGB":
            return text
        why = (
            f"{text or f'the default, {default},'} is for RGB" if text or default else "the data set has none by itself"
        )
        raise ValueError(f"image_mode={mode!r} needs a transform in words or objects: {why}")
    return json.dumps(_with(json.loads(text), mode))


def _with(pipeline, mode):
    """A pipeline, or views of an image, each with the mode's op before the others."""
    if isinstance(pipeline, list):
        return [{"image_mode": ["Convert", mode]}, *pipeline]
    if isinstance(pipeline, str):
        raise ValueError(f"image_mode={mode!r} needs views in words or objects: {pipeline} is for RGB")
    views = pipeline.get("views")
    if isinstance(views, list):
        return {**pipeline, "views": [_with(view, mode) for view in views]}
    return {name: _with(view, mode) for name, view in pipeline.items()}

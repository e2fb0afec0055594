"""Warnings, at the caller's line."""

import sys
import warnings


def warn(text):
    """Warns at the caller's line that led here, however deep in this package the call is."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__package__") == __package__:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, RuntimeWarning, stacklevel=level)

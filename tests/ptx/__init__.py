"""Runs PTX without a GPU: README.md."""

from . import arithmetic
from .launch import Program, Report
from .memory import Fault, Global
from .syntax import Unsupported, parse

__all__ = ["Fault", "Global", "Program", "Report", "Unsupported", "arithmetic", "parse"]

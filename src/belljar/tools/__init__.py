"""Five tool families that run commands in one session. Each keeps the names, limits and messages of its document."""

import logging

from belljar.tools.base import Tool, ToolResult
from belljar.tools.registry import ToolRegistry

# A library must not log by itself: without a handler Python prints errors to stderr.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = ["Tool", "ToolRegistry", "ToolResult"]

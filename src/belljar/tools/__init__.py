"""Five tool families in front of one executor; each keeps the names, numbers and messages of its own document."""

import logging

from belljar.tools.base import Tool, ToolResult
from belljar.tools.registry import ToolRegistry

# A library says nothing unless it is asked; without this Python prints errors by itself.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = ["Tool", "ToolRegistry", "ToolResult"]

"""Five tool families in front of one executor; each keeps the names, numbers and messages of its own document."""

from belljar.tools.base import Tool, ToolResult
from belljar.tools.registry import ToolRegistry

__all__ = ["Tool", "ToolRegistry", "ToolResult"]

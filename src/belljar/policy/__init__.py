"""The policy: every command is judged here, on the host, before it reaches a container.

    canonical text → parse → effects → rules → verdict

The policy prevents accidents and explains why; the container isolates. Nothing here runs a command.
"""

from .approvals import Approvals
from .engine import BUILT_IN, Policy
from .parser import warm
from .shellstate import ShellState
from .toml_files import policies_directory
from .verdict import Effect, Finding, Verdict

__all__ = [
    "BUILT_IN",
    "Approvals",
    "Effect",
    "Finding",
    "Policy",
    "ShellState",
    "Verdict",
    "policies_directory",
    "warm",
]

"""The policy: every command is judged here, on the host, before it reaches a container.

    canonical text → parse → effects → rules → verdict

It is a guard-rail that talks sense to an agent and an operator; the container is the wall. Nothing here runs a command.
"""

from .approvals import Approvals
from .effects import Effect
from .engine import BUILT_IN, Policy
from .examples import check_knowledge, is_knowledge
from .knowledge import policies_directory
from .parser import warm
from .score import Score, score_files
from .shellstate import ShellState
from .verdict import Finding, Verdict

__all__ = [
    "BUILT_IN",
    "Approvals",
    "Effect",
    "Finding",
    "Policy",
    "Score",
    "ShellState",
    "Verdict",
    "check_knowledge",
    "is_knowledge",
    "policies_directory",
    "score_files",
    "warm",
]

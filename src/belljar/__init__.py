"""Belljar runs the shell commands of AI agents in containers: isolated from the host, visible to you."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from belljar.errors import BelljarError as BelljarError
    from belljar.errors import Conflict as Conflict
    from belljar.errors import PolicyDenied as PolicyDenied
    from belljar.errors import SandboxLost as SandboxLost
    from belljar.host import Host as Host
    from belljar.limits import Limits as Limits
    from belljar.network.allow import Allow as Allow
    from belljar.policy import Policy as Policy
    from belljar.policy import Verdict as Verdict
    from belljar.session.background_shell import Shell as Shell
    from belljar.session.pool import Pool as Pool
    from belljar.session.result import Ended as Ended
    from belljar.session.result import Output as Output
    from belljar.session.result import Result as Result
    from belljar.session.result import Started as Started
    from belljar.session.session import Session as Session
    from belljar.session.throwaway import run as run
    from belljar.staged.change import Change as Change
    from belljar.tools import ToolRegistry as ToolRegistry

__version__ = "0.1.0"

# Loaded on first use: the command line answers `--help` without paying for the engine's client.
_HOMES = {
    "Allow": "network.allow",
    "BelljarError": "errors",
    "Change": "staged.change",
    "Conflict": "errors",
    "PolicyDenied": "errors",
    "SandboxLost": "errors",
    "Host": "host",
    "Limits": "limits",
    "Policy": "policy",
    "Verdict": "policy",
    "Pool": "session.pool",
    "Ended": "session.result",
    "Output": "session.result",
    "Result": "session.result",
    "Started": "session.result",
    "Session": "session.session",
    "run": "session.throwaway",
    "Shell": "session.background_shell",
    "ToolRegistry": "tools",
}
__all__ = sorted([*_HOMES, "errors", "sync"])


def __getattr__(name: str) -> Any:
    if name in ("errors", "sync"):
        return import_module(f"belljar.{name}")
    if name in _HOMES:
        return getattr(import_module(f"belljar.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'belljar' has no attribute {name!r}")

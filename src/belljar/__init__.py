"""Belljar runs the shell commands of AI agents in containers: isolated from the host, visible to you."""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing takes milliseconds
if TYPE_CHECKING:
    from typing import Any

    from belljar.errors import (
        BelljarError,
        Conflict,
        FileFailed,
        PolicyDenied,
        SandboxLost,
        Unsupported,
    )
    from belljar.host import Host
    from belljar.limits import Limits
    from belljar.network.allow import Allow
    from belljar.options import SandboxOptions
    from belljar.policy import Policy, Verdict
    from belljar.remote.host import connect
    from belljar.session.background_shell import Shell
    from belljar.session.pool import Pool
    from belljar.session.result import Ended, Output, Result, Started
    from belljar.session.session import Session, run
    from belljar.staged.change import Change
    from belljar.tools import ToolRegistry

__version__ = "0.1.0"

# Loaded on first use, so that `belljar --help` does not import the engine's client.
_MODULES = {
    "errors": "BelljarError Conflict FileFailed PolicyDenied SandboxLost Unsupported",
    "host": "Host",
    "limits": "Limits",
    "network.allow": "Allow",
    "options": "SandboxOptions",
    "policy": "Policy Verdict",
    "remote.host": "connect",
    "session.background_shell": "Shell",
    "session.pool": "Pool",
    "session.result": "Ended Output Result Started",
    "session.session": "Session run",
    "staged.change": "Change",
    "tools": "ToolRegistry",
}
_MODULE_OF = {
    name: module for module, names in _MODULES.items() for name in names.split()
}
__all__ = [
    "Allow",
    "BelljarError",
    "Change",
    "Conflict",
    "Ended",
    "FileFailed",
    "Host",
    "Limits",
    "Output",
    "Policy",
    "PolicyDenied",
    "Pool",
    "Result",
    "SandboxLost",
    "SandboxOptions",
    "Session",
    "Shell",
    "Started",
    "ToolRegistry",
    "Unsupported",
    "Verdict",
    "connect",
    "errors",
    "run",
    "sync",
]


def __getattr__(name: str) -> Any:
    if name in ("errors", "sync"):
        return _module(name)
    if name in _MODULE_OF:
        return getattr(_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'belljar' has no attribute {name!r}")


def _module(name: str) -> Any:
    from importlib import import_module

    return import_module(f"belljar.{name}")


def __dir__() -> list[str]:
    """Lists the names that are not loaded yet too, for Tab and for `python -m pydoc belljar`."""
    return sorted({*globals(), *__all__})

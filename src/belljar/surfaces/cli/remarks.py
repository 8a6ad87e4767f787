"""Messages after a command's output: why it was stopped, what it left behind, and hints."""

from __future__ import annotations

from argparse import Namespace

from belljar.session.hints import Reader
from belljar.session.result import Result
from belljar.surfaces.cli import ci_report


def remarks(result: Result, args: Namespace, reader: Reader = "cli") -> list[str]:
    """One line each, hints last."""
    lines = [reason] if (reason := ci_report.unusual_end(result, args)) else []
    if result.runs_later:
        lines.append(
            f"changed files that this machine may run later: {', '.join(result.runs_later)}"
        )
    lines += [
        f"a server listens on port {port}: {_how_to_open(port, args)}"
        for port in result.listening
    ]
    hints = (
        () if result.cause == "out_of_memory" else result.hints_for(reader)
    )  # the reason already has the remedy
    return [*lines, *(f"hint: {hint}" for hint in hints)]


def _how_to_open(port: int, args: Namespace) -> str:
    session = getattr(args, "session", None)
    return (
        f"`belljar forward {session} {port}` opens it here"
        if session
        else f":open {port} opens it here"
    )

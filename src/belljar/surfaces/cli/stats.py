"""`belljar stats`: the memory and processes of sessions, from the kernel. On a terminal until q or Ctrl+C."""

from __future__ import annotations

import os
import select
import sys
import time
from argparse import Namespace
from contextlib import nullcontext
from typing import Any

from belljar.errors import EngineError
from belljar.host import default
from belljar.sandbox.cgroup import usage
from belljar.sandbox.launch import engine_of
from belljar.session import kept
from belljar.surfaces.cli import console, names
from belljar.surfaces.terminal.host import HostTerminal

SECONDS = 1.0
_UP_AND_CLEAR = "\x1b[{lines}A\x1b[J"


def stats(args: Namespace) -> int:
    ids = {names.session(name) for name in args.sessions}
    if args.json:
        return console.answer(args, _rows(ids))
    if not sys.stdout.isatty() or args.once:
        _show(_rows(ids))
        return 0
    terminal = HostTerminal.here()
    with terminal.keys() if terminal else nullcontext():
        return _live(ids, terminal)


def _live(ids: set[str], terminal: HostTerminal | None) -> int:
    lines = 0
    while True:
        rows = _rows(ids)
        if lines:
            sys.stdout.write(_UP_AND_CLEAR.format(lines=lines))
        _show(rows)
        lines = len(rows) + 1
        if terminal is None:
            time.sleep(SECONDS)
        elif _typed(SECONDS) in (b"q", b"Q"):
            return 0


def _show(rows: list[dict[str, Any]]) -> None:
    shown = [
        (r["name"] or r["id"], _memory(r), _pids(r), r["image"], r["workspace"])
        for r in rows
    ]
    console.table(shown, "SESSION", "MEMORY", "PROCESSES", "IMAGE", "WORKSPACE")
    sys.stdout.flush()


def _typed(seconds: float) -> bytes:
    """The key that the user types meanwhile, if any."""
    ready, _, _ = select.select([0], [], [], seconds)
    return os.read(0, 64)[:1] if ready else b""


def _rows(ids: set[str]) -> list[dict[str, Any]]:
    """Of these sessions, or of all."""
    rows = []
    for session in kept.running(default()):
        id = session["id"]
        if ids and id not in ids:
            continue
        try:
            engine = engine_of(session, default())
            used = (
                usage(engine.inspect(session["container"]).pid)
                if engine.capabilities.sees_groups
                else {}
            )
        except EngineError:
            continue  # it has just ended
        limits = session.get("limits") or {}
        rows.append(
            {
                "id": id,
                "name": session["name"],
                "image": session["image"],
                "workspace": session["workspace"],
                "memory": used.get("memory", 0),
                "pids": used.get("pids", 0),
                "memory_limit": limits.get("memory", 0),
                "pids_limit": limits.get("pids", 0),
            }
        )
    return rows


def _memory(row: dict[str, Any]) -> str:
    limit = f" / {row['memory_limit'] / (1 << 20):.0f}" if row["memory_limit"] else ""
    return f"{row['memory'] / (1 << 20):.1f}{limit} MiB"


def _pids(row: dict[str, Any]) -> str:
    return f"{row['pids']}{' / ' + str(row['pids_limit']) if row['pids_limit'] else ''}"

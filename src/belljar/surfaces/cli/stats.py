"""`belljar stats`: the memory and processes of sessions, from the kernel. On a terminal until q or Ctrl+C."""

from __future__ import annotations

import os
import select
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

from belljar.errors import EngineError
from belljar.host import default
from belljar.sandbox import census
from belljar.sandbox.cgroup import usage
from belljar.sandbox.launch import engine_of
from belljar.session import kept
from belljar.surfaces.cli import console, names
from belljar.surfaces.terminal.host import HostTerminal

SECONDS = 1.0
_UP_AND_CLEAR = "\x1b[{lines}A\x1b[J"
Rows = list[dict[str, Any]]


def stats(args: Namespace) -> int:
    ids = {name if args.all else names.session(name) for name in args.sessions}
    look = partial(_of_all if args.all else _rows, ids)
    show = _show_all if args.all else _show
    if args.json:
        return console.answer(args, look())
    if not sys.stdout.isatty() or args.once:
        show(look())
        return 0
    terminal = HostTerminal.here()
    with terminal.keys() if terminal else nullcontext():
        return _live(look, show, terminal)


def _live(
    look: Callable[[], Rows],
    show: Callable[[Rows], None],
    terminal: HostTerminal | None,
) -> int:
    lines = 0
    while True:
        rows = look()
        if lines:
            sys.stdout.write(_UP_AND_CLEAR.format(lines=lines))
        show(rows)
        lines = len(rows) + 1
        if terminal is None:
            time.sleep(SECONDS)
        elif _typed(SECONDS) in (b"q", b"Q"):
            return 0


def _of_all(ids: set[str]) -> Rows:
    """Of all users, from the kernel alone."""
    return [each.as_dict() for each in census.everybody() if not ids or each.id in ids]


def _show_all(rows: Rows) -> None:
    shown = [
        (r["id"], r["user"], _memory(r), _pids(r), r["workspace"] or "-") for r in rows
    ]
    console.table(shown, "SESSION", "USER", "MEMORY", "PROCESSES", "WORKSPACE")
    sys.stdout.flush()


def _show(rows: Rows) -> None:
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


def _rows(ids: set[str]) -> Rows:
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

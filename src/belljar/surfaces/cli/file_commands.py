"""Files and ports of a session: `cp` both ways, `forward`."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import BinaryIO

import anyio
from anyio import to_thread

from belljar.errors import SandboxLost, UsageError
from belljar.session.session import Session
from belljar.surfaces.cli import console, names
from belljar.surfaces.cli.session_commands import sessions
from belljar.surfaces.terminal.render import Screen


async def copy(args: Namespace) -> int:
    source, target = args.source, args.target
    (out, inner), (into, path) = _split(source), _split(target)
    if (out is None) == (into is None):
        raise UsageError(
            "exactly one side must be in a session, as in `belljar cp notes.txt ID:notes.txt`"
        )
    async with await Session.attach(out or into or "") as box:
        if into is not None:
            await _in(box, source, path or ".")
        else:
            await _out(box, inner or ".", target)
    return console.answer(args, {"source": source, "target": target})


def _split(text: str) -> tuple[str | None, str]:
    """The session of `ID:PATH` and the path in it; None and the text for a path of this machine."""
    name, colon, path = text.partition(":")
    if not colon or "/" in name or name in ("", "."):
        return None, text
    return names.session(name), path


async def _in(box: Session, source: str, path: str) -> None:
    if source == "-":
        await box.files.write(path, await to_thread.run_sync(sys.stdin.buffer.read))
        return
    local = Path(source)
    if not await to_thread.run_sync(local.exists):
        raise UsageError(f"{source} does not exist")
    if (
        await box.files.exists(path)
        and (await box.files.stat(path)).kind == "directory"
    ):
        path = f"{path.rstrip('/')}/{_name(source)}"
    await box.files.upload(source, path)


def _name(source: str) -> str:
    return os.path.basename(os.path.abspath(source))


async def _out(box: Session, path: str, target: str) -> None:
    if target != "-":
        await box.files.download(path, target)
        return
    with tempfile.TemporaryDirectory(prefix="belljar-cp-") as directory:
        await box.files.download(path, f"{directory}/file")
        with await to_thread.run_sync(open, f"{directory}/file", "rb") as file:
            await to_thread.run_sync(_print, file)


def _print(file: BinaryIO) -> None:
    """On a terminal the content is filtered, like a command's output."""
    out = sys.stdout.buffer
    if sys.stdout.isatty():
        screen = Screen()
        while part := file.read(1 << 16):
            out.write(screen.feed(part))
        out.write(screen.close())
    else:
        shutil.copyfileobj(file, out)
    out.flush()


async def forward(args: Namespace) -> int:
    id, here, port = await to_thread.run_sync(_forwarded, args)
    async with await Session.attach(id) as box:
        url = await box.forward(port, at=here)
        if port not in await box.listening():
            console.note(f"nothing listens on port {port} in {id} yet")
        console.answer(args, {"url": url, "port": port}, url)
        sys.stdout.flush()  # a reader of a pipe needs it now
        console.note("Ctrl+C ends it")
        if await _until_signal(box):
            return 0
    raise SandboxLost(f"session {id} ended")


async def _until_signal(box: Session) -> bool:
    """Wait for a signal or the end of the session. True for a signal."""
    signalled = False
    async with anyio.create_task_group() as waiting:

        async def cancel_at_the_end() -> None:
            await box.until_lost()
            waiting.cancel_scope.cancel()

        waiting.start_soon(cancel_at_the_end)
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                signalled = True
                waiting.cancel_scope.cancel()
    return signalled


def _forwarded(args: Namespace) -> tuple[str, int, int]:
    """The session, the port here (0: any free one), and the port inside."""
    *first, ports = args.sessions or [""]
    match = re.fullmatch(r"(?:(\d+):)?(\d+)", ports)
    if match is None or len(first) > (args.session is None):
        raise UsageError(
            "write `belljar forward ID PORT`, or HERE:PORT to choose the port of this machine, such as 18123:8000; "
            "it is opened on 127.0.0.1 only"
        )
    return (
        _session(args.session or (first[0] if first else None)),
        int(match[1] or args.at),
        int(match[2]),
    )


def _session(id_or_name: str | None) -> str:
    """The named session, or the only one."""
    if id_or_name is not None:
        return names.session(id_or_name)
    ids = [session["id"] for session in sessions()]
    if len(ids) != 1:
        several = f"several sessions run ({', '.join(ids)}); name one: belljar forward ID PORT"
        raise UsageError(
            several if ids else "no session runs; `belljar session start` starts one"
        )
    return str(ids[0])

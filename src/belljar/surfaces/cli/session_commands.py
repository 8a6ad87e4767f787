"""Commands for sessions and background shells: `session start|list|stop`, `ps`, `start`, `shells`, `logs` …"""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from anyio import to_thread

from belljar import host
from belljar.audit import masking
from belljar.codec import raw_streams
from belljar.errors import BelljarError, ShellNotFound, UsageError
from belljar.sandbox import census, rundir
from belljar.sandbox.launch import engine_of
from belljar.session import kept
from belljar.session.background_shell import Chunk, Shell
from belljar.session.result import TIMEOUT_STATUS, Output, decode
from belljar.session.session import Session
from belljar.surfaces.cli import asking, console, devcontainer, names, staged_remains
from belljar.surfaces.cli.foreground import Sink
from belljar.surfaces.cli.open_session import approve_all, opened, planned
from belljar.surfaces.terminal.host import environment

_FOLLOW_SECONDS = 30.0


async def start(args: Namespace) -> int:
    approve = approve_all if args.yes else None
    if args.devcontainer:
        await to_thread.run_sync(devcontainer.prepare, args)
    async with planned(args, approve=approve, keep=True, lease=args.lease) as box:
        if args.devcontainer:
            await devcontainer.create(box, args)
        facts = {
            "session": box.id,
            "workspace": box.workspace.path,
            "lease": args.lease,
            "name": box.options.name,
        }
        return console.answer(args, facts, box.id)


def listing(args: Namespace) -> int:
    if args.all:
        return _listing_of_all(args)
    if (far := host.far_of(None)) is not None:
        return _listing_there(args, far)
    running = [{**session, "ended": False} for session in kept.running(host.default())]
    staged = staged_remains.summaries()
    ended = staged_remains.ended({session["id"] for session in running}, staged)
    listed = [{**s, "changes": staged.get(s["id"])} for s in [*running, *ended]]
    rows = [
        (
            s["id"],
            s["name"] or "-",
            s["image"],
            _age(s["started"]),
            _lease(s),
            s["changes"] or "-",
            s["workspace"],
        )
        for s in listed
    ]
    return console.answer_table(
        args,
        listed,
        rows,
        "SESSION",
        "NAME",
        "IMAGE",
        "AGE",
        "ENDS",
        "CHANGES",
        "WORKSPACE",
    )


def _listing_of_all(args: Namespace) -> int:
    found = census.everybody()
    rows = [
        (
            each.id,
            each.user,
            each.pid,
            _age(each.started),
            "paused" if each.paused else "running",
            each.workspace or "-",
        )
        for each in found
    ]
    header = ("SESSION", "USER", "PID", "AGE", "STATE", "WORKSPACE")
    return console.answer_table(args, [each.as_dict() for each in found], rows, *header)


def _listing_there(args: Namespace, far: host.FarHost) -> int:
    found = [each for each in reversed(sessions()) if each["state"] != "ended"]
    rows = [
        (
            s["id"],
            s["name"] or "-",
            s["image"],
            _age(s["started"]),
            s["state"],
            f"{max(0.0, s['expires'] - time.time()):.0f}s unused",
            s["workspace"] or "-",
        )
        for s in found
    ]
    return console.answer_table(
        args,
        found,
        rows,
        "SESSION",
        "NAME",
        "IMAGE",
        "AGE",
        "STATE",
        "ENDS",
        "WORKSPACE",
    )


def _lease(session: dict[str, Any]) -> str:
    """When it ends: a kept session after its lease, another one with the process that opened it."""
    if session["ended"]:
        return "ended"
    if session["paused"]:
        return "paused"
    return (
        f"{session['lease']:g}s unused"
        if session["keep"]
        else f"with pid {session['owner'] or '?'}"
    )


def sessions() -> list[dict[str, Any]]:
    """Kept sessions whose container is running, oldest first; of a service those that the key may see."""
    if (far := host.far_of(None)) is not None:
        items = far.portal().call(far.items, "sessions")
        return [
            {
                **each,
                "started": each["started"] or each["created"],
                "workspace": each["workspace"] or "",
            }
            for each in reversed(items)
        ]
    return kept.facts(host.default())


async def stop(args: Namespace) -> int:
    for id_or_name in args.sessions:
        box = await _entered(id_or_name, resume=True)
        await box.stop()
    return console.answer(args, {"stopped": args.sessions})


async def pause(args: Namespace) -> int:
    for id_or_name in args.sessions:
        async with await _entered(id_or_name) as box:
            if args.lease is not None:
                box.extend(args.lease)
            await box.pause()
    return console.answer(args, {"paused": args.sessions})


async def resume(args: Namespace) -> int:
    for id_or_name in args.sessions:
        async with await _entered(id_or_name, resume=True):
            pass
    return console.answer(args, {"resumed": args.sessions})


async def _entered(id_or_name: str, *, resume: bool = False) -> Session:
    return await Session.attach(
        names.session(id_or_name), policy="default", resume=resume
    )  # nothing will be judged


async def background(args: Namespace) -> int:
    async with opened(args, approve=asking.terminal_approver(args)) as box:
        env = {**(environment() if args.tty else {}), **dict(args.env)}
        shell = await box.start(
            args.command,
            env=env,
            cwd=args.cwd,
            user=args.user,
            timeout=args.timeout,
            pty=args.tty,
        )
        return console.answer(args, _described(shell, box), shell.id)


async def shells(args: Namespace) -> int:
    listed = await all_shells(args.session)
    rows = [
        (s["id"], s["session"], s["status"], _exit(s), _age(s["started"]), s["command"])
        for s in listed
    ]
    return console.answer_table(
        args, listed, rows, "SHELL", "SESSION", "STATUS", "EXIT", "AGE", "COMMAND"
    )


async def all_shells(session: str | None = None) -> list[dict[str, Any]]:
    shells = []
    for id in [names.session(session)] if session else await _ids():
        async with _attached(id, must=session is not None) as box:
            shells += [_described(shell, box) for shell in box.shells()] if box else []
    return shells


async def logs(args: Namespace) -> int:
    sink = Sink(quiet=args.json)
    chunks: list[Chunk] = []
    async with attached_to(args.id) as (box, shell):
        async for chunk in _chunks(shell, args.follow, args.lines):
            await sink.write(Output("stdout", chunk.stdout_bytes))
            await sink.write(Output("stderr", chunk.stderr_bytes))
            chunks += [chunk] if args.json else []
        if args.json:
            out, err = (
                b"".join(c.stdout_bytes for c in chunks),
                b"".join(c.stderr_bytes for c in chunks),
            )
            output = masking.Known(shell.command).hide(
                {"stdout": decode(out), "stderr": decode(err)}
            )
            console.document(
                {
                    **_described(shell, box),
                    **output,
                    **raw_streams(stdout=out, stderr=err),
                }
            )
    await sink.close()
    return 0


async def _chunks(
    shell: Shell, follow: bool, lines: int | None
) -> AsyncIterator[Chunk]:
    chunk = await shell.read(offset=0)
    if lines is not None:
        chunk = await _last(shell, chunk, lines)
    while (
        chunk.stdout_bytes
        or chunk.stderr_bytes
        or (follow and chunk.status == "running")
    ):
        yield chunk
        chunk = await shell.read(
            offset=chunk.next, wait=_FOLLOW_SECONDS if follow else 0
        )


async def _last(shell: Shell, chunk: Chunk, lines: int) -> Chunk:
    """One chunk with the last lines of each stream so far."""
    out, err = chunk.stdout_bytes, chunk.stderr_bytes
    while chunk.stdout_bytes or chunk.stderr_bytes:
        chunk = await shell.read(offset=chunk.next)
        out, err = out + chunk.stdout_bytes, err + chunk.stderr_bytes
    return replace(
        chunk, stdout_bytes=_tail(out, lines), stderr_bytes=_tail(err, lines)
    )


def _tail(data: bytes, lines: int) -> bytes:
    return b"".join(data.splitlines(keepends=True)[-lines:]) if lines else b""


async def wait(args: Namespace) -> int:
    async with attached_to(args.id) as (box, shell):
        try:
            result = await shell.wait(args.timeout)
        except TimeoutError:
            console.note(f"{shell.id} is still running after {args.timeout:g} s")
            return TIMEOUT_STATUS
        console.answer(args, _described(shell, box))
        return result.exit_code


async def kill(args: Namespace) -> int:
    for id in args.ids:
        if names.is_id(id) and os.geteuid() == 0 and host.far_of(None) is None:
            await to_thread.run_sync(_end_sandbox, id, args.user or "")
            continue
        async with attached_to(id) as (box, shell):
            await shell.kill()
            await stop_if_done(box, shell)
    return console.answer(args, {"killed": args.ids})


def _end_sandbox(id: str, user: str) -> None:
    """Any user's. It is recorded first: a required trail that cannot be written keeps it alive."""
    seen = census.find(id, user)
    host.default().audit.record(
        "kill", session=id, of_uid=seen.uid, of_user=seen.user, of_pid=seen.pid
    )
    census.end(seen)
    if seen.uid != os.geteuid():
        return  # what is left of it, its owner's next start removes
    here = host.default()
    path = here.run_root / id
    if (facts := rundir.read_session(path)) is not None and not rundir.owned(path):
        engine_of(facts, here).destroy(str(facts["container"]))
        rundir.remove_run_dir(path)


async def stop_if_done(box: Session, shell: Shell) -> None:
    """End a sandbox with its only command, if it was kept only because the user detached from that."""
    if box.metadata.get("detached") == "run" and shell.status != "running":
        await box.stop()


async def _ids() -> list[str]:
    return [session["id"] for session in await to_thread.run_sync(sessions)]


@asynccontextmanager
async def attached_to(id: str | None) -> AsyncIterator[tuple[Session, Shell]]:
    """A background shell and its session, whichever that is. None: the only one that runs."""
    if id is None:
        id = await _only()
    if id.startswith("bj-"):
        raise UsageError(
            f"{id} is a session: `belljar session stop {id}` ends it, `belljar shells` lists its shells"
        )
    for session in await _ids():
        async with _attached(session) as box:
            shell = (
                next((shell for shell in box.shells() if shell.id == id), None)
                if box
                else None
            )
            if box and shell:
                yield box, shell
                return
    raise ShellNotFound(f"Shell not found: {id}; `belljar shells` lists them")


async def _only() -> str:
    running = [
        shell["id"] for shell in await all_shells() if shell["status"] == "running"
    ]
    if len(running) != 1:
        several = (
            f"{len(running)} background shells run ({', '.join(running)}): name one"
        )
        raise UsageError(
            f"{several if running else 'no background shell runs'}; `belljar shells` lists them"
        )
    return str(running[0])


@asynccontextmanager
async def _attached(id: str, must: bool = False) -> AsyncIterator[Session | None]:
    try:
        box = await Session.attach(id)
    except BelljarError:
        if must:
            raise
        yield None  # it ended between the listing and now
        return
    async with box:
        yield box


def _described(shell: Shell, box: Session) -> dict[str, Any]:
    return {
        "id": shell.id,
        "session": box.id,
        "status": shell.status,
        "exit_code": shell.exit_code,
        "started": shell.started,
        "command": masking.text(shell.command),
    }


def _exit(shell: dict[str, Any]) -> str:
    return "-" if shell["exit_code"] is None else str(shell["exit_code"])


def _age(started: float) -> str:
    seconds = max(0, int(time.time() - started))
    hours, minutes = seconds // 3600, seconds // 60 % 60
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{seconds % 60:02}s"

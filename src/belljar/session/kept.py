"""Kept sessions (`keep=True`), which outlive the process that opened them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from belljar.errors import EngineUnavailable, SessionNotFound
from belljar.options import SandboxOptions
from belljar.policy import Policy
from belljar.records import record
from belljar.sandbox import rundir
from belljar.sandbox.launch import engine_of

if TYPE_CHECKING:
    from belljar.engines.base import Listed
    from belljar.host import Host


@record
class Kept:
    """An item of `Session.list()`; `await Session.attach(kept.id)` enters it."""

    id: str
    image: str
    workspace: str
    started: float
    """Unix time."""
    lease: float
    metadata: dict[str, str] = field(default_factory=dict)
    paused: bool = False


def facts(host: Host) -> list[dict[str, Any]]:
    """The facts about each kept session whose sandbox runs, oldest first. Blocks: it asks the engine."""
    return [session for session in running(host) if session["keep"]]


def running(host: Host) -> list[dict[str, Any]]:
    """The same for all sessions, with the process id (`owner`) of those that end with a process."""
    found = (
        rundir.read_session(path)
        for path in rundir.run_dirs(host.run_root)
        if not rundir.is_ending(path)
    )
    read = [
        session
        for session in found
        if session and "options" in session and not session.get("waits")
    ]
    living = _living(host, read)
    sessions = [
        {
            **_shown(session),
            "owner": None
            if options["keep"]
            else rundir.owner_pid(living[session["container"]].labels),
            "paused": living[session["container"]].state == "paused",
        }
        for session in read
        if session["container"] in living and (options := session["options"])
    ]
    return sorted(sessions, key=lambda session: float(session["started"]))


def _living(host: Host, sessions: Sequence[dict[str, Any]]) -> dict[str, Listed]:
    """By their containers' ids: the running and paused sandboxes of the engines that started these sessions."""
    engine = host.connect()
    engines = {engine.identity: engine}
    for session in sessions:
        if str(session.get("engine")) not in engines:
            with suppress(EngineUnavailable):
                engine = engine_of(session, host)
                engines[engine.identity] = engine
    listed = [container for engine in engines.values() for container in engine.list()]
    return {
        container.id: container
        for container in listed
        if container.state in ("running", "paused")
    }


def _shown(session: dict[str, Any]) -> dict[str, Any]:
    """The facts and options of a session, without its policy's text."""
    saved = session["options"]
    policy = (
        saved["policy"] if isinstance(saved["policy"], str) else saved["policy"]["name"]
    )
    options = SandboxOptions.restored({**saved, "policy": policy})
    return {
        **options.facts(),
        **{
            name: value
            for name, value in session.items()
            if name not in ("options", "waits")
        },
    }


def policy(run_dir: Path) -> Policy:
    """The policy that the session began with, even if its file has changed since."""
    session = rundir.read_session(run_dir)
    if session is None:
        raise SessionNotFound(
            f"no session {run_dir.name} is open; `belljar session list` lists them"
        )
    saved = session["options"]["policy"]
    return Policy.load(saved) if isinstance(saved, str) else Policy.restored(saved)


def listed(host: Host) -> tuple[Kept, ...]:
    """The kept sessions of a host, oldest first. Blocks."""
    names = ("id", "image", "workspace", "started", "lease", "metadata", "paused")
    return tuple(Kept(*(session[name] for name in names)) for session in facts(host))

"""Sessions that outlive the process that opened them (`keep=True`): which there are, and what was said about them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from belljar import host as hosts
from belljar.awaiting import all_pending
from belljar.errors import BelljarError, EngineUnavailable, SessionNotFound, UsageError
from belljar.policy import Policy
from belljar.records import record
from belljar.sandbox import rundir
from belljar.sandbox.launch import engine_of
from belljar.session.verbs import Verbs
from belljar.workspace.beneath import Folder

if TYPE_CHECKING:
    from belljar.host import EngineName, Host

METADATA = "metadata"
POLICY = "policy"


@record
class Kept:
    """One of `Session.list()`; `await Session.attach(each.id)` enters it."""

    id: str
    image: str
    workspace: str
    started: float
    """Unix time."""
    lease: float
    metadata: dict[str, str] = field(default_factory=dict)


def facts(host: Host) -> list[dict[str, Any]]:
    """All that is written down about those whose sandbox lives, oldest first. Asks the engine: it blocks."""
    return [each for each in running(host) if each["keep"]]


def running(host: Host) -> list[dict[str, Any]]:
    """The same with those that end with their process (`belljar mcp`, `run`, a program's); `owner`: its id."""
    read = [(path, rundir.read_session(path)) for path in rundir.run_dirs(host.run_root)]
    alive = _alive(host, [about for _, about in read if about])
    found = [
        {
            **about,
            "metadata": metadata(path),
            "owner": None if about["keep"] else rundir.owner_pid(alive[about["container"]]),
        }
        for path, about in read
        if about and about["container"] in alive
    ]
    return sorted(found, key=lambda each: float(each["started"]))


def _alive(host: Host, sessions: Sequence[dict[str, Any]]) -> dict[str, Mapping[str, str]]:
    """The labels of all sandboxes that run, of every engine that made one of these sessions."""
    engine = host.connect()
    asked = {engine.identity: engine}
    for about in sessions:
        if str(about.get("engine")) not in asked:
            with suppress(EngineUnavailable):
                engine = engine_of(about, host)
                asked[engine.identity] = engine
    return {each.id: each.labels for engine in asked.values() for each in engine.list() if each.state == "running"}


def metadata(run_dir: Path) -> dict[str, str]:
    return {str(name): str(text) for name, text in (rundir.read_session(run_dir, METADATA) or {}).items()}


def policy(run_dir: Path) -> Policy:
    """What the session is judged by, whoever enters it: as it was when it began, also where its file is another now."""
    told = rundir.read_session(run_dir, POLICY)
    if told is None:
        raise SessionNotFound(f"no session {run_dir.name} is open; `belljar session list` lists them")
    return Policy.restored(told)


@all_pending("box")
class KeptVerbs(Verbs):
    metadata: dict[str, str]

    @staticmethod
    async def list(*, host: Host | None = None, engine: EngineName | None = None) -> tuple[Kept, ...]:
        """The kept sessions of this host, oldest first.

        for each in await belljar.Session.list():
            print(each.id, each.workspace, each.metadata)
        """
        found = await to_thread.run_sync(facts, hosts.chosen(host, engine))
        return tuple(
            Kept(each["id"], each["image"], each["workspace"], each["started"], each["lease"], each["metadata"])
            for each in found
        )

    def stay(self, lease: float, **metadata: str) -> None:
        """If it is none yet, from now on a kept session: its sandbox outlives this process by `lease` seconds."""
        session, sandbox = self._box, self._box.sandbox
        if session._plan.keep:
            return
        facts = rundir.read_session(sandbox.run_dir)
        if facts is None or not sandbox.plan.keepable:
            raise UsageError("this sandbox ends with the process that started it; keep=True makes one that stays")
        session.extend(lease)
        session._plan = replace(session._plan, keep=True)
        self._write("session", {**facts, "keep": True, "lease": lease})
        self.metadata = {**self.metadata, **metadata}
        self._remember_metadata()

    def _remember_metadata(self) -> None:
        """Beside the session, for whoever lists it."""
        if self.metadata:
            self._write(METADATA, self.metadata)

    def _remember_policy(self) -> None:
        self._write(POLICY, self._box.policy.as_dict())

    def _write(self, name: str, facts: dict[str, Any]) -> None:
        where = self._box.sandbox.run_dir
        try:
            with Folder.at(where) as own:
                own.write(f"{name}.json", json.dumps(facts).encode())
        except OSError as error:
            raise BelljarError(f"Cannot write {where}/{name}.json: {error.strerror}") from error

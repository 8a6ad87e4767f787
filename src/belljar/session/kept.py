"""Sessions that outlive the process that opened them (`keep=True`): which there are, and what was said about them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from belljar import host as hosts
from belljar.sandbox import rundir
from belljar.workspace.beneath import Folder

if TYPE_CHECKING:
    from belljar.host import EngineName, Host
    from belljar.session.session import Session

METADATA = "metadata"


@dataclass(frozen=True)
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
    alive = {each.id for each in host.connect().list() if each.state == "running"}
    read = [(path, rundir.read_session(path)) for path in rundir.run_dirs(host.run_root)]
    found = [
        {**told, "metadata": metadata(path)}
        for path, told in read
        if told and told["keep"] and told["container"] in alive
    ]
    return sorted(found, key=lambda each: float(each["started"]))


def metadata(run_dir: Path) -> dict[str, str]:
    return {str(name): str(text) for name, text in (rundir.read_session(run_dir, METADATA) or {}).items()}


class KeptVerbs:
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

    def remember_metadata(self) -> None:
        """Beside the session, for whoever lists it."""
        session: Session = self  # type: ignore[assignment]
        if self.metadata:
            with Folder.at(session.sandbox.run_dir) as own:
                own.write(f"{METADATA}.json", json.dumps(self.metadata).encode())

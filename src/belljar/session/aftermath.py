"""What commands leave behind: files that the host may run later, processes killed for lack of memory, servers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from belljar.sandbox.cgroup import oom_kills
from belljar.sandbox.listening import Listening
from belljar.workspace.host_run_files import HostRunFiles, Snapshot

if TYPE_CHECKING:
    from belljar.sandbox.sandbox import Sandbox
    from belljar.session.copied_run_files import CopiedRunFiles
    from belljar.session.files import Files


class Aftermath:
    """Of one session's sandbox."""

    def __init__(self, sandbox: Sandbox, upper: int | None = None, copied: Files | None = None) -> None:
        """`upper`: where a staged session's changes go, instead of the workspace itself; taken over. `copied`: the
        sandbox's own files, of a workspace that was copied into it."""
        self._pid = sandbox.launched.pid if sandbox.engine.shares_files else None
        self._upper = upper
        workspace = sandbox.workspace
        looked_at, repositories = workspace.descriptor if upper is None else upper, workspace.git_directories()
        self._copied: CopiedRunFiles | None = None
        if copied is not None:
            from belljar.session.copied_run_files import CopiedRunFiles

            self._copied = CopiedRunFiles(workspace.descriptor, repositories, copied)
        self._files = self._copied or HostRunFiles(looked_at, repositories)
        self._oom_kills = 0
        self._listening = Listening(self._pid) if self._pid is not None else None
        self._known_ports: frozenset[int] = frozenset()

    async def look(self, *, again: bool = True) -> None:
        """Of a copied workspace: ask the sandbox how the files are that the host may run."""
        if self._copied is not None and (again or not self._copied.has_looked):
            await self._copied.look()

    def before(self, busy: bool) -> Snapshot:
        """How the places are that the host may run files from; `busy`: other commands go on meanwhile."""
        return self._files.before(busy)

    def since(self, before: Snapshot) -> tuple[str, ...]:
        return self._files.since(before)

    def new_oom_kills(self) -> int:
        """Processes that were killed for lack of memory since the last time this was asked."""
        found = oom_kills(self._pid) if self._pid is not None else 0
        new, self._oom_kills = max(0, found - self._oom_kills), max(found, self._oom_kills)
        return new

    def listening(self, without: frozenset[int] = frozenset()) -> frozenset[int]:
        """The ports that something in the sandbox listens on now."""
        return self._listening.ports() - without if self._listening is not None else frozenset()

    def new_listening(self, without: frozenset[int] = frozenset()) -> tuple[int, ...]:
        """Those since the last time this was asked; a look that would cost too much is left to the next time."""
        found = self._listening.when_cheap() if self._listening is not None else None
        if found is None:
            return ()
        new, self._known_ports = found - without - self._known_ports, found
        return tuple(sorted(new))

    def __del__(self) -> None:
        if self._listening is not None:
            self._listening.close()
        if self._upper is not None:
            os.close(self._upper)

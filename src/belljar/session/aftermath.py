"""What a command changed outside itself: files that the host may run later, out-of-memory kills, listening ports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from belljar.sandbox.cgroup import oom_kills
from belljar.sandbox.listening import Listening
from belljar.workspace.beneath import Folder
from belljar.workspace.host_run_files import HostRunFiles

if TYPE_CHECKING:
    from belljar.sandbox.sandbox import Sandbox
    from belljar.session.copied_run_files import CopiedRunFiles
    from belljar.session.files import Files


class Aftermath:
    def __init__(self, sandbox: Sandbox, upper: Folder | None = None, copied: Files | None = None) -> None:
        """`upper`: a staged session's upper directory. `copied`: the files of a sandbox that the workspace was copied
        into."""
        self._pid = sandbox.launched.pid if sandbox.engine.capabilities.sees_processes else None
        self._workspace = sandbox.workspace
        self._copied: CopiedRunFiles | None = None
        if copied is not None:
            from belljar.session.copied_run_files import CopiedRunFiles

            self._copied = CopiedRunFiles(self._workspace.descriptor, self._workspace.git_directories(), copied)
        self.moved(upper)
        self._oom_kills = 0
        self._listening = Listening(self._pid) if self._pid is not None else None
        self._known_ports: frozenset[int] = frozenset()

    def moved(self, upper: Folder | None) -> None:
        """The workspace was mounted anew: from now on changes go to this directory. What was counted stays counted."""
        root = self._workspace.descriptor if upper is None else upper.descriptor
        self.run_files = self._copied or HostRunFiles(root, self._workspace.git_directories())
        if upper is not None:
            upper.close()

    async def look(self, *, again: bool = True) -> None:
        """For a copied workspace: ask the sandbox about the files that the host may run."""
        if self._copied is not None and (again or not self._copied.has_looked):
            await self._copied.look()

    def new_oom_kills(self) -> int:
        """Processes that were killed for lack of memory since the last call."""
        total = oom_kills(self._pid) if self._pid is not None else 0
        new, self._oom_kills = max(0, total - self._oom_kills), max(total, self._oom_kills)
        return new

    def listening(self, without: frozenset[int] = frozenset()) -> frozenset[int]:
        """The ports that programs in the sandbox listen on now."""
        return self._listening.ports() - without if self._listening is not None else frozenset()

    def new_listening(self, without: frozenset[int] = frozenset()) -> tuple[int, ...]:
        """The ports that are new since the last call; a look that is too expensive now is left to the next call."""
        ports = self._listening.when_cheap() if self._listening is not None else None
        if ports is None:
            return ()
        new, self._known_ports = ports - without - self._known_ports, ports
        return tuple(sorted(new))

    def __del__(self) -> None:
        if self._listening is not None:
            self._listening.close()

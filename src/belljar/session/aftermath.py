"""What a command changed outside itself: files that the host may run later, out-of-memory kills, listening ports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from belljar.runs_later.watch import Watch
from belljar.sandbox.cgroup import oom_kills
from belljar.sandbox.listening import Listening
from belljar.workspace.beneath import Folder

if TYPE_CHECKING:
    from belljar.sandbox.sandbox import Sandbox
    from belljar.session.files import Files


class Aftermath:
    def __init__(self, sandbox: Sandbox, run_files: Watch) -> None:
        self._pid = (
            sandbox.launched.pid if sandbox.engine.capabilities.sees_processes else None
        )
        self.run_files = run_files
        """Another object once the workspace was mounted anew; what else is counted here goes on."""
        self._oom_kills = 0
        self._listening = Listening(self._pid) if self._pid is not None else None
        self._known_ports: frozenset[int] = frozenset()

    def new_oom_kills(self) -> int:
        """Processes that were killed for lack of memory since the last call."""
        total = oom_kills(self._pid) if self._pid is not None else 0
        new, self._oom_kills = (
            max(0, total - self._oom_kills),
            max(total, self._oom_kills),
        )
        return new

    def listening(self, without: frozenset[int] = frozenset()) -> frozenset[int]:
        """The ports that programs in the sandbox listen on now."""
        return (
            self._listening.ports() - without
            if self._listening is not None
            else frozenset()
        )

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


def run_files_of(
    sandbox: Sandbox, upper: Path | None = None, copied: Files | None = None
) -> Watch:
    """The files that the host may run, where the sandbox writes them: in the workspace, in the `upper` directory of a
    staged session, or in a workspace that was `copied` into the sandbox."""
    workspace = sandbox.workspace
    repositories = workspace.git_directories()
    if copied is not None:
        from belljar.session.copied_run_files import CopiedRunFiles

        return CopiedRunFiles(workspace.descriptor, repositories, copied)
    if upper is None:
        return Watch(workspace.descriptor, repositories)
    with Folder.at(upper) as folder:
        return Watch(folder.descriptor, repositories, host=workspace.descriptor)

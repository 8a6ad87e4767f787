"""Set-user-id and set-group-id files in a workspace: looked for beside the start of a sandbox.

No call inside can set these bits, and writing clears them, but writing through a shared mapping does not: what runs as
its owner could be replaced from inside. Directories may have the bit (their files inherit the group).
"""

from __future__ import annotations

import os
import stat
import threading

from belljar.errors import ProtectionMissing
from belljar.workspace.beneath import Folder

_TOLD = 3
_BITS = stat.S_ISUID | stat.S_ISGID


class SetIdSearch:
    """Runs in a thread from the beginning; `refuse_found` waits for its end."""

    def __init__(self, workspace: int) -> None:
        self._found: list[str] = []
        self._failure: OSError | None = None
        self._stopped = False
        self._folder = Folder.of(workspace)
        self._thread = threading.Thread(target=self._look, name="belljar-set-id", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        try:
            with self._folder:
                for path, status in self._folder.walk():
                    if stat.S_ISREG(status.st_mode) and status.st_mode & _BITS and status.st_mode & 0o111:
                        self._found.append(path)
                    if self._stopped or len(self._found) >= _TOLD:
                        return
        except OSError as failure:
            self._failure = failure

    def stop(self) -> None:
        self._stopped = True

    def refuse_found(self, workspace: str) -> None:
        self._thread.join()
        if self._found:
            names = ", ".join(os.path.join(workspace, name) for name in self._found)
            raise ProtectionMissing(
                f"workspace: these files run as their owner, and a command could replace them: {names}; "
                "take the bit away (chmod ug-s) or move them elsewhere"
            )
        if self._failure is not None:
            raise ProtectionMissing(
                f"workspace: set-id files cannot be looked for in {workspace}: {self._failure.strerror}"
            ) from self._failure

"""Sandboxes of a runtime with a kernel of its own (gVisor's runsc), which this machine cannot look into.

The host reaches the init as on a machine far away: by running its bridge beside it; whoever talks to the init must know
the sandbox's token. What is in force inside is the runtime's word. The control group is this machine's, so its limits
are read from the kernel all the same.
"""

from __future__ import annotations

import _thread
import hashlib
import json
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from belljar.engines.oci.runtime import environment
from belljar.engines.spec import BRIDGE_USER
from belljar.link.transport import SocketTransport


class Bridged(SocketTransport):
    """The bridge's stdin and stdout."""

    bridged = True

    def __init__(self, connected: socket.socket, process: subprocess.Popen[bytes]) -> None:
        super().__init__(connected)
        self._process = process

    def close(self) -> None:
        super().close()
        _thread.start_new_thread(self._process.wait, ())  # it ends with its input


def write_process(directory: Path, config: Mapping[str, Any], argv: Sequence[str]) -> Path:
    """What to run beside PID 1: with no environment, which anybody inside could read and which holds the token."""
    user = {"uid": BRIDGE_USER.uid, "gid": BRIDGE_USER.gid}
    described = {**config["process"], "user": user, "args": list(argv), "env": [], "cwd": "/"}
    target = directory / "bridge.json"
    target.write_text(json.dumps(described))
    return target


def bridge(command: Sequence[str]) -> Bridged:
    """A socket, not two pipes: those could be opened anew by anybody inside, by /proc/PID/fd."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            command, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.DEVNULL, env=environment()
        )
    return Bridged(ours, process)


def install_init(binary: Path, state: Path) -> str:
    """A directory that holds the init; whole or not at all, also when two make it at once."""
    content = binary.read_bytes()
    target = state / f"init-{hashlib.sha256(content).hexdigest()[:16]}"
    if not target.is_dir():
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        import tempfile  # once for each version

        with tempfile.TemporaryDirectory(dir=state, prefix=".new-") as made:
            os.chmod(made, 0o755)
            (Path(made) / "init").write_bytes(content)
            (Path(made) / "init").chmod(0o555)
            with suppress(FileExistsError):
                os.rename(made, target)
                os.mkdir(made)
    return str(target)

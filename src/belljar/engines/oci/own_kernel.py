"""Sandboxes of a runtime with its own kernel (gVisor's runsc), which this machine cannot look into.

The host reaches the init as on a remote machine: it runs a bridge inside and shows the token. What is in force inside
is only reported by the runtime. But the control group is this machine's, so its limits are read from the kernel.
"""

from __future__ import annotations

import _thread
import hashlib
import json
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from belljar.engines.oci.runtime import environment
from belljar.engines.spec import BRIDGE_USER
from belljar.link.transport import SocketTransport
from belljar.resources import new_directory


class Bridged(SocketTransport):
    """The bridge's stdin and stdout."""

    bridged = True

    def __init__(
        self, connected: socket.socket, process: subprocess.Popen[bytes]
    ) -> None:
        super().__init__(connected)
        self._process = process

    def close(self) -> None:
        super().close()
        _thread.start_new_thread(self._process.wait, ())  # it ends when its input ends


def write_process(
    directory: Path, config: Mapping[str, Any], argv: Sequence[str]
) -> Path:
    """Describe the process to run beside PID 1. It gets no environment: that holds the token, and commands could read
    it."""
    user = {"uid": BRIDGE_USER.uid, "gid": BRIDGE_USER.gid}
    described = {
        **config["process"],
        "user": user,
        "args": list(argv),
        "env": [],
        "cwd": "/",
    }
    target = directory / "bridge.json"
    target.write_text(json.dumps(described))
    return target


def bridge(command: Sequence[str]) -> Bridged:
    """Uses a socket: two pipes could be opened by any command inside, through /proc/PID/fd."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            command,
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.DEVNULL,
            env=environment(),
        )
    return Bridged(ours, process)


def install_init(binary: Path, state: Path) -> str:
    """Make a directory that holds the init."""
    content = binary.read_bytes()
    target = state / f"init-{hashlib.sha256(content).hexdigest()[:16]}"
    if not target.is_dir():
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        with new_directory(target) as made:
            made.chmod(0o755)
            (made / "init").write_bytes(content)
            (made / "init").chmod(0o555)
    return str(target)

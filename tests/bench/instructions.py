"""Instructions of our own programs, counted by valgrind: a load on the machine hardly blurs them.

The init runs below valgrind as PID 1 of a container. The client talks to a stand-in for the local server, which would
refuse it too, since valgrind's processes have limits of their own.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
from pathlib import Path

from tests.init.client import Box

from belljar import resources

from .cli import BELLJAR
from .table import Row

VALGRIND = ("/usr/bin/valgrind.bin", "/usr/libexec/valgrind")
COMMANDS = 20
ROUNDS = 3  # on a busy machine PID 1 wakes up more often: the least counts
WRAPPER = """\
#!/bin/sh
exec {} --tool=callgrind --callgrind-out-file=/workspace/counted.%p /real "$@"
"""


def counted(report: Path) -> int:
    found = re.search(r"(?m)^totals: (\d+)", report.read_text())
    assert found is not None
    return int(found[1])


def of_init(commands: int) -> int:
    """What PID 1 of a sandbox executes, from its start to its end."""
    with tempfile.TemporaryDirectory(prefix="bj-bench-", dir="/tmp") as name:
        place = Path(name)
        place.chmod(0o755)
        wrapper = place / "init"
        wrapper.write_text(WRAPPER.format(VALGRIND[0]))
        wrapper.chmod(0o755)
        shown = [f"-v={path}:{path}:ro" for path in VALGRIND]
        shown += [
            f"-v={resources.init_binary()}:/real:ro",
            f"-eVALGRIND_LIB={VALGRIND[1]}",
        ]
        box = Box("belljar/base", wrapper, place, lease=60_000, options=tuple(shown))
        try:
            connection = box.connect()
            for _ in range(commands):
                run = connection.run("true")
                assert run.end is not None
                assert run.end.exit_code == 0
            quietly = {"check": True, "capture_output": True}
            subprocess.run(["docker", "stop", box.name], **quietly)  # type: ignore[call-overload]
        finally:
            box.close()
        return counted(box.workspace / "counted.1")


def of_client() -> int:
    """What `belljar run` executes until it has an answer. Valgrind knows no pidfd_open, which comes next; so it is
    refused, and without belljar-python beside it that is the end."""
    with tempfile.TemporaryDirectory(prefix="bj-bench-") as name:
        place, report = Path(name, "local"), Path(name, "counted")
        place.mkdir(mode=0o700)
        client = shutil.copy(BELLJAR, name)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(place / "socket"))
        listener.listen()
        refusing = threading.Thread(target=_refuse, args=[listener])
        refusing.start()
        ran = subprocess.run(
            [VALGRIND[0], "--tool=callgrind", f"--callgrind-out-file={report}", client, "run", "--", "true"],
            env={"PATH": os.defpath, "BELLJAR_RUN": name, "VALGRIND_LIB": VALGRIND[1]},
            stdin=subprocess.DEVNULL, capture_output=True,
        )  # fmt: skip
        refusing.join()
        listener.close()
        assert ran.returncode == 125, ran.stderr
        return counted(report)


def _refuse(listener: socket.socket) -> None:
    with listener.accept()[0] as connection:
        size = int(connection.recv(8, socket.MSG_WAITALL), 16)
        connection.recv(size, socket.MSG_WAITALL)
        connection.sendall(b"refused it is only a measurement\n")


async def rows(workspace: Path) -> list[Row]:
    if not all(map(os.path.exists, VALGRIND)) or not shutil.which("docker"):
        return [Row("not counted: valgrind or docker is missing", "", "", "", "")]
    start = of_init(0)
    command = (min(of_init(COMMANDS) for _ in range(ROUNDS)) - start) / COMMANDS
    return [
        Row("init: start and end", f"{start:,}", "", "", "<= 40,000", start <= 40_000),
        Row("init: a command, in PID 1", f"{command:,.0f}", "", "", "<= 90,000", command <= 90_000),
        Row("client: a command line sent and answered", f"{(client := of_client()):,}", "", "", "<= 50,000", client <= 50_000),
    ]  # fmt: skip

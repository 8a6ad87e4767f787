"""The server on stdin and stdout."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path


def test_a_signal_at_the_start_of_reading_ends_the_server(workspace: Path) -> None:
    program = (
        "import os, signal, sys; from mcp.server import stdio; from belljar.surfaces.cli.main import main\n"
        "begin = stdio.stdio_server\n"
        "def interrupted(): os.kill(os.getpid(), signal.SIGINT); return begin()\n"
        "stdio.stdio_server = interrupted; sys.exit(main())"
    )
    command = [sys.executable, "-c", program, "mcp", "--workspace", str(workspace)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            assert process.wait(60) == 128 + signal.SIGINT
        finally:
            process.kill()

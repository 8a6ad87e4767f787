"""`make bench`: measures every claim about speed and memory against a baseline of the same run."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import tempfile
from pathlib import Path

import anyio

from .table import show

PARTS = {
    "core": "A command in a running sandbox",
    "judging": "The policy's verdict",
    "shells": "Persistent and background shells",
    "cli": "The command line",
    "throwaways": "Fresh sandboxes, and many of them",
    "files": "Files and ports of a sandbox",
    "door": "The network door",
    "hostile": "Beside a sandbox that attacks",
    "oci": "The engine without a daemon",
    "staged": "Staged workspaces",
    "instructions": "Instructions of the init and the client",
    "service": "The service, beside direct use",
    "adapters": "A tool call of each agent framework",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", choices=[*PARTS, []], help="which parts (default: all)"
    )
    wanted = parser.parse_args().parts or list(PARTS)
    print(
        f"{platform.platform()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; p50 unless said otherwise"
    )
    with tempfile.TemporaryDirectory(prefix="belljar-bench-") as directory:
        os.chown(directory, 1000, 1000) if os.geteuid() == 0 else None
        for part in wanted:
            module = importlib.import_module(f"tests.bench.{part}")
            show(PARTS[part], anyio.run(module.rows, Path(directory)))


if __name__ == "__main__":
    main()

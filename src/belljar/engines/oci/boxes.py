"""The records of this engine's sandboxes. There is no daemon, so each sandbox has a directory:

    <state>/oci/boxes/<name>/
        box.json       labels, image, runtime, and the boot it belongs to
        config.json    the runtime's configuration
        process.json   PID 1 and its start time, once it has started
        runtime.log    the runtime's log
    <state>/oci/runtime/    the runtime's own state (`runc --root`)

Pid and start time identify a process within one boot. A sandbox of an earlier boot is dead.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from belljar.engines.kernel_facts import start_time
from belljar.errors import EngineError
from belljar.patterns import lazy_pattern
from belljar.records import record
from belljar.resources import new_directory, read_json, write_whole

UNFINISHED_SECONDS = 60  # writing two small files takes less
_NAME = lazy_pattern(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}")


@record
class Process:
    pid: int
    started: int
    """In ticks since boot."""

    @property
    def alive(self) -> bool:
        return start_time(self.pid) == self.started


@record
class Box:
    name: str
    image: str
    runtime: str
    created: int
    boot: str
    labels: Mapping[str, str] = field(default_factory=dict)
    cgroup: str = ""


class Boxes:
    def __init__(self, state: Path) -> None:
        self.root = state / "boxes"

    def path(self, name: str) -> Path:
        if not is_name(name):
            raise EngineError(f"{name!r} is not the name of a sandbox")
        return self.root / name

    def add(self, box: Box, config: Mapping[str, Any]) -> None:
        """Add it completely or not at all; an existing one is left as it is."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with new_directory(self.path(box.name)) as made:
            (made / "box.json").write_text(json.dumps(asdict(box)))
            (made / "config.json").write_text(json.dumps(config))

    def read(self, name: str) -> Box | None:
        facts = read_json(self.path(name) / "box.json")
        return Box(**facts) if facts else None

    def config(self, name: str) -> dict[str, Any]:
        config = read_json(self.path(name) / "config.json")
        if config is None:
            raise EngineError(f"no sandbox {name}")
        return config

    def process(self, name: str) -> Process | None:
        facts = read_json(self.path(name) / "process.json")
        return Process(**facts) if facts else None

    def started(self, name: str, process: Process) -> None:
        write_whole(self.path(name) / "process.json", json.dumps(asdict(process)))

    def names(self) -> list[str]:
        try:
            return sorted(
                entry.name for entry in os.scandir(self.root) if is_name(entry.name)
            )
        except OSError:
            return []

    def sweep(self) -> None:
        """Remove directories whose maker was killed before it finished."""
        for path in self.root.glob(".new-*"):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > UNFINISHED_SECONDS:
                    shutil.rmtree(path, ignore_errors=True)

    def remove(self, name: str) -> None:
        shutil.rmtree(self.path(name), ignore_errors=True)


def is_name(text: str) -> bool:
    """Whether this is the name of a sandbox; other files in the directory are not ours."""
    return _NAME.fullmatch(text) is not None

"""Runs as root of an ordinary user's namespace (callers.py): mounts what a sandbox needs, then becomes its runtime.

    argv: <sys.path> <where to mount> <the runtime's command …>

The Root is in root.json in the current directory. Errors go to runtime.log, like the runtime's own.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from belljar.engines.oci import rootfs
from belljar.engines.oci.runtime import LOG, ROOT
from belljar.engines.spec import IdMap


def root(facts: dict[str, Any]) -> rootfs.Root:
    maps = {
        name: tuple(IdMap(**each) for each in facts[name])
        for name in ("uid_map", "gid_map")
    }
    staged = facts["staged"] and rootfs.Overlay(**facts["staged"])
    return rootfs.Root(
        **{**facts, **maps, "staged": staged, "user": tuple(facts["user"])}
    )


def main(at: str, *command: str) -> None:
    try:
        rootfs.leave_mounts()
        rootfs.assemble(root(json.loads(Path(ROOT).read_text())), at)
        os.execv(command[0], command)
    except OSError as error:
        Path(LOG).write_text(f"the root file system cannot be mounted: {error}")
        sys.exit(1)


main(*sys.argv[2:])

"""Checks what this machine and its engine can do for a sandbox, and says how to fix what they cannot.

Most checks read the kernel's files and the engine's description of itself. Two are real trials: an idmapped mount, and
a sandbox that is launched, verified against the kernel and removed.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter

import anyio
from anyio import to_thread

from belljar import host as hosts
from belljar.doctor import engine_items, image_items, machine_items, room
from belljar.doctor.check import Check
from belljar.engines.base import Engine
from belljar.errors import BelljarError
from belljar.host import Host
from belljar.options import SandboxOptions
from belljar.sandbox.sandbox import Sandbox
from belljar.sandbox.verification import Witnesses

__all__ = ["Check", "examine"]

NEEDED_FOR_A_SANDBOX = ("init", "image base", machine_items.RUN_DIRECTORY)


def examine(
    engine: Engine | None = None, workspace: str = ".", host: Host | None = None
) -> list[Check]:
    """All checks, in the order in which a person would fix them. Blocking."""
    host = host or hosts.default()
    try:
        machine = machine_items.checks(host.run_root, workspace)
    except BelljarError as error:
        return [
            Check(
                machine_items.RUN_DIRECTORY,
                False,
                str(error),
                machine_items.OTHER_RUN_DIRECTORY,
            )
        ]
    machine[1:1] = [
        machine_items.state_directory(host),
        *machine_items.trail_places(host),
    ]
    try:
        engine = engine or host.connect()
        about = engine.describe()
    except BelljarError as error:
        return [*engine_items.unavailable(error, host.engine_name), *machine]
    if (
        engine.capabilities.own_kernel
    ):  # what this machine's has is of no use inside; "does without" tells
        machine = [each for each in machine if each.name != machine_items.LANDLOCK]
    checks = [
        *engine_items.checks(engine, about),
        *machine,
        *image_items.checks(engine),
    ]
    checks.append(machine_items.disk(host.run_root, about.data_root))
    checks.append(machine_items.scratch_volume(engine.capabilities.binds))
    if engine.capabilities.sees_processes:  # else they are on another machine
        own_ids = os.geteuid() == 0
        checks.append(room.check(about, own_ids=own_ids))
    if all(check.ok for check in checks if check.name in NEEDED_FOR_A_SANDBOX):
        checks.append(_probe(host))
    return checks


def _probe(host: Host) -> Check:
    """Launch a sandbox as every command gets it. A launch verifies each protection against the kernel."""
    name = "a real sandbox"
    with tempfile.TemporaryDirectory(prefix="belljar-doctor-") as workspace:
        try:
            witnesses = anyio.run(_launch_and_destroy, workspace, host)
        except BelljarError as error:
            return Check(name, False, str(error), engine_items.remedy(error))
    shown = Counter(word.replace(", ", " and the ") for word in witnesses.values())
    by = ", ".join(f"{count} by the {word}" for word, count in shown.most_common())
    detail = "launched; user, capabilities, seccomp, limits, network and root file system verified"
    return Check(name, True, f"{detail} (protections shown: {by})")


async def _launch_and_destroy(workspace: str, host: Host) -> Witnesses:
    can = (await to_thread.run_sync(host.connect)).capabilities
    options = SandboxOptions(workspace, changes="direct" if can.workspace else "staged")
    sandbox = await Sandbox.launch(options, host)
    await sandbox.destroy()
    return sandbox.witnesses

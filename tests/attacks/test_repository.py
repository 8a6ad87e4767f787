"""Files in a hostile repository cannot configure Belljar."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.surfaces.invoking import belljar

from belljar import Session, resources
from belljar.errors import ProtectionMissing

NAMES = (
    "default",
    "default.toml",
    "policies/default.toml",
    "belljar.toml",
    ".belljar.toml",
    ".belljar/policy.toml",
)


@pytest.fixture
def prepared(workspace: Path) -> Path:
    """A workspace with a permissive policy in every place where Belljar might look for one."""
    lax = (resources.directory("policies") / "permissive.toml").read_text()
    for name in NAMES:
        path = workspace / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(lax)
    (workspace / ".env").write_text("BELLJAR_AUDIT=off\nBELLJAR_UIDS=0-0\n")
    return workspace


def test_no_policy_or_setting_is_read_from_the_workspace(
    prepared: Path, base_image: str
) -> None:
    command = "touch ran; sudo ls"  # `default` asks, which is a denial here; `permissive` allows it
    verdicts = [
        belljar("check", "--json", "--policy", name, command).json["decision"]
        for name in ("permissive", "default")
    ]
    assert verdicts == ["allow", "ask"]
    assert belljar("check", "--json", command, cwd=prepared).json["decision"] == "ask"
    answer = belljar("run", "--workspace", prepared, command, cwd=prepared)
    assert answer.status == 126
    assert not (prepared / "ran").exists()


@pytest.mark.parametrize("path", [".:/nowhere", "/nowhere:"])
def test_no_program_of_the_workspace_is_run_on_the_host(
    prepared: Path, path: str
) -> None:
    """PATH leads to the workspace if it has a dot or an empty entry."""
    program = prepared / "runc"
    program.write_text(f"#!/bin/sh\ntouch {prepared}/ran; echo runc version 9\n")
    program.chmod(0o755)
    said = belljar("doctor", cwd=prepared, env={"PATH": path, "BELLJAR_ENGINE": "oci"})
    assert "runc version 9" not in said.stdout + said.stderr
    assert not (prepared / "ran").exists()


async def test_a_kept_session_whose_workspace_was_swapped_is_not_entered(
    base_image: str, workspace: Path
) -> None:
    """The path now leads to another directory than the one that is mounted in the sandbox."""
    async with Session(workspace, keep=True, lease=60) as box:
        kept = box.id
    moved = workspace.rename(workspace.with_name("moved"))
    workspace.mkdir()
    try:
        with pytest.raises(ProtectionMissing, match="workspace"):
            await Session.attach(kept)
    finally:
        workspace.rmdir()
        moved.rename(workspace)
        await (await Session.attach(kept)).stop()

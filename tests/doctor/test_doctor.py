"""The whole doctor: what it really tries, and in which order."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from belljar import doctor
from belljar.doctor import Check, examine
from belljar.engines.docker.engine import DockerEngine
from belljar.errors import ProtectionMissing
from belljar.host import Host


def failing(checks: list[Check]) -> set[str]:
    return {check.name for check in checks if not check.ok}


def test_this_machine_passes_with_a_real_sandbox(
    engine: DockerEngine, base_image: str, workspace: Path
) -> None:
    checks = examine(engine, str(workspace))
    assert failing(checks) == set(), [check for check in checks if not check.ok]
    assert checks[-1].name == "a real sandbox"
    assert len({check.name for check in checks}) == len(checks)


def test_an_engine_that_does_not_answer_is_the_first_item(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    checks = examine(workspace=str(tmp_path), host=Host())
    assert checks[0].name == "engine"
    assert not checks[0].ok
    assert "Docker" in checks[0].fix
    assert "run directory" in {check.name for check in checks}, (
        "the machine is looked at all the same"
    )


def test_a_sandbox_that_cannot_be_launched_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(workspace: str, host: Host) -> None:
        raise ProtectionMissing("not in force: memory limit")

    monkeypatch.setattr(doctor, "_launch_and_destroy", refuse)
    check = doctor._probe(Host())
    assert (check.ok, check.detail) == (False, "not in force: memory limit")
    assert "which limits" in check.fix


@pytest.mark.root
def test_a_workspace_and_mounts_that_cannot_be_used_are_named_with_their_remedies(
    base_image: str,
) -> None:
    """For real: a file system without id-mapped mounts, in a mount namespace that the engine cannot see."""
    examined = f"cd /mnt && mount -t ramfs ramfs . && cd /mnt && exec {sys.executable} -m belljar doctor --json"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", examined], capture_output=True, text=True
    )
    assert done.returncode == 1
    found = {
        check["name"]: check["fix"]
        for check in json.loads(done.stdout)
        if not check["ok"]
    }
    assert "ext4" in found.pop("workspace ownership")
    assert "PrivateMounts" in found.pop("a real sandbox")
    assert not found


@pytest.mark.root
@pytest.mark.docker
@pytest.mark.parametrize(
    "scratch",
    [[], ["--tmp", "64m", "--home", "64m"]],
    ids=["a volume", "the workspace alone"],
)
def test_a_run_whose_mounts_the_engine_does_not_see_says_why(
    scratch: list[str], base_image: str, workspace: Path
) -> None:
    program = [
        sys.executable,
        "-m",
        "belljar",
        "run",
        "--workspace",
        str(workspace),
        *scratch,
        "true",
    ]
    done = subprocess.run(
        ["unshare", "--mount", *program], capture_output=True, text=True
    )
    assert done.returncode == 125
    assert "PrivateMounts" in done.stderr

"""Machines and engines in a bad state: what `belljar doctor` reports, with which remedy and exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.fake_engine import FakeEngine, json_of, real_answer, reply
from tests.ordinary_user import OrdinaryUser

DOCTOR = [sys.executable, "-m", "belljar", "doctor", "--json"]
NOBODY = 65534


def changed(at: str, **fields: Any) -> Callable[[bytes], bytes]:
    """The real engine's answers, with changed fields at one path."""

    def answer(request: bytes) -> bytes:
        path = request.split(b" ", 2)[1].decode()
        found = real_answer(request)
        return reply(200, {**json_of(found), **fields}) if path == at else found

    return answer


def without_images(request: bytes) -> bytes:
    path = request.split(b" ", 2)[1]
    if b"/distribution/" in path:
        return reply(500, {"message": "dial tcp: lookup registry: no such host"})
    gone = b"/images/" in path and path.endswith(b"/json")
    return reply(404, {"message": "no such image"}) if gone else real_answer(request)


def with_options(*names: str, **fields: Any) -> Callable[[bytes], bytes]:
    return changed(
        "/info", SecurityOptions=[f"name={name}" for name in names], **fields
    )


# name: (the engine's answers, the item with a problem, words of its remedy, whether the doctor fails)
PROVOKED: dict[str, tuple[Callable[[bytes], bytes], str, str, bool]] = {
    "an old engine": (changed("/version", ApiVersion="1.40"), "engine", "update the engine", True),
    "no seccomp": (with_options("cgroupns"), "seccomp", "CONFIG_SECCOMP_FILTER", True),
    "no delegation": (
        with_options("seccomp", "rootless", CgroupVersion="2", CpuCfsQuota=False), "cpu limit", "Delegate=", True,
    ),
    "rootless on v1": (
        with_options("seccomp", "rootless", CgroupVersion="1", MemoryLimit=False), "memory limit", "cgroup v2", True,
    ),
    "remapped users": (with_options("seccomp", "userns"), "users", "userns-remap", True),
    "selinux": (with_options("seccomp", "selinux"), "apparmor or selinux", "BELLJAR_SELINUX", False),
    "no registry": (without_images, "image sources", "mmdebstrap", True),
    "no image": (without_images, "image base", "belljar images build base", True),
}  # fmt: skip


@pytest.fixture
def faked() -> Iterator[Callable[[Callable[[bytes], bytes]], dict[str, str]]]:
    with ExitStack() as stack:

        def make(answer: Callable[[bytes], bytes]) -> dict[str, str]:
            fake = FakeEngine(answer)
            stack.callback(fake.close)
            return {**os.environ, "DOCKER_HOST": f"unix://{fake.path}"}

        yield make


@pytest.mark.docker
@pytest.mark.parametrize("what", PROVOKED)
def test_a_protection_that_an_engine_lacks_is_named_with_its_remedy(
    what: str,
    base_image: str,
    tmp_path: Path,
    faked: Callable[[Callable[[bytes], bytes]], dict[str, str]],
) -> None:
    answer, item, remedy, fails = PROVOKED[what]
    environment = faked(answer)
    if what == "no registry":
        environment["PATH"] = str(tmp_path)  # a PATH without mmdebstrap
    done = subprocess.run(
        DOCTOR, env=environment, capture_output=True, text=True, cwd=tmp_path
    )
    found = {each["name"]: each for each in json.loads(done.stdout)}
    assert (done.returncode, found[item]["ok"]) == (
        (1, False) if fails else (0, True)
    ), done.stdout
    assert remedy in found[item]["fix"]


@pytest.mark.docker
@pytest.mark.root
def test_a_forbidden_socket_is_named_with_its_group(tmp_path: Path) -> None:
    """For real: the engine's own socket, and a user who is not in its group."""
    os.chown(tmp_path, NOBODY, NOBODY)
    done = OrdinaryUser(NOBODY, tmp_path).run(
        *DOCTOR, env={"BELLJAR_ENGINE": "docker"}, check=False
    )
    first = json.loads(done.stdout)[0]
    assert (done.returncode, first["name"], first["ok"]) == (1, "engine", False)
    assert "you may not use" in first["detail"]
    assert "usermod -aG docker" in first["fix"]


@pytest.mark.engine
@pytest.mark.root
def test_a_disk_that_is_full_is_named_with_its_place(tmp_path: Path) -> None:
    """For real: a run directory of one megabyte."""
    examined = f"mount -t tmpfs -o size=1m,mode=700 tmpfs {tmp_path} && cd / && BELLJAR_RUN={tmp_path} exec {' '.join(DOCTOR)}"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", examined], capture_output=True, text=True
    )
    found = {each["name"]: each for each in json.loads(done.stdout)}
    assert (done.returncode, found["disk space"]["ok"]) == (1, False)
    assert str(tmp_path) in found["disk space"]["detail"]
    assert "BELLJAR_RUN" in found["disk space"]["fix"]


@pytest.mark.docker
def test_the_report_for_people_has_the_remedy_below_its_item(
    base_image: str, faked: Callable[[Callable[[bytes], bytes]], dict[str, str]]
) -> None:
    environment = faked(changed("/version", ApiVersion="1.40"))
    done = subprocess.run(DOCTOR[:-1], env=environment, capture_output=True, text=True)
    failed, remedy = done.stdout.splitlines()[:2]
    assert done.returncode == 1
    assert failed.startswith("FAIL  engine: ")
    assert "1.40" in failed
    assert remedy.startswith("      → update the engine")

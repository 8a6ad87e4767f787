"""A spec, translated into Podman's options."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from belljar.engines.docker.create_body import create_body
from belljar.engines.podman.dialect import PodmanDialect, _stacked_profiles
from belljar.engines.seccomp import profile_text
from belljar.engines.spec import IdMap, Mount, SandboxSpec, User


def test_podman_gets_the_profile_as_a_file_and_the_masks_as_an_option(
    spec: SandboxSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    podman = PodmanDialect()
    options = create_body(spec, podman)["HostConfig"]["SecurityOpt"]
    path = next(
        each.removeprefix("seccomp=") for each in options if each.startswith("seccomp=")
    )
    assert Path(path).read_text() == profile_text("default")
    assert podman.profile_name(path, "x86_64") == "default"
    assert podman.profile_name("/etc/other.json", "x86_64") == "another profile"
    assert f"mask={':'.join(spec.masked_paths)}" in options


def test_podman_works_with_a_read_only_home(
    spec: SandboxSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/1/cache")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = Path(PodmanDialect().seccomp(spec))
    assert path.read_text() == profile_text("default")
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_podman_gets_only_the_tmpfs_options_it_knows_and_keeps_the_caller_s_id(
    spec: SandboxSpec,
) -> None:
    podman = PodmanDialect()
    words = podman.tmpfs_options(
        Mount("tmpfs", "/h", size=5, inodes=9, mode=0o700, owner=(1, 1))
    ).split(",")
    assert {word.partition("=")[0] for word in words} == {
        "rw",
        "exec",
        "nosuid",
        "nodev",
        "size",
        "mode",
    }
    mapped = dataclasses.replace(
        spec, user=User(1001, 1001, (IdMap(1001, 1001),), (IdMap(1001, 1001),))
    )
    assert create_body(mapped, podman)["HostConfig"]["UsernsMode"] == "keep-id"
    assert create_body(spec, podman)["HostConfig"]["UsernsMode"] == ""


def test_podman_s_apparmor_profile_is_left_out_where_it_would_be_stacked(
    tmp_path: Path,
) -> None:
    profiles = tmp_path / "profiles"
    assert not _stacked_profiles(str(profiles))
    profiles.write_text("containers-default-0.62.2 (enforce)\nrunc (unconfined)\n")
    assert not _stacked_profiles(str(profiles))
    profiles.write_text("containers-default-0.62.2 (enforce)\ncrun (unconfined)\n")
    assert _stacked_profiles(str(profiles))

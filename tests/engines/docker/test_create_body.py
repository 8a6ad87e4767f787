"""A spec in Docker's words, and in Podman's."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from belljar.engines.docker.claims import claims
from belljar.engines.docker.create_body import create_body
from belljar.engines.docker.dialect import Dialect
from belljar.engines.podman.dialect import PodmanDialect, _stacked_profiles
from belljar.engines.seccomp import profile_text
from belljar.engines.spec import IdMap, Image, Mount, Protections, SandboxSpec, User
from belljar.limits import Limits
from belljar.sandbox.spec import LinkPlan, build_spec
from belljar.workspace.pinned import Workspace

LIMITS = Limits(memory="512m", cpus=1.5, pids=256, fsize="1g", tmp="128m", home="64m", shm="64m")


@pytest.fixture
def spec(workspace: Path) -> SandboxSpec:
    link = LinkPlan("socket", "/r/init", "/r/link", "/r/hosts", "/r/hostname")
    with Workspace.open(workspace) as pinned:
        return build_spec(image="img", workspace=pinned, limits=LIMITS, link=link, lease_seconds=30)


@pytest.fixture
def config(spec: SandboxSpec) -> dict[str, Any]:
    found: dict[str, Any] = create_body(spec)["HostConfig"]
    return found


@pytest.mark.parametrize(
    ("item", "value"),
    [
        ("NetworkMode", "none"),
        ("ReadonlyRootfs", True),
        ("Privileged", False),
        ("CapDrop", ["ALL"]),
        ("CapAdd", []),
        ("IpcMode", "private"),
        ("CgroupnsMode", "private"),
        ("Memory", 512 << 20),
        ("MemorySwap", 512 << 20),
        ("NanoCpus", 1_500_000_000),
        ("PidsLimit", 256),
        ("OomScoreAdj", 500),
        ("AutoRemove", True),
        ("Dns", ["127.0.0.1"]),
        ("LogConfig", {"Type": "none", "Config": {}}),
        ("RestartPolicy", {"Name": "no"}),
    ],
)
def test_the_protections_are_asked_for_in_docker_s_words(config: dict[str, Any], item: str, value: Any) -> None:
    assert config[item] == value


def test_the_seccomp_profile_and_no_new_privileges_are_asked_for(config: dict[str, Any]) -> None:
    first, second = config["SecurityOpt"]
    assert first == "no-new-privileges"
    assert json.loads(second.removeprefix("seccomp="))["defaultAction"] == "SCMP_ACT_ERRNO"


def test_a_label_for_selinux_and_a_runtime_are_passed_on(spec: SandboxSpec) -> None:
    config = create_body(dataclasses.replace(spec, security_label="type:x_t", runtime="runsc"))["HostConfig"]
    assert "label=type:x_t" in config["SecurityOpt"]
    assert config["Runtime"] == "runsc"


def test_hard_limits_equal_soft_limits(config: dict[str, Any]) -> None:
    found = {item["Name"]: (item["Soft"], item["Hard"]) for item in config["Ulimits"]}
    assert found["core"] == (0, 0)
    assert all(soft == hard for soft, hard in found.values())


def test_every_bind_is_private_and_not_recursive(config: dict[str, Any]) -> None:
    binds = [mount for mount in config["Mounts"] if mount["Type"] == "bind"]
    assert binds
    assert all(each["BindOptions"] == {"Propagation": "rprivate", "NonRecursive": True} for each in binds)
    assert "Binds" not in config


def test_memory_file_systems_have_sizes_owners_and_few_files(config: dict[str, Any], spec: SandboxSpec) -> None:
    home = config["Tmpfs"]["/home/sandbox"].split(",")
    assert {"nosuid", "nodev", "exec", f"size={64 << 20}", f"uid={spec.user.uid}", "mode=700"} <= set(home)
    assert any(word.startswith("nr_inodes=") for word in home)
    assert "noexec" in config["Tmpfs"]["/dev/shm"].split(",")


def test_variables_of_the_image_that_were_dropped_are_named_bare(spec: SandboxSpec) -> None:
    body = create_body(dataclasses.replace(spec, image=Image("i", ("LD_PRELOAD=x", "HOME=/root"))))
    assert "LD_PRELOAD" in body["Env"]
    assert "HOME=/home/sandbox" in body["Env"]
    assert "HOME" not in body["Env"]


def test_the_network_s_set_up_is_skipped_where_the_hosts_file_is_brought(spec: SandboxSpec) -> None:
    assert create_body(spec)["NetworkDisabled"]
    assert not create_body(dataclasses.replace(spec, brings_hosts=False))["NetworkDisabled"]


def test_an_overlay_is_an_unnamed_volume_of_the_local_driver(spec: SandboxSpec) -> None:
    overlay = Mount("overlay", "/workspace", "/w", read_only=False, upper="/u", work="/k")
    [found] = create_body(dataclasses.replace(spec, mounts=(overlay,)))["HostConfig"]["Mounts"]
    options = found["VolumeOptions"]["DriverConfig"]["Options"]
    assert options["o"] == "lowerdir=/w,upperdir=/u,workdir=/k,userxattr"
    assert "Source" not in found


def inspected(spec: SandboxSpec, dialect: Dialect) -> dict[str, Any]:
    body = create_body(spec, dialect)
    return {"HostConfig": body["HostConfig"], "Config": {"User": body["User"]}}


def test_what_was_asked_is_claimed_in_the_same_neutral_words(spec: SandboxSpec) -> None:
    assert claims(inspected(spec, Dialect()), Dialect(), "x86_64") == spec.protections


def test_an_empty_document_claims_nothing() -> None:
    found = claims({}, Dialect(), "x86_64")
    assert found == Protections(user="", no_new_privileges=False, own_namespaces=frozenset())


@pytest.mark.parametrize(
    ("item", "value", "field"),
    [
        ("Memory", 0, "memory"),
        ("MemorySwap", -1, "swap"),
        ("PidsLimit", None, "pids"),
        ("NanoCpus", 0, "cpus"),
        ("ReadonlyRootfs", False, "read_only_root"),
        ("CapDrop", None, "capabilities"),
        ("CapAdd", ["SYS_ADMIN"], "capabilities"),
        ("SecurityOpt", ["no-new-privileges", "seccomp=unconfined"], "seccomp"),
        ("SecurityOpt", ["no-new-privileges"], "seccomp"),
        ("NetworkMode", "host", "network"),
        ("PidMode", "host", "own_namespaces"),
        ("IpcMode", "shareable", "own_namespaces"),
        ("CgroupnsMode", "host", "own_namespaces"),
        ("Binds", ["/:/host"], "extras"),
        ("Devices", [{"PathOnHost": "/dev/mem"}], "extras"),
        ("Privileged", True, "extras"),
        ("MaskedPaths", [], "masked_paths"),
        ("Ulimits", None, "ulimits"),
        ("AutoRemove", False, "removes_itself"),
    ],
)
def test_each_difference_shows_in_its_field(spec: SandboxSpec, item: str, value: Any, field: str) -> None:
    document = inspected(spec, Dialect())
    document["HostConfig"] = {**document["HostConfig"], item: value}
    found = claims(document, Dialect(), "x86_64")
    assert getattr(found, field) != getattr(spec.protections, field)


def test_podman_gets_the_profile_as_a_file_and_the_masks_as_an_option(
    spec: SandboxSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    podman = PodmanDialect()
    options = create_body(spec, podman)["HostConfig"]["SecurityOpt"]
    path = next(each.removeprefix("seccomp=") for each in options if each.startswith("seccomp="))
    assert Path(path).read_text() == profile_text("default")
    assert podman.profile_name(path, "x86_64") == "default"
    assert podman.profile_name("/etc/other.json", "x86_64") == "another profile"
    assert f"mask={':'.join(spec.masked_paths)}" in options


def test_podman_gets_only_the_tmpfs_options_it_knows_and_keeps_the_caller_s_id(spec: SandboxSpec) -> None:
    podman = PodmanDialect()
    words = podman.tmpfs_options(Mount("tmpfs", "/h", size=5, inodes=9, mode=0o700, owner=(1, 1))).split(",")
    assert {word.partition("=")[0] for word in words} == {"rw", "exec", "nosuid", "nodev", "size", "mode"}
    mapped = dataclasses.replace(spec, user=User(1001, 1001, (IdMap(1001, 1001),), (IdMap(1001, 1001),)))
    assert create_body(mapped, podman)["HostConfig"]["UsernsMode"] == "keep-id"
    assert create_body(spec, podman)["HostConfig"]["UsernsMode"] == ""


def test_podman_s_apparmor_profile_is_left_out_where_it_would_be_stacked(tmp_path: Path) -> None:
    profiles = tmp_path / "profiles"
    assert not _stacked_profiles(str(profiles))
    profiles.write_text("containers-default-0.62.2 (enforce)\nrunc (unconfined)\n")
    assert not _stacked_profiles(str(profiles))
    profiles.write_text("containers-default-0.62.2 (enforce)\ncrun (unconfined)\n")
    assert _stacked_profiles(str(profiles))

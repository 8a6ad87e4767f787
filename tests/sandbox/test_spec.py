"""The spec of every sandbox, without an engine."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from belljar.engines.spec import Image, Mount, SandboxSpec, User
from belljar.errors import UsageError
from belljar.limits import Limits
from belljar.sandbox.spec import MASKED_PATHS, LinkPlan, build_spec
from belljar.workspace.pinned import Workspace

SOCKET = LinkPlan(
    "socket",
    "/run/b/init-1/init",
    "/run/b/bj-1/link",
    "/run/b/init-1/hosts",
    "/run/b/init-1/hostname",
)
EXEC = LinkPlan("exec", "belljar-init-1", token="5" * 64)


@pytest.fixture
def build(workspace: Path) -> Any:
    pinned = Workspace.open(workspace)

    def make(**changes: Any) -> SandboxSpec:
        given = {
            "image": "img",
            "limits": Limits(),
            "link": SOCKET,
            "lease_seconds": 30,
            **changes,
        }
        return build_spec(workspace=pinned, **given)

    yield make
    pinned.close()


def at(source: str) -> Mount:
    return Mount("bind", "/workspace", source, read_only=False)


def mounts(spec: SandboxSpec) -> dict[str, Mount]:
    return {each.target: each for each in spec.mounts}


def test_the_specs_protections_name_every_field(build: Any) -> None:
    wanted = build().protections
    assert all(
        getattr(wanted, item.name) is not None for item in dataclasses.fields(wanted)
    )
    assert (wanted.capabilities, wanted.no_new_privileges, wanted.read_only_root) == (
        frozenset(),
        True,
        True,
    )
    assert (wanted.network, wanted.seccomp, wanted.swap) == ("none", "default", 0)
    assert wanted.own_namespaces == {"ipc", "pid", "uts", "cgroup"}
    assert ("core", 0) in wanted.ulimits


def test_docker_s_own_masked_paths_are_kept_and_the_kernel_s_command_line_is_among_ours() -> (
    None
):
    docker_s = {
        "/proc/acpi",
        "/proc/kcore",
        "/proc/keys",
        "/proc/latency_stats",
        "/proc/timer_list",
        "/proc/scsi",
    }
    assert docker_s | {
        "/proc/asound",
        "/proc/timer_stats",
        "/proc/sched_debug",
        "/sys/firmware",
    } <= set(MASKED_PATHS)
    assert {"/proc/cmdline", "/proc/key-users"} <= set(MASKED_PATHS)


def test_of_the_host_s_files_only_the_workspace_is_writable(build: Any) -> None:
    binds = [each for each in build().mounts if each.kind != "tmpfs"]
    assert [each.target for each in binds if not each.read_only] == ["/workspace"]


def test_writable_places_in_memory_are_bounded(build: Any) -> None:
    memory = [each for each in build().mounts if each.kind == "tmpfs"]
    assert {each.target for each in memory} == {
        "/tmp",
        "/var/tmp",
        "/run",
        "/home/sandbox",
        "/dev/shm",
    }
    assert all(each.size and each.inodes for each in memory)


def test_the_user_is_the_owner_of_the_workspace(build: Any, workspace: Path) -> None:
    status = workspace.stat()
    assert build().user == User(status.st_uid, status.st_gid)


def test_the_init_dials_a_read_only_directory_with_an_unguessable_name(
    build: Any,
) -> None:
    spec, twin = build(lease_seconds=1.5), build()
    assert spec.argv == (
        f"{spec.private}/init",
        "--dial",
        f"{spec.private}/link",
        "--lease",
        "1500",
    )
    assert mounts(spec)[f"{spec.private}/init"].read_only
    assert mounts(spec)[f"{spec.private}/link"].read_only
    assert spec.private != twin.private
    assert len(spec.private) > 20


def test_a_bridged_init_comes_from_a_read_only_volume_and_knows_its_token(
    build: Any,
) -> None:
    spec = build(link=EXEC)
    assert spec.argv == (f"{spec.private}/init", "--listen", "--lease", "30000")
    assert mounts(spec)[spec.private] == Mount("volume", spec.private, "belljar-init-1")
    assert spec.secrets == {"BELLJAR_TOKEN": EXEC.token}


def test_a_printed_spec_holds_no_token(build: Any) -> None:
    spec = build(link=EXEC)
    assert EXEC.token not in json.dumps(spec.as_dict())
    assert EXEC.token not in repr(spec)


def test_hosts_and_hostname_are_brought_where_the_engine_writes_none(
    build: Any,
) -> None:
    assert build().brings_hosts
    assert {"/etc/hosts", "/etc/hostname"} <= mounts(build()).keys()
    for other in (build(link=EXEC), build(network="full")):
        assert not other.brings_hosts
        assert not {"/etc/hosts", "/etc/hostname"} & mounts(other).keys()


def test_an_image_keeps_its_variables_but_not_home_user_or_preload_hooks(
    build: Any,
) -> None:
    env = (
        "PATH=/opt/node/bin:/bin",
        "HOME=/root",
        "USER=root",
        "LD_PRELOAD=/x.so",
        "BASH_ENV=/x",
        "JAVA_HOME=/jdk",
    )
    given = build(image=Image("img", env)).env
    assert (given["PATH"], given["HOME"], given["USER"]) == (
        "/opt/node/bin:/bin",
        "/home/sandbox",
        "sandbox",
    )
    assert given["JAVA_HOME"] == "/jdk"
    assert not {"LD_PRELOAD", "BASH_ENV"} & given.keys()


def test_an_image_s_volumes_become_memory(build: Any) -> None:
    found = mounts(
        build(
            image=Image(
                "img", volumes=("/data", "/tmp", "/workspace/", "//home/sandbox")
            )
        )
    )
    assert found["/data"].kind == "tmpfs"
    assert found["/workspace"].kind == "bind"


@pytest.mark.parametrize(
    "volume",
    [
        "/workspace/x",
        "/workspace/../workspace/x",
        "/.belljar-1",
        "/",
        "relative",
        "/proc/x",
        "/data/../dev",
        "//workspace//x",
        "//",
        "//proc",
        "///sys/fs",
    ],
)
def test_a_volume_in_a_reserved_place_is_refused(build: Any, volume: str) -> None:
    with pytest.raises(UsageError, match="volume"):
        build(image=Image("img", volumes=(volume,)))


@pytest.mark.parametrize("network", ["off", "None", None, False, "host", ""])
def test_an_unknown_network_is_refused(build: Any, network: Any) -> None:
    with pytest.raises(UsageError, match="network"):
        build(network=network)


def test_an_unknown_seccomp_profile_is_refused(build: Any) -> None:
    with pytest.raises(UsageError, match="seccomp"):
        build(seccomp="unconfined")


def test_the_digest_does_not_depend_on_session_or_run_directory(build: Any) -> None:
    other = LinkPlan("socket", "/e/init", "/e/link", "/e/hosts", "/e/hostname")
    spec = build(
        labels={"org.belljar.session": "1"},
        place=at("/run/belljar/bj-1/workspace"),
    )
    twin = build(
        labels={"org.belljar.session": "2"},
        place=at("/run/belljar/bj-2/workspace"),
        link=other,
    )
    assert spec.digest == twin.digest
    assert spec.all_labels == {
        "org.belljar.session": "1",
        "org.belljar.spec": spec.digest,
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"image": "other"},
        {"limits": Limits(memory="1g")},
        {"limits": Limits(cpus=0.5)},
        {"network": "full"},
        {"seccomp": "debug"},
        {"lease_seconds": 60},
        {"link": EXEC},
        {"user": User(7, 7, root_inside=True)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_the_digest_differs_with_every_option_of_the_sandbox(
    build: Any, changes: dict[str, Any]
) -> None:
    assert build().digest != build(**changes).digest


def test_a_spec_cannot_be_changed(build: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        build().user = User(0, 0)


def test_the_workspace_is_mounted_from_its_staged_place(build: Any) -> None:
    assert (
        mounts(build(place=at("/run/b/bj-1/workspace")))["/workspace"].source
        == "/run/b/bj-1/workspace"
    )

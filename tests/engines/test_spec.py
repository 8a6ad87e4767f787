"""The container's spec, with no engine at hand."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from belljar.engines.spec import MASKED_PATHS, ContainerSpec, Image, LinkPlan, build_spec
from belljar.limits import Limits
from belljar.workspace.pinned import Workspace

SOCKET = LinkPlan("socket", "/run/belljar/init-1/init", "/run/belljar/bj-1/link", hosts="/run/belljar/init-1/hosts")
EXEC = LinkPlan("exec", "belljar-init-1", token="5" * 64)


@pytest.fixture
def build(workspace: Path) -> Any:
    pinned = Workspace.open(workspace)

    def make(**changes: Any) -> ContainerSpec:
        given: dict[str, Any] = {
            "image": "img",
            "limits": Limits(),
            "link": SOCKET,
            "lease_seconds": 30,
            **changes,
        }
        return build_spec(workspace=pinned, **given)

    yield make
    pinned.close()


@pytest.fixture
def host_config(build: Any) -> dict[str, Any]:
    config: dict[str, Any] = build().create_body()["HostConfig"]
    return config


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
        ("NanoCpus", 1_000_000_000),
        ("PidsLimit", 256),
        ("ShmSize", 64 << 20),
        ("OomScoreAdj", 500),
        ("AutoRemove", True),
        ("Dns", ["127.0.0.1"]),
        ("LogConfig", {"Type": "none", "Config": {}}),
        ("RestartPolicy", {"Name": "no"}),
    ],
)
def test_the_defaults_are_those_of_the_design(host_config: dict[str, Any], item: str, value: Any) -> None:
    assert host_config[item] == value


def test_the_seccomp_profile_and_no_new_privileges_are_asked_for(host_config: dict[str, Any]) -> None:
    first, second = host_config["SecurityOpt"]
    assert first == "no-new-privileges:true"
    assert json.loads(second.removeprefix("seccomp="))["defaultAction"] == "SCMP_ACT_ERRNO"


def test_hard_limits_equal_soft_limits(host_config: dict[str, Any]) -> None:
    found = {item["Name"]: (item["Soft"], item["Hard"]) for item in host_config["Ulimits"]}
    expected = {"core": 0, "nofile": 4096, "fsize": 1 << 30, "memlock": 64 << 10}
    assert found == {name: (value, value) for name, value in expected.items()}


def test_docker_s_own_masked_paths_are_kept() -> None:
    docker_s = {
        "/proc/acpi",
        "/proc/kcore",
        "/proc/keys",
        "/proc/latency_stats",
        "/proc/timer_list",
        "/proc/scsi",
    }
    assert docker_s | {"/proc/asound", "/proc/timer_stats", "/proc/sched_debug", "/sys/firmware"} <= set(MASKED_PATHS)


def test_every_bind_is_private_and_not_recursive_and_only_the_workspace_is_writable(
    host_config: dict[str, Any],
) -> None:
    for mount in host_config["Mounts"]:
        assert mount["BindOptions"] == {"Propagation": "rprivate", "NonRecursive": True}
    assert [mount["Target"] for mount in host_config["Mounts"] if not mount["ReadOnly"]] == ["/workspace"]
    assert "Binds" not in host_config


def test_writable_places_in_memory_are_bounded(host_config: dict[str, Any]) -> None:
    assert set(host_config["Tmpfs"]) == {"/tmp", "/var/tmp", "/run", "/home/sandbox", "/dev/shm"}
    for options in host_config["Tmpfs"].values():
        assert {"nosuid", "nodev"} <= set(options.split(","))
        assert "size=" in options
        assert "nr_inodes=" in options
    assert "nr_inodes=65536,size=134217728" in host_config["Tmpfs"]["/tmp"]


def test_the_user_is_the_owner_of_the_workspace(build: Any, workspace: Path) -> None:
    status = workspace.stat()
    assert build().create_body()["User"] == f"{status.st_uid}:{status.st_gid}"


def test_the_init_dials_a_read_only_directory(build: Any) -> None:
    body = build(lease_seconds=1.5).create_body()
    assert body["Entrypoint"] == ["/.belljar/init", "--dial", "/.belljar/link", "--lease", "1500"]
    assert body["Cmd"] == []
    targets = {mount["Target"]: mount["ReadOnly"] for mount in body["HostConfig"]["Mounts"]}
    assert targets["/.belljar/init"]
    assert targets["/.belljar/link"]


def test_a_bridged_init_comes_from_a_read_only_volume_and_knows_its_token(build: Any) -> None:
    body = build(link=EXEC).create_body()
    assert body["Entrypoint"] == ["/.belljar/init", "--listen", "--lease", "30000"]
    volume = {"Type": "volume", "Source": "belljar-init-1", "Target": "/.belljar", "ReadOnly": True}
    assert volume in body["HostConfig"]["Mounts"]
    assert f"BELLJAR_TOKEN={EXEC.token}" in body["Env"]


def test_what_is_printed_holds_no_secret(build: Any) -> None:
    spec = build(link=EXEC)
    assert EXEC.token not in json.dumps(spec.as_dict())
    assert EXEC.token not in repr(spec)
    assert spec.as_dict()["HostConfig"]["SecurityOpt"] == ["no-new-privileges:true", "seccomp=default"]


def test_the_engine_s_network_set_up_is_skipped_only_where_we_bring_the_hosts_file(build: Any) -> None:
    assert build().create_body()["NetworkDisabled"]
    assert not build(link=EXEC).create_body()["NetworkDisabled"]
    assert not build(network="full").create_body()["NetworkDisabled"]


def test_a_network_is_the_default_bridge_with_its_own_names(build: Any) -> None:
    config = build(network="full").create_body()["HostConfig"]
    assert config["NetworkMode"] == "bridge"
    assert "Dns" not in config
    assert all(mount["Target"] != "/etc/hosts" for mount in config["Mounts"])


def test_an_image_keeps_its_path_but_not_who_the_user_is_nor_its_hooks(build: Any) -> None:
    env = (
        "PATH=/opt/node/bin:/bin",
        "HOME=/root",
        "USER=root",
        "LD_PRELOAD=/x.so",
        "BASH_ENV=/x",
        "JAVA_HOME=/jdk",
    )
    asked = build(image=Image("img", env)).create_body()["Env"]
    assert "PATH=/opt/node/bin:/bin" in asked
    assert "HOME=/home/sandbox" in asked
    assert "USER=sandbox" in asked
    assert {"LD_PRELOAD", "BASH_ENV"} <= set(asked), "a bare name makes the engine drop the image's variable"
    assert not any(entry.startswith("JAVA_HOME") for entry in asked), "left as the image has it"


def test_an_image_s_volumes_become_memory(build: Any) -> None:
    mounts = build(image=Image("img", volumes=("/data", "/tmp", "/workspace/"))).create_body()["HostConfig"]["Mounts"]
    assert [mount["Target"] for mount in mounts if mount["Type"] == "tmpfs"] == ["/data"]


def test_an_image_is_described_by_its_inspect_document() -> None:
    document = {"Id": "sha256:1", "Config": {"Env": ["A=1"], "Volumes": {"/b": {}, "/a": {}}}}
    assert Image.from_inspect(document) == Image("sha256:1", ("A=1",), ("/a", "/b"))
    assert Image.from_inspect({"Id": "sha256:2", "Config": None}) == Image("sha256:2")


def test_the_digest_is_the_same_for_whoever_asks(build: Any) -> None:
    other_link = dataclasses.replace(
        SOCKET, init="/elsewhere/init", directory="/run/belljar/bj-2/link", hosts="/e/hosts"
    )
    spec = build(labels={"org.belljar.session": "1"}, source="/run/belljar/bj-1/workspace")
    twin = build(labels={"org.belljar.session": "2"}, source="/run/belljar/bj-2/workspace", link=other_link)
    assert spec.digest == twin.digest
    assert spec.create_body()["Labels"] == {"org.belljar.session": "1", "org.belljar.spec": spec.digest}


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
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_the_digest_differs_with_what_matters(build: Any, changes: dict[str, Any]) -> None:
    assert build().digest != build(**changes).digest


def test_a_spec_cannot_be_changed(build: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        build().user = "0:0"


def test_the_mount_source_is_the_staged_one(build: Any) -> None:
    mounts = build(source="/run/belljar/bj-1/workspace").create_body()["HostConfig"]["Mounts"]
    assert mounts[0]["Source"] == "/run/belljar/bj-1/workspace"

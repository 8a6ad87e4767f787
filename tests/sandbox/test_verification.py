"""Is what was asked for in force? The judgement is pure, so every way to fail can be shown."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from belljar.engines.spec import ContainerSpec, LinkPlan, build_spec
from belljar.errors import ProtectionMissing
from belljar.limits import Limits
from belljar.sandbox.verification import Facts, gather, missing, parse_limits, parse_status, verify
from belljar.workspace.pinned import Workspace

NONE = "0000000000000000"
LIMITS = {
    "Max core file size": "0",
    "Max open files": "4096",
    "Max file size": str(1 << 30),
    "Max locked memory": "65536",
}
V1 = {"memory": str(512 << 20), "swap": str(512 << 20), "pids": "256", "quota": "100000", "period": "100000"}
V2 = {**V1, "swap": "0"}


@pytest.fixture
def spec(workspace: Path) -> ContainerSpec:
    with Workspace.open(workspace) as pinned:
        return build_spec(
            image="img", workspace=pinned, limits=Limits(), link=LinkPlan("socket", "i", "l"), lease_seconds=3
        )


@pytest.fixture
def inspect(spec: ContainerSpec) -> dict[str, Any]:
    body = spec.create_body()
    return {"HostConfig": body["HostConfig"], "Config": {"User": body["User"]}}


@pytest.fixture
def facts(spec: ContainerSpec) -> Facts:
    uid, gid = spec.user.split(":")
    status = {
        "Uid": "\t".join([uid] * 4), "Gid": "\t".join([gid] * 4), "Groups": gid, "CapInh": NONE, "CapPrm": NONE,
        "CapEff": NONE, "CapBnd": NONE, "CapAmb": NONE, "NoNewPrivs": "1", "Seccomp": "2", "NSpid": "4711\t1",
    }  # fmt: skip
    return Facts(status, LIMITS, V1, routes=0, root_writable=False)


def test_a_sandbox_as_asked_for_passes(spec: ContainerSpec, inspect: dict[str, Any], facts: Facts) -> None:
    assert missing(spec, inspect, facts) == []
    assert missing(spec, inspect, dataclasses.replace(facts, cgroup=V2, unified=True)) == []
    assert missing(spec, inspect, None) == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"Uid": "0\t0\t0\t0"}, "user id"),
        ({"Uid": "1000\t0\t1000\t1000"}, "user id other than 0"),
        ({"Gid": "0\t0\t0\t0"}, "group id"),
        ({"Groups": "0 1000"}, "group id"),
        ({"CapBnd": "00000000a80425fb"}, "CapBnd"),
        ({"CapEff": "0000000000000001"}, "CapEff"),
        ({"NoNewPrivs": "0"}, "no-new-privileges"),
        ({"Seccomp": "0"}, "seccomp"),
        ({"NSpid": "4711"}, "process namespace"),
        ({"NSpid": "4711\t7"}, "process namespace"),
    ],
)
def test_a_privilege_that_is_left_is_named(
    spec: ContainerSpec, inspect: dict[str, Any], facts: Facts, change: dict[str, str], named: str
) -> None:
    changed = dataclasses.replace(facts, status={**facts.status, **change})
    assert named in "; ".join(missing(spec, inspect, changed))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"cgroup": {**V1, "memory": "9223372036854771712"}}, "memory limit"),
        ({"cgroup": {**V2, "memory": "max"}, "unified": True}, "memory limit"),
        ({"cgroup": {**V1, "swap": "9223372036854771712"}}, "swap"),
        ({"cgroup": {**V2, "swap": "max"}, "unified": True}, "swap"),
        ({"cgroup": {name: V1[name] for name in ("memory", "pids")}}, "swap"),
        ({"cgroup": {**V1, "pids": "max"}}, "process limit"),
        ({"cgroup": {**V1, "quota": "-1"}}, "cpu limit"),
        ({"cgroup": {**V2, "quota": "max"}, "unified": True}, "cpu limit"),
        ({"limits": {**LIMITS, "Max core file size": "unlimited"}}, "ulimit core"),
        ({"limits": {**LIMITS, "Max open files": "1048576"}}, "ulimit nofile"),
        ({"routes": 1}, "no network"),
        ({"shared": ("net",)}, "net namespace"),
        ({"root_writable": True}, "read-only root"),
    ],
)
def test_a_limit_that_is_not_in_force_is_named(
    spec: ContainerSpec, inspect: dict[str, Any], facts: Facts, change: dict[str, Any], named: str
) -> None:
    found = missing(spec, inspect, dataclasses.replace(facts, **change))
    assert len(found) == 1
    assert named in found[0]


def test_swap_that_is_not_accounted_for_is_fine_where_there_is_none(
    spec: ContainerSpec, inspect: dict[str, Any], facts: Facts
) -> None:
    without = dataclasses.replace(facts, cgroup={"memory": V1["memory"]}, host_swap=False)
    assert missing(spec, inspect, without) == []


def test_routes_are_expected_where_a_network_was_asked_for(workspace: Path, facts: Facts) -> None:
    link = LinkPlan("socket", "i", "l")
    with Workspace.open(workspace) as pinned:
        spec = build_spec(image="i", workspace=pinned, limits=Limits(), link=link, lease_seconds=3, network="full")
    body = spec.create_body()
    inspect = {"HostConfig": body["HostConfig"], "Config": {"User": body["User"]}}
    assert missing(spec, inspect, dataclasses.replace(facts, routes=2)) == []


@pytest.mark.parametrize(
    ("item", "value"),
    [
        ("Memory", 0),
        ("MemorySwap", -1),
        ("PidsLimit", None),
        ("NanoCpus", 0),
        ("ReadonlyRootfs", False),
        ("Privileged", True),
        ("CapDrop", None),
        ("CapAdd", ["SYS_ADMIN"]),
        ("SecurityOpt", ["seccomp=unconfined"]),
        ("NetworkMode", "host"),
        ("PidMode", "host"),
        ("IpcMode", "shareable"),
        ("CgroupnsMode", "host"),
        ("Binds", ["/:/host"]),
        ("Devices", [{"PathOnHost": "/dev/mem"}]),
        ("MaskedPaths", []),
        ("Ulimits", None),
        ("AutoRemove", False),
    ],
)
def test_where_the_kernel_cannot_be_asked_the_engine_s_word_is_compared(
    spec: ContainerSpec, inspect: dict[str, Any], item: str, value: Any
) -> None:
    inspect["HostConfig"] = {**inspect["HostConfig"], item: value}
    found = missing(spec, inspect, None)
    assert len(found) == 1
    assert found[0].startswith(item)


def test_another_user_than_asked_for_is_named(spec: ContainerSpec, inspect: dict[str, Any]) -> None:
    assert missing(spec, {**inspect, "Config": {"User": ""}}, None) == [f"User (asked {spec.user}, the engine has )"]


def test_an_engine_that_says_nothing_is_not_believed(spec: ContainerSpec) -> None:
    with pytest.raises(ProtectionMissing, match=r"nothing was run.*Memory.*CapDrop"):
        verify(spec, {}, None)


def test_a_process_of_the_host_is_no_sandbox(spec: ContainerSpec, inspect: dict[str, Any]) -> None:
    found = "; ".join(missing(spec, inspect, gather(os.getpid())))
    assert "no-new-privileges" in found
    assert "a net namespace of its own" in found
    assert "a process namespace of its own" in found


def test_a_process_that_is_gone_has_no_facts() -> None:
    assert gather(2**22 + 1) is None


def test_the_kernel_s_tables_are_read_by_their_columns() -> None:
    limits = Path("/proc/self/limits").read_text()
    assert set(LIMITS) <= set(parse_limits(limits))
    assert parse_status("Name:\tbash\nUid:\t1\t2\n") == {"Name": "bash", "Uid": "1\t2"}


@pytest.mark.parametrize(
    ("membership", "mounts", "unified"),
    [
        (
            "4:memory:/docker/1\n3:cpu,cpuacct:/docker/1\n2:pids:/docker/1\n",
            {"memory": "m", "cpu": "c", "pids": "p"},
            False,
        ),
        ("0::/docker/1\n", {"": "u"}, True),
    ],
)
def test_both_versions_of_cgroups_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, membership: str, mounts: dict[str, str], unified: bool
) -> None:
    from belljar.sandbox import verification

    for name in mounts.values():
        (tmp_path / name / "docker/1").mkdir(parents=True)
    first = {"m": {"memory.limit_in_bytes": "1", "memory.memsw.limit_in_bytes": "2"}, "p": {"pids.max": "3"},
             "c": {"cpu.cfs_quota_us": "4", "cpu.cfs_period_us": "5"}}  # fmt: skip
    second = {"u": {"memory.max": "1", "memory.swap.max": "2", "pids.max": "3", "cpu.max": "4 5"}}
    for directory, files in (second if unified else first).items():
        for name, text in files.items():
            (tmp_path / directory / "docker/1" / name).write_text(text + "\n")
    monkeypatch.setattr(verification, "_cgroup_mounts", lambda: {key: str(tmp_path / at) for key, at in mounts.items()})
    values, found_unified = verification._gather_cgroup(membership)
    assert values == {"memory": "1", "swap": "2", "pids": "3", "quota": "4", "period": "5"}
    assert found_unified == unified

"""Verification checks that each protection is in force. It is a pure function, so every failure can be tested."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from belljar.engines import kernel_facts
from belljar.engines.kernel_facts import KernelFacts, MountFact, gather
from belljar.engines.spec import IdMap, Protections, SandboxSpec, User
from belljar.errors import ProtectionMissing
from belljar.limits import Limits
from belljar.link import frames
from belljar.sandbox import verification
from belljar.sandbox.spec import LinkPlan, build_spec
from belljar.sandbox.verification import (
    Evidence,
    asked_inside,
    missing,
    verify,
    verify_inside,
)
from belljar.workspace.pinned import Workspace

NONE = "0000000000000000"
ASKED = Limits(
    memory="512m",
    cpus=1,
    pids=256,
    nofile=4096,
    fsize="1g",
    tmp="64m",
    home="32m",
    shm="32m",
)
V1 = {
    "memory": str(512 << 20),
    "swap": str(512 << 20),
    "pids": "256",
    "quota": "100000",
    "period": "100000",
}
V2 = {**V1, "swap": "0"}
INIT = (8, 42)
LIMITS = {
    "Max core file size": "0",
    "Max open files": "4096",
    "Max file size": str(1 << 30),
    "Max locked memory": "65536",
}


@pytest.fixture
def spec(workspace: Path) -> SandboxSpec:
    with Workspace.open(workspace) as pinned:
        return build_spec(
            image="img",
            workspace=pinned,
            limits=ASKED,
            link=LinkPlan("socket", "i", "l"),
            lease_seconds=3,
        )


@pytest.fixture
def facts(spec: SandboxSpec) -> KernelFacts:
    uid, gid = spec.user.outside
    status = {
        "Uid": "\t".join([str(uid)] * 4), "Gid": "\t".join([str(gid)] * 4), "Groups": str(gid), "CapInh": NONE,
        "CapPrm": NONE, "CapEff": NONE, "CapBnd": NONE, "CapAmb": NONE, "NoNewPrivs": "1", "Seccomp": "2",
        "NSpid": "4711\t1",
    }  # fmt: skip
    covered = ["/", *spec.masked_paths, *spec.readonly_paths]
    mounts = {path: MountFact("0:1", "/", True, "tmpfs") for path in covered}
    return KernelFacts(
        status,
        LIMITS,
        V1,
        routes=0,
        shared=frozenset(),
        mounts=mounts,
        executable=INIT,
        host_swap=True,
    )


def judged(
    spec: SandboxSpec, facts: KernelFacts | None, claims: Protections | None = None
) -> list[str]:
    return missing(
        spec, Evidence(claims or spec.protections, facts, INIT if facts else None)
    )


def test_a_sandbox_as_asked_for_passes(spec: SandboxSpec, facts: KernelFacts) -> None:
    assert judged(spec, facts) == []
    assert judged(spec, dataclasses.replace(facts, cgroup=V2, unified=True)) == []
    assert judged(spec, None) == []


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
    spec: SandboxSpec, facts: KernelFacts, change: dict[str, str], named: str
) -> None:
    changed = dataclasses.replace(facts, status={**facts.status, **change})
    assert named in "; ".join(judged(spec, changed))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"cgroup": {**V1, "memory": "9223372036854771712"}}, "memory limit"),
        ({"cgroup": {**V2, "memory": "max"}, "unified": True}, "memory limit"),
        ({"cgroup": {**V1, "swap": "9223372036854771712"}}, "swap"),
        ({"cgroup": {**V2, "swap": "max"}, "unified": True}, "swap"),
        ({"cgroup": {name: V1[name] for name in V1 if name != "swap"}}, "swap"),
        ({"cgroup": {**V1, "pids": "max"}}, "process limit"),
        ({"cgroup": {**V1, "quota": "-1"}}, "cpu limit"),
        ({"cgroup": {**V2, "quota": "max"}, "unified": True}, "cpu limit"),
        ({"limits": {**LIMITS, "Max core file size": "unlimited"}}, "ulimit core"),
        ({"limits": {**LIMITS, "Max open files": "1048576"}}, "ulimit nofile"),
        ({"routes": 1}, "no network"),
        ({"shared": frozenset({"net"})}, "net namespace"),
        ({"shared": frozenset({"ipc"})}, "ipc namespace"),
        ({"executable": (8, 43)}, "init as PID 1"),
    ],
)
def test_a_limit_that_is_not_in_force_is_named(
    spec: SandboxSpec, facts: KernelFacts, change: dict[str, Any], named: str
) -> None:
    found = judged(spec, dataclasses.replace(facts, **change))
    assert len(found) == 1
    assert named in found[0]


@pytest.mark.parametrize(
    ("path", "fact", "named"),
    [
        ("/", MountFact("0:1", "/", False, "overlay"), "read-only root"),
        ("/proc/sys", MountFact("0:1", "/", False, "proc"), "/proc/sys read-only"),
        ("/proc/sys", None, "/proc/sys read-only"),
        ("/proc/cmdline", None, "/proc/cmdline masked"),
    ],
)
def test_an_unmasked_or_writable_place_is_named(
    spec: SandboxSpec, facts: KernelFacts, path: str, fact: MountFact | None, named: str
) -> None:
    mounts = (
        {**facts.mounts, path: fact}
        if fact
        else {k: v for k, v in facts.mounts.items() if k != path}
    )
    assert judged(spec, dataclasses.replace(facts, mounts=mounts)) == [
        f"a {named} file system" if path == "/" else named
    ]


@pytest.fixture
def testimony(spec: SandboxSpec, facts: KernelFacts) -> frames.Testimony:
    """Of an init in a sandbox that is as it was asked for."""
    rows = [
        f"{name:26}{most:21}{most:21}units"
        for name, most in {**LIMITS, "Max processes": "unlimited"}.items()
    ]
    mounts = [f"1 0 0:1 / {path} ro - tmpfs x ro" for path in facts.mounts]
    scratch = [mount for mount in spec.mounts if mount.kind == "tmpfs"]
    mounts += [
        f"1 0 0:1 / {each.target} rw - tmpfs x rw,size={each.size >> 10}k"
        for each in scratch
    ]
    first = "/sys/fs/cgroup/{}/{}".format
    files = {
        "/proc/self/status": "".join(
            f"{name}:\t{value}\n" for name, value in facts.status.items()
        ),
        "/proc/self/limits": "\n".join(["head", *rows]) + "\n",
        "/proc/self/mountinfo": "\n".join(mounts) + "\n",
        "/proc/net/route": "Iface\tDestination\n",
        "/proc/net/ipv6_route": f"{NONE} 80 {NONE} lo\n",
        first("memory", "memory.limit_in_bytes"): f"{512 << 20}\n",
        first("memory", "memory.memsw.limit_in_bytes"): f"{512 << 20}\n",
        first("pids", "pids.max"): "256\n",
        first("cpu", "cpu.cfs_quota_us"): "100000\n",
        first("cpu", "cpu.cfs_period_us"): "100000\n",
    }
    return frames.Testimony(files, (True,) * len(asked_inside(spec)))


def changed(
    testimony: frames.Testimony, path: str, old: str, new: str
) -> frames.Testimony:
    assert old in testimony.files[path]
    return dataclasses.replace(
        testimony,
        files={**testimony.files, path: testimony.files[path].replace(old, new)},
    )


def test_a_testimony_of_what_was_asked_for_passes_and_says_whose_word_it_is(
    spec: SandboxSpec, testimony: frames.Testimony
) -> None:
    words = verify_inside(spec, spec.protections, testimony)
    assert (
        words["memory"] == words["network"] == words["capabilities"] == "init, engine"
    )
    assert words["extras"] == words["removes_itself"] == "engine"
    silent = verify_inside(
        spec, dataclasses.replace(spec.protections, memory=None, pids=None), testimony
    )
    assert silent["memory"] == silent["pids"] == "init"


@pytest.mark.parametrize(
    ("path", "old", "new", "named"),
    [
        ("/proc/self/status", "Seccomp:\t2", "Seccomp:\t0", "seccomp filter"),
        ("/proc/self/status", "NoNewPrivs:\t1", "NoNewPrivs:\t0", "no-new-privileges"),
        (
            "/proc/self/status",
            f"CapBnd:\t{NONE}",
            "CapBnd:\t00000000a80425fb",
            "CapBnd",
        ),
        ("/proc/self/limits", "4096", "1048", "ulimit nofile"),
        (
            "/proc/self/mountinfo",
            " / / ro - tmpfs x ro",
            " / / rw - tmpfs x rw",
            "read-only root",
        ),
        ("/proc/self/mountinfo", " /proc/keys ", " /elsewhere ", "/proc/keys masked"),
        (
            "/proc/self/mountinfo",
            f"size={(64 << 20) >> 10}k",
            "inode64",
            "the size of /tmp",
        ),
        (
            "/proc/net/route",
            "Destination\n",
            "Destination\neth0\t0\n",
            "there are routes",
        ),
        ("/proc/net/ipv6_route", " lo", " eth0", "there are routes"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            str(512 << 20),
            "9223372036854771712",
            "memory limit",
        ),
        ("/sys/fs/cgroup/pids/pids.max", "256", "max", "process limit"),
        ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000", "-1", "cpu limit"),
    ],
)
def test_a_protection_that_the_init_does_not_find_is_named(
    spec: SandboxSpec,
    testimony: frames.Testimony,
    path: str,
    old: str,
    new: str,
    named: str,
) -> None:
    new = "9999" if named.startswith("ulimit") else new
    with pytest.raises(ProtectionMissing, match=named):
        verify_inside(spec, spec.protections, changed(testimony, path, old, new))


def test_an_engine_may_not_contradict_the_init(
    spec: SandboxSpec, testimony: frames.Testimony
) -> None:
    with pytest.raises(ProtectionMissing, match="the engine has 1024"):
        verify_inside(
            spec, dataclasses.replace(spec.protections, memory=1024), testimony
        )


def test_what_the_init_cannot_see_the_engine_must_claim(
    spec: SandboxSpec, testimony: frames.Testimony
) -> None:
    files = {path: text for path, text in testimony.files.items() if "pids" not in path}
    without = dataclasses.replace(testimony, files=files)
    assert verify_inside(spec, spec.protections, without)["pids"] == "engine"
    with pytest.raises(ProtectionMissing, match="pids"):
        verify_inside(spec, dataclasses.replace(spec.protections, pids=None), without)


def test_the_limit_of_a_user_counts_only_where_the_init_sets_it(
    spec: SandboxSpec, testimony: frames.Testimony
) -> None:
    claims = dataclasses.replace(spec.protections, pids=None)
    bounded = changed(testimony, "/proc/self/limits", "unlimited", "256      ")
    unbounded = changed(bounded, "/sys/fs/cgroup/pids/pids.max", "256", "max")
    assert (
        verify_inside(dataclasses.replace(spec, init_limits=True), claims, unbounded)[
            "pids"
        ]
        == "init"
    )
    with pytest.raises(ProtectionMissing, match="process limit"):
        verify_inside(spec, claims, unbounded)


def test_root_inside_needs_a_map_that_makes_it_somebody_else(
    spec: SandboxSpec, testimony: frames.Testimony
) -> None:
    inside = dataclasses.replace(
        spec, user=User(0, 0, (IdMap(0, 1000),), (IdMap(0, 1000),), root_inside=True)
    )
    uid, gid = spec.user.outside
    as_root = changed(
        testimony, "/proc/self/status", "\t".join([str(uid)] * 4), "\t".join("0000")
    )
    as_root = changed(as_root, "/proc/self/status", f"Groups:\t{gid}", "Groups:\t0")
    for text, fine in (("0 1000 1\n", True), ("0 0 4294967295\n", False), ("", False)):
        mapped = dataclasses.replace(
            as_root, files={**as_root.files, "/proc/self/uid_map": text}
        )
        found = missing(
            inside,
            Evidence(
                inside.protections, inside=kernel_facts.testified(mapped.files, {})
            ),
        )
        assert ("a user id other than 0" not in found) == fine


@pytest.mark.parametrize(
    "path",
    [
        "/proc/self/mountinfo",
        "/proc/self/status",
        "/proc/self/limits",
        "/proc/net/ipv6_route",
    ],
)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "garbage",
        "a b c d e f - g",
        "\0\0",
        "CapBnd:\tzz\nUid:\t",
        "x " * 9000,
    ],
)
def test_a_testimony_of_garbage_is_refused_and_nothing_worse(
    spec: SandboxSpec, testimony: frames.Testimony, path: str, text: str
) -> None:
    garbled = dataclasses.replace(testimony, files={**testimony.files, path: text})
    with contextlib.suppress(ProtectionMissing):
        words = verify_inside(spec, spec.protections, garbled)
        assert "engine" in "".join(words.values())


def test_a_path_that_the_kernel_lacks_need_not_be_masked(
    spec: SandboxSpec, facts: KernelFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        verification, "_is_there", lambda path, facts: path != "/proc/cmdline"
    )
    mounts = {
        path: fact for path, fact in facts.mounts.items() if path != "/proc/cmdline"
    }
    assert judged(spec, dataclasses.replace(facts, mounts=mounts)) == []


@pytest.mark.parametrize(
    "mounted",
    [
        None,
        MountFact("8:1", "/home/other", False, "ext4"),
        MountFact("9:1", "/home/me", False, "ext4"),
    ],
)
def test_another_directory_than_the_workspace_is_named(
    spec: SandboxSpec, facts: KernelFacts, mounted: MountFact | None
) -> None:
    right = {**facts.mounts, "/workspace": MountFact("8:1", "/home/me", False, "ext4")}
    places = {"/workspace": ("8:1", "/home/me")}

    def found(mounts: dict[str, MountFact]) -> list[str]:
        changed = dataclasses.replace(facts, mounts=mounts)
        return missing(spec, Evidence(spec.protections, changed, INIT, places))

    assert found(right) == []
    wrong = {**right, "/workspace": mounted} if mounted else dict(facts.mounts)
    assert found(wrong) == ["/home/me at /workspace (something else is mounted there)"]


def test_swap_that_is_not_accounted_for_is_fine_where_there_is_none(
    spec: SandboxSpec, facts: KernelFacts
) -> None:
    without = {name: V1[name] for name in V1 if name != "swap"}
    assert (
        judged(spec, dataclasses.replace(facts, cgroup=without, host_swap=False)) == []
    )


def test_routes_are_expected_where_a_network_was_asked_for(
    spec: SandboxSpec, facts: KernelFacts
) -> None:
    assert (
        judged(
            dataclasses.replace(spec, network="full"),
            dataclasses.replace(facts, routes=2),
        )
        == []
    )


def test_a_writable_root_is_fine_where_it_was_asked_for(
    spec: SandboxSpec, facts: KernelFacts
) -> None:
    writable = {**facts.mounts, "/": MountFact("0:1", "/", False, "overlay")}
    changed = dataclasses.replace(facts, mounts=writable)
    assert judged(dataclasses.replace(spec, writable_root=True), changed) == []


def test_root_inside_is_accepted_only_with_another_uid_outside(
    spec: SandboxSpec, facts: KernelFacts
) -> None:
    user = User(0, 0, (IdMap(0, 1001),), (IdMap(0, 1001),), root_inside=True)
    rootless = dataclasses.replace(spec, user=user)
    outside = {
        **facts.status,
        "Uid": "1001\t1001\t1001\t1001",
        "Gid": "1001\t1001\t1001\t1001",
        "Groups": "",
    }
    assert judged(rootless, dataclasses.replace(facts, status=outside)) == []
    real = {**outside, "Uid": "0\t0\t0\t0"}
    assert "a user id other than 0" in judged(
        rootless, dataclasses.replace(facts, status=real)
    )
    plain = dataclasses.replace(spec, user=User(0, 0))
    assert "a user id other than 0" in judged(
        plain, dataclasses.replace(facts, status=real)
    )


@pytest.mark.parametrize(
    "field", [item.name for item in dataclasses.fields(Protections)]
)
def test_without_kernel_facts_the_engine_must_claim_each_protection(
    spec: SandboxSpec, field: str
) -> None:
    claims = dataclasses.replace(spec.protections, **{field: None})
    assert [text.partition(" (")[0] for text in judged(spec, None, claims)] == [
        field.replace("_", " ")
    ]


@pytest.mark.parametrize("field", ["seccomp", "extras", "removes_itself"])
def test_the_engine_must_claim_what_the_kernel_cannot_show(
    spec: SandboxSpec, facts: KernelFacts, field: str
) -> None:
    claims = dataclasses.replace(spec.protections, **{field: None})
    assert len(judged(spec, facts, claims)) == 1


def test_kernel_facts_suffice_without_the_engine_s_claims(
    spec: SandboxSpec, facts: KernelFacts
) -> None:
    kept = {
        name: getattr(spec.protections, name)
        for name in ("seccomp", "extras", "removes_itself")
    }
    assert judged(spec, facts, Protections(**kept)) == []


def test_an_engine_without_claims_or_kernel_facts_is_refused(spec: SandboxSpec) -> None:
    with pytest.raises(
        ProtectionMissing, match=r"nothing was run.*memory.*capabilities"
    ):
        verify(spec, Protections(), None)


def test_a_process_of_the_host_fails_the_verification(spec: SandboxSpec) -> None:
    found = "; ".join(
        missing(spec, Evidence(spec.protections, gather(os.getpid()), INIT))
    )
    assert "no-new-privileges" in found
    assert "a net namespace of its own" in found
    assert "a process namespace of its own" in found
    assert "init as PID 1" in found

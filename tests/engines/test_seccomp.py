"""The list of system calls, and the kernel's answers inside a sandbox."""

from __future__ import annotations

import json
import platform
import shutil
from pathlib import Path
from typing import Any, get_args

import pytest

import belljar
from belljar.engines.seccomp import (
    NO_LEASES,
    TERMINAL_TRICKS,
    Profile,
    all_but,
    profile,
    profile_text,
)

NEVER = """
acct add_key bpf chroot clock_settime create_module delete_module fanotify_init finit_module fsopen fsmount
get_kernel_syms init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl kexec_file_load
kexec_load keyctl lookup_dcookie mbind modify_ldt mount mount_setattr move_mount name_to_handle_at nfsservctl
open_by_handle_at open_tree perf_event_open pidfd_getfd pivot_root process_vm_readv process_vm_writev ptrace
quotactl reboot request_key setns settimeofday stime swapoff swapon syslog umount umount2 unshare uselib
userfaultfd vhangup vm86
"""

PROBER = Path(__file__).parents[1] / "attacks" / "prober.py"
EPERM, EINVAL, ENOSYS, EOPNOTSUPP = 1, 22, 38, 95


def allowed_names(kind: Profile = "default") -> set[str]:
    """Every call that is allowed, at least with some arguments."""
    rules = profile(kind, "x86_64")["syscalls"]
    return {
        name
        for rule in rules
        if rule["action"] == "SCMP_ACT_ALLOW"
        for name in rule["names"]
    }


def test_dangerous_calls_are_in_no_rule() -> None:
    assert allowed_names() & set(NEVER.split()) == set()


def test_only_the_debug_profile_has_ptrace() -> None:
    assert allowed_names("debug") - allowed_names() == {
        "ptrace",
        "process_vm_readv",
        "process_vm_writev",
        "kcmp",
    }


@pytest.mark.parametrize(
    ("machine", "architecture"),
    [
        ("x86_64", "X86_64"),
        ("amd64", "X86_64"),
        ("aarch64", "AARCH64"),
        ("arm64", "AARCH64"),
    ],
)
def test_only_the_native_architecture_is_allowed(
    machine: str, architecture: str
) -> None:
    assert profile(machine=machine)["architectures"] == [f"SCMP_ARCH_{architecture}"]


def test_an_unknown_machine_has_no_profile() -> None:
    with pytest.raises(ValueError, match="m68k"):
        profile(machine="m68k")


def test_a_call_that_no_rule_names_is_refused() -> None:
    assert (profile()["defaultAction"], profile()["defaultErrnoRet"]) == (
        "SCMP_ACT_ERRNO",
        EPERM,
    )


def test_no_call_is_allowed_both_freely_and_with_conditions() -> None:
    rules = [
        rule for rule in profile()["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW"
    ]
    free = {name for rule in rules if not rule["args"] for name in rule["names"]}
    guarded = {name for rule in rules if rule["args"] for name in rule["names"]}
    assert free & guarded == set()
    assert {
        "socket",
        "socketpair",
        "clone",
        "personality",
        "chmod",
        "openat",
    } <= guarded


def test_socket_families_and_protocols_are_compared_by_equality() -> None:
    rules = [rule for rule in profile()["syscalls"] if "socket" in rule["names"]]
    assert {rule["args"][0]["value"] for rule in rules} == {1, 2, 10, 16}
    arguments = [argument for rule in rules for argument in rule["args"]]
    assert all(
        argument["op"] == "SCMP_CMP_EQ"
        for argument in arguments
        if argument["index"] != 1
    )
    assert all(
        {each["index"] for each in rule["args"]} == {0, 1, 2}
        for rule in rules
        if rule["args"][0]["value"] in (2, 10)
    )


def test_the_profile_is_in_docker_s_format() -> None:
    assert json.loads(profile_text()) == profile()


def test_every_ioctl_but_three_is_allowed_by_one_rule() -> None:
    rules = list(all_but(TERMINAL_TRICKS))
    neighbours = {
        each ^ 1 << bit for each in TERMINAL_TRICKS for bit in range(32)
    } - set(TERMINAL_TRICKS)
    for word in {0, 0xFFFFFFFF, *neighbours, *TERMINAL_TRICKS}:
        assert sum(word & mask == value for mask, value in rules) == (
            word not in TERMINAL_TRICKS
        ), hex(word)


def test_every_fcntl_but_leases_is_allowed() -> None:
    words = [*range(1100), 0x400 | 1 << 31, 0xFFFFFFFF]
    allowed = {
        word for word in words if any(word & mask == value for mask, value in NO_LEASES)
    }
    assert {*range(1040)} - allowed == {1024}
    assert max(allowed) == 1039


def _allows(name: str, *arguments: int) -> bool:
    rules = [
        each
        for each in profile()["syscalls"]
        if name in each["names"] and each["action"] == "SCMP_ACT_ALLOW"
    ]
    return any(
        all(arguments[a["index"]] & a["value"] == a["valueTwo"] for a in rule["args"])
        for rule in rules
    )


def test_prctl_and_setsockopt_are_allowed_but_for_making_filters() -> None:
    upper = 1 << 32
    assert [option for option in range(128) if not _allows("prctl", option)] == [22]
    assert _allows("prctl", 0x53564D41)
    assert all(_allows("setsockopt", 0, level, 0) for level in range(512))
    assert [
        option for option in range(128) if not _allows("setsockopt", 0, 1, option)
    ] == [26, 50, 51, 52]
    assert not _allows("prctl", upper | 22)
    assert not _allows("setsockopt", 0, upper | 1, 26)
    assert not _allows("setsockopt", 0, 1, upper | 50)


@pytest.mark.parametrize("kind", get_args(Profile))
def test_a_profile_is_short_enough_for_every_kernel(kind: Profile) -> None:
    """A profile of 176 rules exceeded gVisor's limit of 4096 instructions."""
    assert len(profile(kind)["syscalls"]) <= 125


async def probe(workspace: Path, what: str) -> dict[str, Any]:
    shutil.copy(PROBER, workspace / "prober.py")
    async with belljar.Session(
        workspace=workspace, policy="permissive", approve=lambda verdict: True
    ) as box:
        result = await box.run(["python3", "/workspace/prober.py", what], timeout=60)
    assert result.exit_code == 0, result.output
    answers: dict[str, Any] = json.loads(result.stdout)
    return answers


async def test_every_forbidden_call_is_refused(
    base_image: str, root_workspace: Path
) -> None:
    answers = await probe(root_workspace, "forbidden")
    assert {name: answer for name, answer in answers.items() if answer != EPERM} == {}
    assert len(answers) > 60


async def test_every_forbidden_socket_is_refused(
    base_image: str, root_workspace: Path
) -> None:
    answers = await probe(root_workspace, "sockets")
    assert {name: answer for name, answer in answers.items() if answer != EPERM} == {}
    assert "vsock_upper_bits" in answers


async def test_the_priority_and_affinity_of_other_processes_cannot_be_set(
    base_image: str, root_workspace: Path
) -> None:
    answers = await probe(root_workspace, "of_others")
    assert {name: answer for name, answer in answers.items() if answer != EPERM} == {}


async def test_calls_that_a_filter_cannot_check_answer_enosys(
    base_image: str, root_workspace: Path
) -> None:
    assert set((await probe(root_workspace, "enosys")).values()) == {ENOSYS}


async def test_the_host_s_huge_pages_cannot_be_taken(
    base_image: str, root_workspace: Path
) -> None:
    answers = await probe(root_workspace, "huge_pages")
    assert {name: answer for name, answer in answers.items() if answer != EPERM} == {}
    assert len(answers) == 3


async def test_a_command_cannot_add_a_seccomp_filter(
    base_image: str, root_workspace: Path
) -> None:
    """It fails with EINVAL, as on a kernel without filters, and programs then go on without one."""
    assert set((await probe(root_workspace, "filter_of_calls")).values()) == {EINVAL}


async def test_a_set_uid_file_cannot_be_made_in_any_way(
    base_image: str, root_workspace: Path
) -> None:
    answers = await probe(root_workspace, "set_id")
    assert set(answers.values()) <= {EPERM, ENOSYS}
    assert not [
        path for path in root_workspace.iterdir() if path.stat().st_mode & 0o6000
    ]


@pytest.mark.skipif(
    platform.machine() != "x86_64", reason="other calling conventions are x86's"
)
async def test_other_calling_conventions_kill_the_process(
    base_image: str, root_workspace: Path
) -> None:
    assert await probe(root_workspace, "other_architectures") == {
        "x32": "killed",
        "int80": "killed",
    }


async def test_everyday_calls_work(base_image: str, root_workspace: Path) -> None:
    assert set((await probe(root_workspace, "everyday")).values()) == {0}

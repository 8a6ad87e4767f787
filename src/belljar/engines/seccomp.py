"""The system calls a sandbox may make: an allow-list, for the native architecture only.

Every other call fails with EPERM. Three facts shape the list:

- A filter compares 64 bits of an argument, while the kernel may use fewer. So an `int` is compared for
  equality (with upper bits set it does not match and is refused), and flags by a mask over the bits that count.
- A filter cannot follow a pointer. `clone3` and `openat2` carry their flags in a struct, so they return
  ENOSYS; every libc then falls back to `clone` and `openat`, whose flags are visible.
- Files made in the workspace may belong to root outside (an idmapped mount). A set-uid file there would give
  root to anybody on the host, so no call may create one or set the bit.

libseccomp kills a process that makes a call for another architecture (int 0x80, x32).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Literal

from belljar.layout import MACHINES

Profile = Literal["default", "debug", "root"]

ARCHITECTURES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}

_EPERM, _EINVAL, _ENOSYS, _EPROTONOSUPPORT = 1, 22, 38, 93

# Each of these uses up a quota of the whole machine: AIO contexts count against fs.aio-max-nr, compiled filters against
# net.core.bpf_jit_limit, and no container starts once that is exhausted.
MACHINE_WIDE = (
    "io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit seccomp"
)
PR_SET_SECCOMP = 22
PRCTL_LARGE = (
    0x41555856,
    0x53564D41,
    0x59616D61,
)  # PR_GET_AUXV, PR_SET_VMA, PR_SET_PTRACER
SOL_SOCKET, SOCKET_FILTERS = (
    1,
    (26, 50, 51, 52),
)  # SO_ATTACH_FILTER, _BPF, _REUSEPORT_CBPF, _REUSEPORT_EBPF

DEBUGGING = "ptrace process_vm_readv process_vm_writev kcmp"

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, NETLINK_ROUTE = 1, 2, 10, 16, 0
NETLINK_AUDIT = 9
# SOCK_STREAM as TCP, SOCK_DGRAM as UDP; protocol 0 lets the kernel choose, with the same result.
TYPE_AND_PROTOCOLS = {1: (0, 6), 2: (0, 17)}
_INT = 0xFFFFFFFF
_SMALL = (~0x7F & _INT, 0, 6)
"""Arguments of `all_but` for values below 128."""
SOCKET_TYPE = _INT & ~(0o4000 | 0o2000000)  # all but SOCK_NONBLOCK and SOCK_CLOEXEC
PRIO_PROCESS, IOPRIO_WHO_PROCESS = 0, 1
# All of fcntl but F_SETLEASE (1024) and F_SETDELEG (1040): opening a leased file blocks for 45 seconds, on the host
# too. Few rules, since fcntl is called often: below 1024, 1025, 1026 and 1027, 1028 to 1031, 1032 to 1039.
NO_LEASES = ((~0x3FF, 0), (~0, 1025), (~1, 1026), (~3, 1028), (~7, 1032))
# Pages of the pool that the host keeps for itself (vm.nr_hugepages): no memory limit counts them, and anybody may take
# them. By call: the argument and its flag MAP_HUGETLB, MFD_HUGETLB, SHM_HUGETLB.
HUGE_PAGES = {"mmap": (3, 0x40000), "memfd_create": (1, 0x4), "shmget": (2, 0o4000)}
CLONE_NEW_ANY = 0x7E020000  # NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
O_CREAT_OR_TMPFILE = 0o100 | 0o20000000
SET_ID_BITS = 0o6000
# TIOCSTI puts input into a terminal; TIOCLINUX and TIOCSETD reach kernel modules that are loaded on demand.
TERMINAL_TRICKS = (0x5412, 0x541C, 0x5423)
ADDR_NO_RANDOMIZE = 0x0040000
PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)

Rule = dict[str, Any]
Argument = dict[str, int | str]


@cache
def profile(kind: Profile = "default", machine: str | None = None) -> dict[str, Any]:
    """The profile in Docker's form (`--security-opt seccomp=…`). It is cached: do not change it."""
    debug = kind == "debug"
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": _EPERM,
        "architectures": [_architecture(machine or os.uname().machine)],
        "syscalls": [
            _allow(sorted(_freely_allowed())),
            *_families(),
            *_without_set_id(),
            *(_for_root() if kind == "root" else []),
            *_own_process(),
            *(
                _allow(["ioctl"], _masked(1, mask, value))
                for mask, value in all_but(TERMINAL_TRICKS)
            ),
            *(
                _allow(["fcntl"], _masked(1, mask & _INT, value))
                for mask, value in NO_LEASES
            ),
            *_without_filters(),
            *(
                _allow([name], _masked(index, flag, 0))
                for name, (index, flag) in HUGE_PAGES.items()
            ),
            _allow(["clone"], _masked(0, CLONE_NEW_ANY, 0)),
            *(
                _allow(["personality"], _equal(0, value))
                for value in (*PERSONALITIES, *([ADDR_NO_RANDOMIZE] if debug else []))
            ),
            _refuse(["clone3", "openat2", *MACHINE_WIDE.split()], _ENOSYS),
            *([_allow(sorted(DEBUGGING.split()))] if debug else []),
        ],
    }


@cache
def profile_text(kind: Profile = "default", machine: str | None = None) -> str:
    return json.dumps(profile(kind, machine), separators=(",", ":"))


def all_but(
    values: Iterable[int], mask: int = 0, prefix: int = 0, bit: int = 31
) -> list[tuple[int, int]]:
    """Masks and values that together match every 32-bit word except `values`, whatever the upper half of the register
    holds. A comparison for "not equal" would include that half."""
    pairs = []
    for start in (prefix, prefix | 1 << bit):
        within = [value for value in values if (value ^ start) >> bit == 0]
        if not within:
            pairs.append((mask | 1 << bit, start))
        elif bit:
            pairs += all_but(within, mask | 1 << bit, start, bit - 1)
    return pairs


def _families() -> list[Rule]:
    """Checks the protocol too: SCTP, DCCP, MPTCP, SMC, UDP-Lite and L2TP are large modules, loaded on demand."""
    internet = [
        _allow(
            ["socket"],
            _equal(0, family),
            _masked(1, SOCKET_TYPE, type),
            _equal(2, protocol),
        )
        for family in (AF_INET, AF_INET6)
        for type, protocols in TYPE_AND_PROTOCOLS.items()
        for protocol in protocols
    ]
    netlink = _allow(["socket"], _equal(0, AF_NETLINK), _equal(2, NETLINK_ROUTE))
    return [_allow(["socket", "socketpair"], _equal(0, AF_UNIX)), *internet, netlink]


def _without_set_id() -> list[Rule]:
    """Calls that take a file mode, if it has neither set-uid nor set-gid."""
    mode_at = {
        "chmod": 1,
        "fchmod": 1,
        "fchmodat": 2,
        "fchmodat2": 2,
        "mknod": 1,
        "mknodat": 2,
    }
    mode_at |= {"creat": 1, "open": 2, "openat": 3}
    flags_at = {"open": 1, "openat": 2}
    clean = [
        _allow([name], _masked(index, SET_ID_BITS, 0))
        for name, index in mode_at.items()
    ]
    # Without O_CREAT the mode register may hold anything.
    plain = [
        _allow([name], _masked(index, O_CREAT_OR_TMPFILE, 0))
        for name, index in flags_at.items()
    ]
    return [*clean, *plain]


def _for_root() -> list[Rule]:
    """Lets packages be installed. Asking for a set-id bit succeeds without setting it, and the audit socket (useradd,
    su) does not exist instead of being forbidden."""
    mode_at = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2}
    ids = (0o2000, 0o4000, 0o6000)
    modes = [
        _refuse([name], 0, _masked(index, SET_ID_BITS, bits))
        for name, index in mode_at.items()
        for bits in ids
    ]
    return [
        *modes,
        _refuse(
            ["socket"],
            _EPROTONOSUPPORT,
            _equal(0, AF_NETLINK),
            _equal(2, NETLINK_AUDIT),
        ),
    ]


def _own_process() -> list[Rule]:
    """Calls that change limits or priority, for the calling process only: PID 1 and the keepers have the same uid."""
    by_pid = [
        "prlimit64",
        "sched_setaffinity",
        "sched_setattr",
        "sched_setparam",
        "sched_setscheduler",
    ]
    return [
        _allow(by_pid, _equal(0, 0)),
        _allow(["setpriority"], _equal(0, PRIO_PROCESS), _equal(1, 0)),
        _allow(["ioprio_set"], _equal(0, IOPRIO_WHO_PROCESS), _equal(1, 0)),
    ]


def _without_filters() -> list[Rule]:
    """No socket filters and no seccomp filters; the latter fail as on a kernel without seccomp. Only option numbers
    below 128 and levels below 512 are distinguished: one rule for each further bit would exceed the kernel's limit of
    4096 instructions (under gVisor it did)."""
    return [
        *(
            _allow(["prctl"], _masked(0, mask, value))
            for mask, value in all_but([PR_SET_SECCOMP], *_SMALL)
        ),
        *(_allow(["prctl"], _masked(0, _INT, value)) for value in PRCTL_LARGE),
        _refuse(["prctl"], _EINVAL, _masked(0, _INT, PR_SET_SECCOMP)),
        *(
            _allow(["setsockopt"], _masked(1, mask, value))
            for mask, value in all_but([SOL_SOCKET], ~0x1FF & _INT, 0, 8)
        ),
        *(
            _allow(
                ["setsockopt"], _masked(1, _INT, SOL_SOCKET), _masked(2, mask, value)
            )
            for mask, value in all_but(SOCKET_FILTERS, *_SMALL)
        ),
    ]


def _freely_allowed() -> set[str]:
    lines = Path(__file__).with_name("allowed_syscalls.txt").read_text().splitlines()
    return {name for line in lines if not line.startswith("#") for name in line.split()}


def _allow(names: list[str], *arguments: Argument) -> Rule:
    return {"names": names, "action": "SCMP_ACT_ALLOW", "args": list(arguments)}


def _refuse(names: Iterable[str], code: int, *arguments: Argument) -> Rule:
    return {
        "names": list(names),
        "action": "SCMP_ACT_ERRNO",
        "errnoRet": code,
        "args": list(arguments),
    }


def _equal(index: int, value: int) -> Argument:
    return {"index": index, "value": value, "valueTwo": 0, "op": "SCMP_CMP_EQ"}


def _masked(index: int, mask: int, value: int) -> Argument:
    return {
        "index": index,
        "value": mask,
        "valueTwo": value,
        "op": "SCMP_CMP_MASKED_EQ",
    }


def _architecture(machine: str) -> str:
    name = MACHINES.get(machine, machine)
    if name not in ARCHITECTURES:
        raise ValueError(
            f"no seccomp profile for {machine}; known: {', '.join(ARCHITECTURES)}"
        )
    return ARCHITECTURES[name]

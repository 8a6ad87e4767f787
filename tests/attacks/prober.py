"""Runs inside a sandbox with only the standard library: makes forbidden calls and prints their results.

Each result is an errno, 0 for success, or "killed".
"""

import ctypes
import json
import os
import platform
import signal
import socket
import sys

X86 = platform.machine() == "x86_64"
libc = ctypes.CDLL(None, use_errno=True)
BUFFER = ctypes.create_string_buffer(4096)

NEW_NAMESPACE = (
    0x20000,
    0x2000000,
    0x4000000,
    0x8000000,
    0x10000000,
    0x20000000,
    0x40000000,
    0x80,
)

# name: (number on x86_64, number on aarch64, arguments)
FORBIDDEN = {
    "acct": (163, 89, [0]),
    "add_key": (248, 217, [b"user", b"k", b"v", 1, -3]),
    "adjtimex": (159, 171, [BUFFER]),
    "bpf": (321, 280, [0, BUFFER, 72]),
    "chroot": (161, 51, [b"/tmp"]),
    "clock_adjtime": (305, 266, [0, BUFFER]),
    "clock_settime": (227, 112, [0, BUFFER]),
    "delete_module": (176, 106, [b"x", 0]),
    "fanotify_init": (300, 262, [0, 0]),
    "finit_module": (313, 273, [0, b"", 0]),
    "fsconfig": (431, 431, [-1, 0, 0, 0, 0]),
    "fsmount": (432, 432, [-1, 0, 0]),
    "fsopen": (430, 430, [b"tmpfs", 0]),
    "fspick": (433, 433, [-100, b"/", 0]),
    "get_mempolicy": (239, 236, [0, 0, 0, 0, 0]),
    "init_module": (175, 105, [BUFFER, 0, b""]),
    "io_uring_enter": (426, 426, [-1, 0, 0, 0, 0, 0]),
    "io_uring_register": (427, 427, [-1, 0, 0, 0]),
    "io_uring_setup": (425, 425, [4, BUFFER]),
    "kcmp": (312, 272, [1, 1, 0, 0, 0]),
    "kexec_file_load": (320, 294, [-1, -1, 0, 0, 0]),
    "kexec_load": (246, 104, [0, 0, 0, 0]),
    "keyctl": (250, 219, [0, -3, 0]),
    "lookup_dcookie": (212, 18, [0, BUFFER, 64]),
    "mbind": (237, 235, [0, 0, 0, 0, 0, 0]),
    "memfd_secret": (447, 447, [0]),
    "migrate_pages": (256, 238, [0, 0, 0, 0]),
    "mount": (165, 40, [b"none", b"/tmp", b"tmpfs", 0, 0]),
    "mount_setattr": (442, 442, [-100, b"/", 0, BUFFER, 32]),
    "move_mount": (429, 429, [-100, b"/", -100, b"/tmp", 0]),
    "move_pages": (279, 239, [0, 0, 0, 0, 0, 0]),
    "name_to_handle_at": (303, 264, [-100, b"/", BUFFER, BUFFER, 0]),
    "open_by_handle_at": (304, 265, [-100, BUFFER, 0]),
    "open_tree": (428, 428, [-100, b"/", 1]),
    "perf_event_open": (298, 241, [BUFFER, 0, -1, -1, 0]),
    "pidfd_getfd": (438, 438, [-1, 0, 0]),
    "pivot_root": (155, 41, [b"/", b"/tmp"]),
    "process_madvise": (440, 440, [-1, 0, 0, 0, 0]),
    "process_vm_readv": (310, 270, [1, 0, 0, 0, 0, 0]),
    "process_vm_writev": (311, 271, [1, 0, 0, 0, 0, 0]),
    "ptrace": (101, 117, [0, 0, 0, 0]),
    "quotactl": (179, 60, [0, b"/", 0, BUFFER]),
    "quotactl_fd": (443, 443, [-1, 0, 0, 0]),
    "request_key": (249, 218, [b"user", b"k", 0, 0]),
    "setdomainname": (171, 162, [b"x", 1]),
    "sethostname": (170, 161, [b"x", 1]),
    "setns": (308, 268, [-1, 0]),
    "settimeofday": (164, 170, [BUFFER, 0]),
    "set_mempolicy": (238, 237, [0, 0, 0]),
    "swapoff": (168, 225, [b"/tmp/x"]),
    "swapon": (167, 224, [b"/tmp/x", 0]),
    "syslog": (103, 116, [3, BUFFER, 64]),
    "umount2": (166, 39, [b"/tmp", 0]),
    "unshare": (272, 97, [0x10000000]),
    "userfaultfd": (323, 282, [1]),
    "vhangup": (153, 58, []),
    **{f"unshare_{flag:#x}": (272, 97, [flag]) for flag in NEW_NAMESPACE},
    **{f"clone_{flag:#x}": (56, 220, [flag | signal.SIGCHLD, 0, 0, 0, 0]) for flag in NEW_NAMESPACE[:-1]},
    "clone_with_upper_bits": (56, 220, [0x100000000 | 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0]),
    "personality_odd": (135, 92, [0x0400000]),
    "personality_upper_bits": (135, 92, [0x100000000]),
    "type_on_a_terminal": (16, 29, [0, 0x5412, BUFFER]), "line_discipline": (16, 29, [0, 0x5423, BUFFER]),
    "line_discipline_upper_bits": (16, 29, [0, 0x100005423, BUFFER]), "console": (16, 29, [0, 0x541C, BUFFER]),
    "lease": (72, 25, [0, 1024, 0]), "lease_upper_bits": (72, 25, [0, 0x100000400, 0]),
    "delegation": (72, 25, [0, 1040, BUFFER]),
    **{f"socket_filter_{option}": (54, 208, [-1, 1, option, BUFFER, 16]) for option in (26, 50, 51, 52)},
    "socket_filter_upper_bits": (54, 208, [-1, 0x100000001, 0x10000001A, BUFFER, 16]),
}  # fmt: skip
ONLY_X86 = {
    "iopl": (172, [3]), "ioperm": (173, [0x80, 1, 1]), "modify_ldt": (154, [0, BUFFER, 16]), "uselib": (134, [b"x"]),
    "ustat": (136, [0, BUFFER]), "sysfs": (139, [1, 0]), "_sysctl": (156, [0]),
}  # fmt: skip
ANSWER_ENOSYS = {
    "clone3": (435, [BUFFER, 64]), "openat2": (437, [-100, b"/tmp/x", BUFFER, 24]),
    "io_setup": (206 if X86 else 0, [64, BUFFER]), "io_submit": (209 if X86 else 2, [0, 0, BUFFER]),
    "seccomp": (317 if X86 else 277, [1, 0, 0]),
}  # fmt: skip
PRIO_PROCESS, PRIO_PGRP, PRIO_USER = 0, 1, 2
# name: (number on x86_64, number on aarch64, arguments)
OF_OTHERS = {
    "setpriority_user": (141, 140, [PRIO_USER, 0, 19]), "setpriority_group": (141, 140, [PRIO_PGRP, 0, 19]),
    "setpriority_init": (141, 140, [PRIO_PROCESS, 1, 19]),
    "setpriority_upper_bits": (141, 140, [(1 << 32) | PRIO_USER, 0, 19]),
    "ioprio_user": (251, 30, [3, 0, 3 << 13]), "ioprio_init": (251, 30, [1, 1, 3 << 13]),
    "affinity_init": (203, 122, [1, 128, BUFFER]), "affinity_upper_bits": (203, 122, [(1 << 32) | 1, 128, BUFFER]),
    "scheduler_init": (144, 119, [1, 5, BUFFER]), "limits_init": (302, 261, [1, 7, BUFFER, 0]),
}  # fmt: skip

ALG, PACKET, VSOCK, BLUETOOTH, CAN, XDP, KEY = 38, 17, 40, 31, 29, 44, 15
UPPER = 1 << 32
SOCKETS = {
    "alg": (ALG, 5, 0), "packet": (PACKET, 3, 0), "vsock": (VSOCK, 1, 0), "bluetooth": (BLUETOOTH, 3, 0),
    "can": (CAN, 3, 1), "xdp": (XDP, 3, 0), "key": (KEY, 3, 2), "netlink_audit": (16, 3, 9), "netlink_netfilter": (16,
    3, 12), "netlink_uevent": (16, 3, 15), "netlink_upper_bits": (16, 3, UPPER | 9),
    "vsock_upper_bits": (UPPER | VSOCK, 1, 0), "unix_upper_bits": (UPPER | 1, 1, 0), "inet_upper_bits": (UPPER | 2, 1,
    0), "raw": (2, 3, 1), "raw6": (10, 3, 58),
    "sctp": (2, 1, 132), "sctp_seqpacket": (2, 5, 132), "seqpacket": (2, 5, 0), "dccp": (2, 6, 33), "l2tp": (2, 2,
    115), "smc": (2, 1, 256), "mptcp": (2, 1, 262), "mptcp6": (10, 1, 262), "udplite": (2, 2, 136), "icmp": (2, 2, 1),
    "protocol_upper_bits": (2, 1, UPPER | 262), "type_odd": (2, 0x40000001, 0),
}  # fmt: skip


def call(number, arguments):
    ctypes.set_errno(0)
    ready = [
        ctypes.c_long(each) if isinstance(each, int) else each for each in arguments
    ]
    answer = libc.syscall(ctypes.c_long(number), *ready)
    return 0 if answer >= 0 else ctypes.get_errno()


def in_a_child(action):
    """In a child, since the call may kill the process or fork."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, str(action()).encode())
        os._exit(0)
    os.close(writer)
    said = os.read(reader, 64)
    os.close(reader)
    _, status = os.waitpid(child, 0)
    return "killed" if os.WIFSIGNALED(status) else int(said)


def forbidden():
    pick = 0 if X86 else 1
    answers = {
        name: in_a_child(lambda row=row: call(row[pick], row[2]))
        for name, row in FORBIDDEN.items()
    }
    if X86:
        answers |= {
            name: in_a_child(lambda row=row: call(*row))
            for name, row in ONLY_X86.items()
        }
    return answers


def sockets():
    number = 41 if X86 else 198
    pair = 53 if X86 else 199
    answers = {name: call(number, arguments) for name, arguments in SOCKETS.items()}
    return {
        **answers,
        "socketpair_inet": call(pair, [2, 1, 0, BUFFER]),
        "socketpair_upper_bits": call(pair, [UPPER | 1, 1, 0, BUFFER]),
    }


def other_architectures():
    """A call with an x32 number (bit 30), and a 32-bit call: `mov eax, 20; int 0x80; ret`."""
    if not X86:
        return {}
    import mmap

    def gate():
        page = mmap.mmap(
            -1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        )
        page.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
        return ctypes.CFUNCTYPE(ctypes.c_int)(
            ctypes.addressof(ctypes.c_char.from_buffer(page))
        )()

    return {
        "x32": in_a_child(lambda: call(0x40000000 | 39, [])),
        "int80": in_a_child(gate),
    }


def set_id():
    """Every call that could make a set-uid or set-gid file."""
    path = b"/workspace/set-id"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o755))
    with_mode = os.O_CREAT | os.O_WRONLY | os.O_EXCL
    ways = {
        "fchmod": lambda: libc.fchmod(os.open(path, os.O_RDONLY), 0o4755),
        "chmod": lambda: libc.chmod(path, 0o4755),
        "setgid": lambda: libc.chmod(path, 0o2755),
        "fchmodat": lambda: libc.syscall(268 if X86 else 53, -100, path, 0o6755),
        "fchmodat2": lambda: libc.syscall(452, -100, path, 0o4755, 0),
        "openat": lambda: libc.openat(-100, path + b"2", with_mode, 0o4755),
        "tmpfile": lambda: libc.openat(
            -100, b"/workspace", os.O_TMPFILE | os.O_WRONLY, 0o4755
        ),
        "mknodat": lambda: libc.syscall(
            259 if X86 else 33, -100, path + b"3", 0o104755, 0
        ),
    }
    if X86:
        ways |= {
            "open": lambda: libc.syscall(2, path + b"4", with_mode, 0o4755),
            "creat": lambda: libc.syscall(85, path + b"5", 0o4755),
            "mknod": lambda: libc.syscall(133, path + b"6", 0o104755, 0),
        }
    answers = {}
    for name, way in ways.items():
        ctypes.set_errno(0)
        answers[name] = 0 if way() >= 0 else ctypes.get_errno()
    return answers


def of_others():
    pick = 0 if X86 else 1
    return {
        name: in_a_child(lambda row=row: call(row[pick], row[2]))
        for name, row in OF_OTHERS.items()
    }


def enosys():
    return {
        name: in_a_child(lambda row=row: call(*row))
        for name, row in ANSWER_ENOSYS.items()
    }


def huge_pages():
    """Refused whether or not the machine has any."""
    pick = 0 if X86 else 1
    return {
        "mmap": call((9, 222)[pick], [0, 2 << 20, 3, 0x22 | 0x40000, -1, 0]),
        "memfd_create": call((319, 279)[pick], [b"x", 4]),
        "shmget": call((29, 194)[pick], [0, 2 << 20, 0o4000 | 0o1600]),
    }


def filter_of_calls():
    """Try to add a seccomp filter without a program. EFAULT would mean that filters can be added."""
    number = 157 if X86 else 167
    return {
        "prctl": call(number, [22, 2, 0]),
        "upper_bits": call(number, [UPPER | 22, 2, 0]),
    }


def everyday():
    """Everyday calls, which must work."""
    import fcntl
    import subprocess
    import tempfile
    import threading

    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    left, right = socket.socketpair()
    left.sendall(b"x")
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    client.sendall(b"x")
    client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    reader, writer = os.pipe()
    with tempfile.NamedTemporaryFile() as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        os.fchmod(file.fileno(), 0o755)
        os.mkfifo(file.name + ".fifo")
    return {
        "thread": 0,
        "process": subprocess.run(["true"], check=False).returncode,
        "unix": len(right.recv(1)) - 1,
        "tcp": len(server.accept()[0].recv(1)) - 1,
        "netlink": len(socket.if_nameindex()) - 1,
        "memfd": os.close(os.memfd_create("x")) or 0,
        "udp": socket.socket(
            socket.AF_INET6, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, 17
        ).close()
        or 0,
        "nice": os.nice(1) - os.nice(0),
        "affinity": os.sched_setaffinity(0, os.sched_getaffinity(0)) or 0,
        "second_descriptor": os.close(fcntl.fcntl(reader, fcntl.F_DUPFD_CLOEXEC, 50))
        or 0,
        "wider_pipe": fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 1 << 17) - (1 << 17),
        "sealed_memory": fcntl.fcntl(os.memfd_create("x", 2), fcntl.F_GET_SEALS),
        "nodelay": client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1) or 0,
        "name": call(157 if X86 else 167, [15, b"renamed"]),
        "pidfd": os.close(os.pidfd_open(os.getpid())) or 0,
    }


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))

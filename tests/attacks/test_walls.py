"""Attacks from inside a sandbox that must fail. A script prints BREACH if it gets through."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.attacks.conftest import Attacker
from tests.conftest import Neighbour

import belljar

REFUSED = {
    "write to the root file system": """
        for d in / /etc /usr/bin /opt /.belljar-* /.belljar-*/link /dev; do touch $d/x && echo BREACH; done""",
    "replace the init": "cp /bin/true /.belljar-*/init && echo BREACH",
    "read the init": "cat /.belljar-*/init >/dev/null && echo BREACH",
    "make the init readable": "chmod 755 /.belljar-*/init && echo BREACH",
    "pull the emergency brake": "echo h > /proc/sysrq-trigger && echo BREACH",
    "choose the core handler": "echo x > /proc/sys/kernel/core_pattern && echo BREACH",
    "change kernel settings": "echo 1 > /proc/sys/vm/overcommit_memory && echo BREACH",
    "write to sysfs": """
        find /sys -type f -perm -u+w | while read -r f; do [ -f "$f" ] && (echo 1 > "$f") && echo BREACH; done""",
    "have the kernel watch the machine's load": """
        for f in /proc/pressure/*; do printf 'some 1900000 2000000\\0' 1<> $f && echo BREACH; done""",
    "make a cgroup": "for d in /sys/fs/cgroup /sys/fs/cgroup/*; do mkdir $d/x && echo BREACH; done",
    "leave its cgroup": "for f in $(find /sys/fs/cgroup -name cgroup.procs); do echo $$ > $f && echo BREACH; done",
    "raise its memory limit": """
        for f in $(find /sys/fs/cgroup -name memory.limit_in_bytes -o -name memory.max); do
            echo 9999999999 > $f && echo BREACH
        done""",
    "mount": "mount -t tmpfs none /tmp && echo BREACH",
    "unmount": "umount /proc/keys && echo BREACH; umount -l /workspace && echo BREACH",
    "get a user namespace": "unshare -U true && echo BREACH",
    "get a network namespace": "unshare -n true && echo BREACH",
    "get a mount namespace": "unshare -rm true && echo BREACH",
    "enter PID 1's namespaces": "nsenter -t 1 -m true && echo BREACH",
    "make a device": "mknod /tmp/sda b 8 0 && echo BREACH; mknod /tmp/mem c 1 1 && echo BREACH",
    "open a device": """
        for d in mem kmem port kmsg vda sda kvm fuse net/tun vhost-vsock; do head -c1 /dev/$d && echo BREACH; done""",
    "make a set-uid file": "cp /bin/bash ./suid-bash && chmod u+s ./suid-bash && echo BREACH",
    "make a set-gid file": "cp /bin/bash ./sgid-bash && chmod g+s ./sgid-bash && echo BREACH",
    "become root": "su -c true </dev/null && echo BREACH; setpriv --reuid 0 true && echo BREACH",
    "change root": "chroot / true && echo BREACH",
    "set the clock": "date -s 2000-01-01 && echo BREACH",
    "set the host name": "echo x > /proc/sys/kernel/hostname && echo BREACH",
    "look into PID 1": "for f in mem environ maps auxv; do head -c1 /proc/1/$f >/dev/null && echo BREACH; done",
    "walk through PID 1": """
        for l in root cwd exe ns/net; do readlink /proc/1/$l && echo BREACH; done; ls /proc/1/fd && echo BREACH""",
    "raise a hard limit": "for l in n c f l; do (ulimit -H$l unlimited && echo BREACH); done",
    "find the engine": "ls -d /var/run/docker.sock /run/docker.sock /run/containerd && echo BREACH",
    "read the kernel's secrets": """
        for f in /proc/{kallsyms,keys,kcore,config.gz,timer_list,iomem,modules,locks} /sys/kernel/{notes,vmcoreinfo}; do
            [ -n "$(head -c1 $f | tr '\\0' x)" ] && echo BREACH
        done
        [ -n "$(ls -A /sys/firmware)" ] && echo BREACH""",
    "read the kernel's log": "dmesg && echo BREACH",
    "watch the host's processes": "[ $(ls -d /proc/[0-9]* | wc -l) -lt 40 ] || echo BREACH",
    "leave through the workspace": '[ "$(ls -A /workspace/../../..)" = "$(ls -A /)" ] || echo BREACH',
    "resolve a name": "for n in example.com host.docker.internal; do getent hosts $n && echo BREACH; done",
    "find a route": "[ $(wc -l < /proc/net/route) -le 1 ] || echo BREACH",
    "change the accounts": """
        for f in passwd group gitconfig; do echo x >> /etc/$f && echo BREACH; chmod 777 /etc/$f && echo BREACH; done""",
    "change the hosts file": "echo '1.2.3.4 localhost' >> /etc/hosts && echo BREACH",
}


@pytest.mark.parametrize("script", REFUSED.values(), ids=REFUSED.keys())
async def test_an_escape_attempt_is_refused(attacker: Attacker, script: str) -> None:
    result = await attacker.bash(script)
    assert "BREACH" not in result.stdout, result.output


async def test_nothing_inside_is_root_or_has_a_capability(attacker: Attacker) -> None:
    result = await attacker.bash(
        "cat /proc/[0-9]*/status | grep -E '^(Uid|Gid|Groups|Cap[A-Z][a-z]+|NoNewPrivs|Seccomp):'"
    )
    rows = [line.split() for line in result.stdout.splitlines()]
    assert len(rows) > 10
    assert not [
        row for row in rows if row[0] in ("Uid:", "Gid:", "Groups:") and "0" in row[1:]
    ]
    assert not [row for row in rows if row[0].startswith("Cap") and int(row[1], 16)]
    assert {row[1] for row in rows if row[0] == "NoNewPrivs:"} == {"1"}
    assert {row[1] for row in rows if row[0] == "Seccomp:"} == {"2"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can plant a set-uid root file")
async def test_a_set_uid_file_of_root_has_no_effect(attacker: Attacker) -> None:
    planted = attacker.workspace / "planted"
    shutil.copy("/usr/bin/id", planted)
    uid = attacker.box.workspace.identity.uid
    os.chown(
        planted, uid, uid
    )  # the mount swaps this uid with 0, so inside root owns it (with oci, an unmapped user)
    planted.chmod(0o6755)
    result = await attacker.bash(
        "stat -c %u:%a /workspace/planted; /workspace/planted -u; /workspace/planted -g"
    )
    planted.unlink()
    shown, *ran_as = result.stdout.split()
    assert shown in ("0:6755", "65534:6755")
    assert ran_as == [str(uid), str(uid)]


async def test_files_made_inside_belong_to_the_workspace_s_owner(
    attacker: Attacker,
) -> None:
    await attacker.bash("mkdir -p made/deep && echo x > made/deep/file")
    owner = attacker.workspace.stat().st_uid
    assert (attacker.workspace / "made").stat().st_uid == owner
    assert (attacker.workspace / "made/deep/file").stat().st_uid == owner


async def test_a_symlink_to_the_host_leads_to_the_sandbox_s_own_file(
    attacker: Attacker,
) -> None:
    (attacker.workspace / "outside").symlink_to("/etc")
    result = await attacker.bash(
        "cat outside/hostname; ls outside/belljar-does-not-exist; touch outside/x && echo BREACH"
    )
    assert result.stdout == "sandbox\n"


async def test_the_host_s_environment_stays_outside(
    attacker: Attacker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BELLJAR_TEST_SECRET", "hunter2")
    result = await attacker.bash("cat /proc/*/environ | tr '\\0' '\\n'; env")
    assert "hunter2" not in result.output
    assert "HOME=/home/sandbox" in result.stdout


async def test_a_command_inherits_nothing_but_its_three_streams(
    attacker: Attacker,
) -> None:
    result = await attacker.python(
        "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1])"
    )
    assert result.stdout == "[0, 1, 2]\n"


@pytest.fixture
def host_service() -> Iterator[int]:
    """A service on all addresses of the host."""
    server = socket.create_server(("0.0.0.0", 0))
    thread = threading.Thread(target=_serve, args=(server,), daemon=True)
    thread.start()
    yield server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


def _serve(server: socket.socket) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        client.sendall(b"hello")
        client.close()


CONNECT = """
import socket, sys
for address in {addresses}:
    try:
        print("BREACH", socket.create_connection((address, {port}), timeout=2).recv(5))
    except OSError as error:
        print("refused", error.errno)
"""


async def test_a_neighbour_cannot_be_reached(
    attacker: Attacker, neighbour: Neighbour
) -> None:
    with socket.create_connection((neighbour.address, neighbour.port), timeout=5):
        pass  # the neighbour can be reached from the host
    result = await attacker.python(
        CONNECT.format(addresses=[neighbour.address], port=neighbour.port)
    )
    assert "BREACH" not in result.stdout
    assert "refused" in result.stdout


async def test_a_service_of_the_host_cannot_be_reached(
    attacker: Attacker, host_service: int
) -> None:
    addresses = [
        "127.0.0.1",
        "::1",
        "172.17.0.1",
        "0.0.0.0",
        socket.gethostbyname(socket.gethostname()),
        "169.254.169.254",
    ]
    result = await attacker.python(
        CONNECT.format(addresses=addresses, port=host_service)
    )
    assert "BREACH" not in result.stdout
    assert result.stdout.count("refused") == len(addresses)


async def test_an_abstract_socket_of_the_host_cannot_be_reached(
    attacker: Attacker,
) -> None:
    name = f"\0belljar-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        script = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({name!r}); print('BREACH')"
        result = await attacker.python(script)
    assert "BREACH" not in result.stdout
    assert "ConnectionRefusedError" in result.stderr


async def test_killing_everything_leaves_the_init_and_the_sandbox_usable(
    attacker: Attacker,
) -> None:
    result = await attacker.bash(
        "kill -STOP 1; kill -TERM 1; kill -KILL 1; kill -KILL -1; echo still here"
    )
    assert result.cause in ("exited", "signalled", "killed")
    again = await attacker.bash("echo usable")
    assert again.stdout == "usable\n"


async def test_the_link_directory_is_empty_and_read_only(attacker: Attacker) -> None:
    result = await attacker.bash(
        "ls -A /.belljar-*/link; ln -s x /.belljar-*/link/a.sock && echo BREACH"
    )
    assert result.stdout == ""


async def test_an_ordinary_image_s_tools_all_work(attacker: Attacker) -> None:
    script = """set -e
    cd /tmp && git init -q repo && cd repo && echo hi > a && git add a
    git -c user.name=n -c user.email=n@x commit -qm first && git log --oneline | wc -l
    printf 'all:\\n\\t@echo made\\n' > Makefile && make
    python3 -c 'import multiprocessing as m; print(m.get_context("spawn").Value("i", 7).value)'
    tar cf - a | tar tf - ; chmod 755 a; sort a | uniq -c | awk '{print $2}'; find . -name a; mktemp -d >/dev/null
    getent hosts localhost | awk '{print $2}'; ps -e >/dev/null; cp -a a b; ln b c; sync
    """
    result = await attacker.bash(script)
    assert result.stderr == ""
    assert result.stdout.split() == ["1", "made", "7", "a", "hi", "./a", "localhost"]


async def test_the_neighbour_can_be_reached_once_a_network_is_asked_for(
    base_image: str, workspace: Path, neighbour: Neighbour
) -> None:
    """Proves that the test above would notice: with a network the same attack gets through."""
    options = {
        "engine": "docker",
        "policy": "permissive",
        "approve": _yes,
    }  # oci has no network
    async with belljar.Session(workspace=workspace, network="full", **options) as box:
        connected = Attacker(box, workspace)
        script = CONNECT.format(
            addresses=[neighbour.address], port=neighbour.port
        ).replace(".recv(5)", "")
        assert "BREACH" in (await connected.python(script)).stdout
        status = await connected.bash(
            "grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t\\n'"
        )
        assert status.stdout == "CapEff:0000000000000000NoNewPrivs:1Seccomp:2"


def _yes(verdict: belljar.Verdict) -> bool:
    return True


# A command can open another command's terminal by its name (/dev/pts/N). It must not be able to do more.
ON_ANOTHER_S_TERMINAL = """
import fcntl, glob, os, termios
os.setsid() if os.getsid(0) != os.getpid() else None
for path in glob.glob("/dev/pts/[0-9]*"):
    other = os.open(path, os.O_RDWR)
    for what, request, value in [("typed", termios.TIOCSTI, b"x"), ("took it", termios.TIOCSCTTY, 1),
                                 ("signalled", termios.TIOCSPGRP, (os.getpgrp()).to_bytes(4, "little"))]:
        try:
            fcntl.ioctl(other, request, value)
            print("BREACH", what)
        except OSError:
            pass
    print("looked at", path)
"""


async def test_another_command_s_terminal_cannot_be_written_to_or_taken(
    attacker: Attacker,
) -> None:
    shell = await attacker.box.start("cat", pty=True)
    found = await attacker.python(ON_ANOTHER_S_TERMINAL)
    assert "BREACH" not in found.output
    assert "looked at" in found.stdout
    await shell.write(b"mine\n")
    seen = ""
    while seen.count("mine") < 2:  # once as echo, once printed by cat
        seen = (await shell.read(offset=0, wait=5.0)).stdout
    await shell.kill()

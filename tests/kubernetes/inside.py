"""PID 1 of a cluster: `python -m tests.kubernetes.inside ROOT PROGRAMS`, in namespaces of its own.

It makes the network, starts the control plane and the nodes, then serves its control socket: one JSON line is a request
(`{"do": "kill", "what": "n2"}`), one the answer. When it ends, the kernel ends everything below it: all processes,
mounts and interfaces. Only control groups outlive it; cluster.py removes those.

A node is a shell in PID, mount, UTS, IPC and network namespaces of its own: `kill` on it ends a whole machine at once.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.kubernetes.build import Build
from tests.kubernetes.layout import (
    BRIDGE,
    CONTROL,
    NODES,
    SERVICES,
    Layout,
    address,
    pods,
)
from tests.kubernetes.node import configure, script

GROUPS = (
    "cpu",
    "cpuacct",
    "cpuset",
    "memory",
    "devices",
    "freezer",
    "blkio",
    "pids",
    "systemd",
)
READY_SECONDS = 90
ETCD = "http://127.0.0.1:12379"
PEERS = "http://127.0.0.1:12380"


class Supervisor:
    def __init__(self, layout: Layout) -> None:
        self.layout, self.build = layout, Build(layout.programs)
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start_all(self) -> None:
        _ip("link", "set", "lo", "up")
        _ip("link", "add", BRIDGE, "type", "bridge")
        _ip("addr", "add", f"{CONTROL}/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")
        for part in ("etcd", "apiserver", "controllers", "scheduler", *NODES):
            self.start(part)

    def start(self, part: str) -> None:
        if part in NODES:
            self._start_node(part)
            return
        self._run(part, self._command(part))
        if part == "apiserver":
            self._await_apiserver()

    def kill(self, part: str) -> None:
        """As a crash would: nothing is told to anybody."""
        process = self.running.pop(part)
        process.kill()
        process.wait()

    def cut(self, node: str) -> None:
        _ip("link", "set", f"bj-{node}", "down")

    def heal(self, node: str) -> None:
        _ip("link", "set", f"bj-{node}", "up")

    def pids(self, part: str) -> int:
        return self.running[part].pid

    def _run(self, name: str, command: list[str], **options: Any) -> None:
        with (self.layout.log / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.layout.root,
                env={**os.environ, "AWS_EC2_METADATA_DISABLED": "true"}, **options,
            )  # fmt: skip

    def _command(self, part: str) -> list[str]:
        pki, root = self.layout.pki, self.layout.root
        if part == "etcd":
            return [
                str(self.build.program("etcd")), "--name=one", f"--data-dir={root / 'etcd'}", "--unsafe-no-fsync",
                f"--listen-client-urls={ETCD}", f"--advertise-client-urls={ETCD}", f"--listen-peer-urls={PEERS}",
                f"--initial-advertise-peer-urls={PEERS}", f"--initial-cluster=one={PEERS}",
            ]  # fmt: skip
        if part == "apiserver":
            return [
                str(self.build.program("kube-apiserver")), f"--etcd-servers={ETCD}", f"--bind-address={CONTROL}",
                f"--advertise-address={CONTROL}", "--secure-port=6443", "--insecure-port=0",
                f"--tls-cert-file={pki / 'apiserver.crt'}", f"--tls-private-key-file={pki / 'apiserver.key'}",
                f"--client-ca-file={pki / 'ca.crt'}", f"--token-auth-file={pki / 'tokens.csv'}",
                f"--service-cluster-ip-range={SERVICES}", f"--service-account-key-file={pki / 'sa.pub'}",
                f"--service-account-signing-key-file={pki / 'sa.key'}",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--api-audiences=https://kubernetes.default.svc", "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction", "--anonymous-auth=false",
                f"--kubelet-client-certificate={pki / 'to-kubelet.crt'}",
                f"--kubelet-client-key={pki / 'to-kubelet.key'}", f"--kubelet-certificate-authority={pki / 'ca.crt'}",
                "--kubelet-preferred-address-types=InternalIP", "--default-not-ready-toleration-seconds=5",
                "--default-unreachable-toleration-seconds=5", f"--cert-dir={root / 'certificates'}",
                "--profiling=false", "--v=1",
            ]  # fmt: skip
        if part == "controllers":
            return [
                str(self.build.program("kube-controller-manager")), f"--kubeconfig={self.layout.kubeconfig('kcm')}",
                "--port=0", "--bind-address=127.0.0.1", "--secure-port=10257", f"--cert-dir={root / 'certificates'}",
                f"--service-account-private-key-file={pki / 'sa.key'}", f"--root-ca-file={pki / 'ca.crt'}",
                # Without accounts of their own the controllers may not take the not-ready taint away.
                "--use-service-account-credentials=true", "--leader-elect=false", "--node-monitor-period=1s",
                "--node-monitor-grace-period=10s", "--pod-eviction-timeout=5s", "--allocate-node-cidrs=false",
                "--controllers=*,-ttl,-bootstrapsigner,-tokencleaner", "--v=1",
            ]  # fmt: skip
        return [
            str(self.build.program("kube-scheduler")), f"--kubeconfig={self.layout.kubeconfig('sched')}", "--port=0",
            "--bind-address=127.0.0.1", "--secure-port=10259", f"--cert-dir={root / 'certificates'}",
            "--leader-elect=false", "--v=1",
        ]  # fmt: skip

    def _await_apiserver(self) -> None:
        import ssl

        context = ssl.create_default_context(cafile=str(self.layout.pki / "ca.crt"))
        headers = {"Authorization": f"Bearer {self.layout.token('admin')}"}
        request = urllib.request.Request(
            f"https://{CONTROL}:6443/readyz", headers=headers
        )
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                with urllib.request.urlopen(request, timeout=5, context=context):
                    return
            except OSError:
                if (
                    time.monotonic() > deadline
                    or self.running["apiserver"].poll() is not None
                ):
                    raise
                time.sleep(0.2)

    def _start_node(self, node: str) -> None:
        if not (self.layout.root / "nodes" / node).exists():
            configure(self.layout, self.build, node)
        for group in _group_directories(self.layout.group, node):
            _make_group(group)
        # The script waits until its end of the cable is there.
        separate = [
            "unshare",
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--uts",
            "--ipc",
            "--mount-proc",
            "--kill-child",
        ]
        self._run(
            node,
            [*separate, "bash", "-eu", "-c", script(self.layout, self.build, node)],
        )
        subprocess.run(
            ["ip", "link", "del", f"bj-{node}"], capture_output=True, check=False
        )
        self._plug_in(node)

    def _plug_in(self, node: str) -> None:
        pid = _only_child(self.running[node].pid)
        _ip(
            "link",
            "add",
            f"bj-{node}",
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            str(pid),
        )
        _ip("link", "set", f"bj-{node}", "master", BRIDGE, "up")
        enter = ["nsenter", f"--net=/proc/{pid}/ns/net", "ip"]
        for words in (
            f"addr add {address(node)}/24 dev eth0",
            "link set lo up",
            "link set eth0 up",
            *(
                f"route add {pods(other)} via {address(other)}"
                for other in NODES
                if other != node
            ),
        ):
            subprocess.run([*enter, *words.split()], check=True)
        _ip("route", "replace", pods(node), "via", address(node))


def _only_child(pid: int) -> int:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            return int(children[0])
        time.sleep(0.01)
    raise TimeoutError("the node's first process did not start")


def _group_directories(group: str, node: str) -> list[Path]:
    return [
        Path("/sys/fs/cgroup", each, group, node)
        for each in GROUPS
        if Path("/sys/fs/cgroup", each).is_dir()
    ]


def _make_group(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for made in (directory.parent, directory):
        for name in (
            ("cpuset.cpus", "cpuset.mems") if "cpuset" in directory.parts else ()
        ):
            (made / name).write_text((made.parent / name).read_text())


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def serve(supervisor: Supervisor) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(supervisor.layout.control))
    listener.listen()
    while True:
        caller, _ = listener.accept()
        with caller, caller.makefile("rw") as lines:
            asked = json.loads(lines.readline())
            try:
                answer: dict[str, Any] = {
                    "ok": getattr(supervisor, asked["do"])(asked["what"])
                }
            except (OSError, KeyError, subprocess.SubprocessError) as error:
                answer = {"error": repr(error)}
            lines.write(json.dumps(answer) + "\n")


def main() -> None:
    if os.getpid() != 1:
        sys.exit("kubernetes: this runs only as PID 1 of namespaces of its own")
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    supervisor = Supervisor(Layout(Path(sys.argv[1]), Path(sys.argv[2])))
    supervisor.layout.log.mkdir(exist_ok=True)
    supervisor.start_all()
    serve(supervisor)


if __name__ == "__main__":
    main()

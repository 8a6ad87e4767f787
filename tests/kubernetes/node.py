"""One node of the cluster: configuration of its kubelet and containerd, and the script that is its first process."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from tests.kubernetes.build import Build
from tests.kubernetes.layout import PAUSE, Layout, address, pods

PLUGINS = ("bridge", "host-local", "loopback")
# A CNI plugin that adds no interface: a Pod of the runtime class `nonet` has only `lo`. The address is a placeholder,
# without which containerd does not accept the Pod.
NO_NETWORK = """#!/bin/sh
cat >/dev/null
case "$CNI_COMMAND" in
VERSION) echo '{"cniVersion":"0.4.0","supportedVersions":["0.3.1","0.4.0"]}';;
ADD) printf '{"cniVersion":"0.4.0","interfaces":[{"name":"%s","sandbox":"%s"}],"ips":[{"version":"4","interface":0,"address":"169.254.255.254/32"}]}\\n' "$CNI_IFNAME" "$CNI_NETNS";;
esac
"""  # noqa: E501
# The kubelet wants these values. It gets files of the node's own, so that the machine's stay as they are.
SYSCTLS = {"vm/overcommit_memory": 1, "kernel/panic": 10, "kernel/panic_on_oops": 1}


def configure(layout: Layout, build: Build, node: str) -> None:
    place = layout.root / "nodes" / node
    for directory in ("lib", "log", "cni", "cni-none", "plugins"):
        (place / directory).mkdir(parents=True)
    for plugin in PLUGINS:
        (place / "plugins" / plugin).symlink_to(build.program(plugin))
    none = place / "plugins" / "none"
    none.write_text(NO_NETWORK)
    none.chmod(0o755)
    ipam = {
        "type": "host-local",
        "subnet": pods(node),
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "ipam": ipam,
    }
    _network(place / "cni", "pods", bridge)
    _network(place / "cni-none", "none", {"type": "none"})
    (place / "containerd.toml").write_text(_containerd(place))
    (place / "kubelet.json").write_text(json.dumps(_kubelet(layout, node)))


def _network(directory: Path, name: str, plugin: dict[str, object]) -> None:
    (directory / "10.conflist").write_text(
        json.dumps({"cniVersion": "0.4.0", "name": name, "plugins": [plugin]})
    )


def _containerd(place: Path) -> str:
    cri = '[plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
{cri}]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
{cri}.cni]
  bin_dir = "{place / "plugins"}"
  conf_dir = "{place / "cni"}"
{cri}.containerd]
  default_runtime_name = "runc"
{cri}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
{cri}.containerd.runtimes.nonet]
  runtime_type = "io.containerd.runc.v2"
  cni_conf_dir = "{place / "cni-none"}"
  cni_max_conf_num = 1
"""


def _kubelet(layout: Layout, node: str) -> dict[str, object]:
    authentication = {
        "anonymous": {"enabled": False}, "webhook": {"enabled": False},
        "x509": {"clientCAFile": str(layout.pki / "ca.crt")},
    }  # fmt: skip
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "address": address(node),
        "port": 10250, "readOnlyPort": 0, "healthzBindAddress": "127.0.0.1", "authentication": authentication,
        "authorization": {"mode": "AlwaysAllow"}, "tlsCertFile": str(layout.pki / f"{node}.crt"),
        "tlsPrivateKeyFile": str(layout.pki / f"{node}.key"), "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.group}/{node}", "failSwapOn": False, "resolvConf": "", "maxPods": 110,
        "nodeStatusUpdateFrequency": "2s", "nodeLeaseDurationSeconds": 8, "kubeAPIQPS": 50, "kubeAPIBurst": 100,
        "registryPullQPS": 0, "eventRecordQPS": 0, "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi"}, "makeIPTablesUtilChains": False,
        "streamingConnectionIdleTimeout": "5m",
        # Else a volume in memory has no size of its own; on by default since 1.22.
        "featureGates": {"SizeMemoryBackedVolumes": True},
    }  # fmt: skip


def script(layout: Layout, build: Build, node: str) -> str:
    """What PID 1 of the node runs."""
    place, log = layout.root / "nodes" / node, layout.log
    fakes = "\n".join(
        f"echo {value} >/run/fake-{number}; mount --bind /run/fake-{number} /proc/sys/{name}"
        for number, (name, value) in enumerate(SYSCTLS.items())
    )
    kubelet = [
        str(build.program("kubelet")), f"--config={place / 'kubelet.json'}", f"--kubeconfig={layout.kubeconfig(node)}",
        f"--hostname-override={node}", f"--node-ip={address(node)}", "--container-runtime=remote",
        "--container-runtime-endpoint=unix:///run/containerd/containerd.sock", f"--pod-infra-container-image={PAUSE}",
        "--root-dir=/var/lib/kubelet", "--v=1",
    ]  # fmt: skip
    path = ":".join(str(build.root / each) for each in ("usr/bin", "usr/sbin"))
    ctr = "ctr --address /run/containerd/containerd.sock"
    return f"""[ $$ = 1 ]
export PATH={shlex.quote(path)}:$PATH
hostname {node}
mount --make-rshared /
mount --bind {place / "lib"} /var/lib
mount --bind {place / "log"} /var/log
mount -t tmpfs tmpfs /run
mkdir -p /run/netns /run/lock
{fakes}
until ip link show eth0 2>/dev/null | grep -q 'state UP'; do sleep 0.05; done
containerd --config {place / "containerd.toml"} >>{log}/{node}-containerd.log 2>&1 &
until {ctr} version >/dev/null 2>&1; do sleep 0.1; done
for image in {layout.images}/*.tar; do {ctr} -n k8s.io images import $image >>{log}/{node}-images.log; done
exec {shlex.join(kubelet)}
"""

"""`make kubernetes-test`, or `python -m tests.kubernetes [PART…]`: everything that needs a real cluster.

    build      Kubernetes from Debian's sources, once (about seven minutes of two idle processors)
    cluster    etcd, API server, controllers, scheduler and two nodes, in namespaces of their own
    contract   the suite that every engine must pass
    sessions   sessions, staged workspaces, shells, files, ports, pools, walls, the doctor
    rights     the manifests: accepted, enough, and not a right more; a quota
    warm       Pods that wait in the namespace: claims of several hosts, refill
    pools      claims from a SandboxWarmPool (with a stand-in for its controller); images pulled beforehand
    serve      `belljar serve`: two replicas on PostgreSQL, a rolling update under a running command
    faults     a node killed, its network cut, the API server restarted, a Pod evicted, streams cut
    figures    the engine's timings beside Docker's, in the same run
    many       a hundred sessions at once, the same way

The minutes of each step are printed. Needs root, Docker with the base image, openssl and iproute2; `make` sees to the
first two. KUBERNETES=/some/dir says where the programs are kept (700 MB); whatever happens, the cluster is taken down.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kubernetes import serve_image
from tests.kubernetes.build import Build
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.layout import NAMESPACE, REGISTRY

from belljar.images import catalog

RUNTIME = "nonet"
OBJECTS = f"""
apiVersion: v1
kind: Namespace
metadata: {{name: {NAMESPACE}}}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {{name: {RUNTIME}}}
handler: {RUNTIME}
"""
PYTEST = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
PARTS = {
    "contract": [*PYTEST, "-k", "bridge", "tests/engines/test_contract.py"],
    "sessions": [*PYTEST, "tests/kubernetes/sessions.py"],
    "rights": [*PYTEST, "tests/kubernetes/rights.py"],
    "warm": [*PYTEST, "-s", "tests/kubernetes/warm.py"],
    "pools": [*PYTEST, "-s", "tests/kubernetes/pools.py"],
    "serve": [*PYTEST, "-s", "tests/kubernetes/serving.py"],
    "faults": [*PYTEST, "-s", "tests/kubernetes/faults.py"],
    "figures": [sys.executable, "-m", "tests.kubernetes.figures"],
    "many": [sys.executable, "-m", "tests.kubernetes.figures", "many"],
}


def main(words: list[str]) -> int:
    if unknown := set(words) - set(PARTS):
        sys.exit(
            f"kubernetes: no part is called {', '.join(unknown)}; there are {', '.join(PARTS)}"
        )
    if os.geteuid() != 0:
        sys.exit("kubernetes: this needs root, for namespaces")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("kubernetes: told to end"))
    build = Build(Path(os.environ.get("KUBERNETES") or Path(sys.prefix, ".kubernetes")))
    if not build.is_complete:
        with _timed("build"):
            build.make()
    failed = []
    with _timed("all"), _cluster(build) as cluster:
        for part in words or PARTS:
            with _timed(part):
                done = subprocess.run(
                    cluster.enter(PARTS[part]),
                    env=_environment(cluster),
                    stdin=subprocess.DEVNULL,
                )
            failed += [part] if done.returncode else []
    print(
        f"kubernetes: {'FAILED: ' + ', '.join(failed) if failed else 'ok'}", flush=True
    )
    return len(failed)


@contextmanager
def _cluster(build: Build) -> Iterator[Cluster]:
    with _timed("image of the service"):
        service = serve_image.make()
    cluster = Cluster(build, [catalog.reference("base"), service])
    with _timed("cluster"):
        cluster.__enter__()
    try:
        kubectl = [str(build.program("kubectl")), f"--kubeconfig={cluster.kubeconfig}"]
        for words, given in ((["apply", "-f", "-"], OBJECTS), (["wait", "--for=condition=Ready", "node", "--all",
                                                                "--timeout=120s"], "")):  # fmt: skip
            _until_done(cluster.enter([*kubectl, *words]), given)
        yield cluster
    finally:
        cluster.__exit__(None, None, None)


def _until_done(command: list[str], given: str) -> None:
    """Nodes register a moment after they were started."""
    for patience in range(60, -1, -1):
        done = subprocess.run(command, input=given, capture_output=True, text=True)
        if done.returncode == 0:
            return
        if not patience:
            raise RuntimeError(done.stderr)
        time.sleep(1)


def _environment(cluster: Cluster) -> dict[str, str]:
    return {
        **os.environ, "KUBECONFIG": str(cluster.kubeconfig), "BELLJAR_ENGINE": "kubernetes", "BELLJAR_RUNTIME": RUNTIME,
        "BELLJAR_KUBERNETES_NAMESPACE": NAMESPACE, "BELLJAR_KUBERNETES_IMAGES": REGISTRY,
        "BELLJAR_TEST_ENGINES": "kubernetes", "BELLJAR_TEST_CLUSTER": str(cluster.layout.root),
        "BELLJAR_TEST_PROGRAMS": str(cluster.layout.programs),
    }  # fmt: skip


@contextmanager
def _timed(step: str) -> Iterator[None]:
    begun = time.monotonic()
    try:
        yield
    finally:
        print(
            f"kubernetes: {step}: {(time.monotonic() - begun) / 60:.1f} min", flush=True
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

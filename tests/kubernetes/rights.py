"""The manifests on a real cluster: accepted as they are, enough for the engine, and not a right more."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from tests.kubernetes.conftest import OPTIONS

from belljar import Session
from belljar.engines.kubernetes.manifests import ACCOUNT, Wanted, as_text, manifests
from belljar.errors import QuotaExceeded
from belljar.host import Host

NAMESPACE = f"belljar-rights-{os.getpid()}"
FORBIDDEN = (
    ("get", "secrets", NAMESPACE), ("list", "configmaps", NAMESPACE), ("create", "deployments.apps", NAMESPACE),
    ("deletecollection", "pods", NAMESPACE), ("patch", "pods/status", NAMESPACE),
    ("create", "rolebindings.rbac.authorization.k8s.io", NAMESPACE),
    ("get", "nodes", ""), ("list", "pods", "kube-system"), ("create", "pods", "default"),
    ("create", "serviceaccounts/token", NAMESPACE), ("delete", "namespaces", ""),
)  # fmt: skip


@pytest.fixture(scope="module")
def applied(kubectl: Callable[..., str]) -> Iterator[str]:
    """The service is only tried: its image is not here. This old server knows the budget by another version."""
    wanted = Wanted(
        namespace=NAMESPACE,
        images="registry.invalid/",
        sandboxes=2,
        memory="2Gi",
        cpus=4,
    )
    kubectl("apply", "-f", "-", given=as_text(manifests(wanted, service=False)))
    service = [
        each for each in manifests(wanted) if each["kind"] in ("Deployment", "Service")
    ]
    assert len(service) == 2
    kubectl("apply", "--dry-run=server", "-f", "-", given=as_text(service))
    yield wanted.namespace
    kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture
def host(applied: str, become: Callable[[str], None], tmp_path: Path) -> Host:
    become(applied)
    return Host(engine="kubernetes", state=tmp_path / "state")


async def test_the_account_s_rights_are_enough_for_a_session(
    host: Host, workspace: Path
) -> None:
    async with Session(workspace, host=host, **OPTIONS) as box:
        assert (await box.run("echo enough")).stdout == "enough\n"
    assert (await to_thread.run_sync(host.connect().describe)).findings[0].ok
    await to_thread.run_sync(host.close)


@pytest.mark.parametrize(("verb", "resource", "namespace"), FORBIDDEN)
def test_the_account_may_do_nothing_else(
    applied: str, kubectl: Callable[..., str], verb: str, resource: str, namespace: str
) -> None:
    group, _, name = resource.partition(".")
    base, _, subresource = group.partition("/")
    attributes = {
        "verb": verb,
        "resource": base,
        "subresource": subresource,
        "group": name,
        "namespace": namespace,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}", "resourceAttributes": attributes},
    }  # fmt: skip
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    answer = json.loads(
        kubectl("create", "--raw", path, "-f", "-", given=json.dumps(review))
    )
    assert answer["status"]["allowed"] is False


def test_an_exhausted_quota_is_told_and_the_others_go_on(
    host: Host, workspace: Path, kubectl: Callable[..., str]
) -> None:
    kubectl(
        "-n",
        NAMESPACE,
        "patch",
        "resourcequota",
        "belljar",
        "-p",
        '{"spec": {"hard": {"pods": "1"}}}',
    )

    async def story() -> str:
        async with Session(workspace, host=host, **OPTIONS) as box:
            with pytest.raises(QuotaExceeded, match="exceeded quota") as told:
                async with Session(workspace, host=host, **OPTIONS):
                    pass
            assert told.value.code == "quota_exceeded"
            return (await box.run("echo on")).stdout

    assert anyio.run(story) == "on\n"
    host.close()

"""Docker's description of a container, translated into the spec's terms."""

from __future__ import annotations

from typing import Any

import pytest

from belljar.engines.docker.claims import claims
from belljar.engines.docker.create_body import create_body
from belljar.engines.docker.dialect import Dialect
from belljar.engines.spec import Protections, SandboxSpec


def inspected(spec: SandboxSpec, dialect: Dialect) -> dict[str, Any]:
    body = create_body(spec, dialect)
    return {"HostConfig": body["HostConfig"], "Config": {"User": body["User"]}}


def test_a_container_made_as_asked_claims_the_specs_protections(
    spec: SandboxSpec,
) -> None:
    assert claims(inspected(spec, Dialect()), Dialect(), "x86_64") == spec.protections


def test_an_empty_document_claims_nothing() -> None:
    found = claims({}, Dialect(), "x86_64")
    assert found == Protections(
        user="", no_new_privileges=False, own_namespaces=frozenset()
    )


@pytest.mark.parametrize(
    ("item", "value", "field"),
    [
        ("Memory", 0, "memory"),
        ("MemorySwap", -1, "swap"),
        ("PidsLimit", None, "pids"),
        ("NanoCpus", 0, "cpus"),
        ("ReadonlyRootfs", False, "read_only_root"),
        ("CapDrop", None, "capabilities"),
        ("CapAdd", ["SYS_ADMIN"], "capabilities"),
        ("SecurityOpt", ["no-new-privileges", "seccomp=unconfined"], "seccomp"),
        ("SecurityOpt", ["no-new-privileges"], "seccomp"),
        ("NetworkMode", "host", "network"),
        ("PidMode", "host", "own_namespaces"),
        ("IpcMode", "shareable", "own_namespaces"),
        ("CgroupnsMode", "host", "own_namespaces"),
        ("Binds", ["/:/host"], "extras"),
        ("Devices", [{"PathOnHost": "/dev/mem"}], "extras"),
        ("Privileged", True, "extras"),
        ("MaskedPaths", [], "masked_paths"),
        ("Ulimits", None, "ulimits"),
        ("AutoRemove", False, "removes_itself"),
    ],
)
def test_each_deviation_shows_in_its_claim(
    spec: SandboxSpec, item: str, value: Any, field: str
) -> None:
    document = inspected(spec, Dialect())
    document["HostConfig"] = {**document["HostConfig"], item: value}
    found = claims(document, Dialect(), "x86_64")
    assert getattr(found, field) != getattr(spec.protections, field)

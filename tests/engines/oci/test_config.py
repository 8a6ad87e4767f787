"""A spec as the runtime's config.json, and the protections that such a file claims."""

import dataclasses
from typing import Any

import pytest

from belljar.engines.oci.config import claims, document
from belljar.engines.spec import SandboxSpec


def written(spec: SandboxSpec) -> dict[str, Any]:
    return document(
        spec, "/at", {"type": "user", "path": "/proc/self/ns/user"}, ((), ()), "/group"
    )


def test_a_config_made_as_asked_claims_the_specs_protections(spec: SandboxSpec) -> None:
    asked = dataclasses.replace(
        spec.protections, ulimits=None
    )  # Belljar sets these itself before the runtime starts
    assert claims(written(spec)) == asked


@pytest.mark.parametrize(
    ("part", "change", "field"),
    [
        ("process", {"noNewPrivileges": False}, "no_new_privileges"),
        ("root", {"readonly": False}, "read_only_root"),
        ("linux", {"seccomp": {}}, "seccomp"),
        ("linux", {"maskedPaths": []}, "masked_paths"),
        ("linux", {"namespaces": [{"type": "pid"}]}, "own_namespaces"),
    ],
)
def test_each_deviation_shows_in_its_claim(
    spec: SandboxSpec, part: str, change: dict[str, Any], field: str
) -> None:
    config = written(spec)
    config[part] = {**config[part], **change}
    assert getattr(claims(config), field) != getattr(spec.protections, field)

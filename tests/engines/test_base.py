"""Each engine has all the verbs, with the parameters that callers pass."""

import inspect

import pytest

from belljar.engines.base import Engine
from belljar.engines.docker.engine import DockerEngine
from belljar.engines.kubernetes.engine import KubernetesEngine
from belljar.engines.oci.engine import OciEngine

VERBS = [
    name
    for name, found in inspect.getmembers(Engine, inspect.isfunction)
    if not name.startswith("_")
]


@pytest.mark.parametrize("kind", [DockerEngine, OciEngine, KubernetesEngine])
@pytest.mark.parametrize("verb", VERBS)
def test_an_engine_s_methods_have_the_signatures_of_the_interface(
    kind: type, verb: str
) -> None:
    asked = inspect.signature(getattr(Engine, verb)).parameters
    found = inspect.signature(getattr(kind, verb)).parameters
    assert [(each.name, each.kind) for each in found.values()] == [
        (each.name, each.kind) for each in asked.values()
    ]

"""How Belljar uses a cluster: settings of the environment."""

from __future__ import annotations

import pytest

from belljar.engines.kubernetes.settings import PREFIX, Settings, from_environment
from belljar.errors import UsageError


def test_without_settings_the_context_decides() -> None:
    assert from_environment() == Settings()


def test_each_setting_is_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "CONTEXT": "prod", "NAMESPACE": "agents", "IMAGES": "r.example.com/", "NODE_SELECTOR": '{"pool": "a"}',
        "TOLERATIONS": '[{"key": "a"}]', "REQUESTS": "0.5", "SECCOMP": "b.json", "MACHINE": "aarch64",
        "PULL_SECRET": "pull", "WARM": "1", "WARM_POOL": "agents", "PRIORITY_CLASS": "low",
    }  # fmt: skip
    for name, value in given.items():
        monkeypatch.setenv(PREFIX + name, value)
    assert from_environment("gvisor") == Settings(
        "prod",
        "agents",
        "r.example.com/",
        "gvisor",
        {"pool": "a"},
        ({"key": "a"},),
        0.5,
        "b.json",
        "aarch64",
        "pull",
        True,
        "agents",
        "low",
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("NAMESPACE", "No Good"), ("NODE_SELECTOR", "[]"), ("NODE_SELECTOR", "{"), ("TOLERATIONS", "{}"),
     ("REQUESTS", "2"), ("REQUESTS", "x"), ("MACHINE", "mips"), ("PULL_SECRET", "a b"),
     ("WARM", "yes"), ("WARM_POOL", "../a"), ("PRIORITY_CLASS", "A")],
)  # fmt: skip
def test_a_setting_that_makes_no_sense_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(PREFIX + name, value)
    with pytest.raises(UsageError, match=PREFIX + name):
        from_environment()


def test_a_runtime_class_has_the_form_of_a_name() -> None:
    with pytest.raises(UsageError, match="RUNTIME"):
        from_environment("/usr/bin/runsc")

"""Variables whose value is not the last one assigned: local ones, read-only ones, references."""

from __future__ import annotations

import pytest

from belljar.policy import Policy

MISLEADING = [
    "f() { local D=/tmp/x; }; D=/workspace; f; rm -rf $D/*",
    "f() { local D=/tmp/x; }; f; rm -rf $D/*",
    "f() { false && local D; D=/workspace; }; D=/tmp/x; f; rm -rf $D/*",
    "f() { declare -g D=/workspace; }; D=/tmp/x; f; rm -rf $D/*",
    "f() { local -r D=/workspace; read D <<< /tmp/x; rm -rf $D/*; }; f",
    "D=/tmp/x; f() { local D; rm -rf $D/*; }; f",
    "D=/tmp/x; f() { builtin declare D; rm -rf $D/*; }; f",
    "readonly D=/workspace; read D <<< /tmp/x; rm -rf $D/*",
    "D=/workspace; builtin readonly D; printf -v D /tmp/x; rm -rf $D/*",
    "declare -r D=/workspace; for D in /tmp/x; do :; done; rm -rf $D/*",
    "D=/tmp/x; declare -n R=D; R=/workspace; rm -rf $D/*",
    "declare -n R; R=D; D=/tmp/x; R=/workspace; rm -rf $D/*",
    "FUNCNAME=/tmp/x; rm -rf /workspace/$FUNCNAME",
]
HARMLESS = [
    "f() { local -r D=$1; rm -rf $D/*; }; f /tmp/x; f /tmp/y",
    'd=build; clean() { local d=/tmp/x; rm -rf "$d"; }; clean; rm -rf "$d"',
    'f() { local d; d=$(mktemp -d); rm -rf "$d"; }; f',
    'readonly ROOT=/workspace/build; mkdir -p "$ROOT"; rm -rf "$ROOT"/*',
]


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy.load("default")


@pytest.mark.parametrize("command", MISLEADING)
def test_a_declaration_that_may_not_take_effect_is_not_trusted(
    policy: Policy, command: str
) -> None:
    assert policy.judge(command).decision != "allow"


@pytest.mark.parametrize("command", HARMLESS)
def test_harmless_declarations_are_allowed(policy: Policy, command: str) -> None:
    assert policy.judge(command).decision == "allow"

"""The shipped policies: their examples hold, and blocked effects are denied however a command is written."""

import os
import subprocess
import sys

import pytest

from belljar.policy import BUILT_IN, Policy
from belljar.policy.examples import check_examples

BLOCKED = [
    "rm -rf /",
    "rm -rf ~",
    "rm -rf *",
    "sudo rm -rf build",
    "format C:",
    "mkfs.ext4 /dev/sda1",
    "dd if=/dev/zero of=/dev/sda",
    "echo x > /dev/sda",
    ":(){ :|:& };:",
    "chmod -R 777 /",
    "chown -R me /",
    "cd / && rm -fr -- *",
    "find / -delete",
    "bash -c 'rm -r -f /'",
    "r''m -rf ${HOME%/*}/..",
    "echo cm0gLXJmIC8= | base64 -d | sh",
    "python3 -c 'import shutil; shutil.rmtree(\"/\")'",
]
EVERYDAY = [
    "rm -rf /tmp/build",
    "dd if=/dev/urandom of=/tmp/x bs=1M count=1",
    "chown -R me /workspace/out",
    "npm test",
]


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_rule_of_a_shipped_policy_holds_on_its_own_examples(name: str) -> None:
    check_examples(Policy.load(name), remember=False)


@pytest.mark.parametrize("command", BLOCKED)
@pytest.mark.parametrize("name", ["default", "strict", "ci", "literal"])
def test_commands_that_the_tool_documents_block_are_denied(
    name: str, command: str
) -> None:
    assert Policy.load(name).judge(command).decision == "deny"


@pytest.mark.parametrize("command", [c for c in BLOCKED if "build" not in c])
def test_permissive_still_denies_what_would_harm_the_host(command: str) -> None:
    assert Policy.load("permissive").judge(command).decision == "deny"


@pytest.mark.parametrize("command", EVERYDAY)
def test_default_allows_everyday_commands_that_the_documents_patterns_block(
    command: str,
) -> None:
    verdict = Policy.load("default").judge(command)
    assert verdict.decision == "allow"
    assert verdict.risk in ("medium", "high")


@pytest.mark.parametrize(
    "command",
    ["rm -rf /tmp/build", "dd if=/dev/urandom of=/tmp/x", "chown -R me /workspace/out"],
)
def test_literal_denies_whatever_the_documents_patterns_match(command: str) -> None:
    assert Policy.load("literal").judge(command).decision == "deny"


@pytest.mark.parametrize(
    ("command", "risk"),
    [
        ("sudo apt-get install jq", "high"),
        ("npm install", "high"),
        ("pip install x", "high"),
        ("cargo install x", "high"),
        ("git push", "high"),
        ("rm -rf build", "high"),
        ("make", "medium"),
        ("ls -la", "low"),
        ("cat README.md", "low"),
        ("rm -rf /", "blocked"),
    ],
)
def test_each_command_has_the_risk_of_the_table(command: str, risk: str) -> None:
    assert Policy.load("default").judge(command).risk == risk


def test_ci_denies_what_default_asks_about() -> None:
    assert Policy.load("default").judge("sudo ls").decision == "ask"
    assert Policy.load("ci").judge("sudo ls").decision == "deny"


@pytest.mark.parametrize(
    "program",
    [
        "ls",
        "find",
        "cat",
        "head",
        "mkdir",
        "rm",
        "git",
        "npm",
        "node",
        "python3",
        "grep",
        "sed",
        "awk",
        "pwd",
        "whoami",
        "date",
    ],
)
def test_strict_allows_the_programs_of_family_c(program: str) -> None:
    assert Policy.load("strict").judge([program, "x"]).decision == "allow"
    assert Policy.load("strict").judge([program.upper(), "x"]).decision == "allow"


@pytest.mark.parametrize(
    "argv",
    [
        ["sudo", "ls"],
        ["curl", "x"],
        ["bash", "-c", "ls"],
        ["kill", "12"],
        ["dd", "if=a"],
    ],
)
def test_strict_denies_the_denylist_of_family_c(argv: list[str]) -> None:
    ids = {rule.id for rule in Policy.load("strict").judge(argv).rules}
    assert ids & {"strict.denylist", "strict.bash-c"}


def test_strict_denies_any_other_program() -> None:
    verdict = Policy.load("strict").judge(["make"])
    assert verdict.decision == "deny"
    assert verdict.rules[0].id == "allowlist"


def test_an_argument_vector_has_no_shell_in_between() -> None:
    assert Policy.load("default").judge(["echo", "; rm -rf /"]).decision == "allow"
    assert (
        Policy.load("default").judge(["rm", "-rf", "*"]).decision == "allow"
    )  # a file that is called *
    assert Policy.load("default").judge(["rm", "-rf", "/"]).decision == "deny"


def test_the_policys_import_leaves_out_what_only_a_parse_or_a_digest_needs() -> None:
    heavy = "{'subprocess', 'shutil', 'logging', 'hashlib', 'regex', 'tomllib'}"
    script = f"import sys, belljar.policy; print(sorted({heavy} & set(sys.modules)))"
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("COV")
    }  # it imports some
    command = [sys.executable, "-c", script]
    assert (
        subprocess.run(
            command, capture_output=True, text=True, check=True, env=environment
        ).stdout
        == "[]\n"
    )


@pytest.mark.parametrize(
    "command",
    [
        "touch /usr/bin/x",
        "echo a >> /etc/passwd",
        "echo x > /etc/cron.d/x",
        "rm -rf /opt",
    ],
)
def test_in_a_sandbox_with_its_own_root_the_system_is_scratch(command: str) -> None:
    policy = Policy.load("default")
    assert policy.judge(command).decision == "deny"
    verdict = policy.judge(command, root=True)
    assert verdict.decision == "allow"
    assert "system" not in {effect.path_class for effect in verdict.effects}


@pytest.mark.parametrize(
    "command",
    ["rm -rf /", "cat /etc/shadow", "echo x > /workspace/.git/hooks/pre-commit"],
)
def test_a_root_of_its_own_changes_nothing_else(command: str) -> None:
    assert Policy.load("default").judge(command, root=True).decision == "deny"


def test_the_policy_none_looks_at_no_command_and_says_so() -> None:
    none = Policy.load("none")
    for command in ("rm -rf /", ["sudo", "x"], "if", "x" * 3_000_000):
        verdict = none.judge(command)
        assert (verdict.decision, verdict.policy.split("@")[0]) == ("allow", "none")
        assert verdict.reason.startswith("Not judged")
    assert none.judge("a\0b").decision == "deny"  # the kernel takes no such text


def test_a_layer_over_the_policy_none_judges() -> None:
    none = Policy.load("none")
    assert Policy.restored(none.as_dict()).judge("rm -rf /").decision == "allow"
    assert none.tighten("default").judge("rm -rf /").decision == "deny"
    assert Policy.load("default").tighten("none").judge("rm -rf /").decision == "deny"

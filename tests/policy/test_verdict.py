"""Verdicts, as shown to machines, to people and in the log."""

import logging

import pytest

from belljar.policy import Policy
from belljar.policy.marks import show

POLICY = Policy.load("default")


def test_a_verdict_has_the_fields_of_the_contract() -> None:
    found = POLICY.judge("rm -rf /").as_dict()
    assert set(found) == {"decision", "risk", "reason", "rules", "canonical"}
    assert set(found["rules"][0]) == {"id", "decision", "risk", "reason"}
    assert "effects" in POLICY.judge("ls").as_dict(effects=True)


def test_an_effect_lists_the_programs_that_lead_to_it() -> None:
    verdict = POLICY.judge("bash -c 'echo / | xargs rm -rf'")
    deletion = next(effect for effect in verdict.effects if effect.kind == "delete")
    assert deletion.trail == ("bash", "xargs", "rm")
    assert (deletion.target, deletion.path_class) == ("/", "root")
    assert "bash → xargs → rm" in verdict.explain()


def test_the_reason_says_what_to_do_instead() -> None:
    assert "Name the directory inside /workspace" in POLICY.judge("rm -rf /").reason


def test_blocked_is_exactly_denied() -> None:
    for command in ("rm -rf /", "sudo ls", "ls", "make", "echo 'a"):
        verdict = POLICY.judge(command)
        assert (verdict.risk == "blocked") == (verdict.decision == "deny")


def test_the_digest_binds_text_directory_and_policy() -> None:
    one = POLICY.judge("sudo ls")
    assert one.digest == POLICY.judge("  sudo ls\n").digest
    assert one.digest != POLICY.judge("sudo ls", cwd="/tmp").digest
    assert one.digest != Policy.load("strict").judge("sudo ls").digest


def test_each_decision_is_logged_with_rule_ids_and_policy_version(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, logger="belljar.policy"):
        POLICY.judge("rm -rf /")
    record = caplog.records[-1]
    assert "delete.root" in record.rules  # type: ignore[attr-defined]
    assert record.policy == str(POLICY)  # type: ignore[attr-defined]


def test_the_state_of_a_persistent_shell_is_traced_between_commands() -> None:
    state = POLICY.judge(
        "cd / && x=etc && alias ll='rm -rf' && f() { rm -rf \"$@\"; }"
    ).state_after
    assert state is not None
    for command in ("rm -rf *", "rm -rf /$x", "ll /usr", "f ~"):
        assert POLICY.judge(command, shell_state=state).decision == "deny"
    assert POLICY.judge("rm -rf /tmp/$x", shell_state=state).decision == "allow"


def test_directory_and_environment_change_the_verdict() -> None:
    assert POLICY.judge("rm -rf *", cwd="/workspace/build").decision == "allow"
    assert POLICY.judge("rm -rf *", cwd="/").decision == "deny"
    assert POLICY.judge('rm -rf "$DIR"', env={"DIR": "/"}).decision == "deny"
    assert POLICY.judge('rm -rf "$DIR"', env={"DIR": "build"}).decision == "allow"


def test_a_program_shadowed_by_an_earlier_command_is_judged_by_what_it_runs_now() -> (
    None
):
    first = POLICY.judge("ls() { chmod -R 777 /; }")
    assert POLICY.judge("pwd", shell_state=first.state_after).decision == "allow"
    assert POLICY.judge("ls", shell_state=first.state_after).decision == "deny"


@pytest.mark.parametrize(
    ("script", "out"),
    [
        ("base64 -d <<< aGk=", "hi"),
        ("tr a b <<< a", "<disguised>"),
        ("sed 's/a/b/' <<< a", "<disguised>"),
        ("cut -d, -f2 <<< a,b", "<disguised>"),
        ("x=abc; echo ${x%c} ${x/a/b}", "ab <disguised>"),
        ("awk -F: '$3>=1000{print $6}' <<< u:x:1000:1000:n:h", "h"),
        ("date +x%Yy", "x…y"),
    ],
)
def test_text_is_traced_through_the_programs_that_change_it(
    script: str, out: str
) -> None:
    effects = POLICY.judge(f'touch "p-$({script})"').effects
    assert f"/workspace/p-{out}" in {show(effect.target) for effect in effects}


def test_a_fork_bomb_has_the_same_verdict_in_every_run() -> None:
    verdict = Policy.load("default").judge(":(){ :|:& };:")
    assert [
        effect.target for effect in verdict.effects if effect.kind == "process.forkbomb"
    ] == [":"]

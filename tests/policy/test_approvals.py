"""Approvals are for one digest, or for a session by effects. They never match by prefix and never lift a denial."""

import pytest

from belljar.policy import Approvals, Policy
from belljar.session.judging import host_verdict

POLICY = Policy.load("default")


def test_an_answer_holds_for_the_same_command_only() -> None:
    approvals = Approvals()
    approvals.remember(POLICY.judge("sudo ls /root"))
    assert approvals.covers(POLICY.judge("sudo ls /root"))
    assert not approvals.covers(POLICY.judge("sudo ls /root; sudo id"))
    assert not approvals.covers(POLICY.judge("sudo ls /root", cwd="/tmp"))


def test_a_session_answer_holds_for_the_same_kind_of_effects() -> None:
    approvals = Approvals()
    approvals.remember(POLICY.judge("sudo apt-get install jq"), scope="session")
    assert approvals.covers(POLICY.judge("sudo apt-get install ripgrep"))
    assert not approvals.covers(
        POLICY.judge("sudo apt-get install jq && sudo systemctl restart x")
    )
    assert not approvals.covers(POLICY.judge("sudo id"))


@pytest.mark.parametrize(
    ("approved", "other"),
    [
        ("kubectl delete pod web-1", "kubectl delete ns prod"),
        ("psql -c 'DROP TABLE tmp'", "psql -c 'DROP DATABASE app'"),
        ("aws s3 rm s3://scratch/x --recursive", "aws s3 rm s3://prod --recursive"),
        ("git push --force origin wip", "git push --force origin main"),
        ("npm unpublish a@1 --force", "npm unpublish b --force"),
        ("acmectl server delete one", "acmectl server delete two"),
    ],
)
def test_a_session_answer_about_something_outside_holds_for_that_alone(
    approved: str, other: str
) -> None:
    approvals = Approvals()
    approvals.remember(POLICY.judge(approved), scope="session")
    assert approvals.covers(POLICY.judge(approved + " "))
    assert POLICY.judge(other).decision == "ask"
    assert not approvals.covers(POLICY.judge(other))


def test_approval_of_one_host_and_port_covers_no_other() -> None:
    approvals = Approvals()
    approvals.remember(host_verdict("one.example", 443, "default"), scope="session")
    assert approvals.covers(host_verdict("one.example", 443, "default"))
    assert not approvals.covers(host_verdict("one.example", 22, "default"))
    assert not approvals.covers(host_verdict("evil.example", 443, "default"))


def test_an_approval_never_covers_a_denial() -> None:
    approvals = Approvals()
    approvals.remember(POLICY.judge("rm -rf /"), scope="session")
    assert not approvals.covers(POLICY.judge("rm -rf /"))
    assert approvals.covers(POLICY.judge("ls"))


def test_unknown_approval_scopes_are_refused() -> None:
    with pytest.raises(ValueError, match="session"):
        Approvals().remember(POLICY.judge("sudo ls"), scope="ever")

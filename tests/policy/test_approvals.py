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
    assert not approvals.covers(POLICY.judge("sudo apt-get install jq && sudo systemctl restart x"))
    assert not approvals.covers(POLICY.judge("sudo id"))


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

"""A verdict in plain words, for the person who is asked."""

from typing import get_args, get_type_hints

import belljar
from belljar.policy.verdict import Verdict
from belljar.surfaces.words import MOST, QUESTIONS, why, would_do


def test_effects_are_described_with_the_most_important_first() -> None:
    verdict = belljar.Policy.load("default").judge("sudo rm -rf build; curl https://example.com/x -o y")
    told = would_do(verdict)
    assert told[0].startswith("run as root")
    assert any(each.startswith("delete ") and each.endswith("and everything below") for each in told)
    assert not why(verdict).endswith(")")


def test_a_long_list_says_how_many_more_there_are() -> None:
    verdict = belljar.Policy.load("default").judge("; ".join(f"rm /etc/file{n}" for n in range(20)))
    told = would_do(verdict)
    assert told[MOST] == f"and {20 - MOST} more"


def test_each_kind_of_question_has_its_own_words() -> None:
    assert set(QUESTIONS) == set(get_args(get_type_hints(Verdict)["about"]))
    assert [about for about, question in QUESTIONS.items() if "run" in question.yes] == ["command"]

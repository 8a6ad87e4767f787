"""A verdict in plain words, for the person who is asked."""

from typing import get_args, get_type_hints

import belljar
from belljar.policy.verdict import Verdict
from belljar.surfaces.words import (
    MOST,
    QUESTIONS,
    sentences,
    why,
    words_at_risk,
    would_do,
)


def test_effects_are_described_with_the_most_important_first() -> None:
    verdict = belljar.Policy.load("default").judge(
        "sudo rm -rf build; curl https://example.com/x -o y"
    )
    told = would_do(verdict)
    assert told[0].startswith("run as root")
    assert any(
        each.startswith("delete ") and each.endswith("and everything below")
        for each in told
    )
    assert not why(verdict).endswith(")")


def test_a_long_list_says_how_many_more_there_are() -> None:
    verdict = belljar.Policy.load("default").judge(
        "; ".join(f"rm /etc/file{n}" for n in range(20))
    )
    told = would_do(verdict)
    assert told[MOST] == f"and {20 - MOST} more"


def test_all_effects_are_sentences_for_a_screen_that_cuts_them_itself() -> None:
    verdict = belljar.Policy.load("default").judge(
        "; ".join(f"rm /etc/file{n}" for n in range(20))
    )
    assert len(sentences(verdict)) == 20
    assert sentences(belljar.Policy.load("default").judge("echo hi"))


def test_the_words_at_risk_are_words_of_the_text() -> None:
    verdict = belljar.Policy.load("default").judge('sudo rm -rf "$NOWHERE"; echo done')
    found = words_at_risk(verdict)
    assert {"sudo", "rm", "-rf"} <= set(found)
    assert all(word in verdict.canonical for word in found)
    assert "echo" not in found


def test_each_kind_of_question_has_its_own_words() -> None:
    assert set(QUESTIONS) == set(get_args(get_type_hints(Verdict)["about"]))
    assert [
        about for about, question in QUESTIONS.items() if "run" in question.yes
    ] == ["command"]

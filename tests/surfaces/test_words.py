"""A verdict in words for the person who is asked."""

import belljar
from belljar.surfaces.words import MOST, why, would_do


def test_effects_are_told_in_words_and_the_most_important_first() -> None:
    verdict = belljar.Policy.load("default").judge("sudo rm -rf build; curl https://example.com/x -o y")
    told = would_do(verdict)
    assert told[0].startswith("run as root")
    assert any(each.startswith("delete ") and each.endswith("and everything below") for each in told)
    assert not why(verdict).endswith(")")


def test_a_long_list_says_how_many_more_there_are() -> None:
    verdict = belljar.Policy.load("default").judge("; ".join(f"rm /etc/file{n}" for n in range(20)))
    told = would_do(verdict)
    assert told[MOST] == f"and {20 - MOST} more"

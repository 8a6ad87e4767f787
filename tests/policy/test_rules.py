"""Policy files: mistakes are refused with file, line and reason. A layer can only make a policy stricter."""

from pathlib import Path

import pytest

from belljar.errors import PolicyError
from belljar.policy import Policy

HEAD = '[policy]\nname = "mine"\n'
RULE = (
    HEAD + '\n[[rule]]\nid = "x.y"\neffect = "delete"\nrisk = "high"\nreason = "why"\n'
)

MISTAKES = {
    "not TOML": ("[policy", "Expected"),
    "no policy table": ("", "needs 'policy'"),
    "unknown table": (HEAD + "[other]\n", "unknown key 'other'"),
    "unknown key": (HEAD + "colour = 1\n", "unknown key 'colour'"),
    "unknown rule key": (
        RULE + "colour = 1\n",
        ":9: rule[0] has an unknown key 'colour'",
    ),
    "bad risk": (RULE.replace('"high"', '"huge"'), "risk is one of"),
    "bad decision": (RULE + 'decision = "maybe"\n', "decision is one of"),
    "deny without blocked": (RULE + 'decision = "deny"\n', "go together"),
    "bad path class": (RULE + 'path = ["moon"]\n', "not 'moon'"),
    "bad id": (RULE.replace("x.y", "X Y"), "an id such as"),
    "no reason": (RULE.replace('reason = "why"\n', ""), "needs 'reason'"),
    "matches nothing": (
        HEAD + '[[rule]]\nid = "x"\nrisk = "high"\nreason = "why"\n',
        "matches nothing",
    ),
    "bad regex": (
        RULE + 'regex = "("\n',
        ":9: rule x.y: regex is not a regular expression",
    ),
    "exception of no rule": (
        HEAD
        + 'extends = "default"\n[[allow]]\nrule = ["write.sytem"]\nreason = "why"\n',
        ":5: there is no rule 'write.sytem'; did you mean 'write.system'?",
    ),
    "id of a shipped rule": (
        RULE.replace('"mine"\n', '"mine"\nextends = "default"\n').replace(
            "x.y", "delete.root"
        ),
        ":6: default has a rule delete.root already",
    ),
    "allowed beyond the ceiling": (
        HEAD
        + '[network]\nceiling = ["*.example.com"]\nallow = ["a.example.com", "a.example.net"]\n',
        ":5: network.allow names a.example.net, which is beyond the file's own ceiling",
    ),
    "number for text": (RULE.replace('"why"', "1"), "reason is text"),
    "id twice": (RULE + RULE.removeprefix(HEAD), ":10: the id x.y is used twice"),
    "unknown base": (
        '[policy]\nname = "mine"\nextends = "nothing"\n',
        "extends 'nothing'",
    ),
    "failing match": (
        RULE + 'match = ["ls"]\n',
        ":9: rule x.y does not match its example 'ls'",
    ),
    "failing not_match": (
        RULE + 'not_match = ["rm x"]\n',
        "matches its example 'rm x'",
    ),
}


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(("text", "reason"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_refuses_the_file_with_file_and_reason(
    tmp_path: Path, text: str, reason: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        Policy.load(written(tmp_path, text))
    assert "mine.toml" in str(caught.value)
    assert reason in str(caught.value)


def test_a_missing_policy_names_the_shipped_ones() -> None:
    with pytest.raises(PolicyError, match="default, strict"):
        Policy.load("nowhere")


def test_a_policy_file_of_ones_own_is_applied(tmp_path: Path) -> None:
    text = (
        HEAD
        + '[[rule]]\nid = "no.make"\nprogram = ["make"]\ndecision = "deny"\nreason = "use just"\nmatch = ["make"]\n'
    )
    policy = Policy.load(written(tmp_path, text))
    verdict = policy.judge("cd src && make -j4")
    assert (verdict.decision, verdict.rules[0].id) == ("deny", "no.make")
    assert policy.judge("rm -rf build").decision == "allow"
    assert verdict.policy == f"mine@{policy.version}"


def test_a_layer_can_only_tighten(tmp_path: Path) -> None:
    loose = (
        HEAD
        + 'ask_at = "never"\n[[rule]]\nid = "all"\neffect = "delete"\ndecision = "allow"\nrisk = "low"\nreason = "x"\n'
    )
    layered = Policy.load("default", layers=[written(tmp_path, loose)])
    assert layered.judge("rm -rf /").decision == "deny"
    assert layered.judge("sudo ls").decision == "ask"
    strict = Policy.load("default").tighten("strict")
    assert strict.judge("make").decision == "deny"
    assert strict.judge("ls").decision == "allow"


def test_ask_at_lowers_the_risk_that_is_asked_about(tmp_path: Path) -> None:
    text = '[policy]\nname = "careful"\nextends = "default"\nask_at = "high"\n'
    assert Policy.load(written(tmp_path, text)).judge("npm install").decision == "ask"

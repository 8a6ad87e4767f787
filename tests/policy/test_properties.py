"""Properties: disguise never lowers a verdict, the fast path agrees with the parser, and no input raises an error."""

import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from belljar.policy import Policy, engine, machine
from belljar.policy.canonical import plain_words
from belljar.policy.verdict import DECISIONS

POLICY = Policy.load("default")
CORPUS = Path(__file__).parent / "corpus"
COMMANDS: list[str] = sorted(
    {
        entry["command"]
        for path in CORPUS.glob("*.jsonl")
        for entry in map(json.loads, path.read_text().splitlines())
        if isinstance(entry["command"], str)
    }
)
PLAIN = [command for command in COMMANDS if plain_words(command.strip())]
ATTACKS = [
    "rm -rf /",
    "rm -rf /home/sandbox",
    "chmod -R 777 /etc",
    "dd if=/dev/zero of=/dev/sda",
    "mkfs.ext4 /dev/sda1",
    "cat /etc/shadow",
    "sudo bash",
    "kill -9 -1",
    "sudo apt-get update",
    "crontab evil",
    "git config core.hooksPath /tmp/x",
    "nsenter -t 1 -m sh",
]
RELAXED = settings(
    max_examples=40, deadline=None, suppress_health_check=list(HealthCheck)
)


def severity(command: str) -> int:
    return DECISIONS.index(POLICY.judge(command).decision)


def disguise(words: list[str], draw: st.DataObject) -> str:
    """Quote a word or a part of it, or split a word with '' or a backslash."""
    index = draw.draw(st.integers(0, len(words) - 1))
    word, cut = words[index], draw.draw(st.integers(0, len(words[index])))
    if "'" in word or '"' in word:
        return " ".join(words)
    changed = draw.draw(
        st.sampled_from(
            [
                f"'{word}'",
                f'"{word}"',
                f"{word[:cut]}''{word[cut:]}",
                f'{word[:cut]}""{word[cut:]}',
                f"{word[:cut]}'{word[cut:]}'",
                "".join(f"\\{char}" for char in word),
                "$'" + "".join(f"\\x{ord(char):02x}" for char in word) + "'",
                f"{word[:cut]}$nothing_set{'' if not word[cut : cut + 1].isalnum() else '@'}{word[cut:]}".replace(
                    "$nothing_set@", "${nothing_set}"
                ),
            ]
        )
    )
    return " ".join([*words[:index], changed, *words[index + 1 :]])


WRAPPERS = [
    "env {}",
    "command {}",
    "timeout 5 {}",
    "true; {}",
    "( {} )",
    "{{ {}; }}",
    "nohup {}",
    "nice -n 5 {}",
    "if true; then {}; fi",
    "for i in 1; do {}; done",
    "f() {{ {}; }}; f",
    "! {}",
    "{} | cat",
    "{} &",
    "true && {}",
    "false || {}",
    "x=$({})",
    "bash -c '{}'",
    "eval '{}'",
    "echo '{}' | sh",
    "sh <<'E'\n{}\nE",
    "xargs -I% {} < list",
    "env -S '{}'",
    "busybox {}",
    "time {}",
    "setsid stdbuf -oL {}",
]


@RELAXED
@given(st.sampled_from(ATTACKS), st.data())
def test_quoting_never_lowers_a_verdict(command: str, data: st.DataObject) -> None:
    assert severity(disguise(command.split(), data)) >= severity(command)


@RELAXED
@given(
    st.sampled_from(ATTACKS),
    st.lists(st.sampled_from(WRAPPERS), min_size=1, max_size=2),
)
def test_wrapping_never_lowers_a_verdict(command: str, wrappers: list[str]) -> None:
    wrapped = command
    for wrapper in wrappers:
        partial = (
            "<" in wrapper or "-S" in wrapper
        )  # env -S splits words; it is not a shell and expands nothing
        if ("'" in wrapped and "'" in wrapper) or (
            partial and any(mark in wrapped for mark in "|;&$\n")
        ):
            continue  # the wrapper would cover only a part of the command
        wrapped = wrapper.format(wrapped)
    assert severity(wrapped) >= severity(command), wrapped


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_wrapping_harmless_work_keeps_it_harmless(wrapper: str) -> None:
    for command in ("ls -la", "npm test", "rm -rf build", "git status"):
        assert POLICY.judge(wrapper.format(command)).decision == "allow", (
            wrapper.format(command)
        )


def by_parser(command: str) -> tuple[str, frozenset[str]]:
    engine.plain_words = machine.plain_words = lambda _: None
    try:
        verdict = POLICY.judge(command)
    finally:
        engine.plain_words = machine.plain_words = plain_words
    return verdict.decision, frozenset(rule.id for rule in verdict.rules)


def by_fast_path(command: str) -> tuple[str, frozenset[str]]:
    verdict = POLICY.judge(command)
    return verdict.decision, frozenset(rule.id for rule in verdict.rules)


def test_the_fast_path_agrees_with_the_parser_on_the_corpus() -> None:
    for command in random.Random(7).sample(PLAIN, 400):
        assert by_fast_path(command) == by_parser(command), command


@RELAXED
@given(st.text("abrmf /.-_=:,'\"@%+~$x", min_size=1, max_size=40))
def test_the_fast_path_agrees_with_the_parser_on_any_plain_text(text: str) -> None:
    if plain_words(text.strip()):
        assert by_fast_path(text) == by_parser(text)


def test_judge_plain_is_the_same_verdict_or_none() -> None:
    for command in random.Random(11).sample(COMMANDS, 200):
        verdict = POLICY.judge_plain(command)
        assert verdict is None or verdict.decision == POLICY.judge(command).decision


@RELAXED
@given(st.binary(max_size=200))
def test_any_bytes_get_a_verdict(raw: bytes) -> None:
    assert POLICY.judge(raw.decode("utf-8", "surrogateescape")).decision in DECISIONS
    assert POLICY.judge(raw.decode("latin-1")).reason


WORD = st.sampled_from(
    [
        "rm",
        "-rf",
        "/",
        "$x",
        "${x:-/}",
        "*",
        "~",
        "'a b'",
        '"$y"',
        "$(echo /)",
        "`id`",
        "{a,b}",
        "x=1",
        "<(ls)",
    ]
)
SIMPLE = st.lists(WORD, min_size=1, max_size=5).map(" ".join)
SCRIPT = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.tuples(
            inner, st.sampled_from([" | ", " && ", " || ", "; ", " & ", "\n"]), inner
        ).map("".join),
        inner.map(lambda s: f"({s})"),
        inner.map(lambda s: f"if {s}; then {s}; fi"),
        inner.map(lambda s: f"while {s}; do {s}; done"),
        inner.map(lambda s: f"for i in 1 2; do {s}; done"),
        inner.map(lambda s: f"f() {{ {s}; }}; f"),
        inner.map(lambda s: f"case $x in a) {s};; esac"),
        inner.map(lambda s: f"x=$({s})"),
        inner.map(lambda s: f"{s} > out 2>&1 < in"),
        inner.map(lambda s: f"cat <<E\n{s}\nE"),
    ),
    max_leaves=6,
)


@RELAXED
@given(SCRIPT)
def test_any_script_of_the_grammar_gets_a_verdict_without_a_fault(script: str) -> None:
    assert "could not be understood" not in POLICY.judge(script).reason


LANGUAGES = [
    "python3 -c",
    "perl -e",
    "ruby -e",
    "node -e",
    "php -r",
    "awk",
    "sed",
    "lua -e",
    "bash -c",
    "eval",
]


@RELAXED
@given(
    st.sampled_from(LANGUAGES),
    st.text("abcimportsyexl ()[]{}'\"\\.,;:=+-*/%$#@!&|<>\n0123", max_size=60),
)
def test_any_inline_code_gets_a_verdict_without_a_fault(
    language: str, code: str
) -> None:
    import shlex

    verdict = POLICY.judge(f"{language} {shlex.quote(code)}")
    assert "could not be understood" not in verdict.reason

"""Input that cannot be judged: a denial with a reason, never an exception, never an allowance."""

import time
from typing import Any

import pytest

from belljar.policy import Policy, parser

POLICY = Policy.load("default")
BAD: dict[str, Any] = {
    "empty": "",
    "blank": " \t\n ",
    "only comments": "# one\n  # two",
    "NUL": "echo a\0b",
    "lone CR": "echo a\rrm -rf /",
    "CR hidden behind a backslash": "ls \\\r\nrm -rf /",
    "escape character": "echo \x1b[31m",
    "unpaired surrogate": "echo \ud800",
    "a megabyte": "x" * 1_000_000,
    "ten thousand nested substitutions": "echo " + "$(" * 10_000 + "a" + ")" * 10_000,
    "open quote": "echo 'a",
    "open if": "if true; then",
    "stray parenthesis": "echo )",
    "None": None,
    "a number": 7,
    "bytes": b"ls",
    "empty argv": [],
    "argv of numbers": [1, 2],
    "argv with a NUL": ["ls", "a\0b"],
    "argv with a surrogate": ["ls", "\udc80"],
    "argv with a blank program": [" ", "x"],
    "too many braces": "echo " + "{a,b}" * 2000,
    "an endless && chain": " && ".join(["echo a"] * 12_000),
}


@pytest.mark.parametrize("command", BAD.values(), ids=BAD.keys())
def test_bad_input_is_denied_with_a_reason(command: Any) -> None:
    for name in ("default", "permissive", "strict", "ci", "literal"):
        verdict = Policy.load(name).judge(command)
        assert (verdict.decision, verdict.risk) == ("deny", "blocked")
        assert verdict.reason
        assert verdict.rules


@pytest.mark.parametrize(
    "unit", ["exec(", "exec x;", '"a",', 'a="b";', '["a"].each{|x|', 'rm("/a");', "import{", "\n/*", " s#a"]
)
def test_code_that_says_one_thing_a_thousand_times_is_judged_in_bounded_time(unit: str) -> None:
    began = time.process_time()
    for program in ("perl", "node"):
        POLICY.judge([program, "-e", unit * (15_000 // len(unit))])
    assert time.process_time() - began < 2


def test_crlf_line_ends_become_lf() -> None:
    assert POLICY.judge("echo a\r\necho b\r\n").canonical == "echo a\necho b"


def test_a_missing_parser_denies_what_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser, "shfmt", lambda: None)
    parser._parser.close()
    verdict = POLICY.judge("ls | head # parser is missing")
    assert verdict.decision == "deny"
    assert "not installed" in verdict.reason
    assert POLICY.judge("ls -la").decision == "allow"


def test_a_killed_parser_denies_and_the_next_command_is_judged_again() -> None:
    parser.warm()
    for child in parser._parser._waiting:
        child.kill()
        child.wait()
    assert POLICY.judge("ls | head # parser was killed").decision == "allow"


def test_a_fault_in_a_reader_denies(monkeypatch: pytest.MonkeyPatch) -> None:
    from belljar.policy.call import PROGRAMS

    def broken(_call: object) -> str:
        raise ZeroDivisionError

    monkeypatch.setitem(PROGRAMS, "ls", broken)
    verdict = POLICY.judge("ls")
    assert verdict.decision == "deny"
    assert "ZeroDivisionError" in verdict.reason


def test_invisible_and_direction_changing_characters_are_flagged() -> None:
    assert POLICY.judge("rm\u200b -rf build").decision == "ask"
    assert POLICY.judge("echo \u202egnp.exe").decision == "ask"
    assert POLICY.judge("git commit -m '👩\u200d💻 works'").decision == "allow"  # an emoji is joined with one

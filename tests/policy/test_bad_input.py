"""Input that cannot be judged is denied with a reason. It is never allowed, and never raises an exception."""

import shlex
import time
import tracemalloc
from typing import Any

import pytest

from belljar.policy import Policy, parser

POLICY = Policy.load("default")
BAD: dict[str, Any] = {
    "empty": "",
    "blank": " \t\n ",
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
    "unit",
    [
        "exec(",
        "exec x;",
        '"a",',
        'a="b";',
        '["a"].each{|x|',
        'rm("/a");',
        "import{",
        "\n/*",
        " s#a",
    ],
)
def test_inline_code_that_repeats_itself_is_judged_in_bounded_time(unit: str) -> None:
    began = time.process_time()
    for program in ("perl", "node"):
        POLICY.judge([program, "-e", unit * (15_000 // len(unit))])
    assert time.process_time() - began < 2


def python(code: str) -> str:
    return f"python3 -c {shlex.quote(code)}"


# base64.b64encode(bz2.compress(bytes(200 << 20))), which takes more than a second to compute
BOMB = (
    "QlpoOTFBWSZTWQ4J4t8BX45AAMAAAAggADCATUZCoCWpCoCXMUFZJlNZDgni3wFfjkAAwAAACCAAMIBNRkKgJakKgJcxQVkmU1kO"
    "CeLfAV+OQADAAAAIIAAwgE1GQqAlqQqAlzFBWSZTWQ4J4t8BX45AAMAAAAggADCATUZCoCWpCoCXMUFZJlNZ8TGEcADIDEBAwAAA"
    "QAAIIAAwzAUpphQCLYigEXi7kinChIIup43Q"
)
MANY = "9" * 5000
GROWS = {
    "powers of powers": "echo $(( (((9**63)**63)**63)**63 ))",
    "an array in itself": "a=(a b c d); "
    + "a=(${a[@]} ${a[@]} ${a[@]} ${a[@]}); " * 20
    + "echo ${a[@]}",
    "arguments in themselves": "set -- a b; "
    + 'set -- "$@" "$@" "$@" "$@"; ' * 20
    + "echo $@",
    "a long replacement": "x="
    + "a" * 2000
    + "; y="
    + "b" * 60_000
    + "; echo ${x//a/$y}",
    "a pattern that backtracks": "x="
    + "a" * 1900
    + "; echo ${x##*a*a*b} ${x//*a*a*b/c}",
    "a sed pattern that backtracks": "echo "
    + "a" * 3900
    + " | sed 's/a*a*a*b/x/' | sh",
    "a grep pattern that backtracks": "echo "
    + "a" * 3900
    + " | grep -E 'a+a+a+b' | sh",
    "blanks in sed": "sed '" + " " * 15_000 + "'",
    "an archive of nothing": f"echo {BOMB} | base64 -d | bunzip2 | sh",
    "awk names in awk names": "awk 'BEGIN{"
    + "".join(f'n{i}="' + f"n{i + 1} " * 60 + '";' for i in range(18))
    + "}'",
    "a long line in awk": "echo "
    + "a" * 60_000
    + " | awk '{print "
    + "$0 " * 2500
    + "}'",
    "names in names": "node -e '"
    + "".join(f'n{i} = "' + f" n{i + 1} " * 60 + '";' for i in range(18))
    + "'",
    "a long variable in code": "X="
    + "a" * 20_000
    + " node -e '"
    + "process.env.X+" * 200
    + "1'",
    "open brackets": "ruby -e '" + "[[" * 7900 + "'",
    "a width": python("print('%999999999d' % 1)"),
    "a width that is given": python("print('{0:{1}}'.format('a', 999999999))"),
    "a range": python("for i in range(200000000): print(i)"),
    "loops in an expression": python(
        "x = [a for a in range(256) for b in range(256) for c in range(256)]"
    ),
    "a list in itself": python("x = [1]\nfor i in range(26): x = x + x\nprint(x)"),
    "a list extended by itself": python(
        "x = [1]\nfor i in range(26): x.extend(x)\nprint(x)"
    ),
    "lists of lists": python("x = []\nfor i in range(40): x = [x, x]\nprint(x)"),
    "text in itself": python(
        "x = 'a' * 10\nfor i in range(8): x = f'{x}{x}{x}{x}{x}{x}{x}{x}{x}{x}'\nprint(x)"
    ),
    "text between text": python(
        "x = 'a' * 10000\nx = x.replace('a', x).join(x)\nprint(x)"
    ),
}


@pytest.mark.parametrize("command", GROWS.values(), ids=GROWS.keys())
def test_a_command_that_expands_without_end_is_judged_in_bounded_time_and_memory(
    command: str,
) -> None:
    tracemalloc.start()
    try:
        started = time.process_time()
        verdict = POLICY.judge(command)
        assert time.process_time() - started < 4
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()
    assert "could not be understood" not in verdict.reason


STUMBLES = {
    "a digit that is no number": "a=([²]=3); b=(1 2); b[²]=1; shift ²; expr substr abc ² ²; echo a | xargs -n ² echo",
    "an index": "a=(1); echo ${a[" + MANY + "]} ${" + MANY + "}",
    "counts": f"shift {MANY}; echo a | head -n {MANY}; echo a | tail -c {MANY}; echo a | cut -c {MANY}-{MANY}",
    "a sequence": f"seq {MANY}; seq 1 99999999999999999999",
    "a precision": f"printf '%.{MANY}s' a; expr substr abc 1 {MANY}; xargs -n {MANY} echo",
    "fields": "echo a | awk '{print $"
    + MANY
    + "}'; awk 'BEGIN{system(ARGV["
    + MANY
    + "])}'",
    "characters": "awk 'BEGIN{system(sprintf(\"%c\", 99999999999))}'; awk 'BEGIN{system(sprintf(\"%c\", ²))}'",
    "codes": "node -e 'String.fromCharCode(09,08)'; ruby -e 'system(" + MANY + ".chr)'",
    "a class that is none": "x=a; echo ${x//[z-a]/b} ${x#[a--z]} ${x#[&&||~~]} ${x#[[[]}",
    "escapes of jq": "jq -n '\"\\ud800\\x\\u\"' | sh; jq -n '\"\\d\"' | sh",
    "openssl alone": "openssl",
    "versions": "node18 x.js; perl5.36 -e 1; ruby3.2 -e 1; lua5.3 x; php8.2 -r 1; gcc-12 x.c; pip3.11 list",
    "the loader": "/lib64/ld-linux-x86-64.so.2 /bin/ls",
    "a loop over nothing": "for x in; do ls; done; select x in; do ls; done",
    "a range without a step": python("for i in range(1, 2, 0): print(i)"),
    "numbers": python("print('%c' % 99999999999, int('1', 1 << 70), 1 << 9)"),
    "a number of many digits": python(
        "x = int('9' * 4200)\n" + "for i in range(250): x = x + x\n" * 2 + "print(x)"
    ),
    "half a character": python(
        "open('\\ud800', 'w'); import os; os.system(chr(0xdfff))"
    ),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("command", STUMBLES.values(), ids=STUMBLES.keys())
def test_commands_that_once_broke_a_reader_are_understood(command: str) -> None:
    verdict = POLICY.judge(command)
    assert "could not be understood" not in verdict.reason
    assert verdict.explain().encode()


def test_syntax_trees_of_long_scripts_are_not_cached() -> None:
    kept = parser._outcome.cache_info().currsize
    for number in range(6):
        POLICY.judge(f"echo {number}; " + "echo $a | cat; " * 300)
    assert parser._outcome.cache_info().currsize == kept


def test_crlf_line_ends_become_lf() -> None:
    assert POLICY.judge("echo a\r\necho b\r\n").canonical == "echo a\necho b"


def test_a_missing_parser_denies_what_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser, "shfmt", lambda: None)
    monkeypatch.setattr(parser, "_parser", parser.Parser())
    verdict = POLICY.judge("ls | head # parser is missing")
    assert verdict.decision == "deny"
    assert "not installed" in verdict.reason
    assert POLICY.judge("ls -la").decision == "allow"


def test_a_killed_parser_denies_and_the_next_command_is_judged_again() -> None:
    parser.warm()
    for child in parser._parser._spare:
        child.kill()
        child.wait()
    assert POLICY.judge("ls | head # parser was killed").decision == "allow"


def test_an_exception_in_a_reader_denies_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
    assert (
        POLICY.judge("git commit -m '👩\u200d💻 works'").decision == "allow"
    )  # contains a zero-width joiner

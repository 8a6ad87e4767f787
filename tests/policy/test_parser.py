"""The parser: real shfmt processes, no zombies, safe with threads and after a fork."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from belljar.policy import Policy, parser

POLICY = Policy.load("default")


def test_a_syntax_error_says_where() -> None:
    with pytest.raises(parser.ParseError, match="not valid bash: 1:"):
        parser.parse("echo $(")


@pytest.mark.parametrize(
    "text", ['echo "((a b))', "((a b) | (c)", "(( 1 + ))) x", "echo ((a))"]
)
def test_an_error_beside_a_double_parenthesis_is_told_at_its_own_place(
    text: str,
) -> None:
    with pytest.raises(parser.ParseError) as told:
        parser.parse(text)
    with pytest.raises(parser.ParseError) as own:
        parser._parser.parse(text)
    assert str(told.value) == str(own.value)


@pytest.mark.parametrize(
    "text",
    ["echo a # b \\\nid", "x=$(echo a # b \\\nid\n)", "echo é # ü \\\n# c \\\nid"],
)
def test_a_comment_that_ends_in_a_backslash_is_denied(text: str) -> None:
    verdict = POLICY.judge(text)
    assert verdict.decision == "deny"
    assert "a comment ends in a backslash" in verdict.reason


def test_many_comments_that_end_in_a_backslash_get_a_verdict() -> None:
    assert POLICY.judge("echo a # b \\\n" * 400).decision in ("allow", "deny")


def test_many_threads_parse_at_once() -> None:
    with ThreadPoolExecutor(8) as threads:
        verdicts = list(
            threads.map(lambda n: POLICY.judge(f"echo {n} | cat; rm -rf /"), range(40))
        )
    assert {verdict.decision for verdict in verdicts} == {"deny"}


def test_a_forked_child_parses_with_processes_of_its_own() -> None:
    parser.warm()
    for thread in threading.enumerate():
        if thread.name == "belljar-parser":
            thread.join()
    child = os.fork()
    if child == 0:
        os._exit(0 if POLICY.judge("echo forked | cat").decision == "allow" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert POLICY.judge("echo parent | cat").decision == "allow"


def test_no_zombie_is_left() -> None:
    for number in range(5):
        POLICY.judge(f"echo {number} | cat")
    spare = {child.pid for child in parser._parser._spare}
    for pid in spare:
        with open(f"/proc/{pid}/stat") as stat:
            assert stat.read().rsplit(")", 1)[1].split()[0] != "Z"


def test_a_spare_parser_process_has_memory_and_cpu_limits() -> None:
    import resource

    parser.warm()
    child = parser._parser._spare[0]
    assert resource.prlimit(child.pid, resource.RLIMIT_DATA)[0] == 600 << 20
    assert resource.prlimit(child.pid, resource.RLIMIT_CPU)[0] == 2


def test_a_process_that_starts_while_the_parser_closes_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, real, started = parser.Parser(), parser._spawn, []

    def spawn() -> parser.Child:
        started.append(real())
        if len(started) == 1:
            own.close()
        return started[-1]

    monkeypatch.setattr(parser, "_spawn", spawn)
    own.refill()
    assert [child.returncode for child in started] == [-signal.SIGKILL]

from __future__ import annotations

from collections.abc import Iterator

import pytest

from belljar.policy.parser import Parser
from belljar.surfaces.cli.prompt import is_incomplete, read_command


@pytest.fixture(scope="module")
def parser() -> Iterator[Parser]:
    parser = Parser()
    yield parser
    parser.close()


@pytest.mark.parametrize(
    "text",
    [
        "if true", "if true; then", "if x; then y; else", "for i in 1; do", "while x; do y", "case x in",
        "case x in a) y ;;",
        "f() {", "{", "(", "echo $(", "echo `", "echo 'a", 'echo "a', "echo ${x", "echo $((1", "a=(1 2", "cat <<EOF",
        "cat <<'A' <<B\nx\nA", "x &&", "x ||", "x |", "echo \\", "echo \\\\\\", "for i in 1 2",
        "for ((i=0;i<3;i++))", "case x", "f()", "select x in a",
    ],
)  # fmt: skip
def test_an_incomplete_command_asks_for_another_line(text: str, parser: Parser) -> None:
    assert is_incomplete(text, parser)


@pytest.mark.parametrize(
    "text",
    [
        "", "ls -la", "echo 'a'", "echo \\\\", "if x; then y; done", "echo )", "}", "then", "x && y",
        "cat <<EOF\nx\nEOF",
        "f() { :; }", "# a comment", "echo a # |", "a=(1 2)", "! ", "for i in 1; do echo; done",
        "for i in 1 2; echo", "case x )", "echo (",
    ],
)  # fmt: skip
def test_a_complete_or_wrong_command_asks_for_no_other_line(
    text: str, parser: Parser
) -> None:
    assert not is_incomplete(text, parser)


class Script:
    def __init__(self, *lines: str) -> None:
        self._lines = list(lines)
        self.prompts: list[str] = []

    def read(self, prompt: str) -> str:
        self.prompts.append(prompt)
        if not self._lines:
            raise EOFError
        return self._lines.pop(0)


def test_lines_are_joined_until_the_command_is_complete(parser: Parser) -> None:
    script = Script("cat <<EOF", "text", "EOF", "ls")
    assert read_command(script.read, "$ ", parser) == "cat <<EOF\ntext\nEOF"
    assert script.prompts == ["$ ", "> ", "> "]
    assert read_command(script.read, "$ ", parser) == "ls"


def test_the_end_of_input_ends_a_command(parser: Parser) -> None:
    assert read_command(Script("if true").read, "$ ", parser) == "if true"

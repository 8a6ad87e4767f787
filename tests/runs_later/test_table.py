"""The table of files that the host runs unasked."""

from __future__ import annotations

import json

import pytest

from belljar.runs_later import values
from belljar.runs_later.git import reader
from belljar.runs_later.table import table


@pytest.mark.parametrize(
    ("path", "who"),
    [
        (".envrc", "direnv"), ("deep/in/.envrc", "direnv"), (".github/workflows/a/b.yml", "GitHub"),
        ("a.code-workspace", "VS Code"), (".lintstagedrc.mjs", "lint-staged"), (".husky/_/h", "git"),
        (".bashrc", "bash"), (".config/git/config", "git"), (".cursor/mcp.json", "Cursor"),
        ("sub/.bashrc", None), ("node_modules/x/.travis.yml", None), (".vscode/launch.json", None),
        (".husky/README.md", None), (".cursor/rules/x.mdc", None), (".github/CODEOWNERS", None), ("envrc", None),
    ],
)  # fmt: skip
def test_a_file_is_found_by_its_name_and_place(path: str, who: str | None) -> None:
    found = table().find(path)
    assert (found.who if found else None) == who


@pytest.mark.parametrize(
    "path",
    [".husky", ".github", ".github/workflows", "sub/.claude", ".config/mise", ".envrc"],
)
def test_a_link_stands_for_a_directory_of_such_files(path: str) -> None:
    assert table().find_link(path) is not None
    assert table().find_link(f"x{path}") is None or "/" in path


@pytest.mark.parametrize(
    "text",
    [
        '{"hooks": {"a": 1}}', '{"h\\u006foks": {"a": 1}}', '{/* x */ "hooks" // y\n : {"a": 1,},}',
        '{"model": "x", "hooks": {"a": 1}, "hooks": {}}', '{"permissions": {"allow": ["Bash(*)"]}}',
    ],
)  # fmt: skip
def test_no_spelling_hides_a_key(text: str) -> None:
    said = table().find(".claude/settings.json")
    assert said is not None
    assert said.reader is not None
    assert said.reader(text.encode())


def test_harmless_keys_say_nothing_and_what_cannot_be_parsed_counts() -> None:
    said = table().find(".vscode/settings.json")
    assert said is not None
    assert said.reader is not None
    assert (
        said.reader(
            b'{"[python]": {"editor.tabSize": 4}, "files.exclude": {"a": true}}'
        )
        == frozenset()
    )
    assert said.reader(b"{") is None
    assert said.reader(b"[" * 5000) is None
    assert said.reader(b"") == frozenset()


def test_json_is_read_as_it_is_without_comments() -> None:
    text = {"url": "https://x/y", "s": 'a "quoted" // b', "e": "\\"}
    assert dict(values.parsed_json(json.dumps(text).encode())) == text


@pytest.mark.parametrize(
    ("rest", "runs"),
    [
        ("index", False), ("refs/heads/hooks/x", False), ("objects/ab/cd", False), ("logs/HEAD", False),
        ("hooks/pre-commit", True), ("hooks/pre-commit.sample", False), ("commondir", True), ("remotes/x", True),
        ("rebase-merge/done", False), ("rebase-merge/strategy", True), ("worktrees/w/index", False),
        ("worktrees/w/commondir", True), ("modules/m/objects/hooks/x", True), ("modules/m/refs/heads/x", False),
        ("something.new", True), ("objects/info/alternates", True),
    ],
)  # fmt: skip
def test_in_a_git_directory_only_what_git_stores_is_harmless(
    rest: str, runs: bool
) -> None:
    assert (reader(rest, lambda path: False) is not None) == runs

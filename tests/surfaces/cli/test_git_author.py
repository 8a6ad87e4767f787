"""The person's name and address go into the sandbox, and nothing else of their git settings."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.surfaces.invoking import belljar

from belljar.surfaces.cli.git_author import mine


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("GIT_CONFIG_GLOBAL", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home" / ".config" / "git").mkdir(parents=True)
    return tmp_path / "home"


def test_who_the_person_is_comes_from_both_of_git_s_files_the_nearer_first(
    home: Path,
) -> None:
    assert mine() == ""
    (home / ".config/git/config").write_text(
        "[user]\n\tname = Far\n\temail = ana@example.org\n"
    )
    assert mine() == "Far <ana@example.org>"
    (home / ".gitconfig").write_text(
        '[core]\n\tpager = evil\n[user]\n\tname = "Ana \\"A\\" B" ; who\n'
    )
    assert mine() == 'Ana "A" B <ana@example.org>'


def test_git_itself_reads_the_same(home: Path) -> None:
    (home / ".gitconfig").write_text(
        "[USER]\n  Name = A\\\n na \n  eMail=ana@example.org # home\n"
    )
    said = [
        subprocess.run(
            ["git", "config", "--global", f"user.{key}"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for key in ("name", "email")
    ]
    assert mine() == f"{said[0].strip()} <{said[1].strip()}>"


@pytest.mark.parametrize(
    "text",
    ["[user]\nname = a<b\nemail = c\n", "[user\n", "[user]\nname = only\n", "\0"],
)
def test_what_is_odd_or_half_is_left_out(home: Path, text: str) -> None:
    (home / ".gitconfig").write_text(text)
    assert mine() == ""


def test_another_file_can_be_named(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".gitconfig").write_text("[user]\nname = a\nemail = a@b\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "none"))
    assert mine() == ""


@pytest.mark.engine
@pytest.mark.usefixtures("base_image")
def test_a_commit_in_the_sandbox_is_by_the_person_unless_the_repository_says_otherwise(
    home: Path, workspace: Path
) -> None:
    settings = home / "settings"
    settings.write_text(
        '[user]\n\tname = Ana "B"\n\temail = ana@example.org\n[alias]\n\tx = !id\n'
    )
    env = {"GIT_CONFIG_GLOBAL": str(settings)}
    commit = "git init -q . && git commit -q --allow-empty -m x && git log -1 --format='%an <%ae>'; git config alias.x"
    assert (
        belljar("run", commit, cwd=workspace, env=env).stdout
        == "Ana B <ana@example.org>\n"
    )
    own = "git config user.name Own && git commit -q --allow-empty -m y && git log -1 --format='%an <%ae>'"
    assert (
        belljar("run", own, cwd=workspace, env=env).stdout == "Own <ana@example.org>\n"
    )
    given = ("run", "--author", "Bo <bo@example.org>", "git config --system user.email")
    assert belljar(*given, cwd=workspace, env=env).stdout == "bo@example.org\n"
    assert (
        "author: 'Bo' must be like"
        in belljar("run", "--author", "Bo", "true", cwd=workspace, env=env).stderr
    )

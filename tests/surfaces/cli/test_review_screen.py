"""The full-screen review: its keys, without a terminal, and the whole command on real ones of every size."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from tests.staged.conftest import Stage
from tests.staged.conftest import stage as stage
from tests.surfaces.cli.test_staged_commands import place as place
from tests.surfaces.cli.test_staged_commands import run_staged
from tests.surfaces.invoking import belljar
from tests.surfaces.real_terminal import Terminal

from belljar.errors import Conflict
from belljar.staged.review import Review
from belljar.surfaces.cli.review_screen import End, ReviewScreen

NUMBERS = "".join(f"{n}\n" for n in range(60))
LAST = NUMBERS.replace("50\n", "fifty\n")


@pytest.fixture
def host(tmp_path: Path) -> Path:
    path = tmp_path / "host"
    (path / "dir").mkdir(parents=True)
    texts = {
        "a.txt": "one\ntwo\nthree\n",
        "dir/c.txt": "c\n",
        "dir/d.txt": "d\n",
        "long.txt": NUMBERS,
    }
    for name, text in texts.items():
        (path / name).write_text(text)
    return path


@pytest.fixture
def many(stage: Stage) -> Stage:
    (stage.merged / "a.txt").write_text("1\ntwo\nthree\n")
    (stage.merged / "dir" / "c.txt").write_text("changed\n")
    (stage.merged / "dir" / "d.txt").write_text("needle\n")
    (stage.merged / "long.txt").write_text(LAST.replace("\n5\n", "\nfive\n"))
    (stage.merged / "new" / "deep").mkdir(parents=True)
    (stage.merged / "new" / "deep" / "f").write_text("f\n")
    return stage  # rows: a.txt, dir, dir/c.txt, dir/d.txt, long.txt, new, new/deep, new/deep/f


def pressed(stage: Stage, keys: str) -> tuple[ReviewScreen, End]:
    review = Review(stage.area)
    with (
        create_pipe_input() as typed,
        create_app_session(input=typed, output=DummyOutput()),
    ):
        screen = ReviewScreen(review, review.listed(), "test")
        typed.send_text(keys)
        return screen, screen.run()


def applied(stage: Stage, keys: str) -> list[str]:
    screen, end = pressed(stage, keys)
    assert end == "apply"
    return sorted(screen.choice.applied().paths)


def test_space_chooses_and_enter_applies(many: Stage) -> None:
    assert applied(many, " jj \r") == ["a.txt", "dir/c.txt"]
    assert (many.host / "a.txt").read_text() == "1\ntwo\nthree\n"
    assert (many.host / "long.txt").read_text() == NUMBERS


def test_leaving_the_help_leads_back_to_the_changes(many: Stage) -> None:
    assert applied(many, "?q \r") == ["a.txt"]
    _, end = pressed(many, "??qq")
    assert end == "leave"


def test_a_directory_is_one_key_also_a_new_one(many: Stage) -> None:
    assert applied(many, "j jjjj \r") == [
        "dir/c.txt",
        "dir/d.txt",
        "new",
        "new/deep",
        "new/deep/f",
    ]


def test_all_are_chosen_and_some_let_go(many: Stage) -> None:
    assert applied(many, "aG h h \r") == ["a.txt", "dir/c.txt", "dir/d.txt", "long.txt"]


def test_a_hunk_is_chosen_in_the_diff(many: Stage) -> None:
    assert applied(many, "jjjj\tG \r") == ["long.txt"]
    assert (many.host / "long.txt").read_text() == LAST


def test_leaving_applies_nothing(many: Stage) -> None:
    for leave in ("q", "\x1b", "\x03"):
        assert pressed(many, f"a{leave}")[1] == "leave"
    assert (many.host / "a.txt").read_text() == "one\ntwo\nthree\n"


def test_enter_without_a_choice_says_so_and_stays(many: Stage) -> None:
    screen, end = pressed(many, "\rq")
    assert (end, screen.tree.chosen) == ("leave", [])


def test_a_name_is_searched(many: Stage) -> None:
    assert applied(many, "/d.txt\r \r") == ["dir/d.txt"]


def test_the_rest_is_dropped_only_after_a_yes(many: Stage) -> None:
    assert pressed(many, " Dnq")[1] == "leave"
    screen, end = pressed(many, " Dy")
    assert (end, [item.change.path for item in screen.tree.chosen]) == (
        "drop",
        ["a.txt"],
    )


def test_a_change_that_the_host_made_too_needs_its_own_yes_or_both_are_kept(
    many: Stage,
) -> None:
    Review(many.area).listed()  # remembers how it was
    (many.host / "long.txt").write_text(NUMBERS + "mine\n")
    screen, _ = pressed(many, "aq")
    assert "long.txt" not in [item.change.path for item in screen.tree.chosen]
    assert applied(many, "jjjjtm\r") == ["long.txt"]
    assert (many.host / "long.txt").read_text() == LAST.replace(
        "\n5\n", "\nfive\n"
    ) + "mine\n"
    (many.merged / "long.txt").write_text("sandbox\n")
    assert applied(many, "jjjj \r") == ["long.txt"]
    assert (many.host / "long.txt").read_text() == "sandbox\n"


def test_what_the_sandbox_changes_after_it_was_shown_is_not_applied(
    many: Stage,
) -> None:
    screen, _ = pressed(many, "l \r")
    (many.merged / "a.txt").write_text("other\n")
    with pytest.raises(Conflict, match="since it was shown"):
        screen.choice.applied()


# On real terminals.


def review_on(place: Path, rows: int, cols: int) -> Terminal:
    return Terminal(
        sys.executable, "-m", "belljar", "review", cwd=place, rows=rows, cols=cols
    )


@pytest.mark.parametrize(("rows", "cols"), [(24, 80), (60, 240), (6, 30), (3, 20)])
def test_it_fits_every_terminal_and_gives_it_back(
    place: Path, rows: int, cols: int
) -> None:
    run_staged(place, "echo two >> a.txt; rm c.txt")
    terminal = review_on(place, rows, cols)
    terminal.until("\x1b[?1049h")
    terminal.until("[ ] ~ a.txt")
    terminal.type(" ")
    terminal.until("x")
    terminal.type("\r")
    terminal.until("\x1b[?1049l")
    assert "1 applied" in terminal.rest()
    assert terminal.status() == 0
    assert (place / "a.txt").read_text() == "one\ntwo\n"


def test_another_size_draws_it_anew_and_contents_are_found(place: Path) -> None:
    run_staged(place, "mkdir d; echo needle > d/x; echo y > d/y; echo two > a.txt")
    terminal = review_on(place, 10, 40)
    terminal.until("[ ] ~ a.txt")
    terminal.resize(30, 120)
    terminal.until("│")  # both panes
    terminal.type("/needle\r")
    terminal.until("+needle")
    terminal.type(" Dy")
    assert "discarded" in terminal.rest()
    assert terminal.status() == 0
    assert (place / "d" / "x").read_text() == "needle\n"
    assert not (place / "d" / "y").exists()
    assert belljar("changes", cwd=place).status == 2, "nothing is left"


def test_what_a_file_holds_cannot_command_the_terminal(place: Path) -> None:
    run_staged(place, r"printf 'ok\033]0;title\007\033[30;40mhidden\n' > a.txt")
    terminal = review_on(place, 24, 120)
    terminal.until("+ok^[]0;title^G^[[30;40mhidden")
    terminal.type("q")
    assert "nothing was applied" in terminal.rest()


def test_without_a_terminal_it_says_what_to_do(place: Path) -> None:
    run_staged(place, "echo two > a.txt")
    assert (
        "needs a terminal; `belljar apply PATH`"
        in belljar("review", cwd=place).complaint
    )


def test_colours_only_repeat_what_signs_say(place: Path) -> None:
    run_staged(place, "echo two > a.txt")
    terminal = Terminal(
        sys.executable, "-m", "belljar", "review", cwd=place, NO_COLOR="1"
    )
    terminal.until("+two")
    terminal.type("q")
    assert not re.search(r"\x1b\[(\d+;)*32(;\d+)*m", terminal.rest())


def test_what_was_edited_is_applied(place: Path, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text(
        f"#!{sys.executable}\nimport sys\nopen(sys.argv[1], 'a').write('mine\\n')\n"
    )
    editor.chmod(0o755)
    run_staged(place, "echo two > a.txt")
    terminal = Terminal(
        sys.executable, "-m", "belljar", "review", cwd=place, VISUAL=str(editor)
    )
    terminal.until("+two")
    terminal.type("v")
    terminal.until("(edited)")
    terminal.type("\r")
    assert "1 applied" in terminal.rest()
    assert (place / "a.txt").read_text() == "two\nmine\n"

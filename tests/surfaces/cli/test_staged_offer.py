"""A staged run ends with the list of changes and a question."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.surfaces.cli.test_staged_commands import CHANGE, run_staged
from tests.surfaces.cli.test_staged_commands import place as place
from tests.surfaces.invoking import belljar
from tests.surfaces.real_terminal import Terminal


@pytest.mark.parametrize(("answer", "left"), [("y", "one\ntwo\n"), ("n", "one\n")])
def test_a_staged_run_on_a_terminal_ends_with_the_changes_and_a_question(
    place: Path, answer: str, left: str
) -> None:
    others = _kept()
    terminal = Terminal.belljar("run", "--staged", "--workspace", place, CHANGE)
    seen = terminal.until("[k]eep for later: ")
    assert "~ a.txt" in seen
    assert "(+1 −1 ~1)" in seen
    terminal.type(answer + "\n")
    terminal.rest()
    assert (place / "a.txt").read_text() == left
    belljar("prune")
    assert _kept() <= others


def _kept() -> set[str]:
    return {each["id"] for each in belljar("session", "list", "--json").json}


def test_changes_can_be_chosen_hunk_by_hunk_and_the_rest_kept(place: Path) -> None:
    lines = [f"{number}\n" for number in range(40)]
    (place / "a.txt").write_text("".join(lines))
    change = "sed -i -e 's/^1$/first/' -e 's/^38$/last/' a.txt; echo new > b.txt"
    terminal = Terminal.belljar("run", "--staged", "--workspace", place, change)
    terminal.until("[k]eep for later: ")
    terminal.type("c\n")
    terminal.until("Apply a.txt? [y,n,a,d,s,e,j,k,/,q,?] ")
    terminal.type("?\n")
    assert "s - decide hunk by hunk" in terminal.until(
        "Apply a.txt? [y,n,a,d,s,e,j,k,/,q,?] "
    )
    terminal.type("s\n")
    terminal.until("Apply hunk 1 of 2? [y,n,a,d,k,q,?] ")
    terminal.type("n\n")
    terminal.until("Apply hunk 2 of 2? [y,n,a,d,k,q,?] ")
    terminal.type("y\n")
    terminal.until("Apply b.txt? [y,n,a,d,e,j,k,/,q,?] ")
    terminal.type("y\n")
    assert "~1 kept as bj-" in terminal.rest()
    text = (place / "a.txt").read_text()
    assert "last" in text
    assert "first" not in text
    assert belljar("apply", "--undo", cwd=place).complaint.startswith(
        "belljar: 2 taken back, applied by "
    )
    assert (place / "a.txt").read_text() == "".join(lines)
    assert not (place / "b.txt").exists()


def test_paths_to_choose_from_are_those_of_a_plain_apply(place: Path) -> None:
    id = run_staged(place)
    terminal = Terminal.belljar(
        "apply", "-p", "--session", id, "./a.txt", "src/../b.txt"
    )
    for name in ("a.txt", "b.txt"):
        terminal.until(f"Apply {name}? [y,n,a,d,e,j,k,/,q,?] ")
        terminal.type("y\n")
    assert "2 applied" in terminal.rest()
    terminal = Terminal.belljar("apply", "-p", "--session", id, "nowhere")
    assert "nowhere: nothing changed there" in terminal.rest()
    assert terminal.status() == 2


def test_choosing_asks_about_empty_directories_but_not_about_fifos(place: Path) -> None:
    terminal = Terminal.belljar(
        "run",
        "--staged",
        "--workspace",
        place,
        "mkdir -p empty full; echo x > full/x; mkfifo fifo",
    )
    terminal.until("[k]eep for later: ")
    terminal.type("c\n")
    terminal.until("Apply empty/? [y,n,a,d,j,k,/,q,?] ")
    terminal.type("y\n")
    assert "# a FIFO: cannot be applied" in terminal.until(
        "Apply full/? [y,n,a,d,s,j,k,/,q,?] "
    )
    terminal.type("y\n")
    assert "3 applied" in terminal.rest()
    assert (place / "empty").is_dir()
    assert (place / "full" / "x").exists()
    run_staged(place, "echo y > y")
    assert belljar("changes", cwd=place).stdout == "+ fifo\n+ y\n"


def test_ctrl_c_at_the_question_after_safe_mode_keeps_the_changes(place: Path) -> None:
    terminal = Terminal.belljar("shell", "--staged", "--workspace", place)
    terminal.line("echo new > b.txt")
    terminal.until("±1")
    terminal.line("exit")
    terminal.until("[k]eep for later: ")
    terminal.insist("\x03", "+1 kept as bj-")
    terminal.rest()
    assert not (place / "b.txt").exists()


def test_the_question_leads_to_the_full_screen_too(place: Path) -> None:
    terminal = Terminal.belljar("run", "--staged", "--workspace", place, CHANGE)
    terminal.until("[k]eep for later: ")
    terminal.type("r\n")
    terminal.until("[ ] ~ a.txt")
    terminal.type(" Dy")
    said = terminal.rest()
    assert "1 applied" in said
    assert "2 discarded" in said
    assert (place / "a.txt").read_text() == "one\ntwo\n"
    assert (place / "c.txt").exists()

"""One thread of work per directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.surfaces.cli.test_staged_commands import areas, run_staged
from tests.surfaces.cli.test_staged_commands import place as place
from tests.surfaces.invoking import belljar

from belljar import host
from belljar.errors import UsageError
from belljar.staged.area import StagedArea
from belljar.surfaces.cli.pending import ago, chosen


def test_staged_runs_in_one_directory_go_on_with_each_other(place: Path) -> None:
    first = run_staged(place, "echo 1 > one; mkdir d; echo x > d/x")
    second = run_staged(
        place, "cat one; echo 2 > two; rm d/x; echo y > d/y; echo three >> one"
    )
    assert first != second
    assert areas() == [second]
    assert belljar("changes", "--all", cwd=place).stdout == "+ d\n+ d/y\n+ one\n+ two\n"
    assert belljar("apply", cwd=place).complaint == "belljar: 4 applied"
    assert (place / "one").read_text() == "1\nthree\n"


def test_new_starts_apart_and_a_number_a_beginning_or_last_names_one(
    place: Path,
) -> None:
    first = run_staged(place, "echo 1 > one")
    answer = belljar(
        "run",
        "--staged",
        "--new",
        "--json",
        "--name",
        "other",
        "echo 2 > two",
        cwd=place,
    )
    second = answer.json["session"]
    assert areas() == sorted([first, second])
    several = belljar("changes", cwd=place)
    assert several.status == 2
    assert "1  just now  +1  other" in several.stderr
    assert "echo 1 > one" in several.stderr
    assert belljar("changes", "--session", "1", cwd=place).stdout == "+ two\n"
    assert belljar("changes", "--session", "2", cwd=place).stdout == "+ one\n"
    assert belljar("changes", "--session", first[:-2], cwd=place).stdout == "+ one\n"
    assert belljar("changes", "last", cwd=place).stdout == "+ two\n"
    assert belljar("diff", "--session", "other", cwd=place).stdout.startswith(
        "diff --git a/two"
    )
    assert (
        belljar("discard", "--session", "1", cwd=place).complaint
        == "belljar: 1 discarded"
    )
    assert belljar("changes", cwd=place).stdout == "+ one\n"
    assert belljar("run", "--new", "true", cwd=place).status == 2


def test_a_number_that_nobody_has_is_an_error(place: Path) -> None:
    run_staged(place, "echo 1 > one")
    area = StagedArea.all(host.default().staged_root)[0]
    assert ago(float(area.meta["created"])) == "just now"
    with pytest.raises(UsageError, match="there is no number 2"):
        chosen({area: []}, "2")

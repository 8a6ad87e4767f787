"""Which files of a workspace the host may run by itself, and how they are told ."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from belljar.workspace.host_run_files import HostRunFiles


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / ".git" / "config").write_text("[core]\n\tbare = false\n\tpager = mine\n")
    descriptor = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def test_nothing_changed_is_nothing_told(root: int) -> None:
    watch = HostRunFiles(root)
    assert watch.since(watch.before()) == ()


def test_samples_and_other_files_do_not_run(root: int, tmp_path: Path) -> None:
    watch = HostRunFiles(root)
    before = watch.before()
    for name in (".git/hooks/pre-commit.sample", ".git/hooks/notes", "Makefile", ".bashrc", "conftest.py"):
        (tmp_path / name).write_text("x")
    assert watch.since(before) == ()


@pytest.mark.parametrize(
    ("added", "told"),
    [
        ('[remote "o"]\n\turl = there\n', False),
        ("[user]\n\tname = me\n", False),
        ("[core]\n\tfsmonitor = evil\n", True),
        ("[core] hooksPath=evil\n", True),
        ("[alias]\n\tst = !evil\n", True),
        ('[filter "x"]\n\tclean = evil\n', True),
        ("[include]\n\tpath = evil\n", True),
        ('[remote "o"]\n\turl = ext::evil\n', True),
        ("[CORE]\n\tSSHCOMMAND = evil\n", True),
    ],
)
def test_of_gits_settings_only_those_that_run_something_are_told(
    root: int, tmp_path: Path, added: str, told: bool
) -> None:
    watch = HostRunFiles(root)
    before = watch.before()
    with (tmp_path / ".git" / "config").open("a") as config:
        config.write(added)
    assert watch.since(before) == ((".git/config",) if told else ())


def test_what_the_user_does_between_commands_is_not_told(root: int, tmp_path: Path) -> None:
    watch = HostRunFiles(root)
    watch.since(watch.before())
    (tmp_path / ".envrc").write_text("mine")
    assert watch.since(watch.before()) == ()


def test_what_appears_while_others_go_on_is_told(root: int, tmp_path: Path) -> None:
    watch = HostRunFiles(root)
    watch.since(watch.before())
    (tmp_path / ".envrc").write_text("whose?")
    assert watch.since(watch.before(busy=True)) == (".envrc",)


def test_a_change_within_one_tick_of_the_clock_is_seen(root: int, tmp_path: Path) -> None:
    watch = HostRunFiles(root)
    for n in range(20):
        before = watch.before()
        (tmp_path / ".envrc").write_text("x" * (n + 1))
        assert watch.since(before) == (".envrc",)
        (tmp_path / ".envrc").unlink()


def test_looking_is_cheap(root: int) -> None:
    watch = HostRunFiles(root)
    watch.since(watch.before())
    quickest = min(_timed(watch) for _ in range(200))
    print(f"{quickest * 1e6:.0f} µs")  # printed, not asserted: the machine may be busy


def _timed(watch: HostRunFiles) -> float:
    began = time.perf_counter()
    watch.since(watch.before())
    return time.perf_counter() - began

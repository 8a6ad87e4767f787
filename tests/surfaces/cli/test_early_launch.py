"""A launch that goes on while the rest is imported."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from belljar.errors import EngineError, WorkingDirectoryError
from belljar.options import SandboxOptions
from belljar.patience import about_to_wait
from belljar.surfaces.cli import early_launch
from belljar.surfaces.cli.early_launch import EarlyLaunch


@pytest.mark.parametrize("cwd", ["..", "../beside", "sub/../..", "out"])
def test_a_working_directory_outside_is_refused_before_anything_is_started(
    workspace: Path, cwd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "out").symlink_to("/etc")
    monkeypatch.setattr(
        early_launch, "launch", lambda *_: pytest.fail("a sandbox was launched")
    )
    early = EarlyLaunch(SandboxOptions(str(workspace)), cwd)
    early.start()
    with pytest.raises(WorkingDirectoryError, match="outside the workspace"):
        early.wait()


class Held:
    """A launch that waits until the test decides how it ends."""

    def __init__(self) -> None:
        self.answered = threading.Event()
        self.failure: Exception | None = None

    def __call__(self, *_: object) -> Held:
        about_to_wait()
        self.answered.wait()
        if self.failure is not None:
            raise self.failure
        return self

    def discard(self) -> None:
        self.discarded = True


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    monkeypatch.setattr(early_launch, "launch", made := Held())
    monkeypatch.setattr(early_launch, "PREPARATION_SECONDS", 600)
    return made


def test_an_early_launch_can_be_waited_for_and_discarded(held: Held) -> None:
    early = EarlyLaunch(SandboxOptions("."))
    early.start()
    held.answered.set()
    early.wait()
    early.discard()
    assert held.discarded


def test_an_early_launch_that_was_taken_is_not_discarded(held: Held) -> None:
    early = EarlyLaunch(SandboxOptions("."))
    held.answered.set()
    early.start()
    taken: object = early.take()
    assert taken is held
    early.discard()
    assert not hasattr(held, "discarded")


def test_a_failed_early_launch_raises_where_it_is_awaited(held: Held) -> None:
    early = EarlyLaunch(SandboxOptions("."))
    held.failure = EngineError("no engine")
    held.answered.set()
    early.start()
    for ask in (early.wait, early.take):
        with pytest.raises(EngineError, match="no engine"):
            ask()
    early.discard()

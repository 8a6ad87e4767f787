"""The blocking facade has the same names and results."""

import inspect
import re
import subprocess
import sys

import pytest
from tests.session.test_box import FOR_TOOLS_AND_SURFACES

import belljar
from belljar import sync
from belljar.session import persistent_shell, watched_run

INNER = {
    "Session": FOR_TOOLS_AND_SURFACES,
    "Pool": {"claim"},
    "Shell": {"from_listed", "is_ours", "learn", "of", "take_over"},
    "PersistentShell": {"resize", "use_terminal", "write"},
    "Run": {"follow", "over", "take"},
    "ToolRegistry": set(),
}  # fmt: skip
"""Names for the layers above, which have an event loop of their own."""


def names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


KINDS = (
    belljar.Session, belljar.Pool, belljar.Shell, belljar.ToolRegistry, persistent_shell.PersistentShell,
    watched_run.Run,
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_name_is_there_with_a_signature_of_its_own(kind: type) -> None:
    facade = getattr(sync, kind.__name__)
    assert names(kind) - INNER[kind.__name__] <= names(facade)
    assert "__getattr__" not in vars(facade), "a name that is passed on is not typed"


def test_every_public_name_shows_its_use() -> None:
    for module in (belljar, sync):
        for name in module.__all__:
            text = getattr(module, name).__doc__ or ""
            assert re.search(r"\n +\S|`[^`]*[(.=][^`]*`", text), (
                f"{module.__name__}.{name} shows no example"
            )


@pytest.mark.parametrize("kind", KINDS)
def test_every_public_method_shows_a_call_of_it(kind: type) -> None:
    for name in names(kind) - INNER[kind.__name__]:
        method = inspect.getattr_static(kind, name)
        if inspect.isfunction(getattr(method, "__func__", method)):
            blocking = getattr(getattr(sync, kind.__name__), name).__doc__ or ""
            for text in (getattr(kind, name).__doc__ or "", blocking):
                assert f"{name}(" in text, f"{kind.__name__}.{name} shows no example"
            assert "await " not in blocking


def test_the_reference_is_one_command_and_names_everything_public() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "pydoc", "belljar"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in {*belljar.__all__} - {"errors", "sync"}:
        assert re.search(rf"\b{name}\(|class {name}\b", said), name
    assert "await box.run(" in said

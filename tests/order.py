"""Starts the longest files first, so that no worker is left with a long file while the others have nothing to do."""

from __future__ import annotations

import pytest

# Longest first, as measured in a parallel run.
LONGEST = [
    "tests/surfaces/http/test_schema.py",
    "tests/remote/test_restarts.py",
    "tests/remote/test_box.py",
    "tests/surfaces/cli/test_far.py",
    "tests/surfaces/cli/test_staged_commands.py",
    "tests/abuse/test_host_death.py",
    "tests/surfaces/cli/test_safe_mode.py",
    "tests/test_make.py",
    "tests/test_packaging.py",
    "tests/engines/docker/test_runtimes.py",
    "tests/abuse/test_engine.py",
    "tests/abuse/test_output.py",
    "tests/abuse/test_exhaustion.py",
    "tests/abuse/test_endurance.py",
    "tests/surfaces/mcp/test_inspector.py",
    "tests/abuse/test_files.py",
    "tests/staged/test_journal.py",
    "tests/engines/oci/test_rootless.py",
    "tests/abuse/test_input.py",
    "tests/session/test_staged.py",
    "tests/attacks/test_hostile_image.py",
    "tests/staged/test_swap.py",
    "tests/session/test_persistent_shell.py",
    "tests/surfaces/cli/test_tool_commands.py",
    "tests/abuse/test_outages.py",
    "tests/surfaces/cli/test_attach.py",
    "tests/surfaces/mcp/test_http.py",
    "tests/policy/test_corpus.py",
    "tests/session/test_copied_workspace.py",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))

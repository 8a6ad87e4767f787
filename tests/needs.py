"""Skips tests whose needs this machine does not meet.

A test states its needs with `@pytest.mark.engine`, `daemon`, `docker`, `bridge`, `oci`, `root`, `idmap` or `dockerd`,
or by a fixture that has them. The summary counts what was not run, by reason. To leave tests out by hand:
`-m 'not engine'`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from belljar.engines.base import Engine
    from belljar.engines.docker.engine import DockerEngine

FIXTURES = {
    "engine": "daemon",
    "base_image": "daemon",
    "docker_client": "docker",
    "neighbour": "docker",
    "image": "docker",
    "make_box": "root",
    "shared_box": "root",
    "private": "dockerd",
    "root_workspace": "idmap",
    "browser": "chromium",
}

OCI_FIXTURES = {"host", "engine", "user", "workspace", "base_image"}

# Folders, modules and tests (by prefix) that start sandboxes without one of these fixtures.
ENGINE_PLACES = (
    "tests/abuse/",
    "tests/attacks/",
    "tests/init/test_links.py",
    "tests/init/test_trees.py",
    "tests/sandbox/test_launch.py",
    "tests/sandbox/test_reaper.py",
    "tests/sandbox/test_sandbox.py",
    "tests/session/test_background_shell.py",
    "tests/session/test_bash_channel.py",
    "tests/session/test_cancellation.py",
    "tests/session/test_on_output.py",
    "tests/session/test_ends.py",
    "tests/session/test_kept.py",
    "tests/session/test_ledger.py",
    "tests/session/test_options.py::test_a_session_of_another_event_loop",
    "tests/session/test_options.py::test_every_way_to_run_a_command",
    "tests/session/test_options.py::test_only_true_counts_as_approval",
    "tests/session/test_persistent_shell.py",
    "tests/session/test_pool.py",
    "tests/session/test_commands.py::test_a_request_runs_only_where_it_was_admitted",
    "tests/session/test_running_command.py",
    "tests/session/test_session.py",
    "tests/session/test_shell_usage.py",
    "tests/session/test_shells.py",
    "tests/session/test_throwaway.py",
    "tests/surfaces/cli/test_ci_report.py",
    "tests/surfaces/cli/test_completer.py",
    "tests/surfaces/cli/test_file_commands.py",
    "tests/surfaces/cli/test_foreground.py",
    "tests/surfaces/cli/test_main.py::test_a_missing_image_says_what_to_do",
    "tests/surfaces/cli/test_open_session.py",
    "tests/surfaces/cli/test_own_commands.py",
    "tests/surfaces/cli/test_run.py",
    "tests/surfaces/cli/test_safe_mode.py",
    "tests/surfaces/cli/test_arguments.py::test_bad_input_is_one_line_and_status_2",
    "tests/surfaces/cli/test_session_commands.py",
    "tests/surfaces/cli/test_signals.py",
    "tests/surfaces/cli/test_staged_commands.py",
    "tests/surfaces/cli/test_staged_offer.py",
    "tests/surfaces/cli/test_staged_remains.py",
    "tests/surfaces/cli/test_streams.py",
    "tests/surfaces/cli/test_tool_commands.py::test_a_tool_call_can_go_to_a_session",
    "tests/surfaces/cli/test_tool_commands.py::test_a_tool_call_s_exit_status_follows_its_result",
    "tests/surfaces/cli/test_tool_commands.py::test_secrets_of_a_tool_call_are_masked",
    "tests/surfaces/cli/test_upkeep.py::test_prune_leaves_the_living_alone",
    "tests/surfaces/mcp/",
    "tests/surfaces/terminal/test_lending.py",
    "tests/test_host.py",
    "tests/test_make.py",
    "tests/test_readme.py::test_the_readmes_commands",
    "tests/test_readme.py::test_the_readmes_python",
    "tests/sync/",
    "tests/tools/",
    "tests/workspace/test_pinned.py::test_an_audit_trail_inside",
    "tests/workspace/test_pinned.py::test_a_workspace_with_belljar_s",
)


def daemon() -> DockerEngine:
    """Docker, or Podman if there is no Docker or BELLJAR_ENGINE names it."""
    from belljar.engines import docker, podman
    from belljar.errors import EngineUnavailable

    if os.environ.get("BELLJAR_ENGINE") == "podman":
        return podman.find()
    try:
        return docker.find()
    except EngineUnavailable as error:
        try:
            return podman.find()
        except EngineUnavailable:
            raise error from None


def _reason_of(find: Callable[[], Engine | None]) -> str | None:
    from belljar.errors import BelljarError

    try:
        found = find()
    except BelljarError as error:
        return str(error)
    if found is not None and not found.describe().can_limit.get("memory"):
        return f"{found.name} can limit nothing here, so no sandbox starts (`belljar doctor` says why)"
    return None


def _no_docker() -> str | None:
    from belljar.engines import docker

    return _reason_of(docker.find)


def _no_engine() -> str | None:
    from belljar import engines

    return _reason_of(engines.connect)


def _no_bridge() -> str | None:
    return _reason_of(daemon) or (
        None if daemon().dialect.works_remotely else "podman's files are always shared"
    )


def _no_oci() -> str | None:
    from belljar import engines
    from belljar.errors import ImageMissing
    from belljar.images import catalog

    def find() -> Engine | None:
        if engines.connect("oci").image(
            catalog.reference("base")
        ) is None and not shutil.which("mmdebstrap"):
            raise ImageMissing(
                "its store lacks the base image, and mmdebstrap is not installed"
            )
        return None

    return _reason_of(find)


def _not_root() -> str | None:
    return None if os.geteuid() == 0 else "these tests are run by an ordinary user"


def _no_idmap() -> str | None:
    """Only root's own workspaces need id-mapped mounts."""
    if os.geteuid() != 0:
        return None
    from belljar.workspace import idmap

    with tempfile.TemporaryDirectory() as name:
        source, target = Path(name, "source"), Path(name, "target")
        source.mkdir()
        target.mkdir()
        directory = os.open(source, os.O_PATH | os.O_DIRECTORY)
        try:
            idmap.mount_exchanged(directory, target, (0, 1000), (0, 1000))
        except OSError as error:
            return f"no id-mapped mounts on {name} ({error.strerror})"
        finally:
            os.close(directory)
        idmap.unmount(target)
    return None


def _no_dockerd() -> str | None:
    missing = [name for name in ("dockerd", "unshare") if not shutil.which(name)]
    return _not_root() or (
        f"{' and '.join(missing)} not installed" if missing else None
    )


def _no_chromium() -> str | None:
    return (
        None
        if shutil.which("chromium")
        else "chromium is not installed (`make browser-test` installs it)"
    )


NEEDS: dict[str, tuple[str, Callable[[], str | None]]] = {
    "engine": ("a container engine that answers", _no_engine),
    "daemon": (
        "Docker or Podman, to look at sandboxes from outside",
        lambda: _reason_of(daemon),
    ),
    "docker": ("Docker", _no_docker),
    "bridge": ("an engine that may be far away: Docker", _no_bridge),
    "oci": ("runc and an image of its own", _no_oci),
    "root": ("to be run by root", _not_root),
    "idmap": ("id-mapped mounts where root runs it", _no_idmap),
    "dockerd": ("to start a Docker daemon of its own", _no_dockerd),
    "chromium": ("a browser: Debian's chromium", _no_chromium),
}


@cache
def reason_missing(need: str) -> str | None:
    """Why the machine does not meet the need, or None if it does."""
    return NEEDS[need][1]()


def pytest_configure(config: pytest.Config) -> None:
    for name, (meaning, _) in NEEDS.items():
        config.addinivalue_line("markers", f"{name}: needs {meaning}")


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            if (need := FIXTURES.get(fixture)) and not _own(item, fixture):
                item.add_marker(need)
        if item.nodeid.startswith("tests/engines/oci/") and OCI_FIXTURES & set(
            getattr(item, "fixturenames", ())
        ):
            item.add_marker("oci")
        if "bridge" in getattr(getattr(item, "callspec", None), "id", "").split("-"):
            item.add_marker("bridge")
        if item.nodeid.startswith(ENGINE_PLACES):
            item.add_marker("engine")
        for need in NEEDS:
            if item.get_closest_marker(need) and (reason := reason_missing(need)):
                item.add_marker(pytest.mark.skip(reason=f"needs {need}: {reason}"))
                break


def _own(item: pytest.Item, fixture: str) -> bool:
    """Whether the test gets its `engine` from its own module or folder (the contract, oci) and not from the top."""
    known = item._fixtureinfo.name2fixturedefs.get(fixture, ())
    return fixture == "engine" and bool(known) and known[-1].baseid not in ("", "tests")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(_reason(report) for report in skipped)
    if reasons:
        terminalreporter.section("not run")
        for reason, count in reasons.most_common():
            terminalreporter.line(f"{count:6}  {reason}")


def _reason(report: pytest.TestReport) -> str:
    text = (
        report.longrepr[2]
        if isinstance(report.longrepr, tuple)
        else str(report.longrepr)
    )
    return text.removeprefix("Skipped: ")

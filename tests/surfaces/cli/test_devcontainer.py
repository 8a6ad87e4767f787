"""`--devcontainer`: a workspace's own wishes, shown first, and only those that keep the sandbox shut."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.surfaces.invoking import belljar
from tests.surfaces.real_terminal import Terminal

from belljar.surfaces.cli import devcontainer


@pytest.fixture
def own(tmp_path: Path) -> dict[str, str]:
    """A cache of its own: what was agreed to before does not count."""
    (tmp_path / "cache").mkdir(mode=0o700)
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def write(workspace: Path, **document: Any) -> None:
    (workspace / ".devcontainer.json").write_text(json.dumps(document))


@pytest.fixture
def built(workspace: Path, base_image: str, docker_client: Any) -> Iterator[Path]:
    (workspace / "Dockerfile").write_text(f"FROM {base_image}\nENV MADE=here\n")
    write(
        workspace,
        build={"dockerfile": "Dockerfile"},
        containerEnv={"GREETING": "hello"},
    )
    yield workspace
    name = devcontainer._name(str(workspace))
    for image in docker_client.images.list(name):
        docker_client.images.remove(image.id, force=True)


def test_a_build_is_shown_and_refused_where_nobody_can_be_asked(
    built: Path, own: dict[str, str]
) -> None:
    answer = belljar("run", "--devcontainer", "echo never", cwd=built, env=own)
    assert (answer.status, answer.stdout) == (2, "")
    assert "| ENV MADE=here" in answer.stderr
    assert "--yes agrees" in answer.stderr


@pytest.mark.engine
def test_the_arguments_of_a_build_are_shown_too(
    workspace: Path, own: dict[str, str]
) -> None:
    """One may name the image that the build begins with."""
    (workspace / "Dockerfile").write_text("ARG FROM\nFROM $FROM\n")
    arguments = {"FROM": "stranger/image", "B": "\x1b[2Jx\ny"}
    write(workspace, build={"dockerfile": "Dockerfile", "args": arguments})
    answer = belljar("run", "--devcontainer", "echo never", cwd=workspace, env=own)
    assert (answer.status, answer.stdout) == (2, "")
    assert "    with FROM=stranger/image\n" in answer.stderr
    assert "    with B=^[[2Jx\\ny\n" in answer.stderr


def test_a_build_that_was_agreed_to_runs_with_its_variables(
    built: Path, own: dict[str, str]
) -> None:
    answer = belljar(
        "run", "--devcontainer", "--yes", "echo $MADE $GREETING", cwd=built, env=own
    )
    assert answer.stdout == "here hello\n", answer.stderr


def test_a_yes_at_the_terminal_holds_until_the_content_changes(
    built: Path, own: dict[str, str]
) -> None:
    def asked(answer: str) -> Terminal:
        terminal = Terminal.belljar(
            "run", "--devcontainer", "--workspace", built, "echo $MADE", **own
        )
        terminal.until("do this? [y]es / [n]o:")
        terminal.type(answer)
        return terminal

    declined = asked("n\r")
    declined.until("you declined")
    assert declined.status() == 2
    agreed = asked("y\r")
    agreed.until("here")
    assert agreed.status() == 0
    again = belljar("run", "--devcontainer", "echo $MADE", cwd=built, env=own)
    assert again.stdout == "here\n", again.stderr
    with (built / "Dockerfile").open("a") as file:
        file.write("ENV MORE=1\n")
    assert belljar("run", "--devcontainer", "true", cwd=built, env=own).status == 2


def test_an_image_that_is_not_ours_is_asked_about(
    workspace: Path, own: dict[str, str]
) -> None:
    write(workspace, image="nobody/nothing:1")
    answer = belljar("run", "--devcontainer", "true", cwd=workspace, env=own)
    assert answer.status == 2
    assert "use the image nobody/nothing:1" in answer.stderr


def test_the_first_command_runs_inside_and_is_judged(
    workspace: Path, own: dict[str, str], base_image: str
) -> None:
    write(
        workspace,
        image="base",
        postCreateCommand="id -u > made",
        runArgs=["--privileged"],
    )
    answer = belljar("run", "--devcontainer", "cat made", cwd=workspace, env=own)
    assert answer.stdout.strip() != "0"
    assert answer.status == 0
    assert "ignored: runArgs" in answer.stderr
    write(workspace, image="base", postCreateCommand="rm -rf /")
    denied = belljar("run", "--devcontainer", "echo never", cwd=workspace, env=own)
    assert (denied.status, denied.stdout) == (126, "")
    write(workspace, image="base", postCreateCommand={"a": ["false"]})
    failed = belljar("run", "--devcontainer", "echo never", cwd=workspace, env=own)
    assert (failed.status, failed.stdout) == (125, "")
    assert "postCreateCommand failed" in failed.stderr


def test_safe_mode_and_kept_sessions_take_it_too(
    workspace: Path, own: dict[str, str], base_image: str
) -> None:
    write(
        workspace,
        image="base",
        postCreateCommand="echo made > /tmp/x",
        containerEnv={"A": "1"},
    )
    shell = belljar(
        "shell",
        "--devcontainer",
        stdin=b"cat /tmp/x; echo $A\n",
        cwd=workspace,
        env=own,
    )
    assert shell.stdout == "made\n1\n", shell.stderr
    id = belljar(
        "session", "start", "--devcontainer", cwd=workspace, env=own
    ).stdout.strip()
    try:
        inside = belljar("run", "--session", id, "cat /tmp/x; echo $A", env=own)
        assert inside.stdout == "made\n1\n", inside.stderr
    finally:
        belljar("session", "stop", id, env=own)


def test_a_folder_that_is_a_link_is_not_followed(
    workspace: Path, tmp_path: Path, own: dict[str, str]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "Dockerfile").write_text("FROM scratch\n")
    (workspace / "sub").symlink_to(outside)
    write(workspace, build={"dockerfile": "sub/Dockerfile", "context": "sub"})
    answer = belljar("run", "--devcontainer", "--yes", "true", cwd=workspace, env=own)
    assert answer.status == 2
    assert "sub cannot be read" in answer.complaint
    (workspace / ".devcontainer.json").unlink()
    (outside / "file").write_text("{}")
    (workspace / ".devcontainer.json").symlink_to(outside / "file")
    answer = belljar("run", "--devcontainer", "true", cwd=workspace, env=own)
    assert answer.status == 2
    assert "cannot be read" in answer.complaint


def test_a_dockerfile_outside_of_its_context_is_one_clear_error(
    workspace: Path, own: dict[str, str]
) -> None:
    (workspace / "sub").mkdir()
    (workspace / "Dockerfile").write_text("FROM scratch\n")
    write(workspace, build={"dockerfile": "Dockerfile", "context": "sub"})
    answer = belljar("run", "--devcontainer", "--yes", "true", cwd=workspace, env=own)
    assert answer.status == 2
    assert "not in the build's context" in answer.complaint


def test_options_that_say_the_same_are_refused(
    workspace: Path, own: dict[str, str]
) -> None:
    assert belljar("run", "--devcontainer", "true", cwd=workspace, env=own).status == 2
    write(workspace, image="base")
    answer = belljar(
        "run", "--devcontainer", "--image", "dev", "true", cwd=workspace, env=own
    )
    assert "--image do not go together" in answer.complaint
    assert os.listdir(workspace) == [".devcontainer.json"]

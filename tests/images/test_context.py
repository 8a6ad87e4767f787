"""What a build may see: the same files give the same digest, and nothing outside of the directory goes in."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from pathspec import GitIgnoreSpec

from belljar.errors import UsageError
from belljar.images import context


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    (made / "sub").mkdir(parents=True)
    (made / "Dockerfile").write_text("FROM scratch\n")
    (made / "sub/file").write_text("content")
    return made


def written(project: Path, dockerfile: str = "Dockerfile") -> context.Context:
    return context.write(
        project, project / dockerfile, project.parent / f"{os.urandom(4).hex()}.tar"
    )


def names(found: context.Context) -> list[str]:
    with tarfile.open(found.tar) as archive:
        return sorted(name for name in archive.getnames() if name != ".")


def test_the_same_files_have_the_same_digest_whatever_their_dates(
    project: Path,
) -> None:
    before = written(project)
    os.utime(project / "sub/file", (1, 1))
    assert written(project).digest == before.digest
    assert (before.files, before.size) == (2, len("FROM scratch\ncontent"))
    (project / "sub/file").write_text("other")
    assert written(project).digest != before.digest


@pytest.mark.parametrize(
    ("ignored", "left"),
    [
        ("sub", ["sub"]),
        ("file", ["sub", "sub/file"]),  # Docker's patterns begin at the top
        ("**/file", ["sub"]),
        ("*\n!sub/file", ["sub", "sub/file"]),
        ("# sub\n\nsub/", ["sub"]),
    ],
)
def test_dockerignore_leaves_out_what_docker_would(
    project: Path, ignored: str, left: list[str]
) -> None:
    (project / ".dockerignore").write_text(ignored)
    expected = ["./.dockerignore", "./Dockerfile", *(f"./{each}" for each in left)]
    assert names(written(project)) == expected


def test_a_link_goes_in_as_a_link_and_a_pipe_is_not_waited_for(project: Path) -> None:
    (project.parent / "secret").write_text("secret")
    (project / "out").symlink_to("../secret")
    os.mkfifo(project / "pipe")
    found = written(project)
    assert b"secret\0" not in found.tar.read_bytes().replace(b"../secret\0", b"")
    with tarfile.open(found.tar) as archive:
        assert archive.getmember("./out").issym()
        assert archive.getmember("./pipe").isfifo()


def test_a_dockerfile_that_is_a_link_or_elsewhere_is_refused(project: Path) -> None:
    (project.parent / "Dockerfile").write_text("FROM scratch\n")
    (project / "linked").symlink_to("../Dockerfile")
    with pytest.raises(UsageError, match="linked"):
        written(project, "linked")
    with pytest.raises(UsageError, match="--context"):
        written(project, "../Dockerfile")
    with pytest.raises(UsageError, match="missing"):
        written(project, "nothing")


def test_too_much_is_refused_before_it_is_copied(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "LARGEST", 1 << 20)
    with open(project / "large", "wb") as file:
        file.truncate(2 << 20)
    with pytest.raises(UsageError, match=r"\.dockerignore"):
        written(project)


def test_the_text_that_is_told_is_the_one_that_was_packed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What somebody agrees to is what is built, also if a command changes the file meanwhile."""
    monkeypatch.setattr(context, "_ignored", changing(project, "FROM other\n"))
    found = written(project)
    with tarfile.open(found.tar) as archive:
        packed = archive.extractfile("./Dockerfile")
        assert packed is not None
        assert packed.read().decode() == found.text == "FROM other\n"


@pytest.mark.parametrize("becomes", [None, "link"])
def test_a_dockerfile_that_is_no_file_any_more_is_an_error(
    project: Path, monkeypatch: pytest.MonkeyPatch, becomes: str | None
) -> None:
    monkeypatch.setattr(context, "_ignored", changing(project, becomes))
    with pytest.raises(UsageError, match="Dockerfile was changed while"):
        written(project)


def changing(project: Path, becomes: str | None) -> Callable[[Path], GitIgnoreSpec]:
    """What changes the Dockerfile between the first look at it and the packing."""

    def change(_: Path) -> GitIgnoreSpec:
        (project / "Dockerfile").unlink()
        if becomes == "link":
            (project / "Dockerfile").symlink_to("sub/file")
        elif becomes is not None:
            (project / "Dockerfile").write_text(becomes)
        return GitIgnoreSpec.from_lines([])

    return change


@pytest.mark.parametrize("line", ["*a" * 20 + "b", "!" + "**/a/" * 20 + "b", "a[z-a]"])
def test_a_dockerignore_that_cannot_be_followed_is_an_error(
    project: Path, line: str
) -> None:
    """It may come from a stranger, and is read before anybody is asked."""
    (project / ".dockerignore").write_text(f"sub\n{line}\n")
    with pytest.raises(UsageError, match=r"^\.dockerignore: "):
        written(project)

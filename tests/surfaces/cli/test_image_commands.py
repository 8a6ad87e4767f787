"""`belljar images …`."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from tests.images.archives import docker_save, member, tar
from tests.surfaces.invoking import belljar
from tests.surfaces.real_terminal import Terminal

from belljar.surfaces.cli.main import main

LAYER = tar([member("hello", b"hello")])


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BELLJAR_IMAGES", str(tmp_path / "images"))
    monkeypatch.setenv(
        "BELLJAR_ENGINE", "auto"
    )  # restored after the test, whatever the command line sets it to


def test_an_image_is_imported_removed_and_its_layers_pruned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = docker_save(tmp_path / "saved.tar", [LAYER], ["tools:1"])

    assert main(["images", "import", str(path), "--name", "mine:2", "--json"]) == 0
    [image] = json.loads(capsys.readouterr().out)
    assert image["names"] == ["mine:2"]
    assert main(["images", "remove", "mine:2"]) == 0
    assert main(["images", "prune", "--json"]) == 0

    assert json.loads(capsys.readouterr().out) == {
        "images": [],
        "layers": 0,
        "bytes": 0,
    }
    assert list((tmp_path / "images" / "layers").iterdir()) == []


def test_a_hostile_archive_is_one_clear_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "evil.tar"
    path.write_bytes(tar([member("../evil", b"x")]))

    assert main(["images", "import", str(path)]) == 2

    said = capsys.readouterr().err
    assert "a path outside of it" in said
    assert len(said.splitlines()) == 1


def test_removing_a_missing_image_is_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["images", "remove", "nosuch"]) == 2
    assert "no image 'nosuch'" in capsys.readouterr().err


def test_the_list_of_the_engine_oci_shows_imported_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if os.geteuid() != 0 or shutil.which("runc") is None:
        pytest.skip("the engine oci needs root and runc")
    main(
        [
            "images",
            "import",
            str(docker_save(tmp_path / "saved.tar", [LAYER], ["tools:1"])),
        ]
    )
    capsys.readouterr()

    assert main(["images", "list", "--engine", "oci"]) == 0

    assert "tools:1" in capsys.readouterr().out


BOOTSTRAP = """#!/bin/sh
# Prints what mmdebstrap does, and waits between two packages for who watches.
for word; do case $word in */root.tar) tar=$word;; esac; done
echo 'I: running apt-get update...' >&2
echo 'I: installing remaining packages inside the chroot...' >&2
echo '0 upgraded, 3 newly installed, 0 to remove and 0 not upgraded.' >&2
for name in less git vim-tiny; do
    echo "Get:1 somewhere bookworm/main amd64 $name amd64 1.0 [1 kB]" >&2
    echo "Unpacking $name:amd64 (1.0) ..." >&2
    echo "Setting up $name:amd64 (1.0) ..." >&2
    read key < "$STEPS"
done
echo 'I: creating tarball...' >&2
cp "$EMPTY" "$tar"
"""


def test_the_bar_of_a_build_moves_with_every_package(tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("runc") is None:
        pytest.skip("the engine oci needs root and runc")
    (tmp_path / "bin").mkdir()
    program, steps, empty = (
        tmp_path / "bin/mmdebstrap",
        tmp_path / "steps",
        tmp_path / "empty.tar",
    )
    program.write_text(BOOTSTRAP)
    program.chmod(0o755)
    empty.write_bytes(LAYER)
    os.mkfifo(steps)
    silent = tmp_path / "cache/belljar/registry-silent"
    silent.parent.mkdir(parents=True)
    silent.touch()
    path = f"{program.parent}:{os.environ['PATH']}"
    terminal = Terminal.belljar("images", "build", "base", "--force", "--engine", "oci", cols=100, PATH=path, STEPS=str(steps),
                                EMPTY=str(empty), XDG_CACHE_HOME=str(tmp_path / "cache"))  # fmt: skip
    shown = []
    at = os.open(
        steps, os.O_RDWR
    )  # both ends, so that the test never hangs if the build has ended
    for name in ("less", "git", "vim-tiny"):
        shown.append(terminal.until(f"% installing remaining: {name}")[-4:])
        os.write(at, b"\n")
    terminal.until("is ready")
    assert terminal.status() == 0
    os.close(at)  # only now: a pipe loses its contents when no process has it open
    assert shown == sorted(set(shown)), "each time farther"


def test_images_are_listed(base_image: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["images", "list"]) == 0
    assert base_image in capsys.readouterr().out
    assert main(["images", "list", "--json"]) == 0
    (base,) = [
        image
        for image in json.loads(capsys.readouterr().out)
        if image["reference"] == base_image
    ]
    assert base["current"] is True


def test_an_image_that_is_there_is_not_built_again(
    base_image: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["images", "build", "base"]) == 0
    assert capsys.readouterr().out.strip() == base_image
    assert main(["images", "build", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["reference"] == base_image


def test_a_cached_image_saves_the_build_on_another_machine(
    base_image: str, tmp_path: Path
) -> None:
    """What the jobs of `belljar ci` do: one machine exports, the next one, with an empty store, imports."""
    key = belljar("images", "key", "base").stdout.strip()
    assert base_image.replace("/", "-").replace(":", "-") in key
    kept = tmp_path / "base.tar"
    exported = belljar("images", "export", "base", str(kept), "--json").json
    other = {"BELLJAR_IMAGES": str(tmp_path / "other"), "BELLJAR_ENGINE": "oci"}
    (tmp_path / "other").mkdir(mode=0o700)
    id = exported["id"]
    imported = belljar(
        "images", "import", str(kept), "--name", "base", "--id", id, "--json", env=other
    )
    assert base_image in imported.json[0]["names"]
    again = belljar(
        "images", "export", "base", str(tmp_path / "again.tar"), "--json", env=other
    )
    if again.status == 125:
        pytest.skip("the engine oci needs root and runc")
    assert again.json["id"] == id
    assert (tmp_path / "again.tar").read_bytes() == kept.read_bytes()


def test_the_key_of_an_image_that_is_not_there_is_an_error() -> None:
    answer = belljar("images", "key", "nobody/nothing:1")
    assert answer.status == 125
    assert "nobody/nothing" in answer.complaint

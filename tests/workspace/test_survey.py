"""One walk over the workspace finds set-id files and git directories."""

from __future__ import annotations

import os
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import belljar
from belljar.errors import ProtectionMissing
from belljar.workspace import beneath, survey


@pytest.mark.parametrize("bits", [0o4755, 0o2755])
async def test_a_set_id_file_in_the_workspace_stops_the_run(
    base_image: str, workspace: Path, bits: int
) -> None:
    deep = workspace / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "tool").write_text("x")
    (deep / "tool").chmod(bits)
    with pytest.raises(ProtectionMissing, match=r"a/b/tool.*chmod"):
        await belljar.run("true", workspace)


@pytest.mark.root  # only root may give a file capabilities
async def test_a_file_with_capabilities_in_the_workspace_stops_the_run(
    base_image: str, workspace: Path
) -> None:
    (workspace / "tool").write_text("x")
    (workspace / "tool").chmod(0o755)
    os.setxattr(
        workspace / "tool",
        "security.capability",
        struct.pack("<5I", 0x02000001, 1 << 7, 0, 0, 0),
    )
    with pytest.raises(ProtectionMissing, match=r"tool.*setcap -r"):
        await belljar.run("true", workspace)


async def test_a_set_id_file_that_was_fixed_no_longer_stops_the_run(
    base_image: str, workspace: Path
) -> None:
    (workspace / "tool").write_text("x")
    (workspace / "tool").chmod(0o4755)
    with pytest.raises(ProtectionMissing):
        await belljar.run("true", workspace)
    (workspace / "tool").chmod(0o755)
    assert (await belljar.run("true", workspace)).ok


def test_sandboxes_that_start_together_share_one_walk(workspace: Path) -> None:
    descriptor = os.open(workspace, os.O_PATH | os.O_DIRECTORY)
    surveys = survey.Surveys()
    assert surveys.of(descriptor) is surveys.of(descriptor)
    os.close(descriptor)


def test_two_hosts_share_no_walk(workspace: Path, tmp_path: Path) -> None:
    descriptor = os.open(workspace, os.O_PATH | os.O_DIRECTORY)
    one, other = belljar.Host(state=tmp_path / "a"), belljar.Host(state=tmp_path / "b")
    assert one.surveys.of(descriptor) is one.surveys.of(descriptor)
    assert one.surveys.of(descriptor) is not other.surveys.of(descriptor)
    os.close(descriptor)


async def test_a_directory_with_its_group_bit_is_no_set_id_file(
    base_image: str, workspace: Path
) -> None:
    (workspace / "shared").mkdir()
    (workspace / "shared").chmod(0o2775)
    assert (await belljar.run("true", workspace)).ok


async def test_a_tree_that_is_too_deep_is_named_with_the_way_out(
    base_image: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beneath, "DEEPEST", 8)
    (workspace / "a b" / "/".join("d" * 9)).mkdir(parents=True)
    with pytest.raises(
        ProtectionMissing, match="nested deeper than 8 directories"
    ) as caught:
        await belljar.run("true", workspace)
    way_out = str(caught.value).rpartition(": ")[2]
    assert way_out == f"rm -rf -- '{workspace}/a b'"
    subprocess.run(way_out, shell=True, check=True)
    assert (await belljar.run("true", workspace)).ok


def test_who_asks_before_the_walk_is_over_waits_for_its_end(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    (workspace / "tool").touch(0o755)
    (workspace / "tool").chmod(0o4755)
    go_on, walk = threading.Event(), beneath.Folder.walk

    def slowly(folder: beneath.Folder) -> Iterator[tuple[str, os.stat_result]]:
        go_on.wait()
        return walk(folder)

    monkeypatch.setattr(beneath.Folder, "walk", slowly)
    descriptor = os.open(workspace, os.O_PATH | os.O_DIRECTORY)
    told: list[object] = []

    def refused(looking: survey.Survey) -> None:
        with pytest.raises(ProtectionMissing, match="tool"):
            looking.refuse_privileged(str(workspace))
        told.append("refused")

    looks = [survey.Survey(descriptor) for _ in range(2)]
    asking = [
        threading.Thread(target=lambda: told.append(looks[0].git_directories())),
        threading.Thread(target=refused, args=(looks[1],)),
    ]
    for each in asking:
        each.start()
    for each in asking:
        each.join(0.2)
    assert told == []
    go_on.set()
    for each in asking:
        each.join()
    assert sorted(told, key=str) == [[".git"], "refused"]
    os.close(descriptor)

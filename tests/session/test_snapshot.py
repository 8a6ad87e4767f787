"""Snapshots on real engines: what they hold, what they leave out, and what begins with them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.owners import give

from belljar import Session
from belljar.errors import UsageError
from belljar.host import Host
from belljar.limits import Limits
from belljar.session import snapshot as snapshots

pytestmark = pytest.mark.anyio
WAYS = [
    pytest.param(("docker", "socket"), marks=pytest.mark.docker, id="docker"),
    pytest.param(("docker", "bridge"), marks=pytest.mark.docker, id="bridged"),
    pytest.param(
        ("oci", "socket"), marks=[pytest.mark.oci, pytest.mark.root], id="oci"
    ),
]


@pytest.fixture(params=WAYS)
def host(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Host]:
    engine, link = request.param
    monkeypatch.setenv("BELLJAR_LINK", link)
    found = Host(engine=engine, state=tmp_path / "state")
    yield found
    found.close()


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Host]:
    found = Host(state=tmp_path / "state")
    yield found
    found.close()


@pytest.fixture
def project(workspace: Path) -> Path:
    for name in ("changed", "deleted", "same"):
        (workspace / name).write_text(f"{name}\n")
        give(workspace / name)
    return workspace


async def test_a_session_begins_with_what_a_snapshot_holds(
    host: Host, project: Path
) -> None:
    async with Session(
        project, changes="staged", host=host, env={"OWN": "1"}, limits=Limits(pids=77)
    ) as box:
        await box.run(
            "echo new > changed; rm deleted; mkdir -p made/deep; echo 1 > made/deep/file; ln -s same link"
        )
        await box.run("echo t > /tmp/t; mkdir ~/h; echo h > ~/h/h; chmod 700 ~/h")
        await box.shell("build").run("cd made/deep; export WHERE=there")
        await box.persistent.run("cd made; export A=b")
        made = await box.snapshot("ready")
        assert (made.name, made.left_out, made.image) == ("ready", (), "base")
        assert made.size > 0
        await box.run("echo later > changed")
    async with Session(snapshot="ready", host=host) as twin:
        assert (twin.workspace.path, twin.is_staged, twin.limits.pids) == (
            str(project),
            True,
            77,
        )
        look = "cat changed made/deep/file link /tmp/t ~/h/h; ls -d deleted; stat -c %a ~/h; echo $OWN"
        found = await twin.run(look)
        assert found.stdout == "new\n1\nsame\nt\nh\n700\n1\n"
        assert "deleted" in found.stderr
        changed = {change.path: change.kind for change in await twin.changes()}
        assert {"changed": "modified", "deleted": "deleted"}.items() <= changed.items()
        assert (
            await twin.shell("build").run("echo $WHERE; pwd")
        ).stdout == "there\n/workspace/made/deep\n"
        assert (
            await twin.persistent.run("echo $A; pwd")
        ).stdout == "b\n/workspace/made\n"
        await twin.apply()
    assert (project / "changed").read_text() == "new\n"
    assert not (project / "deleted").exists()


async def test_the_layers_of_checkpoints_are_in_it_too(
    host: Host, project: Path
) -> None:
    async with Session(project, changes="staged", host=host) as box:
        await box.run("echo one > one; echo 1 > changed")
        await box.checkpoint("first")
        await box.run("echo two > two; rm one; echo 2 > changed")
        await box.snapshot("both")
    async with Session(snapshot="both", host=host) as twin:
        assert (
            await twin.run("cat changed two; ls")
        ).stdout == "2\ntwo\nchanged\ndeleted\nsame\ntwo\n"


async def test_what_the_host_changed_since_is_a_conflict(
    host: Host, project: Path
) -> None:
    async with Session(project, changes="staged", host=host) as box:
        await box.run("echo theirs > changed")
        await box.snapshot("before")
    (project / "changed").write_text("mine\n")
    async with Session(snapshot="before", host=host) as twin:
        assert [change.path for change in await twin.changes() if change.conflict] == [
            "changed"
        ]


async def test_processes_are_not_kept_and_it_says_so(
    plain: Host, workspace: Path
) -> None:
    async with Session(workspace, host=plain) as box:
        await box.start("sleep 600")
        assert (await box.snapshot("busy")).left_out == ("processes",)
    async with Session(snapshot="busy", host=plain) as twin:
        assert await twin.refresh() == []


async def test_a_workspace_that_is_not_staged_is_kept_whole_if_asked(
    host: Host, tmp_path: Path
) -> None:
    first, second, full = tmp_path / "first", tmp_path / "second", tmp_path / "full"
    for path in (first, second, full):
        path.mkdir()
        give(path)
    (full / "file").touch()
    async with Session(first, host=host) as box:
        await box.run("mkdir d; echo 1 > d/file")
        assert (await box.snapshot("whole", workspace=True)).left_out == ()
    async with Session(second, host=host, snapshot="whole") as twin:
        assert (await twin.run("cat d/file")).stdout == "1\n"
    assert (second / "d/file").stat().st_uid == second.stat().st_uid
    with pytest.raises(UsageError, match="empty directory"):
        await Session(full, host=host, snapshot="whole").open()


async def test_a_name_is_taken_once_unless_it_is_replaced(
    plain: Host, workspace: Path
) -> None:
    async with Session(workspace, host=plain) as box:
        await box.run("echo 1 > /tmp/x")
        await box.snapshot("s")
        await box.run("echo 2 > /tmp/x")
        with pytest.raises(UsageError, match="already"):
            await box.snapshot("s")
        await box.snapshot("s", replace=True)
        for wrong in ("", "../up", ".hidden", "a/b"):
            with pytest.raises(UsageError, match="letters, digits"):
                await box.snapshot(wrong)
    async with Session(snapshot="s", host=plain) as twin:
        assert (await twin.run("cat /tmp/x")).stdout == "2\n"
    assert [each.name for each in await Session.snapshots(host=plain)] == ["s"]
    await Session.remove_snapshot("s", host=plain)
    assert await Session.snapshots(host=plain) == ()
    with pytest.raises(UsageError, match="there is no snapshot 's'"):
        await Session(workspace, snapshot="s", host=plain).open()
    assert [path.name for path in plain.snapshots_root.iterdir()] == [".lock"]


async def test_what_is_given_goes_before_what_the_snapshot_says(
    plain: Host, workspace: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    give(other)
    async with Session(
        workspace, host=plain, env={"A": "1"}, policy="strict", name="original"
    ) as box:
        await box.snapshot("s")
    again = Session(other, snapshot="s", host=plain, policy="permissive")
    assert (again.options.workspace, again.policy.name, dict(again.env)["A"]) == (
        str(other),
        "permissive",
        "1",
    )
    assert again.options.name is None


async def test_what_goes_over_the_limit_is_refused_or_left_out(
    plain: Host, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BELLJAR_SNAPSHOTS_SIZE", "1m")
    async with Session(workspace, changes="staged", host=plain) as box:
        await box.run("head -c 3M /dev/zero > /tmp/big; echo h > ~/h")
        assert (await box.snapshot("partly")).left_out == ("/tmp",)
        await box.run("head -c 3M /dev/urandom > big")
        with pytest.raises(UsageError, match="BELLJAR_SNAPSHOTS_SIZE"):
            await box.snapshot("whole")
    assert [each.name for each in await Session.snapshots(host=plain)] == ["partly"]


async def test_a_snapshot_that_cannot_be_written_leaves_nothing(
    plain: Host, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28), "snapshot.json")

    async with Session(workspace, host=plain) as box:
        with monkeypatch.context() as patch:
            patch.setattr(snapshots.resources, "write_whole", full)
            with pytest.raises(Exception, match="no snapshot: No space left"):
                await box.snapshot("s")
        assert list(plain.snapshots_root.iterdir()) == []
        await box.snapshot("s")

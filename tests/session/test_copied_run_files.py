"""In a workspace that is copied into the sandbox, results also name the files that the host may run later."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from belljar import Session
from belljar import host as hosts
from belljar.errors import SandboxLost
from belljar.session.copied_run_files import BELOW, CopiedRunFiles
from belljar.session.files import Files, Sink, Source
from belljar.staged.area import StagedArea

pytestmark = pytest.mark.anyio


@pytest.fixture
def place(
    workspace: Path, base_image: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    monkeypatch.setenv("BELLJAR_LINK", "bridge")
    hosts.default().forget()
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    (workspace / "sub").mkdir()
    (workspace / "do.sh").write_text('eval "$1"\n')
    yield workspace
    for area in StagedArea.all(hosts.default().staged_root):
        area.remove()
    hosts.default().forget()


@pytest.mark.bridge
async def test_files_that_a_command_plants_are_in_its_own_result_only(
    place: Path,
) -> None:
    tasks = "mkdir .vscode; echo folderOpen > .vscode/tasks.json"
    async with Session(place, changes="staged") as box:

        async def later(command: str) -> tuple[str, ...]:
            return (await box.run(["sh", "do.sh", command])).runs_later

        found = await later(f"echo true > .git/hooks/pre-commit; {tasks}")
        assert found == (".git/hooks/pre-commit", ".vscode/tasks.json")
        assert await later("echo x > other; git config remote.a.url b:c") == ()
        assert (
            await box.persistent.run("sh do.sh 'git config core.fsmonitor ./x'")
        ).runs_later == (".git/config",)
        assert await later("echo more >> .git/hooks/pre-commit") == (
            ".git/hooks/pre-commit",
        )
        shell = await box.start(
            [
                "sh",
                "do.sh",
                "git config core.hooksPath tools; mkdir tools; echo 1 > tools/pre-push",
            ]
        )
        assert (await shell.wait()).runs_later == (".git/config", "tools/pre-push")
        assert await later("echo 22 > tools/pre-push; rm .vscode/tasks.json") == (
            "tools/pre-push",
        )
        assert await later("cd sub; git init -q; echo true > .git/hooks/pre-push") == (
            "sub/.git/hooks/pre-push",
        )
        bare = "git init -q --bare evil.git; echo true > evil.git/hooks/pre-receive"
        assert await later(bare) == ("evil.git/HEAD", "evil.git/hooks/pre-receive")
        await box.discard()
        assert await later("true") == ()
        assert await later("ln -s /bin/sh .envrc") == (".envrc",)
    async with Session(place, changes="staged", keep=True) as box:
        id = box.id
    box = await Session.attach(id)
    assert await later("echo true > .git/hooks/pre-merge") == (".git/hooks/pre-merge",)
    await box.stop()


class _Sandbox:
    """A fake sandbox that answers from a table: a listing, the output of `stat`, or an errno. 0 means: it is lost."""

    def __init__(self, answers: dict[str, bytes | int]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def run(
        self, argv: list[str], source: Source | None, sink: Sink
    ) -> tuple[int, bytes]:
        path = argv[1].removesuffix(".")
        self.asked.append(path)
        answer = self.answers.get(path, 2)
        if isinstance(answer, int):
            if answer == 0:
                raise SandboxLost("gone")
            return 1, b"%d no" % answer
        assert callable(sink)
        sink(answer)
        return 0, b""


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_PATH)
    yield descriptor
    os.close(descriptor)


async def test_directories_beyond_the_limit_are_reported_and_searched_next_time(
    root: int,
) -> None:
    sandbox = _Sandbox({"": b""})
    files = CopiedRunFiles(root, [], Files(sandbox.run))
    await files.refresh()
    before = files.before(look=False)
    names = [f"a{number:03}" for number in range(BELOW)]
    sandbox.answers[""] = b"".join(
        b"d 755 0 0 %s\0\0" % name.encode() for name in [*names, "evil.git"]
    )
    await files.refresh()
    assert files.since(before, look=False) == (".",)
    assert "evil.git" not in sandbox.asked
    before = files.before(look=False)
    await files.refresh()
    assert files.since(before, look=False) == ()
    assert "evil.git" in sandbox.asked


async def test_an_unreadable_directory_is_reported_and_a_lost_sandbox_keeps_the_last_state(
    root: int,
) -> None:
    top = b"d 755 0 0 .git\0\0d 755 0 0 ../..\0\0d 755 0 0 ..\0\0"
    answers: dict[str, bytes | int] = {
        "": top,
        ".git": b"d 755 0 0 hooks\0\0",
        ".git/hooks": b"f 755 0 0 pre-push\0\0",
    }
    sandbox = _Sandbox(answers)
    files = CopiedRunFiles(root, [], Files(sandbox.run))
    await files.refresh()
    before = files.before(look=False)
    await files.refresh()
    assert files.since(before, look=False) == ()
    answers[".git/hooks"] = 13
    for _ in range(2):
        await files.refresh()
        assert files.since(before, look=False) == (".git/hooks/.",)
        before = files.before(look=False)
    answers[""] = 0
    await files.refresh()
    assert files.since(before, look=False) == ()
    assert not [path for path in sandbox.asked if ".." in path]

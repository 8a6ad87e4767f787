"""What a sandbox has besides its workspace: read-only mounts, shared caches and metadata."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.surfaces.invoking import belljar

from belljar import Host, Session, errors
from belljar.engines.spec import Mount
from belljar.options import caches_of, mounts_of
from belljar.sandbox.extras import Extra, _mapped
from belljar.workspace.pinned import Identity, Workspace


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir(mode=0o700)
    (path / "word").write_text("read me\n")
    return path


async def test_a_mount_is_read_only(place: Path, data: Path, base_image: str) -> None:
    async with Session(place, mounts={"/data": data}) as box:
        result = await box.run(
            "cat /data/word; touch /data/new; echo more >> /data/word"
        )
        assert result.stdout == "read me\n"
        assert result.stderr.count("Read-only file system") == 2
    assert [each.name for each in data.iterdir()] == ["word"]


async def test_a_cache_outlives_its_sandbox_and_home_stays_writable(
    place: Path, tmp_path: Path, base_image: str
) -> None:
    host = Host(state=tmp_path / "state")
    try:
        async with Session(place, host=host, cache={"pip": "~/.cache/pip"}) as box:
            made = await box.run(
                "echo kept > ~/.cache/pip/wheel && touch ~/.cache/other ~/mine"
            )
            assert made.ok, made.stderr
        async with Session(place, host=host, cache={"pip": "~/.cache/pip"}) as box:
            assert (
                await box.run("cat ~/.cache/pip/wheel; ls ~/.cache")
            ).stdout == "kept\npip\n"
    finally:
        host.close()


async def test_hosts_with_different_state_have_separate_caches(
    place: Path, tmp_path: Path, base_image: str
) -> None:
    host, other = Host(state=tmp_path / "one"), Host(state=tmp_path / "two")
    try:
        for each, seen in ((host, ""), (host, "mine\n"), (other, "")):
            async with Session(place, host=each, cache={"tool": "tool"}) as box:
                assert (
                    await box.run("cat ~/tool/of 2>/dev/null; echo mine > ~/tool/of")
                ).stdout == seen
    finally:
        host.close()
        other.close()


@pytest.mark.parametrize(
    "target",
    ["/", "/workspace", "/workspace/x", "/proc/1", "/etc", "/usr/bin", "/tmp/x", "/.belljar-x", "data", "/x/../etc",
     "//data", "/home/sandbox", "/dev/shm"],
)  # fmt: skip
def test_a_mount_target_in_a_reserved_place_is_refused(target: str) -> None:
    with pytest.raises(errors.UsageError, match="mounts"):
        mounts_of({target: "/srv"})


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("pip", "~"),
        ("pip", "/etc"),
        ("pip", "../x"),
        ("pip", "~/a/../../b"),
        ("../x", "~/x"),
        ("", "~/x"),
        ("p", "~bob/x"),
    ],
)
def test_a_cache_is_below_the_home_directory(name: str, path: str) -> None:
    with pytest.raises(errors.UsageError, match="cache"):
        caches_of({name: path})


@pytest.mark.parametrize("given", [["a"], {1: "x"}, {"/data": 3}, "text"])
def test_mounts_and_caches_that_are_no_mapping_are_refused(given: Any) -> None:
    with pytest.raises(errors.UsageError):
        Session(".", mounts=given)
    with pytest.raises(errors.UsageError):
        Session(".", cache=given)


@pytest.mark.parametrize(
    "source", ["/", "/etc", "/proc", "/run", "workspace", "inside", "parent", "missing"]
)
async def test_a_forbidden_or_missing_mount_source_is_refused(
    place: Path, tmp_path: Path, base_image: str, source: str
) -> None:
    (place / "inside").mkdir(exist_ok=True)
    ours = {
        "workspace": place,
        "inside": place / "inside",
        "parent": place.parent,
        "missing": tmp_path / "missing",
    }
    with pytest.raises(errors.UsageError, match="mounts"):
        await Session(place, mounts={"/data": ours.get(source, Path(source))}).open()


async def test_kept_sessions_are_listed_with_their_metadata(
    place: Path, data: Path, base_image: str
) -> None:
    box = await Session(
        place, keep=True, lease=60, metadata={"job": "17"}, mounts={"/data": data}
    ).open()
    try:
        await box.close()
        (found,) = [
            each for each in await Session.list() if each.metadata == {"job": "17"}
        ]
        assert (found.image, found.workspace) == ("base", str(place.resolve()))
        again = await Session.attach(found.id)
        assert (again.metadata, dict(again.options.mounts)) == (
            {"job": "17"},
            {"/data": str(data)},
        )
        assert (await again.run("cat /data/word")).stdout == "read me\n"
    finally:
        for each in await Session.list():
            if each.metadata == {"job": "17"}:
                await (await Session.attach(each.id)).stop()


def test_the_command_line_takes_mounts_and_caches(
    place: Path, data: Path, tmp_path: Path, base_image: str
) -> None:
    env = {"BELLJAR_STATE": str(tmp_path / "state")}
    options = ("--workspace", place, "--mount", f"{data}:/data", "--cache", "pip")
    done = belljar("run", *options, "cat /data/word; touch ~/.cache/pip/x", env=env)
    assert (done.status, done.stdout) == (0, "read me\n"), done.stderr
    assert belljar("run", *options, "ls ~/.cache/pip", env=env).stdout == "x\n"
    assert belljar("run", "--mount", "nowhere", "true").status == 2
    assert (
        "not a free place to mount at"
        in belljar("run", "--mount", "/srv:/etc", "true").complaint
    )


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Callable[[str], int]]:
    """A process in a mount namespace of its own, in which these commands have run."""
    begun: list[subprocess.Popen[str]] = []

    def begin(commands: str) -> int:
        script = [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-ec",
            f"{commands}\necho; exec sleep 600",
        ]
        begun.append(
            subprocess.Popen(script, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        )
        assert begun[-1].stdout is not None
        begun[-1].stdout.readline()
        return begun[-1].pid

    yield begin
    for each in begun:
        each.kill()
        each.communicate()


@pytest.mark.root
def test_what_was_mounted_must_be_what_was_pinned_and_only_that(
    tmp_path: Path, data: Path, inside: Callable[[str], int]
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "other").mkdir()
    with Workspace.open(data) as pinned:
        extra = Extra(
            Mount("bind", str(tmp_path / "there"), str(data), read_only=True), pinned
        )
        extra.check(inside("mount --bind data there"))
        for commands in (
            "true",
            "mount --bind other there",
            "mount --bind data there; mount --bind data there",
        ):
            with pytest.raises(errors.ProtectionMissing, match="something else"):
                extra.check(inside(commands))


def test_where_the_sandbox_cannot_be_looked_into_the_path_must_be_the_same(
    data: Path, place: Path
) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    with Workspace.open(data) as pinned, Workspace.open(place) as workspace:
        extra = Extra(Mount("bind", "/data", str(data), read_only=True), pinned)
        workspace.identity = Identity(1000, 1000)
        extra.check(gone.pid)
        with _mapped(pinned, workspace, place, 0) as shown:
            assert shown == str(data)
        data.rename(data.with_name("moved"))
        data.mkdir()
        with pytest.raises(errors.WorkspaceError, match="replaced"):
            extra.check(gone.pid)
        with (
            pytest.raises(errors.WorkspaceError, match="replaced"),
            _mapped(pinned, workspace, place, 0),
        ):
            pass

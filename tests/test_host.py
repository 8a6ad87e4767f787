"""One host per tenant: hosts share no engine, run directory, trail or pool."""

import asyncio
import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest
from anyio import to_thread

import belljar
from belljar import Host, Pool, Session, resources, sync
from belljar import host as hosts
from belljar.audit import reader
from belljar.errors import SessionNotFound, UsageError


def kinds(where: Path) -> list[str]:
    return [
        json.loads(line)["kind"]
        for line in (where / "audit.jsonl").read_text().splitlines()
    ]


OCI = pytest.param("oci", marks=[pytest.mark.oci, pytest.mark.root])


@pytest.mark.docker
@pytest.mark.parametrize("other", ["bridge", OCI])
def test_two_hosts_with_different_engines_and_state_live_in_one_process(
    other: str, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = "oci" if other == "oci" else "docker"
    first = Host(
        engine="docker", run=hosts.default().run_root / "one", state=tmp_path / "one"
    )
    second = Host(
        engine=kind, run=hosts.default().run_root / "two", state=tmp_path / "two"
    )
    assert first.connect().capabilities.binds
    monkeypatch.setenv("BELLJAR_LINK", "bridge")
    assert second.connect().capabilities.binds == (other == "oci")
    monkeypatch.delenv("BELLJAR_LINK")

    async def both() -> None:
        async with (
            Session(workspace, host=first) as one,
            Session(workspace, host=second, keep=True) as two,
        ):
            assert one.sandbox.engine is not two.sandbox.engine
            assert one.sandbox.run_dir.parent != two.sandbox.run_dir.parent
            assert (await one.run("echo one")).stdout + (
                await two.run("echo two")
            ).stdout == "one\ntwo\n"
            async with await Session.attach(two.id, host=second) as again:
                assert (await again.run("echo again")).stdout == "again\n"
            with pytest.raises(SessionNotFound):
                await Session.attach(two.id, host=first)
            await two.stop()

    anyio.run(both)
    for host, name in ((first, "one"), (second, "two")):
        host.close()
        assert kinds(tmp_path / name)[0] == "session_open"
        assert reader.verify(tmp_path / name).ok
        assert not [*host.run_root.glob("bj-*")]


@pytest.mark.oci
@pytest.mark.root
def test_two_hosts_leave_nothing_in_each_other_s_directories(
    workspace: Path, tmp_path: Path
) -> None:
    """Nor in the user's own, but for the store of images, which all share."""
    user_s = resources.state_dir()
    before = {path for path in user_s.rglob("*") if path.is_file()}
    one, two = (
        Host(engine="oci", run=hosts.default().run_root / name, state=tmp_path / name)
        for name in ("one", "two")
    )

    async def both() -> None:
        async with (
            Session(workspace, host=one) as first,
            Session(workspace, host=two) as second,
        ):
            assert (await first.run("echo a; df /tmp >&2")).stdout + (
                await second.run("echo b")
            ).stdout == "a\nb\n"
            for host, box, other in ((one, first, second), (two, second, first)):
                boxes = [
                    path.name for path in (host.state_root / "oci" / "boxes").iterdir()
                ]
                assert boxes == [f"belljar-{box.id}"]
                assert other.id not in "".join(map(str, host.state_root.rglob("*")))
                assert str(host.state_root) in str(host.connect().identity)

    anyio.run(both)
    assert {path for path in user_s.rglob("*") if path.is_file()} - before == set()
    for host in (one, two):
        assert not [*(host.state_root / "oci" / "boxes").iterdir()]
        host.close()


async def test_a_pool_serves_sessions_of_its_own_host_only(
    workspace: Path, tmp_path: Path
) -> None:
    other = Host(state=tmp_path / "state")
    async with Pool(workspace, size=1, host=other) as pool:
        with anyio.fail_after(120):
            await pool.ready()
        async with Session(workspace):
            assert pool.waiting == 1
        async with Session(workspace, host=other):
            assert pool.waiting == 0
    await to_thread.run_sync(other.close)


async def test_a_blocking_call_beside_an_open_pool_leaves_it_alone(
    workspace: Path,
) -> None:
    """The pool belongs to this event loop. The blocking call has its own."""
    async with Pool(workspace, size=1) as pool:
        with anyio.fail_after(120):
            await pool.ready()
        result = await asyncio.to_thread(sync.run, "echo beside", workspace)
        assert (result.stdout, pool.waiting) == ("beside\n", 1)


def test_an_unknown_engine_is_refused_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UsageError, match="auto, docker, podman"):
        Session(engine="dokcer")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="host"):
        Session(host="docker")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="either"):
        Session(host=Host(engine="docker"), engine="podman")
    monkeypatch.setenv("BELLJAR_ENGINE", "dokcer")
    with pytest.raises(UsageError, match="auto, docker, podman"):
        belljar.Host().engine_name  # noqa: B018


@pytest.mark.parametrize("kind", ["given", "default", "of a host"])
def test_a_state_directory_that_others_may_enter_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "belljar"
    shared.mkdir()
    shared.chmod(0o777)
    if kind != "of a host":
        monkeypatch.setenv(
            "BELLJAR_STATE" if kind == "given" else "XDG_STATE_HOME",
            str(shared if kind == "given" else tmp_path),
        )
    host = Host(state=shared if kind == "of a host" else None)
    for place in ("audit", "staged_root", "caches_root"):
        with pytest.raises(UsageError, match="only you can enter"):
            getattr(host, place)
    assert not list(shared.iterdir())


def test_a_state_directory_that_was_named_keeps_its_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be a shared directory such as /var/lib."""
    tmp_path.chmod(0o755)
    monkeypatch.setenv("BELLJAR_STATE", str(tmp_path))
    with pytest.raises(UsageError, match="only you can enter"):
        resources.state_dir()
    assert tmp_path.stat().st_mode & 0o777 == 0o755


@pytest.mark.root
def test_another_user_s_state_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sudo` may keep the caller's HOME. The owner of the directory could redirect root to other files."""
    (tmp_path / "belljar").mkdir(mode=0o700)
    os.chown(tmp_path / "belljar", 1000, 1000)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="only you can enter"):
        resources.state_dir()


@pytest.mark.root
def test_a_state_directory_that_another_user_could_replace_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It belongs to root, but its parent is another user's, who could swap it between check and use."""
    theirs = tmp_path / "st"
    theirs.mkdir()
    os.chown(theirs, 1000, 1000)
    monkeypatch.setenv("XDG_STATE_HOME", str(theirs))
    with pytest.raises(
        UsageError, match=f"other users own {theirs} .* set BELLJAR_STATE"
    ):
        resources.state_dir()
    assert not list(theirs.iterdir())
    (theirs / "belljar").mkdir(mode=0o700)
    with pytest.raises(UsageError, match="set BELLJAR_STATE"):
        resources.state_dir()


@pytest.mark.root
def test_another_user_s_link_to_a_directory_of_ours_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ours").mkdir(mode=0o700)
    (tmp_path / "belljar").symlink_to(tmp_path / "ours")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert resources.state_dir().is_dir()
    os.chown(tmp_path / "belljar", 1000, 1000, follow_symlinks=False)
    with pytest.raises(UsageError, match="only you can enter"):
        resources.state_dir()


def test_a_session_is_made_while_another_thread_connects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making one must not wait: it happens on event loops."""
    host, connecting, answered = (
        Host(run=tmp_path / "run", state=tmp_path),
        threading.Event(),
        threading.Event(),
    )

    def connect(*_: object) -> object:
        connecting.set()
        assert answered.wait(60)
        return SimpleNamespace(name="docker")

    monkeypatch.setattr("belljar.engines.connect", connect)
    thread = threading.Thread(target=host.connect)
    thread.start()
    assert connecting.wait(60)
    Session(host=host)
    assert thread.is_alive()
    answered.set()
    thread.join()


def test_a_program_may_have_its_own_default_host(tmp_path: Path) -> None:
    own, before = (
        Host(run=tmp_path / "run", state=tmp_path, runtime="crun"),
        hosts.default(),
    )
    with hosts.used(own):
        assert Session().host is own
    assert hosts.default() is before

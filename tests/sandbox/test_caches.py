"""Caches have a size limit: a full cache affects the sandbox, never the host's disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from belljar import Host, Session, errors
from belljar.sandbox import caches, scratch

volumes = pytest.mark.skipif(
    scratch.possible() is not None, reason=f"no volumes here: {scratch.possible()}"
)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setenv("BELLJAR_CACHE_SIZE", "32m")
    host = Host(state=tmp_path / "state")
    yield host
    host.close()


def behind_loops(state: Path) -> list[str]:
    texts = []
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):  # one of another process may disappear at any moment
            texts.append(path.read_text())
    return [text for text in texts if str(state) in text]


async def no_longer_used(host: Host) -> None:
    with anyio.fail_after(60):
        while behind_loops(host.caches_root):  # noqa: ASYNC110 - the kernel sends no event
            await anyio.sleep(0.05)


@volumes
async def test_a_full_cache_fails_inside_and_is_emptied_once_unused(
    place: Path, host: Host, base_image: str
) -> None:
    async with Session(place, host=host, cache={"pip": "~/.cache/pip"}) as box:
        filled = await box.run(
            "head -c 64M /dev/zero > ~/.cache/pip/all; du -m ~/.cache/pip/all; echo kept > ~/mine"
        )
        assert "No space left on device" in filled.stderr
        assert 20 < int(filled.stdout.split()[0]) <= 32
    (image,) = host.caches_root.glob("*/pip.ext4")
    assert image.stat().st_size == 32 << 20
    await no_longer_used(host)
    async with Session(place, host=host, cache={"pip": "~/.cache/pip"}) as box:
        assert (
            await box.run("ls ~/.cache/pip; echo new > ~/.cache/pip/wheel")
        ).stdout == ""


@volumes
async def test_sessions_that_use_a_cache_at_once_see_each_others_files(
    place: Path, host: Host, base_image: str
) -> None:
    options = {"host": host, "cache": {"pip": "~/.cache/pip"}}
    async with Session(place, **options) as one, Session(place, **options) as other:
        assert len(behind_loops(host.caches_root)) == 1, (
            "two devices on one file would ruin it"
        )
        assert (await one.run("echo shared > ~/.cache/pip/wheel")).ok
        assert (
            await other.run("cat ~/.cache/pip/wheel; rm ~/.cache/pip/wheel")
        ).stdout == "shared\n"
        assert (await one.run("ls ~/.cache/pip")).stdout == ""
    mounted = Path("/proc/self/mountinfo").read_text().splitlines()
    assert not [
        line for line in mounted if "extra-cache" in line and str(host.run_root) in line
    ]
    await no_longer_used(host)


@volumes
def test_a_cache_that_the_disk_could_not_hold_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BELLJAR_CACHE_SIZE", "900t")
    with (
        pytest.raises(errors.UsageError, match="BELLJAR_CACHE_SIZE"),
        caches.opened(tmp_path / "caches", "pip", (0, 0), tmp_path / "staging"),
    ):
        pass
    assert not list((tmp_path / "caches").rglob("*.ext4"))


def test_a_directory_that_has_grown_too_large_is_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "possible", lambda: "this caller may not mount")
    monkeypatch.setenv("BELLJAR_CACHE_SIZE", "16m")
    owner = (os.geteuid(), os.getegid())
    for size, seen in ((1, []), (17, ["1"]), (1, [])):
        with caches.opened(tmp_path, "pip", owner, tmp_path / "staging") as found:
            assert sorted(os.listdir(found.path)) == seen
            Path(found.path, str(size)).write_bytes(bytes(size << 20))


@pytest.mark.parametrize("given", ["much", "1", "-1"])
def test_an_invalid_cache_size_is_refused(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BELLJAR_CACHE_SIZE", given)
    with pytest.raises(errors.UsageError, match="BELLJAR_CACHE_SIZE"):
        caches.size()

"""Files, through E2B's own client."""

from __future__ import annotations

import gzip
import io
import urllib.error
import urllib.request

import httpx
import pytest
from e2b import AsyncSandbox, FilesystemEventType, FileType, Sandbox
from e2b.exceptions import (
    FileNotFoundException,
    InvalidArgumentException,
    SandboxException,
)
from e2b.sandbox.filesystem.filesystem import WriteEntry

pytestmark = pytest.mark.engine


def test_a_file_is_written_with_its_directories_and_read(shared: Sandbox) -> None:
    written = shared.files.write("deep/er/file.txt", "one\n")
    assert (written.name, written.path) == ("file.txt", "/home/user/deep/er/file.txt")
    assert shared.files.read("/home/user/deep/er/file.txt") == "one\n"
    assert shared.commands.run("cat deep/er/file.txt").stdout == "one\n"


def test_bytes_streams_and_several_files(shared: Sandbox) -> None:
    data = bytes(range(256)) * 40_000
    shared.files.write("large", io.BytesIO(data))
    assert bytes(shared.files.read("large", format="bytes")) == data
    assert b"".join(shared.files.read("large", format="stream")) == data
    shared.files.write_files(
        [WriteEntry(path="one", data="1"), WriteEntry(path="/tmp/two", data=b"2")]
    )
    assert (shared.files.read("one"), shared.files.read("/tmp/two")) == ("1", "2")


def test_contents_are_compressed_both_ways(shared: Sandbox) -> None:
    shared.files.write("packed", "a" * 100_000, gzip=True)
    assert shared.files.read("packed", gzip=True) == "a" * 100_000


def test_what_a_file_is(shared: Sandbox) -> None:
    shared.files.write("facts/file", "four")
    shared.commands.run("chmod 640 facts/file; ln -s file facts/link")
    info = shared.files.get_info("facts/file")
    assert (info.type, info.size, info.mode, info.permissions) == (
        FileType.FILE,
        4,
        0o640,
        "-rw-r-----",
    )
    assert (info.owner, info.group) == ("user", "user")
    link = shared.files.get_info("facts/link")
    assert (link.type, link.symlink_target) == (
        FileType.SYMLINK,
        "/home/user/facts/file",
    )
    assert {each.name: each.type for each in shared.files.list("facts")} == {
        "file": FileType.FILE, "link": FileType.SYMLINK,
    }  # fmt: skip
    assert shared.files.get_info("facts").permissions == "drwxr-xr-x"


def test_directories_are_made_once_and_listed_deeper(shared: Sandbox) -> None:
    assert shared.files.make_dir("tree/a/b") is True
    assert shared.files.make_dir("tree/a/b") is False
    shared.files.write("tree/a/b/c", "")
    assert [each.path for each in shared.files.list("tree", depth=3)] == [
        "/home/user/tree/a", "/home/user/tree/a/b", "/home/user/tree/a/b/c",
    ]  # fmt: skip


def test_renaming_and_removing(shared: Sandbox) -> None:
    shared.files.write("old", "kept")
    assert shared.files.rename("old", "moved/new").path == "/home/user/moved/new"
    assert not shared.files.exists("old")
    assert shared.files.read("moved/new") == "kept"
    shared.files.remove("moved")
    shared.files.remove("moved")
    assert not shared.files.exists("moved")


def test_what_is_not_there_is_said_in_e2b_s_words(shared: Sandbox) -> None:
    for ask in (shared.files.read, shared.files.get_info, shared.files.list):
        with pytest.raises(FileNotFoundException):
            ask("nowhere")
    with pytest.raises(InvalidArgumentException):
        shared.files.read("/tmp")
    with pytest.raises(SandboxException):
        shared.files.list("/etc/hostname")


def test_metadata_stays_with_a_file_until_it_is_written_again(shared: Sandbox) -> None:
    about = {"author": "ana"}
    assert shared.files.write("noted", "1", metadata=about).metadata == about
    assert shared.files.get_info("noted").metadata == about
    assert shared.files.rename("noted", "noted2").metadata == about
    assert shared.files.write("noted2", "2").metadata is None
    assert shared.files.get_info("noted2").metadata is None


def test_a_watched_directory_tells_what_changed(shared: Sandbox) -> None:
    shared.files.write("watched/there", "1")
    watch = shared.files.watch_dir("watched", recursive=True, include_entry=True)
    shared.files.write("watched/there", "22")
    shared.files.write("watched/below/new", "3")
    shared.files.remove("watched/there")
    seen = {(event.name, event.type) for event in watch.get_new_events()}
    watch.stop()
    assert {
        ("below", FilesystemEventType.CREATE),
        ("below/new", FilesystemEventType.WRITE),
    } <= seen
    assert ("there", FilesystemEventType.REMOVE) in seen


def test_a_new_file_is_created_given_its_mode_and_written(shared: Sandbox) -> None:
    """These three, in this order: E2B's own tests count them."""
    shared.files.make_dir("counted")
    watch = shared.files.watch_dir("counted")
    shared.files.write("counted/file", "1")
    seen = [(event.name, event.type) for event in watch.get_new_events()]
    watch.stop()
    kinds = (
        FilesystemEventType.CREATE,
        FilesystemEventType.CHMOD,
        FilesystemEventType.WRITE,
    )
    assert seen == [("file", kind) for kind in kinds]


async def test_a_watch_streams_events(shared: Sandbox) -> None:
    import asyncio

    sandbox = await AsyncSandbox.connect(shared.sandbox_id)
    await sandbox.files.make_dir("streamed")
    seen: asyncio.Queue[object] = asyncio.Queue()
    watch = await sandbox.files.watch_dir(
        "streamed", on_event=lambda event: seen.put_nowait(event)
    )
    await sandbox.files.write("streamed/file", "x")
    async with asyncio.timeout(20):
        names = {(await seen.get()).name, (await seen.get()).name}
    await watch.stop()
    assert names == {"file"}


def test_a_file_or_nothing_cannot_be_watched(shared: Sandbox) -> None:
    shared.files.write("a-file", "")
    with pytest.raises(FileNotFoundException):
        shared.files.watch_dir("not-there")
    with pytest.raises(SandboxException):
        shared.files.watch_dir("a-file")


def test_a_signed_address_needs_no_header(shared: Sandbox) -> None:
    shared.files.write("signed.txt", "signed")
    address = shared.download_url("signed.txt", "user", use_signature_expiration=60)
    with urllib.request.urlopen(address) as answer:
        assert answer.read() == b"signed"
        assert "sandbox" in answer.headers["Content-Security-Policy"]
    for wrong in (address.replace("signed.txt", "other.txt"), address[:-3]):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(wrong)
        assert refused.value.code == 401
    late = shared.download_url("signed.txt", "user", use_signature_expiration=-60)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(late)
    assert (
        refused.value.read() == b'{"code":401,"message":"signature is already expired"}'
    )


def test_a_small_body_that_unpacks_to_much_is_not_held_in_memory(
    shared: Sandbox, wire: httpx.Client
) -> None:
    bomb = gzip.compress(bytes(64 << 20))
    headers = {"E2b-Sandbox-Id": shared.sandbox_id, "X-Access-Token": shared._envd_access_token or "",
               "Content-Encoding": "gzip", "Content-Type": "application/octet-stream"}  # fmt: skip
    answer = wire.post(
        "/files", params={"path": "/dev/shm/bomb"}, content=bomb, headers=headers
    )
    assert answer.status_code in (200, 507)

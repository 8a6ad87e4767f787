"""A sandbox's files over HTTP: contents, listings, tar, and what must not work (files.py)."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import pytest
from tests.surfaces.http.serving import Serving


@pytest.fixture
def at(server: Serving, session: str) -> Any:
    def ask(method: str, what: str, path: str | None = None, **more: Any) -> Any:
        params = {**({} if path is None else {"path": path}), **more.pop("params", {})}
        return server.client.request(
            method, f"/v1/sessions/{session}/{what}", params=params, **more
        )

    return ask


def test_a_file_goes_up_and_comes_down(at: Any) -> None:
    written = at(
        "PUT", "files", "deep/er/a.txt", content=b"hello", params={"mode": "0600"}
    )
    assert written.status_code == 200
    assert {**written.json(), "mtime_ns": 0} == {
        "path": "deep/er/a.txt", "kind": "file", "mode": 0o600, "size": 5, "mtime_ns": 0, "target": None,
    }  # fmt: skip
    answer = at("GET", "files", "deep/er/a.txt")
    assert (answer.content, answer.headers["content-disposition"]) == (
        b"hello",
        "attachment",
    )
    assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert (
        at(
            "GET",
            "files",
            "/workspace/deep/er/a.txt",
            params={"offset": 1, "length": 3},
        ).content
        == b"ell"
    )
    assert at("PUT", "files", "empty", content=b"").json()["size"] == 0
    assert at("GET", "files", "empty").content == b""
    assert at("DELETE", "files", "deep").status_code == 204
    assert at("GET", "files", "deep/er/a.txt").status_code == 404


def test_large_files_stream(at: Any) -> None:
    content = bytes(range(256)) * 200_000
    assert at("PUT", "files", "large", content=content).json()["size"] == len(content)
    assert at("GET", "files", "large").content == content
    at("DELETE", "files", "large")


@pytest.mark.parametrize(
    ("method", "what", "path", "status", "errno"),
    [
        ("GET", "files", "missing", 404, "ENOENT"), ("GET", "files", "/etc", 409, "EISDIR"),
        ("PUT", "files", "/etc/x", 403, "EROFS"), ("GET", "entries", "/etc/passwd", 409, "ENOTDIR"),
        ("DELETE", "files", "missing", 404, "ENOENT"), ("GET", "tar", "/etc/passwd", 409, "ENOTDIR"),
        ("PUT", "files", "/proc/1/mem/x", 409, "ENOTDIR"),
    ],
)  # fmt: skip
def test_what_fails_says_which_error(
    at: Any, method: str, what: str, path: str, status: int, errno: str
) -> None:
    answer = at(method, what, path, content=b"x" if method == "PUT" else None)
    assert (answer.status_code, answer.json()["code"], answer.json()["errno"]) == (
        status,
        "file_failed",
        errno,
    )


def test_a_path_is_needed(at: Any) -> None:
    for path in (None, "", "a\0b"):
        answer = at("GET", "files", path)
        assert (answer.status_code, answer.json()["field"]) == (400, "path")


def test_directories_are_listed(at: Any) -> None:
    assert at("PUT", "entries", "list/b/c").json()["kind"] == "directory"
    at("PUT", "files", "list/a", content=b"1")
    assert [item["path"] for item in at("GET", "entries", "list").json()["items"]] == [
        "a",
        "b",
    ]
    assert [item["path"] for item in at("GET", "entries", "list", params={"depth": 2}).json()["items"]] == [
        "a", "b", "b/c",
    ]  # fmt: skip
    (itself,) = at("GET", "entries", "list", params={"depth": 0}).json()["items"]
    assert (itself["path"], itself["kind"]) == ("list", "directory")


def _tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


def _member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644
) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode = kind, link, mode
    return member


def test_a_tar_goes_up_and_comes_down(at: Any) -> None:
    sent = _tar(
        (_member("d", tarfile.DIRTYPE, mode=0o755), b""), (_member("d/äöü " + "x" * 150), b"long name"),
        (_member("d/run", mode=0o755), b"#!/bin/sh\n"), (_member("d/link", tarfile.SYMTYPE, "run"), b""),
        (_member("d/hard", tarfile.LNKTYPE, "d/run"), b""), (_member("big"), bytes(1_000_003)),
    )  # fmt: skip
    assert at("PUT", "tar", "up", content=sent).status_code == 204
    with tarfile.open(fileobj=io.BytesIO(at("GET", "tar", "up").content)) as tar:
        found = {member.name: member for member in tar}
        assert set(found) == {
            "d",
            "d/äöü " + "x" * 150,
            "d/run",
            "d/link",
            "d/hard",
            "big",
        }
        assert (found["d/run"].mode, found["d/link"].linkname) == (0o755, "run")
        content = tar.extractfile("big")
        assert content is not None
        assert content.read() == bytes(1_000_003)
        hard = tar.extractfile("d/hard")
        assert hard is not None
        assert hard.read() == b"#!/bin/sh\n"
    assert at("GET", "tar", "empty-none").json()["errno"] == "ENOENT"


@pytest.mark.parametrize(
    "bad",
    [
        _member("/abs"), _member("../out"), _member("a/../../b"), _member("dev", tarfile.CHRTYPE),
        _member("fifo", tarfile.FIFOTYPE), _member("hard", tarfile.LNKTYPE, "/etc/passwd"),
        _member("hard", tarfile.LNKTYPE, "../x"),
    ],
    ids=lambda member: f"{member.name} {member.type!r}",
)  # fmt: skip
def test_a_bad_tar_unpacks_nothing(at: Any, bad: tarfile.TarInfo) -> None:
    answer = at("PUT", "tar", "bad", content=_tar((_member("good"), b"x"), (bad, b"")))
    assert (answer.status_code, answer.json()["code"]) == (400, "usage")
    assert at("GET", "entries", "bad").status_code == 404
    assert at("PUT", "tar", "bad", content=b"nonsense" * 100).status_code == 400


def test_links_are_kept_and_never_followed_out(at: Any) -> None:
    assert (
        at(
            "PUT",
            "tar",
            "links",
            content=_tar((_member("out", tarfile.SYMTYPE, "/etc"), b"")),
        ).status_code
        == 204
    )
    (found,) = at("GET", "entries", "links").json()["items"]
    assert (found["kind"], found["target"]) == ("link", "/etc")
    through = _tar(
        (_member("out", tarfile.SYMTYPE, "/tmp"), b""), (_member("./out/file"), b"x")
    )
    answer = at("PUT", "tar", "through", content=through)
    assert (answer.status_code, answer.json()["code"]) == (400, "usage")
    assert at("GET", "entries", "through").status_code == 404


def test_a_directory_is_not_made_where_a_file_is(server: Serving, session: str) -> None:
    base = f"/v1/sessions/{session}"
    for path in ("a-file", "/tmp/a-file"):
        server.client.put(f"{base}/files?path={path}", content=b"x")
        answer = server.client.put(f"{base}/entries?path={path}")
        assert (answer.status_code, answer.json()["errno"]) == (409, "EEXIST")

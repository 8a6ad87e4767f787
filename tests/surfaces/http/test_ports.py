"""Ports and terminals: HTTP and WebSockets to what listens inside; a command's streams as frames (ports.py)."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest
import websockets
from tests.surfaces.http.serving import KEY, Serving
from websockets.sync.client import ClientConnection, connect

from belljar.surfaces.http import ports  # noqa: F401 - what these tests are about

SITE = r"""
import http.server, json
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self):
        length = int(self.headers.get("content-length") or 0)
        got = {"path": self.path, "method": self.command, "body": self.rfile.read(length).decode(),
               "headers": {name.lower(): value for name, value in self.headers.items()}}
        data = json.dumps(got).encode()
        self.send_response(201)
        self.send_header("Content-Length", str(len(data)))
        for name, value in (("Set-Cookie", "a=b"), ("Access-Control-Allow-Origin", "*"), ("X-Own", "yes"),
                            ("Clear-Site-Data", '"*"'), ("Content-Security-Policy", "default-src *")):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
    do_GET = do_POST = do_DELETE = answer
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def site(server: Serving, session: str) -> str:
    server.client.put(
        f"/v1/sessions/{session}/files?path=site.py", content=SITE.encode()
    )
    server.run(session, "python3 site.py", wait=0)
    path = f"/v1/sessions/{session}/ports/8000"
    deadline = time.monotonic() + 30
    while server.client.get(f"{path}/").status_code == 502:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return path


def test_a_request_reaches_what_listens_inside(server: Serving, site: str) -> None:
    answer = server.client.post(
        f"{site}/a%2Fb//c?x=1&y=2",
        content=b"body",
        headers={"X-Mine": "1", "Cookie": "s=1", "Belljar-Request": "1"},
    )
    assert answer.status_code == 201
    got = answer.json()
    assert (got["path"], got["method"], got["body"]) == (
        "/a%2Fb//c?x=1&y=2",
        "POST",
        "body",
    )
    assert got["headers"]["x-mine"] == "1"
    assert not {"authorization", "cookie", "belljar-request"} & set(got["headers"])
    assert KEY not in json.dumps(got)
    assert answer.headers["x-own"] == "yes"
    assert (
        answer.headers["content-security-policy"] == "sandbox allow-scripts allow-forms"
    )
    for name in ("x-request-id", "x-frame-options", "cache-control"):  # not ours
        assert name not in answer.headers
    for name in ("set-cookie", "access-control-allow-origin", "clear-site-data"):
        assert name not in answer.headers


def test_the_cookie_never_counts_for_a_port(server: Serving, site: str) -> None:
    with server.with_key(None) as browser:
        browser.post("/v1/login", json={"key": KEY})
        assert browser.get("/v1/keys/self").status_code == 200
        assert browser.get(f"{site}/").status_code == 401


def test_nothing_listens(server: Serving, session: str) -> None:
    answer = server.client.get(f"/v1/sessions/{session}/ports/9/")
    assert (answer.status_code, answer.json()["code"]) == (502, "port_closed")
    assert answer.headers["x-request-id"] == answer.json()["request_id"]
    assert answer.headers["x-frame-options"] == "DENY"
    for port in ("0", "65536", "x"):
        assert (
            server.client.get(f"/v1/sessions/{session}/ports/{port}/").status_code
            == 400
        )


def test_a_link_needs_no_key_and_ends_with_its_session(server: Serving) -> None:
    session = server.session()
    server.client.put(
        f"/v1/sessions/{session}/files?path=site.py", content=SITE.encode()
    )
    server.run(session, "python3 site.py", wait=0)
    maker = server.key("run", reach="tenant")
    with server.with_key(maker["key"]) as client:
        made = client.post(f"/v1/sessions/{session}/links", json={"port": 8000}).json()
    assert made["url"].startswith(f"{server.url}/p/")
    deadline = time.monotonic() + 30
    while (answer := httpx.get(f"{made['url']}x", trust_env=False)).status_code == 502:
        assert time.monotonic() < deadline
    assert answer.json()["path"] == "/x"
    second = server.client.post(
        f"/v1/sessions/{session}/links", json={"port": 8000, "seconds": 1}
    ).json()["url"]
    assert httpx.get(second, trust_env=False).status_code == 201
    time.sleep(1.1)
    assert httpx.get(second, trust_env=False).status_code == 404
    server.client.delete(f"/v1/keys/{maker['id']}")
    assert httpx.get(made["url"], trust_env=False).status_code == 404
    third = server.client.post(
        f"/v1/sessions/{session}/links", json={"port": 8000}
    ).json()["url"]
    server.client.delete(f"/v1/sessions/{session}")
    assert httpx.get(third, trust_env=False).status_code == 404


def _attach(
    server: Serving, command: dict[str, Any], offset: int | str = 0, **headers: str
) -> ClientConnection:
    path = f"/v1/sessions/{command['session']}/commands/{command['id']}/attach?offset={offset}"
    sent = headers or {"Authorization": f"Bearer {KEY}"}
    return connect(
        server.url.replace("http", "ws") + path, additional_headers=sent, proxy=None
    )


def _read(socket: ClientConnection, until: bytes) -> bytes:
    got = b""
    while until not in got:
        message = socket.recv(30)
        assert isinstance(message, bytes)
        got += message
    return got


def test_a_terminal_is_typed_into(server: Serving, session: str) -> None:
    command = server.run(
        session, "PS1='> ' bash --norc --noprofile -i", pty=True, wait=0
    )
    with _attach(server, command) as socket:
        socket.send(b"echo $((6*7))\n")
        assert b"42" in _read(socket, b"42\r\n")
        socket.send(json.dumps({"resize": [40, 120]}))
        socket.send(b"stty size\n")
        assert b"40 120" in _read(socket, b"40 120\r\n")
        with _attach(server, command, 3) as other:
            assert b"42" in _read(other, b"42\r\n")
        socket.send(b"exit 5\n")
        while isinstance(message := socket.recv(30), bytes):
            pass
        assert json.loads(message)["ended"]["exit_code"] == 5
        with pytest.raises(websockets.ConnectionClosedOK):
            socket.recv(30)


def test_closing_kills_nothing_and_stdin_can_be_closed(
    server: Serving, session: str
) -> None:
    command = server.run(session, "cat; echo over", stdin_open=True, wait=0)
    with _attach(server, command) as socket:
        socket.send(b"typed\n")
        _read(socket, b"typed\n")
    path = f"/v1/sessions/{session}/commands/{command['id']}"
    assert server.client.get(path).json()["state"] == "running"
    with _attach(server, command, 6) as socket:
        socket.send(json.dumps({"close_stdin": True}))
        assert _read(socket, b"over\n") == b"over\n"


def test_what_is_no_message_closes(server: Serving, session: str) -> None:
    command = server.run(session, "sleep 100", pty=True, wait=0)
    for wrong in (
        "nonsense",
        "{}",
        '{"resize": [0, 1]}',
        '{"other": 1}',
        "[]",
        '{"resize": ["a", 1]}',
    ):
        with _attach(server, command) as socket:
            socket.send(wrong)
            with pytest.raises(websockets.ConnectionClosedError) as closed:
                socket.recv(30)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 4400
    server.client.delete(f"/v1/sessions/{session}/commands/{command['id']}?grace=0")


def test_who_may_not_attach_gets_a_problem(server: Serving, session: str) -> None:
    command = server.run(session, "sleep 100", pty=True, wait=0)
    with server.with_key(None) as browser:
        browser.post("/v1/login", json={"key": KEY})
        cookie = f"belljar={browser.cookies['belljar']}"
    for headers, status in (
        ({"Authorization": "Bearer bj_wrong"}, 401),
        ({"Cookie": cookie, "Origin": "http://evil.example"}, 403),
        ({"Cookie": cookie}, 403),
    ):
        with pytest.raises(websockets.InvalidStatus) as refused:
            _attach(server, command, **headers)
        assert refused.value.response.status_code == status
    for wrong in (10**6, "0&more=1", "-1"):
        with pytest.raises(websockets.InvalidStatus) as beyond:
            _attach(server, command, wrong)
        assert json.loads(beyond.value.response.body)["code"] == "usage"
    with _attach(server, command, Cookie=cookie, Origin=server.url):
        pass
    key = server.key("run", reach="tenant")
    with _attach(server, command, Authorization=f"Bearer {key['key']}") as socket:
        server.client.delete(f"/v1/keys/{key['id']}")
        with pytest.raises(websockets.ConnectionClosedError) as closed:
            socket.recv(30)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4401
    server.client.delete(f"/v1/sessions/{session}/commands/{command['id']}?grace=0")

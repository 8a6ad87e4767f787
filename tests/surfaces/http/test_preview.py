"""Links with an origin of their own (preview.py): real servers, a real site in a sandbox."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.surfaces.http.serving import KEY, Serving, serving
from websockets.sync.client import connect

from belljar.errors import UsageError
from belljar.surfaces.http.preview import Previews

SITE = r"""
import base64, hashlib, http.server, json
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        headers = {name.lower(): value for name, value in self.headers.items()}
        if "sec-websocket-key" in headers:
            magic = headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            self.send_response(101)
            for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept",
                                base64.b64encode(hashlib.sha1(magic.encode()).digest()).decode())):
                self.send_header(name, value)
            self.end_headers()
            said = headers.get("cookie", "none").encode()
            self.wfile.write(bytes([0x81, len(said)]) + said)
            self.close_connection = True
            return
        data = json.dumps({"path": self.path, "headers": headers}).encode()
        self.send_response(302 if self.path == "/away" else 200)
        self.send_header("Content-Length", str(len(data)))
        for name, value in (("Set-Cookie", "a=b; Domain=localhost; Path=/"), ("Location", "http://127.0.0.1:8000/x?y"),
                            ("Content-Security-Policy", "default-src 'self'"), ("Referrer-Policy", "unsafe-url")):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
"""


def _site(server: Serving) -> str:
    session = server.session()
    server.client.put(
        f"/v1/sessions/{session}/files?path=site.py", content=SITE.encode()
    )
    server.run(session, "python3 site.py", wait=0)
    deadline = time.monotonic() + 30
    while server.client.get(f"/v1/sessions/{session}/ports/8000/").status_code == 502:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return session


def _link(server: Serving, session: str) -> str:
    return str(
        server.client.post(f"/v1/sessions/{session}/links", json={"port": 8000}).json()[
            "url"
        ]
    )


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Serving, int]]:
    """A server whose links have host names."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = (
        "--preview-listen",
        f"127.0.0.1:{port}",
        "--preview-url",
        f"http://*.previews.example:{port}",
    )
    with serving(tmp_path_factory.mktemp("serve"), *options) as server:
        yield server, port


@pytest.fixture(scope="module")
def host(named: tuple[Serving, int]) -> str:
    server, port = named
    url = _link(server, _site(server))
    assert url.startswith("http://")
    assert url.endswith(f".previews.example:{port}/")
    return url.removeprefix("http://").rstrip("/")


def _get(
    named: tuple[Serving, int], host: str, path: str = "/", **headers: str
) -> httpx.Response:
    return httpx.get(
        f"http://127.0.0.1:{named[1]}{path}",
        headers={"Host": host, **headers},
        trust_env=False,
    )


def test_a_host_of_its_own_serves_a_whole_app(
    named: tuple[Serving, int], host: str
) -> None:
    answer = _get(
        named, host, "/a%2Fb//c?x=1", Cookie="s=1", Authorization=f"Bearer {KEY}"
    )
    got = answer.json()
    assert (answer.status_code, got["path"]) == (200, "/a%2Fb//c?x=1")
    assert got["headers"]["cookie"] == "s=1"
    assert "authorization" not in got["headers"]
    assert answer.headers["content-security-policy"] == "default-src 'self'"
    assert answer.headers["set-cookie"] == "a=b; Path=/"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["x-robots-tag"] == "noindex"


def test_a_redirect_stays_on_the_host(named: tuple[Serving, int], host: str) -> None:
    answer = _get(named, host, "/away")
    assert (answer.status_code, answer.headers["location"]) == (302, "/x?y")


def test_a_websocket_gets_the_apps_cookies(
    named: tuple[Serving, int], host: str
) -> None:
    raw = socket.create_connection(("127.0.0.1", named[1]))
    with connect(
        f"ws://{host}/ws", sock=raw, additional_headers={"Cookie": "s=1"}, proxy=None
    ) as opened:
        assert opened.recv(30) == "s=1"


def test_other_names_lead_nowhere(named: tuple[Serving, int], host: str) -> None:
    server, port = named
    token = host.partition(".")[0]
    wrong = [
        f"127.0.0.1:{port}",
        f"previews.example:{port}",
        f"a.{host}",
        f"{token}.evil.example",
        "",
        f"{token}.",
    ]
    for name in wrong:
        assert _get(named, name, f"/p/{token}/").status_code == 421, name
    assert _get(named, f"{'0' * 48}.previews.example:{port}").status_code == 404
    # The service is not there, nor links at the service's own address.
    assert (
        _get(named, host, "/v1/sessions", Authorization=f"Bearer {KEY}").json()["path"]
        == "/v1/sessions"
    )
    assert server.client.get(f"/p/{token}/").status_code == 404


def test_without_names_links_lead_to_the_other_port(tmp_path: Path) -> None:
    with serving(tmp_path, "--preview-listen", "127.0.0.1:0") as server:
        url = _link(server, _site(server))
        assert url.startswith(f"{server.told['previews']}/p/")
        assert not url.startswith(server.url)
        answer = httpx.get(url, headers={"Cookie": "s=1"}, trust_env=False)
        assert "cookie" not in answer.json()["headers"]
        assert (
            answer.headers["content-security-policy"]
            == "sandbox allow-scripts allow-forms"
        )
        assert "set-cookie" not in answer.headers
        assert (
            httpx.get(
                url.replace(server.told["previews"], server.url), trust_env=False
            ).status_code
            == 404
        )
        beside = httpx.get(f"{server.told['previews']}/v1/sessions", trust_env=False)
        assert beside.status_code == 404
        foreign = httpx.get(url, headers={"Host": "evil.example"}, trust_env=False)
        assert (foreign.status_code, json.loads(foreign.text)["code"]) == (
            421,
            "host_refused",
        )


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "x",
        "ftp://*.x",
        "https://*.",
        "https://*.*.x",
        "https://x/path",
        "https://a.*.x",
    ],
)
def test_a_pattern_that_means_nothing(pattern: str) -> None:
    with pytest.raises(UsageError, match="--preview-url"):
        Previews.at(pattern, "http://127.0.0.1:1")

"""Presets are worked out from the clients' own settings and the indexes' own answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from belljar.errors import UsageError
from belljar.network.presets import explain


class Index(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        pages = {
            "/simple/pip/": json.dumps({"files": [{"url": "https://files.example/a.whl"}, {"url": "../b.whl"}]}),
            "/old/pip/": '<a href="https://old-files.example/x.whl#sha256=1">x</a>',
            "/npm/npm/latest": json.dumps({"dist": {"tarball": "https://tarballs.example/npm.tgz"}}),
        }
        body = pages.get(self.path, "").encode()
        self.send_response(200 if body else 404)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def index() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "PIP_INDEX_URL",
        "PIP_EXTRA_INDEX_URL",
        "UV_DEFAULT_INDEX",
        "UV_INDEX_URL",
        "UV_EXTRA_INDEX_URL",
        "GOPROXY",
    ):
        monkeypatch.delenv(name, raising=False)


def test_python_asks_pip_and_then_its_index(index: str) -> None:
    def ask(command: list[str]) -> str:
        return (
            f"global.index-url='{index}/simple'\nglobal.extra-index-url='{index}/old'\n" if "config" in command else ""
        )

    hosts = [found.host for found in explain("python", ask)]
    assert hosts == [index.removeprefix("http://"), "files.example", "old-files.example"]


def test_node_asks_npm_and_then_its_registry(index: str) -> None:
    settings = {"registry": f"{index}/npm/", "@ours:registry": "https://private.example/", "x": 1}
    hosts = [found.host for found in explain("node", lambda _: json.dumps(settings) + "\nnpm warn something")]
    assert hosts == [index.removeprefix("http://"), "tarballs.example", "private.example"]


def test_debian_asks_apt(index: str) -> None:
    assert [
        f.host for f in explain("debian", lambda _: "http://mirror.example/debian\nhttp://mirror.example/debian\n")
    ] == ["mirror.example"]


def test_go_asks_go() -> None:
    def ask(command: list[str]) -> str:
        return {"GOPROXY": "https://proxy.example,direct\n", "GOSUMDB": "sum.example\n"}[command[-1]]

    assert [f.host for f in explain("go", ask)] == ["proxy.example", "sum.example"]


def test_a_client_that_is_not_there_is_an_error_with_a_way_out() -> None:
    with pytest.raises(UsageError, match="--allow HOST"):
        explain("go", lambda _: "")


def test_an_unknown_preset_is_named() -> None:
    with pytest.raises(UsageError, match="there are debian, git, go"):
        explain("perl")

"""Presets are worked out from the clients' own settings and the indexes' own answers."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from anyio import to_thread

from belljar import Allow, Policy, Session
from belljar.errors import UsageError
from belljar.layout import HOME
from belljar.network import index_answers, presets
from belljar.network.index_answers import ask_index
from belljar.network.presets import explain
from belljar.session.network_door import explained

HOSTILE = [
    "*",
    "*.com",
    "x=169.254.169.254",
    "169.254.169.254",
    "[::1]",
    "127.1",
    "localhost",
    "a.example#b",
    "u@c.example",
]


class Index(BaseHTTPRequestHandler):
    asked: ClassVar[list[str]] = []
    leads_to: ClassVar[str] = ""

    def do_GET(self) -> None:
        pages = {
            "/simple/pip/": json.dumps({"files": [{"url": "https://files.example/a.whl"}, {"url": "../b.whl"}]}),
            "/old/pip/": '<a href="https://old-files.example/x.whl#sha256=1">x</a>',
            "/npm/npm/latest": json.dumps({"dist": {"tarball": "https://tarballs.example/npm.tgz"}}),
        }
        self.asked.append(self.path)
        if self.path == "/leads":
            self.send_response(302)
            self.send_header("Location", self.leads_to)
            self.end_headers()
            return
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


def pip_says(*urls: str) -> Callable[[list[str]], str]:
    names = ("index-url", "extra-index-url")
    settings = "".join(f"global.{name}='{url}'\n" for name, url in zip(names, urls, strict=False))
    return lambda command: settings if "config" in command else ""


def test_an_index_can_name_hosts_but_no_address_and_no_pattern(monkeypatch: pytest.MonkeyPatch, index: str) -> None:
    """Whoever answers as the index, or in its place, opens the door to public hosts at most."""
    page = "http://index.example/simple/pip/"
    links = json.dumps({"files": [{"url": f"https://{host}/x"} for host in HOSTILE]})
    monkeypatch.setattr(presets, "ask_index", lambda *_, **__: (page, links))
    hosts = [found.host for found in explain("python", pip_says("http://index.example/simple"))]
    assert hosts == ["index.example", "localhost", "a.example", "c.example"], "and no private address with localhost"


def test_the_image_is_asked_too_but_not_trusted(index: str) -> None:
    Index.asked.clear()
    asked = pip_says("https://index.example/simple", f"{index}/simple http://10.0.0.5/simple https://*/simple")
    found = explain("python", pip_says("https://ours.example/simple"), asked)
    assert {each.host for each in found} == {"ours.example", "index.example"}
    assert next(each.why for each in found if each.host == "index.example") == "pip's index in the image"
    assert not Index.asked, "an image cannot make the host ask private addresses"


def test_a_public_answer_does_not_come_from_a_private_address(index: str) -> None:
    assert ask_index(f"{index}/simple/pip/", public=False)[1]
    assert ask_index(f"{index}/simple/pip/", public=True) == ("", "")
    assert ask_index(f"{index.replace('127.0.0.1', 'localhost')}/simple/pip/", public=True) == ("", "")


def test_no_redirect_leads_to_another_protocol_past_the_check(monkeypatch: pytest.MonkeyPatch, index: str) -> None:
    """urllib follows redirects to ftp, and dials there by itself."""
    with socket.create_server(("127.0.0.1", 0)) as private:
        private.settimeout(0.5)
        monkeypatch.setattr(Index, "leads_to", f"ftp://127.0.0.1:{private.getsockname()[1]}/x")
        monkeypatch.setattr(index_answers, "refusal", lambda _: None)  # as if the index were public
        for public in (True, False):
            assert ask_index(f"{index}/leads", public=public) == ("", "")
        with pytest.raises(TimeoutError):
            private.accept()


def test_an_index_that_answers_byte_by_byte_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_answers, "refusal", lambda _: None)
    monkeypatch.setattr(index_answers, "SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as slow:
        threading.Thread(target=_drip, args=(slow,), daemon=True).start()
        assert ask_index(f"http://127.0.0.1:{slow.getsockname()[1]}/", public=True)[1] == ""


def _drip(server: socket.socket) -> None:
    line, _ = server.accept()
    with line, suppress(OSError):
        line.sendall(b"HTTP/1.1 200 OK\r\nX: ")
        while True:
            line.sendall(b"x")
            time.sleep(0.05)


@pytest.mark.parametrize(
    ("preset", "says"),
    [
        ("python", "global.extra-index-url='https://good.example https://[x'\n"),
        ("node", '{"registry": "https://good.example", "a:registry": "https://[x"}'),
        ("rust", "https://good.example https://[x"),
    ],
)
def test_an_image_whose_answers_cannot_be_read_breaks_nothing(
    monkeypatch: pytest.MonkeyPatch, preset: str, says: str
) -> None:
    monkeypatch.setattr(presets, "ask_index", lambda *_, **__: ("", "[" * 100_000))
    assert "good.example" in [each.host for each in explain(preset, lambda _: "", lambda _: says)]
    with pytest.raises(UsageError, match="name no host"):
        explain("node", lambda _: "", lambda _: '{"registry":' + "[" * 100_000)


def test_an_image_cannot_have_the_host_ask_or_let_through_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(presets, "ask_index", lambda page, *_, **__: asked.append(page) or ("", ""))
    many = " ".join(f"https://h{number}.example" for number in range(1000))
    found = explain("python", lambda _: "", pip_says("https://one.example", many))
    assert len(asked) == presets.MOST_INDEXES
    assert len(explain("debian", lambda _: "", lambda _: many)) == presets.MOST_HOSTS >= len(found)


async def test_the_clients_in_a_sandbox_are_asked(
    base_image: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presets, "on_this_machine", lambda _: "")
    (workspace / ".gitconfig").write_text('[http "https://workspace.example/"]\nx = y\n')
    async with Session(workspace) as box:
        await box.files.write(f"{HOME}/.gitconfig", '[http "https://git.example/"]\nsslVerify = true\n')
        found = await explained("git", box.init_tools)
        assert [(each.host, each.why) for each in found] == [("git.example", "git's http settings in the image")]
        with pytest.raises(UsageError, match="--allow HOST"):
            await explained("go", box.init_tools)


async def test_a_preset_stays_below_the_policys_ceiling(
    base_image: str, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presets, "on_this_machine", pip_says("https://elsewhere.example/simple"))
    policy = tmp_path / "ops.toml"
    policy.write_text('[policy]\nname = "ops"\nextends = "default"\n[network]\nceiling = ["*.example.net"]\n')
    ops = await to_thread.run_sync(Policy.load, str(policy))  # where nothing is cached its examples take a moment
    box = Session(workspace, policy=ops, network=Allow(presets=["python"]))
    with pytest.raises(UsageError, match=r"elsewhere.example is outside"):
        await box.open()


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

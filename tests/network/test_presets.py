"""Presets come from the clients' own settings and the answers of their indexes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from anyio import to_thread
from tests.network.conftest import Index, pip_says

from belljar import Allow, Policy, Session
from belljar.errors import UsageError
from belljar.network import presets
from belljar.network.presets import explain

pytestmark = pytest.mark.usefixtures("no_settings")

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


def test_python_asks_pip_and_then_its_index(index: str) -> None:
    def ask(command: list[str]) -> str:
        return (
            f"global.index-url='{index}/simple'\nglobal.extra-index-url='{index}/old'\n"
            if "config" in command
            else ""
        )

    hosts = [found.host for found in explain("python", ask)]
    assert hosts == [
        index.removeprefix("http://"),
        "files.example",
        "old-files.example",
    ]


def test_an_index_can_name_hosts_but_no_address_and_no_pattern(
    monkeypatch: pytest.MonkeyPatch, index: str
) -> None:
    """A hostile index, or a server in its place, can at most add public hosts."""
    page = "http://index.example/simple/pip/"
    links = json.dumps({"files": [{"url": f"https://{host}/x"} for host in HOSTILE]})
    monkeypatch.setattr(presets, "ask_index", lambda *_, **__: (page, links))
    hosts = [
        found.host
        for found in explain("python", pip_says("http://index.example/simple"))
    ]
    assert hosts == ["index.example", "localhost", "a.example", "c.example"], (
        "and no private address with localhost"
    )


def test_the_image_is_asked_too_but_not_trusted(index: str) -> None:
    Index.asked.clear()
    asked = pip_says(
        "https://index.example/simple",
        f"{index}/simple http://10.0.0.5/simple https://*/simple",
    )
    found = explain("python", pip_says("https://ours.example/simple"), asked)
    assert {each.host for each in found} == {"ours.example", "index.example"}
    assert (
        next(each.why for each in found if each.host == "index.example")
        == "pip's index in the image"
    )
    assert not Index.asked, "an image cannot make the host ask private addresses"


async def test_a_preset_stays_below_the_policys_ceiling(
    base_image: str, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        presets, "run_here", pip_says("https://elsewhere.example/simple")
    )
    policy = tmp_path / "ops.toml"
    policy.write_text(
        '[policy]\nname = "ops"\nextends = "default"\n[network]\nceiling = ["*.example.net"]\n'
    )
    ops = await to_thread.run_sync(
        Policy.load, str(policy)
    )  # slow if nothing is cached: it checks its examples
    box = Session(workspace, policy=ops, network=Allow(presets=["python"]))
    with pytest.raises(UsageError, match=r"elsewhere.example is outside"):
        await box.open()


def test_node_asks_npm_and_then_its_registry(index: str) -> None:
    settings = {
        "registry": f"{index}/npm/",
        "@ours:registry": "https://private.example/",
        "x": 1,
    }
    hosts = [
        found.host
        for found in explain(
            "node", lambda _: json.dumps(settings) + "\nnpm warn something"
        )
    ]
    assert hosts == [
        index.removeprefix("http://"),
        "tarballs.example",
        "private.example",
    ]


def test_debian_asks_apt(index: str) -> None:
    assert [
        f.host
        for f in explain(
            "debian",
            lambda _: "http://mirror.example/debian\nhttp://mirror.example/debian\n",
        )
    ] == ["mirror.example"]


def test_go_asks_go() -> None:
    def ask(command: list[str]) -> str:
        return {
            "GOPROXY": "https://proxy.example,direct\n",
            "GOSUMDB": "sum.example\n",
        }[command[-1]]

    assert [f.host for f in explain("go", ask)] == ["proxy.example", "sum.example"]


def test_a_missing_client_is_an_error_that_names_an_alternative() -> None:
    with pytest.raises(UsageError, match="--allow HOST"):
        explain("go", lambda _: "")


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="there are debian, git, go"):
        explain("perl")


def test_rust_asks_cargo_then_its_index_and_where_that_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(page: str, *_: object, **options: object) -> tuple[str, str]:
        if options["method"] == "HEAD":
            return "https://static.example/serde.crate", ""
        return page, json.dumps({"dl": "https://crates.example/api/v1"})

    monkeypatch.setattr(presets, "ask_index", answer)
    failure = "error: failed to fetch `https://index.example/config.json`"
    hosts = [
        found.host
        for found in explain(
            "rust", lambda command: failure if "cargo" in command else ""
        )
    ]
    assert hosts == ["index.example", "crates.example", "static.example"]

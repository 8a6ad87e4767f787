"""The settings that clients in the sandbox report."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.network.conftest import pip_says

from belljar import Session
from belljar.errors import UsageError
from belljar.layout import HOME
from belljar.network import presets
from belljar.network.presets import explain
from belljar.session.network_door import explained

pytestmark = pytest.mark.usefixtures("no_settings")


@pytest.mark.parametrize(
    ("preset", "says"),
    [
        ("python", "global.extra-index-url='https://good.example https://[x'\n"),
        ("node", '{"registry": "https://good.example", "a:registry": "https://[x"}'),
        ("rust", "https://good.example https://[x"),
    ],
)
def test_unreadable_client_settings_of_an_image_are_ignored(
    monkeypatch: pytest.MonkeyPatch, preset: str, says: str
) -> None:
    monkeypatch.setattr(presets, "ask_index", lambda *_, **__: ("", "[" * 100_000))
    assert "good.example" in [
        each.host for each in explain(preset, lambda _: "", lambda _: says)
    ]
    with pytest.raises(UsageError, match="name no host"):
        explain("node", lambda _: "", lambda _: '{"registry":' + "[" * 100_000)


def test_an_image_can_name_only_a_bounded_number_of_indexes_and_hosts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        presets, "ask_index", lambda page, *_, **__: asked.append(page) or ("", "")
    )
    many = " ".join(f"https://h{number}.example" for number in range(1000))
    found = explain("python", lambda _: "", pip_says("https://one.example", many))
    assert len(asked) == presets.MOST_INDEXES
    assert (
        len(explain("debian", lambda _: "", lambda _: many))
        == presets.MOST_HOSTS
        >= len(found)
    )


async def test_settings_of_clients_inside_are_read_but_not_the_workspace_s(
    base_image: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presets, "run_here", lambda _: "")
    (workspace / ".gitconfig").write_text(
        '[http "https://workspace.example/"]\nx = y\n'
    )
    async with Session(workspace) as box:
        await box.files.write(
            f"{HOME}/.gitconfig", '[http "https://git.example/"]\nsslVerify = true\n'
        )
        found = await explained("git", box.init_tools)
        assert [(each.host, each.why) for each in found] == [
            ("git.example", "git's http settings in the image")
        ]
        with pytest.raises(UsageError, match="--allow HOST"):
            await explained("go", box.init_tools)

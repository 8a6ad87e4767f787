"""`belljar approvals`: list, show, allow, deny; and the same in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import anyio
import pytest
from jsonschema import validate
from tests.surfaces.http.serving import KEY, Serving, serving
from tests.surfaces.invoking import Answer, belljar

import belljar as package
from belljar.errors import PolicyDenied, ServiceError
from belljar.surfaces.cli.approval_commands import LONGEST_TEXT
from belljar.surfaces.cli.schemas import SCHEMAS

pytestmark = pytest.mark.engine
Call = Callable[..., Answer]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("serve")) as started:
        yield started


@pytest.fixture
def call(server: Serving) -> Call:
    return lambda *args: belljar(
        *args, env={"BELLJAR_URL": server.url, "BELLJAR_KEY": KEY}
    )


def _asked(server: Serving, session: str, text: str) -> str:
    """A command that waits; the id of its approval."""
    told = server.run(session, f'rm -rf "$NOWHERE"; echo {text}', wait=0)
    while told["state"] == "queued":
        told = server.client.get(f"/v1/sessions/{session}/commands/{told['id']}").json()
    assert told["state"] == "waiting"
    return str(told["approval"])


def test_what_waits_is_listed_shown_and_answered(call: Call, server: Serving) -> None:
    session = server.session()
    first, second = (
        _asked(server, session, "one " + "x" * 100),
        _asked(server, session, "two"),
    )
    table = call("approvals").stdout
    assert first in table
    assert second in table
    assert max(map(len, table.splitlines())) < LONGEST_TEXT + 220
    shown = call("approvals", "show", first)
    assert "x" * 100 in shown.stdout
    assert call("approvals", "allow", first, "--reason", "fine").status == 0
    refused = call(
        "approvals", "deny", second, "--reason", "no deploys today", "--json"
    )
    assert refused.json[0]["state"] == "denied"
    assert call("approvals", "--json").json == []
    listed = call("approvals", "list", "--all", "--json").json
    validate(listed, SCHEMAS["approvals"])
    validate(call("approvals", "show", first, "--json").json, SCHEMAS["approval"])
    assert {each["state"] for each in listed} == {"allowed", "denied"}
    again = call("approvals", "allow", first)
    assert (again.status, "allowed" in again.complaint) == (125, True)
    commands = server.client.get(f"/v1/sessions/{session}/commands").json()["items"]
    assert {
        (each["exit_code"], (each["error"] or {}).get("detail")) for each in commands
    } == {
        (0, None),
        (None, "no deploys today"),
    }


def test_without_a_service_it_says_how_to_name_one() -> None:
    assert "belljar login" in belljar("approvals").complaint


async def test_python_lists_and_decides(server: Serving) -> None:
    far = package.connect(server.url, key=KEY)
    outcome: list[object] = []

    async def run(text: str) -> None:
        try:
            outcome.append((await box.run(f'rm -rf "$NOWHERE"; echo {text}')).stdout)
        except PolicyDenied as denied:
            outcome.append((denied.declined, str(denied)))

    async with package.Session(host=far) as box:
        for text, decision in (("yes", "allow"), ("no", "deny")):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run, text)
                with anyio.fail_after(60):
                    while not (waiting := await far.approvals(session=box.id)):  # noqa: ASYNC110
                        await anyio.sleep(0.05)
                await far.decide(waiting[0], decision, reason="because")
        with pytest.raises(ServiceError, match="already"):
            await far.decide(waiting[0], "allow")
    assert outcome == ["yes\n", (True, "because")]

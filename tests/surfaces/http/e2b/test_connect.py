"""The Connect protocol against clients that are wrong, hostile or of another age."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from e2b import Sandbox
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route
from starlette.testclient import TestClient

from belljar.surfaces.http.e2b import connect
from belljar.surfaces.http.e2b.connect import ConnectError, Message


async def echo(_: Request, message: Message) -> Message:
    return {"name": connect.field(message, "some_name", str, "none")}


async def count(_: Request, message: Message) -> Any:
    for number in range(connect.field(message, "most", int, 3)):
        yield {"number": number}
    if message.get("fails"):
        raise ConnectError("not_found", "no more")


async def total(_: Request, messages: Any) -> Message:
    return {"sum": sum([message["number"] async for message in messages])}


@pytest.fixture
def client() -> TestClient:
    routes = {
        "/echo": connect.call(echo),
        "/count": connect.stream(count),
        "/sum": connect.upload(total),
    }
    return TestClient(
        Starlette(
            routes=[
                Route(path, each, methods=["POST"]) for path, each in routes.items()
            ]
        )
    )


def envelope(message: Any, flags: int = 0) -> bytes:
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return bytes([flags]) + len(data).to_bytes(4, "big") + data


def opened(data: bytes) -> list[tuple[int, Any]]:
    found = []
    while data:
        size = int.from_bytes(data[1:5], "big")
        found.append((data[0], json.loads(data[5 : 5 + size])))
        data = data[5 + size :]
    return found


STREAM = {"Content-Type": "application/connect+json"}


@pytest.mark.parametrize("message", [{"someName": "x"}, {"some_name": "x"}])
def test_fields_may_be_written_in_either_case(
    client: TestClient, message: Message
) -> None:
    assert client.post("/echo", json=message).json() == {"name": "x"}


def test_a_stream_ends_with_its_error(client: TestClient) -> None:
    answer = client.post(
        "/count", content=envelope({"most": 2, "fails": True}), headers=STREAM
    )
    assert answer.status_code == 200
    error = {"code": "not_found", "message": "no more"}
    assert opened(answer.content) == [
        (0, {"number": 0}),
        (0, {"number": 1}),
        (2, {"error": error}),
    ]


def test_messages_of_a_client_are_taken_as_they_come_in_any_pieces(
    client: TestClient,
) -> None:
    whole = b"".join(envelope({"number": n}) for n in range(10))
    answer = client.post(
        "/sum",
        content=iter([whole[at : at + 7] for at in range(0, len(whole), 7)]),
        headers=STREAM,
    )
    assert opened(answer.content) == [(0, {"sum": 45}), (2, {})]


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"[1]", 400),
        (b"{", 400),
        (b"[" * 100_000, 400),
        (b'{"someName": 7}', 400),
        (b" " * (connect.LARGEST + 1), 429),
    ],
    ids=["a list", "half", "deep", "a wrong type", "too large"],
)
def test_a_wrong_message_is_refused(
    client: TestClient, content: bytes, status: int
) -> None:
    answer = client.post(
        "/echo", content=content, headers={"Content-Type": "application/json"}
    )
    assert (answer.status_code, "code" in answer.json()) == (status, True)


@pytest.mark.parametrize(
    "content",
    [
        envelope(b"x" * 8, flags=1),
        bytes([0]) + (1 << 31).to_bytes(4, "big"),
        envelope(b"not json"),
    ],
    ids=["compressed", "a length of 2 GiB", "no JSON"],
)
def test_a_wrong_envelope_is_refused(client: TestClient, content: bytes) -> None:
    answer = client.post("/count", content=content, headers=STREAM)
    assert answer.status_code in (400, 429)


def test_a_stream_needs_its_own_media_type(client: TestClient) -> None:
    assert client.post("/count", json={}).status_code == 400


@pytest.mark.engine
def test_a_wrong_deadline_is_refused(shared: Sandbox, wire: httpx.Client) -> None:
    headers = {"E2b-Sandbox-Id": shared.sandbox_id, "X-Access-Token": shared._envd_access_token or "", **STREAM,
               "Connect-Timeout-Ms": "-5"}  # fmt: skip
    process = {"process": {"cmd": "/bin/bash", "args": ["-l", "-c", "true"]}}
    answer = wire.post(
        "/process.Process/Start", content=envelope(process), headers=headers
    )
    assert opened(answer.content)[-1][1]["error"]["code"] == "invalid_argument"

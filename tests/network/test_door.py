"""The network door, end to end: a program's connection, the relay, the proxy, a server."""

from __future__ import annotations

from contextlib import suppress

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import SocketStream
from tests.network.conftest import LOCAL, Names, OpenDoor, echo, server, web

from belljar.network.allow import Allow, DoorLimits


async def test_a_plain_request_is_passed_on_and_recorded(open_door: OpenDoor) -> None:
    async with (
        server(web) as port,
        open_door(Allow(f"api.test:{port}", f"127.0.0.1:{port}"), Names(LOCAL)) as door,
    ):
        request = f"GET http://api.test:{port}/a?b=1 HTTP/1.1\r\nHost: api.test:{port}\r\nX-A: 1\r\nConnection: close\r\n\r\n"
        answer = await door.exchange(request.encode())
    assert answer.startswith(b"HTTP/1.1 200")
    assert (
        f"GET /a?b=1 HTTP/1.1|Host: api.test:{port}|X-A: 1".lower().encode()
        in answer.lower()
    )
    (record,) = door.records
    assert (record["host"], record["verdict"], record["path"], record["address"]) == (
        "api.test",
        "allowed",
        "/a?b=1",
        "127.0.0.1",
    )
    assert record["received"] > 0 < record["sent"]


async def test_one_connection_carries_many_requests_each_judged(
    open_door: OpenDoor,
) -> None:
    async with (
        server(web) as port,
        open_door(Allow(f"api.test:{port}", f"127.0.0.1:{port}"), Names(LOCAL)) as door,
    ):
        good = f"GET http://api.test:{port}/1 HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n".encode()
        bad = f"GET http://evil.test:{port}/2 HTTP/1.1\r\nHost: evil.test:{port}\r\n\r\n".encode()
        answer = await door.exchange(good, good, bad)
    assert answer.count(b"HTTP/1.1 200") == 2
    assert b"HTTP/1.1 403" in answer
    assert [r["verdict"] for r in door.records] == ["allowed", "allowed", "refused"]


async def test_connect_carries_bytes_both_ways(open_door: OpenDoor) -> None:
    async with (
        server(echo) as port,
        open_door(Allow(f"127.0.0.1:{port}")) as door,
        await door.dial() as stream,
    ):
        await stream.send(
            f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
        )
        assert (await stream.receive()).startswith(b"HTTP/1.1 200")
        blob = bytes(range(256)) * 40_000
        received = bytearray()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream.send, blob)
            while len(received) < len(blob):
                received += await stream.receive()
        assert received == blob


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("GET http://evil.test/ HTTP/1.1", 403),
        ("GET http://api.test.evil.test/ HTTP/1.1", 403),
        ("GET http://api.test@evil.test/ HTTP/1.1", 400),
        ("GET http://evil.test#api.test/ HTTP/1.1", 400),
        ("GET http://api.test:22/ HTTP/1.1", 403),
        ("GET http://127.0.0.1/ HTTP/1.1", 403),
        ("GET http://127.1/ HTTP/1.1", 400),
        ("GET http://2130706433/ HTTP/1.1", 400),
        ("GET http://[::ffff:127.0.0.1]/ HTTP/1.1", 403),
        ("GET https://api.test/ HTTP/1.1", 400),
        ("GET / HTTP/1.1", 400),
        ("CONNECT evil.test:443 HTTP/1.1", 403),
        ("CONNECT api.test:25 HTTP/1.1", 403),
        ("CONNECT api.test HTTP/1.1", 400),
        ("CONNECT xn--api-test:443 HTTP/1.1", 403),
    ],
)
async def test_what_was_not_allowed_is_refused_with_a_reason(
    open_door: OpenDoor, line: str, status: int
) -> None:
    async with open_door(
        Allow("api.test", "*.wild.test"), Names({"api.test": ["192.0.2.1"]})
    ) as door:
        host = (
            line.split()[1].removeprefix("http://").split("/")[0].rpartition("@")[2]
            or "x"
        )
        answer = await door.exchange(f"{line}\r\nHost: {host}\r\n\r\n".encode())
    assert answer.startswith(f"HTTP/1.1 {status}".encode())
    assert b"belljar:" in answer


async def test_a_name_that_resolves_to_a_private_address_is_refused(
    open_door: OpenDoor,
) -> None:
    places = ["127.0.0.1", "10.0.0.1", "169.254.169.254", "100.64.0.1", "::1", "::ffff:10.0.0.1", "64:ff9b::a00:1",
              "224.0.0.1", "fd00::1", "168.63.129.16", "0.0.0.0"]  # fmt: skip
    names = Names({f"n{i}.wild.test": [place] for i, place in enumerate(places)})
    async with open_door(Allow("*.wild.test"), names) as door:
        for name in names.known:
            answer = await door.exchange(
                f"CONNECT {name}:443 HTTP/1.1\r\nHost: {name}\r\n\r\n".encode()
            )
            assert answer.startswith(b"HTTP/1.1 403"), (name, answer)


async def test_a_name_is_resolved_once_per_connection(open_door: OpenDoor) -> None:
    """Against DNS rebinding: the proxy dials the address that it checked."""
    names = Names({"api.test": ["127.0.0.1"]})
    async with (
        server(web) as port,
        open_door(Allow(f"api.test:{port}", f"127.0.0.1:{port}"), names) as door,
    ):
        request = f"GET http://api.test:{port}/ HTTP/1.1\r\nHost: api.test:{port}\r\nConnection: close\r\n\r\n".encode()
        assert (await door.exchange(request)).startswith(b"HTTP/1.1 200")
        assert names.asked == ["api.test"]
        names.known["api.test"] = ["127.0.0.2"]
        assert (await door.exchange(request)).startswith(b"HTTP/1.1 403")


@pytest.mark.parametrize(
    "request_text",
    [
        "POST http://api.test/ HTTP/1.1\r\nHost: api.test\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET http://api.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        "GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\nX: a\r\n b\r\n\r\n",
        "GET http://api.test/ HTTP/1.1\nHost: api.test\n\n",
        "GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\nX: a\rY: b\r\n\r\n",
        "GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\nHost: evil.test\r\n\r\n",
        "POST http://api.test/ HTTP/1.1\r\nHost: api.test\r\nContent-Length: 5, 6\r\n\r\n",
        "GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "GET http://api.test/ HTTP/1.1\r\nHost : api.test\r\n\r\n",
        "GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\nX: "
        + "a" * 40_000
        + "\r\n\r\n",
    ],
)
async def test_requests_that_can_be_read_in_two_ways_are_refused(
    open_door: OpenDoor, request_text: str
) -> None:
    async with open_door(Allow("api.test"), Names({"api.test": ["192.0.2.1"]})) as door:
        answer = await door.exchange(request_text.encode())
    assert answer[:10] in (b"HTTP/1.1 4", b"HTTP/1.1 5"), answer
    assert not any(record["address"] for record in door.records)


async def test_a_person_is_asked_once_per_host(open_door: OpenDoor) -> None:
    asked: list[str] = []

    async def ask(host: str, port: int) -> bool:
        asked.append(host)
        await anyio.sleep(0.01)
        return host == "127.0.0.1"

    async with server(web) as port, open_door(Allow(ask_hosts=True), ask=ask) as door:
        request = f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode()
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(door.exchange, request)
        refused = await door.exchange(
            b"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test\r\n\r\n"
        )
    assert asked == ["127.0.0.1", "evil.test"]
    assert b"403" in refused
    assert [r["verdict"] for r in door.records] == ["allowed"] * 5 + ["refused"]


async def test_the_number_of_questions_is_bounded_and_one_is_open_at_a_time(
    open_door: OpenDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("belljar.network.door.ASKED_MAX", 3)
    asked, open_now, most = 0, 0, 0

    async def ask(host: str, port: int) -> bool:
        nonlocal asked, open_now, most
        asked, open_now = asked + 1, open_now + 1
        most = max(most, open_now)
        await anyio.lowlevel.checkpoint()
        open_now -= 1
        return False

    async with (
        open_door(Allow(ask_hosts=True), ask=ask) as door,
        anyio.create_task_group() as tasks,
    ):
        for i in range(6):
            tasks.start_soon(
                door.exchange,
                f"CONNECT n{i}.test:443 HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
            )
    assert (asked, most) == (3, 1)
    assert [record["verdict"] for record in door.records] == ["refused"] * 6


async def test_an_unanswered_question_denies_the_connection(
    open_door: OpenDoor,
) -> None:
    async def ask(host: str, port: int) -> bool:
        await anyio.sleep_forever()
        return True

    async with open_door(
        Allow(ask_hosts=True, limits=DoorLimits(ask=0.05)), ask=ask
    ) as door:
        answer = await door.exchange(b"CONNECT a.test:443 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403")


async def test_the_rate_of_new_connections_is_bounded(open_door: OpenDoor) -> None:
    async with open_door(Allow("api.test", limits=DoorLimits(per_minute=2))) as door:
        answers = [
            await door.exchange(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(3)
        ]
    assert [bool(answer) for answer in answers] == [True, True, False]
    assert [record["reason"] == "too many connections" for record in door.records] == [
        False,
        False,
        True,
    ]


async def test_connections_beyond_the_limit_are_closed(open_door: OpenDoor) -> None:
    async with open_door(Allow("api.test", limits=DoorLimits(connections=2))) as door:
        first, second = await door.dial(), await door.dial()
        while door.door._share.open < 2:  # noqa: ASYNC110 — there is no event for it
            await anyio.sleep(0.01)
        assert await door.exchange(b"GET / HTTP/1.1\r\n\r\n") == b""
        await first.aclose()
        await second.aclose()
    assert door.records[0]["reason"] == "too many connections"


async def test_the_transferred_bytes_are_bounded(open_door: OpenDoor) -> None:
    async with (
        server(echo) as port,
        open_door(Allow(f"127.0.0.1:{port}", limits=DoorLimits(bytes=100_000))) as door,
    ):
        head = f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        received = await door.exchange(head, b"x" * 1_000_000)
    assert len(received) < 200_000


async def test_a_redirect_is_judged_as_a_new_request(open_door: OpenDoor) -> None:
    async def redirect(stream: SocketStream) -> None:
        await stream.receive()
        await stream.send(
            b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"
        )

    async with (
        server(redirect) as port,
        open_door(Allow(f"api.test:{port}=127.0.0.1"), Names(LOCAL)) as door,
    ):
        first = f"GET http://api.test:{port}/ HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n".encode()
        then = b"GET http://169.254.169.254/ HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n"
        answer = await door.exchange(first, then)
    assert b"302" in answer
    assert b"HTTP/1.1 403" in answer


@pytest.mark.parametrize("parts", [1, 40])
async def test_plain_http_in_a_tunnel_must_name_the_allowed_host(
    open_door: OpenDoor, parts: int
) -> None:
    """Against domain fronting: a server with many names would also serve a host that is not allowed."""
    async with (
        server(web) as port,
        open_door(Allow(f"api.test:{port}=127.0.0.1"), Names(LOCAL)) as door,
    ):
        for host, good in ((f"api.test:{port}", True), ("other.test", False)):
            async with await door.dial() as stream:
                await stream.send(
                    f"CONNECT api.test:{port} HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n".encode()
                )
                assert (await stream.receive()).startswith(b"HTTP/1.1 200 Connection")
                request = f"GET /secret HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
                size = max(1, len(request) // parts)
                for at in range(0, len(request), size):
                    await stream.send(request[at : at + size])
                answer = b""
                with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                    while True:
                        answer += await stream.receive()
            assert answer.startswith(b"HTTP/1.1 200" if good else b"HTTP/1.1 400"), (
                answer
            )


async def test_a_server_that_speaks_first_works_through_a_tunnel(
    open_door: OpenDoor,
) -> None:
    async def greeting(stream: SocketStream) -> None:
        await stream.send(b"220 ready\r\n")
        await echo(stream)

    async with (
        server(greeting) as port,
        open_door(Allow(f"api.test:{port}=127.0.0.1"), Names(LOCAL)) as door,
    ):
        stream = await door.dial()
        async with stream:
            await stream.send(
                f"CONNECT api.test:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
            )
            received = b""
            while b"ready" not in received:
                received += await stream.receive()
            await stream.send(b"HELO x")
            assert await stream.receive() == b"HELO x"

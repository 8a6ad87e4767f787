"""The record of each connection."""

from __future__ import annotations

from typing import Any

import pytest
from tests.network.conftest import OpenDoor

from belljar.network.allow import Allow
from belljar.network.door import REFUSALS_RECORDED, Door
from belljar.network.visit import Refused


async def test_a_record_of_a_refusal_is_short(open_door: OpenDoor) -> None:
    async with open_door(Allow("api.test")) as door:
        await door.exchange(
            b"CONNECT " + b"a" * 30_000 + b":443 HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        path = b"/?token=s3cretvalue&" + b"k=%41&" * 4000
        await door.exchange(
            b"GET http://x.test" + path + b" HTTP/1.1\r\nHost: x.test\r\n\r\n"
        )
    assert len(str(door.records)) < 4000
    assert all(len(str(visit)) < 2000 for visit in door.door.visits), (
        "thousands are remembered"
    )
    assert "s3cretvalue" not in f"{door.records} {door.door.visits}"


async def test_a_flood_of_refusals_is_counted_and_not_recorded_one_by_one() -> None:
    records: list[dict[str, Any]] = []
    door = Door(Allow("api.test"), record=records.append)
    for _ in range(REFUSALS_RECORDED + 50):
        with pytest.raises(Refused):
            async with door.visit("evil.test", 443):
                await door.admit("evil.test", 443)
    assert len(records) == REFUSALS_RECORDED
    async with door.visit("api.test", 443):
        pass
    assert (records[-1]["verdict"], records[-1]["unrecorded"]) == ("allowed", 50)
    door.record_rest()
    assert len(records) == REFUSALS_RECORDED + 1


async def test_a_recorded_host_name_holds_no_control_characters(
    open_door: OpenDoor,
) -> None:
    async with open_door(Allow("api.test")) as door:
        await door.exchange(
            b"\x05\x01\x00" + b"\x05\x01\x00\x03\x09\x1b]0;x\x07\r\n\xff\x00\x50"
        )
    assert [(record["host"], record["verdict"]) for record in door.records] == [
        ("?]0;x???\ufffd", "refused")
    ]
    assert "\x1b" not in str([record["reason"] for record in door.records])


@pytest.mark.parametrize(
    "sent",
    [b"GET /?token=s3cret HTTP/9\r\n\r\n", b"GET http://u:s3cret@api.test/ HTTP/1.1\r\nHost: x\r\n\r\n",
     b"CONNECT s3cret HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/1.1\r\nX: a\n b\r\n\r\n"],
)  # fmt: skip
async def test_an_invalid_request_is_recorded_without_its_text(
    open_door: OpenDoor, sent: bytes
) -> None:
    async with open_door(Allow("api.test")) as door:
        assert (await door.exchange(sent)).startswith(b"HTTP/1.1 400")
    assert [(record["host"], record["verdict"]) for record in door.records] == [
        ("", "refused")
    ]
    assert door.records[0]["reason"]
    assert "s3cret" not in str(door.records)

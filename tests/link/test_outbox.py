"""Messages to the init wait for their turn."""

import anyio
import anyio.lowlevel
from tests.link.conftest import Pair, spawned

from belljar.link import frames


async def test_bytes_that_the_socket_does_not_take_are_sent_later_in_order(
    pair: Pair,
) -> None:
    process = spawned(pair)
    big = b"y" * (8 << 20)
    pair.link.send(frames.frame(frames.To.INPUT, process.id, big[: frames.MAX_TO_INIT]))
    taken = 0
    with anyio.fail_after(120):
        while taken < len(big):
            await anyio.wait_readable(pair.init)
            taken += len(pair.init.recv(1 << 20))

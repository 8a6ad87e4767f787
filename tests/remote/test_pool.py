"""A pool at a service: its sessions are open before anyone needs them, and each is used once."""

from __future__ import annotations

import pytest

import belljar
from belljar.errors import UsageError
from belljar.remote.host import RemoteHost
from belljar.remote.pool import RemotePool

pytestmark = pytest.mark.engine


async def test_each_session_is_used_once_and_replaced(far: RemoteHost) -> None:
    pool: RemotePool = belljar.Pool(size=2, host=far)
    async with pool:
        await pool.ready()
        assert pool.waiting == 2
        async with pool.session() as first:
            await first.run("touch /tmp/mark")
        async with pool.session(env={"A": "1"}) as second:
            assert (await second.run("ls /tmp; echo $A")).stdout == "1\n"
        await pool.ready()
        left = {kept.id for kept in await belljar.Session.list(host=far)}
        assert not {first.id, second.id} & left
    assert await belljar.Session.list(host=far) == ()


async def test_a_pool_that_cannot_be_filled_says_why(far: RemoteHost) -> None:
    async with belljar.Pool(size=1, image="no-such-image:1", host=far) as pool:
        with pytest.raises(belljar.BelljarError, match="no-such-image"):
            await pool.ready()


async def test_a_pool_that_is_not_open_says_so(far: RemoteHost) -> None:
    with pytest.raises(UsageError, match="not open"):
        async with belljar.Pool(host=far).session():
            pass
    with pytest.raises(UsageError, match="size"):
        belljar.Pool(size=-1, host=far)


def test_blocking_code_has_the_same_pool(far: RemoteHost) -> None:
    with belljar.sync.Pool(size=1, host=far) as pool:
        pool.ready()
        with pool.session() as box:
            assert box.run("echo hi").stdout == "hi\n"

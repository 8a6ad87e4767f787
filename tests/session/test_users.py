"""Whom a command runs as."""

from __future__ import annotations

from typing import Any

import pytest
from tests.session.test_session import box as box

from belljar import Session
from belljar.errors import Unsupported, UsageError
from belljar.session.users import identity

ROOT = ("root", 0)
PASSWD = "root:x:0:0::/root:/bin/sh\nguest:x:1000:100::/home/guest:/bin/sh\nhuge:x:4294967296:0::/:/bin/sh\nbroken:x\n"
GROUP = "guest:x:100:\nteam:x:7:other,guest\nbroken:x:x:guest\nfar:x:99999999:guest\n"


class Accounts:
    async def read(self, path: str, **_: Any) -> bytes:
        return {"/etc/passwd": PASSWD, "/etc/group": GROUP}[path].encode()


async def found(user: str | int) -> Any:
    return await identity(user, ROOT, Accounts())  # type: ignore[arg-type]


async def test_a_user_is_found_by_name_and_by_number() -> None:
    assert await found("root") is await found(0) is None
    for user in ("guest", 1000, "1000"):
        guest = await found(user)
        assert guest.words == b"1000:100:7"
        assert guest.environment == {
            "HOME": "/home/guest",
            "USER": "guest",
            "LOGNAME": "guest",
        }
    assert (await found(4321)).words == b"4321:4321"


@pytest.mark.parametrize("user", ["nosuch", "huge", 1 << 16, "-1", "broken"])
async def test_nobody_else_is_accepted(user: str | int) -> None:
    with pytest.raises(UsageError):
        await found(user)


async def test_a_sandbox_without_root_has_only_its_own_user(box: Session) -> None:
    uid = (await box.run("id -u", user="sandbox")).stdout.strip()
    assert (await box.run("id -u", user=int(uid))).stdout.strip() == uid
    for other in ("root", 0, "nobody"):
        with pytest.raises(Unsupported, match="root=True"):
            await box.run("id -u", user=other)

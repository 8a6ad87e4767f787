"""What those who speak with a client (http_proxy.py, socks.py) need of the door: who may pass, and the way there."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from anyio.abc import ByteStream

from belljar.network.allow import Address, Allow
from belljar.network.tunnel import Meter
from belljar.network.visit import Visit
from belljar.records import record

if TYPE_CHECKING:
    from belljar.network.authority import Authority


@record
class Target:
    """An allowed host. `by_name`: it was allowed by its name, not its address. `any_protocol`: as in `Pattern`."""

    host: str
    port: int
    addresses: tuple[Address, ...]
    by_name: bool
    any_protocol: bool


class Gate(Protocol):
    """`door.Door`, which hands its clients to them."""

    allow: Allow
    authority: Authority | None

    async def admit(self, host: str, port: int) -> Target: ...
    def visit(
        self, host: str, port: int, method: str = ..., path: str = ...
    ) -> AbstractAsyncContextManager[Visit]: ...
    async def dial(self, target: Target, visit: Visit) -> ByteStream: ...
    async def tunnel(
        self,
        client: ByteStream,
        target: Target,
        upstream: ByteStream,
        visit: Visit,
        first: bytes,
    ) -> None: ...
    def meter(self, visit: Visit) -> Meter: ...
    def headers_for(self, target: Target, tls: bool) -> Mapping[str, str]: ...
    def record_refusal(self, why: str) -> None: ...

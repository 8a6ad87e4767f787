"""One visit to a page: asks `/v1` in the visitor's name, inside this process.

So a page can show nothing that the API would not answer, and every check of the API holds for pages too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import httpx
from fastapi import Request

from belljar.records import record

_PASSED_ON = ("cookie", "user-agent", "x-forwarded-for", "x-forwarded-proto")


class Refused(Exception):
    """The API's answer was a problem."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(str(problem.get("detail") or problem.get("title") or status))
        self.status, self.problem = status, problem


class SignedOut(Exception):
    """There is no sign-in, or it has ended."""


@record
class Answer:
    status: int
    headers: httpx.Headers
    body: bytes


class Visit:
    def __init__(self, request: Request) -> None:
        self.request = request
        self.now = time.time()
        self._me: dict[str, Any] | None = None

    async def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Answer:
        """One request to this same application, with the visitor's cookie."""
        request = self.request
        sent = {
            name: request.headers[name]
            for name in _PASSED_ON
            if name in request.headers
        }
        client = (
            (request.client.host, request.client.port)
            if request.client
            else ("127.0.0.1", 0)
        )
        transport = httpx.ASGITransport(
            request.app, raise_app_exceptions=False, client=client
        )
        async with httpx.AsyncClient(
            transport=transport, base_url=str(request.base_url)
        ) as caller:
            both = {**sent, **(headers or {})}
            answer = await caller.request(
                method,
                path,
                headers={name: value for name, value in both.items() if value},
                **more,
            )
        return Answer(answer.status_code, answer.headers, answer.content)

    async def get(self, address: str, /, **query: Any) -> Any:
        """What `/v1` answers, as an object."""
        return _object(await self.answer(address, **query))

    async def answer(self, address: str, /, **query: Any) -> Answer:
        found = await self.ask(
            "GET",
            f"/v1{address}",
            params={key: value for key, value in query.items() if value is not None},
        )
        return _good(found)

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        return _object(
            _good(
                await self.ask(
                    "POST", f"/v1{path}", {"Belljar-Request": "1"}, json=body
                )
            )
        )

    async def items(self, address: str, /, **query: Any) -> list[dict[str, Any]]:
        """A list, from its first page: at most 200."""
        found: list[dict[str, Any]] = (
            await self.get(address, **{"limit": 200, **query})
        )["items"]
        return found

    async def me(self) -> dict[str, Any]:
        if self._me is None:
            self._me = await self.get("/keys/self")
        return self._me

    async def may(self, scope: str) -> bool:
        return bool({"admin", "operator", scope} & set((await self.me())["scopes"]))


def _good(answer: Answer) -> Answer:
    if answer.status == 401:
        raise SignedOut
    if answer.status >= 400:
        found = _object(answer)
        raise Refused(answer.status, found if isinstance(found, dict) else {})
    return answer


def _object(answer: Answer) -> Any:
    import json

    try:
        return json.loads(answer.body) if answer.body else None
    except ValueError:
        return {"detail": answer.body.decode("utf-8", "replace")}

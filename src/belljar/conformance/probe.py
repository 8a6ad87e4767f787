"""The words that checks are written in: ask a server, and say what must be so.

    @check("commands", "a status other than 0 is an answer like any other")
    def _(probe: Probe) -> None:
        command = probe.run("exit 7")
        same(command["exit_code"], 7)

Each check gets a `Probe` with the first key and may use its shared session; whatever else it makes ends with the run.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

Check = Callable[["Probe"], None]
SECONDS = 60.0
PATIENCE = 20.0


class Failed(Exception):
    """What the server did instead."""


class Skipped(Exception):
    """Why a check says nothing about this server."""


@dataclass(frozen=True)
class Named:
    group: str
    says: str
    run: Check = field(repr=False)


CHECKS: list[Named] = []


def check(group: str, says: str) -> Callable[[Check], Check]:
    def take(function: Check) -> Check:
        CHECKS.append(Named(group, says, function))
        return function

    return take


# What must be so.


def same(found: Any, wanted: Any, about: str = "") -> None:
    if found != wanted:
        raise Failed(
            f"{about + ': ' if about else ''}{found!r} instead of {wanted!r}"[:400]
        )


def holds(is_so: object, otherwise: str) -> None:
    if not is_so:
        raise Failed(otherwise[:400])


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """It is refused, in the form of RFC 9457."""
    told: dict[str, Any] = _json(answer)
    same((answer.status_code, told.get("code")), (status, code), told.get("detail", ""))
    same(
        answer.headers.get("content-type", "").partition(";")[0],
        "application/problem+json",
        "media type",
    )
    same(
        (told.get("type"), told.get("status")),
        (f"urn:belljar:error:{code}", status),
        "problem",
    )
    holds(
        told.get("request_id") == answer.headers.get("x-request-id"),
        "request_id and X-Request-Id differ",
    )
    return told


def ok(answer: httpx.Response, *statuses: int) -> Any:
    if answer.status_code not in (statuses or (200,)):
        raise Failed(
            f"{answer.request.method} {answer.request.url.path}: {answer.status_code} {answer.text}"[
                :400
            ]
        )
    return (
        _json(answer)
        if answer.headers.get("content-type", "").startswith("application/json")
        else answer
    )


def eventually(
    find: Callable[[], Any], otherwise: str, seconds: float = PATIENCE
) -> Any:
    """What `find` gives once it gives something."""
    until = time.monotonic() + seconds
    while True:
        if found := find():
            return found
        if time.monotonic() > until:
            raise Failed(otherwise)
        time.sleep(0.1)


def _json(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        raise Failed(
            f"{answer.status_code}, and no JSON: {answer.text}"[:300]
        ) from None


class Probe:
    """A client of the server, with short words for what checks do all the time."""

    def __init__(
        self, url: str, key: str, transport: httpx.BaseTransport | None = None
    ) -> None:
        """`transport`: another way to the server, for tests of the checks."""
        self.url, self.key, self._transport = url.rstrip("/"), key, transport
        self.http = self.client(key)
        self._session = ""
        self._made: list[str] = []
        self._keys: list[str] = []

    def client(self, key: str | None, **headers: str) -> httpx.Client:
        given = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(
            base_url=self.url,
            headers={**given, **headers},
            timeout=SECONDS,
            trust_env=False,
            transport=self._transport,
        )

    # Sessions.

    @property
    def session(self) -> str:
        """A session that all checks share."""
        if not self._session:
            self._session = self.new_session()
        return self._session

    def new_session(self, client: httpx.Client | None = None, **body: Any) -> str:
        answer = (client or self.http).post(
            "/v1/sessions", json=body, headers={"Prefer": "wait=60"}
        )
        made = ok(answer, 201)
        self._made.append(made["id"])
        same(made["state"], "ready", str(made.get("error")))
        return str(made["id"])

    def path(self, *more: str, session: str = "") -> str:
        return "/".join([f"/v1/sessions/{session or self.session}", *more])

    # Commands.

    def command(
        self, command: str | list[str], wait: float = 30, session: str = "", **body: Any
    ) -> httpx.Response:
        headers = {"Prefer": f"wait={wait}"}
        return self.http.post(
            self.path("commands", session=session),
            json={"command": command, **body},
            headers=headers,
        )

    def run(self, command: str | list[str], **body: Any) -> dict[str, Any]:
        """A command that has ended."""
        ended: dict[str, Any] = ok(self.command(command, **body), 200)
        same(ended["state"], "ended")
        return ended

    def start(
        self, command: str | list[str], session: str = "", **body: Any
    ) -> dict[str, Any]:
        """A command that runs."""
        begun: dict[str, Any] = ok(
            self.command(command, wait=0, session=session, **body), 202
        )
        return self.until(begun["id"], "running", session)

    def until(self, command: str, state: str, session: str = "") -> dict[str, Any]:
        def find() -> dict[str, Any] | None:
            found: dict[str, Any] = ok(
                self.http.get(self.path("commands", command, session=session))
            )
            return found if found["state"] in (state, "ended") else None

        found: dict[str, Any] = eventually(find, f"the command does not become {state}")
        same(found["state"], state)
        return found

    def events(
        self, path: str, last: str | None = None, **body: Any
    ) -> list[dict[str, Any]]:
        """All events of a stream that ends."""
        headers = {
            "Accept": "text/event-stream",
            **({"Last-Event-ID": last} if last is not None else {}),
        }
        method = "POST" if body else "GET"
        with self.http.stream(
            method, path, headers=headers, json=body or None
        ) as answer:
            if answer.status_code != 200:
                answer.read()
                raise Failed(f"{answer.status_code} {answer.text}")
            return list(read_events(answer.iter_lines()))

    # Keys.

    def new_key(self, *scopes: str, **more: Any) -> dict[str, Any]:
        made: dict[str, Any] = ok(
            self.http.post(
                "/v1/keys", json={"name": "check", "scopes": scopes, **more}
            ),
            201,
        )
        self._keys.append(made["id"])
        return made

    def tenant(self) -> str:
        """A tenant of its own, if this key may make one."""
        name = f"c{secrets.token_hex(6)}"
        answer = self.http.post("/v1/tenants", json={"name": name})
        if answer.status_code == 403:
            raise Skipped("the key is no operator's")
        ok(answer, 201)
        return name

    def close(self) -> None:
        for id in self._made:
            self.http.delete(f"/v1/sessions/{id}")
        for id in self._keys:
            self.http.delete(f"/v1/keys/{id}")
        self.http.close()


def read_events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """`{"id", "event", "data"}` of each event."""
    found: dict[str, Any] = {}
    for line in lines:
        name, _, value = line.partition(":")
        if not line:
            if "event" in found:
                yield {**found, "data": json.loads(found.get("data", "null"))}
            found = {}
        elif name in ("id", "event", "data"):
            found[name] = value.removeprefix(" ")

"""Our own server does all that the contract says; and a check fails where a server does otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest
from tests.surfaces.http.serving import KEY, Serving

from belljar.conformance import checks_conventions, checks_rest, checks_running
from belljar.conformance.judging import judge, junit
from belljar.conformance.probe import CHECKS, Named

pytestmark = pytest.mark.engine
MODULES = (checks_conventions, checks_running, checks_rest)


def test_there_are_eighty_checks_or_more_and_each_says_something_else() -> None:
    assert len(CHECKS) >= 80
    assert len({each.says for each in CHECKS}) == len(CHECKS)
    assert {each.run.__module__ for each in CHECKS} == {
        module.__name__ for module in MODULES
    }


def test_our_server_does_what_the_contract_says(server: Serving) -> None:
    outcomes = judge(server.url, KEY, CHECKS)
    assert [
        (each.check.says, each.why) for each in outcomes if each.state == "failed"
    ] == []
    cases = ElementTree.fromstring(junit(outcomes)).findall("testcase")
    assert [case.get("name") for case in cases] == [each.says for each in CHECKS]


Change = Callable[[httpx.Response, dict[str, Any]], object]


class Mutant(httpx.BaseTransport):
    """The way to a server that does one thing wrong."""

    def __init__(self, change: Change) -> None:
        self._inner, self._change = httpx.HTTPTransport(), change

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._inner.handle_request(request)
        if "event-stream" in answer.headers.get("content-type", ""):
            return answer
        answer.read()
        is_json = "json" in answer.headers.get("content-type", "")
        body = json.loads(answer.content) if is_json and answer.content else {}
        self._change(answer, body)
        headers = [
            (name, value)
            for name, value in answer.headers.multi_items()
            if name != "content-length"
        ]
        content = json.dumps(body).encode() if is_json else answer.content
        return httpx.Response(
            answer.status_code, headers=headers, content=content, request=request
        )

    def close(self) -> None:
        self._inner.close()


def without(name: str) -> Change:
    return lambda answer, _: answer.headers.pop(name, None)


def instead(name: str, wrong: object) -> Change:
    return lambda _, body: body.update({name: wrong}) if name in body else None


def status(right: int, wrong: int) -> Change:
    return lambda answer, _: (
        setattr(answer, "status_code", wrong) if answer.status_code == right else None
    )


MUTANTS: dict[str, Change] = {
    "an unknown field is refused, and named": instead("field", "other"),
    "every answer has its request id and the headers that protect": without(
        "x-content-type-options"
    ),
    "answers of the API are not stored": without("cache-control"),
    "a foreign origin is refused, also null, also for reading": status(403, 200),
    "the same request makes one thing, and says that it was made before": without(
        "idempotency-replayed"
    ),
    "without a key, or with a wrong one, nobody gets in": status(401, 200),
    "a key may do what its scopes say": instead("scope", "other"),
    "what is in use counts, and what ends is free again": without("retry-after"),
    "a session ends when nothing of it runs any more, and ends once": instead(
        "state", "ready"
    ),
    "text runs in bash, and its streams are kept apart": lambda _, body: (
        body.get("result") or {}
    ).update(stderr=""),
    "a status other than 0 is an answer like any other": instead("exit_code", 0),
    "a timeout ends it with 124": lambda _, body: (body.get("result") or {}).update(
        cause="exited"
    ),
    "a denied command makes nothing, and says why": instead("declined", True),
    "output is read by position, and the next position is told": without(
        "belljar-next"
    ),
    "a decision is bound to what was judged": status(409, 200),
    "a verdict can be had without running anything": instead("decision", "allow"),
    "every list has pages": status(400, 200),
    "other bytes are another request": status(422, 204),
    "a new tenant of an old name finds nothing of the old one": instead(
        "creates_last_minute", 1
    ),
    "metadata stays small when it is changed": instead("field", "lease"),
    "a command is found in its own session only": status(404, 200),
}


def check(says: str) -> Named:
    return next(each for each in CHECKS if each.says == says)


@pytest.mark.parametrize("says", MUTANTS)
def test_a_check_fails_against_a_server_that_does_otherwise(
    server: Serving, says: str
) -> None:
    (outcome,) = judge(server.url, KEY, [check(says)], Mutant(MUTANTS[says]))
    assert outcome.state == "failed"

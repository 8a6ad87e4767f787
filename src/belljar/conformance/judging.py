"""Runs the checks one after the other, and says what they found: as outcomes, or as JUnit."""

from __future__ import annotations

import time
from dataclasses import dataclass
from xml.etree import ElementTree

import httpx

from belljar.conformance import checks_conventions, checks_rest, checks_running
from belljar.conformance.probe import CHECKS, Failed, Named, Probe, Skipped
from belljar.errors import UsageError

MODULES = (checks_conventions, checks_running, checks_rest)
"""Importing them has filled `CHECKS`."""


@dataclass(frozen=True)
class Outcome:
    check: Named
    state: str
    """passed, failed or not run"""
    why: str
    seconds: float


def groups() -> list[str]:
    return list(dict.fromkeys(each.group for each in CHECKS))


def judge(
    url: str,
    key: str,
    checks: list[Named],
    transport: httpx.BaseTransport | None = None,
) -> list[Outcome]:
    probe = Probe(url, key, transport)
    try:
        probe.http.get("/healthz")
    except httpx.HTTPError as error:
        raise UsageError(f"{url} does not answer: {error}") from None
    try:
        return [_outcome(probe, each) for each in checks]
    finally:
        probe.close()


def _outcome(probe: Probe, check: Named) -> Outcome:
    began = time.monotonic()
    state, why = "passed", ""
    try:
        check.run(probe)
    except Skipped as reason:
        state, why = "not run", str(reason)
    except Failed as reason:
        state, why = "failed", str(reason)
    except (httpx.HTTPError, KeyError, IndexError, TypeError, ValueError) as error:
        state, why = (
            "failed",
            f"{type(error).__name__}: {error}"[:400],
        )  # an answer of another form
    return Outcome(check, state, why, time.monotonic() - began)


def junit(outcomes: list[Outcome]) -> bytes:
    suite = ElementTree.Element(
        "testsuite",
        name="belljar conformance",
        tests=str(len(outcomes)),
        failures=str(sum(each.state == "failed" for each in outcomes)),
        skipped=str(sum(each.state == "not run" for each in outcomes)),
    )
    for each in outcomes:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=each.check.group,
            name=each.check.says,
            time=f"{each.seconds:.3f}",
        )
        if each.state != "passed":
            ElementTree.SubElement(
                case,
                "failure" if each.state == "failed" else "skipped",
                message=each.why,
            )
    return bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))

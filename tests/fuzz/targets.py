"""The fuzz targets. Each takes bytes and raises if it finds a fault.

Every text gets a verdict: without an exception (also none that `judge` would turn into a denial), within SECONDS of
processor time, and never `allow` for a text that is not bash. libFuzzer bounds the memory.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from typing import Any

import atheris

from belljar.link.decoder import Decoder, Frame
from belljar.link.frames import FrameError, From
from belljar.policy import Policy, Verdict, engine, machine, parser
from belljar.policy.call import PROGRAMS
from belljar.policy.canonical import plain_words
from belljar.policy.knowledge import shipped
from belljar.policy.verdict import DECISIONS

from . import hostile
from .grammar import Script
from .parsers import PARSERS

SECONDS = 2.0
PROGRAM_NAMES = sorted({*PROGRAMS, *shipped().programs})
POLICY = Policy.load("default")
assert parser.shfmt(), "without its parser the policy denies nearly everything"


class Faults(logging.Handler):
    """Raises the exception that `judge` would turn into a denial."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            raise record.exc_info[1]


logging.getLogger("belljar.policy").addHandler(Faults(logging.ERROR))


def judged(text: str) -> Verdict:
    started = time.process_time()
    verdict = POLICY.judge(text)
    spent = time.process_time() - started
    assert spent < SECONDS, f"{spent:.1f} s for {text!r}"
    assert isinstance(verdict, Verdict), text
    assert verdict.decision in DECISIONS, text
    assert verdict.reason, text
    json.dumps(verdict.as_dict(effects=True), ensure_ascii=False).encode()
    verdict.explain().encode()
    return verdict


def is_bash(text: str) -> bool:
    try:
        parser.parse(text)
    except (parser.ParseError, parser.TooComplex):
        return False
    return True


def judge(text: str) -> None:
    verdict = judged(text)
    assert verdict.decision != "allow" or is_bash(verdict.canonical), (
        f"allowed, but not bash: {text!r}"
    )


def raw(data: bytes) -> None:
    judge(data.decode("utf-8", "surrogateescape"))


def scripts(data: bytes) -> None:
    judge(Script(atheris.FuzzedDataProvider(data), PROGRAM_NAMES).text())


def plain(data: bytes) -> None:
    """A command of plain words gets the same verdict with and without the parser."""
    text = _some_plain(atheris.FuzzedDataProvider(data))
    if plain_words(text.strip(" \t\n")) is None:
        return
    fast = judged(text)
    assert POLICY.judge_plain(text) in (None, fast), text
    engine.plain_words = machine.plain_words = lambda _: None
    try:
        full = judged(text)
    finally:
        engine.plain_words = machine.plain_words = plain_words
    assert (fast.decision, fast.effects) == (full.decision, full.effects), (
        f"{text!r}:\n{fast}\n{full}"
    )


def _some_plain(data: Any) -> str:
    script = Script(data, PROGRAM_NAMES)
    words = [script.pick(PROGRAM_NAMES)] if data.ConsumeBool() else []
    for _ in script.some(6):
        word = [script.path, script.flag, script.value, script.raw][
            data.ConsumeIntInRange(0, 3)
        ](0)
        words.append(
            script.pick(["{}", "'{}'", '"{}"', "a='{}'", "--x={}", "{}''"]).replace(
                "{}", word
            )
        )
    return " ".join(words)


def frames(data: bytes) -> None:
    """Only FrameError is raised, no byte is invented, and the result does not depend on how the stream was cut."""
    given = atheris.FuzzedDataProvider(data)
    step = given.ConsumeIntInRange(1, 64)
    stream = given.ConsumeBytes(len(data))
    whole, pieces = _decoded(stream, len(stream) or 1), _decoded(stream, step)
    assert (whole is None) == (pieces is None), f"cut every {step} bytes: {stream!r}"
    if whole is not None and pieces is not None:
        assert _output(whole) == _output(pieces), f"cut every {step} bytes: {stream!r}"
        assert sum(len(payload) for *_, payload in whole) <= len(stream)
    for parse in PARSERS.values():
        _refused_or_not(parse, stream)


def _decoded(stream: bytes, step: int) -> list[Frame] | None:
    decoder, found = Decoder(), []
    try:
        for at in range(0, len(stream), step):
            found += decoder.feed(stream[at : at + step])
    except FrameError:
        return None
    for kind, _stream, _id, payload in found:
        if kind in PARSERS:
            _refused_or_not(PARSERS[From(kind)], payload)
    return found


def _output(found: list[Frame]) -> list[tuple[object, ...]]:
    """The frames, with the parts of each output joined."""
    joined: list[tuple[object, ...]] = [
        frame for frame in found if frame[0] != From.OUTPUT
    ]
    streams = sorted({frame[1:3] for frame in found if frame[0] == From.OUTPUT})
    parts = [
        (
            place,
            b"".join(f[3] for f in found if f[0] == From.OUTPUT and f[1:3] == place),
        )
        for place in streams
    ]
    return joined + [(place, text) for place, text in parts if text]


def _refused_or_not(parse: Any, payload: bytes) -> None:
    started = time.process_time()
    with contextlib.suppress(FrameError):
        parse(payload)
    assert time.process_time() - started < SECONDS


def any_parser(data: bytes) -> None:
    """One of those that read what a sandbox, an image, a workspace or a server sends."""
    given = atheris.FuzzedDataProvider(data)
    names = sorted(hostile.PARSERS)
    parser = hostile.PARSERS[names[given.ConsumeIntInRange(0, len(names) - 1)]]
    hostile.feed(parser, hostile.bytes_of(parser, given))


TARGETS = {
    "hostile": any_parser,
    "raw": raw,
    "scripts": scripts,
    "plain": plain,
    "frames": frames,
}

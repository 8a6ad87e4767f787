"""Describes a verdict to the person who is asked to approve it: what would happen, and why that needs an approval."""

from __future__ import annotations

import re
from collections.abc import Iterator

from belljar.patterns import lazy_pattern
from belljar.policy import Verdict
from belljar.policy.marks import show
from belljar.policy.verdict import Effect
from belljar.records import record


@record
class Question:
    """The wording for one kind of approval."""

    wants: str
    heading: str
    """Comes before the command, file or change that is shown."""
    title: str
    yes: str
    """What a yes does."""


QUESTIONS = {
    "command": Question(
        "An agent wants to run a command that needs your approval.",
        "Command",
        "Run it?",
        "Yes runs it once, in the sandbox.",
    ),
    "file": Question(
        "An agent wants to use a file in a way that needs your approval.",
        "What it would do",
        "Allow it?",
        "Yes does this once.",
    ),
    "host": Question(
        "A program in the sandbox wants to reach a host on the network.",
        "Connection",
        "Allow it?",
        "Yes lets the sandbox reach this host and port until the session ends.",
    ),
    "changes": Question(
        "An agent wants to write its changes into your real workspace, outside the sandbox.",
        "Changes",
        "Write them?",
        "Yes writes these changes into the real workspace.",
    ),
}
MOST = 6
"""How many effects are listed, the most important first."""

_PHRASES = (
    ("privilege", "run as root: {target}"),
    ("exec.network", "run code from the network that nobody has seen"),
    ("exec.unseen", "run a file that cannot be read beforehand: {target}"),
    ("exec.unknown", "run something that cannot be known beforehand: {target}"),
    ("delete", "delete {target}{below}"),
    ("write", "write {target}"),
    ("read", "read {target}"),
    ("chmod", "change who may use {target}{below}"),
    ("device", "use the device {target}"),
    ("net.fetch", "fetch {target}"),
    ("net", "connect to {target}"),
    ("process", "end processes: {target}"),
    ("kernel", "change the kernel's settings: {target}"),
    ("persist", "leave something that runs later: {target}"),
)
_DETAIL = lazy_pattern(
    r" \([a-z_.]+: .*\)$", re.DOTALL
)  # the effect that a rule matched, in the policy's terms


def why(verdict: Verdict) -> str:
    """The reason, without the policy's own terms."""
    reason = verdict.reason
    # The pattern is slow on a long text with many `(` and no `)` at its end.
    return _DETAIL.sub("", reason) if reason.endswith(")") else reason


def would_do(verdict: Verdict) -> list[str]:
    """The effects of a command besides running programs, the most important first."""
    phrases = list(dict.fromkeys(_phrases(verdict)))
    return phrases[:MOST] + (
        [f"and {len(phrases) - MOST} more"] if len(phrases) > MOST else []
    )


def sentences(verdict: Verdict) -> list[str]:
    """All effects besides running programs, the most important first; of a command without any, what it runs."""
    return list(dict.fromkeys(_phrases(verdict))) or [
        effect.line() for effect in verdict.effects
    ]


def words_at_risk(verdict: Verdict) -> list[str]:
    """Words of the text that the effects name: programs, targets, and flags where they delete whole trees."""
    found = [effect for effect in verdict.effects if _kind_of(effect)]
    words = [
        word
        for effect in found
        for word in (effect.program, *effect.trail, show(effect.target))
    ]
    if any("recursive" in effect.flags for effect in found):
        words += re.findall(r"(?<=\s)-{1,2}[A-Za-z][\w-]*", verdict.canonical)
    return [
        word
        for word in dict.fromkeys(words)
        if len(word) > 1 and word in verdict.canonical
    ][:20]


def _phrases(verdict: Verdict) -> Iterator[str]:
    for kind, phrase in _PHRASES:
        for effect in verdict.effects:
            if _kind_of(effect) == kind:
                target = show(effect.target) or "a place that is not known beforehand"
                below = " and everything below" if "recursive" in effect.flags else ""
                yield phrase.format(target=target, below=below)


def _kind_of(effect: Effect) -> str | None:
    return next(
        (kind for kind, _ in _PHRASES if f"{effect.kind}.".startswith(f"{kind}.")), None
    )

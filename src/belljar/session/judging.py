"""Decides whether a command may run: the policy judges it, and may ask the approver.

Judging may run a parser and take long, so it happens in a thread. Plain words need no parser and are judged at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import cache
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from belljar.errors import PolicyDenied, UsageError
from belljar.patterns import lazy_pattern
from belljar.policy import BUILT_IN, Policy, Verdict
from belljar.policy.approvals import Approvals
from belljar.policy.verdict import Finding

if TYPE_CHECKING:
    from belljar.session.ledger import Ledger
    from belljar.session.options import Approver, Command


class Judge:
    when_admitted: Callable[[Verdict], Awaitable[None]] | None = None
    """Called before an admitted command runs."""

    def __init__(
        self,
        policy: str | Policy,
        approve: Approver | None,
        ledger: Ledger,
        *,
        staged: bool = False,
        root: bool = False,
    ) -> None:
        self.policy = load(policy)
        self.approvals = Approvals()
        self.approver = approve
        self._ledger = ledger
        self._facts = {"staged": staged, "root": root}
        """Of the sandbox."""

    async def admit(
        self,
        command: Command,
        *,
        policy: Policy | None = None,
        known: Verdict | None = None,
        question: str | None = None,
        **facts: Any,
    ) -> Verdict:
        """The verdict, if the command may run; PolicyDenied if not. `question`: shown to the approver instead of the
        command, when a file tool is judged like the command that would do the same."""
        verdict = known or await judged(
            policy or self.policy, command, **facts, **self._facts
        )
        if verdict.decision == "ask":
            await self.ask(
                verdict, None if question is None else _about_a_file(verdict, question)
            )
        else:
            self._ledger.record("verdict", verdict=verdict)
            if verdict.decision != "allow":
                raise PolicyDenied(verdict)
        if self.when_admitted is not None:
            await self.when_admitted(verdict)
        return verdict

    async def ask(self, verdict: Verdict, shown: Verdict | None = None) -> None:
        """Ask the approver; PolicyDenied unless the answer is yes. `shown`: what he sees instead of the verdict."""
        self._ledger.record("verdict", verdict=verdict)
        answer = await self._answer(verdict, shown)
        if (
            answer is not True
        ):  # not even a truthy value, such as "no" or a coroutine that was not awaited
            raise PolicyDenied(verdict, declined=answer is False)

    async def ask_host(self, host: str, port: int) -> bool:
        """Whether the approver allows a connection to a host that is not allowed yet."""
        return await self._answer(host_verdict(host, port, self.policy.name)) is True

    async def _answer(self, verdict: Verdict, shown: Verdict | None = None) -> object:
        """The approver's answer, recorded; also if an earlier answer covers it, or nobody could be asked."""
        answer, by = await self._ask_approver(shown or verdict)
        self._ledger.record(
            "approval", digest=verdict.digest, approved=answer is True, by=by
        )
        return answer

    async def _ask_approver(self, verdict: Verdict) -> tuple[object, str]:
        if self.approvals.covers(verdict):
            return True, "remembered"
        if self.approver is None:
            return None, "nobody"
        answer: object = self.approver(verdict)
        if isawaitable(answer):
            answer = await answer
        return answer, "nobody" if answer is None else "approver"


def host_verdict(host: str, port: int, policy: str) -> Verdict:
    """The question whether a program may connect to a host."""
    name = f"connect to {host}:{port}"
    digest = hashlib.sha256(name.encode()).hexdigest()
    reason = f"A program in the sandbox wants to reach {host} on port {port}, which nobody has allowed yet."
    finding = Finding("network.host", "ask", "high", reason)
    return Verdict(
        "ask", "high", reason, (finding,), name, digest, policy, about="host"
    )


def _about_a_file(verdict: Verdict, question: str) -> Verdict:
    """The verdict as the approver sees it. Its digest binds the answer to the question."""
    digest = hashlib.sha256(
        f"{verdict.digest}\n{question}".encode("utf-8", "surrogateescape")
    ).hexdigest()
    return replace(verdict, canonical=question, digest=digest, about="file")


async def judged(policy: Policy, command: Command, **facts: Any) -> Verdict:
    """A policy's verdict, made in a thread unless it is remembered or the command is a few plain words."""
    if policy.is_unproved:
        await to_thread.run_sync(policy.prove)
    quick = (
        policy.judge_plain if _is_plain(command) or not policy.judges else policy.recall
    )
    verdict = quick(command, **facts)
    if verdict is None:
        verdict = await to_thread.run_sync(lambda: policy.judge(command, **facts))
        if verdict.decision != "deny":  # the parser may only have been busy
            policy.remember(verdict, command, **facts)
    return verdict


# No quotes: quoted text may be a program (`python3 -c "…"`), which takes a tenth of a second or more to analyse.
_PLAIN = lazy_pattern(r"[\w@%+=:,./ -]{0,1000}")
_MOST_WORDS = 50


def _is_plain(command: Command) -> bool:
    words = [command] if isinstance(command, str) else command
    return len(words) <= _MOST_WORDS and all(
        isinstance(word, str) and _PLAIN.fullmatch(word) for word in words
    )


@cache
def _shipped(name: str) -> Policy:
    """Its examples are checked later, in a thread, before it first judges: that may take a second."""
    return Policy.load(name, prove=False)


def load(policy: str | Policy) -> Policy:
    """A built-in policy is read once per process; a file each time, since it may have changed."""
    if isinstance(policy, Policy):
        return policy
    if not isinstance(policy, str) or not policy:
        raise UsageError(
            f"policy: {policy!r} is neither the name of a policy, nor a file, nor a belljar.Policy"
        )
    return _shipped(policy) if policy in BUILT_IN else Policy.load(policy)

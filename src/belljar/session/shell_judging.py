"""Judges a persistent shell's commands: where the shell is, with its variables, and with the functions and aliases that
earlier calls gave it. All that is known is of one bash, and forgotten with it: a new one has no functions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from belljar.layout import WORKSPACE
from belljar.policy.marks import UNKNOWN
from belljar.policy.shellstate import ShellState
from belljar.policy.verdict import DECISIONS
from belljar.session.judging import judged

if TYPE_CHECKING:
    from belljar.policy import Policy, Verdict
    from belljar.session.bash_channel import BashState
    from belljar.session.session import Session

REMEMBERED = 64  # verdicts
IN_THE_SHELL = frozenset({"source", ".", "eval", "trap"})
"""What runs text in the shell's own process."""


class ShellJudge:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: ShellState | None = None
        """What the policy knows of the shell from the commands it judged."""
        self.unsure = False
        """Text that nobody read ran in the shell itself: it may be elsewhere when the next one runs."""
        self._merged: tuple[ShellState | None, BashState | None, ShellState] | None = None
        self._judged: dict[str, tuple[ShellState, Policy, Verdict]] = {}

    def forget(self) -> None:
        self._known, self.unsure = None, False
        self._judged.clear()

    def learn(self, verdict: Verdict) -> None:
        """What it was about has run."""
        self._known = verdict.state_after
        if any(effect.kind.startswith("exec.") and effect.program in IN_THE_SHELL for effect in verdict.effects):
            self.unsure = True
            self._known = self._known and _doubted(self._known, ShellState.fresh(WORKSPACE, self._session.env))

    async def admit(self, command: str, reported: BashState | None) -> Verdict:
        """`reported`: the directory and the variables, as the shell's last report has them."""
        now = self._now(reported)
        recalled = None if self.unsure else self._known_verdict(command, now)
        if self.unsure and await self._depends_on_place(command, now):
            now = replace(now, cwd=UNKNOWN)
        verdict = await self._session._judge.admit(command, shell_state=now, known=recalled)
        if len(self._judged) >= REMEMBERED:
            self._judged.clear()
        self._judged[command] = now, self._session.policy, verdict
        return verdict

    async def _depends_on_place(self, command: str, now: ShellState) -> bool:
        """Whether it is allowed where the shell seems to be, but not where it would do the most harm."""
        policy = self._session.policy
        here = await judged(policy, command, shell_state=now)
        there = await judged(policy, command, shell_state=replace(now, cwd=WORKSPACE))
        return DECISIONS.index(there.decision) > DECISIONS.index(here.decision)

    def _now(self, reported: BashState | None) -> ShellState:
        """What is known of the shell's state; the same object as long as nothing changes."""
        if self._merged is None or self._merged[0] is not self._known or self._merged[1] is not reported:
            cwd = reported.cwd if reported else WORKSPACE
            known = self._known or ShellState.fresh(cwd, self._session.env)
            variables = reported.variables if reported else {}
            self._merged = self._known, reported, replace(known, cwd=cwd, env=known.env | variables)
        return self._merged[2]

    def _known_verdict(self, command: str, now: ShellState) -> Verdict | None:
        """The verdict on the same command in the same state: agents say the same thing again and again."""
        state, policy, verdict = self._judged.get(command, (None, None, None))
        return verdict if (state is now or state == now) and policy is self._session.policy else None


def _doubted(known: ShellState, fresh: ShellState) -> ShellState:
    """The text that nobody read may have set any variable; what is exported, the shell reports."""
    own = {name: UNKNOWN for name in known.env if name.isidentifier() and name not in fresh.env}
    return replace(known, env=known.env | own)

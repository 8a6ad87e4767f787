"""Judges the commands of a persistent shell with its directory, its variables, and the functions and aliases that
earlier calls defined. This knowledge ends with the bash: a new one has no functions."""

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
    from belljar.session.inside import Inside
    from belljar.session.judging import Judge

MOST_VERDICTS = 64  # remembered
IN_THE_SHELL = frozenset({"source", ".", "eval", "trap"})
"""Commands that run text in the shell's own process."""


class ShellJudge:
    def __init__(self, judge: Judge, inside: Inside) -> None:
        self._judge = judge
        self._inside = inside
        self._known: ShellState | None = None
        """What the policy concluded about the shell from the commands it judged."""
        self.unsure = False
        """The shell itself ran text that was not judged: it may change its directory at any time."""
        self._merged: tuple[ShellState | None, BashState | None, ShellState] | None = (
            None
        )
        self._verdicts: dict[str, tuple[ShellState, Policy, Verdict]] = {}

    def forget(self) -> None:
        self._known = None
        self.unsure = False
        self._verdicts.clear()

    def learn(self, verdict: Verdict) -> None:
        """The command of this verdict has run."""
        self._known = verdict.state_after
        if any(
            effect.kind.startswith("exec.") and effect.program in IN_THE_SHELL
            for effect in verdict.effects
        ):
            self.unsure = True
            fresh = ShellState.fresh(WORKSPACE, self._inside.env)
            self._known = self._known and _with_unknown_variables(self._known, fresh)

    async def admit(self, command: str, reported: BashState | None) -> Verdict:
        """The verdict, if the command may run. `reported`: directory and variables of the shell's last report."""
        now = self._now(reported)
        remembered = None if self.unsure else self._remembered(command, now)
        if self.unsure and await self._depends_on_place(command, now):
            now = replace(now, cwd=UNKNOWN)
        verdict = await self._judge.admit(command, shell_state=now, known=remembered)
        if len(self._verdicts) >= MOST_VERDICTS:
            self._verdicts.clear()
        self._verdicts[command] = now, self._judge.policy, verdict
        return verdict

    async def _depends_on_place(self, command: str, now: ShellState) -> bool:
        """Whether the verdict here is milder than in the workspace, where the command would do the most harm."""
        policy = self._judge.policy
        here = await judged(policy, command, shell_state=now)
        there = await judged(policy, command, shell_state=replace(now, cwd=WORKSPACE))
        return DECISIONS.index(there.decision) > DECISIONS.index(here.decision)

    def _now(self, reported: BashState | None) -> ShellState:
        """The state to judge with; the same object as long as nothing changes."""
        if (
            self._merged is None
            or self._merged[0] is not self._known
            or self._merged[1] is not reported
        ):
            cwd = reported.cwd if reported else WORKSPACE
            known = self._known or ShellState.fresh(cwd, self._inside.env)
            variables = reported.variables if reported else {}
            self._merged = (
                self._known,
                reported,
                replace(known, cwd=cwd, env=known.env | variables),
            )
        return self._merged[2]

    def _remembered(self, command: str, now: ShellState) -> Verdict | None:
        """The verdict on the same command in the same state: agents repeat themselves."""
        state, policy, verdict = self._verdicts.get(command, (None, None, None))
        return (
            verdict
            if state is not None and _equal(state, now) and policy is self._judge.policy
            else None
        )


def _equal(state: ShellState, other: ShellState) -> bool:
    return state is other or all(
        getattr(state, name) == getattr(other, name) for name in ShellState.__slots__
    )


def _with_unknown_variables(state: ShellState, fresh: ShellState) -> ShellState:
    """Text that was not judged may have set any variable; the shell reports only the exported ones."""
    own = {
        name: UNKNOWN
        for name in state.env
        if name.isidentifier() and name not in fresh.env
    }
    return replace(state, env=state.env | own)

"""Family `staged`: what an agent may do with a staged session's changes. Off by default (`mcp --staged`).

An agent may look at changes and discard them: nothing outside the sandbox changes. To write them into the user's
workspace, `apply_changes` shows a person the diff and needs a yes. If nobody can be asked, it names the command with
which the user can apply them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from belljar.errors import Conflict, PolicyDenied
from belljar.policy.verdict import Finding, Verdict
from belljar.staged.change import Change, counted
from belljar.staged.diff import lines_counted, quoted
from belljar.tools.base import Call, Tool, ToolResult, truncate
from belljar.tools.parameters import Params, Text

SHOWN = 30_000  # characters
LONGEST_QUESTION = 15_000
NOTHING = "Nothing has changed"


class PathsParams(Params):
    paths: list[Text] | None = Field(
        default=None, description="Only these, relative to the workspace (default: all)"
    )


class NoParams(Params):
    pass


class StagedTool(Tool):
    category = "changes"
    default_risk = "low"
    runs_commands = False
    Params: ClassVar[type[Params]] = PathsParams

    async def call(self, given: object, call: Call | None = None) -> ToolResult:
        if self.is_available and not self.box.is_staged:
            return self.fail(
                "This session is not staged (--staged): what it changes is in the workspace already"
            )
        return await super().call(given, call)


class ListChanges(StagedTool):
    name = "list_changes"
    does = "reads"
    title = summary_template = "List changes"
    description = "Lists what this session changed in the workspace. The user's files stay as they are until applied."
    Params = NoParams

    async def execute(self, params: NoParams, call: Call) -> ToolResult:
        changes = await self.box.changes()
        text = "\n".join(f"{change.mark} {change.path}" for change in changes)
        listed = [{"path": change.path, "kind": change.kind} for change in changes]
        return self.done(truncate(text, SHOWN)[0] or NOTHING, changes=listed)


class DiffChanges(StagedTool):
    name = "diff_changes"
    does = "reads"
    title = summary_template = "Diff changes"
    description = "Shows what this session changed in the workspace, as a unified diff."

    async def execute(self, params: PathsParams, call: Call) -> ToolResult:
        return self.done(
            truncate(await self.box.diff(params.paths), SHOWN)[0] or NOTHING
        )


class DiscardChanges(StagedTool):
    name = "discard_changes"
    title = summary_template = "Discard changes"
    description = "Takes changes back: the sandbox sees the user's own files again. It cannot be undone."
    default_risk = "high"

    async def execute(self, params: PathsParams, call: Call) -> ToolResult:
        discarded = await self.box.discard(params.paths)
        return self.done(f"{len(discarded)} discarded", paths=discarded)


class ApplyChanges(StagedTool):
    name = "apply_changes"
    title = summary_template = "Apply changes"
    description = "Asks the user whether changes of this session may be written into their workspace; if so, does it."
    default_risk = "critical"

    async def execute(self, params: PathsParams, call: Call) -> ToolResult:
        shown = await self.box.show(params.paths)
        if not shown:
            return self.done(NOTHING)
        held = [change.path for change in shown if change.runs_later]
        texts = {
            change: shown[change].text for change in shown if not change.runs_later
        }
        if not texts:
            return self.fail(
                f"The host would run these by itself: {', '.join(held)}. {self._by_hand()}"
            )
        question = _question(texts, self.box.policy.name)
        if len(question.canonical) > LONGEST_QUESTION:
            return self.fail(
                f"There is too much to show a person here. {self._by_hand()}"
            )
        try:
            await self.box.ask(question)
        except PolicyDenied as denied:
            return self.fail(
                "The user declined."
                if denied.declined
                else f"Nobody can be asked. {self._by_hand()}"
            )
        try:
            applied = await self.box.apply_shown(shown)
        except Conflict as error:
            return self.fail(f"Nothing was applied: {error}. Ask again.")
        rest = (
            f"; not applied, because the host would run them: {', '.join(held)}"
            if held
            else ""
        )
        return self.done(
            f"{len(applied.paths)} applied{rest}",
            paths=applied.paths,
            held=applied.held,
        )

    def _by_hand(self) -> str:
        return f"The user can run: belljar diff --session {self.box.id}, then belljar apply --session {self.box.id}"


def _question(changes: Mapping[Change, str], policy: str) -> Verdict:
    """The question as a verdict, which approvals understand. The digest binds the answer to exactly these changes."""
    reason = f"A yes writes changes of the sandbox into the real workspace ({counted([*changes])})."
    listed = "".join(_line(change, text) for change, text in changes.items())
    text = f"{listed}\n{''.join(changes.values())}"
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
    finding = Finding("staged.apply", "ask", "critical", reason)
    return Verdict(
        "ask", "critical", reason, (finding,), text, digest, policy, about="changes"
    )


def _line(change: Change, text: str) -> str:
    plus, minus = lines_counted(text)
    return f"{change.mark} {quoted(change.path)}  +{plus} −{minus}\n"

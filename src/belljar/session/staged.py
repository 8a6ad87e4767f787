"""`Staged`, the `box.staged` of a session with `changes="staged"`: what differs, apply, discard, and checkpoints.

    print(await box.staged.diff())
    await box.staged.apply(["src"])

In other sessions its methods raise UsageError.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from anyio import to_thread

from belljar.errors import BelljarError, UsageError
from belljar.runs_later.watch import Watch
from belljar.sandbox import staging
from belljar.session.aftermath import run_files_of

if TYPE_CHECKING:
    from pathlib import Path

    from belljar.host import Host
    from belljar.policy import Verdict
    from belljar.sandbox.sandbox import Sandbox
    from belljar.session.copied_workspace import CopiedWorkspace
    from belljar.session.files import Files
    from belljar.session.inside import Inside
    from belljar.session.ledger import Ledger
    from belljar.session.shells import Shells
    from belljar.staged.apply import Applied
    from belljar.staged.area import Point, StagedArea
    from belljar.staged.change import Change
    from belljar.staged.layers import Layers
    from belljar.staged.review import Review, Shown

log = logging.getLogger("belljar.staged")


class Staged:
    def __init__(
        self, inside: Inside, ledger: Ledger, shells: Shells, host: Host
    ) -> None:
        self._inside = inside
        self._ledger = ledger
        self._shells = shells
        self._host = host
        self._mounted = ""
        """Which overlay the sandbox has, by its work directory: another process may exchange it."""

    @property
    def is_on(self) -> bool:
        """Whether changes are kept aside until someone applies them."""
        return self._inside.is_staged

    @property
    def area(self) -> StagedArea:
        if not self.is_on:
            raise UsageError(
                'this session writes straight into its workspace; open it with changes="staged"'
            )
        return _area(self._host.staged_root, self._inside.sandbox.id)

    @property
    def _review(self) -> Review:
        from belljar.staged.review import Review

        return Review(self.area, self._ledger.record)

    async def changes(self, *, ignored: bool = False) -> list[Change]:
        """What differs from the host's files; with `ignored` also what the project's `.gitignore` ignores. Each says
        whether the host's side changed as well. `belljar.staged.change.etag` names exactly this state.

        for change in await box.changes(): print(change.kind, change.path)
        """
        await self.copy_out()
        return await to_thread.run_sync(lambda: self._review.listed(ignored=ignored))

    async def etag(self) -> str:
        """A name for all changes with their contents, on both sides, for `apply(if_match=…)`."""
        from belljar.staged.change import etag

        await self.copy_out()
        return await to_thread.run_sync(lambda: etag(self._review.changes()))

    async def diff(
        self,
        paths: Iterable[str] | None = None,
        *,
        against: Staged | None = None,
        since: Point | str | None = None,
        until: Point | str | None = None,
        ignored: bool = False,
    ) -> str:
        """All changes, or those at or below some paths, as a unified diff. `against`: compare with another session.
        `since`: from this checkpoint to now, or to the checkpoint `until`."""
        await self.copy_out()
        review = self._review
        if against is not None:
            from belljar.staged.compare import compared

            await against.copy_out()
            return await to_thread.run_sync(
                lambda: compared(review.area, against.area, paths)
            )
        if since is not None or until is not None:
            return await to_thread.run_sync(lambda: review.between(since, until, paths))
        return await to_thread.run_sync(lambda: review.diff(paths, ignored=ignored))

    async def apply(
        self,
        paths: Iterable[str] | None = None,
        *,
        force: bool = False,
        merge: bool = False,
        runs_later: bool = False,
        ignored: bool = False,
        if_match: str | None = None,
        contents: Mapping[str, str | bytes] = MappingProxyType({}),
    ) -> Applied:
        """Write changes to the real workspace. `Conflict` if the host changed the same files meanwhile; with `merge`,
        only if both changed the same lines of a text file, or this cannot be known. With `if_match`, what `etag` gave,
        also if anything has changed since. `contents`: of these paths this text, for example some hunks only.

        await box.apply(["src/app.py"])
        """
        await self.copy_out()
        review = self._review
        return await to_thread.run_sync(
            lambda: review.apply(
                paths,
                force=force,
                merge=merge,
                runs_later=runs_later,
                ignored=ignored,
                if_match=if_match,
                contents=contents,
            )
        )

    async def show(self, paths: Iterable[str] | None = None) -> dict[Change, Shown]:
        """All changes, or those at or below some paths, for somebody who decides about them.

        seen = await box.show(); print("".join(shown.text for shown in seen.values()))
        """
        from belljar.staged.change import select

        await self.copy_out()
        review = self._review
        return await to_thread.run_sync(
            lambda: {
                change: review.show(change)
                for change in select(review.changes(), paths, parents=False)
            }
        )

    async def apply_shown(self, seen: Mapping[Change, Shown]) -> Applied:
        """Apply changes exactly as `show` gave them. `Conflict` if the sandbox has changed any of them since. Files
        that the host would run by itself are left out.

        await box.apply_shown({change: shown for change, shown in seen.items() if change.path == "app.py"})
        """
        safe = {
            change: shown for change, shown in seen.items() if not change.runs_later
        }
        held = [change.path for change in seen if change.runs_later]
        review = self._review
        return await to_thread.run_sync(lambda: review.apply_chosen(safe, {}, held))

    async def undo_apply(self) -> list[str]:
        """Undo the last apply; each apply can be undone once: `await box.undo_apply()`."""
        return await to_thread.run_sync(self._review.undo)

    async def discard(self, paths: Iterable[str] | None = None) -> list[str]:
        """Drop changes: the sandbox sees the host's files again.

        await box.discard(["build"])
        """
        from belljar.session.staged_inside import reset
        from belljar.staged.change import select

        await self.copy_out()
        async with AsyncExitStack() as opened:
            layers = await to_thread.run_sync(opened.enter_context, self.area.layers())
            chosen = select(
                await to_thread.run_sync(layers.changes), paths, parents=False
            )
            await reset(self._inside.files, layers, chosen, self.area.path / "upper")
        await self.copy_out()
        gone = [change.path for change in chosen]
        self._ledger.record("discard", paths=gone[:1000])
        return gone

    # Checkpoints.

    async def checkpoint(self, name: str = "", *, replace: bool = False) -> Point:
        """Remember the files as they are now. UsageError if a checkpoint has this name, unless it may be replaced.

        point = await box.checkpoint("before refactor")
        """
        from belljar.session import scratch_copies

        area, inside = self.area, self._inside
        async with inside.standstill.quiet("a checkpoint"):
            name = name or area.unused("checkpoint")
            old = area.taken(name, replace=replace)
            if staging.can_remount(inside.sandbox.engine):
                point = await to_thread.run_sync(area.freeze, name)
                await self._remount(area)
            else:
                await self.copy_out()
                point = await to_thread.run_sync(area.snapshot, name)
            await scratch_copies.keep(inside.files, inside.options, area.beside(point))
            if old is not None:
                await to_thread.run_sync(area.forget, old)
        return point

    async def rollback(self, point: Point | str | None = None) -> Point:
        """Go back to a checkpoint (by default the last one). All that runs is killed first, foreground commands too;
        later checkpoints are forgotten, and the host's own files stay as they are.

        await box.rollback(point)
        """
        from belljar.session import scratch_copies

        area, inside = self.area, self._inside
        target = area.point(point)
        async with inside.standstill.empty():
            if staging.can_remount(inside.sandbox.engine):
                await to_thread.run_sync(area.go_back, target)
                await self._remount(area)
            else:
                await self.discard()
                await self._put(area, target)
                await to_thread.run_sync(area.forget_after, target)
            await scratch_copies.bring_back(
                inside.files, inside.options, area.beside(target)
            )
        await self._shells.refresh()
        return target

    async def _put(self, area: StagedArea, point: Point) -> None:
        """Restore the changes of a checkpoint in a sandbox whose files are the host's."""
        async with AsyncExitStack() as opened:
            await self.put(
                await to_thread.run_sync(opened.enter_context, area.layers(at=point))
            )

    async def put(self, layers: Layers) -> None:
        """Make the changes of these layers in a sandbox whose files are the host's."""
        from belljar.session.staged_inside import put

        await put(
            self._inside.files,
            layers,
            await to_thread.run_sync(layers.changes),
            self.area.path / "upper",
        )
        await self.copy_out()

    def checkpoints(self) -> list[Point]:
        """The checkpoints, oldest first: `names = [point.name for point in box.checkpoints()]`."""
        return self.area.points

    def left_out(self, point: Point) -> list[str]:
        """The directories that a checkpoint does not contain: /tmp or home, if they were too large.

        if box.left_out(point): print("your virtual environment stays as it is")
        """
        from belljar.session import scratch_copies

        return scratch_copies.left_out(self._inside.options, self.area.beside(point))

    async def forget_checkpoint(self, point: Point) -> None:
        """Forget a checkpoint; the current files stay as they are: `await box.forget_checkpoint(point)`."""
        await to_thread.run_sync(self.area.forget, point)

    async def _remount(self, area: StagedArea) -> None:
        sandbox = self._inside.sandbox
        try:
            await to_thread.run_sync(
                staging.remount,
                area,
                sandbox.workspace,
                sandbox.run_dir,
                sandbox.launched.pid,
            )
        except BaseException as error:  # whatever is mounted now is not what the area says: nothing may run on
            sandbox.link.shutdown()
            sandbox.link.close(f"the sandbox was ended: {error}; its changes are kept")
            raise
        self._remember_mount()
        await self._moved()

    # For an engine that shares no files with us.

    @property
    def _copied(self) -> CopiedWorkspace | None:
        files, limits = (
            self._copied_files(self._inside.sandbox),
            self._inside.options.limits,
        )
        if files is None:
            return None
        from belljar.session.copied_workspace import CopiedWorkspace

        return CopiedWorkspace(self.area, files, limits.memory // 4, limits.inodes // 2)

    async def copy_in(self) -> None:
        """Copy the workspace into a new sandbox; in a fork, also restore /tmp and home of the original."""
        inside, copied = self._inside, self._copied
        if copied is not None:
            await copied.copy_in()
            await inside.aftermath.run_files.refresh()
        options = inside.options
        if options.base:
            from belljar.session import scratch_copies

            area = await to_thread.run_sync(_area, self._host.staged_root, options.base)
            if copied is not None:
                await self._put(area, area.points[-1])
            await scratch_copies.bring_back(
                inside.files, options, area.beside(area.points[-1])
            )

    async def copy_out(self) -> None:
        """Copy changes to the host, if the engine shares no files with us: `await box.copy_out()`."""
        if (
            (copied := self._copied) is not None and not self._inside.is_paused
        ):  # it was copied out before the pause
            await copied.copy_out()
            await self._inside.aftermath.run_files.refresh()

    async def copy_out_at_last(self) -> None:
        """At the end of a session. If the sandbox is lost, only changes that were copied out before are kept."""
        try:
            await self.copy_out()
        except BelljarError as error:
            with suppress(BelljarError, OSError):  # everything was discarded meanwhile
                await to_thread.run_sync(self.area.note_incomplete, str(error))

    def _remember_mount(self) -> None:
        """Note which overlay the sandbox has now, by its work directory."""
        self._mounted = str(self.area.meta["work"]) if self.is_on else ""

    async def before_command(self, verdict: Verdict) -> None:
        """Notice a checkpoint or rollback by another process; make a checkpoint before a risky command."""
        before = self._mounted
        await to_thread.run_sync(self._remember_mount)
        if before != self._mounted:
            await self._moved()
        if not self.area.command:
            await to_thread.run_sync(self.area.note_command, verdict.canonical)
        if self._inside.options.checkpoints == "auto" and verdict.risk in (
            "high",
            "critical",
        ):
            with suppress(UsageError):  # not while background shells run
                await self.checkpoint(
                    self.area.unused(f"before {verdict.canonical[:60]}")
                )

    async def _moved(self) -> None:
        self._inside.moved(self._run_files(self._inside.sandbox))
        await self._inside.aftermath.run_files.refresh()

    def enter(self, sandbox: Sandbox) -> None:
        self._inside.enter(sandbox, self._run_files(sandbox))
        self._remember_mount()

    def _run_files(self, sandbox: Sandbox) -> Watch:
        copied = self._copied_files(sandbox)
        upper = (
            _area(self._host.staged_root, sandbox.id).path / "upper"
            if self.is_on and copied is None
            else None
        )
        return run_files_of(sandbox, upper, copied)

    def _copied_files(self, sandbox: Sandbox) -> Files | None:
        """The sandbox's files, if the staged workspace was copied into it."""
        return (
            self._inside.files
            if self.is_on and not sandbox.engine.capabilities.overlays
            else None
        )

    def nothing_more_is_applied(self) -> None:
        """The session's block raised: what it changed may be half of something."""
        if self.is_on and self._inside.options.on_close == "apply":
            self._inside.options = replace(self._inside.options, on_close=None)

    def at_end(self, id: str) -> None:
        """Do with the changes of the ended session what `on_close` says. The area of one that changed nothing goes."""
        if not self.is_on:
            return
        from belljar.staged.change import counted
        from belljar.staged.review import Review

        wish = self._inside.options.on_close
        try:
            review = Review(_area(self._host.staged_root, id), self._ledger.record)
        except UsageError:
            return  # everything was discarded
        if wish == "apply":
            review.apply()
        with suppress(BelljarError, OSError):  # what cannot be read now stays
            changes = review.changes()
            if wish == "discard" and changes:
                review.discard()
            elif not changes and not review.area.can_undo:
                review.area.remove()
            elif changes and wish != "keep":
                log.warning(
                    "%s kept as %s: `belljar review --session %s` shows, `belljar discard %s` drops them",
                    counted(changes),
                    id,
                    id,
                    id,
                )


def _area(root: Path, id: str) -> StagedArea:
    from belljar.staged.area import StagedArea

    return StagedArea.find(root, id)

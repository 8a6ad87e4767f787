"""The methods of a session for staged changes: diff, apply, discard; checkpoints, rollback, fork."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from belljar.errors import BelljarError, UsageError
from belljar.sandbox import staging
from belljar.session.verbs import Verbs
from belljar.workspace.beneath import Folder

if TYPE_CHECKING:
    from pathlib import Path

    from belljar.policy import Verdict
    from belljar.session.copied_workspace import CopiedWorkspace
    from belljar.session.files import Files
    from belljar.session.session import Session
    from belljar.staged.apply import Applied
    from belljar.staged.area import Point, StagedArea
    from belljar.staged.change import Change
    from belljar.staged.review import Review, Shown


class StagedVerbs(Verbs):
    """For `Session(changes="staged")`; in other sessions they raise UsageError."""

    @property
    def is_staged(self) -> bool:
        """Whether changes are kept aside until someone applies them."""
        return self._box.options.changes == "staged"

    @property
    def _staged_area(self) -> StagedArea:
        box = self._box
        if not self.is_staged:
            raise UsageError('this session writes straight into its workspace; open it with changes="staged"')
        return _area(box.host.staged_root, box.id)

    @property
    def _review(self) -> Review:
        from belljar.staged.review import Review

        return Review(self._staged_area, self._box._ledger.record)

    async def changes(self) -> list[Change]:
        """What differs from the host's files: `for change in await box.changes(): print(change.kind, change.path)`."""
        await self.copy_out()
        return await to_thread.run_sync(self._review.changes)

    async def diff(self, paths: Iterable[str] | None = None, *, against: Session | None = None) -> str:
        """All changes, or those at or below some paths, as a unified diff. `against`: compare with another session.

        print(await box.diff(["src"]))
        """
        await self.copy_out()
        review = self._review
        if against is not None:
            from belljar.staged.compare import compared

            await against.copy_out()
            return await to_thread.run_sync(compared, review.area, against._staged_area)
        return await to_thread.run_sync(lambda: review.diff(paths))

    async def apply(
        self, paths: Iterable[str] | None = None, *, force: bool = False, merge: bool = False, runs_later: bool = False
    ) -> Applied:
        """Write changes to the real workspace. `Conflict` if the host changed the same files meanwhile; with `merge`,
        only if both changed the same lines of a text file, or this cannot be known.

        await box.apply(["src/app.py"])
        """
        await self.copy_out()
        review = self._review
        return await to_thread.run_sync(lambda: review.apply(paths, force=force, merge=merge, runs_later=runs_later))

    async def show(self, paths: Iterable[str] | None = None) -> dict[Change, Shown]:
        """All changes, or those at or below some paths, for somebody who decides about them.

        seen = await box.show(); print("".join(shown.text for shown in seen.values()))
        """
        from belljar.staged.change import select

        await self.copy_out()
        review = self._review
        return await to_thread.run_sync(
            lambda: {change: review.show(change) for change in select(review.changes(), paths, parents=False)}
        )

    async def apply_shown(self, seen: Mapping[Change, Shown]) -> Applied:
        """Apply changes exactly as `show` gave them. `Conflict` if the sandbox has changed any of them since. Files
        that the host would run by itself are left out.

        await box.apply_shown({change: shown for change, shown in seen.items() if change.path == "app.py"})
        """
        safe = {change: shown for change, shown in seen.items() if not change.runs_later}
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
        box = self._box
        async with AsyncExitStack() as opened:
            layers = await to_thread.run_sync(opened.enter_context, self._staged_area.layers())
            chosen = select(await to_thread.run_sync(layers.changes), paths, parents=False)
            await reset(box.files, layers, chosen, self._staged_area.path / "upper")
        await self.copy_out()
        gone = [change.path for change in chosen]
        box._ledger.record("discard", paths=gone[:1000])
        return gone

    # Checkpoints.

    async def checkpoint(self, name: str = "") -> Point:
        """Remember the files as they are now: `point = await box.checkpoint("before refactor")`."""
        from belljar.session import scratch_copies

        area = self._staged_area
        async with self._box._standstill.quiet("a checkpoint"):
            name = name or f"checkpoint {len(area.points) + 1}"
            if staging.can_remount(self._box.sandbox.engine):
                point = await to_thread.run_sync(area.freeze, name)
                await self._remount(area)
            else:
                await self.copy_out()
                point = await to_thread.run_sync(area.snapshot, name)
            await scratch_copies.keep(self._box.files, self._box.options, area.beside(point))
        return point

    async def rollback(self, point: Point | str | None = None) -> Point:
        """Go back to a checkpoint (by default the last one). All that runs is killed first, foreground commands too.

        await box.rollback(point)
        """
        from belljar.session import scratch_copies

        box, area = self._box, self._staged_area
        target = _point(area, point)
        async with box._standstill.empty():
            if staging.can_remount(self._box.sandbox.engine):
                await to_thread.run_sync(area.go_back, target)
                await self._remount(area)
            else:
                await self.discard()
                await self._put(area, target)
                await to_thread.run_sync(area.forget_after, target)
            await scratch_copies.bring_back(box.files, box.options, area.beside(target))
        await box.refresh()
        return target

    async def _put(self, area: StagedArea, point: Point) -> None:
        """Restore the changes of a checkpoint in a sandbox whose files are the host's."""
        from belljar.session.staged_inside import put

        async with AsyncExitStack() as opened:
            layers = await to_thread.run_sync(opened.enter_context, area.layers(at=point))
            upper = self._staged_area.path / "upper"
            await put(self._box.files, layers, await to_thread.run_sync(layers.changes), upper)
        await self.copy_out()

    async def fork(self, **options: Any) -> Session:
        """A new session that begins with a copy of these files: `twin = await box.fork()`."""
        box = self._box
        await self.checkpoint("fork")
        live: Any = {"approve": box._judge.approver, "host": box.host}
        live |= {name: options.pop(name) for name in ("approve", "audit", "host") if name in options}
        ours: Any = {"network": box.allow or box.network, "env": box.env, "metadata": box.metadata}
        own = {"keep": False, "keepable": False, "id": None, "base": box.id}
        twin = type(box).of(replace(box.options, **{**ours, **options, **own}), **live)
        return await twin.open()

    def checkpoints(self) -> list[Point]:
        """The checkpoints, oldest first: `names = [point.name for point in box.checkpoints()]`."""
        return self._staged_area.points

    def left_out(self, point: Point) -> list[str]:
        """The directories that a checkpoint does not contain: /tmp or home, if they were too large.

        if box.left_out(point): print("your virtual environment stays as it is")
        """
        from belljar.session import scratch_copies

        return scratch_copies.left_out(self._box.options, self._staged_area.beside(point))

    async def forget_checkpoint(self, point: Point) -> None:
        """Forget a checkpoint; the current files stay as they are: `await box.forget_checkpoint(point)`."""
        await to_thread.run_sync(self._staged_area.forget, point)

    async def _remount(self, area: StagedArea) -> None:
        box = self._box
        sandbox = box.sandbox
        try:
            await to_thread.run_sync(staging.remount, area, sandbox.workspace, sandbox.run_dir, sandbox.launched.pid)
        except BaseException as error:  # whatever is mounted now is not what the area says: nothing may run on
            sandbox.link.shutdown()
            sandbox.link.close(f"the sandbox was ended: {error}; its changes are kept")
            raise
        self._remember_mount()
        box._workspace_moved()

    # For an engine that shares no files with us.

    @property
    def _copied(self) -> CopiedWorkspace | None:
        box, files = self._box, self._copied_files()
        if files is None:
            return None
        from belljar.session.copied_workspace import CopiedWorkspace

        return CopiedWorkspace(self._staged_area, files, box.limits.memory // 4, box.limits.inodes // 2)

    async def _copy_in(self) -> None:
        """Copy the workspace into a new sandbox; in a fork, also restore /tmp and home of the original."""
        box, copied = self._box, self._copied
        if copied is not None:
            await copied.copy_in()
            await self._box._aftermath.look()
        if base := box.options.base:
            from belljar.session import scratch_copies

            area = await to_thread.run_sync(_area, box.host.staged_root, base)
            if copied is not None:
                await self._put(area, area.points[-1])
            await scratch_copies.bring_back(box.files, box.options, area.beside(area.points[-1]))

    async def copy_out(self) -> None:
        """Copy changes to the host, if the engine shares no files with us: `await box.copy_out()`."""
        if (copied := self._copied) is not None:
            await copied.copy_out()
            await self._box._aftermath.look()

    async def _copy_out_at_last(self) -> None:
        """At the end of a session. If the sandbox is lost, only changes that were copied out before are kept."""
        try:
            await self.copy_out()
        except BelljarError as error:
            with suppress(BelljarError, OSError):  # everything was discarded meanwhile
                await to_thread.run_sync(self._staged_area.note_incomplete, str(error))

    _mounted = ""

    def _remember_mount(self) -> None:
        """Note which overlay the sandbox has now, by its work directory."""
        self._mounted = str(self._staged_area.meta["work"]) if self.is_staged else ""

    async def _before_command(self, verdict: Verdict) -> None:
        """Notice a checkpoint or rollback by another process; make a checkpoint before a risky command."""
        before = self._mounted
        await to_thread.run_sync(self._remember_mount)
        if before != self._mounted:
            self._box._workspace_moved()
        await self._box._aftermath.look(again=False)
        if self._box.options.checkpoints == "auto" and verdict.risk in ("high", "critical"):
            with suppress(UsageError):  # not while background shells run
                await self.checkpoint(f"before {verdict.canonical[:60]}")

    def _staged_upper(self) -> Folder | None:
        """The directory that changes go to, to find files there that the host may run."""
        if not self.is_staged or self._copied_files() is not None:
            return None
        return Folder.at(self._staged_area.path / "upper")

    def _copied_files(self) -> Files | None:
        """The sandbox's files, if the staged workspace was copied into it."""
        return self._box.files if self.is_staged and not self._box.sandbox.engine.capabilities.overlays else None

    def _forget_if_unchanged(self, id: str) -> None:
        """Remove the area of a session that changed nothing."""
        if self.is_staged:
            with suppress(BelljarError, OSError):
                area = _area(self._box.host.staged_root, id)
                if not area.changes() and not area.can_undo:
                    area.remove()


def _area(root: Path, id: str) -> StagedArea:
    from belljar.staged.area import StagedArea

    return StagedArea.find(root, id)


def _point(area: StagedArea, point: Point | str | None) -> Point:
    points = area.points
    if not points:
        raise UsageError("there is no checkpoint to go back to; `discard` takes changes back to the host's files")
    if point is None:
        return points[-1]
    matches = [known for known in points if known == point or known.name == point]
    if not matches:
        names = ", ".join(repr(known.name) for known in points)
        raise UsageError(f"there is no checkpoint {point!r}; choose from {names}")
    return matches[-1]

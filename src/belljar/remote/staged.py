"""`box.staged` of a remote session. Where the workspace is decides who reviews:

    at the service             its routes: changes, diff, apply … of its own directory
    a directory of this one    it was copied up; its changes are copied back into a staged area here, and reviewed here

So nothing that a sandbox did reaches a directory of this machine until somebody applies it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from belljar import codec
from belljar import host as hosts
from belljar.errors import BelljarError, Unsupported, UsageError
from belljar.session.copied_workspace import CopiedWorkspace
from belljar.session.staged_inside import put, reset
from belljar.staged.apply import Applied
from belljar.staged.area import Point, StagedArea, numbered
from belljar.staged.change import Change, etag, select
from belljar.staged.review import Review, Shown

if TYPE_CHECKING:
    from belljar.remote.files import RemoteFiles
    from belljar.remote.wire import Wire

MOST_BYTES = 2 << 30  # of a workspace that is copied up
MOST_FILES = 200_000
_NOT_STAGED = (
    'this session writes straight into its workspace; open it with changes="staged"'
)


class AtService:
    """The changes of a workspace that the service has."""

    def __init__(self, wire: Wire, session: str, *, is_on: bool) -> None:
        self._wire = wire
        self._at = f"/v1/sessions/{session}"
        self.is_on = is_on

    async def _got(self, what: str, **query: Any) -> Any:
        self._check()
        return await self._wire.ask("GET", f"{self._at}/{what}", query=query)

    async def _asked(self, what: str, body: Any, **headers: str) -> Any:
        self._check()
        return (
            await self._wire.ask(
                "POST", f"{self._at}/{what}", json=body, headers=headers
            )
        ).json()

    def _check(self) -> None:
        if not self.is_on:
            raise UsageError(_NOT_STAGED)

    async def changes(self, *, ignored: bool = False) -> list[Change]:
        """What differs from the service's directory."""
        items = (await self._got("changes")).json()["items"]
        found = [codec.decode(Change, item) for item in items]
        return [change for change in found if ignored or not change.ignored]

    async def etag(self) -> str:
        """A name for all changes with their contents, for `apply(if_match=…)`."""
        return str((await self._got("changes")).headers["ETag"])

    async def diff(
        self,
        paths: Iterable[str] | None = None,
        *,
        against: AtService | None = None,
        ignored: bool = False,
    ) -> str:
        """All changes, or those at or below some paths, as a unified diff."""
        other = against._at.rpartition("/")[2] if against is not None else None
        answer = await self._got(
            "diff", path=None if paths is None else [*paths], against=other
        )
        return str(answer.content.decode("utf-8", "surrogateescape"))

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
        """Write changes to the service's directory; the key needs the scope `approve`."""
        texts = {
            path: text if isinstance(text, str) else text.decode()
            for path, text in contents.items()
        }
        body = {
            "paths": None if paths is None else [*paths],
            "force": force,
            "merge": merge,
            "runs_later": runs_later,
        }
        headers = {} if if_match is None else {"If-Match": if_match}
        told = await self._asked(
            "apply", {**body, "contents": texts or None}, **headers
        )
        return Applied(
            paths=[*told["paths"]],
            held=[*told["held"]],
            refused=[*told["refused"]],
            merged=dict.fromkeys(told["merged"], ""),
        )

    async def undo_apply(self) -> list[str]:
        """Undo the last apply."""
        return [*(await self._asked("undo", {}))["paths"]]

    async def discard(self, paths: Iterable[str] | None = None) -> list[str]:
        """Drop changes: the sandbox sees the service's files again."""
        return [
            *(
                await self._asked(
                    "discard", {"paths": None if paths is None else [*paths]}
                )
            )["paths"]
        ]

    async def checkpoint(self, name: str = "", *, replace: bool = False) -> Point:
        """Remember the files as they are now."""
        taken = {point.name: point for point in await self.checkpoints()}
        name = name or next(
            each for each in numbered("checkpoint") if each not in taken
        )
        if replace and name in taken:
            await self.forget_checkpoint(taken[name])
        return _point(await self._asked("checkpoints", {"name": name}))

    async def rollback(self, point: Point | str | None = None) -> Point:
        """Go back to a checkpoint (by default the last one). All that runs is killed first."""
        name = point.name if isinstance(point, Point) else point
        return _point(await self._asked("rollback", {"name": name}))

    async def checkpoints(self) -> list[Point]:
        """The checkpoints, oldest first."""
        return [
            _point(item)
            for item in reversed((await self._got("checkpoints")).json()["items"])
        ]

    async def forget_checkpoint(self, point: Point) -> None:
        """Forget a checkpoint; the current files stay as they are."""
        await self._wire.ask("DELETE", f"{self._at}/checkpoints/{point.name}")

    async def show(self, paths: Iterable[str] | None = None) -> dict[Change, Shown]:
        """All changes, or those at or below some paths, for somebody who decides about them."""
        answer = await self._got(
            "changes"
        )  # its ETag comes first: whatever changes from here on is a conflict
        found = [codec.decode(Change, item) for item in answer.json()["items"]]
        seal = {"etag": str(answer.headers["ETag"])}
        chosen = select(found, paths, parents=False)
        return {
            change: Shown(await self.diff([change.path]), seal) for change in chosen
        }

    async def apply_shown(self, seen: Mapping[Change, Shown]) -> Applied:
        """Apply changes exactly as `show` gave them; `Conflict` if any has changed since."""
        if not seen:
            return Applied()
        tags = {shown.digests["etag"] for shown in seen.values()}
        if len(tags) > 1:
            raise UsageError(
                "these changes were not shown together; ask for them again"
            )
        return await self.apply([change.path for change in seen], if_match=tags.pop())

    def left_out(self, point: Point) -> list[str]:
        """What a checkpoint does not contain; the service does not say."""
        return []

    async def copy_out(self) -> None: ...
    async def enter(self) -> None: ...
    async def leave(self, *, keep: bool = False) -> None: ...


def _point(told: Mapping[str, Any]) -> Point:
    return Point(str(told["name"]), [], float(told["when"]))


class CopiedUp:
    """The changes of a directory of this machine, which was copied into the sandbox."""

    is_on = True

    def __init__(
        self, files: RemoteFiles, session: str, workspace: str, name: str | None
    ) -> None:
        self._files = files
        self._session = session
        self._workspace = os.path.realpath(workspace)
        self._name = name
        self._area: StagedArea | None = None

    async def enter(self) -> None:
        """Copy the directory up."""
        self._area = await to_thread.run_sync(self._made)
        await self._copied.copy_in()

    def found(self) -> None:
        """It was copied up before, by another process."""
        self._area = self.area

    def _made(self) -> StagedArea:
        status = os.stat(self._workspace)
        inode = (status.st_dev, status.st_ino)
        root, who = hosts.default().staged_root, (status.st_uid, status.st_gid)
        return StagedArea.create(
            root, self._session, self._workspace, inode, *who, None, self._name
        )

    def left_out(self, point: Point) -> list[str]:
        """What a checkpoint does not contain: it is about the workspace only."""
        return ["/tmp", "the home directory"]

    async def copy_out(self) -> None:
        """Fetch the changes: `await box.copy_out()`."""
        await self._copied.copy_out()

    async def leave(self, *, keep: bool = False) -> None:
        """Copy the changes back, for a later `apply`; without any, nothing is kept, unless the session goes on."""
        if self._area is None:
            return
        try:
            await self._copied.copy_out()
        except BelljarError as error:
            await to_thread.run_sync(self._area.note_incomplete, str(error))
            raise

        def forget_if_unchanged() -> None:
            if not keep and not self.area.changes() and not self.area.can_undo:
                self.area.remove()

        await to_thread.run_sync(forget_if_unchanged)

    @property
    def area(self) -> StagedArea:
        return StagedArea.find(hosts.default().staged_root, self._session)

    @property
    def _copied(self) -> CopiedWorkspace:
        return CopiedWorkspace(self.area, self._files, MOST_BYTES, MOST_FILES)

    async def _review(self) -> Review:
        await self._copied.copy_out()
        return Review(self.area)

    async def changes(self, *, ignored: bool = False) -> list[Change]:
        """What differs from this machine's files."""
        review = await self._review()
        return await to_thread.run_sync(lambda: review.listed(ignored=ignored))

    async def etag(self) -> str:
        """A name for all changes with their contents, on both sides, for `apply(if_match=…)`."""
        review = await self._review()
        return await to_thread.run_sync(lambda: etag(review.changes()))

    async def diff(
        self,
        paths: Iterable[str] | None = None,
        *,
        against: Any = None,
        ignored: bool = False,
    ) -> str:
        """All changes, or those at or below some paths, as a unified diff."""
        if against is not None:
            raise Unsupported(
                "sessions whose workspace was copied up cannot be compared"
            )
        review = await self._review()
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
        """Write changes to the directory of this machine."""
        review = await self._review()
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
        """All changes, or those at or below some paths, for somebody who decides about them."""
        review = await self._review()
        return await to_thread.run_sync(
            lambda: {
                change: review.show(change)
                for change in select(review.changes(), paths, parents=False)
            }
        )

    async def apply_shown(self, seen: Mapping[Change, Shown]) -> Applied:
        """Apply changes exactly as `show` gave them; `Conflict` if any has changed since."""
        safe = {
            change: shown for change, shown in seen.items() if not change.runs_later
        }
        held = [change.path for change in seen if change.runs_later]
        review = Review(self.area)
        return await to_thread.run_sync(lambda: review.apply_chosen(safe, {}, held))

    async def undo_apply(self) -> list[str]:
        """Undo the last apply."""
        return await to_thread.run_sync(Review(self.area).undo)

    async def discard(self, paths: Iterable[str] | None = None) -> list[str]:
        """Drop changes: the sandbox sees this machine's files again."""
        await self._copied.copy_out()
        async with AsyncExitStack() as opened:
            layers = await to_thread.run_sync(opened.enter_context, self.area.layers())
            chosen = select(
                await to_thread.run_sync(layers.changes), paths, parents=False
            )
            await reset(self._files, layers, chosen, self.area.path / "upper")
        await self._copied.copy_out()
        return [change.path for change in chosen]

    async def checkpoint(self, name: str = "", *, replace: bool = False) -> Point:
        """Remember the files as they are now."""
        await self._copied.copy_out()
        area = self.area
        name = name or area.unused("checkpoint")
        old = area.taken(name, replace=replace)
        point = await to_thread.run_sync(area.snapshot, name)
        if old is not None:
            await to_thread.run_sync(area.forget, old)
        return point

    async def copy_to(self, other: CopiedUp) -> None:
        """Let another session, which has the same directory, have these changes too."""
        await self._copied.copy_out()
        async with AsyncExitStack() as opened:
            layers = await to_thread.run_sync(opened.enter_context, self.area.layers())
            changes = await to_thread.run_sync(layers.changes)
            await put(other._files, layers, changes, other.area.path / "upper")
        await other.copy_out()

    async def rollback(self, point: Point | str | None = None) -> Point:
        """Go back to a checkpoint (by default the last one)."""
        area = self.area
        target = area.point(point)
        await self.discard()
        async with AsyncExitStack() as opened:
            layers = await to_thread.run_sync(
                opened.enter_context, area.layers(at=target)
            )
            await put(
                self._files,
                layers,
                await to_thread.run_sync(layers.changes),
                area.path / "upper",
            )
        await self._copied.copy_out()
        await to_thread.run_sync(area.forget_after, target)
        return target

    async def checkpoints(self) -> list[Point]:
        """The checkpoints, oldest first."""
        return self.area.points

    async def forget_checkpoint(self, point: Point) -> None:
        """Forget a checkpoint; the current files stay as they are."""
        await to_thread.run_sync(self.area.forget, point)

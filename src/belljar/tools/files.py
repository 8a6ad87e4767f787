"""Family `files`: read, write, edit, list and search, in any image. Off by default (`--tools files`).

The policy judges each call like the command that does the same (`cat`, `tee`, `ls`, `grep -r`), and it can reach what
the sandbox's user can.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from pydantic import Field

from belljar.errors import BelljarError
from belljar.tools.base import Call, Tool, ToolResult, truncate
from belljar.tools.parameters import Integer, Params, Text

READ_LINES = 2000
SHOWN = 30_000  # characters
FILE_MAX = 10 << 20
BINARY_BYTES = 8000  # a NUL among these first bytes means a binary file, as for git


class FileParams(Params):
    path: Text = Field(description="Path relative to the workspace, or absolute")


class ReadParams(FileParams):
    offset: Integer = Field(
        default=1, ge=1, description="First line to show, counted from 1"
    )
    limit: Integer = Field(
        default=READ_LINES, ge=1, description="How many lines to show (default 2000)"
    )


class WriteParams(FileParams):
    content: str = Field(description="The whole new content of the file")


class EditParams(FileParams):
    old: str = Field(
        min_length=1,
        description="Text to replace; must occur exactly once unless replace_all is set",
    )
    new: str = Field(description="Text to put in its place")
    replace_all: bool = Field(default=False, description="Replace every occurrence")


class ListParams(Params):
    path: Text = Field(default=".", description="Directory (default: the workspace)")
    depth: Integer = Field(
        default=1, ge=1, le=20, description="How many levels to list (default 1)"
    )


class SearchParams(Params):
    pattern: Text = Field(
        description="POSIX extended regular expression, matched line by line"
    )
    path: Text = Field(
        default=".", description="File or directory to search (default: the workspace)"
    )
    limit: Integer = Field(
        default=200, ge=1, le=5000, description="At most so many matches (default 200)"
    )


class FileTool(Tool):
    category = "files"
    default_risk = "low"
    judged_as: ClassVar[tuple[str, ...]]
    """The command that would do the same."""

    def command(self, params: Any) -> list[str]:
        return [word.format(**dict(params)) for word in self.judged_as]

    async def execute(self, params: Any, call: Call) -> ToolResult:
        await self.box.admit(self.command(params), question=self.question(params))
        return await self.work(params)

    def question(self, params: Any) -> str:
        """What the call would do, for the person who is asked to approve it."""
        return f"{self.title.lower()}: {params.path}"

    @abstractmethod
    async def work(self, params: Any) -> ToolResult: ...

    async def content_of(self, path: str) -> tuple[bytes, int]:
        """A file's content and its mode."""
        info = await self.box.files.stat(path)
        if info.size > FILE_MAX:
            raise BelljarError(
                f"{path} has {info.size} bytes: too large for this tool; use grep, head, tail or sed"
            )
        return await self.box.files.read(path), info.mode & 0o777

    def summary(self, given: Any) -> str:
        return f"{self.title}: {given.get('path', '.')}"


class ReadFile(FileTool):
    name = "read_file"
    does = "reads"
    title = "Read file"
    description = "Reads a text file and shows its lines with their numbers."
    judged_as = ("cat", "--", "{path}")
    Params = ReadParams

    async def work(self, params: ReadParams) -> ToolResult:
        data, _ = await self.content_of(params.path)
        if b"\0" in data[:BINARY_BYTES]:
            what = f"{params.path} is a binary file of {len(data)} bytes"
            raise BelljarError(f"{what}; use a command (file, xxd, strings)")
        lines = data.decode("utf-8", "replace").splitlines()
        shown = lines[params.offset - 1 : params.offset - 1 + params.limit]
        numbered = "\n".join(
            f"{number:6}\t{line}" for number, line in enumerate(shown, params.offset)
        )
        text, cut = truncate(numbered, SHOWN)
        last = params.offset - 1 + len(shown)
        more = last < len(lines)
        message = (
            f"Lines {params.offset} to {last} of {len(lines)}; offset={last + 1} continues."
            if more
            else None
        )
        facts = {"lines": len(lines), "shown": len(shown), "truncated": cut or more}
        return self.done(text, message, path=params.path, **facts)


class WriteFile(FileTool):
    name = "write_file"
    title = "Write file"
    description = "Writes a whole file, creating it and its directory or replacing it. Readers never see half of it."
    default_risk = "medium"
    judged_as = ("tee", "--", "{path}")
    Params = WriteParams

    def question(self, params: WriteParams) -> str:
        return f"write {params.path}:\n{params.content}"

    async def work(self, params: WriteParams) -> ToolResult:
        files, parent = self.box.files, params.path.rpartition("/")[0]
        if parent:
            await files.mkdir(parent)
        mode = (
            (await files.stat(params.path)).mode & 0o777
            if await files.exists(params.path)
            else 0o644
        )
        await files.write(params.path, params.content, mode=mode)
        size = len(params.content.encode())
        return self.done(
            message=f"Wrote {size} bytes to {params.path}", path=params.path, size=size
        )


class EditFile(FileTool):
    name = "edit_file"
    title = "Edit file"
    description = "Replaces an exact piece of text in a file. The text must occur exactly once, or set replace_all."
    default_risk = "medium"
    judged_as = ("tee", "--", "{path}")
    Params = EditParams

    def question(self, params: EditParams) -> str:
        every = " everywhere" if params.replace_all else ""
        return f"replace{every} in {params.path}:\n{params.old}\nwith:\n{params.new}"

    async def work(self, params: EditParams) -> ToolResult:
        data, mode = await self.content_of(params.path)
        old, new = params.old.encode(), params.new.encode()
        count = data.count(old)
        if count == 0:
            why = f"The text was not found in {params.path}; read the file and copy it exactly"
            return self.fail(why, code="not_found")
        if count > 1 and not params.replace_all:
            why = f"The text occurs {count} times in {params.path}; include more of the lines around it"
            return self.fail(why, code="ambiguous")
        await self.box.files.write(params.path, data.replace(old, new), mode=mode)
        return self.done(
            message=f"Replaced {count} in {params.path}",
            path=params.path,
            replaced=count,
        )


class ListFiles(FileTool):
    name = "list_files"
    does = "reads"
    title = "List files"
    description = "Lists a directory: directories end in /, links show where they lead, files their size in bytes."
    judged_as = ("ls", "-la", "--", "{path}")
    Params = ListParams

    async def work(self, params: ListParams) -> ToolResult:
        entries = await self.box.files.list(params.path, depth=params.depth)
        text, cut = truncate("\n".join(map(_shown, entries)), SHOWN)
        return self.done(text, path=params.path, entries=len(entries), truncated=cut)


class SearchFiles(FileTool):
    name = "search_files"
    does = "reads"
    title = "Search files"
    description = "Finds lines that match a regular expression, below a directory. Binary files and .git are left out."
    judged_as = ("grep", "-rnE", "--", "{pattern}", "{path}")
    Params = SearchParams

    async def work(self, params: SearchParams) -> ToolResult:
        matches = await self.box.files.search(
            params.pattern, params.path, most=params.limit
        )
        text, cut = truncate(
            "\n".join(f"{match.path}:{match.line}:{match.text}" for match in matches),
            SHOWN,
        )
        return self.done(
            text, matches=len(matches), truncated=cut or len(matches) == params.limit
        )


def _shown(entry: Any) -> str:
    if entry.kind == "directory":
        return f"{entry.path}/"
    return (
        f"{entry.path} -> {entry.target}"
        if entry.kind == "link"
        else f"{entry.path} ({entry.size})"
    )

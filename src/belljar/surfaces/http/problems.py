"""Errors as RFC 9457 problems: one table from our codes to HTTP statuses.

Nothing here tells a path of this machine: details of errors from below pass through `without_paths`.
"""

from __future__ import annotations

import errno
import re
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import ClientDisconnect, Request

from belljar.errors import BelljarError, Conflict, FileFailed, PolicyDenied

STATUS = {
    "usage": 400,
    "workspace_invalid": 400,
    "policy_invalid": 400,
    "limits_invalid": 400,
    "image_invalid": 400,
    "unauthenticated": 401,
    "policy_denied": 403,
    "forbidden": 403,
    "origin_refused": 403,
    "session_not_found": 404,
    "not_found": 404,
    "shell_not_found": 404,
    "method_not_allowed": 405,
    "not_acceptable": 406,
    "conflict": 409,
    "not_ready": 409,
    "approval_changed": 409,
    "approval_decided": 409,
    "sandbox_lost": 410,
    "session_ended": 410,
    "too_large": 413,
    "unsupported_media_type": 415,
    "host_refused": 421,
    "command_not_found": 422,
    "command_not_executable": 422,
    "working_directory_invalid": 422,
    "command_failed_to_start": 422,
    "image_missing": 422,
    "idempotency_mismatch": 422,
    "unsupported": 422,
    "file_failed": 422,
    "cancelled": 409,
    "quota_exceeded": 429,
    "failed": 500,
    "engine_failed": 500,
    "protection_missing": 500,
    "port_closed": 502,
    "engine_unavailable": 503,
    "audit_failed": 503,
}
"""Code → status."""

_FILES = {
    404: ("ENOENT",),
    403: ("EACCES", "EPERM", "EXDEV", "EROFS"),
    409: ("EISDIR", "ENOTDIR", "EEXIST", "ENOTEMPTY"),
    507: ("ENOSPC", "EDQUOT", "EFBIG"),
}
FILE_STATUS = {name: status for status, names in _FILES.items() for name in names}
_hidden: dict[str, str] = {}


class Problem(Exception):
    """An answer that is an error: `raise Problem("not_found", "there is no file app.py")`."""

    def __init__(
        self,
        code: str,
        detail: str = "",
        *,
        status: int = 0,
        headers: dict[str, str] | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(detail)
        self.code, self.status = code, status or STATUS[code]
        self.detail, self.fields, self.headers = detail, fields, headers or {}

    @property
    def title(self) -> str:
        return self.code.replace("_", " ").capitalize()

    def as_dict(self, request_id: str = "") -> dict[str, Any]:
        told = {
            "type": f"urn:belljar:error:{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "request_id": request_id,
        }
        return {**self.fields, **told}


class Elsewhere(Exception):
    """Another server has the session: its answer is the answer."""

    def __init__(self, owner: str) -> None:
        super().__init__(owner)
        self.owner = owner


def hide(path: str, name: str) -> None:
    """Let `name` stand for a directory of this machine in every detail."""
    _hidden[path] = name


def without_paths(text: str) -> str:
    for path, name in sorted(_hidden.items(), key=lambda item: -len(item[0])):
        text = re.sub(re.escape(path) + r"[^\s:;,'\")]*", name, text)
    return text


def problem_of(error: BelljarError) -> Problem:
    """The problem for an error from below."""
    detail = without_paths(str(error))
    if isinstance(error, PolicyDenied):
        return Problem(
            "policy_denied",
            detail,
            verdict=error.verdict.as_dict(),
            declined=error.declined,
        )
    if isinstance(error, Conflict):
        return Problem("conflict", detail, paths=error.paths)
    if isinstance(error, FileFailed):
        name = errno.errorcode.get(error.errno or 0, "")
        return Problem(
            "file_failed", detail, status=FILE_STATUS.get(name, 422), errno=name
        )
    code = error.code if error.code in STATUS else "failed"
    return Problem(code, detail)


async def body_of(request: Request) -> AsyncIterator[bytes]:
    try:
        async for part in request.stream():
            if part:
                yield part
    except ClientDisconnect:
        raise Problem("usage", "the client went away") from None

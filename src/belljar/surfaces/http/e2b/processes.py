"""Commands and terminals: E2B's `process.Process`.

A command here is a command of the session like any other, with its log, its end in the trail and its verdict. Its pid
is the one that it has in the sandbox. `/bin/bash -l -c TEXT`, which the clients send for every command, is TEXT.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.routing import Route

from belljar.errors import BelljarError
from belljar.surfaces.http import models as m
from belljar.surfaces.http.commands import Command
from belljar.surfaces.http.e2b.connect import (
    ConnectError,
    Message,
    call,
    field,
    keepalive_of,
    stream,
    timeout_of,
    upload,
)
from belljar.surfaces.http.problems import Problem, problem_of
from belljar.surfaces.http.streams import pieces

if TYPE_CHECKING:
    from belljar.surfaces.http.sessions import LiveSession

HOME = "/home/user"
DENIED = 126
_CODES = {
    400: "invalid_argument",
    401: "unauthenticated",
    403: "permission_denied",
    404: "not_found",
    409: "failed_precondition",
    410: "unavailable",
    422: "invalid_argument",
    429: "resource_exhausted",
    502: "unavailable",
    503: "unavailable",
}


def told(problem: Problem) -> ConnectError:
    return ConnectError(_CODES.get(problem.status, "internal"), problem.detail)


def session_of(request: Request) -> LiveSession:
    session: LiveSession = request.state.session
    return session


def place(path: str) -> str:
    """A path of a client: relative ones begin at home."""
    if path in ("", "~"):
        return HOME
    return path if path.startswith("/") else f"{HOME}/{path.removeprefix('~/')}"


# Starting.


async def start(request: Request, message: Message) -> AsyncIterator[Message]:
    session = session_of(request)
    wanted = field(message, "process", dict, {})
    pty = field(message, "pty", dict)
    body = _body(request, wanted, pty, field(message, "stdin", bool, True))
    try:
        checked = m.CommandBody.model_validate(body)
    except ValidationError as error:
        raise ConnectError(
            "invalid_argument", str(error.errors(include_url=False)[0]["msg"])
        ) from None
    command = Command.new(
        session.server, session, {**checked.model_dump(), "closed": False}, session.path
    )
    command.tag = field(message, "tag", str)  # type: ignore[attr-defined]
    try:
        session.touch()
        await session.submit(command)
    except Problem as problem:
        async for event in _refused(problem):
            yield event
        return
    except BelljarError as error:
        async for event in _refused(problem_of(error)):
            yield event
        return
    async for event in _followed(request, command, 0):
        yield event


def _body(
    request: Request, wanted: Message, pty: Message | None, has_input: bool
) -> dict[str, Any]:
    words = [
        field(wanted, "cmd", str, ""),
        *(str(word) for word in field(wanted, "args", list, [])),
    ]
    is_text = words[0] in ("/bin/bash", "bash") and words[1:-1] == ["-l", "-c"]
    body: dict[str, Any] = {
        "command": words[-1] if is_text else words,
        "cwd": place(field(wanted, "cwd", str, "")),
        "env": {"LANG": "C.UTF-8", **field(wanted, "envs", dict, {})},
        "stdin_open": has_input or pty is not None,
    }
    if pty is not None:
        body |= {"pty": True, "size": _size(pty)}
        body["command"] = (
            "exec bash -i"
            if words[0] in ("/bin/bash", "bash") and not is_text
            else body["command"]
        )
    if (seconds := timeout_of(request)) is not None:
        body["timeout"] = max(0.001, seconds)
    if (user := request.state.user) not in ("", "user"):
        body["user"] = user
    return body


def _size(pty: Message) -> list[int]:
    size = field(pty, "size", dict, {})
    return [field(size, "rows", int, 24) or 24, field(size, "cols", int, 80) or 80]


async def _refused(problem: Problem) -> AsyncIterator[Message]:
    """A denied command ends like one that its shell refused; anything else is an error of the call."""
    if problem.code != "policy_denied":
        raise told(problem)
    text = base64.b64encode(f"{problem.detail}\n".encode()).decode()
    yield {"event": {"start": {"pid": 0}}}
    yield {"event": {"data": {"stderr": text}}}
    yield _end(DENIED, "denied by policy")


# Following.


async def _followed(
    request: Request, command: Command, position: int
) -> AsyncIterator[Message]:
    while command.state in ("queued", "waiting"):
        await command.changed.wait(1)
        if command.is_over:
            break
    if command.is_over and command.data["result"] is None:
        error = command.data["error"] or {}
        async for event in _refused(
            Problem(error.get("code", "failed"), error.get("detail", "it did not run"))
        ):
            yield event
        return
    yield {"event": {"start": {"pid": await _pid(command)}}}
    kind = "pty" if command.data["pty"] else None
    every = keepalive_of(request) or 50.0
    while True:
        over = command.is_over
        position = max(position, command.log.start)
        if position < command.log.end:
            async for piece in pieces(command, position):
                yield {
                    "event": {
                        "data": {
                            kind or piece.stream: base64.b64encode(piece.data).decode()
                        }
                    }
                }
                position = piece.end
                command.was_sent(position)
        elif over:
            break
        elif not await command.changed.wait(every):
            yield {"event": {"keepalive": {}}}
    yield _ended(command)


def _ended(command: Command) -> Message:
    result = command.data["result"] or {}
    cause = result.get("cause")
    if cause == "timeout":
        raise ConnectError(
            "deadline_exceeded", "the command took longer than its timeout"
        )
    if cause == "sandbox_lost" or command.session.is_ending or command.session.is_over:
        raise ConnectError(
            "unavailable", f"the sandbox was not found: {command.session.id}"
        )
    if cause in ("signalled", "killed"):
        number = result.get("signal") or 9
        return _end(
            128 + number if number else result["exit_code"],
            f"signal: {number}",
            f"signal: {_NAMES.get(number, number)}",
        )
    return _end(result.get("exit_code") or 0, f"exit status {result.get('exit_code')}")


_NAMES = {9: "killed", 15: "terminated", 2: "interrupt"}


def _end(code: int, status: str, error: str = "") -> Message:
    why = error or (status if code else "")
    return {
        "event": {
            "end": {
                "exitCode": code,
                "exited": not error,
                "status": status,
                **({"error": why} if why else {}),
            }
        }
    }


async def _pid(command: Command) -> int:
    while command._held is None and not command.is_over:
        await command.changed.wait(1)
    return command._held.pid if command._held is not None else 0


# Finding and steering.


async def list_all(request: Request, _: Message) -> Message:
    running = [
        each
        for each in session_of(request).commands.values()
        if each._held is not None and not each.is_over
    ]
    return {"processes": [_shown(command) for command in running]}


def _shown(command: Command) -> Message:
    text = command.data["command"]
    words = ["/bin/bash", "-l", "-c", text] if isinstance(text, str) else text
    tag = getattr(command, "tag", None)
    config = {
        "cmd": words[0],
        "args": words[1:],
        "envs": command.body["env"],
        "cwd": command.body["cwd"],
    }
    return {
        "config": config,
        "pid": command._held.pid if command._held else 0,
        **({"tag": tag} if tag else {}),
    }


def _found(request: Request, message: Message) -> Command:
    selector = field(message, "process", dict, {})
    pid, tag = field(selector, "pid", int), field(selector, "tag", str)
    for command in session_of(request).commands.values():
        if command._held is not None and (
            command._held.pid == pid or (tag and getattr(command, "tag", None) == tag)
        ):
            return command
    raise ConnectError(
        "not_found",
        f"process with pid {pid} not found"
        if tag is None
        else f"process {tag!r} not found",
    )


async def connect(request: Request, message: Message) -> AsyncIterator[Message]:
    command = _found(request, message)
    async for event in _followed(request, command, command.log.end):
        yield event


async def update(request: Request, message: Message) -> Message:
    command = _found(request, message)
    if (pty := field(message, "pty", dict)) is not None:
        (await _held(command)).resize(*_size(pty))
    return {}


async def _held(command: Command) -> Any:
    try:
        return await command.held()
    except Problem:
        raise ConnectError("not_found", "the process has ended") from None


async def send_input(request: Request, message: Message) -> Message:
    await _write(_found(request, message), field(message, "input", dict, {}))
    return {}


async def _write(command: Command, given: Message) -> None:
    encoded = field(given, "pty", str, None) or field(given, "stdin", str, "")
    try:
        data = base64.b64decode(
            encoded + "=" * (-len(encoded) % 4),
            altchars=b"-_" if {"-", "_"} & set(encoded) else None,
        )
    except (ValueError, binascii.Error):
        raise ConnectError("invalid_argument", "the input is not base64") from None
    try:
        await command.write(data, close=False)
    except Problem as problem:
        raise told(problem) from None
    except BelljarError as error:
        raise told(problem_of(error)) from None


async def stream_input(request: Request, messages: AsyncIterator[Message]) -> Message:
    command: Command | None = None
    async for message in messages:
        if (begins := field(message, "start", dict)) is not None:
            command = _found(request, begins)
        elif (data := field(message, "data", dict)) is not None and command is not None:
            await _write(command, field(data, "input", dict, {}))
    return {}


async def send_signal(request: Request, message: Message) -> Message:
    command = _found(request, message)
    signal = message.get("signal", "")
    if signal in ("SIGNAL_SIGKILL", 9):
        asyncio.get_running_loop().create_task(_killed(command))
        await command.wait(5)
    elif signal in ("SIGNAL_SIGTERM", 15):
        (await _held(command)).signal(15)
    else:
        raise ConnectError("unimplemented", f"invalid signal: {signal}")
    return {}


async def _killed(command: Command) -> None:
    try:
        await command.kill(0.0)
    except (Problem, BelljarError) as error:
        command.server.report(error)


async def close_stdin(request: Request, message: Message) -> Message:
    command = _found(request, message)
    if command.data["pty"]:
        raise ConnectError(
            "failed_precondition", "a terminal has no end of input; send Ctrl+D"
        )
    try:
        await command.write(b"", close=True)
    except Problem as problem:
        raise told(problem) from None
    return {}


Endpoint = Callable[[Request], Awaitable[Any]]
_ROUTES: dict[str, Endpoint] = {
    "List": call(list_all),
    "Connect": stream(connect),
    "Start": stream(start),
    "Update": call(update),
    "StreamInput": upload(stream_input),
    "SendInput": call(send_input),
    "SendSignal": call(send_signal),
    "CloseStdin": call(close_stdin),
}
PROCESSES = [
    Route(f"/process.Process/{name}", endpoint, methods=["POST"])
    for name, endpoint in _ROUTES.items()
]

"""What the adapters share: a session from plain options, near or far, in a directory of its own if none is named.

    box = await opened(image="python", limits={"memory": "1g"})
    ...
    await closed(box)

`host` is a `belljar.Host`, what `belljar.connect` gives, or the address of a service: the key is then BELLJAR_KEY.
A session without a workspace gets an empty directory, which `closed` removes with everything in it.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import posixpath
import shutil
import tempfile
import tomllib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

import belljar
from belljar.errors import UsageError
from belljar.options import PUBLIC, known

MOST_LINKS = 40
"""As in the kernel: with more on the way it is a loop."""
CLOSE_SECONDS = 30.0
"""For an environment that nobody closed: then its sandbox ends with the process."""
Workspace = str | os.PathLike[str] | None
LIVE = ("approve", "audit", "engine")
"""What a session takes besides the fields of its options and its host."""
MOST_OUTPUT = 64 << 20
_PREFIX, _NAME = "belljar-workspace-", "workspace"


def session(
    workspace: Workspace = None, *, host: Any = None, **options: Any
) -> belljar.Session:
    """A session that is not open yet. Without a workspace it has a new, empty one."""
    given = options_of(options)
    where = host_of(host)
    if where is not None:
        given["host"] = where
    if workspace is not None:
        return belljar.Session(workspace, **given)
    if is_far(where):
        return belljar.Session(**given)
    made = _new_workspace()
    try:
        return belljar.Session(made, **given)
    except BaseException:
        shutil.rmtree(made.parent, ignore_errors=True)
        raise


def _new_workspace() -> Path:
    """An empty directory that every user of the sandbox may enter, and on the host only its owner."""
    made = Path(tempfile.mkdtemp(prefix=_PREFIX), _NAME)
    made.mkdir()
    made.chmod(0o755)  # whatever the umask is
    return made


async def opened(
    workspace: Workspace = None, *, host: Any = None, **options: Any
) -> belljar.Session:
    """An open session; nothing is left behind if it cannot be opened."""
    return await open_or_remove(
        await to_thread.run_sync(lambda: session(workspace, host=host, **options))
    )


async def open_or_remove(box: belljar.Session) -> belljar.Session:
    try:
        return await box.open()
    except BaseException:
        await _remove_own(box)
        raise


async def closed(box: belljar.Session) -> None:
    """End the sandbox, kept or not, and remove the workspace that was made for it, also if this call is cancelled."""
    with anyio.CancelScope(shield=True):
        try:
            await box.stop()
        finally:
            await _remove_own(box)


async def entered(
    how: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any
) -> tuple[Any, asyncio.AbstractEventLoop]:
    """A box, and the event loop that it lives in: for callers who block."""
    return await how(*arguments, **options), asyncio.get_running_loop()


def close_from_anywhere(box: Any, home: asyncio.AbstractEventLoop) -> None:
    """`closed`, in the loop that the box lives in. The garbage collector may call it, in any thread."""
    closing = asyncio.run_coroutine_threadsafe(closed(box), home)
    try:
        is_at_home = asyncio.get_running_loop() is home
    except RuntimeError:
        is_at_home = False
    if not is_at_home:
        closing.result(CLOSE_SECONDS)


async def _remove_own(box: belljar.Session) -> None:
    path = getattr(getattr(box, "options", None), "workspace", "")
    if own_workspace(path):
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(
                lambda: shutil.rmtree(Path(path).parent, ignore_errors=True)
            )


async def link_target(box: belljar.Session, path: str) -> str | None:
    """Where the link `path` leads, as it is written; None if it is no link."""
    if not isinstance(
        box, belljar.Session
    ):  # one far away cannot be asked about a link itself
        done = await box.run(["readlink", "-n", "--", path])
        return done.stdout if done.ok else None
    try:
        return (await box.files.stat(path, follow=False)).target
    except (FileNotFoundError, NotADirectoryError):
        return None


async def write(box: belljar.Session, path: str, data: bytes | str) -> None:
    """Write a file as `open` would: through a link, and with the mode that the file has. `box.files.write` replaces."""
    place, mode = await opened_for_writing(box, path)
    await box.files.write(place, data, mode=mode)


async def opened_for_writing(box: belljar.Session, path: str) -> tuple[str, int]:
    """The file that `open` would write to, and its mode; or that of a new one."""
    place = path
    for _ in range(MOST_LINKS):
        target = await link_target(box, place)
        if target is None:
            break
        place = posixpath.join(posixpath.dirname(place), target)
    else:
        raise looping(path)
    try:
        return place, (await box.files.stat(place)).mode & 0o777
    except FileNotFoundError:
        return place, 0o644


def looping(path: str) -> belljar.FileFailed:
    return belljar.FileFailed(f"{path}: {os.strerror(errno.ELOOP)}", errno=errno.ELOOP)


def own_workspace(path: str) -> bool:
    """Whether `session` made this directory."""
    place, above = Path(path), Path(path).parent
    return (
        place.name == _NAME
        and above.name.startswith(_PREFIX)
        and above.parent == Path(tempfile.gettempdir())
    )


def host_of(host: Any) -> Any:
    """The host that `host=` means; an address is connected to."""
    if not isinstance(host, str):
        return host
    return belljar.connect(host)


def is_far(host: Any) -> bool:
    return host is not None and not isinstance(host, belljar.Host)


async def run_whole(
    box: Any, command: Any, **options: Any
) -> tuple[belljar.Result, bytes, bytes]:
    """A command's result and all of its output, which the result alone may have shortened. Past MOST_OUTPUT the command
    is killed (`cause == "output_limit"`)."""
    streams = {"stdout": bytearray(), "stderr": bytearray()}

    def take(output: belljar.Output) -> None:
        streams[output.stream].extend(output.data)

    result = await box.run(command, on_output=take, output_limit=MOST_OUTPUT, **options)
    return there(result), bytes(streams["stdout"]), bytes(streams["stderr"])


def there(result: belljar.Result) -> belljar.Result:
    """A result, unless its sandbox was lost meanwhile: that is an error, not an answer for a model."""
    if result.cause == "sandbox_lost":
        raise belljar.SandboxLost("the sandbox ended while the command ran")
    return result


def reason(error: belljar.BelljarError) -> str:
    """Why nothing ran, for a model."""
    return (
        f"belljar: denied: {error}"
        if isinstance(error, belljar.PolicyDenied)
        else f"belljar: {error}"
    )


def options_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options as a program or a file writes them: limits and hosts may be plain data, and so may what `plain` made."""
    known(given, {*PUBLIC, *LIVE}, "a sandbox")
    options = dict(given)
    if isinstance(limits := options.get("limits"), Mapping):
        options["limits"] = belljar.Limits(**limits)
    if isinstance(hosts := options.get("network"), list | tuple):
        options["network"] = belljar.Allow(*hosts)
    elif isinstance(hosts, Mapping):
        options["network"] = belljar.Allow.restored(hosts)
    if isinstance(policy := options.get("policy"), Mapping):
        options["policy"] = belljar.Policy.restored(policy)
    return options


def plain(value: Any) -> Any:
    """An option as data for JSON, for frameworks that write their configuration down."""
    return value.as_dict() if hasattr(value, "as_dict") else value


def options_in(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The options in a file of TOML or JSON, by the names of `belljar.SandboxOptions`:

    image = "python"
    limits = { memory = "1g" }
    network = ["api.example.com"]
    """
    place = Path(path)
    try:
        text = place.read_text()
        found = json.loads(text) if place.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise UsageError(f"{place}: {error}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{place}: options are a table of names and values")
    return found

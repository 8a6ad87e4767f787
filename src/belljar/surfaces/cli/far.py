"""The service that commands run at instead of this machine: of BELLJAR_URL and BELLJAR_KEY, or of `belljar login`.

`BELLJAR_URL=` means this machine again. What a service cannot do is refused, never done here instead.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from belljar import host as hosts
from belljar.errors import Unsupported, UsageError
from belljar.surfaces.cli import console, settings

if TYPE_CHECKING:
    from belljar.remote.host import RemoteHost

FILE = "service.json"
MOST = 64 << 10
AT_A_SERVICE = (
    "run",
    "session",
    "snapshots",
    "ps",
    "start",
    "shells",
    "logs",
    "wait",
    "kill",
    "cp",
    "forward",
    "call",
    "mcp",
)
"""The commands that can use one; `changes`, `diff`, `apply` and `discard` are about directories of this machine."""
ONLY_HERE = ("shell", "attach", "stats")


def place() -> Path:
    return settings.user_file().parent / FILE


def configured() -> tuple[str, str] | None:
    """Address and key, if there are some."""
    url, key = os.environ.get("BELLJAR_URL"), os.environ.get("BELLJAR_KEY", "")
    if url is None:
        saved = _saved()
        return (str(saved["url"]), str(saved["key"])) if saved else None
    if url and not key and (saved := _saved()) and saved["url"] == url:
        key = str(saved["key"])
    return (url, key) if url else None


def _saved() -> dict[str, Any] | None:
    where = place()
    try:
        status = where.stat()
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise UsageError(
                f"{where} holds a key and others may read it: run `belljar login` again"
            )
        saved = json.loads(where.read_bytes()[:MOST])
        return {"url": str(saved["url"]), "key": str(saved["key"])}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UsageError(
            f"{where} cannot be read ({error}): run `belljar login` again"
        ) from error


def service() -> RemoteHost:
    """The service, for commands that are about nothing else."""
    found = configured()
    if found is None:
        raise UsageError(
            "no service is known: `belljar login URL`, or BELLJAR_URL and BELLJAR_KEY"
        )
    from belljar.remote.host import connect

    return connect(found[0], key=found[1])


@contextmanager
def used(args: Namespace) -> Iterator[None]:
    """Within this block sessions are the service's, if there is one and the command can use it."""
    name = (
        args.parser.prog.split()[1]
        if hasattr(args, "parser") and " " in args.parser.prog
        else ""
    )
    if name not in (*AT_A_SERVICE, *ONLY_HERE) or configured() is None:
        yield
        return
    if name in ONLY_HERE:
        raise Unsupported(
            f"`belljar {name}` cannot use a service; BELLJAR_URL= lets it use this machine"
        )
    with hosts.used_far(service()):
        yield


# belljar login, belljar logout.


def login(args: Namespace) -> int:
    from belljar.remote.host import connect

    far = connect(args.url, key=os.environ.get("BELLJAR_KEY") or _asked())
    told = far.portal().call(far.itself)
    where = place()
    where.parent.mkdir(parents=True, exist_ok=True)
    new = where.with_suffix(".new")
    with os.fdopen(
        os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w"
    ) as file:
        os.fchmod(file.fileno(), 0o600)
        json.dump({"url": far.url, "key": far.key}, file)
    new.rename(where)
    facts = {name: told[name] for name in ("name", "tenant", "scopes", "expires")} | {
        "url": far.url
    }
    if not args.json:
        console.note(
            f"commands run at {far.url} from now on, as {told['name']} of {told['tenant']} "
            f"({', '.join(told['scopes'])}); `belljar logout` brings them back"
        )
    return console.answer(args, facts)


def _asked() -> str:
    """The key, from the terminal or from stdin; never an argument, which other users could see."""
    if sys.stdin.isatty():
        from getpass import getpass

        return getpass("key: ").strip()
    return sys.stdin.readline().strip()


def logout(args: Namespace) -> int:
    place().unlink(missing_ok=True)
    return console.answer(args, {"url": None})

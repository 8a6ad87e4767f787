"""For whoever runs the server: is this configuration right (`--check`), and a systemd unit for it (`--print-unit`)."""

from __future__ import annotations

import asyncio
import datetime
import resource
import shlex
import ssl
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from belljar import resources
from belljar.doctor import Check, examine
from belljar.errors import BelljarError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILES = 65536  # a server of a thousand streams and sandboxes has tens of thousands open
CERTIFICATE_DAYS = 14
_ONLY_ASKED = ("check", "print_unit", "handler", "parser")


def check(args: Namespace, free: Callable[[], None]) -> list[Check]:
    """What would go wrong, in the order of a start. `free`: raises if an address cannot be listened on."""
    found = [_address(args, free), _open_files(), *_certificate(args), *_previews(args)]
    try:
        state = resources.state_dir() / "serve"
    except (BelljarError, OSError) as error:
        return [
            *found,
            Check(
                "state",
                False,
                str(error),
                "set BELLJAR_STATE to a directory of your own",
            ),
        ]
    found += [
        Check("state", True, str(state)),
        asyncio.run(_database(args.database, state)),
    ]
    return [*found, *examine()]


def _address(args: Namespace, free: Callable[[], None]) -> Check:
    try:
        free()
    except BelljarError as error:
        return Check(
            "address",
            False,
            str(error),
            "end what listens there, or choose another --listen",
        )
    return Check("address", True, f"{args.listen} is free")


def _open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    fix = (
        ""
        if soft >= FILES
        else f"for hundreds of sandboxes: `ulimit -n {FILES}`, or the unit of --print-unit"
    )
    return Check("open files", True, f"{soft} (at most {hard})", fix)


def _certificate(args: Namespace) -> Iterator[Check]:
    if not args.tls_cert:
        return
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            args.tls_cert, args.tls_key
        )
        ends = _end_of(Path(args.tls_cert).read_text())
    except (OSError, ValueError) as error:
        yield Check(
            "certificate",
            False,
            f"{args.tls_cert}: {error}",
            "give a certificate and its key as PEM files",
        )
        return
    left = ends - datetime.datetime.now(datetime.UTC)
    fix = "renew it, then restart the server" if left.days < CERTIFICATE_DAYS else ""
    yield Check(
        "certificate", left.total_seconds() > 0, f"holds until {ends:%Y-%m-%d}", fix
    )


def _end_of(pem: str) -> datetime.datetime:
    from cryptography import x509

    return x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc


def _previews(args: Namespace) -> Iterator[Check]:
    if not args.preview_url or not args.public_url:
        return
    ours, theirs = (
        urlsplit(args.public_url).hostname or "",
        (urlsplit(args.preview_url).hostname or "").lstrip("*."),
    )
    near = theirs == ours or theirs.endswith("." + ours) or ours.endswith("." + theirs)
    fix = "better a domain of its own: browsers count both as one site" if near else ""
    yield Check("previews", True, f"links lead to {args.preview_url}", fix)


async def _database(url: str | None, state: Path) -> Check:
    import sqlalchemy as sa

    from belljar.surfaces.http import migrations
    from belljar.surfaces.http.storage import Store

    shown = (
        url.rpartition("@")[2] if url else str(state / "service.db")
    )  # never the password
    if url is None and not (state / "service.db").exists():
        return Check("database", True, f"{shown} will be made at the first start")
    try:
        store = Store.at(url, state)
        store.connect()
        try:
            async with asyncio.timeout(10):
                at, known = await store.call(migrations.steps)
        finally:
            await store.close()
    except (BelljarError, OSError, TimeoutError, sa.exc.SQLAlchemyError) as error:
        said = str(getattr(error, "orig", None) or error) or "no answer within 10 s"
        return Check(
            "database",
            False,
            f"{shown}: {said}",
            "see that it runs and that the address and password are right",
        )
    if at is not None and at not in known:
        return Check(
            "database",
            False,
            f"{shown}: made by a newer belljar (step {at})",
            "start that version, or newer",
        )
    if at == known[0]:
        return Check("database", True, f"{shown}, step {at}")
    return Check(
        "database",
        True,
        f"{shown}: empty"
        if at is None
        else f"{shown}, step {at}: a start brings {known[0]}",
    )


# The unit.


def unit(args: Namespace) -> str:
    """A systemd unit that starts the server with the same options."""
    is_user = args.print_unit == "user"
    given = {
        name: value for name, value in vars(args).items() if name not in _ONLY_ASKED
    }
    options = [
        word
        for name, value in given.items()
        for word in _option(name, value, args.parser.get_default(name))
    ]
    words = [sys.executable, "-m", "belljar", "serve", *options]
    settings = {
        "Unit": {
            "Description": "Belljar: sandboxes over HTTP",
            "After": "" if is_user else "network.target docker.service",
        },
        "Service": {
            "Type": "notify",
            "ExecStart": " ".join(map(_quoted, words)),
            "EnvironmentFile": f"-{'%h/.config/belljar' if is_user else '/etc/belljar'}/serve.env",
            "Environment": ""
            if is_user
            else "BELLJAR_STATE=/var/lib/belljar BELLJAR_LOG=info,json",
            "StateDirectory": "" if is_user else "belljar",
            "StateDirectoryMode": "" if is_user else "0700",
            "KillMode": "process",
            "Delegate": "yes",
            "LimitNOFILE": f"{FILES}",
            "Restart": "on-failure",
            "RestartSec": "1",
            "TimeoutStopSec": "15",
        },
        "Install": {"WantedBy": "default.target" if is_user else "multi-user.target"},
    }
    where = (
        "~/.config/systemd/user/belljar.service"
        if is_user
        else "/etc/systemd/system/belljar.service"
    )
    control = "systemctl --user" if is_user else "systemctl"
    head = f"# {where}\n# {control} daemon-reload && {control} enable --now belljar\n"
    return head + "\n".join(
        "\n".join(
            [
                f"[{section}]",
                *(f"{name}={value}" for name, value in pairs.items() if value),
                "",
            ]
        )
        for section, pairs in settings.items()
    )


def _option(name: str, value: object, default: object) -> list[str]:
    if value in (default, None, False):
        return []
    flag = f"--{name.replace('_', '-')}"
    return [flag] if value is True else [flag, str(value)]


def _quoted(word: str) -> str:
    """For ExecStart=: `%` is a specifier there, `$` a variable."""
    return shlex.quote(word.replace("%", "%%").replace("$", "$$"))

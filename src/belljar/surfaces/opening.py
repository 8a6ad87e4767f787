"""From options to a session: the same for every sub-command that needs a sandbox."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from belljar import Session
from belljar.errors import UsageError
from belljar.limits import Limits, LimitsError
from belljar.policy import Verdict


def limits(args: Namespace) -> Limits:
    given = {name: value for name in ("memory", "cpus", "pids") if (value := getattr(args, name, None)) is not None}
    try:
        return Limits(**given)
    except LimitsError as error:
        raise UsageError(f"--{error}") from None


def approve_all(_: Verdict) -> bool:
    return True


@asynccontextmanager
async def opened(args: Namespace, **options: Any) -> AsyncIterator[Session]:
    """The session that the options name, or a new one that lives as long as this block."""
    if getattr(args, "yes", False):
        options["approve"] = approve_all
    if getattr(args, "session", None):
        box = await Session.attach(args.session, policy=args.policy, **options)
    else:
        box = await planned(args, **options).open()
    try:
        yield box
    finally:
        await box.close()


def planned(args: Namespace, **options: Any) -> Session:
    return Session(
        args.workspace, image=args.image, limits=limits(args), policy=args.policy, network=args.network, **options
    )

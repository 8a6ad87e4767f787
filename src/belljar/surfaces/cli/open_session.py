"""Opens the session that the options describe, for every sub-command that needs a sandbox."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from belljar import host as hosts
from belljar.policy import Verdict
from belljar.sandbox.sandbox import Sandbox
from belljar.session import judging
from belljar.session.session import Session
from belljar.surfaces.cli import afterwards, console, names
from belljar.surfaces.cli.arguments import options_of

if TYPE_CHECKING:
    from belljar.session.options import Approver
    from belljar.surfaces.cli.early_launch import EarlyLaunch


def approve_all(_: Verdict) -> bool:
    return True


@asynccontextmanager
async def opened(
    args: Namespace,
    early: EarlyLaunch | None = None,
    approve: Approver | None = None,
    **options: Any,
) -> AsyncIterator[Session]:
    """The session that the options name, or a new one that ends with this block."""
    approve = approve_all if getattr(args, "yes", False) else approve
    if early is not None:
        box = await _adopted(early, args, approve=approve)
    elif getattr(args, "session", None):
        box = await _attached(args, names.session(args.session), approve)
    else:
        box = await planned(args, approve=approve, **options).open()
    try:
        yield box
    finally:
        await box.close()


async def _attached(args: Namespace, id: str, approve: Approver | None) -> Session:
    """Without `--policy`, commands are judged by the policy that the session was started with."""
    named = {"policy": args.policy} if args.policy_is_explicit else {}
    box = await Session.attach(id, approve=approve, **named)
    args.policy = box.policy.name
    return box


async def _adopted(early: EarlyLaunch, args: Namespace, **live: Any) -> Session:
    """A session in the sandbox that is being launched."""
    options = early.options
    policy = judging.load(options.policy)
    await to_thread.run_sync(
        policy.prepare, abandon_on_cancel=True
    )  # while the engine works
    await to_thread.run_sync(early.wait, abandon_on_cancel=True)
    sandbox = await Sandbox.greeted(early.take())
    if (
        options.changes == "direct" and not options.cache
    ):  # staged changes and caches are needed at once
        sandbox.when_ended = afterwards.later
    return await Session.adopt(sandbox, replace(options, policy=policy), **live)


def planned(
    args: Namespace, approve: Approver | None = None, **options: Any
) -> Session:
    hosts.default().progress = console.Bar()
    return Session.of(options_of(args, **options), approve=approve)

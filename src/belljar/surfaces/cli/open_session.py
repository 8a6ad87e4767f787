"""From options to a session: the same for every sub-command that needs a sandbox."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from belljar.images import catalog
from belljar.policy import Policy, Verdict
from belljar.sandbox import rundir
from belljar.sandbox.sandbox import Sandbox
from belljar.session import kept
from belljar.session.session import Session
from belljar.surfaces.cli import afterwards, console, names
from belljar.surfaces.cli.sandbox_options import limits, network_of, session_options

if TYPE_CHECKING:
    from belljar.session.options import Approver
    from belljar.surfaces.cli.run import EarlyLaunch


def approve_all(_: Verdict) -> bool:
    return True


@asynccontextmanager
async def opened(
    args: Namespace, early: EarlyLaunch | None = None, approve: Approver | None = None, **options: Any
) -> AsyncIterator[Session]:
    """The session that the options name, or a new one that lives as long as this block."""
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
    """Judged by the policy that it was started with, where no other is named."""
    own = None if args.policy_said else kept.policy(rundir.run_root() / id)
    args.policy = args.policy if own is None else own.name
    return await Session.attach(id, policy=policy_of(args, own), approve=approve)


async def _adopted(early: EarlyLaunch, args: Namespace, **options: Any) -> Session:
    """A session in the sandbox that is being launched."""
    given = policy_of(args)
    policy = given if isinstance(given, Policy) else Policy.load(given)
    # Only to load what judging needs while the engine works; the session judges.
    await to_thread.run_sync(policy.judge, args.command, abandon_on_cancel=True)
    await to_thread.run_sync(early.wait, abandon_on_cancel=True)
    sandbox = await Sandbox.greeted(early.take())
    if sandbox.plan.changes == "direct" and not sandbox.plan.cache:  # others have files that are wanted at once
        sandbox.when_ended = afterwards.later
    return await Session.adopt(sandbox, policy=policy, network=network_of(args), **options)


def planned(args: Namespace, **options: Any) -> Session:
    catalog.watcher = console.Bar()
    given = session_options(args) | {"policy": policy_of(args)}
    return Session(args.workspace, limits=limits(args), **given, **options)


NO_HOSTS = '[policy]\nname = "enforced"\n[network]\nceiling = []'


def policy_of(args: Namespace, own: Policy | None = None) -> str | Policy:
    """Where the operator allows no network, no policy, and nobody later on, opens a door either."""
    if not getattr(args, "no_hosts", False):
        return own or args.policy
    return (own or Policy.load(args.policy)).tighten(Policy.parse(NO_HOSTS))

"""`belljar run`: one command, its output as it comes, its status as ours.

Most of a quick command's time is the engine's, starting a container, and Python's, importing. The two go on at once:
the launch begins in a thread as soon as the options are read, and everything it does not need is imported meanwhile.
"""

from __future__ import annotations

from argparse import Namespace
from concurrent.futures import Future
from threading import Thread

from belljar import images, state
from belljar.launch import Launch, Plan, launch
from belljar.surfaces import ci, console
from belljar.surfaces.limits import limits


def run(args: Namespace) -> int:
    if args.report:
        ci.Report(args)  # a file that cannot be written is said before anything is started
    ahead = None if args.session else _launched_ahead(args)
    try:
        from belljar.surfaces.watching import watched
    except BaseException:
        if ahead is not None and ahead.exception() is None:
            ahead.result().discard()
        raise
    return watched(args, ahead)


def _launched_ahead(args: Namespace) -> Future[Launch]:
    plan = Plan(args.workspace, args.image, limits(args), args.network)
    promise: Future[Launch] = Future()
    images.watcher = console.Bar()

    def keep() -> None:
        try:
            promise.set_result(launch(plan, state.new_session_id()))
        except BaseException as error:
            promise.set_exception(error)

    Thread(target=keep, name="belljar-launch", daemon=True).start()
    return promise

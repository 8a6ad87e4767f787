"""`Inside`: the sandbox that a session is in, and what its parts know about it together.

Before a session opens and after it closes there is no sandbox, and whatever needs one raises the same error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from belljar.errors import UsageError
from belljar.options import SandboxOptions
from belljar.sandbox import rundir
from belljar.session.aftermath import Aftermath
from belljar.session.result import Surroundings
from belljar.session.standstill import Standstill

if TYPE_CHECKING:
    from belljar.link.link import Link
    from belljar.runs_later.watch import Watch
    from belljar.sandbox.sandbox import Sandbox
    from belljar.session.files import Files
    from belljar.session.init_tools import InitTools

_NOT_OPEN = (
    "this session is not open, or was closed: use it inside `async with belljar.Session(...) as box:` "
    "(belljar.sync: `with`), or open() it first"
)


class Inside:
    def __init__(self, options: SandboxOptions) -> None:
        self.options = options
        self.env = dict(options.env)
        """The variables of each command."""
        self.surroundings = Surroundings(
            options.network_mode, options.limits, options.image, self.is_staged
        )
        """For hints."""
        self.lasting: set[object] = set()
        """The shells that may run on when a command has ended."""
        self.mounts = 1
        """How many mounts the workspace has had: commands that began in an older one must enter it again."""
        self.calls = 0
        """Of persistent shells, which are under way: the shell may not have read its text yet."""
        self.standstill = Standstill(lambda: self.sandbox, lambda: self.calls > 0)
        self._sandbox: Sandbox | None = None
        self._aftermath: Aftermath | None = None

    def within(self, timeout: float | None) -> float | None:
        """A command's timeout, within what the operator allows."""
        longest = self.options.longest
        return timeout if longest is None else min(timeout or longest, longest)

    def enter(self, sandbox: Sandbox, run_files: Watch) -> None:
        self._sandbox = sandbox
        self._aftermath = Aftermath(sandbox, run_files)

    def leave(self) -> None:
        """With the aftermath its descriptors go, and the kernel's watches."""
        if self._aftermath is not None:
            self._aftermath.run_files.end()
        self._sandbox = self._aftermath = None

    @property
    def sandbox(self) -> Sandbox:
        if self._sandbox is None:
            raise UsageError(_NOT_OPEN)
        return self._sandbox

    @property
    def is_staged(self) -> bool:
        """Whether changes are kept aside until someone applies them."""
        return self.options.changes == "staged"

    def remember(self, **changed: Any) -> None:
        """Change options, also for processes that attach to the session."""
        options = self.options.changed(**changed)
        rundir.remember(self.sandbox.run_dir, options)
        self.options = options

    def remember_own(self) -> None:
        """Write down the options of a session that begins, unless its sandbox was launched with the same."""
        written = self.sandbox.written
        if (
            written is None
            or self.options.changed(workspace=written.workspace) != written
        ):
            self.remember()

    @property
    def link(self) -> Link:
        return self.sandbox.link

    @property
    def is_open(self) -> bool:
        return self._sandbox is not None and self._sandbox.link.lost is None

    @property
    def is_paused(self) -> bool:
        return self._sandbox is not None and self._sandbox.is_paused

    @property
    def was_entered(self) -> bool:
        return self._sandbox is not None

    @property
    def aftermath(self) -> Aftermath:
        """Raises unless the session is open and used in the event loop that opened it."""
        self.link.check_loop()
        assert self._aftermath is not None
        return self._aftermath

    @property
    def is_busy(self) -> bool:
        """Whether something may run at the same time as the next command."""
        return bool(self.lasting)

    @cached_property
    def tools(self) -> InitTools:
        from belljar.session.init_tools import InitTools  # most sessions need none

        return InitTools(lambda: self.sandbox)

    @cached_property
    def files(self) -> Files:
        from belljar.session.files import Files

        return Files(self.tools.run, lambda: self.sandbox.workspace.descriptor)

    async def ready(self) -> None:
        """Before each command: look what the host may run as it is now, and wait while the mount is exchanged. The
        caller starts its command before it awaits anything else."""
        await self.aftermath.run_files.refresh()
        await self.standstill.passed()

    def open_network(self, variables: Mapping[str, str]) -> None:
        """Commands reach some hosts from now on, with these variables."""
        self.env = {**variables, **self.env}
        self.surroundings = replace(self.surroundings, network="allow")

    def moved(self, run_files: Watch) -> None:
        """The workspace was mounted anew: what was open in the old mount is stale."""
        self.mounts += 1
        self.aftermath.run_files.end()
        self.aftermath.run_files = run_files

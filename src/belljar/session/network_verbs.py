"""The methods of a session for the network door, forwarded ports and files."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from belljar.errors import BelljarError, UsageError
from belljar.network.client_settings import PORT, environment
from belljar.session.verbs import Verbs
from belljar.tasks import see_through

if TYPE_CHECKING:
    from belljar.engines.spec import Network
    from belljar.network.allow import Allow
    from belljar.network.door import Door
    from belljar.policy import Policy
    from belljar.session.files import Files
    from belljar.session.init_tools import InitTools
    from belljar.session.network_door import Forwarded, NetworkDoor


def under_policy(network: Network | Allow, policy: Policy) -> Allow | None:
    """The hosts to allow: those of the session, if the policy's ceiling permits them, and those of the policy."""
    if network == "none" and not policy.network_allow:
        return None
    from belljar.network.allow import Allow, check_ceiling

    if policy.network_ceiling is not None:
        if network == "full":
            raise UsageError("network: the policy sets a ceiling for hosts, so none gets the whole network")
        if isinstance(network, Allow):
            check_ceiling(network.hosts, policy.network_ceiling)
            if network.ask_hosts:
                raise UsageError("ask_hosts: the policy sets a ceiling for hosts, so nobody is asked about more")
    allowed = policy.network_allow or ()
    if isinstance(network, Allow):
        return network.with_hosts(*allowed)
    return Allow(*allowed) if allowed and network == "none" else None


class NetworkVerbs(Verbs):
    allow: Allow | None = None
    _door: NetworkDoor | None = None

    @cached_property
    def init_tools(self) -> InitTools:
        from belljar.session.init_tools import InitTools

        return InitTools(lambda: self._box.sandbox)

    @cached_property
    def files(self) -> Files:
        """The sandbox's files: `await box.files.read("src/app.py")`."""
        from belljar.session.files import Files

        return Files(self.init_tools.run, lambda: self._box.workspace.descriptor)

    @cached_property
    def _forwarded(self) -> dict[int, Forwarded]:
        return {}

    async def forward(self, port: int, *, at: int = 0) -> str:
        """Make a server in the sandbox reachable on 127.0.0.1 of this machine; the sandbox still has no network.

        url = await box.forward(8000)
        """
        from belljar.session.network_door import Forwarded, check_port

        forwarded = self._forwarded.get(check_port(port))
        if forwarded is None:
            forwarded = Forwarded(await self._relay(), port)
            await forwarded.open(at)
            self._forwarded[port] = forwarded
        elif at not in (0, forwarded.port):
            raise UsageError(f"port {port} is already forwarded, at {forwarded.port}")
        return f"http://127.0.0.1:{forwarded.port}"

    async def allow_host(self, *hosts: str) -> None:
        """Allow more hosts from now on; opens a door if the session has none.

        await box.allow_host("api.example.com")
        """
        from belljar.network.allow import check_ceiling

        session = self._box
        if session.policy.network_ceiling is not None:
            check_ceiling(hosts, session.policy.network_ceiling)
        if self._door is not None and self._door.door is not None:
            self._open_further(self._door.door, hosts)
        else:
            await self._open_late(hosts)

    def _open_further(self, door: Door, hosts: tuple[str, ...]) -> None:
        """Let more hosts through, once everything that may fail is done."""
        wider = door.allow.with_hosts(*hosts)
        self._box._ledger.record("allow", hosts=list(hosts))
        self._remember(wider)
        door.allow = wider

    async def _open_late(self, hosts: tuple[str, ...]) -> None:
        """Open the door of a running session. Forwarded ports keep their own relay."""
        session = self._box
        if session.network != "none":
            raise UsageError("this session has the whole network; there is no door to open")
        from belljar.network.allow import Allow

        self.allow = under_policy(Allow(*hosts), session.policy)
        try:
            await self._open_door(hosts)
        except BaseException:
            self.allow = None
            raise
        if session._persistent is not None:
            session._persistent.export(environment())

    async def listening(self) -> tuple[int, ...]:
        """The ports that servers in the sandbox listen on now: `for port in await box.listening(): ...`."""
        return tuple(sorted(await to_thread.run_sync(self._box._aftermath.listening, self._our_ports)))

    def _new_listening(self) -> tuple[int, ...]:
        """Ports that are new since the last result and not forwarded. Only a shell that runs on can have left one."""
        session = self._box
        return session._aftermath.new_listening(self._our_ports | self._forwarded.keys()) if session._busy else ()

    @property
    def _our_ports(self) -> frozenset[int]:
        """The port of the door, whichever process serves it."""
        if not self._box.sandbox.door and "HTTP_PROXY" not in self._box.env:
            return frozenset()
        return frozenset({PORT})

    def _visits_since(self, when: float) -> tuple[dict[str, Any], ...]:
        """The connections through the door that began since then."""
        if self._door is None or self._door.door is None:
            return ()
        recent = takewhile(lambda visit: visit.started >= when, reversed(self._door.door.visits))
        return tuple(visit.as_dict() for visit in recent)[::-1]

    async def _relay(self) -> NetworkDoor:
        if self._door is None:
            from belljar.session.network_door import NetworkDoor

            door = NetworkDoor(self.init_tools, self._record_visit)
            await door.open(None)
            self._door = door
        return self._door

    def _record_visit(self, visit: dict[str, Any]) -> None:
        self._box._ledger.record("network", **visit)

    async def _open_door(self, asked: tuple[str, ...] = ()) -> None:
        """Called before any command runs, or later for hosts that were `asked` for. One that fails to open is closed:
        it becomes the session's own only when nothing can fail any more."""
        if self.allow is None:
            return
        from belljar.session.network_door import NetworkDoor

        session = self._box
        door = NetworkDoor(self.init_tools, self._record_visit)
        try:
            self._remember(await self._opened(door, self.allow, asked))
        except BaseException:
            await see_through(door.end())
            raise
        self._door = door
        door.admit_callers()
        self._set_proxy_variables()
        session._surroundings = replace(session._surroundings, network="allow")

    async def _opened(self, door: NetworkDoor, allow: Allow, asked: tuple[str, ...]) -> Allow:
        """Open the relay, then add the presets' hosts and the certificates. Returns all that is allowed then."""
        session = self._box
        await door.open(allow, session._judge.ask_host if allow.ask_hosts else None)
        if presets := await door.open_presets(session.policy.network_ceiling):
            session._ledger.record("allow", hosts=[preset["host"] for preset in presets], presets=presets)
        await door.install_certificates(self.files)
        if asked:
            session._ledger.record("allow", hosts=list(asked))
        assert door.door is not None
        return door.door.allow

    def _set_proxy_variables(self) -> None:
        """For each command, unless the sandbox was started with them."""
        session = self._box
        if not session.sandbox.door:
            session.env = {**environment(), **session.env}

    def _remember(self, allow: Allow) -> None:
        """For a process that attaches later: the door ends with the process that opened it."""
        self._box._remember_options(network=allow)

    async def _reopen_door(self) -> None:
        """After an attach: open the door again, if the process that opened it is gone."""
        if not self._box.sandbox.options.door:
            return
        try:
            await self._open_door()
        except BelljarError:  # the process that opened it still serves it
            self.allow = None
            self._set_proxy_variables()

    def _close_door(self) -> None:
        doors = {port.door for port in self._forwarded.values()} | ({self._door} if self._door is not None else set())
        for port in self._forwarded.values():
            port.close()
        self._forwarded.clear()
        self._door = None
        for door in doors:
            door.close()

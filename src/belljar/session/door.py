"""`SessionDoor`, the `box.door` of a session: the hosts that its commands may reach, and the ports that are forwarded.

await box.door.allow_host("api.example.com")
url = await box.door.forward(8000)
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread

from belljar.errors import BelljarError, UsageError
from belljar.network.client_settings import PORT, environment
from belljar.tasks import see_through

if TYPE_CHECKING:
    from belljar.engines.spec import Network
    from belljar.network.allow import Allow
    from belljar.network.door import Door
    from belljar.policy import Policy
    from belljar.session.inside import Inside
    from belljar.session.judging import Judge
    from belljar.session.ledger import Ledger
    from belljar.session.network_door import Forwarded, NetworkDoor


def under_policy(network: Network | Allow, policy: Policy) -> Allow | None:
    """The hosts to allow: those of the session, if the policy's ceiling permits them, and those of the policy."""
    if network == "none" and not policy.network_allow:
        return None
    from belljar.network.allow import Allow, check_ceiling

    if policy.network_ceiling is not None:
        if network == "full":
            raise UsageError(
                "network: the policy sets a ceiling for hosts, so none gets the whole network"
            )
        if isinstance(network, Allow):
            check_ceiling(network.hosts, policy.network_ceiling)
            if network.ask_hosts:
                raise UsageError(
                    "ask_hosts: the policy sets a ceiling for hosts, so nobody is asked about more"
                )
    allowed = policy.network_allow or ()
    if isinstance(network, Allow):
        return network.with_hosts(*allowed)
    return Allow(*allowed) if allowed and network == "none" else None


class SessionDoor:
    def __init__(
        self, inside: Inside, judge: Judge, ledger: Ledger, allow: Allow | None
    ) -> None:
        self._inside = inside
        self._judge = judge
        self._ledger = ledger
        self._allow = allow
        """What it is to let through when it is opened."""
        self._relay: NetworkDoor | None = None
        self._forwarded: dict[int, Forwarded] = {}
        self._opening = anyio.Lock()
        """So that two who open the door or a port at once get the same one."""

    @property
    def allow(self) -> Allow | None:
        """What the door lets through; None: it is not open."""
        return self.proxy.allow if self.proxy is not None else self._allow

    @property
    def proxy(self) -> Door | None:
        """Serves the connections out of the sandbox."""
        return self._relay.door if self._relay is not None else None

    async def open(self, asked: tuple[str, ...] = ()) -> None:
        """Called before any command runs, or later for hosts that were `asked` for. One that fails to open is closed:
        it becomes the session's own only when nothing can fail any more."""
        if self._allow is None:
            return
        from belljar.session.network_door import NetworkDoor

        relay = NetworkDoor(self._inside.tools, self._record_visit)
        try:
            self._remember(await self._opened(relay, self._allow, asked))
        except BaseException:
            await see_through(relay.end())
            raise
        self._relay = relay
        relay.admit_callers()
        self._inside.open_network(self._variables())

    async def _opened(
        self, relay: NetworkDoor, allow: Allow, asked: tuple[str, ...]
    ) -> Allow:
        """Open the relay, then add the presets' hosts and the certificates. Returns all that is allowed then."""
        await relay.open(allow, self._judge.ask_host if allow.ask_hosts else None)
        if presets := await relay.open_presets(self._judge.policy.network_ceiling):
            self._ledger.record(
                "allow", hosts=[preset["host"] for preset in presets], presets=presets
            )
        await relay.install_certificates(self._inside.files)
        if asked:
            self._ledger.record("allow", hosts=list(asked))
        assert relay.door is not None
        return relay.door.allow

    async def allow_host(self, *hosts: str) -> None:
        """Allow more hosts from now on; opens a door if the session has none.

        await box.allow_host("api.example.com")
        """
        from belljar.network.allow import check_ceiling

        ceiling = self._judge.policy.network_ceiling
        if ceiling is not None:
            check_ceiling(hosts, ceiling)
        async with self._opening:
            if self.proxy is not None:
                self._open_further(self.proxy, hosts)
            else:
                await self._open_late(hosts)

    def _open_further(self, proxy: Door, hosts: tuple[str, ...]) -> None:
        """Let more hosts through, once everything that may fail is done."""
        wider = proxy.allow.with_hosts(*hosts)
        self._ledger.record("allow", hosts=list(hosts))
        self._remember(wider)
        proxy.allow = wider

    async def _open_late(self, hosts: tuple[str, ...]) -> None:
        """Open the door of a running session. Forwarded ports keep their own relay."""
        if self._inside.options.network_mode != "none":
            raise UsageError(
                "this session has the whole network; there is no door to open"
            )
        from belljar.network.allow import Allow

        self._allow = under_policy(Allow(*hosts), self._judge.policy)
        try:
            await self.open(hosts)
        except BaseException:
            self._allow = None
            raise

    async def reopen(self) -> None:
        """After an attach: open the door again, if the process that opened it is gone."""
        if not self._inside.sandbox.options.door:
            return
        try:
            await self.open()
        except BelljarError:  # the process that opened it still serves it
            self._allow = None
            self._inside.env = {**self._variables(), **self._inside.env}

    def _remember(self, allow: Allow) -> None:
        """For a process that attaches later: the door ends with the process that opened it."""
        self._inside.remember(network=allow)

    def _variables(self) -> dict[str, str]:
        """What commands must be told, unless the sandbox was started with it."""
        return {} if self._inside.sandbox.door else environment()

    # Ports.

    async def forward(self, port: int, *, at: int = 0) -> str:
        """Make a server in the sandbox reachable on 127.0.0.1 of this machine; the sandbox still has no network.

        url = await box.forward(8000)
        """
        from belljar.session.network_door import Forwarded, check_port

        check_port(port)
        async with self._opening:
            forwarded = self._forwarded.get(port)
            if forwarded is None:
                forwarded = Forwarded(await self._opened_relay(), port)
                await forwarded.open(at)
                self._forwarded[port] = forwarded
            elif at not in (0, forwarded.port):
                raise UsageError(
                    f"port {port} is already forwarded, at {forwarded.port}"
                )
        return f"http://127.0.0.1:{forwarded.port}"

    async def _opened_relay(self) -> NetworkDoor:
        if self._relay is None:
            from belljar.session.network_door import NetworkDoor

            relay = NetworkDoor(self._inside.tools, self._record_visit)
            await relay.open(None)
            self._relay = relay
        return self._relay

    async def listening(self) -> tuple[int, ...]:
        """The ports that servers in the sandbox listen on now: `for port in await box.listening(): ...`."""
        return tuple(
            sorted(
                await to_thread.run_sync(
                    self._inside.aftermath.listening, self._our_ports
                )
            )
        )

    def new_listening(self) -> tuple[int, ...]:
        """Ports that are new since the last result and not forwarded. Only a shell that runs on can have left one."""
        if not self._inside.is_busy:
            return ()
        return self._inside.aftermath.new_listening(
            self._our_ports | self._forwarded.keys()
        )

    @property
    def _our_ports(self) -> frozenset[int]:
        """The port of the door, whichever process serves it."""
        is_known = self._inside.sandbox.door or "HTTP_PROXY" in self._inside.env
        return frozenset({PORT}) if is_known else frozenset()

    # What went through.

    def visits_since(self, when: float) -> tuple[dict[str, Any], ...]:
        """The connections through the door that began since then."""
        if self._relay is None or (proxy := self._relay.door) is None:
            return ()
        recent = takewhile(lambda visit: visit.started >= when, reversed(proxy.visits))
        return tuple(visit.as_dict() for visit in recent)[::-1]

    def _record_visit(self, visit: dict[str, Any]) -> None:
        self._ledger.record("network", **visit)

    def close(self) -> None:
        """Never fails: a session is closed also when its sandbox is gone."""
        relays = {port.door for port in self._forwarded.values()}
        if self._relay is not None:
            relays.add(self._relay)
        for port in self._forwarded.values():
            port.close()
        self._forwarded.clear()
        self._relay = None
        for relay in relays:
            relay.close()

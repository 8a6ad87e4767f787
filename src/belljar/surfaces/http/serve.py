"""The process: addresses, TLS, the first key, signals."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import ipaddress
import json
import os
import re
import signal
import socket
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from belljar import resources
from belljar.errors import UsageError
from belljar.limits import parse_size

BOOTSTRAP = "BELLJAR_BOOTSTRAP_KEY"
DATABASE = "BELLJAR_DATABASE"  # instead of --database: its password is not for `ps`
_KEY = re.compile(r"bj_[A-Za-z0-9_-]{32,}\Z")
STOP_SECONDS = 5
KEEP_ALIVE = 75  # seconds; load balancers keep connections for a minute
NOTICE_SECONDS = (
    1.0  # how long `/readyz` says that we stop before connections are refused
)
SMALLEST_KEPT = 64 << 10
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


def command(args: Namespace) -> int:
    """`belljar serve`."""
    bootstrap = _bootstrap_key()
    args.database = args.database or os.environ.pop(DATABASE, None)
    host, port = parse_address(args.listen)
    _check_exposure(args, host)
    if args.preview_url and not args.preview_listen:
        raise UsageError("--preview-url needs --preview-listen HOST:PORT")
    if args.preview_listen and args.behind_proxy and not args.preview_url:
        raise UsageError(
            "--preview-listen behind a proxy needs --preview-url https://*.…: the addresses that browsers use"
        )
    if args.check or args.print_unit:
        return _only_told(args, host, port)
    from belljar.surfaces import connections

    connections.raise_limit()
    state = resources.state_dir() / "serve"
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    with contextlib.ExitStack() as held:
        held.enter_context(_only_server(state, args.database))
        listener = held.enter_context(_listening(host, port))
        more = {
            name: held.enter_context(_also_at(args, name))
            for name in ("e2b", "preview_listen")
            if vars(args)[name]
        }
        return asyncio.run(_serve(args, state, listener, bootstrap, more))


def _only_told(args: Namespace, host: str, port: int) -> int:
    """`--check` and `--print-unit` start nothing."""
    from belljar.surfaces.http import operating

    if args.print_unit:
        sys.stdout.write(operating.unit(args))
        return 0
    checks = operating.check(args, lambda: _listening(host, port).close())
    sys.stdout.write("".join(f"{line}\n" for check in checks for line in check.lines()))
    return 0 if all(check.ok for check in checks) else 1


def _also_at(args: Namespace, name: str) -> socket.socket:
    host, port = parse_address(vars(args)[name], f"--{name.replace('_', '-')}")
    _check_exposure(args, host)
    return _listening(host, port)


def _bootstrap_key() -> str | None:
    """The first key, if the operator chose it. No program that we start is to see it."""
    key = os.environ.pop(BOOTSTRAP, None)
    if key is not None and not _KEY.match(key):
        raise UsageError(
            f"{BOOTSTRAP} must be bj_ and at least 32 letters, digits, _ or -"
        )
    return key


def parse_address(text: str, option: str = "--listen") -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
        if host is None or port is None:
            raise ValueError(text)
        return "127.0.0.1" if host == "localhost" else str(
            ipaddress.ip_address(host)
        ), port
    except ValueError:
        raise UsageError(
            f"{option}: {text!r} is not an address; write for example 127.0.0.1:8808"
        ) from None


def _check_exposure(args: Namespace, host: str) -> None:
    if bool(args.tls_cert) != bool(args.tls_key):
        raise UsageError("--tls-cert and --tls-key belong together")
    if args.tls_cert and args.behind_proxy:
        raise UsageError(
            "--behind-proxy: the proxy has the certificate, so leave --tls-cert out"
        )
    if args.behind_proxy and not (args.public_url or "").startswith("https://"):
        raise UsageError(
            "--behind-proxy needs --public-url https://…: the address that browsers use"
        )
    if args.public_url is not None:
        parts = urlsplit(args.public_url)
        if (
            parts.scheme not in ("http", "https")
            or not parts.netloc
            or parts.path not in ("", "/")
        ):
            raise UsageError(
                "--public-url: write for example https://belljar.example.com"
            )
    if not ipaddress.ip_address(host).is_loopback and not (
        args.tls_cert or args.behind_proxy
    ):
        raise UsageError(
            f"{host} is not loopback: give --tls-cert and --tls-key, or --behind-proxy"
        )


@contextlib.contextmanager
def _only_server(state: Path, database: str | None) -> Any:
    """SQLite belongs to one server. Several share PostgreSQL."""
    if database is not None and not database.startswith("sqlite"):
        yield
        return
    lock = os.open(
        state / "server.lock",
        os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC,
        0o600,
    )
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(
            "another belljar serve uses this state; several need --database postgresql://…"
        ) from None
    try:
        yield
    finally:
        os.close(lock)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        made = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host} port {port}: {error.strerror}"
        ) from None
    made.setsockopt(
        socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
    )  # else each small answer waits 40 ms for an ACK
    return made


def _names(args: Namespace, listener: socket.socket) -> tuple[str, set[str], set[str]]:
    """Our address, and the hosts and origins by which we may be called."""
    address, port = listener.getsockname()[:2]
    scheme = "https" if args.tls_cert else "http"
    own = f"[{address}]" if ":" in address else address
    hosts = {f"{name}:{port}" for name in (own, *LOOPBACK_NAMES)}
    if port == (443 if scheme == "https" else 80):
        hosts |= {own, *LOOPBACK_NAMES}
    origins = {f"{scheme}://{host}" for host in hosts}
    if args.public_url:
        parts = urlsplit(args.public_url)
        hosts.add(parts.netloc)
        origins.add(f"{parts.scheme}://{parts.netloc}")
    return f"{scheme}://{own}:{port}", hosts, origins


async def _serve(
    args: Namespace,
    state: Path,
    listener: socket.socket,
    bootstrap: str | None,
    more: dict[str, socket.socket],
) -> int:
    from belljar.surfaces.http import app as application
    from belljar.surfaces.http import preview
    from belljar.surfaces.http.service import Service

    kept = _size(args.output_kept)
    url, hosts, origins = _names(args, listener)
    service = Service(state, database=args.database, output_kept=kept, warm=args.warm)
    first = await service.open(bootstrap, url)
    app = application.make(
        service,
        hosts=hosts,
        origins=origins,
        secure=bool(args.tls_cert or args.behind_proxy),
    )
    app.state.previews = preview.Previews.at(None, (args.public_url or url).rstrip("/"))
    servers = [(_server(args, app), listener)]
    told: dict[str, Any] = {
        "url": url,
        "pid": os.getpid(),
        **({"key": first} if first else {}),
    }
    sandboxes = None
    if (e2b := more.get("e2b")) is not None:
        sandboxes, wire = await _e2b(service)
        servers.append((_server(args, wire), e2b))
        told["e2b"] = _names(args, e2b)[0]
    if (second := more.get("preview_listen")) is not None:
        told["previews"], names, _ = _names(args, second)
        app.state.previews = preview.Previews.at(args.preview_url, told["previews"])
        app.state.shows_links = False
        servers.append(
            (_server(args, preview.make(service, app.state.previews, names)), second)
        )
    serving = [
        asyncio.create_task(server._serve([socket])) for server, socket in servers
    ]
    _stop_on_signals(service, [server for server, _ in servers])
    await _connected(url)
    gc.collect()
    gc.freeze()  # what lives as long as the server is not looked at again
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    _notify("READY=1")
    await asyncio.gather(*serving)
    if sandboxes is not None:
        sandboxes.close()
    await service.close()
    return 0


def _server(args: Namespace, app: Any) -> Any:
    import uvicorn

    from belljar.surfaces.connections import Guarded

    class Connections(Guarded):
        """Of a service behind other servers, which keep connections, and with a database, which may take a while."""

        patience, idle = 30.0, KEEP_ALIVE

    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            log_level="error",
            server_header=False,
            date_header=True,
            ws="websockets-sansio",
            lifespan="off",
            timeout_graceful_shutdown=STOP_SECONDS,
            backlog=2048,
            ssl_certfile=args.tls_cert,
            ssl_keyfile=args.tls_key,
            proxy_headers=args.behind_proxy,
            forwarded_allow_ips="*" if args.behind_proxy else "",
            timeout_keep_alive=KEEP_ALIVE,
            http=Connections,
        )
    )
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    return server


async def _e2b(service: Any) -> tuple[Any, Any]:
    from belljar.surfaces.http.e2b import app
    from belljar.surfaces.http.e2b.sandboxes import Sandboxes

    sandboxes = Sandboxes(service)
    await sandboxes.open()
    return sandboxes, app.make(sandboxes)


async def _connected(url: str) -> None:
    """Returns once the server answers a connection; the kernel holds it until then."""
    parts = urlsplit(url)
    _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.close()


def _notify(said: str) -> None:
    """Tell systemd (sd_notify), if it started us."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address.startswith(("/", "@")):
        with (
            socket.socket(
                socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
            ) as told,
            contextlib.suppress(OSError),
        ):
            told.sendto(said.encode(), address.replace("@", "\0", 1))


def _stop_on_signals(service: Any, servers: list[Any]) -> None:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        _notify("STOPPING=1")
        service.stop()
        loop.call_later(NOTICE_SECONDS, leave)

    def leave() -> None:
        for server in servers:
            server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)


def _size(text: str) -> int:
    try:
        return max(parse_size(text), SMALLEST_KEPT)
    except ValueError as error:
        raise UsageError(f"--output-kept: {error}") from None

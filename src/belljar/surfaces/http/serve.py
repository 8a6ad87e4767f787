"""The process: addresses, TLS, the first key, signals."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
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
_KEY = re.compile(r"bj_[A-Za-z0-9_-]{32,}\Z")
STOP_SECONDS = 5
NOTICE_SECONDS = 1.0  # how long `/readyz` says that we stop before connections are refused
SMALLEST_KEPT = 64 << 10
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


def command(args: Namespace) -> int:
    """`belljar serve`."""
    bootstrap = _bootstrap_key()
    host, port = parse_address(args.listen)
    _check_exposure(args, host)
    state = resources.state_dir() / "serve"
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    with contextlib.ExitStack() as held:
        held.enter_context(_only_server(state, args.database))
        listener = held.enter_context(_listening(host, port))
        e2b = held.enter_context(_e2b_listener(args)) if args.e2b else None
        return asyncio.run(_serve(args, state, listener, bootstrap, e2b))


def _e2b_listener(args: Namespace) -> socket.socket:
    host, port = parse_address(args.e2b, "--e2b")
    _check_exposure(args, host)
    return _listening(host, port)


def _bootstrap_key() -> str | None:
    """The first key, if the operator chose it. No program that we start is to see it."""
    key = os.environ.pop(BOOTSTRAP, None)
    if key is not None and not _KEY.match(key):
        raise UsageError(f"{BOOTSTRAP} must be bj_ and at least 32 letters, digits, _ or -")
    return key


def parse_address(text: str, option: str = "--listen") -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
        if host is None or port is None:
            raise ValueError(text)
        return "127.0.0.1" if host == "localhost" else str(ipaddress.ip_address(host)), port
    except ValueError:
        raise UsageError(f"{option}: {text!r} is not an address; write for example 127.0.0.1:8808") from None


def _check_exposure(args: Namespace, host: str) -> None:
    if bool(args.tls_cert) != bool(args.tls_key):
        raise UsageError("--tls-cert and --tls-key belong together")
    if args.tls_cert and args.behind_proxy:
        raise UsageError("--behind-proxy: the proxy has the certificate, so leave --tls-cert out")
    if args.behind_proxy and not (args.public_url or "").startswith("https://"):
        raise UsageError("--behind-proxy needs --public-url https://…: the address that browsers use")
    if args.public_url is not None:
        parts = urlsplit(args.public_url)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.path not in ("", "/"):
            raise UsageError("--public-url: write for example https://belljar.example.com")
    if not ipaddress.ip_address(host).is_loopback and not (args.tls_cert or args.behind_proxy):
        raise UsageError(f"{host} is not loopback: give --tls-cert and --tls-key, or --behind-proxy")


@contextlib.contextmanager
def _only_server(state: Path, database: str | None) -> Any:
    """SQLite belongs to one server. Several share PostgreSQL."""
    if database is not None and not database.startswith("sqlite"):
        yield
        return
    lock = os.open(state / "server.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError("another belljar serve uses this state; several need --database postgresql://…") from None
    try:
        yield
    finally:
        os.close(lock)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise UsageError(f"cannot listen on {host} port {port}: {error.strerror}") from None


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
    args: Namespace, state: Path, listener: socket.socket, bootstrap: str | None, e2b: socket.socket | None
) -> int:
    from belljar.surfaces.http import app as application
    from belljar.surfaces.http.service import Service

    kept = _size(args.output_kept)
    url, hosts, origins = _names(args, listener)
    service = Service(state, database=args.database, output_kept=kept)
    first = await service.open(bootstrap, url)
    app = application.make(service, hosts=hosts, origins=origins, secure=bool(args.tls_cert or args.behind_proxy))
    app.state.url = args.public_url or url
    servers = [(_server(args, app), listener)]
    told = {"url": url, "pid": os.getpid(), **({"key": first} if first else {})}
    sandboxes = None
    if e2b is not None:
        sandboxes, wire = await _e2b(service)
        servers.append((_server(args, wire), e2b))
        told["e2b"] = _names(args, e2b)[0]
    serving = [asyncio.create_task(server._serve([socket])) for server, socket in servers]
    _stop_on_signals(service, [server for server, _ in servers])
    await _connected(url)
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    await asyncio.gather(*serving)
    if sandboxes is not None:
        sandboxes.close()
    await service.close()
    return 0


def _server(args: Namespace, app: Any) -> Any:
    import uvicorn

    server = uvicorn.Server(
        uvicorn.Config(
            app, log_config=None, access_log=False, log_level="error", server_header=False, date_header=True,
            ws="websockets-sansio", lifespan="off", timeout_graceful_shutdown=STOP_SECONDS, backlog=2048,
            ssl_certfile=args.tls_cert, ssl_keyfile=args.tls_key, proxy_headers=args.behind_proxy,
            forwarded_allow_ips="*" if args.behind_proxy else "", timeout_keep_alive=75,
        )
    )  # fmt: skip
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


def _stop_on_signals(service: Any, servers: list[Any]) -> None:
    loop = asyncio.get_running_loop()

    def stop() -> None:
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

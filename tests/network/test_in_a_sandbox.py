"""The network door of a real sandbox: what usual clients can do without configuration, and what nothing gets past."""

from __future__ import annotations

import functools
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.network.conftest import Names

import belljar
from belljar import Allow, Session


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Files, a git repository and a package index, on the host's loopback."""
    root = tmp_path_factory.mktemp("site")
    (root / "hello.txt").write_text("hello from outside\n")
    work = root / "work"
    author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    commit = ["commit", "-q", "--allow-empty", "-m", "first"]
    for command in (["init", "-q", str(work)], ["-C", str(work), *author, *commit],
                    ["clone", "-q", "--bare", str(work), str(root / "repo.git")],
                    ["-C", str(root / "repo.git"), "update-server-info"]):  # fmt: skip
        subprocess.run(["git", *command], check=True)
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(root))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture(scope="module")
async def box(
    site: int, base_image: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Session]:
    async with Session(
        tmp_path_factory.mktemp("workspace"),
        network=Allow(f"site.test:{site}=127.0.0.1"),
        policy="permissive",
    ) as session:
        assert session.door.proxy
        session.door.proxy._resolve = Names({"site.test": ["127.0.0.1"]})
        yield session


@pytest.mark.parametrize(
    "command",
    [
        "curl -sSf http://site.test:{port}/hello.txt",
        "curl -sSf --proxy socks5h://127.0.0.1:3128 http://site.test:{port}/hello.txt",
        "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://site.test:{port}/hello.txt\").read().decode())'",
        "git clone -q http://site.test:{port}/repo.git /tmp/clone && echo hello from outside",
    ],
)
async def test_curl_python_and_git_use_the_proxy_without_configuration(
    box: Session, site: int, command: str
) -> None:
    tool = command.split()[0]
    if not (await box.run(f"command -v {tool}")).ok:
        pytest.skip(f"the base image has no {tool}")
    result = await box.run(command.format(port=site))
    assert "hello from outside" in result.stdout, result.stderr
    assert any(
        visit["host"] == "site.test" and visit["verdict"] == "allowed"
        for visit in result.network
    )


async def test_a_refused_host_is_named_in_the_result(box: Session) -> None:
    result = await box.run(
        "python3 -c 'import urllib.request as u; u.urlopen(\"http://evil.test/\")'"
    )
    assert not result.ok
    assert [(visit["host"], visit["verdict"]) for visit in result.network] == [
        ("evil.test", "refused")
    ]
    assert any("evil.test:80" in hint for hint in result.hints)


@pytest.mark.parametrize(
    "program",
    [
        "import socket; socket.create_connection(('192.0.2.1', 80), 2)",
        "import socket; socket.getaddrinfo('site.test', 80)",
        "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))",
        "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
        "import socket; socket.socket(2, socket.SOCK_DGRAM, 1).sendto(bytes([8] + [0] * 7), ('192.0.2.1', 0))",
        "import socket; socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b'x', ('2001:db8::1', 53))",
        "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        "import socket; socket.create_connection(('172.17.0.1', 80), 2)",
    ],
)
async def test_no_connection_gets_past_the_proxy(box: Session, program: str) -> None:
    result = await box.run(["python3", "-c", program])
    assert result.exit_code == 1
    assert "rror" in result.stderr


async def test_a_command_can_neither_take_the_proxy_port_nor_kill_the_relay(
    box: Session, site: int
) -> None:
    taken = await box.run(
        ["python3", "-c", "import socket; socket.socket().bind(('127.0.0.1', 3128))"]
    )
    assert "in use" in taken.stderr
    killing = """
import os, signal
for name in os.listdir("/proc"):
    try:
        if name.isdigit() and int(name) not in (1, os.getpid(), os.getppid()):
            os.kill(int(name), signal.SIGKILL)
    except OSError:
        pass
"""
    await box.files.write("attack.py", killing)
    await box.run("python3 attack.py")
    again = await box.run(f"curl -sS http://site.test:{site}/hello.txt || true")
    assert "hello from outside" in again.stdout or "refused" in again.stderr.lower(), (
        "through the door or not at all"
    )


async def test_a_secret_header_never_enters_the_sandbox(
    base_image: str, workspace: Path
) -> None:
    seen: list[str | None] = []

    class Api(Quiet):
        def do_GET(self) -> None:
            seen.append(self.headers["Authorization"])
            self.send_response(204)
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_port
        allow = Allow(
            f"api.test:{port}=127.0.0.1",
            "api.test",
            headers={"api.test": {"Authorization": "Bearer s3cret"}},
        )
        async with Session(workspace, network=allow, policy="permissive") as box:
            assert box.door.proxy
            box.door.proxy._resolve = Names({"api.test": ["127.0.0.1"]})
            fetch = f"import urllib.request as u; print(u.urlopen('http://api.test:{port}/').status)"
            assert (await box.run(["python3", "-c", fetch])).stdout == "204\n"
            hunt = "import glob, os; print(os.environ, [open(f, 'rb').read() for f in glob.glob('/home/*/.*')])"
            await box.files.write("hunt.py", hunt)
            hunted = await box.run(["python3", "hunt.py"])
            assert "HTTPS_PROXY" in hunted.stdout, hunted.stderr
            assert "s3cret" not in hunted.stdout
        server.shutdown()
    assert seen == ["Bearer s3cret"]


def test_a_policys_ceiling_holds(tmp_path: Path, workspace: Path) -> None:
    policy = tmp_path / "ops.toml"
    policy.write_text(
        '[policy]\nname = "ops"\nextends = "default"\n[network]\nceiling = ["*.example.net"]\n'
    )
    for beyond in (Allow("api.example.com"), Allow(ask_hosts=True), "full"):
        with pytest.raises(belljar.BelljarError, match="ceiling"):
            Session(workspace, policy=str(policy), network=beyond)
    Session(workspace, policy=str(policy), network=Allow("api.example.net"))


async def test_without_allow_there_is_no_door(base_image: str, workspace: Path) -> None:
    async with Session(workspace) as box:
        assert box.door.proxy is None
        assert "HTTP_PROXY" not in (await box.run("env")).stdout


@pytest.mark.docker
async def test_the_proxy_works_over_a_bridged_link(
    base_image: str, site: int, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine shares no files, so everything goes over one exec stream."""
    monkeypatch.setenv("BELLJAR_LINK", "bridge")
    host = belljar.Host(engine="docker")
    allow = Allow(f"site.test:{site}=127.0.0.1")
    async with Session(workspace, network=allow, host=host, policy="permissive") as box:
        assert box.door.proxy
        box.door.proxy._resolve = Names({"site.test": ["127.0.0.1"]})
        result = await box.run(
            f"curl -sSf http://site.test:{site}/hello.txt; curl -sS http://evil.test/"
        )
        assert "hello from outside" in result.stdout
        assert {visit["verdict"] for visit in result.network} == {"allowed", "refused"}
        await box.files.write("a/../note", "over the bridge")
        assert await box.files.read("note") == b"over the bridge"
    host.close()


async def test_proxy_variables_are_set_for_every_command(
    base_image: str, workspace: Path
) -> None:
    """They are part of the sandbox: sent with each command they would make preforked shells useless."""
    async with Session(workspace, network=Allow("a.example")) as box:
        assert box.env == {}
        assert "HTTPS_PROXY=http://127.0.0.1:3128" in (await box.run("env")).stdout
        assert await box.listening() == ()


async def test_a_session_with_a_proxy_can_use_an_ordinary_pool_s_sandbox(
    base_image: str, workspace: Path
) -> None:
    async with belljar.Pool(workspace, size=1) as pool:
        await pool.ready()
        async with Session(workspace, network=Allow("a.example")) as box:
            assert not box.sandbox.door
            assert "HTTPS_PROXY=http://127.0.0.1:3128" in (await box.run("env")).stdout

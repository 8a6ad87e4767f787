"""The usual clients over https, unconfigured: through a tunnel, and where the proxy ends TLS to add a header.

The server's certificate is signed by an authority of the test's own that the *host* trusts: so must the sandbox.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests
from tests.network.conftest import Names

from belljar import Allow, Host, Session
from belljar.images import catalog
from belljar.network.authority import Authority, trust_bundle

KEY = "Bearer s3cret"


@dataclass
class Site:
    port: int
    trusted: str
    keys: list[str | None] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"https://site.test:{self.port}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root, world = tmp_path_factory.mktemp("site"), Authority()
    trusted = tmp_path_factory.mktemp("trust") / "bundle.pem"
    trusted.write_bytes(trust_bundle() + world.pem)
    (root / "hello.txt").write_text("hello from outside\n")
    (root / "deb").mkdir()
    (root / "deb" / "Packages").write_text("")
    author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    for command in (["init", "-q", "--bare", "repo.git"], ["-C", "repo.git", "config", "core.bare", "false"],
                    ["-C", "repo.git", *author, "--work-tree=.", "commit", "-q", "--allow-empty", "-m", "first"],
                    ["-C", "repo.git", "update-server-info"]):  # fmt: skip
        subprocess.run(["git", *command], check=True, cwd=root)
    found = Site(0, str(trusted))

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            found.keys.append(self.headers["Authorization"])
            super().do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(root))) as server:
        context = world.server_context("site.test")
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found.port = server.server_port
        yield found
        server.shutdown()


def opened(site: Site, workspace: Path, headers: bool, **options: object) -> Session:
    """With whatever this machine trusts at that moment."""
    allow = Allow(
        f"site.test:{site.port}=127.0.0.1", headers={"site.test": {"Authorization": KEY}} if headers else None
    )
    return Session(workspace, network=allow, policy="permissive", **options)  # type: ignore[arg-type]


def led_home(box: Session) -> None:
    assert box.door
    assert box.door.door
    box.door.door._resolve = Names({"site.test": ["127.0.0.1"]})


@pytest.fixture(scope="module", params=[False, True], ids=["tunnel", "header"])
async def box(
    request: pytest.FixtureRequest, site: Site, base_image: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Session]:
    libraries = Path(requests.__file__).parents[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", site.trusted)
        workspace = tmp_path_factory.mktemp("workspace")
        async with opened(site, workspace, request.param, mounts={"/opt/libraries": str(libraries)}) as session:
            led_home(session)
            session.__dict__["key"] = KEY if request.param else None
            yield session


@pytest.mark.parametrize(
    "command",
    [
        "curl -sSf {url}/hello.txt",
        "curl -sSf --proxy socks5h://127.0.0.1:3128 {url}/hello.txt",
        "python3 -c 'import urllib.request as u; print(u.urlopen(\"{url}/hello.txt\").read().decode())'",
        "PYTHONPATH=/opt/libraries python3 -c 'import requests; print(requests.get(\"{url}/hello.txt\").text)'",
        "git clone -q {url}/repo.git /tmp/clone && echo hello from outside",
    ],
    ids=["curl", "curl-socks", "urllib", "requests", "git"],
)
async def test_a_client_goes_through_unconfigured(box: Session, site: Site, command: str) -> None:
    site.keys.clear()
    result = await box.run(command.format(url=site.url))
    assert "hello from outside" in result.stdout, result.stderr
    assert set(site.keys) == {box.__dict__["key"]}
    assert "s3cret" not in str(result.network)


@pytest.mark.parametrize("box", [True], ids=["header"], indirect=True)
async def test_a_key_that_is_kept_outside_is_nowhere_inside(box: Session, site: Site) -> None:
    assert (await box.run(f"curl -sSf -H 'Authorization: mine' {site.url}/hello.txt")).ok
    assert site.keys[-1] == KEY
    looked = await box.run("env; grep -rs s3cret /home /tmp /workspace")
    assert "s3cret" not in looked.stdout
    assert "HTTPS_PROXY" in looked.stdout


@pytest.mark.parametrize("headers", [False, True], ids=["tunnel", "header"])
async def test_https_goes_over_a_bridge_too(
    site: Site, base_image: str, workspace: Path, monkeypatch: pytest.MonkeyPatch, headers: bool
) -> None:
    """Where no files are shared: tunnels, our own certificate authority and the secret's header all the same."""
    monkeypatch.setenv("SSL_CERT_FILE", site.trusted)
    monkeypatch.setenv("BELLJAR_LINK", "bridge")
    host = Host(engine="docker")
    site.keys.clear()
    async with opened(site, workspace, headers, host=host) as box:
        led_home(box)
        result = await box.run(f"curl -sSf {site.url}/hello.txt; env")
        assert "hello from outside" in result.stdout, result.stderr
        assert "s3cret" not in result.stdout
    host.close()
    assert site.keys == [KEY if headers else None]


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("runc") is None, reason="the engine oci needs root and runc")
async def test_apt_goes_through_with_root_inside(
    site: Site, root_workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", site.trusted)
    host = Host(engine="oci")
    catalog.ensure(host.connect(), "base")
    async with opened(site, root_workspace, False, host=host, root=True) as box:
        led_home(box)
        await box.files.write("/tmp/sources.list", f"deb [trusted=yes] {site.url}/deb ./\n")
        result = await box.run(
            "apt-get update -o Dir::Etc::sourcelist=/tmp/sources.list -o Dir::Etc::sourceparts=-", timeout=60
        )
        assert result.ok, result.stderr
        assert "Packages" in result.stdout
    host.close()

"""The usual clients over https without configuration: through a tunnel, and where the proxy ends TLS to add a header.

The test's own authority signs the server's certificate. Only the *host* is set up to trust it; the sandbox must follow.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests
from anyio import to_thread
from tests.network.conftest import Names
from tests.network.package_mirrors import lay_out, unpack_pip

from belljar import Allow, Host, Limits, Session
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

    with ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(root))
    ) as server:
        context = world.server_context("site.test")
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found.port = server.server_port
        lay_out(root, found.url)
        yield found
        server.shutdown()


def opened(site: Site, workspace: Path, headers: bool, **options: object) -> Session:
    """A session that trusts what this machine trusts now."""
    allow = Allow(
        f"site.test:{site.port}=127.0.0.1",
        headers={"site.test": {"Authorization": KEY}} if headers else None,
    )
    return Session(workspace, network=allow, policy="permissive", **options)  # type: ignore[arg-type]


def led_home(box: Session) -> None:
    assert box.door.proxy
    box.door.proxy._resolve = Names({"site.test": ["127.0.0.1"]})


@pytest.fixture(scope="module", params=[False, True], ids=["tunnel", "header"])
async def box(
    request: pytest.FixtureRequest,
    site: Site,
    base_image: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Session]:
    libraries = Path(requests.__file__).parents[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", site.trusted)
        workspace = tmp_path_factory.mktemp("workspace")
        async with opened(
            site, workspace, request.param, mounts={"/opt/libraries": str(libraries)}
        ) as session:
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
        "PYTHONPATH=/opt/libraries python3 -c 'import httpx2; print(httpx2.get(\"{url}/hello.txt\").text)'",
        "git clone -q {url}/repo.git /tmp/clone && echo hello from outside",
    ],
    ids=["curl", "curl-socks", "urllib", "requests", "httpx2", "git"],
)
async def test_a_client_goes_through_unconfigured(
    box: Session, site: Site, command: str
) -> None:
    site.keys.clear()
    result = await box.run(command.format(url=site.url))
    assert "hello from outside" in result.stdout, result.stderr
    assert set(site.keys) == {box.__dict__["key"]}
    assert "s3cret" not in str(result.network)


@pytest.mark.parametrize("box", [True], ids=["header"], indirect=True)
async def test_a_key_that_is_kept_outside_is_nowhere_inside(
    box: Session, site: Site
) -> None:
    assert (
        await box.run(f"curl -sSf -H 'Authorization: mine' {site.url}/hello.txt")
    ).ok
    assert site.keys[-1] == KEY
    looked = await box.run("env; grep -rs s3cret /home /tmp /workspace")
    assert "s3cret" not in looked.stdout
    assert "HTTPS_PROXY" in looked.stdout


@pytest.mark.docker
@pytest.mark.parametrize("headers", [False, True], ids=["tunnel", "header"])
async def test_https_goes_over_a_bridge_too(
    site: Site,
    base_image: str,
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
    headers: bool,
) -> None:
    """No files are shared here. Tunnels, our certificate authority and the secret header work all the same."""
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


APT = "-o Dir::Etc::sourcelist=/tmp/sources.list -o Dir::Etc::sourceparts=-"
SYSTEM = ("/usr/bin/", "/usr/local/")


@pytest.mark.oci
@pytest.mark.root
@pytest.mark.parametrize(
    ("image", "command"),
    [
        ("base", f"apt-get update {APT} && apt-get install -y {APT} hellodoor && command -v hellodoor && hellodoor"),
        ("base", "PYTHONPATH=/workspace/pip python3 -m pip install --break-system-packages --index-url {url}/simple "
                 "hellodoor && python3 -c 'import hellodoor; print(hellodoor.__file__)'"),
        ("node", "npm install -g --registry {url}/npm hellodoor && hellodoor && "
                 "npm install -g --prefix /usr/local --registry {url}/npm hellodoor && "
                 "readlink -f /usr/local/bin/hellodoor"),
    ],
    ids=["apt", "pip", "npm"],
)  # fmt: skip
async def test_packages_go_into_the_system_with_root_inside(
    site: Site,
    root_workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
    image: str,
    command: str,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", site.trusted)
    host = Host(engine="oci")
    store = await to_thread.run_sync(host.connect)
    if (
        image != "base"
        and await to_thread.run_sync(store.image, catalog.reference(image)) is None
    ):
        pytest.skip(
            f"the image {image} is not built here for oci: BELLJAR_ENGINE=oci belljar images build {image}"
        )
    await to_thread.run_sync(catalog.ensure, store, image)
    await to_thread.run_sync(unpack_pip, root_workspace / "pip")
    async with opened(
        site, root_workspace, False, host=host, root=True, image=image
    ) as box:
        led_home(box)
        await box.files.write(
            "/tmp/sources.list", f"deb [trusted=yes] {site.url}/deb ./\n"
        )
        result = await box.run(command.format(url=site.url), timeout=120)
    assert result.ok, result.output
    assert "hello from outside" in result.stdout, result.output
    assert any(line.startswith(SYSTEM) for line in result.stdout.splitlines()), (
        result.output
    )
    assert {(visit["host"], visit["verdict"]) for visit in result.network} == {
        ("site.test", "allowed")
    }
    host.close()


JAVA = """
import java.net.*;
public class Get {
    public static void main(String[] words) throws Exception {
        new URL(words[0]).openStream().transferTo(System.out);
    }
}
"""


def toolchains(place: Path) -> dict[str, str]:
    """Clients of this machine that none of our images has, and where each is mounted in the sandbox."""
    found = {
        name: Path(path).resolve()
        for name in ("wget", "java", "yarn", "go")
        if (path := shutil.which(name))
    }
    if (
        "java" in found
        and (found["java"].parents[1] / "conf" / "net.properties").is_symlink()
    ):
        del found["java"]  # Debian's java keeps its settings in /etc
    mounts = {
        f"/opt/{name}": str(path.parents[1])
        for name, path in found.items()
        if path.parents[1] != Path("/usr")
    }
    if "wget" in found:
        (place / "bin").mkdir()
        shutil.copy(found["wget"], place / "bin")
        mounts["/opt/wget"] = str(place)
    if shutil.which("rustc"):
        # rustup's rustc looks for its toolchain in the home directory, and fails with another home
        asked = subprocess.run(
            ["rustc", "--print", "sysroot"], check=False, capture_output=True, text=True
        )
        rust = asked.stdout.strip()
        mounts |= (
            {"/opt/cargo": rust} if asked.returncode == 0 and rust != "/usr" else {}
        )
    return mounts


@pytest.fixture(scope="module")
async def workshop(
    site: Site, base_image: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Session]:
    """A sandbox with every available client. The image `dev` takes minutes to build and is used only if it is there."""
    mounts = toolchains(tmp_path_factory.mktemp("tools"))
    store, wanted = Host().connect(), catalog.reference("dev")
    image = "dev" if await to_thread.run_sync(store.image, wanted) else "base"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", site.trusted)
        workspace = tmp_path_factory.mktemp("workspace")
        limits = Limits(memory="1g")
        async with opened(
            site, workspace, False, mounts=mounts, image=image, limits=limits
        ) as session:
            led_home(session)
            await session.files.write("/tmp/Get.java", JAVA)
            yield session


@pytest.mark.parametrize(
    ("client", "command"),
    [
        ("pip", "pip install -q --target . --index-url {url}/simple hellodoor && python3 -m hellodoor"),
        ("uv", "uv pip install -q --target . --index-url {url}/simple hellodoor && python3 -m hellodoor"),
        ("npm", "npm install --silent --registry {url}/npm hellodoor && node node_modules/hellodoor"),
        ("node", "node -e 'fetch(\"{url}/hello.txt\").then(r => r.text()).then(console.log)'"),
        ("yarn", "yarn add --silent --registry {url}/npm hellodoor && node node_modules/hellodoor"),
        ("cargo", "cargo init -q --name x && cargo add -q hellodoor --registry own && cargo fetch -q && "
                  "cat ~/.cargo/registry/src/*/hellodoor-1.0.0/src/lib.rs"),
        ("go", "go mod init x && go mod download example.com/hellodoor@v1.0.0 && "
               "cat ~/go/pkg/mod/example.com/hellodoor*/a.go"),
        ("java", "java /tmp/Get.java {url}/hello.txt"),
        ("wget", "wget -qO- {url}/hello.txt"),
    ],
    ids=lambda text: text if " " not in text else "",
)  # fmt: skip
async def test_a_package_client_gets_its_package(
    workshop: Session, site: Site, client: str, command: str
) -> None:
    """The client is given its registry, as in a project, but no setting for the proxy or its certificates."""
    env = {
        "PATH": "/opt/go/bin:/opt/cargo/bin:/opt/java/bin:/opt/yarn/bin:/opt/wget/bin:/usr/local/bin:/usr/bin:/bin",
        "GOPROXY": f"{site.url}/go", "GOSUMDB": "off", "GOROOT": "/opt/go",
        "CARGO_REGISTRIES_OWN_INDEX": f"sparse+{site.url}/crates/",
    }  # fmt: skip
    if not (await workshop.run(f"command -v {client}", env=env)).ok:
        pytest.skip(
            f"{client} is neither in an image that is built here nor on this machine"
        )
    result = await workshop.run(
        f"mkdir -p /tmp/{client} && cd /tmp/{client} && {command.format(url=site.url)}",
        env=env,
        timeout=120,
    )
    assert "hello from outside" in result.stdout, result.stderr
    assert {(visit["host"], visit["verdict"]) for visit in result.network} == {
        ("site.test", "allowed")
    }

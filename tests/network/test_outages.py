"""The proxy dies, runs out of descriptors, or its resolver hangs: nothing gets out, and the session stays usable."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from belljar import Session

KEPT = """
import asyncio, sys
from belljar import Allow, Session
async def main(workspace, port):
    box = await Session(workspace, network=Allow(f"127.0.0.1:{port}"), keep=True, lease=60).open()
    await box.start("python3 /workspace/visitor.py " + port)
    print(box.id, flush=True)
    await asyncio.sleep(600)
asyncio.run(main(*sys.argv[1:]))
"""
VISITOR = """
import os, socket, sys
def dial():
    line = socket.create_connection(("127.0.0.1", 3128))
    line.sendall(b"CONNECT 127.0.0.1:%s HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n" % sys.argv[1].encode())
    return line
def report(status):
    with open("/workspace/status.new", "wb") as file:
        file.write(status)
    os.rename("/workspace/status.new", "/workspace/status")
line = dial()
report(line.recv(100).split(b"\\r\\n")[0])
while True:
    try:
        line.recv(1)  # until the proxy is gone
        line = dial()
    except ConnectionRefusedError:
        break
    except OSError:  # cut off in the middle
        pass
report(b"nobody listens")
"""


@pytest.fixture(scope="module")
def port(greeting_port: int) -> int:
    return greeting_port


@contextlib.contextmanager
def process_with_a_door(
    script: str, *words: object, **env: str
) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", script, *map(str, words)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **env}
    ) as process:
        try:
            yield process
        finally:
            process.kill()


async def wait_for_report(status: Path, expected: bytes) -> None:
    with anyio.fail_after(120):
        while not status.exists() or expected not in status.read_bytes():  # noqa: ASYNC110
            await anyio.sleep(0.05)


async def test_a_proxy_that_is_killed_takes_the_network_with_it(
    base_image: str, workspace: Path, port: int
) -> None:
    """After `kill -9` its connections end and its port inside is closed. The next attach opens the door again."""
    (workspace / "visitor.py").write_text(VISITOR)
    with process_with_a_door(KEPT, workspace, port) as process:
        assert process.stdout
        id = process.stdout.readline().strip()
        await wait_for_report(workspace / "status", b" 200 ")
        process.send_signal(signal.SIGKILL)
        await wait_for_report(workspace / "status", b"nobody listens")
    box = await Session.attach(id)
    try:
        assert (
            await box.run(f"curl -s --noproxy '' http://127.0.0.1:{port}/")
        ).stdout == "hello\n"
    finally:
        await box.sandbox.destroy()
        await box.close()


USED_UP = """
import asyncio, os, resource, sys
from belljar import Allow, Session
async def main(workspace, port):
    fetching = f"while read host; do curl -s --noproxy '' http://$host:{port}/; done"
    async with Session(workspace, network=Allow(f"127.0.0.1:{port}", f"localhost:{port}=127.0.0.1")) as box:
        shell = await box.start(fetching)
        async def fetch(host):
            await shell.write(host + b"\\n")
            print((await shell.read(wait=30)).stdout.strip(), flush=True)
        await fetch(b"127.0.0.1")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        await fetch(b"127.0.0.1")
        await fetch(b"localhost")
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        await fetch(b"localhost")
        print((await box.run("echo usable")).stdout.strip())
asyncio.run(main(*sys.argv[1:]))
"""


def test_a_proxy_without_descriptors_says_so_and_goes_on(
    base_image: str, workspace: Path, port: int
) -> None:
    with process_with_a_door(USED_UP, workspace, port) as process:
        before, by_number, by_name, later, usable = process.communicate(timeout=180)[
            0
        ].splitlines()
    assert by_number.startswith("belljar: 127.0.0.1")
    assert "Too many open files" in by_number
    assert by_name.startswith("belljar: localhost")
    assert (before, later, usable) == ("hello", "hello", "usable")


HUNG = """
import asyncio, ctypes, sys
from anyio._backends import _asyncio
from belljar import Allow, Session
from belljar.network.addresses import AT_ONCE, Resolver
def in_force(settings):
    libc = ctypes.CDLL(None, use_errno=True)
    private, bind = 1 << 18 | 1 << 14, 1 << 12
    assert libc.unshare(0x20000) == 0  # mounts of its own: those of threads that begin later, too
    assert libc.mount(None, b"/", None, private, None) == 0
    assert libc.mount(settings.encode(), b"/etc/resolv.conf", None, bind, None) == 0
    _asyncio._threadpool_idle_workers.get().clear()
async def main(workspace, port, settings):
    async with Session(workspace, network=Allow("a.test", "b.test", f"127.0.0.1:{port}")) as box:
        box.door.proxy._resolve = Resolver(seconds=0.5)
        in_force(settings)
        asked = " & ".join(["curl -s http://a.test/"] * (AT_ONCE + 4))
        print((await box.run(f"{asked} & wait")).stdout.splitlines()[-1])
        print((await box.run("curl -s http://b.test/")).stdout.strip())
        print((await box.run(f"curl -s --noproxy '' http://127.0.0.1:{port}/")).stdout.strip(), flush=True)
asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.root
def test_a_hanging_resolver_refuses_names_and_does_not_block_addresses(
    base_image: str, workspace: Path, tmp_path: Path, port: int
) -> None:
    """The machine's own resolver, with a name server that never answers."""
    settings = tmp_path / "resolv.conf"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mute:
        mute.bind((f"127.66.{os.getpid() % 250}.{os.getpid() // 250 % 250 + 1}", 53))
        settings.write_text(
            f"nameserver {mute.getsockname()[0]}\noptions timeout:2 attempts:1\n"
        )
        with process_with_a_door(HUNG, workspace, port, settings) as process:
            first, second, by_number = process.communicate(timeout=60)[0].splitlines()
        assert b"a\x04test" in mute.recv(1000, socket.MSG_DONTWAIT)
    assert first == "belljar: the host's resolver did not answer for a.test"
    assert second == "belljar: the host's resolver did not answer for b.test"
    assert by_number == "hello"

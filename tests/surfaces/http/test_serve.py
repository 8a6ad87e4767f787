"""Starting and stopping the process (serve.py)."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
from tests.surfaces.http.serving import KEY, serving

from belljar.surfaces.http import serve


def _refused(state: Path, *options: str, **env: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "belljar", "serve", "--listen", "127.0.0.1:0", *options], capture_output=True, text=True,
        env={**os.environ, "BELLJAR_STATE": str(state), **env}, timeout=60, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (2, ""), ran.stderr
    return ran.stderr


@pytest.mark.parametrize(
    "options",
    [
        ("--listen", "0.0.0.0:0"), ("--listen", "nonsense"), ("--listen", "127.0.0.1"), ("--tls-cert", "x"),
        ("--behind-proxy",), ("--behind-proxy", "--public-url", "http://x"), ("--database", "mysql://x"),
        ("--output-kept", "many"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    assert _refused(tmp_path, *options)


@pytest.mark.parametrize(
    "key", ["", "bj_short", "xx_" + "a" * 40, "bj_" + "a" * 40 + " "]
)
def test_a_weak_first_key_is_refused(tmp_path: Path, key: str) -> None:
    assert serve.BOOTSTRAP in _refused(tmp_path, BELLJAR_BOOTSTRAP_KEY=key)


def test_the_first_key_is_told_once_and_hidden(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        assert set(server.told) == {"url", "pid"}
        assert server.told["pid"] == server.process.pid
        assert KEY.encode() not in b"".join(
            path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
        )
        assert "another belljar serve" in _refused(tmp_path)
        assert server.stop() == 0
    environment = {
        name: value for name, value in os.environ.items() if name != serve.BOOTSTRAP
    }
    fresh = tmp_path / "fresh"
    fresh.mkdir(0o700)
    process = subprocess.Popen(
        [sys.executable, "-m", "belljar", "serve", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True,
        env={**environment, "BELLJAR_STATE": str(fresh)},
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert '"key": "bj_' in line
        process.terminate()
        assert process.wait(20) == 0


def test_tls_makes_cookies_secure(tmp_path: Path) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "k.pem", "-out", "c.pem", "-days", "1",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"], cwd=tmp_path, check=True,
        capture_output=True,
    )  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "belljar", "serve", "--listen", "127.0.0.1:0", "--tls-cert", f"{tmp_path}/c.pem",
         "--tls-key", f"{tmp_path}/k.pem"], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "BELLJAR_STATE": str(tmp_path), serve.BOOTSTRAP: KEY},
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        url = process.stdout.readline().split('"')[3]
        with httpx.Client(
            base_url=url,
            verify=ssl.create_default_context(cafile=tmp_path / "c.pem"),
            trust_env=False,
        ) as client:
            answer = client.post("/v1/login", json={"key": KEY})
        process.terminate()
        assert process.wait(20) == 0
    assert url.startswith("https://")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-belljar=")
    for part in ("HttpOnly", "Secure", "SameSite=strict", "Path=/"):
        assert part.lower() in cookie.lower()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /v1/sessions HTTP/1.1\r\nHost: x\r\nX-Slow: ",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
        b"",
    ],
    ids=["half a request", "no key", "nothing"],
)
def test_clients_without_a_key_do_not_lock_out_others(
    tmp_path: Path, sent: bytes
) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    with (
        serving(tmp_path / "state", wrapper=("prlimit", "--nofile=256:256")) as server,
        ExitStack() as held,
    ):
        for _ in range(400):
            idle = held.enter_context(
                socket.create_connection(("127.0.0.1", server.port), timeout=60)
            )
            with suppress(OSError):  # the server has closed it to make room
                idle.sendall(sent)
        with server.with_key(KEY) as client:
            client.timeout = httpx.Timeout(20)
            assert client.get("/v1/keys/self").status_code == 200


def test_connections_send_small_answers_at_once() -> None:
    with (
        serve._listening("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
    ):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

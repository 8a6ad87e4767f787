"""A real `belljar serve` in a process of its own, and a client for it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

KEY = "bj_" + secrets.token_urlsafe(32)
STARTS = 60.0
PYTHON = os.environ.get("BELLJAR_CHECKOUT_PYTHON", sys.executable)
"""In the environment of an agent framework (tests/adapters) the service's packages are missing."""


class Serving:
    """The process, and its client with the first key."""

    def __init__(
        self,
        state: Path,
        *options: str,
        env: dict[str, str] | None = None,
        wrapper: tuple[str, ...] = (),
    ) -> None:
        """`wrapper`: a program that starts the server."""
        self.state, self._options, self._wrapper = state, options, wrapper
        self._env = {
            **os.environ,
            "BELLJAR_STATE": str(state),
            "BELLJAR_BOOTSTRAP_KEY": KEY,
            **(env or {}),
        }
        self.port = 0
        self.start()

    def start(self) -> None:
        """Start it, at the same port as before."""
        self._log = open(self.state / "serve.log", "ab")  # noqa: SIM115
        listen = ["serve", "--listen", f"127.0.0.1:{self.port}", *self._options]
        self.process = subprocess.Popen(
            [*self._wrapper, PYTHON, "-m", "belljar", *listen],
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, (self.state / "serve.log").read_text()
        self.told = json.loads(line)
        self.url: str = self.told["url"]
        self.port = int(self.url.rsplit(":", 1)[1])
        self.client = self.with_key(KEY)
        self.told_key: str = self.client.get("/v1/keys/self").json()["id"]
        """The first key's id."""

    def with_key(self, key: str | None, **headers: str) -> httpx.Client:
        given = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(
            base_url=self.url, headers={**given, **headers}, timeout=60, trust_env=False
        )

    def kill(self) -> None:
        self.process.kill()
        self._ended()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self._ended()

    def _ended(self) -> int:
        status = self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()
        self.client.close()
        return status

    def workspace(self, name: str, tenant: str = "default") -> Path:
        """The directory of a workspace that the service keeps."""
        (found,) = self.state.glob(f"**/tenants/{tenant}/workspaces/{name}")
        return found

    # Short words for what tests do all the time.

    def session(self, **body: Any) -> str:
        made = self.client.post(
            "/v1/sessions", json=body, headers={"Prefer": "wait=60"}
        )
        assert made.status_code == 201, made.text
        assert made.json()["state"] == "ready", made.text
        return str(made.json()["id"])

    def run(
        self, session: str, command: str | list[str], wait: float = 60, **body: Any
    ) -> dict[str, Any]:
        answer = self.client.post(
            f"/v1/sessions/{session}/commands",
            json={"command": command, **body},
            headers={"Prefer": f"wait={wait}"},
        )
        assert answer.status_code in (200, 202), answer.text
        found: dict[str, Any] = answer.json()
        return found

    def key(self, *scopes: str, tenant: str = "default", **more: Any) -> dict[str, Any]:
        made = self.client.post(
            "/v1/keys",
            json={"name": "k", "scopes": [*scopes], "tenant": tenant, **more},
        )
        assert made.status_code == 201, made.text
        found: dict[str, Any] = made.json()
        return found


@contextlib.contextmanager
def serving(
    state: Path,
    *options: str,
    env: dict[str, str] | None = None,
    wrapper: tuple[str, ...] = (),
) -> Iterator[Serving]:
    server = Serving(state, *options, env=env, wrapper=wrapper)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            for session in server.client.get("/v1/sessions?limit=200").json()["items"]:
                server.client.delete(f"/v1/sessions/{session['id']}")
            server.stop()


def events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The events of a stream: `{"id", "event", "data"}`."""
    found: dict[str, Any] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if not line:
            if "event" in found:
                yield {**found, "data": json.loads(found["data"])}
            found = {}
        elif name in ("id", "event", "data"):
            found[name] = value

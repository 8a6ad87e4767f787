"""A real Chromium, with what every page promises watched all the time: no console error, no CSP violation."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .made_up import KEY, World, application

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE = 15_000
"""Milliseconds for what a page should do in two: the machine is busy."""


class Site:
    """The dashboard on a port of its own, in a thread."""

    def __init__(self, app: Any, port: int = 0) -> None:
        import uvicorn

        self._socket = socket.create_server(("127.0.0.1", port))
        self.port = int(self._socket.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        config = uvicorn.Config(
            app,
            log_level="critical",
            timeout_graceful_shutdown=0,
            lifespan="off",
            access_log=False,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True
        )
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)

    def stop(self) -> None:
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join(10)
        self._socket.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=list(FLAGS)
        )
        yield found
        found.close()


class Watched:
    """What went wrong in the pages of a test."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.foreign: list[str] = []
        self.expected: tuple[str, ...] = ()
        """Parts of messages that this test provokes."""

    def watch(self, context: Any) -> None:
        context.on(
            "console",
            lambda message: (
                message.type in ("error", "warning") and self._note(message.text)
            ),
        )
        context.on("weberror", lambda error: self._note(str(error.error)))
        context.on("request", lambda request: self._seen(request.url))

    def _note(self, text: str) -> None:
        if not any(part in text for part in self.expected):
            self.errors.append(text)

    def _seen(self, url: str) -> None:
        if not url.startswith(
            ("http://127.0.0.1:", "http://localhost:", "data:", "blob:")
        ):
            self.foreign.append(url)


@pytest.fixture
def watched() -> Iterator[Watched]:
    found = Watched()
    yield found
    assert found.errors == []
    assert found.foreign == []


@pytest.fixture
def open_page(
    browser: Any, watched: Watched, made_up: Any
) -> Iterator[Callable[..., Any]]:
    """Opens a page of a site, signed in with a key. The pages are closed before the made-up sites."""
    contexts = []

    def opened(url: str, path: str = "/", key: str | None = KEY, **options: Any) -> Any:
        context = browser.new_context(
            **{"viewport": {"width": 1920, "height": 1080}, **options}
        )
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        watched.watch(context)
        page = context.new_page()
        if key is not None:
            page.goto(
                f"{url}/login?next={path.replace('?', '%3F').replace('&', '%26').replace('=', '%3D')}"
            )
            page.get_by_label("Key", exact=True).fill(key)
            page.get_by_role("button", name="Sign in").click()
        else:
            page.goto(url + path)
        return page

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture
def made_up() -> Iterator[Callable[..., tuple[World, Site]]]:
    sites = []

    def made(sessions: int = 3, waiting: int = 1, **options: Any) -> tuple[World, Site]:
        world = World(sessions, waiting)
        site = Site(application(world, **options))
        sites.append(site)
        return world, site

    yield made
    for site in sites:
        site.stop()


def live(page: Any) -> Any:
    """The page, once it is live."""
    until(page, "document.documentElement.dataset.live === 'true'")
    return page


def until(page: Any, expression: str) -> None:
    """Waits until it is true in the page. Playwright's own way needs `eval`, which the page forbids."""
    from playwright.sync_api import Error

    end = time.monotonic() + PATIENCE / 1000
    while True:
        try:
            if page.evaluate(expression):
                return
        except Error:  # between two pages
            pass
        assert time.monotonic() < end, f"it never became true: {expression}"
        page.wait_for_timeout(50)


@pytest.fixture
def client(made_up: Callable[..., tuple[World, Site]]) -> Iterator[Callable[..., Any]]:
    """A plain HTTP client of a made-up site, signed in unless `key` is None."""
    import httpx

    clients = []

    def made(
        sessions: int = 3, waiting: int = 1, key: str | None = KEY, **options: Any
    ) -> httpx.Client:
        _, site = made_up(sessions, waiting, **options)
        found = httpx.Client(base_url=site.url)
        clients.append(found)
        if key is not None:
            assert (
                found.post("/login", data={"key": key, "next": "/"}).status_code == 303
            )
        return found

    yield made
    for each in clients:
        each.close()

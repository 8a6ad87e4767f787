"""One watch for all Pods (or claims) of an instance: whoever waits for one looks here, which costs the cluster nothing.

A thread lists them once, follows the changes from that version on, and begins again where the server ends the watch
or its version is too old. It starts with the first who waits, and ends when nobody has waited for a while.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from belljar.errors import EngineError

PAUSE_SECONDS = 0.2  # after an error; the API's own retries come on top
IDLE_SECONDS = 60.0
Found = Mapping[str, Any]


class Asks(Protocol):
    def get(self, name: str) -> dict[str, Any] | None: ...

    def list(self, labels: Mapping[str, str]) -> tuple[list[dict[str, Any]], str]: ...

    def watch(
        self, labels: Mapping[str, str], version: str
    ) -> Iterator[tuple[str, dict[str, Any]]]: ...


class ObjectWatch:
    def __init__(self, api: Asks, labels: Mapping[str, str]) -> None:
        self._api, self._labels = api, labels
        self._changed = threading.Condition()
        self._found: dict[str, Found] = {}
        self._gone: set[str] = set()
        """Those that were deleted while somebody waited."""
        self._waiting = 0
        self._wanted_until = 0.0
        self._thread: threading.Thread | None = None
        self._closed = False

    def wait(
        self, name: str, until: Callable[[Found], bool], deadline: float
    ) -> Found | None:
        """The object as it is when `until` holds, or at the deadline. None: there is none of this name, or no more."""
        first = self._api.get(name)
        if first is None or until(first):
            return first
        with self._changed:
            self._found.setdefault(name, first)
            self._waiting += 1
            self._start()
            try:
                return self._wait(name, until, deadline) or (
                    None if name in self._gone else first
                )
            finally:
                self._waiting -= 1
                self._gone.discard(name)
                self._wanted_until = time.monotonic() + IDLE_SECONDS

    def _wait(
        self, name: str, until: Callable[[Found], bool], deadline: float
    ) -> Found | None:
        while name not in self._gone:
            found, left = self._found.get(name), deadline - time.monotonic()
            if left <= 0 or (found is not None and until(found)):
                return found
            self._changed.wait(left)
        return None

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=self._follow, name="belljar-pods", daemon=True
            )
            self._thread.start()

    def _follow(self) -> None:
        while not self._is_idle():
            try:
                self._follow_once()
            except (
                EngineError,
                RuntimeError,
            ):  # RuntimeError: the API was closed meanwhile
                time.sleep(PAUSE_SECONDS)
        with self._changed:
            self._found.clear()
            self._gone.clear()

    def _follow_once(self) -> None:
        listed, version = self._api.list(self._labels)
        with self._changed:
            self._found = {each["metadata"]["name"]: each for each in listed}
            self._changed.notify_all()
        for kind, found in self._api.watch(self._labels, version):
            self._note(kind, found)
            if self._is_idle():
                return

    def _note(self, kind: str, found: Found) -> None:
        with self._changed:
            if kind == "DELETED":
                self._found.pop(found["metadata"]["name"], None)
                if self._waiting:
                    self._gone.add(found["metadata"]["name"])
            else:
                self._found[found["metadata"]["name"]] = found
            self._changed.notify_all()

    def _is_idle(self) -> bool:
        with self._changed:
            return self._closed or (
                not self._waiting and time.monotonic() > self._wanted_until
            )

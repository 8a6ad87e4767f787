"""The numbers of `/metrics`, for Prometheus. No id, name or tenant is a label."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.process_collector import ProcessCollector

if TYPE_CHECKING:
    from collections.abc import Mapping

STATES = ("queued", "pulling", "starting", "verifying", "ready", "paused", "ended")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WEBSOCKET")
"""That are labels; a client may make up any number of others."""
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.sessions = Gauge(
            "belljar_sessions", "Sessions by state", ["state"], registry=registry
        )
        self._creates = Counter(
            "belljar_session_creates",
            "Sessions created",
            ["outcome"],
            registry=registry,
        )
        self._ready = Histogram(
            "belljar_session_ready_seconds",
            "From create to ready",
            registry=registry,
            buckets=_SECONDS,
        )
        self.running = Gauge(
            "belljar_commands_running", "Commands that run", registry=registry
        )
        self._commands = Counter(
            "belljar_commands", "Commands that ended", ["cause"], registry=registry
        )
        self._seconds = Histogram(
            "belljar_command_seconds",
            "How long commands ran",
            registry=registry,
            buckets=_SECONDS,
        )
        self.denied = Counter(
            "belljar_denied", "Commands that the policy denied", registry=registry
        )
        self.waiting = Gauge(
            "belljar_approvals_waiting", "Approvals that wait", registry=registry
        )
        self.approvals = Counter(
            "belljar_approvals",
            "Approvals by what became of them",
            ["state"],
            registry=registry,
        )
        self.pool_hits = Counter(
            "belljar_pool_hits", "Sessions from a warm sandbox", registry=registry
        )
        self.pool_misses = Counter(
            "belljar_pool_misses", "Sessions that started one", registry=registry
        )
        self.pool_ready = Gauge(
            "belljar_pool_ready", "Warm sandboxes that wait", registry=registry
        )
        self.streams = Gauge("belljar_streams", "Open streams", registry=registry)
        self._requests = Counter(
            "belljar_http_requests",
            "Requests",
            ["method", "route", "status"],
            registry=registry,
        )
        self._request_seconds = Histogram(
            "belljar_http_request_seconds",
            "How long requests took",
            registry=registry,
            buckets=_SECONDS,
        )

    def session_created(self, outcome: str, seconds: float | None = None) -> None:
        self._creates.labels(outcome).inc()
        if seconds is not None:
            self._ready.observe(seconds)

    def command_ended(self, cause: str, seconds: float) -> None:
        self._commands.labels(cause).inc()
        self._seconds.observe(seconds)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        known = method if method in METHODS else "other"
        self._requests.labels(known, route, str(status)).inc()
        self._request_seconds.observe(seconds)

    def text(self, sessions: Mapping[str, int], running: int, waiting: int) -> bytes:
        for state in STATES:
            self.sessions.labels(state).set(sessions.get(state, 0))
        self.running.set(running)
        self.waiting.set(waiting)
        return generate_latest(self._registry)

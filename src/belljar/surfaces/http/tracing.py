"""OpenTelemetry: spans of requests, starts of sessions and commands, and how long each took.

Only its API is used here. Without an SDK all of this does nothing; with one (`opentelemetry-instrument belljar serve`,
configured by its OTEL_… variables) a client's trace goes on through the service. Ids are attributes; what a command
says or prints is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opentelemetry import context, metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode

_tracer, _meter = trace.get_tracer("belljar"), metrics.get_meter("belljar")
_requests = _meter.create_histogram(
    "http.server.request.duration", "s", "How long requests took"
)
_commands = _meter.create_histogram(
    "belljar.command.duration", "s", "How long commands ran"
)
_starts = _meter.create_histogram(
    "belljar.session.start.duration", "s", "From create to ready"
)


@contextmanager
def request(method: str, headers: Mapping[str, str]) -> Iterator[Span]:
    """The span of a request, as a part of the client's trace."""
    with _tracer.start_as_current_span(
        method, propagate.extract(dict(headers)), SpanKind.SERVER
    ) as span:
        yield span


def answered(
    span: Span, method: str, route: str, status: int, seconds: float, request_id: str
) -> None:
    known: dict[str, str | int] = {
        "http.request.method": method,
        "http.route": route,
        "http.response.status_code": status,
    }
    _requests.record(seconds, known)
    span.update_name(f"{method} {route}")
    span.set_attributes({**known, "belljar.request_id": request_id})
    if status >= 500:
        span.set_status(StatusCode.ERROR)


def here() -> Context:
    """What runs on belongs to this request."""
    return trace.set_span_in_context(trace.get_current_span(), context.Context())


def command_ended(
    within: Context, ids: Mapping[str, str], began: float, result: Any
) -> None:
    told = {"belljar.cause": result.cause}
    _commands.record(result.duration, told)
    _past(
        "command",
        within,
        {**ids, **told, "process.exit.code": result.exit_code},
        began,
        began + result.duration,
    )


def session_started(within: Context, id: str, began: float, ready: float) -> None:
    _starts.record(ready - began)
    _past("session start", within, {"belljar.session": id}, began, ready)


def _past(
    name: str, within: Context, told: Mapping[str, Any], began: float, ended: float
) -> None:
    """A span of what is over."""
    _tracer.start_span(name, within, attributes=told, start_time=int(began * 1e9)).end(
        int(ended * 1e9)
    )

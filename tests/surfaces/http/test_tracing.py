"""Spans and the log of requests (tracing.py, app.py), as a server with OpenTelemetry's own SDK sends them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.surfaces.http.serving import KEY, serving

from belljar.surfaces.http import tracing  # noqa: F401 - what these tests are about

SDK = """
import os
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
out = open(os.environ["SPANS"], "a")
provider = TracerProvider()
one_line = lambda span: span.to_json(indent=None) + chr(10)
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=out, formatter=one_line)))
trace.set_tracer_provider(provider)
"""
TRACE = "0af7651916cd43dd8448eb211c80319c"


def test_a_clients_trace_goes_on_through_the_service(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SDK)
    spans = tmp_path / "spans"
    env = {"PYTHONPATH": str(tmp_path), "SPANS": str(spans), "BELLJAR_LOG": "info,json"}
    with serving(tmp_path, env=env) as server:
        server.client.headers["traceparent"] = f"00-{TRACE}-b7ad6b7169203331-01"
        server.client.headers["X-Request-Id"] = "mine"
        session = server.session()
        server.run(session, "echo topsecret; exit 3")
        server.client.get("/v1/keys/nobody")
    found = {
        span["name"]: span for span in map(json.loads, spans.read_text().splitlines())
    }
    command, asked = found["command"], found["POST /v1/sessions/{sid}/commands"]
    assert {
        span["context"]["trace_id"] for span in (command, asked, found["session start"])
    } == {f"0x{TRACE}"}
    assert command["parent_id"] == asked["context"]["span_id"]
    assert command["attributes"]["belljar.cause"] == "exited"
    assert command["attributes"]["process.exit.code"] == 3
    assert asked["attributes"]["belljar.request_id"] == "mine"
    assert "topsecret" not in spans.read_text()
    assert KEY not in spans.read_text()
    logged = [
        json.loads(line)
        for line in (tmp_path / "serve.log").read_text().splitlines()
        if line.startswith("{")
    ]
    requests: list[dict[str, Any]] = [
        each for each in logged if each["logger"] == "belljar.requests"
    ]
    made = next(
        each
        for each in requests
        if each["message"] == "POST /v1/sessions/{sid}/commands"
    )
    assert (made["status"], made["request_id"], made["tenant"]) == (
        200,
        "mine",
        "default",
    )
    assert KEY not in (tmp_path / "serve.log").read_text()

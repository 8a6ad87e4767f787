"""Schemathesis against a running server: what `/openapi.json` says of requests and answers holds for thousands of them.

The key's quota keeps the number of sandboxes small; the names of a real session and command are given, so that requests
reach what needs one. `/v1/events` is left out: it has no end.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.surfaces.http.serving import Serving

pytestmark = pytest.mark.engine

AT_LEAST = 2000
EXAMPLES = 8
CONFIG = """
[warnings]
enabled = false

[checks.positive_data_acceptance]
# A body may be well formed and yet name what is not there, or not fit to what is.
expected-statuses = ["2xx", 400, 401, 403, 404, 409, 410, 422, 429]

[parameters]
"path.sid" = "{sid}"
"path.cid" = "{cid}"
"""


def _fuzz(
    server: Serving, key: str, where: Path, config: str, *options: str
) -> tuple[int, str]:
    """Failures are in the text; the number of cases."""
    (where / "schemathesis.toml").write_text(config)
    command = [
        str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(where / "schemathesis.toml"), "run",
        f"{server.url}/openapi.json", "-H", f"Authorization: Bearer {key}", "--exclude-path", "/v1/events",
        "--phases", "examples,coverage,fuzzing", "--continue-on-failure", "--no-color", "--seed", "29",
        "--request-timeout", "90", *options,
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=where
    )
    cases = re.search(r"Test cases:\n\s+(\d+) generated", done.stdout)
    assert cases, done.stdout[-3000:] + done.stderr
    assert done.returncode == 0, done.stdout[-12000:]
    return int(cases[1]), done.stdout


def test_two_thousand_requests_are_answered_as_the_schema_says(
    server: Serving, tmp_path: Path
) -> None:
    key = server.key("operator", quota={"sessions": 2, "creates_per_minute": 20})["key"]
    cases, _ = _fuzz(
        server,
        key,
        tmp_path,
        CONFIG.partition("[parameters]")[0],
        "--max-examples",
        str(EXAMPLES),
    )
    assert cases >= AT_LEAST


def test_requests_of_a_real_session_are_answered_as_the_schema_says(
    server: Serving, tmp_path: Path
) -> None:
    session = server.session(changes="staged")
    command = server.run(session, "echo hi")["id"]
    key = server.key("run", "approve", quota={"sessions": 3})["key"]
    config = CONFIG.format(sid=session, cid=command)
    # What ends the session, or waits long for it, is for other tests.
    left_out = (
        "--exclude-operation-id",
        "delete_session",
        "--exclude-operation-id",
        "patch_session",
    )
    cases, _ = _fuzz(
        server,
        key,
        tmp_path,
        config,
        "--include-path-regex",
        "/v1/sessions/",
        *left_out,
        "--max-examples",
        "6",
    )
    assert cases > 100
    assert server.client.get(f"/v1/sessions/{session}").json()["state"] == "ready"
    assert json.loads(server.client.get("/readyz").text)["status"] == "ready"

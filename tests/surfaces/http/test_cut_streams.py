"""A session whose sandbox is reached through its engine: the stream may be cut while the sandbox runs on."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
from tests.surfaces.http.serving import Serving, serving

from belljar.surfaces.http import commands, sessions  # noqa: F401 - what these are about

LINES = 60
COUNTED = f"for i in $(seq {LINES}); do echo line $i; sleep 0.05; done"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    bridged = {"BELLJAR_LINK": "bridge", "BELLJAR_ENGINE": "docker"}
    with serving(tmp_path_factory.mktemp("serve"), env=bridged) as found:
        yield found


def _cut(session: str) -> None:
    """End the bridge's process: the stream ends, and nothing in the sandbox."""
    shown = subprocess.run(
        ["docker", "top", f"belljar-{session}", "-eo", "pid,args"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    bridges = [line.split() for line in shown.splitlines() if "--bridge" in line]
    assert bridges
    for words in bridges:
        os.kill(int(words[0]), signal.SIGKILL)


def _after(server: Serving, session: str) -> None:
    """One that was sent just as the stream was cut may or may not run; it is never sent twice, and told as lost."""
    said = server.run(session, "echo after")["result"]
    while said["cause"] == "sandbox_lost":
        said = server.run(session, "echo after")["result"]
    assert said["stdout"] == "after\n"


def _begin(server: Serving, session: str, command: str) -> str:
    begun = server.run(session, command, wait=0)
    path = f"/v1/sessions/{session}/commands/{begun['id']}"
    while "line 3\n" not in server.client.get(f"{path}/output").text:
        time.sleep(0.05)
    return path


def test_a_cut_costs_no_session_no_line_and_no_command(server: Serving) -> None:
    session = server.session(changes="staged")
    server.run(session, "export KEPT=yes; cd /tmp", shell="a")
    running = [_begin(server, session, COUNTED) for _ in range(2)]
    _cut(session)
    _after(server, session)
    assert server.run(session, "echo $KEPT $PWD", shell="a")["result"]["stdout"] == "yes /tmp\n"  # fmt: skip
    for path in running:
        done = server.client.get(path, headers={"Prefer": "wait=60"}).json()
        assert done["result"]["cause"] == "exited"
        expected = [f"line {number}" for number in range(1, LINES + 1)]
        assert done["result"]["stdout"].splitlines() == expected
    assert server.client.get(f"/v1/sessions/{session}").json()["state"] == "ready"


def test_a_command_that_waits_for_a_person_runs_after_a_cut(server: Serving) -> None:
    session = server.session(changes="staged")
    asked = server.run(session, 'rm -rf "$NOWHERE"; echo allowed', wait=0)
    query = f"/v1/approvals?state=waiting&session={session}"
    (approval,) = server.client.get(query).json()["items"]
    _cut(session)
    _after(server, session)
    decided = {"decision": "allow", "token": approval["token"]}
    server.client.post(f"/v1/approvals/{approval['id']}", json=decided)
    path = f"/v1/sessions/{session}/commands/{asked['id']}"
    done = server.client.get(path, headers={"Prefer": "wait=60"}).json()
    assert done["error"] is None, done["error"]
    assert done["result"]["stdout"] == "allowed\n"


def test_a_sandbox_that_ended_is_lost_as_before(server: Serving) -> None:
    session = server.session(changes="staged")
    path = _begin(server, session, f"{COUNTED}; sleep 600")
    subprocess.run(["docker", "kill", f"belljar-{session}"], check=True)
    done = server.client.get(path, headers={"Prefer": "wait=60"}).json()
    assert done["result"]["cause"] == "sandbox_lost", done
    assert done["result"]["stdout"].startswith("line 1\nline 2\n")
    while (found := server.client.get(f"/v1/sessions/{session}").json())["state"] != "ended":  # fmt: skip
        time.sleep(0.1)
    assert found["reason"] == "lost"

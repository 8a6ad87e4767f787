"""The command line at a service: run, sessions, shells, files; login and logout."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jsonschema import validate
from tests.surfaces.http.serving import KEY, Serving, serving
from tests.surfaces.invoking import Answer, belljar

from belljar.surfaces.cli import far
from belljar.surfaces.cli.schemas import SCHEMAS

pytestmark = pytest.mark.engine
Call = Callable[..., Answer]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("serve")) as started:
        yield started


@pytest.fixture
def call(server: Serving, workspace: Path) -> Call:
    def call(*args: str | Path, **options: object) -> Answer:
        env = {"BELLJAR_URL": server.url, "BELLJAR_KEY": KEY}
        return belljar(*args, cwd=workspace, env=env, **options)  # type: ignore[arg-type]

    return call


def test_run_goes_there_and_its_changes_wait_here(
    call: Call, workspace: Path, server: Serving
) -> None:
    (workspace / "here").write_text("")
    ran = call("run", "ls; id -u; echo err >&2; echo made > new; exit 7")
    assert (ran.status, ran.stdout.splitlines()[0]) == (7, "here")
    assert "err\n" in ran.stderr
    assert "staged as bj-" in ran.stderr
    assert not (workspace / "new").exists()
    assert "+made" in call("diff").stdout
    assert call("apply").status == 0
    assert (workspace / "new").read_text() == "made\n"
    trail = server.client.get("/v1/audit?kind=start&limit=200").json()["items"]
    assert any("echo made" in record["command"] for record in trail)


def test_results_and_refusals_are_those_of_a_run_at_home(call: Call) -> None:
    assert call("run", "--json", "printf hi").json["stdout"] == "hi"
    denied = call("run", "rm -rf /")
    assert (denied.status, denied.complaint.split()[1]) == (126, "denied:")
    assert call("run", "--", "no-such-program").status == 127
    assert call("run", "--timeout", "1", "sleep 600").status == 124
    assert call("run", "cat", stdin=b"piped\n" * 100_000).stdout == "piped\n" * 100_000
    assert call("run", "--mount", "/srv:/data", "true").status == 2


def test_sessions_shells_and_files(call: Call, workspace: Path) -> None:
    id = call(
        "session", "start", "--name", "work", "--workspace", "@shared"
    ).stdout.strip()
    assert id.startswith("bj-")
    listed = call("ps", "--json").json
    assert [each["id"] for each in listed] == [id]
    validate(listed, SCHEMAS["session-list"])
    assert call("run", "--session", "work", "echo kept > x").status == 0
    assert call("run", "--session", id, "cat x").stdout == "kept\n"
    shell = call("start", "--session", id, "echo tick; sleep 600").stdout.strip()
    assert shell in call("shells").stdout
    (workspace / "up.txt").write_text("up\n")
    assert call("cp", "up.txt", f"{id}:up.txt").status == 0
    assert call("cp", f"{id}:up.txt", "-").stdout == "up\n"
    assert call("logs", shell).stdout == "tick\n"
    assert call("kill", shell).status == 0
    assert call("wait", shell).status != 0
    assert call("session", "stop", "work").status == 0
    assert call("ps", "--json").json == []


def test_a_directory_that_a_session_keeps_comes_back_whenever_it_is_asked_for(
    call: Call, workspace: Path
) -> None:
    (workspace / "a").write_text("1\n")
    id = call("session", "start").stdout.strip()
    assert call("run", "--session", id, "cat a; echo 2 >> a").stdout == "1\n"
    assert call("apply", "--session", id).status == 0
    assert (workspace / "a").read_text() == "1\n2\n"
    assert call("session", "stop", id).status == 0


def test_one_tool_call_runs_there(call: Call) -> None:
    answer = call("call", "execute_command", "command=echo there")
    assert "there" in answer.stdout, answer


def test_what_a_service_cannot_do_is_refused(call: Call) -> None:
    refused = call("shell", stdin=b"ls\n")
    assert refused.status == 2
    assert "BELLJAR_URL=" in refused.complaint


def test_login_is_kept_where_only_its_owner_reads_it(
    server: Serving, tmp_path: Path, workspace: Path
) -> None:
    config = tmp_path / "config" / "config.toml"
    config.parent.mkdir()
    config.write_text("")
    env = {"BELLJAR_CONFIG": str(config)}
    wrong = belljar("login", server.url, stdin=b"bj_" + b"x" * 40 + b"\n", env=env)
    assert wrong.status == 125
    assert not (config.parent / far.FILE).exists()
    done = belljar("login", server.url, stdin=f"{KEY}\n".encode(), env=env)
    assert done.status == 0, done
    assert KEY not in done.stdout + done.stderr
    saved = config.parent / far.FILE
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    assert belljar("run", "echo hi", cwd=workspace, env=env).stdout == "hi\n"
    assert server.client.get("/v1/sessions").json()["items"][0]["reason"] == "deleted"
    saved.chmod(0o644)
    assert (
        "others may read it" in belljar("run", "true", cwd=workspace, env=env).complaint
    )
    assert belljar("logout", env=env).status == 0
    assert not saved.exists()


def test_an_empty_address_means_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BELLJAR_URL", "")
    assert far.configured() is None
    monkeypatch.setenv("BELLJAR_URL", "https://x.example")
    monkeypatch.setenv("BELLJAR_KEY", KEY)
    assert far.configured() == ("https://x.example", KEY)
    assert os.environ["BELLJAR_KEY"] == KEY

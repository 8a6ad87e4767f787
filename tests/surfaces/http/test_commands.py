"""Commands over HTTP: results, streams, input, signals, kills, what is refused (commands.py, streams.py, shells.py)."""

from __future__ import annotations

import base64
import json
import resource
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.surfaces.http.serving import KEY, Serving, events, serving

from belljar.surfaces.http import commands, streams  # noqa: F401 - what these tests are about

SSE = {"Accept": "text/event-stream"}


def _stream(server: Serving, path: str, **headers: str) -> list[dict[str, Any]]:
    with server.client.stream("GET", path, headers={**SSE, **headers}) as answer:
        assert answer.status_code == 200
        return list(events(answer.iter_lines()))


def _bytes(told: list[dict[str, Any]]) -> bytes:
    found = bytearray()
    for event in told:
        if event["event"] == "output":
            data = event["data"]
            piece = (
                data["text"].encode()
                if "text" in data
                else base64.b64decode(data["base64"])
            )
            assert data["offset"] + len(piece) == int(event["id"])
            found += piece
    return bytes(found)


def test_a_command_answers_with_its_result(server: Serving, session: str) -> None:
    found = server.run(session, "echo out; echo err >&2; exit 3")
    assert (found["state"], found["exit_code"]) == ("ended", 3)
    assert (found["result"]["stdout"], found["result"]["stderr"]) == ("out\n", "err\n")
    assert found["result"]["cause"] == "exited"
    assert found["verdict"]["decision"] == "allow"


def test_an_argument_vector_runs_as_it_is(server: Serving, session: str) -> None:
    assert (
        server.run(session, ["printf", "%s|", "a b", "$HOME"])["result"]["stdout"]
        == "a b|$HOME|"
    )


def test_a_command_runs_on_when_the_wait_is_over(server: Serving, session: str) -> None:
    found = server.run(session, "sleep 1; echo done", wait=0)
    assert found["state"] in ("running", "ended")
    path = f"/v1/sessions/{session}/commands/{found['id']}"
    later = server.client.get(path, headers={"Prefer": "wait=30"}).json()
    assert later["result"]["stdout"] == "done\n"


def test_bytes_that_are_no_text_come_as_base64(server: Serving, session: str) -> None:
    found = server.run(session, r"printf '\377\376'")
    assert base64.b64decode(found["result"]["stdout_base64"]) == b"\xff\xfe"
    told = _stream(server, f"/v1/sessions/{session}/commands/{found['id']}")
    assert _bytes(told) == b"\xff\xfe"


def test_a_stream_goes_on_at_any_byte(server: Serving, session: str) -> None:
    found = server.run(
        session, "for i in 1 2 3 4 5; do echo äöü-$i; echo é$i >&2; done"
    )
    path = f"/v1/sessions/{session}/commands/{found['id']}"
    told = _stream(server, path)
    assert [event["event"] for event in (told[0], told[-1])] == ["started", "ended"]
    assert (told[0]["id"], told[-1]["id"]) == ("0", "end")
    whole = _bytes(told)
    assert len(whole) == found["bytes_produced"]
    for position in range(len(whole) + 1):
        again = _stream(server, path, **{"Last-Event-ID": str(position)})
        assert _bytes(again) == whole[position:]
        assert again[0]["event"] != "started"
    assert (
        server.client.get(path, headers={**SSE, "Last-Event-ID": "end"}).status_code
        == 204
    )
    for wrong in (str(len(whole) + 1), "-1", "x", "1.0"):
        assert (
            server.client.get(path, headers={**SSE, "Last-Event-ID": wrong}).json()[
                "code"
            ]
            == "usage"
        )


def test_a_post_can_answer_as_a_stream(server: Serving, session: str) -> None:
    body = {"command": "echo a; sleep 0.2; echo b"}
    with server.client.stream(
        "POST", f"/v1/sessions/{session}/commands", json=body, headers=SSE
    ) as answer:
        told = list(events(answer.iter_lines()))
    assert _bytes(told) == b"a\nb\n"
    assert told[0]["data"]["command"]["state"] == "running"
    assert told[-1]["data"]["command"]["result"]["stdout"] == "a\nb\n"


def test_many_readers_get_the_same_bytes(server: Serving, session: str) -> None:
    found = server.run(
        session, "for i in $(seq 300); do echo line $i; sleep 0.002; done", wait=0
    )
    path, got = f"/v1/sessions/{session}/commands/{found['id']}", []

    def read() -> None:
        got.append(_bytes(_stream(server, path)))

    readers = [threading.Thread(target=read) for _ in range(8)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(60)
    assert got == ["".join(f"line {i}\n" for i in range(1, 301)).encode()] * 8


def test_output_is_read_by_position(server: Serving, session: str) -> None:
    found = server.run(
        session, "echo 12345; sleep 0.3; echo 678 >&2; sleep 0.3; echo 9"
    )
    path = f"/v1/sessions/{session}/commands/{found['id']}/output"
    answer = server.client.get(path, params={"offset": 2, "limit": 5})
    assert answer.content == b"345\n6"
    assert (answer.headers["belljar-offset"], answer.headers["belljar-next"]) == (
        "2",
        "7",
    )
    assert answer.headers["content-security-policy"].startswith("sandbox")
    only = server.client.get(path, params={"stream": "stdout"})
    assert only.content == b"12345\n9\n"
    assert only.headers["belljar-next"] == str(found["bytes_produced"])
    assert server.client.get(path, params={"offset": 1000}).json()["code"] == "usage"


def test_megabytes_arrive_whole(server: Serving, session: str) -> None:
    found = server.run(session, "head -c 30000000 /dev/zero | tr '\\0' x")
    assert found["bytes_produced"] == 30_000_000
    path = f"/v1/sessions/{session}/commands/{found['id']}/output"
    position = 0
    while position < 30_000_000:
        answer = server.client.get(path, params={"offset": position, "limit": 16 << 20})
        assert answer.content.strip(b"x") == b""
        position = int(answer.headers["belljar-next"])
    assert position == 30_000_000


def test_stdin_is_text_or_a_stream(server: Serving, session: str) -> None:
    assert server.run(session, "cat", stdin="given")["result"]["stdout"] == "given"
    assert server.run(session, "cat")["result"]["stdout"] == ""
    found = server.run(session, "cat; echo end", wait=0, stdin_open=True)
    path = f"/v1/sessions/{session}/commands/{found['id']}"
    assert server.client.post(f"{path}/stdin", content=b"one ").status_code == 204
    assert (
        server.client.post(f"{path}/stdin?close=true", content=b"two\n").status_code
        == 204
    )
    ended = server.client.get(path, headers={"Prefer": "wait=30"}).json()
    assert ended["result"]["stdout"] == "one two\nend\n"
    assert (
        server.client.post(f"{path}/stdin", content=b"x").json()["code"] == "conflict"
    )


def test_a_signal_reaches_all_processes(server: Serving, session: str) -> None:
    found = server.run(
        session,
        "trap 'echo got it; exit 7' USR1; echo up; while :; do sleep 0.05; done",
        wait=0,
    )
    path = f"/v1/sessions/{session}/commands/{found['id']}"
    assert server.client.get(f"{path}/output", params={"wait": 30}).content == b"up\n"
    assert (
        server.client.post(f"{path}/signal", json={"signal": "USR1"}).status_code == 200
    )
    ended = server.client.get(path, headers={"Prefer": "wait=30"}).json()
    assert (ended["exit_code"], ended["result"]["stdout"]) == (7, "up\ngot it\n")
    assert (
        server.client.post(f"{path}/signal", json={"signal": 2}).json()["code"]
        == "conflict"
    )
    assert server.client.post(f"{path}/signal", json={"signal": "NONE"}).json()[
        "code"
    ] in ("usage", "conflict")


def test_the_answer_to_a_kill_is_a_receipt(server: Serving, session: str) -> None:
    found = server.run(
        session, "setsid sleep 1000 & sleep 1000 & echo up; sleep 1000", wait=0
    )
    path = f"/v1/sessions/{session}/commands/{found['id']}"
    server.client.get(f"{path}/output", params={"wait": 30})
    killed = server.client.delete(f"{path}?grace=0").json()
    assert killed["result"]["cause"] == "killed"
    assert server.run(session, "pgrep -c sleep")["result"]["stdout"] == "0\n"
    assert server.client.delete(path).json() == killed


def test_a_timeout_and_a_limit_of_output_end_a_command(
    server: Serving, session: str
) -> None:
    late = server.run(session, "echo early; sleep 100", timeout=0.5, grace=0.2)
    assert (late["result"]["cause"], late["exit_code"], late["result"]["stdout"]) == (
        "timeout",
        124,
        "early\n",
    )
    long = server.run(session, "yes", output_limit=1000)
    assert long["result"]["cause"] == "output_limit"
    assert long["result"]["bytes_kept"] == 1000


def test_a_named_shell_keeps_its_directory_and_variables(
    server: Serving, session: str
) -> None:
    server.run(
        session,
        "mkdir -p d; cd d; X='a b'; export Y=2; f() { echo \"f $1\"; }",
        shell="a",
    )
    found = server.run(session, 'pwd; echo "$X $Y"; f 3; false', shell="a")
    assert found["result"]["stdout"] == "/workspace/d\na b 2\nf 3\n"
    assert found["exit_code"] == 1
    assert (
        server.run(session, 'pwd; echo "[$X]"', shell="b")["result"]["stdout"]
        == "/workspace\n[]\n"
    )
    assert server.run(session, "exit 4", shell="a")["exit_code"] == 4
    assert server.run(session, "pwd", shell="a")["result"]["stdout"] == "/workspace/d\n"


def test_a_shell_runs_one_command_at_a_time(server: Serving, session: str) -> None:
    first = server.run(session, "sleep 1; Z=1", shell="q", wait=0)
    second = server.run(session, "echo $Z", shell="q", wait=0)
    assert (first["state"], second["state"]) == ("running", "queued")
    path = f"/v1/sessions/{session}/commands/{second['id']}"
    assert (
        server.client.get(path, headers={"Prefer": "wait=30"}).json()["result"][
            "stdout"
        ]
        == "1\n"
    )


def test_a_denied_command_makes_nothing(server: Serving, session: str) -> None:
    before = server.client.get(f"/v1/sessions/{session}/commands").json()["items"]
    body = {"command": "rm -rf /"}
    answer = server.client.post(f"/v1/sessions/{session}/commands", json=body)
    assert answer.status_code == 403
    problem = answer.json()
    assert (problem["code"], problem["declined"], problem["verdict"]["decision"]) == (
        "policy_denied",
        False,
        "deny",
    )
    assert (
        server.client.get(f"/v1/sessions/{session}/commands").json()["items"] == before
    )


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["no-such-program"], "command_not_found"),
        (["/etc/passwd"], "command_not_executable"),
    ],
)
def test_a_command_that_cannot_start_says_why(
    server: Serving, session: str, command: list[str], code: str
) -> None:
    answer = server.client.post(
        f"/v1/sessions/{session}/commands", json={"command": command}
    )
    assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert answer.json()["command"]["state"] == "ended"


def test_a_terminal_has_its_size(server: Serving, session: str) -> None:
    found = server.run(session, "stty size; tty", pty=True, size=[33, 101])
    assert found["result"]["stdout"].splitlines()[0] == "33 101"
    assert "/dev/pts" in found["result"]["stdout"]


def test_a_full_log_holds_a_command_back_until_it_was_read(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with serving(tmp_path_factory.mktemp("serve"), "--output-kept", "1m") as server:
        session = server.session()
        body = {"command": "seq 1000000", "on_full": "wait"}
        made = server.client.post(
            f"/v1/sessions/{session}/commands", json=body, headers={"Prefer": "wait=1"}
        ).json()
        assert made["state"] == "running"
        expected = "".join(f"{i}\n" for i in range(1, 1_000_001)).encode()
        told = _stream(server, f"/v1/sessions/{session}/commands/{made['id']}")
        assert _bytes(told) == expected
        assert not [event for event in told if event["event"] == "dropped"]
        dropped = server.run(session, "seq 1000000")
        assert 0 < dropped["bytes_dropped"] < len(expected)
        told = _stream(server, f"/v1/sessions/{session}/commands/{dropped['id']}")
        gone = next(
            event["data"]["bytes"] for event in told if event["event"] == "dropped"
        )
        assert expected[gone:] == _bytes(told)


def test_fifty_readers_are_enough(server: Serving, session: str) -> None:
    found = server.run(session, "sleep 100", wait=0)
    path = f"/v1/sessions/{session}/commands/{found['id']}"
    with server.with_key(KEY, **SSE) as client:
        opened = [
            client.send(client.build_request("GET", path), stream=True)
            for _ in range(50)
        ]
        assert {answer.status_code for answer in opened} == {200}
        refused = client.get(path)
        assert (refused.status_code, refused.json()["quota"]) == (429, "streams")
        for answer in opened:
            answer.close()
    assert server.client.delete(f"{path}?grace=0").json()["result"]["cause"] == "killed"


def test_a_command_that_the_service_cannot_follow_is_killed_and_has_its_end(
    tmp_path: Path,
) -> None:
    """Its output can be kept no more: a limit on the server's files stands for a full disk."""
    with serving(tmp_path) as server:
        session, pid = server.session(), server.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1 << 20, before[1]))
        command = "head -c 3000000 /dev/zero | base64; sleep 1000"
        answer = server.client.post(
            f"/v1/sessions/{session}/commands",
            json={"command": command},
            headers={"Prefer": "wait=60"},
        )
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        assert answer.status_code == 500
        gone = "while grep -qz ^base64 /proc/[0-9]*/cmdline 2>/dev/null; do :; done"
        assert server.run(session, gone, timeout=30)["exit_code"] == 0
        server.client.delete(f"/v1/sessions/{session}")
        assert server.stop() == 0
    (trail,) = tmp_path.glob("**/tenants/default/**/audit.jsonl")
    runs = [
        (record["run"], record["kind"])
        for record in map(json.loads, trail.read_text().splitlines())
        if record["kind"] in ("start", "end")
    ]
    assert len(runs) == len(set(runs)) == 4
